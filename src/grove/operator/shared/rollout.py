"""What the three levels of an update share, and how a replica of a set or of a scaling group is restarted.

A change of templates is recorded on the set (`podcliqueset.rollout`), which chooses replicas. Within a chosen replica
each scaling group chooses replicas (`scalinggroup.rollout`), and each standalone clique chooses pods
(`podclique.rollout`). All of them ask `shared.stepper`. Every level writes its choice into its status before it
replaces anything, and does nothing unless the level above chose it. A new change in the middle removes the choice, and
so stops the earlier update.

Pods are made from the template of their own PodClique. A PodClique gets a new template when its unit is chosen
(`podclique.rollout.is_due`), only from its own controller.

To restart a replica, the operator raises one number in its owner's status, its incarnation. Every clique below reads it
and replaces at once the pods that were made for a lower number. One write decides for the whole gang, so no crash
leaves half of it restarted. The PodClique objects stay, and so do the replicas that a user or an autoscaler chose.
(Upstream deletes the PodCliques, which restores the template's replicas.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeGuard, TypeVar

import msgspec

from grove.api import labels
from grove.api.core import ControllerRevision, Pod
from grove.api.fields import natural
from grove.api.hashes import set_generation_hash
from grove.api.podclique import PodClique, PodCliqueStatus, PodCliqueUpdateProgress
from grove.api.podcliqueset import (
    IF_POSSIBLE,
    ON_DELETE,
    PodCliqueSet,
    PodCliqueSetStatus,
    PodCliqueSetUpdateProgress,
    RollingUpdate,
    UpdateSlice,
    is_coherent,
    is_paused,
    part_max_unavailable,
)
from grove.api.scalinggroup import (
    PodCliqueScalingGroup,
    PodCliqueScalingGroupStatus,
    PodCliqueScalingGroupUpdateProgress,
)
from grove.api.status import ReplicaRestart
from grove.operator.shared.layout import PodsOf, group_indexes, group_replica_of, replica_of
from grove.operator.shared.stepper import Budget
from grove.operator.shared.surge import SurgeBudget


def is_rolling(pcs: PodCliqueSet) -> bool:
    """True if Grove replaces outdated pods by itself, which is the default."""
    strategy = pcs.spec.update_strategy
    return strategy is None or strategy.type != ON_DELETE


def is_in_place(pcs: PodCliqueSet) -> bool:
    """True if pods are patched instead of recreated where a change allows it."""
    strategy = pcs.spec.update_strategy
    return strategy is not None and strategy.in_place == IF_POSSIBLE


PartProgress = PodCliqueUpdateProgress | PodCliqueScalingGroupUpdateProgress
P = TypeVar("P", PodCliqueUpdateProgress, PodCliqueScalingGroupUpdateProgress, PodCliqueSetUpdateProgress)


def is_open(progress: P | None) -> TypeGuard[P]:
    """True if an update is open, by the progress that a set, a group or a clique reports."""
    return progress is not None and progress.update_ended_at is None


def units_in_flight(progress: PartProgress | None) -> frozenset[int]:
    """Units that an open update replaced and that were not back since: pods of a clique, or replicas of a group."""
    if progress is None or progress.update_ended_at is not None:
        return frozenset()
    if isinstance(progress, PodCliqueUpdateProgress):
        pods = progress.ready_pods_selected_to_update
        return frozenset(pods.indexes if pods is not None else ())
    replicas = progress.ready_replica_indices_selected_to_update
    if replicas is None:
        return frozenset()
    return frozenset((replicas.current, *replicas.also_current)).difference(replicas.completed)


def part_budget(
    pcs: PodCliqueSet,
    replica: int,
    part: str,
    own: RollingUpdate | None,
    minimum: int,
    first: int = 0,
    wait_s: float = 0.0,
) -> Budget:
    """The budget of an update for one part of a replica of the set; `own` is the part's own setting.

    A coherent update takes whole slices, so `minimum` bounds only what is down at a time. `first` is the lowest index
    of a surge unit, and `wait_s` the time that the scheduler has to place one.
    """
    most = part_max_unavailable(pcs, own, minimum)
    surge = SurgeBudget(own.max_surge or 0 if own is not None else 0, first, wait_s)
    if not is_coherent(pcs):
        return Budget(most, minimum, 0, is_paused(pcs), surge)
    slice_ = _slice(pcs, replica)
    kept = ALL if is_open(pcs.status.update_progress) else 0
    if slice_ is not None:
        kept = next((slice_part.keep for slice_part in slice_.parts if slice_part.name == part), 0)
    held = slice_ is not None and slice_.waits
    if slice_ is not None and slice_.waits_for_surge:
        surge = replace(surge, slice=slice_.number)
    return Budget(most, 0, kept, is_paused(pcs), surge, held)


ALL = 1_000_000
"""More units than any part has."""


def _slice(pcs: PodCliqueSet, replica: int) -> UpdateSlice | None:
    """The slice of a replica that is under way. Before the first one all outdated units stay."""
    progress = pcs.status.update_progress
    entries = progress.currently_updating if progress is not None else ()
    return next((entry.slice for entry in entries if entry.replica_index == replica), None)


def refused_slices(status: PodCliqueSetStatus) -> dict[int, str]:
    """Why slices have no place, by the replica of the set."""
    progress = status.update_progress
    entries = progress.currently_updating if progress is not None else ()
    return {
        entry.replica_index: entry.slice.not_placed
        for entry in entries
        if entry.slice is not None and entry.slice.not_placed
    }


def is_chosen(pcs: PodCliqueSet, replica: int) -> bool:
    """True if an update is open and the set chose this replica."""
    return is_rolling(pcs) and replica in _chosen(pcs.status.update_progress)


def was_overtaken_unseen(pcs: PodCliqueSet, progress: PartProgress | None) -> bool:
    """True if a part replaced pods for a change that was undone, and the update of the set ended at that moment.

    The set had found no outdated pod in the part. Such a part is updated to its end, without being chosen.
    """
    if not is_rolling(pcs) or progress is None or pcs.status.update_progress is None:
        return False
    is_about_another = progress.pod_clique_set_generation_hash != pcs.status.current_generation_hash
    is_unfinished = progress.update_ended_at is None
    return (is_about_another or is_unfinished) and not is_open(pcs.status.update_progress)


def origin(pcs: PodCliqueSet) -> str:
    """The generation that an update starts from, if one is open or begins now; else empty."""
    progress, recorded = pcs.status.update_progress, pcs.status.current_generation_hash
    if not is_rolling(pcs):
        return ""
    if is_open(progress):
        return progress.from_generation_hash
    return recorded if recorded != set_generation_hash(pcs) else ""


def is_origin(pcs: PodCliqueSet, revision: ControllerRevision) -> bool:
    """True if a ControllerRevision has the templates that an update starts from."""
    before, kept = origin(pcs), revision.metadata.labels.get(labels.GENERATION_HASH)
    adopted = {adopted_hash.own_hash for adopted_hash in pcs.status.adopted_hashes if adopted_hash.used_hash == before}
    return bool(before) and kept in {before, *adopted}


def concerned_replicas(old: PodCliqueSet, new: PodCliqueSet) -> frozenset[int] | None:
    """Replicas for which the set's decision changed; None is all of them.

    An update of 1,000 replicas changes the status at every step. If every clique reconciled at each step, that would be
    a million reconciles. A replica that was not wanted for a while was not reconciled in that time, so it counts as
    changed.
    """
    before, after = old.status, new.status
    if before.current_generation_hash != after.current_generation_hash or before.adopted_hashes != after.adopted_hashes:
        return None
    if _span(before.update_progress) != _span(after.update_progress) or _pace(old) != _pace(new):
        return None
    restarts = set(before.replica_restarts) ^ set(after.replica_restarts)
    turns = {index for index, _ in _turns(before.update_progress) ^ _turns(after.update_progress)}
    draining = {entry.replica_index for entry in set(before.draining) ^ set(after.draining)}
    again = set(new.indexes).difference(old.indexes) if new.indexes != old.indexes else set[int]()
    return frozenset(turns) | {restart.replica_index for restart in restarts} | draining | again


def _chosen(progress: PodCliqueSetUpdateProgress | None) -> frozenset[int]:
    if not is_open(progress):
        return frozenset()
    return frozenset(entry.replica_index for entry in progress.currently_updating if entry.update_ended_at is None)


def _turns(progress: PodCliqueSetUpdateProgress | None) -> set[tuple[int, UpdateSlice | None]]:
    chosen = _chosen(progress)
    entries = progress.currently_updating if progress is not None else ()
    return {(entry.replica_index, entry.slice) for entry in entries if entry.replica_index in chosen}


def _span(progress: PodCliqueSetUpdateProgress | None) -> tuple[datetime | None, datetime | None]:
    return (progress.update_started_at, progress.update_ended_at) if progress is not None else (None, None)


def _pace(pcs: PodCliqueSet) -> tuple[object, ...]:
    template = pcs.spec.template
    of_cliques = [clique.rolling_update for clique in template.cliques]
    of_groups = [group.rolling_update for group in template.pod_clique_scaling_groups]
    return pcs.spec.update_strategy, of_cliques, of_groups, is_paused(pcs)


Restarts = tuple[ReplicaRestart, ...]


def find_restart(restarts: Restarts, index: int) -> ReplicaRestart:
    """The entry of a replica; a blank one for a replica that was never restarted."""
    return next(
        (restart for restart in restarts if restart.replica_index == index), ReplicaRestart(replica_index=index)
    )


def replica_incarnation(pcs: PodCliqueSet, replica: int) -> int:
    return find_restart(pcs.status.replica_restarts, replica).incarnation


def group_replica_incarnation(pcs: PodCliqueSet, replica: int, group: PodCliqueScalingGroup, index: int) -> int:
    """Of one replica of a group: the later of its own restart and that of the replica it stands in."""
    return max(replica_incarnation(pcs, replica), find_restart(group.status.replica_restarts, index).incarnation)


def known_restarts(
    pcs: PodCliqueSet, replica: int, group: PodCliqueScalingGroup, members: Iterable[PodClique]
) -> Restarts:
    """The entries of a group, raised to the numbers of its members where those are higher.

    If a set or a group was deleted without its children and created again, its own status has no number. It would then
    restart its members by a number that they have already, which restarts nothing.
    """
    restarts, of_set = group.status.replica_restarts, replica_incarnation(pcs, replica)
    indexes = group_indexes(group)
    known = {restart.replica_index: restart.incarnation for restart in restarts}
    for clique in members:
        incarnation = clique.status.incarnation
        if incarnation <= of_set or clique.metadata.is_deleting:
            continue
        index = group_replica_of(clique.metadata)
        if index is not None and index in indexes and incarnation > known.get(index, 0):
            known[index] = incarnation
            restarts = with_restart(restarts, index, incarnation=incarnation)
    return restarts


def wanted_incarnation(pcs: PodCliqueSet, clique: PodClique, group: PodCliqueScalingGroup | None) -> int:
    """Of a clique, by its owners; never less than it already had, should an owner have lost its status."""
    replica, index = replica_of(clique.metadata) or 0, group_replica_of(clique.metadata)
    owners = replica_incarnation(pcs, replica)
    if group is not None and index is not None:
        owners = group_replica_incarnation(pcs, replica, group, index)
    return max(owners, clique.status.incarnation)


def incarnation_in_effect(
    pcs: PodCliqueSet, clique: PodClique, group: PodCliqueScalingGroup | None, template_hash: str
) -> int:
    """The incarnation whose pods a clique shall have now.

    If an update restarts a replica, this waits until the clique itself has the new template (`template_hash`).
    Otherwise the operator would create its pods again from the old template. If the update is overtaken, this waits
    for the group, which decides whether the restart is still needed (`without_undone`).
    """
    index = group_replica_of(clique.metadata)
    if group is not None and index is not None:
        restarted_for = find_restart(group.status.replica_restarts, index).generation_hash
        if restarted_for and restarted_for == pcs.status.current_generation_hash:
            is_early = not has_template(clique, template_hash)
        else:
            is_early = _is_updated_to(group, restarted_for)
        if is_early:
            return clique.status.incarnation
    return wanted_incarnation(pcs, clique, group)


def _is_updated_to(group: PodCliqueScalingGroup, generation: str) -> bool:
    """True if an update of a group to this generation is open."""
    progress = group.status.update_progress
    return is_open(progress) and bool(generation) and progress.pod_clique_set_generation_hash == generation


def without_undone(
    group: PodCliqueScalingGroup, target: str, members: Iterable[PodClique], pods_of: PodsOf
) -> Restarts:
    """The restarts of a group without those of an update that is undone now and that no pod has followed yet.

    Such pods drain, or their clique waits for its template. `members` are those of replicas that the present templates
    leave as they are.
    """
    restarts, progress = group.status.replica_restarts, group.status.update_progress
    cliques: dict[int, list[PodClique]] = {}
    for clique in members:
        if (index := group_replica_of(clique.metadata)) is not None:
            cliques.setdefault(index, []).append(clique)
    for entry in restarts:
        index, began = entry.replica_index, progress.update_started_at if progress is not None else None
        if index not in cliques or entry.generation_hash == target or not _is_updated_to(group, entry.generation_hash):
            continue
        broke = entry.last_gang_restart_time
        if broke is not None and (began is None or broke >= began):
            continue
        pods = [pod for clique in cliques[index] for pod in pods_of(clique.metadata.name)]
        has_followed = any(clique.status.incarnation >= entry.incarnation for clique in cliques[index]) or any(
            pod.metadata.is_deleting or pod_incarnation(pod) >= entry.incarnation for pod in pods
        )
        if not has_followed:
            before = max(clique.status.incarnation for clique in cliques[index])
            restarts = with_restart(restarts, index, incarnation=before, generation_hash="")
    return restarts


def was_taken(group: PodCliqueScalingGroup, index: int, target: str) -> bool:
    """True if an update to this generation has recreated a replica of a group."""
    return find_restart(group.status.replica_restarts, index).generation_hash == target


def has_template(clique: PodClique, template_hash: str) -> bool:
    return clique.metadata.labels.get(labels.POD_TEMPLATE_HASH) == template_hash


def is_made_from(clique: PodClique, template_hash: str, revision: str) -> bool:
    """True if a clique has this template under this revision."""
    return has_template(clique, template_hash) and clique.metadata.labels.get(labels.REVISION, "") == revision


def pod_incarnation(pod: Pod) -> int:
    return natural(pod.metadata.annotations.get(labels.INCARNATION, "")) or 0


def pods_of_earlier_incarnations(pods: Iterable[Pod], incarnation: int) -> frozenset[str]:
    """UIDs of pods made for an earlier incarnation."""
    if not incarnation:
        return frozenset()
    return frozenset(
        pod.metadata.uid for pod in pods if not pod.metadata.is_deleting and pod_incarnation(pod) < incarnation
    )


S = TypeVar("S", PodCliqueStatus, PodCliqueScalingGroupStatus)


def lost_all_scheduled(replicas: int, before: S, after: S) -> bool:
    """Whether the last scheduled pod or replica has just gone against our will, which is worth an event.

    Not if an update or a restart of the gang took it, and not where none is asked for.
    """
    if not replicas or not before.scheduled_replicas or after.scheduled_replicas:
        return False
    is_updated = is_open(before.update_progress) or is_open(after.update_progress)
    return not is_updated and before.incarnation == after.incarnation


def with_restart(restarts: Restarts, index: int, **changes: Any) -> Restarts:
    """The entries with that of one replica changed or added, in the order of their indexes."""
    entry = msgspec.structs.replace(find_restart(restarts, index), **changes)
    others = (restart for restart in restarts if restart.replica_index != index)
    return tuple(sorted((*others, entry), key=lambda restart: restart.replica_index))


def restarts_within(restarts: Restarts, indexes: Collection[int]) -> Restarts:
    """The entries of replicas that still are: one that was scaled away and comes back starts from nothing."""
    if all(restart.replica_index in indexes for restart in restarts):
        return restarts
    return tuple(restart for restart in restarts if restart.replica_index in indexes)
