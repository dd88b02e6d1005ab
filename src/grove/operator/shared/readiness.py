"""How far a clique, a group or a set is: Ready, Reconciling or Stalled, by the rules of kstatus.

An object is Ready if its minimum is available at its revision. What is above the minimum must exist, and must have
nodes or be known not to fit. An object is Stalled if only a person can help. Everything else is Reconciling.

The decision reads the rest of the status and is written with it. Messages have no counts of what is there now: such a
count would be one more reason to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec import structs

from grove.api.conditions import (
    GANG_RESTARTS_EXHAUSTED,
    INSUFFICIENT_AVAILABLE_GROUP_REPLICAS,
    INSUFFICIENT_READY_PODS,
    INSUFFICIENT_SCHEDULED_PODS,
    POD_CLIQUE_SCHEDULED,
    READY,
    SUFFICIENT_AVAILABLE_GROUP_REPLICAS,
    SUFFICIENT_READY_PODS,
    UPDATE_IN_PROGRESS,
    UPDATE_STALLED,
    ErrorCode,
    Standing,
    with_standing,
)
from grove.api.meta import Conditions, find_condition, is_true
from grove.api.podclique import PodClique, PodCliqueSpec, PodCliqueStatus
from grove.api.podcliqueset import PodCliqueSet, PodCliqueSetStatus
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupStatus
from grove.api.status import LastError
from grove.api.words import many
from grove.operator.shared.layout import floor, group_floor
from grove.operator.shared.outcome import REPLICA_FAILURE, Outcome
from grove.operator.shared.rollout import is_open, is_paused

ALL_REPLICAS_AVAILABLE = "AllReplicasAvailable"
REPLICAS_NOT_AVAILABLE = "ReplicasNotAvailable"
PARTS_NOT_READY = "PartsNotReady"
WAITING_FOR_OLD_OBJECTS = "WaitingForOldObjects"
UNSCHEDULABLE = "Unschedulable"
"""Reason of a clique above the minimum of its group: its pods do not fit, so its group does not wait for it."""
UPDATE_PAUSED = "UpdatePaused"

NEW_SET = Standing("Reconciling", REPLICAS_NOT_AVAILABLE, "the operator begins with the set")
"""Written with the first status: without a condition, tools take an object for finished."""

_OUR_REFUSALS = frozenset({ErrorCode.BUILD_POD, ErrorCode.STARTUP_IMAGE_MISSING})
_REFUSALS = (" is forbidden:", " is invalid:", "denied the request")
"""The API server's words for a request that it refuses again when it is repeated."""
_QUOTA = "exceeded quota"
"""A quota is forbidden too, and is free again when other pods end."""


def clique_standing(spec: PodCliqueSpec, status: PodCliqueStatus, unfit: int, *, is_scaled: bool) -> Standing:
    """`unfit`: pods of which the scheduler says that they do not fit. `is_scaled`: the clique belongs to a scaled gang,
    which is above the minimum of its group."""
    if (found := _trouble(status.last_errors, status.conditions)) is not None:
        return found
    if is_open(status.update_progress):
        return Standing("Reconciling", UPDATE_IN_PROGRESS, "an update replaces pods")
    need, all_exist = floor(spec), status.replicas >= spec.replicas
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
    group: PodCliqueScalingGroup, status: PodCliqueScalingGroupStatus, members: Iterable[PodClique], outcome: Outcome
) -> Standing:
    """`members` are the cliques that the group is to have and that exist."""
    if (found := _trouble(status.last_errors, status.conditions) or _waits(outcome)) is not None:
        return found
    if is_open(status.update_progress):
        return Standing("Reconciling", UPDATE_IN_PROGRESS, "an update replaces replicas")
    need = group_floor(group.spec.replicas, group.spec.min_available)
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
    outcome: Outcome,
) -> Standing:
    conditions = (status.conditions, *(group.status.conditions for group in groups if not group.metadata.is_deleting))
    for found in (_trouble(status.last_errors, *conditions), _waits(outcome)):
        if found is not None:
            return found
    if is_open(status.update_progress):
        if is_paused(pcs):
            return Standing("Reconciling", UPDATE_PAUSED, "the update is paused")
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


def _trouble(errors: Sequence[LastError], *conditions: Conditions) -> Standing | None:
    """Why an object stalls, or which error is tried again; None if neither."""
    refused = next((error for error in errors if _is_refusal(error)), None)
    if refused is not None:
        failure = find_condition(conditions[0], REPLICA_FAILURE)
        return Standing("Stalled", failure.reason if failure is not None else REPLICA_FAILURE, refused.description)
    for type_ in (GANG_RESTARTS_EXHAUSTED, UPDATE_STALLED):
        for condition in conditions:
            if (said := find_condition(condition, type_)) is not None:
                return Standing("Stalled", said.reason, said.message)
    return Standing("Reconciling", REPLICA_FAILURE, errors[0].description) if errors else None


def _is_refusal(error: LastError) -> bool:
    description = error.description
    return error.code in _OUR_REFUSALS or (any(word in description for word in _REFUSALS) and _QUOTA not in description)


S = TypeVar("S", PodCliqueStatus, PodCliqueScalingGroupStatus, PodCliqueSetStatus)


def judged(status: S, standing: Standing, generation: int, now: datetime) -> S:
    """The status with `Ready`, `Reconciling` and `Stalled` as decided.

    kstatus does not look at conditions while `observedGeneration` is older than the object. An update that stalls
    therefore counts as observed.
    """
    conditions = with_standing(status.conditions, standing, now, generation)
    if standing.state == "Stalled" and is_open(status.update_progress) and not status.last_errors:
        return structs.replace(status, conditions=conditions, observed_generation=generation)
    return structs.replace(status, conditions=conditions)
