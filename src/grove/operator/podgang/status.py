"""Status of a PodGang: whether its pods exist, and, for schedulers that do not say so themselves, how far they are.

Only the conditions named here are ours; a scheduler's own stay as they are, and so do phase and score where it reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from grove.api.conditions import (
    ALL_PODS_EXIST,
    FALSE,
    INITIALIZED,
    NODES_PROVISIONED,
    POD_GANG_PODS_CREATED,
    POD_GANG_PODS_CREATION_PENDING,
    READY,
    SCHEDULED,
    SCHEDULER_OBJECTS_READY,
    TOPOLOGY_NOT_HONOURED,
    TRUE,
    Standing,
    with_condition,
    without_condition,
)
from grove.api.meta import Condition, Conditions, is_true
from grove.api.pod import PodHealth, pod_health
from grove.api.podgang import (
    MINIMUM_NOT_PLACED,
    MINIMUM_NOT_READY,
    MINIMUM_READY,
    PENDING,
    RUNNING,
    STARTING,
    PodGang,
    PodGangStatus,
    with_gang_standing,
)
from grove.backends import base
from grove.backends.base import Backend, GangObjectsState
from grove.operator.podgang.gangs import WantedGang, pods_in_gang
from grove.operator.podgang.provisioning import ProvisioningState
from grove.operator.shared.layout import PodsOf

GANG_PLACED = "MinimumPlaced"
SHOWN = 3
"""Gangs that a condition of the set names; it says how many more there are."""


def gang_status(
    gang: PodGang,
    wanted: WantedGang,
    backend: Backend,
    pods_of: PodsOf,
    now: datetime,
    state: GangObjectsState | None = None,
) -> PodGangStatus:
    """The status that the operator writes on an existing PodGang; equal to the present one if nothing changed.

    `state` says whether another scheduler has the gang's objects, if it needs any.
    """
    status = _with_initialized(gang, wanted, now)
    if state is not None:
        status_ = TRUE if state.ready else FALSE
        conditions = with_condition(
            status.conditions, SCHEDULER_OBJECTS_READY, status_, state.reason, state.message, now
        )
        status = msgspec.structs.replace(status, conditions=conditions)
    if not backend.reports_gang_status:
        status = _with_derived_progress(status, gang, pods_of, now)
        conditions = with_gang_standing(status.conditions, now, _refused_by(state))
        status = msgspec.structs.replace(status, conditions=conditions)
    return status if status.phase else msgspec.structs.replace(status, phase=PENDING)


def _with_initialized(gang: PodGang, wanted: WantedGang, now: datetime) -> PodGangStatus:
    """True once all pods exist and are listed.

    It stays True while more pods are created for a clique that was scaled out. It becomes False again only when a group
    has fewer pods than its minimum. If surplus pods cannot be created, the replacement of a pod of the minimum must not
    wait for them.
    """
    conditions = gang.status.conditions
    short = any(len(group["podReferences"]) < group["minReplicas"] for group in wanted.object["spec"]["podgroups"])
    if not wanted.incomplete or (is_true(conditions, INITIALIZED) and not short):
        status, reason, message = TRUE, POD_GANG_PODS_CREATED, ALL_PODS_EXIST
    else:
        # No counts in the message: a gang of a thousand pods would be written a thousand times on its way.
        status, reason, message = FALSE, POD_GANG_PODS_CREATION_PENDING, "pods are still being created"
    conditions = with_condition(conditions, INITIALIZED, status, reason, message, now)
    return msgspec.structs.replace(gang.status, conditions=conditions)


def _with_derived_progress(status: PodGangStatus, gang: PodGang, pods_of: PodsOf, now: datetime) -> PodGangStatus:
    """`Scheduled`, `Ready` and the phase, counted from the pods: Pending, Starting once placed, Running once ready."""
    unplaced, unready = [], []
    for group in gang.spec.podgroups:
        pods = pods_in_gang(pods_of(group.name), gang.metadata.name)
        placed, ready = sum(pod.is_scheduled for pod in pods), sum(pod_health(pod) is PodHealth.READY for pod in pods)
        if placed < group.min_replicas:
            unplaced.append(group.name)
        if ready < group.min_replicas:
            unready.append(group.name)
    conditions = with_condition(
        status.conditions,
        SCHEDULED,
        FALSE if unplaced else TRUE,
        MINIMUM_NOT_PLACED if unplaced else GANG_PLACED,
        f"not on nodes yet: {', '.join(unplaced)}" if unplaced else "every group has its minimum on nodes",
        now,
    )
    conditions = with_condition(
        conditions,
        READY,
        FALSE if unready else TRUE,
        MINIMUM_NOT_READY if unready else MINIMUM_READY,
        f"not ready yet: {', '.join(unready)}" if unready else "every group has its minimum ready",
        now,
    )
    phase = PENDING if unplaced else STARTING if unready else RUNNING
    return msgspec.structs.replace(status, conditions=conditions, phase=phase)


_ON_ITS_WAY = frozenset({base.WRITTEN, base.PODS_HELD, base.REPLACING})


def is_trouble(condition: Condition) -> bool:
    """True if the owner of the set must act on a condition of a gang."""
    if condition.type == TOPOLOGY_NOT_HONOURED:
        return condition.status == TRUE
    return condition.reason not in _ON_ITS_WAY


def _refused_by(state: GangObjectsState | None) -> Standing | None:
    """Why another scheduler does not place the gang before a person acts; None if it may."""
    if state is None or state.ready or state.reason in _ON_ITS_WAY:
        return None
    return Standing("Stalled", state.reason, state.message)


def with_topology_condition(status: PodGangStatus, spread: str, now: datetime) -> PodGangStatus:
    """`TopologyNotHonoured` while bound pods span a required domain; `spread` says which, and is empty otherwise."""
    conditions = status.conditions
    if spread:
        conditions = with_condition(conditions, TOPOLOGY_NOT_HONOURED, TRUE, TOPOLOGY_NOT_HONOURED, spread, now)
    else:
        conditions = without_condition(conditions, TOPOLOGY_NOT_HONOURED)
    return status if conditions is status.conditions else msgspec.structs.replace(status, conditions=conditions)


def with_provisioning_condition(status: PodGangStatus, state: ProvisioningState | None, now: datetime) -> PodGangStatus:
    """`NodesProvisioned` while the gang has a ProvisioningRequest, or would have one if it could."""
    conditions = status.conditions
    if state is not None:
        conditions = with_condition(conditions, NODES_PROVISIONED, state.status, state.reason, state.message, now)
    else:
        conditions = without_condition(conditions, NODES_PROVISIONED)
    return status if conditions is status.conditions else msgspec.structs.replace(status, conditions=conditions)


def with_gang_conditions(
    conditions: Conditions, gangs: Iterable[PodGang], generation: int, now: datetime
) -> Conditions:
    """The set's conditions with what its gangs say of their scheduler: the worst, and how many gangs have the same."""
    troubles: dict[str, list[tuple[bool, str, Condition]]] = {SCHEDULER_OBJECTS_READY: [], TOPOLOGY_NOT_HONOURED: []}
    for gang in gangs:
        for condition in gang.status.conditions:
            if condition.type in troubles and is_trouble(condition) and not gang.metadata.is_deleting:
                troubles[condition.type].append((condition.status != FALSE, gang.metadata.name, condition))
    for type_, reports in troubles.items():
        if not reports:
            conditions = without_condition(conditions, type_)
            continue
        _, _, worst = min(reports, key=lambda report: report[:2])
        alike = sorted(name for _, name, condition in reports if condition.reason == worst.reason)
        more = f" and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
        message = f"{', '.join(alike[:SHOWN])}{more}: {worst.message}"
        conditions = with_condition(conditions, type_, worst.status, worst.reason, message, now, generation)
    return conditions
