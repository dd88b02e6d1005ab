"""Virtual time: it jumps, it is the same every run, and it says when nothing can happen any more."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest

from grove.sim.loop import EPOCH, LoopClock, OutOfTime, Stalled, VirtualLoop, run


def test_a_day_passes_in_no_time():
    async def main() -> float:
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(24 * 3600)
        return asyncio.get_running_loop().time() - start

    assert run(main()) == 24 * 3600


def test_timers_fire_in_the_order_of_their_times():
    async def main() -> list[int]:
        fired: list[int] = []

        async def after(seconds: int) -> None:
            await asyncio.sleep(seconds)
            fired.append(seconds)

        await asyncio.gather(*(after(s) for s in (3, 1, 2)))
        return fired

    assert run(main()) == [1, 2, 3]


def test_timeouts_use_virtual_time():
    async def main() -> None:
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(main())


def test_waiting_for_nothing_is_an_error_that_names_the_waiter():
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled, match="waits_for_ever"):
        run(waits_for_ever())


def test_a_run_has_a_limit():
    async def main() -> None:
        await asyncio.sleep(3601)

    with pytest.raises(OutOfTime):
        run(main(), limit_s=3600)


def test_random_is_seeded_for_the_run_and_put_back():
    async def main() -> float:
        return random.random()

    random.seed(7)
    before = random.getstate()
    first, again, other = run(main(), seed=1), run(main(), seed=1), run(main(), seed=2)

    assert first == again != other
    assert random.getstate() == before


def test_tasks_of_a_group_are_cancelled_in_the_order_they_were_made():
    # A set of tasks hashed by address would walk in another order every run.
    async def main() -> list[int]:
        cancelled: list[int] = []

        async def member(number: int) -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        async def fails() -> None:
            await asyncio.sleep(1)
            raise LookupError

        async def group() -> None:
            async with asyncio.TaskGroup() as members:
                for number in range(50):
                    members.create_task(member(number))
                members.create_task(fails())

        await asyncio.gather(group(), return_exceptions=True)
        return cancelled

    runs = [run(main()) for _ in range(3)]
    assert sorted(runs[0]) == list(range(50))
    assert runs[0] == runs[1] == runs[2]


def test_work_for_threads_runs_in_place():
    def fails() -> None:
        raise LookupError("from the thread")

    async def main() -> int:
        with pytest.raises(LookupError):
            await asyncio.to_thread(fails)
        return await asyncio.to_thread(lambda: 42)

    assert run(main()) == 42


def test_an_error_in_main_comes_out():
    async def main() -> None:
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        run(main())


def test_the_clock_starts_at_its_epoch_and_follows_the_loop():
    async def main() -> tuple[datetime, datetime]:
        clock = LoopClock()
        first = clock.now()
        await asyncio.sleep(90.5)
        return first, clock.now()

    assert run(main()) == (EPOCH, EPOCH + timedelta(seconds=90.5))


def test_the_clock_takes_another_epoch():
    async def main() -> datetime:
        return LoopClock(datetime(2030, 5, 1, tzinfo=UTC)).now()

    assert run(main()) == datetime(2030, 5, 1, tzinfo=UTC)


async def test_these_tests_themselves_run_in_virtual_time():
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
