"""PodCliqueScalingGroup: cliques that are scaled as one unit, such as a leader and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, ClassVar

from grove.api.deletion_cost import filled
from grove.api.meta import Condition, Int64, Object, Resource, Struct, doc
from grove.api.status import DrainingReplica, LastError, LastOperation, ReplicaRestart, SurgeProgress


class PodCliqueScalingGroupSpec(Struct):
    replicas: Annotated[int, doc("Replicas of the group, each with all member cliques.", required=True, default=1)] = 1
    min_available: Annotated[int, doc("Replicas that belong to the base gang and must stay whole.", default=1)] = 1
    clique_names: Annotated[tuple[str, ...], doc("Member cliques, by template name.", required=True)] = ()


class ReplicasSelectedToUpdate(Struct):
    current: Annotated[int, doc("Replica that is being recreated.", required=True)] = 0
    completed: Annotated[tuple[int, ...], doc("Replicas that were recreated.")] = ()
    also_current: Annotated[tuple[int, ...], doc("Further replicas being recreated, where several may be.")] = ()


class PodCliqueScalingGroupUpdateProgress(Struct):
    update_started_at: Annotated[datetime | None, doc("When the update started.", required=True)] = None
    update_ended_at: Annotated[datetime | None, doc("When it ended.")] = None
    pod_clique_set_generation_hash: Annotated[str, doc("Generation of the set it leads to.", required=True)] = ""
    updated_pod_cliques_count: Annotated[int, doc("Member cliques that are up to date.", default=0)] = 0
    total_pod_cliques_count: Annotated[int, doc("Member cliques in all.", default=0)] = 0
    outdated_replicas_count: Annotated[int | None, doc("Replicas that a coherent update has not recreated yet.")] = None
    in_flight_replicas_count: Annotated[
        int | None, doc("Replicas that a coherent update has recreated and that are not back.")
    ] = None
    partition: Annotated[int | None, doc("Replicas with a lower index kept their revision when it ended.")] = None
    ready_replica_indices_selected_to_update: Annotated[
        ReplicasSelectedToUpdate | None, doc("Ready replicas taken so far, one at a time.")
    ] = None
    unplaced: Annotated[tuple[int, ...], doc("Replicas that had no nodes when the update recreated them.")] = ()
    surge: Annotated[SurgeProgress | None, doc("Replicas beyond `replicas` that the update made.")] = None


class PodCliqueScalingGroupStatus(Struct):
    replicas: Annotated[int, doc("Replicas asked for, and those that an update has beyond them.")] = 0
    scheduled_replicas: Annotated[int, doc("Replicas whose cliques are all scheduled.", required=True, default=0)] = 0
    available_replicas: Annotated[int, doc("Replicas whose cliques are all whole.", required=True, default=0)] = 0
    updated_replicas: Annotated[int, doc("Available replicas that are up to date.", required=True, default=0)] = 0
    selector: Annotated[str, doc("Selector of the pods, for autoscalers.")] = ""
    observed_generation: Annotated[Int64 | None, doc("Generation of the last complete reconcile.")] = None
    last_errors: Annotated[tuple[LastError, ...], doc("What the last reconcile failed on.")] = ()
    last_operation: Annotated[LastOperation | None, doc("What the operator did last.")] = None
    conditions: Annotated[tuple[Condition, ...], doc("Whether enough replicas are whole.")] = ()
    current_pod_clique_set_generation_hash: Annotated[str, doc("Generation of the set that is fully realised.")] = ""
    update_progress: Annotated[PodCliqueScalingGroupUpdateProgress | None, doc("The current or last update.")] = None
    gang_restarts: Annotated[int, doc("Times a replica of this group was terminated as a gang.")] = 0
    replica_restarts: Annotated[tuple[ReplicaRestart, ...], doc("Replicas that were ever restarted whole.")] = ()
    draining: Annotated[tuple[DrainingReplica, ...], doc("Replicas that were scaled in and still drain.")] = ()
    incarnation: Annotated[int, doc("Restart of its replica of the set that this status is about.")] = 0
    replica_indexes: Annotated[
        tuple[int, ...], doc("Indexes of its replicas if they are not 0 to replicas-1: a scale-in left a gap.")
    ] = ()


class PodCliqueScalingGroup(Object):
    """Cliques that are scaled as one unit; made by Grove from a set."""

    RESOURCE: ClassVar[Resource] = Resource("grove.io", "v1alpha1", "PodCliqueScalingGroup", "podcliquescalinggroups")

    spec: Annotated[PodCliqueScalingGroupSpec, doc("The desired replicas.", required=True)] = (
        PodCliqueScalingGroupSpec()
    )
    status: Annotated[PodCliqueScalingGroupStatus, doc("The observed replicas.")] = PodCliqueScalingGroupStatus()

    @property
    def indexes(self) -> Sequence[int]:
        """The replicas that are asked for: 0 to replicas-1, unless a scale-in left a gap."""
        return filled(self.status.replica_indexes, self.spec.replicas)

    @property
    def recorded_indexes(self) -> Sequence[int]:
        """The replicas that the status is about, without those that an update had beyond `replicas`."""
        status = self.status
        surge = status.update_progress.surge if status.update_progress is not None else None
        return status.replica_indexes or range(status.replicas - (len(surge.indexes) if surge is not None else 0))

    @property
    def is_scaled_in(self) -> bool:
        """True if the status does not show a scale-in yet."""
        return len(self.recorded_indexes) > self.spec.replicas
