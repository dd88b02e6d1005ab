"""The one step of every update: which units are replaced now.

A unit is a replica of a set, a replica of a scaling group or a pod of a standalone clique. The caller describes its
units and what it recorded at the last step, and records the answer before it acts on it.

    in flight  = units that were taken while they were up, and that are not back
    broken     = outdated units that are not up: all of them are taken at once and use no budget
    taken      = the first of the other outdated units that are not in flight, while
                   in flight < maxUnavailable, up > minAvailable, and more than `keep` outdated units are left

`up` falls by one with each unit taken. If exactly minAvailable units are up and none is in flight, one unit is taken.
Without this rule, no update of a part with replicas = minAvailable could proceed. A unit in flight uses no budget if it
lost its place to a unit that never had one. As many units are up then as before the update. A paused update takes
nothing.

With surge units (`shared.surge`) the first bound is another: in flight < surge units that are up. Then no unit is taken
while only minAvailable units are up. So old units go only when new ones stand in for them. Surge units that a change
made outdated are replaced before any other unit.

`next_slice` plans a coherent update: how many units of each changed part are taken together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from grove.api.status import SurgeProgress
from grove.operator.shared.surge import NO_SURGE, NONE, Displaced, SurgeBudget, next_surge, paused

NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit, by its index.

    `up`: it counts as available. `is_back`: once taken, it needs no further wait. `has_place`: it has a node.
    `is_ending`: old pods of it still end on their nodes. `order`: a waiting unit with a lower value is taken earlier.
    """

    id: int
    outdated: bool = False
    up: bool = True
    is_back: bool = True
    has_place: bool = True
    is_ending: bool = False
    order: Any = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of an update at one level now. `keep`: outdated units that stay.

    `held`: the slice waits for surge units of some part, or for a place, so no unit that is up is taken.
    """

    max_unavailable: int = 1
    min_available: int = 1
    keep: int = 0
    paused: bool = False
    surge: SurgeBudget = NO_SURGE
    held: bool = False


ONE_AT_A_TIME = Budget()


@dataclass(frozen=True, slots=True)
class Step:
    """The answer: units to replace now, and what to record.

    `broken` and `taken` are replaced now. `flying` were taken before and are waited for. `unplaced` had no place when
    an update replaced them. `outdated` counts all outdated units, before this step. `surge` names the surge units that
    are to exist; None if there are none and none was refused.
    """

    flying: tuple[int, ...] = ()
    broken: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    unplaced: tuple[int, ...] = ()
    outdated: int = 0
    surge: SurgeProgress | None = None

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The units for which the update waits after this step."""
        return (*self.flying, *self.taken)

    @property
    def is_over(self) -> bool:
        """True if no unit is outdated, and the update waits for none."""
        return not self.outdated and not self.flying


def next_step(
    every: Sequence[Unit],
    in_flight: Collection[int],
    budget: Budget,
    unplaced: Collection[int] = (),
    surge: SurgeProgress | None = None,
    now: datetime = NEVER,
) -> Step:
    """The next step of one level; `in_flight`, `unplaced` and `surge` are what the last step recorded."""
    known = {unit.id: unit for unit in every}
    extra = budget.surge.indexes(surge)
    units = [unit for unit in every if unit.id not in extra]
    flying, kept = _waited_for(known, extra, in_flight, unplaced)
    old = [unit for unit in units if unit.outdated]
    nothing = Step(tuple(flying), unplaced=tuple(sorted(kept)), outdated=len(old), surge=paused(surge))
    if budget.paused:
        return nothing
    # Also one in flight, if a change in the middle made it outdated again.
    broken = sorted((unit for unit in old if not unit.up), key=lambda unit: unit.order)
    # Units that were chosen and have not gone yet come before any other, in the order in which they were chosen.
    ready = [unit for unit in old if unit.up and unit.id not in flying]
    chosen = {unit_id: at for at, unit_id in enumerate(in_flight)}
    ready.sort(key=lambda unit: (chosen.get(unit.id, len(chosen)), unit.order))
    allowed = len(old) - len(broken) - budget.keep
    surge = next_surge(
        surge,
        budget.surge,
        max(0, min(len(ready), allowed)) + len(flying),
        known,
        {unit.id for unit in every if unit.has_place},
        {unit.id for unit in every if unit.up and not unit.outdated},
        now,
        _displaced([known[unit_id] for unit_id in flying], in_flight),
    )
    recorded = surge if surge != NONE else None
    if any(unit_id in known for unit_id in extra if unit_id not in surge.indexes):
        return replace(nothing, surge=recorded)  # surge units are removed before anything else is taken
    added = [known[index] for index in surge.indexes if index in known]
    count = _may_take(budget, units, added, len(flying), surges=bool(surge.indexes))
    again = [unit.id for unit in added if unit.outdated and unit.up][: max(0, count)]
    count = 0 if budget.held else min(count - len(again), allowed)
    again += [unit.id for unit in added if unit.outdated and not unit.up]
    taken = tuple(unit.id for unit in ready[: max(0, count)])
    had_none = {unit.id for unit in broken if not unit.has_place}
    return Step(
        tuple(flying),
        (*(unit.id for unit in broken), *again),
        taken,
        tuple(sorted({*kept, *had_none}.difference(taken, flying))),
        len(old),
        recorded,
    )


def _waited_for(
    known: Mapping[int, Unit], extra: Collection[int], in_flight: Collection[int], unplaced: Collection[int]
) -> tuple[list[int], list[int]]:
    """The units that the update still waits for, and those that had no place when it replaced them.

    If a unit that never had a place is up now, and one in flight has none, the two changed places.
    """
    flying = [
        unit_id for unit_id in in_flight if unit_id in known and unit_id not in extra and not known[unit_id].is_back
    ]
    kept = [unit_id for unit_id in unplaced if unit_id in known and unit_id not in flying]
    for gained in [unit_id for unit_id in kept if known[unit_id].up]:
        if (lost := next((unit_id for unit_id in flying if not known[unit_id].has_place), None)) is not None:
            flying.remove(lost)
            kept = [*(unit_id for unit_id in kept if unit_id != gained), lost]
    return flying, kept


def _may_take(budget: Budget, units: Sequence[Unit], added: Sequence[Unit], flying: int, *, surges: bool) -> int:
    """How many units that are up may be taken down now. With a surge each needs a surge unit that is up in its stead.

    A level that has just its minimum up takes one unit at a time: else it could never be updated.
    """
    spare = sum(unit.up for unit in (*units, *added)) - budget.min_available
    if surges:
        return min(sum(unit.up for unit in added) - flying, spare)
    return min(budget.max_unavailable - flying, 1 if spare == 0 and not flying else spare)


def _displaced(flying: Sequence[Unit], in_flight: Collection[int]) -> Displaced:
    without = [unit for unit in flying if not unit.has_place]
    has_moved = not {*in_flight} <= {unit.id for unit in flying}
    return Displaced(len(without), all(unit.is_ending for unit in without), has_moved)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a coherent update: a standalone clique with its pods, or a scaling group with its replicas."""

    replicas: int
    min_available: int
    outdated: int


def next_slice(parts: Mapping[str, Part]) -> dict[str, int]:
    """Units of each part that the next slice takes; only parts with outdated units are named.

    With `r` replicas and `m` minAvailable of each part, an update has the least of `r // m` slices, at least one. Each
    slice takes `r` divided by that number of every part, which is `m` and an even share of the rest. What is left over
    goes last. The sizes depend only on `r` and `m`, so scaling in the middle changes the slices that are still to come.
    """
    in_use = {name: part for name, part in parts.items() if part.replicas > 0}
    slices = slice_count(in_use)
    return {
        name: min(part.outdated, max(1, part.replicas // slices)) for name, part in in_use.items() if part.outdated > 0
    }


def slice_count(parts: Mapping[str, Part]) -> int:
    """Slices of a whole update, without the last one that takes what is left over."""
    sizes = ((part.replicas, max(1, min(part.min_available, part.replicas))) for part in parts.values())
    return max(1, min((replicas // minimum for replicas, minimum in sizes if replicas), default=1))
