"""Condition types and reasons, event reasons and error codes on the wire, and the rule for writing a condition."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from grove.api.meta import Condition, Conditions, find_condition

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

# Every kind, by the rules of kstatus: one of the three is True
READY = "Ready"
RECONCILING = "Reconciling"
"""True while the object is on its way to Ready; else absent."""
STALLED = "Stalled"
"""True while only a person can help; else absent."""

# PodClique and PodCliqueScalingGroup
MIN_AVAILABLE_BREACHED = "MinAvailableBreached"
UPDATE_IN_PROGRESS = "UpdateInProgress"
WAITING_FOR_KUEUE = "WaitingForKueue"
"""Reason of MinAvailableBreached=Unknown: Kueue has not admitted the missing pods, or has evicted them."""
SCHEDULED_REPLICAS_BELOW_MIN_AVAILABLE = "ScheduledReplicasBelowMinAvailable"
INSUFFICIENT_READY_PODS = "InsufficientReadyPods"
SUFFICIENT_READY_PODS = "SufficientReadyPods"
INSUFFICIENT_AVAILABLE_GROUP_REPLICAS = "InsufficientAvailablePodCliqueScalingGroupReplicas"
SUFFICIENT_AVAILABLE_GROUP_REPLICAS = "SufficientAvailablePodCliqueScalingGroupReplicas"

POD_CLIQUE_SCHEDULED = "PodCliqueScheduled"
INSUFFICIENT_SCHEDULED_PODS = "InsufficientScheduledPods"
SUFFICIENT_SCHEDULED_PODS = "SufficientScheduledPods"

BELOW_MINIMUM = "BelowMinAvailable"
"""True while a clique or group runs, as it was asked to, with less than its minAvailable; else absent."""
REPLICAS_BELOW_MIN_AVAILABLE = "ReplicasBelowMinAvailable"

GANG_TERMINATION_IN_PROGRESS = "GangTerminationInProgress"
GANG_TERMINATION_ACTIVE = "GangTerminationActive"

# What gang termination remembers: there once True, gone after a restart and when another minimum is asked for
WAS_SCHEDULED = "WasScheduled"
MINIMUM_WAS_SCHEDULED = "MinimumWasScheduled"
WAS_HEALTHY = "WasHealthy"
MINIMUM_WAS_HEALTHY = "MinimumWasHealthy"
WAS_READY = "WasReady"
"""Only where restarts are limited: since when the minimum has been ready. It outlives that only if it lasted long."""
MINIMUM_WAS_READY = "MinimumWasReady"
GANG_RESTARTS_EXHAUSTED = "GangRestartsExhausted"
MAXIMUM_REACHED = "MaximumReached"

# PodCliqueSet
TOPOLOGY_LEVELS_UNAVAILABLE = "TopologyLevelsUnavailable"
TOPOLOGY_AWARE_SCHEDULING_DISABLED = "TopologyAwareSchedulingDisabled"
ALL_CLUSTER_TOPOLOGY_LEVELS_AVAILABLE = "AllClusterTopologyLevelsAvailable"
TOPOLOGY_NAME_MISSING = "TopologyNameMissing"
CLUSTER_TOPOLOGY_NOT_FOUND = "ClusterTopologyNotFound"
CLUSTER_TOPOLOGY_LEVELS_UNAVAILABLE = "ClusterTopologyLevelsUnavailable"
CLUSTER_TOPOLOGY_LEVELS_CONTRADICT = "ClusterTopologyLevelsContradict"
UPDATE_STALLED = "UpdateStalled"
PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"

# ClusterTopologyBinding
SCHEDULER_TOPOLOGY_DRIFT = "SchedulerTopologyDrift"
TOPOLOGY_NOT_FOUND = "TopologyNotFound"
IN_SYNC = "InSync"
DRIFT = "Drift"

# PodGang
INITIALIZED = "Initialized"
POD_GANG_PODS_CREATION_PENDING = "PodGangPodsCreationPending"
POD_GANG_PODS_CREATED = "PodGangPodsCreated"
ALL_PODS_EXIST = "all pods exist"
"""Said by the operator, or by grove-scheduler in its first status of a gang: then in the same words."""
SCHEDULED = "Scheduled"
UNHEALTHY = "Unhealthy"
DISRUPTION_TARGET = "DisruptionTarget"
NODES_HELD = "NodesHeld"
"""True while nodes are held for the gang, since its last transition; absent otherwise. The message names the nodes."""
WAITED_LONG = "WaitedLong"
OVERTAKEN = "Overtaken"
FORMER_PLACE = "FormerPlace"
"""Written by earlier schedulers while a gang waited that may reuse another's nodes (`reuseReservationRef`).

The message has the names of the nodes.
"""
OLDER_REPLACEMENT = "SeatsKept"
"""Written by earlier schedulers while a gang lacked pods. The message has, by group, the nodes that they left."""
NOMINATED = "Nominated"
"""True while a place is reserved for the gang that others have to leave first; else absent. The message names them."""
WAITING_FOR_VICTIMS = "WaitingForVictims"
WAITING_FOR_TERMINATION = "WaitingForTermination"
HEADROOM_HELD = "HeadroomHeld"
"""Whether the headroom that the gang asks for is held; absent if it asks for none. The message has the numbers."""
NODES_HELD_FOR_OTHERS = "NodesHeldForOthers"
"""Reason of Scheduled=False: the gang would fit without the nodes that are held for gangs before it. The message names
these gangs and since when they hold nodes.
"""
SCHEDULER_OBJECTS_READY = "SchedulerObjectsReady"
"""Whether the gang's objects for another scheduler exist and are accepted. Absent for a scheduler that reads PodGangs.
"""
TOPOLOGY_NOT_HONOURED = "TopologyNotHonoured"
"""True while bound pods of the gang span a domain that it requires for them; else absent. The message names the pods
and their domains. A set has it while one of its gangs has it."""
NODES_PROVISIONED = "NodesProvisioned"
"""Whether the ProvisioningRequest of a gang that waits for nodes is met; absent without one. The message repeats the
conditions of the request."""

READY_TO_START_CONTAINERS = "PodReadyToStartContainers"
"""Of a pod. The kubelet writes it: the volumes, devices and network of the pod are ready."""

# Pod, while its clique waits for others to start
POD_STARTUP_BLOCKED = "PodStartupBlocked"
IN_PLACE = "grove.io/in-place"
"""Readiness gate of pods that may be updated in place or that may drain, and the condition that opens it."""
IN_PLACE_UPDATE, DRAINS, READY_FOR_TRAFFIC = "InPlaceUpdate", "Draining", "NoUpdate"
STARTUP_ORDER = "grove.io/startup-order"
"""The same truth the other way round, as a readiness gate: True once the pod may be ready."""
PREREQUISITES_NOT_READY = "PrerequisitesNotReady"
PREREQUISITES_READY = "PrerequisitesReady"


class EventReason:
    """Reasons of the events users see; the ones of the operator first, then the scheduler's."""

    TAKEN_OVER = "TakenOver"
    TAKEOVER_BLOCKED = "TakeoverBlocked"
    SCALED_BY_AUTOSCALER = "ScaledByAutoscaler"
    POD_CLIQUE_CREATE_OR_UPDATE_SUCCESSFUL = "PodCliqueCreateOrUpdateSuccessful"
    POD_CLIQUE_CREATE_OR_UPDATE_FAILED = "PodCliqueCreateOrUpdateFailed"
    POD_CLIQUE_CREATE_SUCCESSFUL = "PodCliqueCreateSuccessful"
    POD_CLIQUE_CREATE_FAILED = "PodCliqueCreateFailed"
    POD_CLIQUE_DELETE_SUCCESSFUL = "PodCliqueDeleteSuccessful"
    GROUP_CREATE_SUCCESSFUL = "PodCliqueScalingGroupCreateSuccessful"
    GROUP_CREATE_OR_UPDATE_FAILED = "PodCliqueScalingGroupCreateOrUpdateFailed"
    GROUP_DELETE_SUCCESSFUL = "PodCliqueScalingGroupDeleteSuccessful"
    GROUP_REPLICA_DELETE_SUCCESSFUL = "PodCliqueScalingGroupReplicaDeleteSuccessful"
    SET_REPLICA_DELETE_SUCCESSFUL = "PodCliqueSetReplicaDeleteSuccessful"
    POD_GANG_CREATE_OR_UPDATE_SUCCESSFUL = "PodGangCreateOrUpdateSuccessful"
    POD_GANG_CREATE_OR_UPDATE_FAILED = "PodGangCreateOrUpdateFailed"
    POD_GANG_DELETE_SUCCESSFUL = "PodGangDeleteSuccessful"
    POD_CREATE_SUCCESSFUL = "PodCreateSuccessful"
    POD_CREATE_FAILED = "PodCreateFailed"
    POD_UPDATED_IN_PLACE = "PodUpdatedInPlace"
    POD_DRAINING = "PodDraining"
    UPDATE_UNDONE = "UpdateUndone"
    UNDO_REFUSED = "UndoRefused"
    SURGE_NOT_PLACED = "SurgeNotPlaced"
    SLICE_NOT_PLACED = "SliceNotPlaced"
    POD_DELETE_SUCCESSFUL = "PodDeleteSuccessful"
    POD_DELETE_FAILED = "PodDeleteFailed"
    POD_TRIED_AGAIN = "PodTriedAgain"
    ALL_SCHEDULED_REPLICAS_LOST = "AllScheduledReplicasLost"
    COMPUTE_DOMAIN_CREATE_SUCCESSFUL = "ComputeDomainCreateSuccessful"
    COMPUTE_DOMAIN_CREATE_FAILED = "ComputeDomainCreateFailed"
    COMPUTE_DOMAIN_DELETE_SUCCESSFUL = "ComputeDomainDeleteSuccessful"
    COMPUTE_DOMAIN_DELETE_FAILED = "ComputeDomainDeleteFailed"
    TOPOLOGY_DRIFT_DETECTED = "TopologyDriftDetected"
    TOPOLOGY_IN_SYNC = "TopologyInSync"
    KAI_BACKEND_MAPPING_FAILED = "KAIBackendMappingFailed"
    VOLCANO_CAPABILITY_UNAVAILABLE = "VolcanoCapabilityUnavailable"

    GANG_SCHEDULED = "GangScheduled"
    GANG_UNSCHEDULABLE = "GangUnschedulable"
    INVALID_CAPACITY_HOLD = "InvalidCapacityHold"
    GANG_TIMEOUT = "GangTimeout"
    GANG_PREEMPTING = "GangPreempting"
    GANG_PREEMPTED = "GangPreempted"
    GANG_MOVING = "GangMoving"
    GANG_NOT_MOVED = "GangNotMoved"
    GANGS_MOVED_FOR_IT = "GangsMovedForIt"
    TOPOLOGY_SELECTED = "TopologySelected"


class ErrorCode:
    """Codes of `status.lastErrors`, by what could not be done to what."""

    CREATE_OR_UPDATE_POD_CLIQUE = "ERR_CREATE_OR_UPDATE_PODCLIQUE"
    CREATE_POD_CLIQUE = "ERR_CREATE_PODCLIQUE"
    CREATE_GROUP = "ERR_CREATE_PODCLIQUESCALINGGROUP"
    CREATE_OR_PATCH_POD_GANG = "ERR_CREATE_OR_PATCH_PODGANG"
    SYNC_SERVICE = "ERR_SYNC_PODCLIQUESET_SERVICE"
    SYNC_AUTOSCALER = "ERR_SYNC_HPA"
    SYNC_ROLE = "ERR_SYNC_ROLE"
    SYNC_ROLE_BINDING = "ERR_SYNC_ROLEBINDING"
    SYNC_SERVICE_ACCOUNT = "ERR_SYNC_SERVICEACCOUNT"
    CREATE_SECRET = "ERR_CREATE_SECRET"
    SYNC_SET_RESOURCE_CLAIM = "ERR_SYNC_PCS_RESOURCE_CLAIM"
    SYNC_GROUP_RESOURCE_CLAIM = "ERR_SYNC_PCSG_RESOURCE_CLAIM"
    SYNC_CLIQUE_RESOURCE_CLAIM = "ERR_SYNC_PCLQ_RESOURCE_CLAIM"
    SYNC_COMPUTE_DOMAIN = "ERR_SYNC_COMPUTEDOMAIN"
    DELETE_COMPUTE_DOMAIN = "ERR_DELETE_COMPUTEDOMAIN"
    CREATE_POD = "ERR_CREATE_POD"
    DELETE_POD = "ERR_DELETE_POD"
    BUILD_POD = "ERR_BUILD_POD_RESOURCE"
    REMOVE_GATE = "ERR_REMOVE_POD_SCHEDULING_GATE"
    STARTUP_IMAGE_MISSING = "ERR_INITCONTAINER_ENVIRONMENT_VARIABLE_MISSING"


def with_condition(
    conditions: Conditions,
    type_: str,
    status: str,
    reason: str,
    message: str,
    now: datetime,
    observed_generation: int | None = None,
) -> Conditions:
    """The conditions with one of them set: the same tuple if nothing changed.

    A condition keeps its place, and its transition time changes only with its status. So a status made from the same
    facts is equal, and the operator does not write it.
    """
    wanted = Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=observed_generation,
    )
    condition = find_condition(conditions, type_)
    if condition is None:
        return (*conditions, wanted)
    if condition.status == status:
        wanted = msgspec.structs.replace(wanted, last_transition_time=condition.last_transition_time)
    if condition == wanted:
        return conditions
    return tuple(wanted if c.type == type_ else c for c in conditions)


def without_condition(conditions: Conditions, type_: str) -> Conditions:
    """The conditions without one of them: the same tuple if it was not there."""
    if find_condition(conditions, type_) is None:
        return conditions
    return tuple(c for c in conditions if c.type != type_)


class Standing(NamedTuple):
    """How far an object is, as tools that wait for it read it."""

    state: Literal["Ready", "Reconciling", "Stalled"]
    reason: str
    message: str


def with_standing(
    conditions: Conditions, standing: Standing, now: datetime, observed_generation: int | None = None
) -> Conditions:
    """The conditions with `Ready`, and with the one of `Reconciling` and `Stalled` that is True."""
    state, reason, message = standing
    ready = TRUE if state == READY else FALSE
    conditions = with_condition(conditions, READY, ready, reason, message, now, observed_generation)
    return with_why_not_ready(conditions, standing, now, observed_generation)


def with_why_not_ready(
    conditions: Conditions, standing: Standing, now: datetime, observed_generation: int | None = None
) -> Conditions:
    """The conditions with the one of `Reconciling` and `Stalled` that is True; `Ready` stays as it is."""
    for type_ in (RECONCILING, STALLED):
        if type_ == standing.state:
            _, reason, message = standing
            conditions = with_condition(conditions, type_, TRUE, reason, message, now, observed_generation)
        else:
            conditions = without_condition(conditions, type_)
    return conditions
