"""How far a clique, a group or a set is: Ready, Reconciling or Stalled, by the rules of kstatus.

An object is Ready if its minimum is available at its revision. What is above the minimum must exist, and must have
nodes or be known not to fit. An object is Stalled if only a person can help. Everything else is Reconciling.

The decision reads the rest of the status and is written with it. Messages have no counts of what is there now: such a
count would be one more reason to write.

Tools end their wait at once when an object stalls. So what may pass by itself stalls an object only after `GRACE_S`: a
refusal of the API server, and a gang that stalls. `stalls_in_s` says when that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import structs

from grove.api.conditions import (
    GANG_RESTARTS_EXHAUSTED,
    INSUFFICIENT_AVAILABLE_GROUP_REPLICAS,
    INSUFFICIENT_READY_PODS,
    INSUFFICIENT_SCHEDULED_PODS,
    POD_CLIQUE_SCHEDULED,
    READY,
    STALLED,
    SUFFICIENT_AVAILABLE_GROUP_REPLICAS,
    SUFFICIENT_READY_PODS,
    TRUE,
    UPDATE_IN_PROGRESS,
    UPDATE_STALLED,
    ErrorCode,
    Standing,
    with_standing,
)
from grove.api.meta import Condition, Conditions, find_condition, is_true
from grove.api.podclique import PodClique, PodCliqueSpec, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet, PodCliqueSetStatus, is_paused
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.api.status import LastError
from grove.api.words import many
from grove.operator.shared.layout import group_minimum
from grove.operator.shared.outcome import REPLICA_FAILURE, Outcome
from grove.operator.shared.rollout import is_open

ALL_REPLICAS_AVAILABLE = "AllReplicasAvailable"
REPLICAS_NOT_AVAILABLE = "ReplicasNotAvailable"
PARTS_NOT_READY = "PartsNotReady"
WAITING_FOR_OLD_OBJECTS = "WaitingForOldObjects"
UNSCHEDULABLE = "Unschedulable"
"""Reason of a clique above the minimum of its group: its pods do not fit, so its group does not wait for it."""
UPDATE_PAUSED = "UpdatePaused"

NEW_SET = Standing("Reconciling", REPLICAS_NOT_AVAILABLE, "the operator begins with the set")
"""Written with the first status: without a condition, tools take an object for finished."""

GRACE_S = 30.0
"""How long a refusal or a stalled gang may last before the object stalls.

A webhook, a scheduler or a service account may start a little later than the set.
"""
_GRACE = timedelta(seconds=GRACE_S)

_OUR_REFUSALS = frozenset({ErrorCode.BUILD_POD, ErrorCode.STARTUP_IMAGE_MISSING})
_INVALID = " is invalid:"
"""The API server's words for a request that it refuses whenever it is repeated."""
_REFUSALS = (" is forbidden:", "denied the request")
"""Its words for a request that it refuses again unless something else in the cluster changes."""
_QUOTA = "exceeded quota"
"""A quota is forbidden too, and is free again when other pods end."""


S = TypeVar("S", PodCliqueStatus, PodCliqueScalingGroupStatus, PodCliqueSetStatus)


def clique_standing(
    spec: PodCliqueSpec, status: PodCliqueStatus, unfit: int, now: datetime, *, is_scaled: bool
) -> Standing:
    """`unfit`: pods of which the scheduler says that they do not fit. `is_scaled`: the clique belongs to a scaled gang,
    which is above the minimum of its group."""
    if (standing := _trouble(status, now)) is not None:
        return standing
    if is_open(status.update_progress):
        return Standing("Reconciling", UPDATE_IN_PROGRESS, "an update replaces pods")
    need, all_exist = spec.current_minimum, status.replicas >= spec.replicas
    are_decided = status.scheduled_replicas + unfit >= status.replicas
    if status.ready_replicas < need:
        if is_scaled and status.scheduled_replicas < need and all_exist and are_decided:
            return Standing("Reconciling", UNSCHEDULABLE, "its pods do not fit on the nodes")
        return Standing("Reconciling", INSUFFICIENT_READY_PODS, f"fewer than {many(need, 'pod is', 'pods are')} ready")
    if not all_exist:
        return Standing("Reconciling", INSUFFICIENT_READY_PODS, f"fewer than {many(spec.replicas, 'pod')} exist")
    if not are_decided:
        return Standing("Reconciling", INSUFFICIENT_SCHEDULED_PODS, "pods above the minimum wait for a node")
    return Standing("Ready", SUFFICIENT_READY_PODS, f"at least {many(need, 'pod is', 'pods are')} ready")


def group_standing(
    group: PodCliqueScalingGroup,
    status: PodCliqueScalingGroupStatus,
    members: Iterable[PodClique],
    outcome: Outcome,
    now: datetime,
) -> Standing:
    """`members` are the cliques that the group is to have and that exist."""
    if (standing := _trouble(status, now) or _waits(outcome)) is not None:
        return standing
    if is_open(status.update_progress):
        return Standing("Reconciling", UPDATE_IN_PROGRESS, "an update replaces replicas")
    need = group_minimum(group.spec.replicas, group.spec.min_available)
    if status.available_replicas < need:
        message = f"fewer than {many(need, 'replica is', 'replicas are')} available"
        return Standing("Reconciling", INSUFFICIENT_AVAILABLE_GROUP_REPLICAS, message)
    if status.available_replicas < group.spec.replicas:
        there = [clique for clique in members if not clique.metadata.is_deleting]
        if len(there) < group.spec.replicas * len(group.spec.clique_names) or not all(map(_is_decided, there)):
            return Standing("Reconciling", PARTS_NOT_READY, "replicas above the minimum wait for nodes")
    message = f"at least {many(need, 'replica is', 'replicas are')} available"
    return Standing("Ready", SUFFICIENT_AVAILABLE_GROUP_REPLICAS, message)


def _is_decided(clique: PodClique) -> bool:
    """True if a clique has its nodes, or if it is known that it does not fit."""
    ready = find_condition(clique.status.conditions, READY)
    return is_true(clique.status.conditions, POD_CLIQUE_SCHEDULED) or (
        ready is not None and ready.reason == UNSCHEDULABLE
    )


def set_standing(
    pcs: PodCliqueSet,
    status: PodCliqueSetStatus,
    cliques: Sequence[PodClique],
    groups: Sequence[PodCliqueScalingGroup],
    gangs: Iterable[PodGang],
    outcome: Outcome,
    now: datetime,
) -> Standing:
    """A set that is not Ready takes over a gang that stalls: no replica is made available without a person."""
    parts = (group.status.conditions for group in groups if not group.metadata.is_deleting)
    if (standing := _trouble(status, now, *parts) or _waits(outcome)) is not None:
        return standing
    standing = _progress(pcs, status, cliques, groups)
    return standing if standing.state == READY else _stalled_gang(status, gangs, now) or standing


def _progress(
    pcs: PodCliqueSet,
    status: PodCliqueSetStatus,
    cliques: Sequence[PodClique],
    groups: Sequence[PodCliqueScalingGroup],
) -> Standing:
    if is_open(status.update_progress):
        if is_paused(pcs):
            return Standing("Reconciling", UPDATE_PAUSED, "the update is paused")
        if not status.update_progress.currently_updating:
            return Standing("Reconciling", UPDATE_IN_PROGRESS, "a partition holds the update until it is lowered")
        return Standing("Reconciling", UPDATE_IN_PROGRESS, "an update replaces pods")
    wanted = pcs.spec.replicas
    if status.available_replicas < wanted:
        message = f"fewer than {many(wanted, 'replica is', 'replicas are')} available"
        return Standing("Reconciling", REPLICAS_NOT_AVAILABLE, message)
    parts = [clique.status.conditions for clique in cliques if not clique.metadata.is_deleting]
    parts += [group.status.conditions for group in groups if not group.metadata.is_deleting]
    if not all(is_true(part, READY) for part in parts):
        return Standing("Reconciling", PARTS_NOT_READY, "a clique or a scaling group is not ready")
    return Standing("Ready", ALL_REPLICAS_AVAILABLE, f"{many(wanted, 'replica is', 'replicas are')} available")


def _waits(outcome: Outcome) -> Standing | None:
    return Standing("Reconciling", WAITING_FOR_OLD_OBJECTS, outcome.waiting_for) if outcome.waiting_for else None


def _trouble(status: S, now: datetime, *parts: Conditions) -> Standing | None:
    """Why an object stalls, or which error is tried again; None if neither. `parts` are conditions of its parts."""
    errors = status.last_errors
    refused = next((error for error in errors if _lasts(_refused_since(status, error), now)), None)
    if refused is not None:
        failure = find_condition(status.conditions, REPLICA_FAILURE)
        return Standing("Stalled", failure.reason if failure is not None else REPLICA_FAILURE, refused.description)
    for type_ in (GANG_RESTARTS_EXHAUSTED, UPDATE_STALLED):
        for conditions in (status.conditions, *parts):
            if (condition := find_condition(conditions, type_)) is not None:
                return Standing("Stalled", condition.reason, condition.message)
    return Standing("Reconciling", REPLICA_FAILURE, errors[0].description) if errors else None


def _refused_since(status: S, error: LastError) -> datetime | None:
    """Since when a request is refused; None for an error that passes by itself. What is refused for good has no grace,
    unless an update began since, which may repair it."""
    words, moment, begun = error.description, error.observed_at, _update_began(status)
    if moment is not None and (error.code in _OUR_REFUSALS or _INVALID in words):
        return moment - _GRACE if begun is None or moment >= begun else begun
    if _QUOTA in words or not any(refusal in words for refusal in _REFUSALS):
        return None
    return _since(status, moment)


def _stalled_gang(status: PodCliqueSetStatus, gangs: Iterable[PodGang], now: datetime) -> Standing | None:
    lasting = (
        (name, condition)
        for name, condition in _stalled(gangs)
        if _lasts(_since(status, condition.last_transition_time), now)
    )
    if (first := min(lasting, key=lambda entry: entry[0], default=None)) is None:
        return None
    name, condition = first
    return Standing("Stalled", condition.reason, f"PodGang {name}: {condition.message}")


def _stalled(gangs: Iterable[PodGang]) -> Iterator[tuple[str, Condition]]:
    for gang in gangs:
        condition = find_condition(gang.status.conditions, STALLED)
        if condition is not None and condition.status == TRUE and not gang.metadata.is_deleting:
            yield gang.metadata.name, condition


def _since(status: S, moment: datetime | None) -> datetime | None:
    """When the grace of a trouble begins: not before the update that may end it."""
    return max((time for time in (moment, _update_began(status)) if time is not None), default=None)


def _update_began(status: S) -> datetime | None:
    """When the update began that is open; None without one."""
    progress = status.update_progress
    return progress.update_started_at if progress is not None and is_open(progress) else None


def _lasts(since: datetime | None, now: datetime) -> bool:
    return since is not None and now - since >= _GRACE


def stalls_in_s(status: S, now: datetime, gangs: Iterable[PodGang] = ()) -> float | None:
    """Seconds until a trouble has lasted so long that the object stalls; None if there is no such trouble."""
    moments = [_refused_since(status, error) for error in status.last_errors]
    moments += [_since(status, condition.last_transition_time) for _, condition in _stalled(gangs)]
    ends = ((since + _GRACE - now).total_seconds() for since in moments if since is not None)
    return min((end_s for end_s in ends if end_s > 0), default=None)


def judged(status: S, standing: Standing, generation: int, now: datetime) -> S:
    """The status with `Ready`, `Reconciling` and `Stalled` as decided.

    kstatus does not look at conditions while `observedGeneration` is older than the object. An update that stalls
    therefore counts as observed.
    """
    conditions = with_standing(status.conditions, standing, now, generation)
    if standing.state == "Stalled" and is_open(status.update_progress) and not status.last_errors:
        return structs.replace(status, conditions=conditions, observed_generation=generation)
    return structs.replace(status, conditions=conditions)
