"""Who is tried when: order, back-off, waking, standing back."""

from __future__ import annotations

import heapq

import pytest
from tests.support.scheduler.kit import RACK, gang, group, node, pod, snap
from tests.support.scheduler.toys import Quota

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.loop.state.unit import Units
from grove.scheduler.model.gang import Gang, Pin
from grove.scheduler.policy import relief as module
from grove.scheduler.policy.relief import Relief
from grove.scheduler.policy.waiting_queue import Backoff, Order, Stage, WaitingQueue


def order(name: str, *, priority: int = 0, stage: Stage = Stage.MINIMUM, created: float = 0.0) -> Order:
    return Order((-priority,), stage, created, name)


def names(queue: WaitingQueue, now: float) -> list[str]:
    heap = queue.due(now)
    return [heapq.heappop(heap)[1] for _ in range(len(heap))]


@pytest.mark.parametrize(
    ("units", "want"),
    [
        pytest.param([order("old", created=1), order("new", created=2)], ["old", "new"], id="the older first"),
        pytest.param([order("a", created=1), order("b", priority=5, created=9)], ["b", "a"], id="priority beats age"),
        pytest.param(
            [order("scaled", stage=Stage.SCALED_MINIMUM, created=1), order("base", created=9)],
            ["base", "scaled"],
            id="base gangs before scaled ones, whatever their age",
        ),
        pytest.param(
            [order("more", stage=Stage.SURPLUS), order("scaled", stage=Stage.SCALED_MINIMUM), order("base")],
            ["base", "scaled", "more"],
            id="surplus last",
        ),
        pytest.param(
            [order("low", created=1), order("high", priority=9, stage=Stage.SURPLUS, created=9)],
            ["high", "low"],
            id="surplus of a higher priority before a lower minimum",
        ),
        pytest.param([order("b"), order("a")], ["a", "b"], id="equals by name"),
    ],
)
def test_order(units: list[Order], want: list[str]) -> None:
    queue = WaitingQueue(Units(), Backoff())
    for unit in units:
        queue.offer(unit.name, unit, 0.0)
    assert names(queue, 0.0) == want


def test_a_parked_unit_waits_for_help_and_not_for_time() -> None:
    queue = WaitingQueue(Units(), Backoff(1.0, 8.0))
    queue.offer("a", order("a"), 0.0)
    queue.park("a", 0.0)
    assert names(queue, 1000.0) == []
    assert queue.next_due_s(1000.0) is None
    assert queue.wake(lambda name: name == "a") == 1
    assert names(queue, 1000.0) == ["a"]


def test_help_that_cannot_help_wakes_no_unit() -> None:
    queue = WaitingQueue(Units(), Backoff())
    queue.offer("a", order("a"), 0.0)
    queue.park("a", 0.0)
    assert queue.wake(lambda _: False) == 0
    assert names(queue, 10.0) == []


def test_back_off_doubles_up_to_its_most_and_ends_with_a_change_of_the_unit() -> None:
    queue = WaitingQueue(Units(), Backoff(1.0, 4.0))
    queue.offer("a", order("a"), 0.0)
    waits = []
    for _ in range(4):
        queue.park("a", 0.0)
        queue.wake(lambda _: True)
        waits.append(queue.next_due_s(0.0))
    assert waits == [1.0, 2.0, 4.0, 4.0]
    queue.offer("a", order("a"), 0.0, fresh=True)
    assert names(queue, 0.0) == ["a"]


def test_no_unit_overtakes_because_of_a_back_off() -> None:
    queue = WaitingQueue(Units(), Backoff(5.0, 5.0))
    queue.offer("first", order("first", created=1), 0.0)
    queue.park("first", 0.0)
    queue.wake(lambda _: True)
    assert names(queue, 1.0) == []
    queue.offer("second", order("second", created=2), 1.0)
    assert names(queue, 1.0) == ["first", "second"]


def test_trouble_on_the_way_is_waited_out() -> None:
    queue = WaitingQueue(Units(), Backoff(5.0, 5.0))
    queue.offer("a", order("a"), 0.0)
    queue.retry("a", 0.0)
    queue.offer("b", order("b"), 1.0)
    assert names(queue, 1.0) == ["b"]
    assert names(queue, 5.0) == ["a", "b"]


def test_a_unit_keeps_the_time_it_first_became_ready() -> None:
    queue = WaitingQueue(Units(), Backoff())
    queue.offer("a", order("a"), 3.0)
    queue.offer("a", order("a"), 9.0, fresh=True)
    waiting = queue.get("a")
    assert waiting is not None
    assert waiting.since_s == 3.0


@pytest.mark.parametrize(
    ("waiting", "want"),
    [
        pytest.param(order("base"), True, id="a minimum of the same priority"),
        pytest.param(order("base", priority=3), True, id="a minimum of a higher priority"),
        pytest.param(order("base", priority=-3), False, id="a minimum of a lower priority"),
        pytest.param(order("other", stage=Stage.SURPLUS), False, id="surplus"),
    ],
)
def test_which_unit_yields_to_which(waiting: Order, want: bool) -> None:
    queue = WaitingQueue(Units(), Backoff())
    queue.offer(waiting.name, waiting, 0.0)
    assert queue.has_minimum_before(order("me", stage=Stage.SURPLUS)) is want


def test_standing_back_has_an_end() -> None:
    queue = WaitingQueue(Units(), Backoff())
    queue.offer("a", order("a", stage=Stage.SURPLUS), 0.0)
    queue.defer("a", 0.0, 2.0)
    assert names(queue, 1.0) == []
    assert queue.next_due_s(1.0) == 2.0
    queue.defer("a", 2.0, 3.0)
    waiting = queue.get("a")
    assert waiting is not None
    assert waiting.deferred_s == 0.0
    assert names(queue, 3.0) == ["a"]


def test_who_stands_back_follows_units_that_moved_in_the_order() -> None:
    """What is counted of ranks and stages is what the units have now, whatever moved them."""
    queue = WaitingQueue(Units(), Backoff())
    queue.offer("base", order("base", priority=5), 0.0)
    surplus = order("more", priority=5, stage=Stage.SURPLUS)
    assert queue.has_minimum_before(surplus)
    queue.reorder(lambda _: (0,))
    assert not queue.has_minimum_before(surplus)
    queue.withdraw("base")
    assert not queue.has_minimum_before(order("more", stage=Stage.SURPLUS))
    assert len(queue) == 0


def test_what_many_wait_for_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capacity that becomes free is checked once for each shape of pods, not for each waiting unit with such pods."""
    looked = []
    monkeypatch.setattr(
        module, "allowed_mask", lambda snapshot, shape: looked.append(shape) or allowed_mask(snapshot, shape)
    )
    snapshot, queue = snap([node("n0", 4), node("n1", 8)]), WaitingQueue(Units(), Backoff())
    relief = Relief(snapshot, queue, patience_s=0)
    for number in range(50):
        small, large = f"small-{number}", f"large-{number}"
        for name, gpus in ((small, 4), (large, 8)):
            queue.offer(name, order(name), 0.0)
            queue.park(name, 0.0)
            relief.remember(name, gang(group("g", 2, gpus)), may_evict=False)
    relief.wake_helped({"n0"}, 1.0)
    assert names(queue, 1.0) == sorted(f"small-{number}" for number in range(50))
    assert len(looked) == 2


@pytest.mark.parametrize(
    ("roomier", "now_at", "woken"),
    [
        pytest.param("a1", "a0", True, id="room in the rack of its base gang"),
        pytest.param("b1", "a0", False, id="room in another rack"),
        pytest.param("a1", "b0", True, id="its base gang has moved since: any room may help"),
        pytest.param("b1", "b0", True, id="its base gang has moved to that rack"),
        pytest.param("b1", None, True, id="its base gang has no place any more"),
    ],
)
def test_a_scaled_gang_is_woken_by_capacity_where_it_may_go(roomier: str, now_at: str | None, woken: bool) -> None:
    snapshot, queue = (
        snap([node(f"{rack}{n}", 8, rack=rack) for rack in "ab" for n in range(2)]),
        WaitingQueue(Units(), Backoff()),
    )
    relief = Relief(snapshot, queue, patience_s=0, pin_of=lambda _: Pin(RACK, now_at) if now_at else None)
    queue.offer("scaled", order("scaled"), 0.0)
    queue.park("scaled", 0.0)
    relief.remember("scaled", gang(group("g", 1, 8), pinned_domain=Pin(RACK, "a0")), may_evict=False)
    relief.wake_helped({roomier}, 1.0)
    assert names(queue, 1.0) == (["scaled"] if woken else [])


class Ageing(Quota):
    """Time entitles a unit after ten seconds; otherwise only what changes does."""

    looks = 0

    def changes_in_s(self, snapshot: Snapshot) -> float | None:
        return 10.0

    def may_reclaim(self, snapshot: Snapshot, gang: Gang) -> bool:
        self.looks += 1
        return False


def test_who_may_call_back_is_looked_for_after_changes_and_at_exact_moments() -> None:
    policy = Ageing({})
    snapshot, queue = snap([node("n0", 4)]), WaitingQueue(Units(), Backoff())
    snapshot.use(snapshot.seams.joined(policies=[policy]))
    relief = Relief(snapshot, queue, patience_s=0)
    assert relief.next_look_s(1.0) is None
    queue.offer("owner", order("owner"), 1.0)
    queue.park("owner", 1.0)
    relief.remember("owner", gang(group("g", 2, 4)), may_evict=True)
    relief.wake_entitled(1.0)
    assert (policy.looks, relief.next_look_s(1.0)) == (1, 11.0)
    for now_s in range(2, 11):
        relief.wake_entitled(float(now_s))
    assert policy.looks == 1, "nothing has changed"
    relief.wake_entitled(11.0)
    assert policy.looks == 2, "time has passed"
    snapshot.add_pod(pod("p", 1, on="n0"))
    relief.wake_entitled(11.0)
    assert policy.looks == 3, "a pod has come"
    policy.version += 1
    relief.wake_entitled(11.0)
    assert policy.looks == 4, "the policy goes by something else"
    queue.withdraw("owner")
    assert relief.next_look_s(12.0) is None


def line_of_three() -> WaitingQueue:
    queue = WaitingQueue(Units(), Backoff())
    for name in ("a", "b", "c"):
        queue.offer(name, order(name), 0.0)
        queue.park(name, 0.0, "ask")
    return queue


def test_of_units_that_are_alike_the_next_one_is_woken_when_the_first_is_placed() -> None:
    queue = line_of_three()
    assert queue.wake(lambda _: True) == 1
    assert [name for _, name in queue.due(9.0)] == ["a"]
    assert queue.wake_next("ask") is None, "the first has not been tried"
    queue.withdraw("a")
    woken = queue.wake_next("ask")
    assert woken is not None
    assert woken[1] == "b"
    queue.park("b", 9.0, "ask")
    queue.refuse_alike("ask")
    assert queue.wake_next("ask") is None
    assert queue.due(99.0) == []


def test_the_next_one_stays_parked_when_the_event_does_not_help_any_more() -> None:
    queue, is_free = line_of_three(), [True]
    assert queue.wake(lambda _: is_free[0]) == 1
    queue.withdraw("a")
    is_free[0] = False
    assert queue.wake_next("ask") is None
    assert queue.due(9.0) == []


def test_after_a_refusal_only_units_with_held_capacity_are_woken() -> None:
    queue = line_of_three()
    queue.owners = lambda: ["c", "elsewhere"]
    queue.wake(lambda _: True)
    queue.park("a", 1.0, "ask")
    queue.refuse_alike("ask")
    woken = queue.wake_next("ask")
    assert woken is not None
    assert woken[1] == "c"
    queue.wake(lambda _: True)
    assert {name for _, name in queue.due(9.0)} == {"a", "c"}, "the first may be helped by what came since"


def test_of_units_that_are_alike_one_is_asked_about() -> None:
    queue, asked = line_of_three(), []
    queue.wake(lambda name: asked.append(name) is not None)
    assert asked == ["a"]


def test_each_unit_that_is_alike_is_woken_once_when_all_of_them_report_another_reason() -> None:
    queue = line_of_three()
    assert queue.wake_all_alike("ask")
    seen = []
    while (woken := queue.wake_next("ask")) is not None:
        seen.append(woken[1])
        assert not queue.wake_all_alike("ask"), "that is under way"
        queue.park(woken[1], 1.0, "ask")
        queue.refuse_alike("ask")
    assert seen == ["a", "b", "c"]
    assert queue.due(99.0) == []


def test_a_unit_that_was_passed_over_is_woken_by_the_next_event() -> None:
    queue = line_of_three()
    queue.wake(lambda _: True)
    queue.withdraw("a")
    queue.wake_next("ask")
    queue.offer("a", order("a"), 1.0)
    queue.park("a", 1.0, "ask")
    queue.withdraw("b")
    queue.wake(lambda _: True)
    assert {name for _, name in queue.due(9.0)} == {"a"}
