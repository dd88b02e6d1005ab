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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupUpdateProgress, ReplicasSelectedToUpdate
from grove.operator.podclique.status import has_hashes, is_available
from grove.operator.shared.layout import group_floor, group_replica_of, member_units, replica_of
from grove.operator.shared.rollout import (
    find_restart,
    group_replica_incarnation,
    has_template,
    is_chosen,
    is_open,
    is_rolling,
    max_unavailable,
    restarted,
    within,
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
    if not observed.chosen or (observed.realised == observed.target and not is_open(progress)):
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
    taken: list[int] = []
    for index in ready:
        if len(flying) + len(taken) >= observed.max_unavailable or available < observed.min_available:
            break
        taken.append(index)
        available -= 1
    if not flying and not broken and not ready and all(replica.new for replica in observed.replicas):
        return GroupStep(_ended(progress, now))
    return GroupStep(_with_selection(progress, [*flying, *taken], landed), (*broken, *taken))


def group_update_facts(
    pcs: PodCliqueSet,
    group: PodCliqueScalingGroup,
    config: ScalingGroupConfig,
    members: Iterable[PodClique],
    hashes: Mapping[str, str],
) -> GroupUpdateFacts:
    """The facts of a group, from its member cliques; `hashes` are the template hashes of the set, by clique name."""
    replica = replica_of(group.metadata) or 0
    target = pcs.status.current_generation_hash
    live: dict[int, dict[str, PodClique]] = {}
    for clique in members:
        index = group_replica_of(clique.metadata)
        if index is not None and not clique.metadata.is_deleting:
            live.setdefault(index, {})[clique.metadata.name] = clique
    replicas: list[GroupReplicaState] = []
    for index in range(group.spec.replicas):
        units = list(member_units(pcs, replica, config, index))
        pairs = [
            (live[index][unit.fqn], hashes[unit.template.name]) for unit in units if unit.fqn in live.get(index, {})
        ]
        complete = len(pairs) == len(units)
        was_taken = find_restart(group.status.replica_restarts, index).generation_hash == target
        restarting = any(
            clique.status.incarnation < group_replica_incarnation(pcs, replica, group, index) for clique, _ in pairs
        )
        replicas.append(
            GroupReplicaState(
                index,
                outdated=not was_taken and any(_is_outdated(clique, hash_) for clique, hash_ in pairs),
                whole=complete and not restarting and all(is_available(clique) for clique, _ in pairs),
                new=complete and not restarting and all(has_hashes(clique, hash_, target) for clique, hash_ in pairs),
            )
        )
    return GroupUpdateFacts(
        target=target,
        realised=group.status.current_pod_clique_set_generation_hash,
        progress=group.status.update_progress,
        replicas=replicas,
        chosen=is_chosen(pcs, replica),
        rolling=is_rolling(pcs),
        min_available=group_floor(group.spec.replicas, config.min_available),
        max_unavailable=max_unavailable(pcs),
    )


def next_group_replicas(
    pcs: PodCliqueSet,
    group: PodCliqueScalingGroup,
    config: ScalingGroupConfig,
    members: Iterable[PodClique],
    hashes: Mapping[str, str],
    now: datetime,
) -> PodCliqueScalingGroup:
    """The group with its next step in its status; writing that is what recreates the replicas."""
    observed = group_update_facts(pcs, group, config, members, hashes)
    step = next_rollout_step(observed, now)
    replica = replica_of(group.metadata) or 0
    restarts = within(group.status.replica_restarts, len(observed.replicas))
    for index in step.take:
        incarnation = group_replica_incarnation(pcs, replica, group, index) + 1
        restarts = restarted(restarts, index, incarnation=incarnation, generation_hash=observed.target)
    status = msgspec.structs.replace(group.status, update_progress=step.progress, replica_restarts=restarts)
    return msgspec.structs.replace(group, status=status)


def frozen_members(
    pcs: PodCliqueSet,
    group: PodCliqueScalingGroup,
    members: Iterable[PodClique],
    wanted_hash: Mapping[str, str],
    *,
    recorded: bool = True,
) -> frozenset[str]:
    """Member cliques that keep their old template because their replica's turn has not come.

    `wanted_hash` is the template hash each clique is to have, by its name; nobody's turn has come before the set has
    `recorded` the change. Under OnDelete nobody waits for a turn.
    """
    if not is_rolling(pcs):
        return frozenset()
    target = pcs.status.current_generation_hash
    frozen = []
    for clique in members:
        index = group_replica_of(clique.metadata)
        restart = find_restart(group.status.replica_restarts, index) if index is not None else None
        was_taken = recorded and restart is not None and restart.generation_hash == target
        wanted = wanted_hash.get(clique.metadata.name)
        if wanted is not None and not was_taken and not has_template(clique, wanted):
            frozen.append(clique.metadata.name)
    return frozenset(frozen)


def _is_outdated(clique: PodClique, template_hash: str) -> bool:
    """From an old template, or with pods that are (left behind by OnDelete)."""
    return not has_template(clique, template_hash) or clique.status.updated_replicas < clique.status.replicas


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
