"""What an update changes, and the slices of a coherent one.

The parts of a set are its standalone cliques and its scaling groups. The parts that an update changes are its scope:
fixed when the update begins, and merged with those of a change in the middle. All parts in scope get one revision, the
hash of the set's templates at that change. Parts that did not change keep theirs. If a change is undone while its
update is open, each part gets back the revision that it had. So no pod from before the change is replaced.

Under `Coherent` a chosen replica of the set is updated slice by slice (`shared.stepper.next_slice`). A slice is written
into the set's status as the number of outdated units that each part keeps. The parts then replace their own units,
within their own budgets.

The next slice begins when three things hold. Every part has replaced its share, all replaced units are ready again, and
no part has more units down than its budget allows. If a part may have surge units, a slice takes nothing before the
surge units of all its parts are ready. If the scheduler does not place them in time, the slice goes on without them. If
new pods request more than the old ones and have no surge units, the operator asks the scheduler first
(`shared.replacement`). The slice takes nothing before the scheduler has a place for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grove.api import labels
from grove.api.hashes import wanted_revision
from grove.api.names import base_gang
from grove.api.podclique import PodClique, PodCliqueUpdateProgress
from grove.api.podcliqueset import (
    PodCliqueSet,
    PodCliqueSetUpdateProgress,
    RollingUpdate,
    SlicePart,
    UpdateSlice,
    is_paused,
)
from grove.api.podgang import ReplacementAnswer
from grove.api.scalinggroup import PodCliqueScalingGroup, PodCliqueScalingGroupUpdateProgress
from grove.operator.podcliqueset.status import ObservedSet
from grove.operator.shared.layout import (
    group_minimum,
    group_names,
    live_replicas,
    living,
    standalone_names,
    unit_of,
)
from grove.operator.shared.replacement import asked_replacement
from grove.operator.shared.rollout import has_template, is_open, part_budget
from grove.operator.shared.stepper import Part, next_slice


@dataclass(frozen=True, slots=True)
class Scope:
    """The parts that an update changes, by name and in template order."""

    cliques: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.cliques, *self.groups)


def next_scope(observed: ObservedSet) -> Scope:
    """The scope of an update that begins now. A part without any PodClique takes part: it has nothing to keep."""
    pcs, hashes = observed.pcs, observed.hashes
    there: set[str] = set()
    outdated: set[str] = set()
    for clique in observed.every_clique():
        unit = unit_of(pcs, clique)
        if unit is None or clique.metadata.is_deleting:
            continue
        there.add(unit.part)
        status = clique.status
        if not has_template(clique, hashes[unit.template.name]) or status.updated_replicas < status.replicas:
            outdated.add(unit.part)
    overtaken = pcs.status.update_progress
    if is_open(overtaken):
        outdated.update(overtaken.updated_standalone_pod_cliques, overtaken.updated_pod_clique_scaling_groups)
    template = pcs.spec.template

    def changed(name: str) -> bool:
        return name in outdated or name not in there

    return Scope(
        tuple(clique.name for clique in template.standalone_cliques if changed(clique.name)),
        tuple(group.name for group in template.pod_clique_scaling_groups if changed(group.name)),
    )


def next_revisions_of_parts(observed: ObservedSet, scope: Scope, origin: str) -> dict[str, str]:
    """The revision of each part while the set is updated from the generation `origin` to that of its templates.

    If these are the same, a change was taken back: each part gets the revision that it had before the change.
    """
    pcs, target = observed.pcs, observed.generation_hash
    kept = _kept_revisions(observed, scope) if target == origin else {}
    parts = pcs.spec.template.part_names
    return {name: kept.get(name, target) if name in scope.names else wanted_revision(pcs, name) for name in parts}


def _kept_revisions(observed: ObservedSet, scope: Scope) -> dict[str, str]:
    """The revisions from before a change that was taken back, as PodCliques and pods with the template of now have it.

    A part of which nothing is left from before is not named.
    """
    pcs, kept = observed.pcs, dict[str, Counter[str]]()
    for clique in observed.every_clique():
        unit = unit_of(pcs, clique)
        if unit is None or unit.part not in scope.names:
            continue
        template, overtaken = observed.hashes[unit.template.name], wanted_revision(pcs, unit.part)
        for child in (clique, *observed.pods_of(unit.fqn)):
            own = child.metadata.labels
            revision = own.get(labels.REVISION, "")
            if own.get(labels.POD_TEMPLATE_HASH) == template and revision not in ("", overtaken):
                kept.setdefault(unit.part, Counter())[revision] += 1
    return {name: max(counts, key=lambda revision: (counts[revision], revision)) for name, counts in kept.items()}


@dataclass(frozen=True, slots=True)
class SeenPart:
    """One part of a replica in a coherent update, as its own status says.

    `in_flight` were taken and are not back; `down` have a node and are not up. `settled_slice` is the last slice for
    which the part waits for no surge unit. `surge` are the surge units that it has.
    """

    part: Part
    in_flight: int = 0
    down: int = 0
    max_unavailable: int = 1
    max_surge: int = 0
    settled_slice: int | None = None
    surge: int = 0


def with_slices(
    observed: ObservedSet, progress: PodCliqueSetUpdateProgress, now: datetime
) -> PodCliqueSetUpdateProgress:
    """The progress with the next slice of every replica whose last one is over."""
    if is_paused(observed.pcs) or not is_open(progress):
        return progress
    find_clique, find_group = living(observed.cliques).get, living(observed.groups).get
    entries = []
    for entry in progress.currently_updating:
        parts = seen_parts(observed, progress, entry.replica_index, find_clique, find_group)
        taken = next_slice_of(entry.slice, parts, now) if parts is not None else None
        if taken is not None and parts is not None and observed.asks_scheduler:
            taken = with_place(observed, entry.replica_index, taken, parts)
        entries.append(msgspec.structs.replace(entry, slice=taken) if taken is not None else entry)
    return msgspec.structs.replace(progress, currently_updating=tuple(entries))


def next_slice_of(current: UpdateSlice | None, parts: Mapping[str, SeenPart], now: datetime) -> UpdateSlice | None:
    """The slice that begins now, or the current one that waits no more; None if nothing changes."""
    if current is not None and current.waits_for_surge:
        taken_from = (parts[part.name] for part in current.parts if part.name in parts)
        surging = (surging_part for surging_part in taken_from if surging_part.max_surge and surging_part.part.outdated)
        is_settled = all(surging_part.settled_slice == current.number for surging_part in surging)
        return msgspec.structs.replace(current, waits_for_surge=None) if is_settled else None
    asked = current if current is not None and current.waits_for_place else None  # it has taken nothing: planned again
    kept = {part.name: part.keep for part in current.parts} if current is not None and asked is None else {}
    for name, seen in parts.items():
        is_taken = seen.part.outdated <= kept.get(name, seen.part.outdated)
        if not is_taken or seen.in_flight or seen.down > seen.max_unavailable:
            return None
    taken = next_slice({name: seen.part for name, seen in parts.items()})
    if not taken:
        return None
    planned = tuple(
        SlicePart(name=name, units=units, keep=parts[name].part.outdated - units) for name, units in taken.items()
    )
    if asked is not None:
        return msgspec.structs.replace(asked, parts=planned)
    # Also above what a part has settled: it may not have seen that the set began its slices again.
    numbers = [seen.settled_slice or 0 for seen in parts.values()]
    return UpdateSlice(
        number=max(current.number if current is not None else 0, *numbers) + 1,
        started_at=now,
        parts=planned,
        waits_for_surge=True if any(parts[name].max_surge for name in taken) else None,
    )


def with_place(observed: ObservedSet, replica: int, slice_: UpdateSlice, parts: Mapping[str, SeenPart]) -> UpdateSlice:
    """A slice that is about to begin, with the answer of the scheduler; it waits while there is none, or a refusal."""
    if slice_.waits_for_surge or any(parts[part.name].surge for part in slice_.parts):
        return slice_  # old units go only where new ones are up
    pcs, of = observed.pcs, live_replicas(observed.groups)
    question = asked_replacement(pcs, replica, slice_, observed.hashes, observed.pods_of, of)
    answer = _answer_of(observed, replica)
    if question is not None and (answer is None or answer.id != question.id):
        answer = ReplacementAnswer(message=slice_.not_placed)  # not answered yet
    if question is None or answer is None or answer.fits:
        return msgspec.structs.replace(slice_, waits_for_place=None, not_placed="")
    return msgspec.structs.replace(slice_, waits_for_place=True, not_placed=answer.message)


def _answer_of(observed: ObservedSet, replica: int) -> ReplacementAnswer | None:
    name = base_gang(observed.pcs.metadata.name, replica)
    return next((gang.status.replacement for gang in observed.gangs if gang.metadata.name == name), None)


def seen_parts(
    observed: ObservedSet,
    progress: PodCliqueSetUpdateProgress,
    replica: int,
    find_clique: Callable[[str], PodClique | None],
    find_group: Callable[[str], PodCliqueScalingGroup | None],
) -> dict[str, SeenPart] | None:
    """The parts in scope of one replica; None while one of them speaks of another generation."""
    pcs, generation = observed.pcs, observed.generation_hash
    seen: dict[str, SeenPart | None] = {}
    for fqn, name in standalone_names(pcs)(replica):
        if name in progress.updated_standalone_pod_cliques:
            clique = find_clique(fqn)
            own = pcs.spec.template.find_clique(name)
            seen[name] = _clique_part(pcs, replica, name, clique, own.rolling_update if own else None, generation)
    for fqn, config in group_names(pcs, replica):
        if config.name in progress.updated_pod_clique_scaling_groups:
            group = find_group(fqn)
            seen[config.name] = _group_part(pcs, replica, group, config.rolling_update, config.name, generation)
    parts = {name: part for name, part in seen.items() if part is not None}
    return parts if len(parts) == len(seen) else None


def _is_about(part: PodClique | PodCliqueScalingGroup, generation: str) -> bool:
    """True if the status of a part reports this generation.

    A part that is of this generation already has no update to it: an undo brought back what the part has. It has
    nothing to replace, and the others do not wait for it.
    """
    status, progress = part.status, part.status.update_progress
    if progress is not None and progress.pod_clique_set_generation_hash == generation:
        return True
    is_whole = status.updated_replicas == status.replicas and status.observed_generation == part.metadata.generation
    is_over = progress is None or progress.update_ended_at is not None
    return is_over and is_whole and status.current_pod_clique_set_generation_hash == generation


def _clique_part(
    pcs: PodCliqueSet, replica: int, name: str, clique: PodClique | None, own: RollingUpdate | None, generation: str
) -> SeenPart | None:
    if clique is None or not _is_about(clique, generation):
        return None
    status, minimum = clique.status, clique.spec.current_minimum
    progress = status.update_progress or PodCliqueUpdateProgress()
    selected = progress.ready_pods_selected_to_update
    return SeenPart(
        Part(clique.spec.replicas, minimum, status.replicas - status.updated_replicas),
        len(selected.indexes) if selected is not None else 0,
        status.scheduled_replicas - status.ready_replicas,
        part_budget(pcs, replica, name, own, minimum).max_unavailable,
        own.max_surge or 0 if own is not None else 0,
        progress.surge.settled_slice if progress.surge is not None else None,
        len(progress.surge.indexes) if progress.surge is not None else 0,
    )


def _group_part(
    pcs: PodCliqueSet,
    replica: int,
    group: PodCliqueScalingGroup | None,
    own: RollingUpdate | None,
    name: str,
    generation: str,
) -> SeenPart | None:
    if group is None or not _is_about(group, generation):
        return None
    status, minimum = group.status, group_minimum(group.spec.replicas, group.spec.min_available)
    progress = status.update_progress or PodCliqueScalingGroupUpdateProgress()
    return SeenPart(
        Part(group.spec.replicas, minimum, progress.outdated_replicas_count or 0),
        progress.in_flight_replicas_count or 0,
        status.scheduled_replicas - status.available_replicas,
        part_budget(pcs, replica, name, own, minimum).max_unavailable,
        own.max_surge or 0 if own is not None else 0,
        progress.surge.settled_slice if progress.surge is not None else None,
        len(progress.surge.indexes) if progress.surge is not None else 0,
    )


def in_scope(progress: PodCliqueSetUpdateProgress, scope: Scope, before: str) -> PodCliqueSetUpdateProgress:
    """The progress of an update of this scope, from the generation `before`."""
    return msgspec.structs.replace(
        progress,
        updated_standalone_pod_cliques=scope.cliques,
        updated_pod_clique_scaling_groups=scope.groups,
        from_generation_hash=before,
    )
