"""Figures of a run that are computed from others."""

from __future__ import annotations

import pytest
from tests.support.judged_store import Watched

from grove.api.core import Pod
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.fleet.compare import _row
from grove.fleet.figures import DOWN, IDLE, SERVING, WAITING, Figures, GangSeen
from grove.fleet.file import Team
from grove.fleet.results import _still_waiting, _team, _waiting, _waiting_again


@pytest.mark.parametrize(
    ("hours", "due", "fairness", "borrowed"),
    [
        pytest.param([(8, 0)], 8.0, 1.0, 0.0, id="it gets its quota"),
        pytest.param([(4, 12)], 8.0, 0.5, 0.0, id="it asks for more than its quota and gets half of it"),
        pytest.param([(2, 2)], 4.0, 0.5, 0.0, id="it asks for less than its quota: that is due"),
        pytest.param([(16, 0)], 8.0, 1.0, 8.0, id="it borrows"),
        pytest.param([(0, 8), (0, 0)], 8.0, 0.0, 0.0, id="it asks only by day, and gets nothing"),
        pytest.param([(0, 8), (16, 0)], 16.0, 0.5, 8.0, id="what it borrows by night does not hide that"),
        pytest.param([(0, 32), (8, 0)], 16.0, 0.5, 0.0, id="it asks for much, and later for its quota"),
        pytest.param([(0, 0)], 0.0, None, 0.0, id="it asks for nothing"),
    ],
)
def test_what_is_due_to_a_team_with_a_quota_of_8(hours, due, fairness, borrowed):
    """Each hour has the GPUs of ready pods and of pods without a node."""
    seen = Watched()
    for number in range(3):
        seen.node(f"n{number}")
    seen.set("web", queue="chat")
    for hour, (ready, waiting) in enumerate(hours):
        seen.now_s = hour * 3600.0
        for name in list(seen.figures.pods):
            seen.delete(Pod.RESOURCE, name)
        for number in range(0, ready, 4):
            seen.pod(f"r{hour}-{number}", node=f"n{number // 8}", gpus=min(4, ready - number))
        if waiting:
            seen.pod(f"w{hour}", gpus=waiting)
    seen.figures.close(len(hours) * 3600.0)
    found = _team(Team("chat", quota=8), seen.figures, {"web": "chat"})
    assert (found["due"], found["fairness"], found["borrowed"]) == (due, fairness, borrowed)


def test_a_pod_that_serves_on_a_drained_node_uses_no_gpu_of_the_others():
    """Every GPU counts once: those of the pod as serving, the rest of its node as down, the other node as idle."""
    seen = Watched()
    seen.node("n1")
    seen.node("n2")
    seen.set("web")
    seen.pod("web-0", node="n1", gpus=4)
    seen.now_s = 3600.0
    seen.node("n1", is_cordoned=True)
    seen.now_s = 7200.0
    seen.delete(Pod.RESOURCE, "web-0")
    seen.now_s = 10800.0
    seen.figures.close(seen.now_s)
    hours = {state: round(value / 3600, 1) for state, value in seen.figures.gpu_seconds.items() if value}
    assert hours == {SERVING: 8.0, IDLE: 12.0 + 8.0 + 8.0, DOWN: 4.0 + 8.0}


def test_without_a_quota_everything_that_a_team_asks_for_is_due():
    figures = Figures({})
    figures.gpu_seconds_by_set["web"].update({SERVING: 3 * 3600.0, WAITING: 3600.0})
    found = _team(Team("chat"), figures, {"web": "chat"})
    assert (found["due"], found["fairness"], found["borrowed"]) == (4.0, 0.75, 0.0)


def test_pods_that_outlive_their_set_count_until_they_are_gone():
    """A set is deleted before its pods: GPU time of the set ends with its last pod, and is never below 0."""
    seen = Watched()
    seen.node("n1")
    seen.set("web", queue="chat")
    seen.pod("web-0", node="n1")
    seen.now_s = 3600.0
    seen.delete(PodCliqueSet.RESOURCE, "web")
    seen.now_s = 5400.0
    seen.delete(Pod.RESOURCE, "web-0")
    seen.now_s = 36000.0
    seen.figures.close(seen.now_s)
    found = _team(Team("chat"), seen.figures, {"web": "chat"})
    assert (found["used"], found["asked"]) == (12.0, 12.0)


def test_time_below_the_minimum_during_an_update_is_counted_apart():
    seen = Watched()
    for at_s, available, is_updating in (
        (0.0, 1, False),
        (100.0, 0, False),  # below: something failed
        (160.0, 0, True),  # still below, and a release begins
        (200.0, 1, True),
        (300.0, 0, True),  # below because of the update
        (310.0, 0, False),  # the update ends, the set is still below
        (340.0, 1, False),
    ):
        seen.now_s = at_s
        seen.set("web", available, is_updating=is_updating)
    seen.figures.close(400.0)
    found = seen.figures.sets["web"]
    assert (found.below_s, found.below_in_updates_s) == (140.0, 50.0)


def test_restarts_of_a_set_and_of_its_scaling_groups_count_also_after_it_is_deleted():
    seen = Watched()
    seen.set("web")
    seen.set("web", restarts=1)
    seen.set("web", restarts=1)
    seen.group(3, restarts=2)
    seen.group(3, restarts=3)
    seen.set("job", restarts=2)
    for resource, name in ((PodCliqueScalingGroup.RESOURCE, "web-0-decode"), (PodCliqueSet.RESOURCE, "job")):
        seen.delete(resource, name)
    assert seen.figures.restarts == {"web": 4, "job": 2}


def test_sizes_and_priorities_are_in_the_order_of_their_numbers():
    pods, priorities = (100, 17, 2, 5, 1), (1000, 0, 500, -10, 0)
    gangs = [
        GangSeen(f"g{size}", "a", size, arrived_s=0.0, placed_s=1.0, priority=priority)
        for size, priority in zip(pods, priorities, strict=True)
    ]
    found = _waiting(gangs, {"a": "chat"}, 10.0)
    assert list(found["size"]) == ["1 pod", "2 to 4 pods", "5 to 16 pods", "17 to 64 pods", "over 64 pods"]
    assert list(found["priority"]) == ["-10", "0", "500", "1000"]


def test_gangs_that_never_got_a_place_count_with_the_time_they_waited():
    gangs = [
        GangSeen("placed", "a", 1, arrived_s=0.0, placed_s=10.0),
        GangSeen("placed and gone", "a", 1, arrived_s=0.0, placed_s=20.0, gone_s=500.0),
        GangSeen("gone before it was placed", "a", 2, arrived_s=100.0, gone_s=400.0),
        GangSeen("still waiting", "a", 2, arrived_s=100.0),
    ]
    found = _waiting(gangs, {"a": "chat"}, 1000.0)
    assert found["size"]["1 pod"] == {"count": 2, "p50": 20.0, "p95": 20.0, "worst": 20.0}
    assert found["size"]["2 to 4 pods"] == {"count": 2, "p50": 900.0, "p95": 900.0, "worst": 900.0}
    assert found["team"]["chat"]["count"] == 4


def test_waits_for_a_new_place_are_counted_apart():
    seen = Watched()
    for at_s, is_placed in ((0.0, False), (50.0, True), (100.0, False), (160.0, True), (200.0, False)):
        seen.now_s = at_s
        seen.gang("train", 2, is_placed=is_placed)
    seen.now_s = 300.0
    seen.gang("other", 1, is_placed=True)
    seen.gang("other", 1)
    seen.now_s = 310.0
    seen.delete(PodGang.RESOURCE, "other")
    gangs = [*seen.figures.ended_gangs, *seen.figures.gangs.values()]
    assert _waiting_again(gangs, 1000.0) == {"count": 3, "p50": 60.0, "p95": 800.0, "worst": 800.0}
    assert _waiting(gangs, {}, 1000.0)["all"]["all"]["worst"] == 50.0
    still = _still_waiting(seen.figures, {}, 1000.0)
    assert [(one["gang"], one["waited"], one["hadPlace"]) for one in still] == [("train", 800, True)]


@pytest.mark.parametrize(
    ("a", "b", "kind", "better"),
    [
        pytest.param(1.0, 2.0, "time less", "", id="seconds do not matter"),
        pytest.param(600.0, 1200.0, "time less", "a", id="minutes do"),
        pytest.param(36000.0, 36600.0, "time less", "", id="ten minutes of ten hours do not"),
        pytest.param(0.5, 0.6, "share more", "b", id="a larger share"),
        pytest.param(0.017, 0.001, "share less", "b", id="seventeen times as many requests are lost"),
        pytest.param(0.0004, 0.0001, "share less", "", id="less than a thousandth does not matter"),
        pytest.param(3, 5, "count", "", id="a count that is neither good nor bad"),
        pytest.param(None, 5, "count less", "", id="a figure of one run only"),
    ],
)
def test_which_run_is_better(a, b, kind, better):
    assert _row("figure", a, b, kind).better == better
