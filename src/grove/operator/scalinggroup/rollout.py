"""An update as a scaling group sees it: which replicas are recreated now.

The units of `shared.stepper` are its replicas, the lowest index first. A replica that is not whole is broken. A replica
is taken by raising its incarnation: all its cliques change at once, also those whose template stayed, because a replica
works as one. The update ends when every replica has become new. Replicas added by scaling are made from the templates
that the update has reached; replicas removed by scaling are forgotten. Surge replicas (`shared.surge`) are gangs of
their own: their indexes are never below `minAvailable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grove.api.podclique import PodClique
from grove.api.podcliqueset import is_coherent, partition_of
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupUpdateProgress, ReplicasSelectedToUpdate
from grove.operator.podclique.status import has_hashes
from grove.operator.scalinggroup.status import GroupReplica, ObservedGroup, group_replicas, is_outdated_member
from grove.operator.shared.layout import group_indexes, group_minimum
from grove.operator.shared.rollout import (
    ALL,
    group_replica_incarnation,
    is_chosen,
    is_open,
    is_rolling,
    part_budget,
    restarts_within,
    was_overtaken_unseen,
    was_taken,
    with_restart,
    without_undone,
)
from grove.operator.shared.stepper import ONE_AT_A_TIME, Budget, Step, Unit, next_step
from grove.operator.shared.surge import overtaken


@dataclass(frozen=True, slots=True)
class GroupReplicaState:
    """One replica of a group. `new`: fully from the new templates; `whole`: every clique has its minimum ready."""

    index: int
    outdated: bool = False
    whole: bool = True
    new: bool = True
    scheduled: bool = True
    is_ending: bool = False
    """Old pods of it still end on their nodes."""

    def unit_above(self, partition: int) -> Unit:
        """Once taken it is back as a new one, or it is still, or again, whole as an old one."""
        is_back = self.whole and (self.new or self.outdated)
        outdated = self.outdated and self.index >= partition
        return Unit(self.index, outdated, self.whole, is_back, self.scheduled, self.is_ending, self.index)


@dataclass(frozen=True, slots=True)
class GroupUpdateFacts:
    """The facts that decide the next step of a group's update. `realised` is the generation of all its replicas."""

    target: str
    realised: str
    progress: PodCliqueScalingGroupUpdateProgress | None
    replicas: Sequence[GroupReplicaState]
    chosen: bool = True
    rolling: bool = True
    budget: Budget = ONE_AT_A_TIME
    partition: int = 0
    counted: bool = False
    """The set plans slices by what the group says is left."""

    @property
    def regular(self) -> list[GroupReplicaState]:
        """The replicas without those that an update has beyond them."""
        extra = self.budget.surge.indexes(self.progress.surge) if self.progress is not None else ()
        return [replica for replica in self.replicas if replica.index not in extra]


@dataclass(frozen=True, slots=True)
class GroupStep:
    """The progress to record in the status, and the replicas whose incarnation is raised."""

    progress: PodCliqueScalingGroupUpdateProgress | None
    take: tuple[int, ...] = ()


def next_rollout_step(observed: GroupUpdateFacts, now: datetime) -> GroupStep:
    progress = observed.progress
    closed = _ended(progress, now) if is_open(progress) else progress
    if not observed.rolling:
        if observed.realised != observed.target and (
            progress is None or progress.pod_clique_set_generation_hash != observed.target
        ):
            return GroupStep(_begun(observed.target, now, ended=now))
        return GroupStep(closed)
    regular = observed.regular
    is_outdated = any(replica.outdated for replica in regular)
    if not observed.chosen or (observed.realised == observed.target and not is_open(progress) and not is_outdated):
        return GroupStep(closed)
    if progress is None or progress.pod_clique_set_generation_hash != observed.target:
        # Replicas an overtaken update has in flight are still down: they count, or two would be.
        former = progress if is_open(progress) else None
        progress = _begun(observed.target, now)
        if former is not None:
            before = _selection(former)
            selection = msgspec.structs.replace(before, completed=()) if before is not None else None
            progress = msgspec.structs.replace(
                progress,
                ready_replica_indices_selected_to_update=selection,
                unplaced=former.unplaced,
                surge=overtaken(former.surge),
            )
    elif not is_open(progress):
        if progress.partition == observed.partition and all(
            replica.new or replica.index < observed.partition for replica in regular
        ):
            return GroupStep(progress)  # the others keep the old revision until the partition is lowered
        # Closed by a change of strategy that has been taken back since: there is work left.
        progress = msgspec.structs.replace(progress, update_ended_at=None)

    selected = _selection(progress)
    units = [replica.unit_above(observed.partition) for replica in observed.replicas]
    in_flight = (selected.current, *selected.also_current) if selected is not None else ()
    step = next_step(units, in_flight, observed.budget, progress.unplaced, progress.surge, now)
    held = [replica.index for replica in regular if replica.index < observed.partition and not replica.new]
    if step.is_over and all(replica.new or replica.index in held for replica in regular):
        return GroupStep(_ended(progress, now, observed.partition if held else None))
    if observed.counted:
        left = step.outdated - len({*step.broken, *step.taken}.intersection(state.index for state in regular))
        progress = msgspec.structs.replace(
            progress, outdated_replicas_count=left, in_flight_replicas_count=len(step.in_flight)
        )
    is_regular = {replica.index for replica in regular}
    landed = [index for index in in_flight if index not in step.flying and index in is_regular]
    return GroupStep(_with_selection(progress, step, landed), (*step.broken, *step.taken))


def group_update_facts(observed: ObservedGroup) -> GroupUpdateFacts:
    """The facts of a group, from its member cliques."""
    pcs, group, target = observed.pcs, observed.group, observed.pcs.status.current_generation_hash
    config = observed.config
    minimum = group_minimum(group.spec.replicas, config.min_available)
    first = max(max(group.indexes) + 1, config.min_available) if group.spec.replicas else ALL
    budget = part_budget(
        pcs, observed.replica, config.name, config.rolling_update, minimum, first, observed.surge_wait_s
    )
    return GroupUpdateFacts(
        target=target,
        realised=group.status.current_pod_clique_set_generation_hash,
        progress=group.status.update_progress,
        replicas=[_state(observed, replica, target) for replica in group_replicas(observed)],
        chosen=is_chosen(pcs, observed.replica) or was_overtaken_unseen(pcs, group.status.update_progress),
        rolling=is_rolling(pcs),
        budget=budget,
        partition=partition_of(config.rolling_update),
        counted=is_coherent(pcs),
    )


def _state(observed: ObservedGroup, replica: GroupReplica, target: str) -> GroupReplicaState:
    is_scheduled = bool(replica.cliques) and replica.is_scheduled
    return GroupReplicaState(
        replica.index,
        outdated=any(
            is_outdated_member(observed, clique, template_hash)
            for clique, template_hash in replica.cliques
            if not _is_to_follow(observed, clique, replica.index, target)
        ),
        whole=replica.is_settled and replica.is_available,
        new=replica.is_settled and all(has_hashes(*pair, target) for pair in replica.cliques),
        scheduled=is_scheduled,
        is_ending=not is_scheduled
        and any(
            pod.metadata.is_deleting and pod.is_bound
            for clique, _ in replica.cliques
            for pod in observed.pods_of(clique.metadata.name)
        ),
    )


def _is_to_follow(observed: ObservedGroup, clique: PodClique, index: int, target: str) -> bool:
    """True if an update to this generation has taken the replica of a clique, and the clique will restart for it.

    A clique that has restarted already and is old followed a change that was undone since. So it is taken again.
    """
    incarnation = group_replica_incarnation(observed.pcs, observed.replica, observed.group, index)
    return was_taken(observed.group, index, target) and clique.status.incarnation < incarnation


def next_group_replicas(observed: ObservedGroup, now: datetime) -> PodCliqueScalingGroup:
    """The group with its next step in its status; writing that is what recreates the replicas."""
    group, facts = observed.group, group_update_facts(observed)
    step = next_rollout_step(facts, now)
    kept = {state.index for state in facts.replicas if not state.outdated}
    members = [clique for replica in group_replicas(observed) if replica.index in kept for clique, _ in replica.cliques]
    restarts = without_undone(group, facts.target, members, observed.pods_of)
    restarts = restarts_within(restarts, group_indexes(group))
    for index in step.take:
        incarnation = group_replica_incarnation(observed.pcs, observed.replica, group, index) + 1
        restarts = with_restart(restarts, index, incarnation=incarnation, generation_hash=facts.target)
    status = msgspec.structs.replace(group.status, update_progress=step.progress, replica_restarts=restarts)
    return msgspec.structs.replace(group, status=status)


def _begun(target: str, now: datetime, ended: datetime | None = None) -> PodCliqueScalingGroupUpdateProgress:
    return PodCliqueScalingGroupUpdateProgress(
        update_started_at=now, update_ended_at=ended, pod_clique_set_generation_hash=target
    )


def _ended(
    progress: PodCliqueScalingGroupUpdateProgress, now: datetime, partition: int | None = None
) -> PodCliqueScalingGroupUpdateProgress:
    return msgspec.structs.replace(
        progress,
        update_ended_at=now,
        ready_replica_indices_selected_to_update=None,
        unplaced=(),
        outdated_replicas_count=None,
        in_flight_replicas_count=None,
        partition=partition,
        surge=None,
    )


def _selection(progress: PodCliqueScalingGroupUpdateProgress | None) -> ReplicasSelectedToUpdate | None:
    return progress.ready_replica_indices_selected_to_update if progress is not None else None


def _with_selection(
    progress: PodCliqueScalingGroupUpdateProgress, step: Step, landed: list[int]
) -> PodCliqueScalingGroupUpdateProgress:
    selection = _selection(progress)
    completed = tuple(dict.fromkeys((*(selection.completed if selection is not None else ()), *landed)))
    if step.in_flight:
        selection = ReplicasSelectedToUpdate(
            current=step.in_flight[0], also_current=step.in_flight[1:], completed=completed
        )
    elif selection is not None:  # the last one taken stays in `current`, which is a required field, until the next is
        selection = msgspec.structs.replace(selection, completed=completed)
    return msgspec.structs.replace(
        progress, ready_replica_indices_selected_to_update=selection, unplaced=step.unplaced, surge=step.surge
    )
