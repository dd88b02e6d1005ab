"""The parts of an update: the revisions that pods have, budgets, partitions, slices, surge units, and who moves next.

Pure: `rollout status` prints the lines, `rollout promote` names the units that a lower partition releases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from grove.api import labels
from grove.api.hashes import hash_in_use, is_outdated, pod_template_hash
from grove.api.podclique import PodClique
from grove.api.podcliqueset import (
    ON_DELETE,
    PodCliqueSet,
    max_unavailable,
    part_max_unavailable,
    partition_of,
    set_partition,
)
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.words import many
from grove.diagnosis.seen import Seen
from grove.diagnosis.words import age, counted

NO_REVISION = "without a revision"
"""Pods that an operator without revisions made."""


@dataclass(frozen=True, slots=True)
class Share:
    """The pods of one revision. `outdated` pods are not from the templates that their part has now."""

    revision: str
    pods: int
    outdated: int
    percent: int


@dataclass(frozen=True, slots=True)
class PartBudget:
    """The limits of an update for the replicas of the set (`part` is empty), a scaling group or a clique."""

    part: str
    max_unavailable: int
    max_surge: int = 0
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """The slice of a coherent update that a replica of the set has now."""

    replica: str
    number: int
    units: dict[str, int]
    waits_for_surge: bool = False
    waits_for_place: bool = False
    not_placed: str = ""


@dataclass(frozen=True, slots=True)
class Surge:
    """Units of a PodClique or a scaling group beyond its replicas."""

    name: str
    indexes: tuple[int, ...]
    ready: int
    waiting_since: datetime | None = None
    not_placed: bool = False
    displaced_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    revisions: tuple[Share, ...] = ()
    budgets: tuple[PartBudget, ...] = ()
    slices: tuple[Slice, ...] = ()
    surges: tuple[Surge, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a PodClique is in its set. `group` is empty and `copy` is -1 outside every scaling group."""

    replica: int
    group: str
    copy: int
    clique: str

    @property
    def part(self) -> str:
        return self.group or self.clique


def place_of(clique: PodClique, pcs: PodCliqueSet) -> Place:
    own, name = clique.metadata.labels, clique.metadata.name
    replica = _number(own.get(labels.REPLICA_INDEX))
    prefix = f"{pcs.metadata.name}-{replica}-"
    fqn = own.get(labels.SCALING_GROUP, "")
    if not fqn:
        return Place(replica, "", -1, name.removeprefix(prefix))
    copy = _number(own.get(labels.SCALING_GROUP_REPLICA_INDEX))
    return Place(replica, fqn.removeprefix(prefix), copy, name.removeprefix(f"{fqn}-{copy}-"))


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def wanted_hashes(pcs: PodCliqueSet) -> dict[str, str]:
    """The hash that up-to-date pods of each clique template have."""
    template = pcs.spec.template
    own = {clique.name: pod_template_hash(clique, template.priority_class_name) for clique in template.cliques}
    return {name: hash_in_use(pcs.status.adopted_hashes, name, hash_) for name, hash_ in own.items()}


def parts_of(seen: Seen, pcs: PodCliqueSet, *, is_open: bool) -> Parts:
    """Slices and surge units only while an update is open; budgets only if Grove replaces pods by itself."""
    strategy = pcs.spec.update_strategy
    budgets = () if strategy is not None and strategy.type == ON_DELETE else tuple(_budgets(pcs))
    if not is_open:
        return Parts(_shares(seen, pcs), budgets)
    return Parts(_shares(seen, pcs), budgets, tuple(_slices(pcs)), tuple(_surges(seen, pcs)))


def _shares(seen: Seen, pcs: PodCliqueSet) -> tuple[Share, ...]:
    """The newest revision first, the others by their number of pods."""
    hashes = wanted_hashes(pcs)
    pods: defaultdict[str, int] = defaultdict(int)
    old: defaultdict[str, int] = defaultdict(int)
    for clique in seen.of_set(seen.cliques, pcs):
        place = place_of(clique, pcs)
        for pod in seen.pods_of_clique.get(clique.metadata.key, ()):
            if not pod.metadata.is_deleting:
                revision = pod.metadata.labels.get(labels.REVISION, "")
                pods[revision] += 1
                old[revision] += is_outdated(pcs, pod.metadata.labels, hashes.get(place.clique), place.part)
    whole = sum(pods.values())
    newest = pcs.status.current_generation_hash
    order = sorted(pods, key=lambda revision: (revision != newest, -pods[revision], revision))
    return tuple(
        Share(revision, pods[revision], old[revision], round(100 * pods[revision] / whole)) for revision in order
    )


def _budgets(pcs: PodCliqueSet) -> Iterator[PartBudget]:
    template = pcs.spec.template
    yield PartBudget("", max_unavailable(pcs), 0, set_partition(pcs))
    minimums = [(clique.name, clique.rolling_update, clique.spec.minimum) for clique in template.standalone_cliques]
    minimums += [
        (group.name, group.rolling_update, group.min_available) for group in template.pod_clique_scaling_groups
    ]
    for name, own, minimum in minimums:
        surge = own.max_surge or 0 if own is not None else 0
        yield PartBudget(name, part_max_unavailable(pcs, own, minimum), surge, partition_of(own))


def _slices(pcs: PodCliqueSet) -> Iterator[Slice]:
    progress = pcs.status.update_progress
    for replica_update in progress.currently_updating if progress is not None else ():
        if replica_update.slice is not None and replica_update.update_ended_at is None:
            update_slice = replica_update.slice
            units = {part.name: part.units for part in update_slice.parts}
            name = f"{pcs.metadata.name}-{replica_update.replica_index}"
            waits = bool(update_slice.waits_for_surge), bool(update_slice.waits_for_place)
            yield Slice(name, update_slice.number, units, *waits, update_slice.not_placed)


def _surges(seen: Seen, pcs: PodCliqueSet) -> Iterator[Surge]:
    parts: list[PodCliqueScalingGroup | PodClique] = [*seen.of_set(seen.groups, pcs), *seen.of_set(seen.cliques, pcs)]
    for part in parts:
        progress = part.status.update_progress
        surge = progress.surge if progress is not None and progress.update_ended_at is None else None
        if surge is not None and (surge.indexes or surge.not_placed):
            yield Surge(
                part.metadata.name,
                surge.indexes,
                surge.ready,
                surge.waiting_since,
                bool(surge.not_placed),
                surge.displaced_since,
            )


def lines_of(parts: Parts, now: datetime) -> tuple[str, ...]:
    """One short line each: revisions, partitions, budgets, slices, surge units."""
    whole = sum(revision.pods for revision in parts.revisions)
    lines = [_share_line(revision, whole) for revision in parts.revisions]
    for budget in parts.budgets:
        if budget.partition:
            of = f"of {budget.part}" if budget.part else "of the set"
            lines.append(f"partition {budget.partition}: replicas {of} below {budget.partition} keep the old revision")
    if parts.budgets:
        lines.append(f"budgets: {'; '.join(_budget_text(part_budget) for part_budget in parts.budgets)}")
    lines += [_slice_line(slice_) for slice_ in parts.slices]
    return (*lines, *(_surge_line(surge, now) for surge in parts.surges))


def _share_line(share: Share, whole: int) -> str:
    name = f"revision {share.revision}" if share.revision else NO_REVISION
    outdated = f", {share.outdated} outdated" if share.outdated else ""
    return f"{name}: {share.pods} of {many(whole, 'pod')} ({share.percent} %){outdated}"


def _budget_text(part_budget: PartBudget) -> str:
    surge = f", maxSurge {part_budget.max_surge}" if part_budget.max_surge else ""
    return f"{part_budget.part or 'set'} maxUnavailable {part_budget.max_unavailable}{surge}"


def _slice_line(slice_: Slice) -> str:
    units = ", ".join(f"{part} {count}" for part, count in slice_.units.items())
    waits = "; it waits for surge units" if slice_.waits_for_surge else ""
    if slice_.waits_for_place:
        waits = "; it waits for a place for its new pods" + (f": {slice_.not_placed}" if slice_.not_placed else "")
    return f"{slice_.replica}: slice {slice_.number} ({units}){waits}"


def _surge_line(surge: Surge, now: datetime) -> str:
    indexes = ", ".join(str(index) for index in surge.indexes)
    text = f"{len(surge.indexes)} ({indexes}), {surge.ready} ready" if surge.indexes else "none"
    if surge.waiting_since is not None:
        text += f"; no place since {age(surge.waiting_since, now)}"
    if surge.displaced_since is not None:
        text += f"; a replaced unit has no place since {age(surge.displaced_since, now)}"
    if surge.not_placed:
        text += "; the scheduler did not place all of them in time"
    return f"surge units of {surge.name}: {text}"


def released_units(seen: Seen, pcs: PodCliqueSet, group: str, before: int, after: int) -> tuple[str, ...]:
    """Outdated replicas of the set, or of a group, that a partition of `before` holds and one of `after` does not.

    A replica of a group stays where the partition of the set holds its replica of the set.
    """
    hashes, of_set = wanted_hashes(pcs), set_partition(pcs) if group else 0
    groups = {
        config.name: partition_of(config.rolling_update) for config in pcs.spec.template.pod_clique_scaling_groups
    }
    units: set[str] = set()
    for clique in seen.of_set(seen.cliques, pcs):
        place = place_of(clique, pcs)
        if group and (place.group != group or place.replica < of_set):
            continue
        if not group and place.group and place.copy < groups.get(place.group, 0):
            continue
        index = place.copy if group else place.replica
        if after <= index < before and _is_old(seen, clique, place, pcs, hashes):
            unit = f"{pcs.metadata.name}-{place.replica}"
            units.add(f"{unit}-{group}-{index}" if group else unit)
    return tuple(sorted(units, key=counted))


def _is_old(seen: Seen, clique: PodClique, place: Place, pcs: PodCliqueSet, hashes: Mapping[str, str]) -> bool:
    pods = seen.pods_of_clique.get(clique.metadata.key, ())
    objects = [clique.metadata, *(pod.metadata for pod in pods if not pod.metadata.is_deleting)]
    return any(is_outdated(pcs, obj.labels, hashes.get(place.clique), place.part) for obj in objects)
