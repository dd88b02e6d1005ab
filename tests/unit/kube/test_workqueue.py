"""The workqueue, in virtual time: order, one at a time, delays, back-off."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.kube.workqueue import Closed, Workqueue
from grove.sim.loop import run


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def wrapped() -> None:
        async def main() -> None:
            await test()

        run(main())

    wrapped.__name__ = test.__name__
    return wrapped


async def take(queue: Workqueue[str], count: int) -> list[str]:
    found = []
    for _ in range(count):
        key = await queue.get()
        queue.done(key)
        found.append(key)
    return found


@in_virtual_time
async def test_looks_that_came_earlier_leave_nothing_behind() -> None:
    """A timer of four hours, and an event every second: what was to come later is forgotten with each look."""
    queue = Workqueue[str]()
    for _ in range(10_000):
        queue.add("a", after_s=14_400.0)
        queue.add("a", after_s=0.05)
        assert await take(queue, 1) == ["a"]
    queue.add("a", after_s=14_400.0)
    assert queue.delayed == 1
    assert len(queue._delayed) < 100


@in_virtual_time
async def test_first_come_first_served() -> None:
    queue = Workqueue[str]()
    for key in ("b", "a", "c"):
        queue.add(key)
    assert await take(queue, 3) == ["b", "a", "c"]


@in_virtual_time
async def test_a_key_that_waits_is_not_added_twice() -> None:
    queue = Workqueue[str]()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert await take(queue, 2) == ["a", "b"]
    assert len(queue) == 0


@in_virtual_time
async def test_the_urgent_come_first_and_urgency_can_be_raised() -> None:
    queue = Workqueue[str]()
    queue.add("low", priority=-1)
    queue.add("a")
    queue.add("b")
    queue.add("b", priority=5)
    queue.add("b", priority=1)  # lowering it is not how it works
    assert await take(queue, 3) == ["b", "a", "low"]


@in_virtual_time
async def test_a_key_in_work_is_not_handed_out_again_until_done() -> None:
    queue = Workqueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await queue.get()
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    queue.done("b")
    assert queue.is_idle


@in_virtual_time
async def test_delays_are_exact_and_the_earliest_counts() -> None:
    queue, loop = Workqueue[str](), asyncio.get_running_loop()
    queue.add("late", after_s=3600)
    queue.add("soon", after_s=10)
    queue.add("soon", after_s=99)
    queue.add("late", after_s=60)
    assert (len(queue), queue.delayed) == (0, 2)
    assert (await queue.get(), loop.time()) == ("soon", 10)
    assert (await queue.get(), loop.time()) == ("late", 60)
    assert queue.delayed == 0


@in_virtual_time
async def test_a_delayed_key_may_also_be_added_now() -> None:
    queue, loop = Workqueue[str](), asyncio.get_running_loop()
    queue.add("a", after_s=10)
    queue.add("a")
    assert await take(queue, 1) == ["a"]
    assert loop.time() == 0
    assert await take(queue, 1) == ["a"]
    assert loop.time() == 10


@in_virtual_time
async def test_one_that_is_hurried_comes_now_and_not_later_again() -> None:
    queue, loop = Workqueue[str](), asyncio.get_running_loop()
    queue.add("first")
    queue.add("a", priority=1, after_s=10)
    queue.hurry("a")
    assert await take(queue, 2) == ["a", "first"], "with the urgency it was to come with"
    assert loop.time() == 0
    assert (queue.delayed, len(queue)) == (0, 0)
    queue.add("a", after_s=20)
    assert await take(queue, 1) == ["a"]
    assert loop.time() == 20


@in_virtual_time
async def test_one_that_is_hurried_while_in_work_comes_back_once() -> None:
    queue = Workqueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a", after_s=5)
    queue.hurry("a")
    queue.done("a")
    assert await take(queue, 1) == ["a"]
    assert (queue.delayed, len(queue)) == (0, 0)


@in_virtual_time
async def test_a_delay_that_ends_during_work_brings_the_key_back_afterwards() -> None:
    queue = Workqueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a", after_s=1)
    await asyncio.sleep(5)
    assert len(queue) == 1
    queue.done("a")
    assert await queue.get() == "a"


@in_virtual_time
async def test_back_off_doubles_up_to_its_maximum_and_starts_again_after_success() -> None:
    queue = Workqueue[str](backoff_s=1.0, max_backoff_s=5.0)
    assert [queue.retry("a") for _ in range(5)] == [1, 2, 4, 5, 5]
    assert queue.retry("b", at_least_s=3.0) == 3.0
    queue.forget("a")
    assert queue.retry("a") == 1
    assert queue.failures("a") == 1


@in_virtual_time
async def test_a_thousand_failures_do_not_overflow() -> None:
    queue = Workqueue[str]()
    assert [queue.retry("a") for _ in range(2000)][-1] == 60.0


@in_virtual_time
async def test_a_cancelled_getter_does_not_take_the_wake_up_along() -> None:
    queue = Workqueue[str]()
    loop = asyncio.get_running_loop()
    first, second = loop.create_task(queue.get()), loop.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


@in_virtual_time
async def test_shut_down_wakes_everybody_and_takes_nothing_more() -> None:
    queue = Workqueue[str]()
    waiting = asyncio.get_running_loop().create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("later", after_s=10)
    queue.shut_down()
    with pytest.raises(Closed):
        await waiting
    queue.add("a")
    with pytest.raises(Closed):
        await queue.get()


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.sampled_from([0.0, 0.0, 1.0, 2.5])), max_size=30),
    st.integers(1, 3),
)
def test_no_add_is_ever_lost_and_no_key_is_in_work_twice(adds: list[tuple[str, int, float]], workers: int) -> None:
    """After the last add of a key a worker takes it; two workers never have one key at the same time."""

    async def main() -> None:
        queue, loop = Workqueue[str](), asyncio.get_running_loop()
        active: set[str] = set()
        looked: dict[str, float] = {}

        async def worker() -> None:
            while True:
                try:
                    key = await queue.get()
                except Closed:
                    return
                assert key not in active
                active.add(key)
                looked[key] = loop.time()
                await asyncio.sleep(0.7)
                active.discard(key)
                queue.done(key)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())
            wanted: dict[str, float] = {}
            for key, priority, after_s in adds:
                queue.add(key, priority=priority, after_s=after_s)
                wanted[key] = max(wanted.get(key, 0.0), loop.time())
                await asyncio.sleep(0.3)
            await asyncio.sleep(1000)
            assert all(looked[key] >= when for key, when in wanted.items())
            assert queue.is_idle
            assert queue.delayed == 0
            queue.shut_down()

    run(main())
