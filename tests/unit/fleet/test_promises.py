"""The judges of a run: each is shown a cluster that keeps its promise, and one that breaks it."""

from __future__ import annotations

import pytest
from tests.support.judged_store import Watched

from grove.api.conditions import EventReason
from grove.api.core import Pod
from grove.fleet.promises import EVICTED, KEPT_S, OUTSIDE, RELEASE


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


@pytest.mark.parametrize(
    ("ago_s", "cause", "broken"),
    [
        pytest.param(60.0, OUTSIDE, [], id="after a failure"),
        pytest.param(60.0, RELEASE, [], id="after a release"),
        pytest.param(KEPT_S + 1, OUTSIDE, ["Caused"], id="long after a failure"),
        pytest.param(0.0, None, ["Caused"], id="after nothing"),
    ],
)
def test_a_set_falls_below_its_minimum_only_with_a_cause(watched, ago_s, cause, broken):
    watched.set("web", 1)
    if cause is not None:
        watched.promises.cause("web", cause)
    watched.now_s = ago_s
    watched.set("web", 0)
    assert watched.broken == broken


def test_a_node_that_goes_down_is_a_cause_for_the_sets_on_it(watched):
    watched.node("n1")
    watched.set("web", 1)
    watched.pod("p1", node="n1")
    watched.node("n1", is_up=False)
    watched.set("web", 0)
    assert watched.broken == []


@pytest.mark.parametrize(
    ("reason", "broken"),
    [
        pytest.param(EventReason.GANG_PREEMPTED, [], id="a preemption"),
        pytest.param(EventReason.GANG_MOVING, [], id="a move"),
        pytest.param(EventReason.GANG_NOT_MOVED, ["Caused"], id="not a move that was refused"),
    ],
)
def test_an_eviction_by_the_scheduler_is_a_cause(watched, reason, broken):
    watched.set("web", 1)
    watched.gang("web", 1, is_placed=True)
    watched.evicted("web", reason)
    watched.set("web", 0)
    assert watched.broken == broken


@pytest.mark.parametrize(
    ("available", "replicas", "cause", "broken"),
    [
        pytest.param(2, 3, RELEASE, [], id="one instance at a time"),
        pytest.param(1, 3, RELEASE, ["Minimum"], id="below the minimum"),
        pytest.param(1, 3, OUTSIDE, [], id="a failure besides"),
        pytest.param(1, 2, RELEASE, [], id="no instance to spare: one at a time is below the minimum"),
        pytest.param(0, 2, RELEASE, ["Minimum"], id="no instance to spare, and two at once"),
    ],
)
def test_an_update_keeps_the_minimum_of_a_group(watched, available, replicas, cause, broken):
    watched.group(replicas, replicas=replicas)
    watched.promises.cause("web", cause)
    watched.group(available, replicas=replicas)
    assert watched.broken == broken


@pytest.mark.parametrize(
    ("cause", "broken"),
    [
        pytest.param(None, ["Budget"], id="without a cause"),
        pytest.param(EVICTED, ["Budget"], id="a preemption heeds the budget"),
        pytest.param(OUTSIDE, [], id="after a failure"),
    ],
)
def test_no_pod_is_deleted_below_the_budget(watched, cause, broken):
    for number in range(3):
        watched.node(f"n{number}")
        watched.pod(f"p{number}", node=f"n{number}")
    if cause is not None:
        watched.promises.cause("web", cause)
    watched.pod("p0", node="n0", deletionTimestamp="2026-01-05T00:00:00Z")
    assert watched.broken == []
    watched.pod("p1", node="n1", deletionTimestamp="2026-01-05T00:00:00Z")
    assert watched.broken == broken


def test_the_budget_does_not_keep_a_set_that_is_deleted(watched):
    for number in range(2):
        watched.node(f"n{number}")
        watched.pod(f"p{number}", node=f"n{number}")
    watched.set("web", 1, deletionTimestamp="2026-01-05T00:00:00Z")
    watched.pod("p0", node="n0", deletionTimestamp="2026-01-05T00:00:00Z")
    assert watched.broken == []


@pytest.mark.parametrize(
    ("others", "reason", "broken"),
    [
        pytest.param(7, "Unschedulable", [], id="overtaken by less than four times its pods"),
        pytest.param(8, "Unschedulable", ["Progress"], id="overtaken by four times its pods"),
        pytest.param(8, "QuotaExceeded", [], id="it waits for its own quota"),
    ],
)
def test_no_gang_is_overtaken_for_ever(watched, others, reason, broken):
    watched.gang("large", 2, reason=reason)
    watched.now_s = 10.0
    for number in range(others):
        watched.gang(f"small-{number}", 1)
        watched.gang(f"small-{number}", 1, is_placed=True)
    watched.figures.now_s = 86400.0
    watched.promises.look()
    assert watched.broken == []
    watched.figures.now_s = 86401.0
    watched.promises.look()
    assert watched.broken == broken
