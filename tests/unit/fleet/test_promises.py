"""The judges of a run: each is shown a cluster that keeps its promise, and one that breaks it."""

from __future__ import annotations

import pytest
from tests.support.judged_store import Watched

from grove.api.core import Pod
from grove.fleet.hits import GRACE_S
from grove.scheduler.model.reasons import BASE_WAITS, QUOTA_EXCEEDED


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize(("pods", "broken"), [(1, []), (2, ["Exact"])])
def test_a_node_holds_no_more_gpus_than_it_has(watched, pods, broken):
    watched.node("n1")
    for number in range(pods):
        watched.pod(f"p{number}", node="n1")
    assert watched.broken == broken
    assert watched.stops == len(broken)


@pytest.mark.parametrize(("pods", "broken"), [(2, []), (3, ["Exact"])])
def test_a_team_uses_no_more_than_its_limit(watched, pods, broken):
    watched.set("web", queue="chat")
    for number in range(pods):
        watched.node(f"n{number}")
        watched.pod(f"p{number}", node=f"n{number}")
    assert watched.broken == broken


@pytest.mark.parametrize(("bound", "broken"), [(2, []), (1, ["Atomic"]), (0, [])])
def test_a_gang_is_bound_whole_or_not_at_all_before_its_deadline(watched, bound, broken):
    watched.gang("train", 2)
    for number in range(2):
        watched.node(f"n{number}")
        watched.pod(f"p{number}", "train", node=f"n{number}" if number < bound else "", gang="train")
    watched.now_s = 599.0
    watched.node("other")
    assert watched.broken == []
    watched.now_s = 601.0
    watched.node("other")  # any write: the run stops at once
    assert watched.broken == broken


def test_a_gang_that_was_whole_may_lose_a_pod(watched):
    watched.gang("train", 2)
    for number in range(2):
        watched.node(f"n{number}")
        watched.pod(f"p{number}", "train", node=f"n{number}", gang="train")
    watched.delete(Pod.RESOURCE, "p0")
    watched.now_s = 5000.0
    watched.promises.look()
    assert watched.broken == []


# Caused and Minimum


def crash(watched: Watched, name: str) -> None:
    """The engine of a pod on `n0` crashes, and the pod is not ready any more."""
    watched.crash(name)
    watched.pod(name, node="n0", is_ready=False)


def fail_node(watched: Watched, name: str) -> None:
    watched.node("n0", is_up=False)
    watched.pod(name, node="n0", is_ready=False)


def fail_other_node(watched: Watched, name: str) -> None:
    watched.node("n1", is_up=False)
    watched.pod(name, node="n0", is_ready=False)


def drain(watched: Watched, name: str) -> None:
    watched.node("n0", is_cordoned=True)
    watched.delete(Pod.RESOURCE, name)


def evict(watched: Watched, name: str) -> None:
    watched.gang("web-0", 1, is_placed=True, is_evicted=True)
    watched.delete(Pod.RESOURCE, name)


def evict_other_gang(watched: Watched, name: str) -> None:
    watched.gang("job-0", 1, is_placed=True, is_evicted=True)
    watched.delete(Pod.RESOURCE, name)


def scale(watched: Watched, name: str) -> None:
    watched.group(1, replicas=1)
    watched.delete(Pod.RESOURCE, name)


def delete(watched: Watched, name: str) -> None:
    watched.delete(Pod.RESOURCE, name)


@pytest.mark.parametrize(
    ("happens", "broken"),
    [
        pytest.param(crash, [], id="its engine crashes"),
        pytest.param(fail_node, [], id="its node fails"),
        pytest.param(fail_other_node, ["Caused"], id="another node fails"),
        pytest.param(drain, [], id="its node is drained"),
        pytest.param(evict, [], id="its gang is preempted or moved"),
        pytest.param(evict_other_gang, ["Caused"], id="another gang is preempted"),
        pytest.param(scale, ["Caused"], id="a scaling group of the set is scaled in"),
        pytest.param(delete, ["Caused"], id="nothing from outside"),
    ],
)
def test_a_set_falls_below_its_minimum_only_if_its_pod_was_hit(watched, happens, broken):
    watched.node("n0")
    watched.node("n1")
    watched.set("web", 1)
    watched.group(2, replicas=2, minimum=1)
    watched.pod("p0", node="n0", gang="web-0")
    happens(watched, "p0")
    watched.now_s += 1.0
    watched.set("web", 0)
    assert watched.broken == broken


def test_a_crash_is_dated_by_the_clock_even_if_nothing_was_written_for_an_hour(watched):
    watched.node("n0")
    watched.set("web", 1)
    watched.pod("p0", node="n0")
    watched.now_s = 3600.0
    crash(watched, "p0")
    watched.set("web", 0)
    assert watched.broken == []


def test_a_failure_excuses_nothing_that_happens_after_its_repair(watched):
    watched.node("n0")
    watched.set("web", 1)
    watched.pod("p0", node="n0")
    fail_node(watched, "p0")
    watched.set("web", 0)
    watched.now_s = 100.0
    watched.node("n0")
    watched.pod("p0", node="n0")
    watched.set("web", 1)
    assert watched.broken == []
    watched.now_s = 100.0 + GRACE_S + 1
    watched.pod("p0", node="n0", is_ready=False)
    watched.set("web", 0)
    assert watched.broken == ["Caused"]


@pytest.mark.parametrize(("available", "broken"), [(1, []), (0, ["Caused"])])
def test_one_failure_takes_one_replica_of_a_set(watched, available, broken):
    watched.node("n0")
    watched.set("web", 2, replicas=2)
    watched.pod("p0", node="n0")
    fail_node(watched, "p0")
    watched.set("web", available, replicas=2)
    assert watched.broken == broken


def instances(watched: Watched, count: int, ready: int | None = None) -> None:
    """A group with this many instances of one pod, each on a node of its own."""
    watched.set("web", 1)
    watched.group(count if ready is None else ready, replicas=count)
    for number in range(count):
        watched.node(f"n{number}")
        is_ready = ready is None or number < ready
        watched.pod(f"p{number}", node=f"n{number}", instance=number, is_ready=is_ready, gang="web-0")


@pytest.mark.parametrize(
    ("hit", "available", "broken"),
    [
        pytest.param(0, 2, [], id="at its minimum"),
        pytest.param(0, 1, ["Caused"], id="one below, and none was hit"),
        pytest.param(1, 1, [], id="one below, and one was hit"),
        pytest.param(1, 0, ["Caused"], id="two below, and one was hit"),
        pytest.param(2, 0, [], id="two below, and two were hit"),
    ],
)
def test_a_group_falls_below_its_minimum_by_as_many_instances_as_were_hit(watched, hit, available, broken):
    instances(watched, 3)
    for number in range(hit):
        watched.node(f"n{number}", is_up=False)
        watched.pod(f"p{number}", node=f"n{number}", instance=number, is_ready=False)
    watched.group(available)
    assert watched.broken == broken


def test_a_hit_instance_that_was_not_ready_takes_nothing_away(watched):
    instances(watched, 3, ready=2)
    watched.node("n2", is_up=False)
    watched.pod("p2", node="n2", instance=2, is_ready=False)
    watched.group(1)
    assert watched.broken == ["Caused"]


def test_a_hit_instance_that_is_scaled_in_excuses_no_other(watched):
    instances(watched, 3)
    watched.node("n2", is_up=False)
    watched.pod("p2", node="n2", instance=2, is_ready=False)
    watched.group(2, replicas=2)
    watched.group(1, replicas=2)
    assert watched.broken == ["Caused"]


def test_a_restart_after_a_breach_is_a_cause(watched):
    instances(watched, 3)
    watched.group(3, restarted=[0, 1])
    for number in (0, 1):
        watched.delete(Pod.RESOURCE, f"p{number}")
    watched.group(1, restarted=[0, 1])
    assert watched.broken == []


def test_the_excused_share_is_instances_that_were_hit_weighed_by_time(watched):
    instances(watched, 3)
    watched.now_s = 100.0
    fail_node(watched, "p0")
    watched.delete(Pod.RESOURCE, "p0")
    watched.node("n1", is_up=False)
    watched.pod("p1", node="n1", instance=1, is_ready=False)
    watched.now_s = 200.0
    watched.node("n1")
    watched.pod("p1", node="n1", instance=1)
    watched.figures.now_s = 300.0
    assert watched.promises.hits.excused() == {"web": pytest.approx(300 / 900)}


@pytest.mark.parametrize(
    ("available", "replicas", "hit", "broken"),
    [
        pytest.param(2, 3, 0, [], id="one instance at a time"),
        pytest.param(1, 3, 0, ["Minimum"], id="below the minimum"),
        pytest.param(1, 3, 1, [], id="a failure besides"),
        pytest.param(0, 3, 1, ["Minimum"], id="a failure besides, and two at once"),
        pytest.param(1, 2, 0, [], id="no instance to spare: one at a time is below the minimum"),
        pytest.param(0, 2, 0, ["Minimum"], id="no instance to spare, and two at once"),
    ],
)
def test_an_update_keeps_the_minimum_of_a_group(watched, available, replicas, hit, broken):
    instances(watched, replicas)
    watched.set("web", 1, is_updating=True)
    for number in range(hit):
        watched.node(f"n{number}", is_up=False)
        watched.pod(f"p{number}", node=f"n{number}", instance=number, is_ready=False)
    watched.group(available, replicas=replicas)
    assert watched.broken == broken


# Budget


def go(watched: Watched, name: str, node: str) -> None:
    watched.pod(name, node=node, instance=int(name[1:]), gang="web-0", deletionTimestamp="2026-01-05T00:00:00Z")


def nothing(_watched: Watched) -> None:
    """Nothing happens."""


@pytest.mark.parametrize(
    ("happens", "broken"),
    [
        pytest.param(nothing, ["Budget"], id="nothing"),
        pytest.param(
            lambda watched: watched.gang("web-0", 3, is_placed=True, is_evicted=True),
            ["Budget"],
            id="a preemption heeds the budget",
        ),
        pytest.param(lambda watched: watched.node("n1", is_cordoned=True), ["Budget"], id="a drain heeds the budget"),
        pytest.param(lambda watched: watched.node("n0", is_up=False), ["Budget"], id="the node of another pod fails"),
        pytest.param(lambda watched: watched.node("n1", is_up=False), [], id="its node fails"),
        pytest.param(lambda watched: watched.crash("p1"), [], id="its engine crashes"),
        pytest.param(lambda watched: watched.group(3, replicas=2), [], id="its group is scaled in"),
        pytest.param(lambda watched: watched.set("web", 1, is_updating=True), [], id="its set is updated"),
        pytest.param(
            lambda watched: watched.set("web", 1, deletionTimestamp="2026-01-05T00:00:00Z"),
            [],
            id="its set is deleted",
        ),
    ],
)
def test_no_pod_is_deleted_below_the_budget(happens, broken):
    watched = Watched(budget=2)
    instances(watched, 3)
    happens(watched)
    go(watched, "p0", "n0")
    assert watched.broken == []
    go(watched, "p1", "n1")
    assert watched.broken == broken


def test_time_below_the_budget_counts_after_it_was_kept_once():
    watched = Watched(budget=2)
    for at_s, ready in ((0.0, 1), (100.0, 2), (200.0, 1), (230.0, 3), (300.0, 0)):
        watched.now_s = at_s
        for number in range(3):
            watched.node(f"n{number}", is_up=number < ready)
            watched.pod(f"p{number}", node=f"n{number}", is_ready=number < ready)
    watched.figures.now_s = 305.0
    assert watched.promises.below_budgets() == {"web": 35.0}
    assert Watched(budget=2).promises.below_budgets() == {"web": 0.0}


@pytest.mark.parametrize(
    ("others", "reason", "team", "broken"),
    [
        pytest.param(7, "Unschedulable", "chat", [], id="overtaken by less than four times its pods"),
        pytest.param(8, "Unschedulable", "chat", ["Progress"], id="overtaken by four times its pods"),
        pytest.param(8, QUOTA_EXCEEDED, "search", [], id="it waits for quota that the others do not use"),
        pytest.param(8, QUOTA_EXCEEDED, "chat", ["Progress"], id="the others use the quota that it waits for"),
        pytest.param(8, BASE_WAITS, "chat", [], id="it waits for its base gang"),
    ],
)
@pytest.mark.parametrize("had_place", [False, True], ids=["first place", "new place"])
def test_no_gang_is_overtaken_for_ever(watched, others, reason, team, had_place, broken):
    watched.set("large", queue="chat")
    if had_place:
        watched.gang("large", 2, is_placed=True)
        watched.now_s = 3600.0
    lost_s = watched.now_s
    watched.gang("large", 2, reason=reason)
    watched.now_s += 10.0
    for number in range(others):
        watched.set(f"small-{number}", queue=team)
        watched.gang(f"small-{number}", 1)
        watched.gang(f"small-{number}", 1, is_placed=True)
    watched.figures.now_s = lost_s + 86400.0
    watched.promises.look()
    assert watched.broken == []
    watched.figures.now_s += 1.0
    watched.promises.look()
    assert watched.broken == broken


def test_a_gang_that_gets_its_place_again_was_not_overtaken_for_ever(watched):
    watched.gang("large", 2, is_placed=True)
    watched.gang("large", 2)
    for number in range(20):
        watched.now_s = 86400.0 * number + 10.0
        watched.gang(f"small-{number}", 1)
        watched.gang(f"small-{number}", 1, is_placed=True)
        watched.gang("large", 2, is_placed=True)
        watched.gang("large", 2)
        watched.figures.now_s += 86000.0
        watched.promises.look()
    assert watched.broken == []
