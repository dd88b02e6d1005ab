"""Ready, Reconciling and Stalled: what is decided for which facts, and what kstatus makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.support.standings import CURRENT, FAILED, IN_PROGRESS, ROWS, Row, kstatus

from grove.api.conditions import (
    FALSE,
    GANG_RESTARTS_EXHAUSTED,
    MAXIMUM_REACHED,
    PROGRESS_DEADLINE_EXCEEDED,
    READY,
    STALLED,
    TRUE,
    UPDATE_STALLED,
    ErrorCode,
    Standing,
    with_condition,
    with_standing,
)
from grove.api.meta import Condition, Conditions, ObjectMeta
from grove.api.podclique import PodClique, PodCliqueSpec, PodCliqueStatus, PodCliqueUpdateProgress
from grove.api.podcliqueset import (
    PodCliqueSet,
    PodCliqueSetSpec,
    PodCliqueSetStatus,
    PodCliqueSetUpdateProgress,
    ReplicaUpdate,
)
from grove.api.podgang import PodGang, PodGangStatus, with_gang_standing
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupSpec, PodCliqueScalingGroupStatus
from grove.api.status import LastError
from grove.operator.shared.outcome import COMPLETE, Outcome
from grove.operator.shared.readiness import GRACE_S, clique_standing, group_standing, judged, set_standing, stalls_in_s

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def error(description: str, code: str = ErrorCode.CREATE_POD, for_s: float = 0) -> LastError:
    return LastError(code=code, description=description, observed_at=ago(for_s))


QUOTA = error('pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1')
REFUSAL = 'pods "a" is forbidden: violates PodSecurity "restricted:latest"'
DENIED = error(REFUSAL, for_s=GRACE_S)
JUST_DENIED = error('admission webhook "w" denied the request: its rules are not loaded', for_s=GRACE_S - 1)
INVALID = error('Pod "a" is invalid: spec: Required value')
INVALID_BEFORE = error(INVALID.description, for_s=1)


@pytest.mark.parametrize(
    ("facts", "unfit", "is_scaled", "state", "reason"),
    [
        pytest.param({}, 0, False, "Reconciling", "InsufficientReadyPods", id="nothing yet"),
        pytest.param(
            {"replicas": 4, "scheduled_replicas": 4, "ready_replicas": 4},
            0,
            False,
            "Ready",
            "SufficientReadyPods",
            id="all ready",
        ),
        pytest.param(
            {"replicas": 4, "scheduled_replicas": 4, "ready_replicas": 2},
            0,
            False,
            "Ready",
            "SufficientReadyPods",
            id="the minimum is ready and the rest has nodes",
        ),
        pytest.param(
            {"replicas": 4, "scheduled_replicas": 2, "ready_replicas": 2},
            2,
            False,
            "Ready",
            "SufficientReadyPods",
            id="the minimum is ready and the rest does not fit",
        ),
        pytest.param(
            {"replicas": 4, "scheduled_replicas": 2, "ready_replicas": 2},
            1,
            False,
            "Reconciling",
            "InsufficientScheduledPods",
            id="one pod above the minimum waits for the scheduler",
        ),
        pytest.param(
            {"replicas": 2, "scheduled_replicas": 2, "ready_replicas": 2},
            0,
            False,
            "Reconciling",
            "InsufficientReadyPods",
            id="pods above the minimum do not exist yet",
        ),
        pytest.param(
            {"replicas": 4, "scheduled_replicas": 0},
            4,
            False,
            "Reconciling",
            "InsufficientReadyPods",
            id="the minimum does not fit",
        ),
        pytest.param(
            {"replicas": 4, "scheduled_replicas": 0},
            4,
            True,
            "Reconciling",
            "Unschedulable",
            id="a scaled gang does not fit",
        ),
        pytest.param(
            {"replicas": 4, "scheduled_replicas": 4, "ready_replicas": 4, "update_progress": PodCliqueUpdateProgress()},
            0,
            False,
            "Reconciling",
            "UpdateInProgress",
            id="an update is open",
        ),
        pytest.param(
            {"last_errors": (QUOTA,)}, 0, False, "Reconciling", "ReplicaFailure", id="a quota may become free"
        ),
        pytest.param({"last_errors": (DENIED,)}, 0, False, "Stalled", "ReplicaFailure", id="a request stays refused"),
        pytest.param(
            {"last_errors": (JUST_DENIED,)},
            0,
            False,
            "Reconciling",
            "ReplicaFailure",
            id="a webhook denies for a moment",
        ),
        pytest.param({"last_errors": (INVALID,)}, 0, False, "Stalled", "ReplicaFailure", id="the template is invalid"),
        pytest.param(
            {"last_errors": (INVALID_BEFORE,), "update_progress": PodCliqueUpdateProgress(update_started_at=NOW)},
            0,
            False,
            "Reconciling",
            "ReplicaFailure",
            id="an update that began now may have repaired the template",
        ),
        pytest.param(
            {"last_errors": (INVALID,), "update_progress": PodCliqueUpdateProgress(update_started_at=ago(1))},
            0,
            False,
            "Stalled",
            "ReplicaFailure",
            id="an update brings an invalid template",
        ),
        pytest.param(
            {"last_errors": (DENIED,), "update_progress": PodCliqueUpdateProgress(update_started_at=ago(GRACE_S))},
            0,
            False,
            "Stalled",
            "ReplicaFailure",
            id="an update did not repair what is refused",
        ),
        pytest.param(
            {"last_errors": (error("HTTP 503"),)},
            0,
            False,
            "Reconciling",
            "ReplicaFailure",
            id="the API server does not answer",
        ),
        pytest.param(
            {"last_errors": (QUOTA, error("unknown scheduler", ErrorCode.BUILD_POD))},
            0,
            False,
            "Stalled",
            "ReplicaFailure",
            id="one of two errors needs a person",
        ),
    ],
)
def test_clique(facts: dict[str, Any], unfit: int, is_scaled: bool, state: str, reason: str) -> None:
    spec = PodCliqueSpec(replicas=4, min_available=2)
    found = clique_standing(spec, PodCliqueStatus(**facts), unfit, NOW, is_scaled=is_scaled)
    assert found[:2] == (state, reason)


def member(*, placed: bool, reason: str = "InsufficientReadyPods") -> PodClique:
    conditions: Conditions = (
        Condition(type="PodCliqueScheduled", status=TRUE if placed else FALSE, reason="r"),
        Condition(type=READY, status=FALSE, reason=reason),
    )
    return PodClique(status=PodCliqueStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("available", "members", "outcome", "state", "reason"),
    [
        pytest.param(0, [], COMPLETE, "Reconciling", "InsufficientAvailablePodCliqueScalingGroupReplicas", id="none"),
        pytest.param(3, [], COMPLETE, "Ready", "SufficientAvailablePodCliqueScalingGroupReplicas", id="all"),
        pytest.param(
            1,
            [member(placed=True)] * 2 + [member(placed=False, reason="Unschedulable")],
            COMPLETE,
            "Ready",
            "SufficientAvailablePodCliqueScalingGroupReplicas",
            id="one starts and one does not fit",
        ),
        pytest.param(
            1,
            [member(placed=True)] * 2 + [member(placed=False)],
            COMPLETE,
            "Reconciling",
            "PartsNotReady",
            id="one waits for the scheduler",
        ),
        pytest.param(1, [member(placed=True)] * 2, COMPLETE, "Reconciling", "PartsNotReady", id="a member is missing"),
        pytest.param(
            3,
            [],
            Outcome(waiting_for="waiting for older objects to go: a"),
            "Reconciling",
            "WaitingForOldObjects",
            id="an older object is in the way",
        ),
    ],
)
def test_group(available: int, members: list[PodClique], outcome: Outcome, state: str, reason: str) -> None:
    spec = PodCliqueScalingGroupSpec(replicas=3, min_available=1, clique_names=("w",))
    status = PodCliqueScalingGroupStatus(available_replicas=available)
    assert group_standing(PodCliqueScalingGroup(spec=spec), status, members, outcome, NOW)[:2] == (state, reason)


STALLED_UPDATE = with_condition((), UPDATE_STALLED, TRUE, PROGRESS_DEADLINE_EXCEEDED, "no pod for 30m", NOW)
EXHAUSTED = with_condition((), GANG_RESTARTS_EXHAUSTED, TRUE, MAXIMUM_REACHED, "replica 0", NOW)
OPEN = PodCliqueSetUpdateProgress()
IS_READY = PodClique(status=PodCliqueStatus(conditions=with_standing((), Standing("Ready", "r", "m"), NOW)))
RESTARTED_OFTEN = PodCliqueScalingGroup(status=PodCliqueScalingGroupStatus(conditions=EXHAUSTED))


@pytest.mark.parametrize(
    ("facts", "cliques", "groups", "state", "reason", "seen"),
    [
        pytest.param({}, [], [], "Reconciling", "ReplicasNotAvailable", IN_PROGRESS, id="nothing yet"),
        pytest.param(
            {"available_replicas": 2}, [IS_READY], [], "Ready", "AllReplicasAvailable", CURRENT, id="all available"
        ),
        pytest.param(
            {"available_replicas": 2},
            [IS_READY, PodClique()],
            [],
            "Reconciling",
            "PartsNotReady",
            IN_PROGRESS,
            id="a clique is not ready",
        ),
        pytest.param(
            {"available_replicas": 2, "update_progress": OPEN},
            [IS_READY],
            [],
            "Reconciling",
            "UpdateInProgress",
            IN_PROGRESS,
            id="an update is open",
        ),
        pytest.param(
            {"available_replicas": 2, "update_progress": OPEN, "conditions": STALLED_UPDATE},
            [IS_READY],
            [],
            "Stalled",
            "ProgressDeadlineExceeded",
            FAILED,
            id="an update passed its deadline",
        ),
        pytest.param(
            {"available_replicas": 1, "conditions": EXHAUSTED},
            [],
            [],
            "Stalled",
            "MaximumReached",
            FAILED,
            id="no restart is left",
        ),
        pytest.param(
            {"available_replicas": 1},
            [],
            [RESTARTED_OFTEN],
            "Stalled",
            "MaximumReached",
            FAILED,
            id="no restart is left for a group",
        ),
    ],
)
def test_set(
    facts: dict[str, Any],
    cliques: list[PodClique],
    groups: list[PodCliqueScalingGroup],
    state: str,
    reason: str,
    seen: str,
) -> None:
    pcs = PodCliqueSet(metadata=ObjectMeta(generation=7), spec=PodCliqueSetSpec(replicas=2))
    is_open = "update_progress" in facts
    status = PodCliqueSetStatus(observed_generation=6 if is_open else 7, **facts)
    standing = set_standing(pcs, status, cliques, groups, (), COMPLETE, NOW)
    assert standing[:2] == (state, reason)
    after = judged(status, standing, 7, NOW)
    obj = {"metadata": {"generation": 7}, "status": msgspec.to_builtins(after)}
    assert kstatus(obj) == seen
    assert judged(after, standing, 7, datetime(2027, 1, 1, tzinfo=UTC)) == after, "a second decision writes nothing"


def stalled_gang(name: str, reason: str, *, for_s: float = GRACE_S, is_deleting: bool = False) -> PodGang:
    conditions = (
        Condition(type=STALLED, status=TRUE, reason=reason, message="why", last_transition_time=ago(for_s)),
        Condition(type=READY, status=FALSE),
    )
    meta = ObjectMeta(name=name, deletion_timestamp=NOW if is_deleting else None)
    return PodGang(metadata=meta, status=PodGangStatus(conditions=conditions))


NOT_INSTALLED = stalled_gang("chat-1", "SchedulerNotInstalled")


@pytest.mark.parametrize(
    ("facts", "gangs", "state", "reason", "message"),
    [
        pytest.param(
            {"available_replicas": 1},
            [PodGang(), NOT_INSTALLED],
            "Stalled",
            "SchedulerNotInstalled",
            "PodGang chat-1: why",
            id="another scheduler cannot take a gang",
        ),
        pytest.param(
            {"available_replicas": 0},
            [stalled_gang("chat-1", "InvalidPodGang"), stalled_gang("chat-0", "InvalidPodGang")],
            "Stalled",
            "InvalidPodGang",
            "PodGang chat-0: why",
            id="of two gangs the first by name is named",
        ),
        pytest.param(
            {"available_replicas": 1},
            [stalled_gang("chat-1", "SchedulerNotInstalled", for_s=GRACE_S - 1)],
            "Reconciling",
            "ReplicasNotAvailable",
            "fewer than 2 replicas are available",
            id="the scheduler may be about to be installed",
        ),
        pytest.param(
            {"available_replicas": 1},
            [stalled_gang("chat-1", "InvalidPodGang", is_deleting=True)],
            "Reconciling",
            "ReplicasNotAvailable",
            "fewer than 2 replicas are available",
            id="the gang is on its way out",
        ),
        pytest.param(
            {
                "available_replicas": 1,
                "update_progress": PodCliqueSetUpdateProgress(
                    update_started_at=ago(1), currently_updating=(ReplicaUpdate(),)
                ),
            },
            [NOT_INSTALLED],
            "Reconciling",
            "UpdateInProgress",
            "an update replaces pods",
            id="an update that began now may repair the gang",
        ),
        pytest.param(
            {"available_replicas": 2, "update_progress": PodCliqueSetUpdateProgress(update_started_at=ago(1))},
            [],
            "Reconciling",
            "UpdateInProgress",
            "a partition holds the update until it is lowered",
            id="an update that chooses no replica waits for a partition",
        ),
        pytest.param(
            {"available_replicas": 1, "update_progress": PodCliqueSetUpdateProgress(update_started_at=ago(GRACE_S))},
            [NOT_INSTALLED],
            "Stalled",
            "SchedulerNotInstalled",
            "PodGang chat-1: why",
            id="an update did not repair the gang",
        ),
        pytest.param(
            {"available_replicas": 2},
            [NOT_INSTALLED],
            "Ready",
            "AllReplicasAvailable",
            "2 replicas are available",
            id="all replicas are available all the same",
        ),
    ],
)
def test_a_set_takes_over_a_gang_that_stalls(
    facts: dict[str, Any], gangs: list[PodGang], state: str, reason: str, message: str
) -> None:
    pcs = PodCliqueSet(spec=PodCliqueSetSpec(replicas=2))
    found = set_standing(pcs, PodCliqueSetStatus(**facts), [IS_READY], [], gangs, COMPLETE, NOW)
    assert found == (state, reason, message)


@pytest.mark.parametrize(
    ("facts", "gangs", "seconds"),
    [
        pytest.param({}, [], None, id="there is no trouble"),
        pytest.param({"last_errors": (QUOTA, error("HTTP 503"))}, [], None, id="errors that pass by themselves"),
        pytest.param({"last_errors": (INVALID,)}, [], None, id="it stalls already"),
        pytest.param({"last_errors": (JUST_DENIED,)}, [], 1.0, id="a refusal of 29 seconds"),
        pytest.param({}, [stalled_gang("a", "InvalidPodGang", for_s=10)], 20.0, id="a gang stalls for 10 seconds"),
        pytest.param(
            {"last_errors": (JUST_DENIED,)}, [stalled_gang("a", "InvalidPodGang", for_s=10)], 1.0, id="the first of two"
        ),
        pytest.param(
            {"last_errors": (DENIED,), "update_progress": PodCliqueSetUpdateProgress(update_started_at=ago(5))},
            [],
            25.0,
            id="counted from the beginning of an update",
        ),
    ],
)
def test_when_a_trouble_stalls_the_set(facts: dict[str, Any], gangs: list[PodGang], seconds: float | None) -> None:
    assert stalls_in_s(PodCliqueSetStatus(**facts), NOW, gangs) == seconds


def said(conditions: Conditions) -> dict[str, str]:
    return {one.type: one.status for one in conditions}


@pytest.mark.parametrize(
    ("before", "stalled", "after"),
    [
        pytest.param({}, False, {}, id="of a new gang nothing is said"),
        pytest.param({"Scheduled": FALSE}, False, {"Scheduled": FALSE, "Reconciling": TRUE}, id="it waits for nodes"),
        pytest.param({"Scheduled": FALSE}, True, {"Scheduled": FALSE, "Stalled": TRUE}, id="it is refused"),
        pytest.param(
            {"Scheduled": TRUE, "Ready": FALSE, "Stalled": TRUE},
            False,
            {"Scheduled": TRUE, "Ready": FALSE, "Reconciling": TRUE},
            id="it starts",
        ),
        pytest.param(
            {"Scheduled": TRUE, "Ready": TRUE, "Reconciling": TRUE},
            False,
            {"Scheduled": TRUE, "Ready": TRUE},
            id="it is ready",
        ),
    ],
)
def test_gang(before: dict[str, str], stalled: bool, after: dict[str, str]) -> None:
    conditions = tuple(Condition(type=type_, status=status) for type_, status in before.items())
    why = Standing("Stalled", "InvalidPodGang", "m") if stalled else None
    assert said(with_gang_standing(conditions, NOW, why)) == after


@pytest.mark.parametrize("row", [pytest.param(one, id=one.id) for one in ROWS])
def test_kstatus(row: Row) -> None:
    assert kstatus(row.obj) == row.kstatus
