"""An update as a scaling group sees it: which replicas are recreated now.

    outdated   = replicas that are not from the new templates and were not taken yet
    broken     = outdated replicas that are not whole: all of them are taken at once, there is nothing to lose
    in flight  = replicas taken while whole that are not whole and new again
    taken      = broken + the lowest of outdated while in flight < maxUnavailable and available >= minAvailable
    ended      = nothing is outdated, nothing in flight, and every replica has become new

`available` falls by one with each whole replica taken. A replica is taken by raising its incarnation: all
its cliques change at once, also those whose template stayed, because a replica works as one. Replicas added by scaling
are made from the new templates and never taken; replicas removed by scaling are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupUpdateProgress, ReplicasSelectedToUpdate
from grove.operator.podclique.status import has_hashes
from grove.operator.scalinggroup.status import GroupReplica, ObservedGroup, group_replicas, is_outdated
from grove.operator.shared.layout import group_floor, unit_of
from grove.operator.shared.rollout import (
    find_restart,
    first_to_take,
    group_replica_incarnation,
    has_template,
    is_chosen,
    is_open,
    is_rolling,
    max_unavailable,
    restarts_within,
    with_restart,
)


@dataclass(frozen=True, slots=True)
class GroupReplicaState:
    """One replica of a group. `new`: fully from the new templates; `whole`: every clique has its minimum ready."""

    index: int
    outdated: bool = False
    whole: bool = True
    new: bool = True

    @property
    def is_down(self) -> bool:
        """Once taken: neither back as a new one, nor still (or again) whole as an old one."""
        return not (self.whole and (self.new or self.outdated))


@dataclass(frozen=True, slots=True)
class GroupUpdateFacts:
    """What the next step of a group's update depends on. `realised` is the generation the group has fully become."""

    target: str
    realised: str
    progress: PodCliqueScalingGroupUpdateProgress | None
    replicas: Sequence[GroupReplicaState]
    chosen: bool = True
    rolling: bool = True
    min_available: int = 1
    max_unavailable: int = 1


@dataclass(frozen=True, slots=True)
class GroupStep:
    """What the status is to record, and the replicas whose incarnation is raised."""

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
    is_outdated = any(replica.outdated for replica in observed.replicas)
    if not observed.chosen or (observed.realised == observed.target and not is_open(progress) and not is_outdated):
        return GroupStep(closed)
    if progress is None or progress.pod_clique_set_generation_hash != observed.target:
        # Replicas an overtaken update has in flight are still down: they count, or two would be.
        down = _selected(progress) if is_open(progress) else ()
        progress = _with_selection(_begun(observed.target, now), list(down), [])
    elif not is_open(progress):
        # Closed by a change of strategy that has been taken back since: there is work left.
        progress = msgspec.structs.replace(progress, update_ended_at=None)

    replicas = {replica.index: replica for replica in observed.replicas}
    selected = _selected(progress)
    flying = [index for index in selected if index in replicas and replicas[index].is_down]
    landed = [index for index in selected if index in replicas and index not in flying]
    broken = [replica.index for replica in observed.replicas if replica.outdated and not replica.whole]
    ready = [replica.index for replica in observed.replicas if replica.outdated and replica.whole]
    available = sum(replica.whole for replica in observed.replicas)
    taken = first_to_take(ready, len(flying), available, observed.max_unavailable, observed.min_available)
    if not flying and not broken and not ready and all(replica.new for replica in observed.replicas):
        return GroupStep(_ended(progress, now))
    return GroupStep(_with_selection(progress, [*flying, *taken], landed), (*broken, *taken))


def group_update_facts(observed: ObservedGroup) -> GroupUpdateFacts:
    """The facts of a group, from its member cliques."""
    pcs, group, target = observed.pcs, observed.group, observed.pcs.status.current_generation_hash
    return GroupUpdateFacts(
        target=target,
        realised=group.status.current_pod_clique_set_generation_hash,
        progress=group.status.update_progress,
        replicas=[_state(observed, one, target) for one in group_replicas(observed)],
        chosen=is_chosen(pcs, observed.replica),
        rolling=is_rolling(pcs),
        min_available=group_floor(group.spec.replicas, observed.config.min_available),
        max_unavailable=max_unavailable(pcs),
    )


def _state(observed: ObservedGroup, replica: GroupReplica, target: str) -> GroupReplicaState:
    return GroupReplicaState(
        replica.index,
        outdated=not _was_taken(observed.group, replica.index, target)
        and any(is_outdated(observed, *pair) for pair in replica.cliques),
        whole=replica.is_settled and replica.is_available,
        new=replica.is_settled and all(has_hashes(*pair, target) for pair in replica.cliques),
    )


def _was_taken(group: PodCliqueScalingGroup, index: int, target: str) -> bool:
    """Whether an update to this generation has had a replica recreated."""
    return find_restart(group.status.replica_restarts, index).generation_hash == target


def next_group_replicas(observed: ObservedGroup, now: datetime) -> PodCliqueScalingGroup:
    """The group with its next step in its status; writing that is what recreates the replicas."""
    group, facts = observed.group, group_update_facts(observed)
    step = next_rollout_step(facts, now)
    restarts = restarts_within(group.status.replica_restarts, group.spec.replicas)
    for index in step.take:
        incarnation = group_replica_incarnation(observed.pcs, observed.replica, group, index) + 1
        restarts = with_restart(restarts, index, incarnation=incarnation, generation_hash=facts.target)
    status = msgspec.structs.replace(group.status, update_progress=step.progress, replica_restarts=restarts)
    return msgspec.structs.replace(group, status=status)


def frozen_members(observed: ObservedGroup) -> frozenset[str]:
    """Member cliques that keep their old template because their replica's turn has not come.

    Nobody's turn has come before the set has recorded the change. Under OnDelete nobody waits for a turn.
    """
    pcs, group, target = observed.pcs, observed.group, observed.pcs.status.current_generation_hash
    if not is_rolling(pcs):
        return frozenset()
    pairs = ((clique, unit_of(pcs, clique)) for clique in observed.members)
    return frozenset(
        unit.fqn
        for clique, unit in pairs
        if unit is not None
        and unit.group is not None
        and not (observed.recorded and _was_taken(group, unit.group.replica, target))
        and not has_template(clique, observed.hashes[unit.template.name])
        and is_outdated(observed, clique, observed.hashes[unit.template.name])
    )


def _begun(target: str, now: datetime, ended: datetime | None = None) -> PodCliqueScalingGroupUpdateProgress:
    return PodCliqueScalingGroupUpdateProgress(
        update_started_at=now, update_ended_at=ended, pod_clique_set_generation_hash=target
    )


def _ended(progress: PodCliqueScalingGroupUpdateProgress, now: datetime) -> PodCliqueScalingGroupUpdateProgress:
    return msgspec.structs.replace(progress, update_ended_at=now, ready_replica_indices_selected_to_update=None)


def _selected(progress: PodCliqueScalingGroupUpdateProgress) -> tuple[int, ...]:
    found = progress.ready_replica_indices_selected_to_update
    return (found.current, *found.also_current) if found is not None else ()


def _with_selection(
    progress: PodCliqueScalingGroupUpdateProgress, flying: list[int], landed: list[int]
) -> PodCliqueScalingGroupUpdateProgress:
    before = progress.ready_replica_indices_selected_to_update
    completed = before.completed if before is not None else ()
    if not flying:
        # `current` is a required field: the last one taken stays in it until the next is.
        return progress
    selection = ReplicasSelectedToUpdate(
        current=flying[0], also_current=tuple(flying[1:]), completed=tuple(dict.fromkeys((*completed, *landed)))
    )
    return msgspec.structs.replace(progress, ready_replica_indices_selected_to_update=selection)
