"""An update as the set sees it: which replicas are being updated now.

The units of `shared.stepper` are its replicas, the lowest index first. A replica is broken if none of its pods has a
node, or if it is in breach. A broken replica is chosen at once, uses no budget, and the update waits only until it has
the new templates. Every other chosen replica stays chosen until all its cliques and groups have the current templates
and are whole again. A changed hash starts over, with the replicas that are open already. Under OnDelete an update ends
as soon as it begins. Replicas that were open when the strategy changed are closed.

Earlier templates are kept as ControllerRevisions, as StatefulSets do, and `rollout undo` uses them. The operator writes
one when it first sees a set, and whenever the templates of its pods change. It keeps the last few. A template that
comes back gets the highest number again. `podcliqueset.revision_writer` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from grove.api import labels, labelsets
from grove.api.conditions import (
    PROGRESS_DEADLINE_EXCEEDED,
    TRUE,
    UPDATE_STALLED,
    with_condition,
    without_condition,
)
from grove.api.core import ControllerRevision, written_down
from grove.api.duration import InvalidDuration, format, parse
from grove.api.fields import natural
from grove.api.hashes import generation_hash, generation_hashes
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import (
    PodCliqueSet,
    PodCliqueSetStatus,
    PodCliqueSetUpdateProgress,
    ReplicaUpdate,
    is_coherent,
    is_paused,
    max_unavailable,
    set_partition,
)
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.podcliqueset.coherent import in_scope, next_revisions_of_parts, next_scope, with_slices
from grove.operator.podcliqueset.status import ObservedSet, SetReplica
from grove.operator.shared.diff import child_metadata
from grove.operator.shared.layout import standalone_names
from grove.operator.shared.rollout import (
    is_open,
    is_origin,
    is_rolling,
    replica_incarnation,
    restarts_within,
)
from grove.operator.shared.stepper import Budget, Unit, next_step


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica of a set, as far as an update asks."""

    index: int
    done: bool = False
    scheduled_pods: int = 1
    in_breach: bool = False
    is_new: bool = False
    """Nothing of it is outdated, whole or not."""
    is_held: bool = False
    """The update has done all it may: what is still old is below the partition of a group."""

    @property
    def is_up(self) -> bool:
        return self.scheduled_pods > 0 and not self.in_breach


@dataclass(frozen=True, slots=True)
class SetUpdateFacts:
    """The facts that decide the next step of a set's update, the hashes of status and templates among them."""

    recorded: str
    wanted: str
    progress: PodCliqueSetUpdateProgress | None
    replicas: Sequence[ReplicaState]
    rolling: bool = True
    max_unavailable: int = 1
    paused: bool = False
    partition: int = 0


def next_rollout_step(observed: SetUpdateFacts, now: datetime) -> PodCliqueSetUpdateProgress | None:
    """The progress that the status is to record, together with the hash that is wanted."""
    progress = observed.progress
    if not observed.recorded:
        return None  # a new set: there is nothing to update
    if observed.recorded != observed.wanted:
        progress = _begun(progress, now)
    if not is_open(progress):
        return progress
    if not observed.rolling:
        return _ended(progress, now)
    states = {state.index: state for state in observed.replicas}
    open_ = [entry for entry in progress.currently_updating if entry.replica_index in states]
    open_ = [entry for entry in open_ if not _is_over(entry, states[entry.replica_index])]
    free = {entry.replica_index for entry in open_ if entry.was_available is False}
    in_flight = [entry.replica_index for entry in open_ if entry.was_available is not False]
    units = [
        _unit(state, state.index in in_flight)
        for state in observed.replicas
        if state.index not in free and (state.index >= observed.partition or state.index in in_flight)
    ]
    budget = Budget(observed.max_unavailable, min_available=0, paused=observed.paused)
    step = next_step(units, in_flight, budget)
    held = any(
        replica.is_held or (replica.index < observed.partition and not replica.is_new) for replica in observed.replicas
    )
    if step.is_over and not open_ and not held:
        return _ended(progress, now)
    chosen = {**dict.fromkeys(step.broken, False), **dict.fromkeys(step.taken)}
    fresh = (
        ReplicaUpdate(replica_index=index, update_started_at=now, was_available=chosen[index])
        for index in sorted(chosen, key=lambda index: _urgency(states[index]))
    )
    return msgspec.structs.replace(progress, currently_updating=(*open_, *fresh))


def _is_over(entry: ReplicaUpdate, state: ReplicaState) -> bool:
    return state.done or (entry.was_available is False and (state.is_new or state.is_held))


def _unit(state: ReplicaState, is_open: bool) -> Unit:
    outdated = not state.done and (is_open or not (state.is_new or state.is_held))
    return Unit(state.index, outdated, is_open or state.is_up, is_back=not is_open, order=state.index)


def set_update_facts(observed: ObservedSet, replicas: Sequence[SetReplica]) -> SetUpdateFacts:
    """The facts of a set, from its replicas."""
    pcs, wanted = observed.pcs, observed.generation_hash
    incarnations = {restart.replica_index: restart.incarnation for restart in pcs.status.replica_restarts}
    return SetUpdateFacts(
        recorded=pcs.status.current_generation_hash,
        wanted=wanted,
        progress=pcs.status.update_progress,
        replicas=[_state(replica, incarnations.get(replica.index, 0)) for replica in replicas],
        rolling=is_rolling(pcs),
        max_unavailable=max_unavailable(pcs),
        paused=is_paused(pcs),
        partition=set_partition(pcs),
    )


def is_step_over(
    pcs: PodCliqueSet,
    find_clique: Callable[[str], PodClique | None],
    find_group: Callable[[str], PodCliqueScalingGroup | None],
    wanted: str,
    hashes: Mapping[str, str],
) -> bool:
    """True if all chosen replicas are updated, so the update must choose the next ones.

    Looks at the parts of these replicas only: this is asked whenever a part of the set changes.
    """
    progress = pcs.status.update_progress
    chosen = [entry.replica_index for entry in progress.currently_updating] if is_open(progress) else []
    names_of = standalone_names(pcs)
    replicas = (SetReplica(pcs, at, names_of(at), find_clique, find_group, hashes, wanted) for at in chosen)
    return bool(chosen) and all(_state(replica, replica_incarnation(pcs, replica.index)).done for replica in replicas)


def next_replicas(observed: ObservedSet, replicas: Sequence[SetReplica], now: datetime) -> PodCliqueSet:
    """The set with its next step in its status; writing that is what lets the chosen replicas change.

    Cheap unless an update is under way: this is asked at every look at a set. `replicas` are those of the generation of
    its templates.
    """
    pcs, before, wanted = observed.pcs, observed.pcs.status, observed.generation_hash
    status = msgspec.structs.replace(before, replica_restarts=restarts_within(before.replica_restarts, pcs.indexes))
    if before.current_generation_hash != wanted or is_open(before.update_progress):
        progress = next_rollout_step(set_update_facts(observed, replicas), now)
        revisions = before.revisions
        if progress is not None and before.current_generation_hash != wanted:
            scope, overtaken = next_scope(observed), before.update_progress
            origin = overtaken.from_generation_hash if is_open(overtaken) else before.current_generation_hash
            progress = in_scope(progress, scope, origin)
            revisions = next_revisions_of_parts(observed, scope, origin)
        status = msgspec.structs.replace(
            status, current_generation_hash=wanted, update_progress=progress, revisions=revisions
        )
    progress = status.update_progress
    if is_coherent(pcs) and progress is not None and progress is not before.update_progress:
        status = msgspec.structs.replace(status, update_progress=with_slices(observed, progress, now))
    return msgspec.structs.replace(pcs, status=status)


def with_progress_time(
    status: PodCliqueSetStatus, observed: ObservedSet, now: datetime
) -> tuple[PodCliqueSetStatus, float | None]:
    """The status with its deadline kept, and the seconds until that passes; both only for a set that has one.

    Any pod or member clique that became up to date is progress. The time of a pause does not count, nor does the time
    in which only partitions hold the update: then no replica is being updated.
    """
    deadline, progress = _deadline(observed.pcs), status.update_progress
    conditions = without_condition(status.conditions, UPDATE_STALLED)
    is_held = is_paused(observed.pcs) or (progress is not None and not progress.currently_updating)
    if deadline is None or not is_open(progress) or is_held:
        if is_open(progress) and progress.last_progress_time is not None:
            progress = msgspec.structs.replace(progress, last_progress_time=None)  # it counts again when it goes on
        return msgspec.structs.replace(status, conditions=conditions, update_progress=progress), None
    units = sum(clique.status.updated_replicas for clique in observed.cliques)
    of_groups = (group.status.update_progress for group in observed.groups)
    units += sum(group_progress.updated_pod_cliques_count for group_progress in of_groups if group_progress is not None)
    if progress.last_progress_time is None or units != progress.updated_units_count:
        progress = msgspec.structs.replace(progress, updated_units_count=units, last_progress_time=now)
    last = progress.last_progress_time or now
    left_s = (last + deadline - now).total_seconds()
    if left_s <= 0:
        which = ", ".join(str(entry.replica_index) for entry in progress.currently_updating)
        message = f"no pod became up to date for {format(deadline)}; being updated: replica {which}"
        conditions = with_condition(status.conditions, UPDATE_STALLED, TRUE, PROGRESS_DEADLINE_EXCEEDED, message, now)
    status = msgspec.structs.replace(status, update_progress=progress, conditions=conditions)
    return status, left_s if left_s > 0 else None


def _urgency(state: ReplicaState) -> tuple[bool, bool, int]:
    """Least to lose first: nothing of it runs, then it does not work anyway, then by index."""
    return (state.scheduled_pods > 0, not state.in_breach, state.index)


def _begun(overtaken: PodCliqueSetUpdateProgress | None, now: datetime) -> PodCliqueSetUpdateProgress:
    """A fresh update. Replicas that an overtaken one has open stay chosen: they may be down, so no other may go.

    Those that were not available are judged again: one that came up meanwhile waits for its turn.
    """
    chosen = overtaken.currently_updating if is_open(overtaken) else ()
    chosen = tuple(entry for entry in chosen if entry.was_available is not False)
    again = (ReplicaUpdate(replica_index=entry.replica_index, update_started_at=now) for entry in chosen)
    return PodCliqueSetUpdateProgress(update_started_at=now, currently_updating=tuple(again))


def _ended(progress: PodCliqueSetUpdateProgress, now: datetime) -> PodCliqueSetUpdateProgress:
    return msgspec.structs.replace(progress, update_ended_at=now, currently_updating=())


def _state(replica: SetReplica, incarnation: int) -> ReplicaState:
    is_reached, is_held = replica.has_observed(incarnation) and replica.is_reached, bool(replica.groups_held)
    return ReplicaState(
        replica.index,
        is_reached and replica.is_carried_out,
        replica.scheduled_pods,
        replica.in_breach,
        is_reached and not is_held,
        is_reached and is_held,
    )


def _deadline(pcs: PodCliqueSet) -> timedelta | None:
    strategy = pcs.spec.update_strategy
    if strategy is None or not strategy.progress_deadline:
        return None
    try:
        return parse(strategy.progress_deadline)
    except InvalidDuration:
        return None


KEPT_REVISIONS = 5


@dataclass(frozen=True, slots=True)
class RevisionSteps:
    """The changes of the revision history: one revision to create or renumber, and those to delete."""

    create: Json | None = None
    renumber: tuple[str, int] | None = None
    delete: tuple[str, ...] = ()


def next_revisions(pcs: PodCliqueSet, kept: Sequence[ControllerRevision]) -> RevisionSteps:
    """The newest revision is that of the template as it stands, and no more than the limit are kept."""
    now, names = generation_hash(pcs.spec.template), generation_hashes(pcs)
    ordered = sorted(kept, key=lambda revision: (revision.revision, revision.metadata.name))
    highest = ordered[-1].revision if ordered else 0
    current = next(
        (revision for revision in ordered if revision.metadata.labels.get(labels.GENERATION_HASH) in names), None
    )
    limit = _revision_limit(pcs)
    create = None if current is not None else revision_of(pcs, now, highest + 1)
    renumber = None
    if current is not None and current.revision < highest:
        renumber = (current.metadata.name, highest + 1)
    # While an update is open, what is made where it has not come to is made from the templates of before.
    others = [revision for revision in ordered if revision is not current and not is_origin(pcs, revision)]
    over = len(ordered) + (create is not None) - limit
    return RevisionSteps(create, renumber, tuple(revision.metadata.name for revision in others[: max(0, over)]))


def revision_of(pcs: PodCliqueSet, hash_: str, number: int) -> Json:
    pcs_name = pcs.metadata.name
    own = {**labelsets.component(pcs_name, labels.REVISION_COMPONENT), labels.GENERATION_HASH: hash_}
    metadata = child_metadata(pcs, f"{pcs_name}-{hash_}", own)
    return ControllerRevision.RESOURCE.manifest(metadata, data=written_down(made_from(pcs)), revision=number)


def made_from(pcs: PodCliqueSet) -> Json:
    """The part of a set's templates that its pods are made from, without replicas and update strategy."""
    template = pcs.spec.template
    cliques = [
        {
            "name": clique.name,
            "labels": clique.labels,
            "annotations": clique.annotations,
            "podSpec": clique.spec.pod_spec,
        }
        for clique in template.cliques
    ]
    return {"priorityClassName": template.priority_class_name, "cliques": cliques}


def _revision_limit(pcs: PodCliqueSet) -> int:
    limit = natural(pcs.metadata.annotations.get(labels.REVISION_HISTORY_LIMIT, ""))
    return max(1, limit) if limit is not None else KEPT_REVISIONS
