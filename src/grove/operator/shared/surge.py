"""Surge units: units beyond `replicas` that an update makes before it takes old ones down.

A surge unit is made from the new template. While it is up, one old unit may be down. The scheduler decides whether a
surge unit has a place: if one has none for `wait_s`, the update removes it and goes on without it. A surge unit may
also have the place that a replaced unit needs. If a replaced unit has no place for `wait_s`, and none came back
meanwhile, the update removes one surge unit. While its old pods end, it waits again. If no surge unit is left, the
update takes old units down first, within `maxUnavailable`. A new change asks the scheduler again.

The indexes of surge units are recorded before the units are made. Scaling out makes regular units of those whose index
is now below `replicas`. All surge units are removed when the update ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import structs

from grove.api.status import SurgeProgress
from grove.api.words import many

NONE = SurgeProgress()
DEFAULT_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class SurgeBudget:
    """The surge units that an update may make of one part. `first` is the lowest index beyond `replicas`.

    `slice` is the slice of a coherent update that waits for the surge units of all its parts; 0 if none waits.
    """

    most: int = 0
    first: int = 0
    wait_s: float = DEFAULT_WAIT_S
    slice: int = 0

    def indexes(self, recorded: SurgeProgress | None) -> tuple[int, ...]:
        """The surge units as recorded, without those that scaling out has made regular units."""
        return tuple(index for index in recorded.indexes if index >= self.first) if recorded is not None else ()


NO_SURGE = SurgeBudget()


@dataclass(frozen=True, slots=True)
class Displaced:
    """Units in flight that have no place. `are_ending`: the old pods of them all still end on their nodes.

    `has_moved`: since the last look a unit in flight came back.
    """

    count: int = 0
    are_ending: bool = False
    has_moved: bool = False


NONE_DISPLACED = Displaced()


def next_surge(
    recorded: SurgeProgress | None,
    budget: SurgeBudget,
    needed: int,
    units: Collection[int],
    placed: Collection[int],
    up: Collection[int],
    now: datetime,
    displaced: Displaced = NONE_DISPLACED,
) -> SurgeProgress:
    """The surge units that are to exist while `needed` old units are to be replaced or are on their way back.

    `units` are the indexes in use, `placed` those with a place and `up` those that are available.
    """
    before, wait = recorded or NONE, timedelta(seconds=budget.wait_s)
    indexes, not_placed, displaced_since = budget.indexes(before), before.not_placed, before.displaced_since
    more = min(budget.most, needed) - len(indexes) if not not_placed else 0
    if more > 0:
        indexes = (*indexes, *itertools.islice(_free(budget.first, {*units, *indexes}), more))
    if displaced_since is not None and now - displaced_since >= wait:
        # A clique records that a surge unit was given up only after its pod is deleted.
        given_up = [index for index in before.indexes if index not in units]
        if given_up:
            indexes = tuple(index for index in indexes if index not in given_up)
            displaced_since, not_placed = now, True
    waiting_since = None
    if any(index not in placed for index in indexes):
        waiting_since = before.waiting_since or now
        if now - waiting_since >= wait:
            indexes = tuple(index for index in indexes if index in placed)
            waiting_since, not_placed = None, True
    if waiting_since is None and indexes and displaced.count:
        displaced_since, leaves = _next_displaced(displaced_since, displaced, wait, now)
        indexes, not_placed = (indexes[:-1], True) if leaves else (indexes, not_placed)
    else:
        displaced_since = None
    ready = sum(index in up for index in indexes)
    settled = budget.slice if budget.slice and ready == len(indexes) else before.settled_slice
    return SurgeProgress(
        indexes=indexes,
        ready=ready,
        waiting_since=waiting_since,
        displaced_since=displaced_since,
        not_placed=not_placed,
        settled_slice=settled,
    )


def _next_displaced(
    since: datetime | None, displaced: Displaced, wait: timedelta, now: datetime
) -> tuple[datetime, bool]:
    """Since when replaced units have no place, and whether a surge unit is given up for them."""
    if since is None or displaced.has_moved:
        return now, False
    return (since, False) if now - since < wait else (now, not displaced.are_ending)


def paused(recorded: SurgeProgress | None) -> SurgeProgress | None:
    """The time of a pause does not count."""
    return structs.replace(recorded, waiting_since=None, displaced_since=None) if recorded is not None else None


def overtaken(recorded: SurgeProgress | None) -> SurgeProgress | None:
    """The surge progress that a new change keeps: the units, without answers of the scheduler or a slice."""
    return SurgeProgress(indexes=recorded.indexes) if recorded is not None and recorded.indexes else None


def surge_given_up_s(surge: SurgeProgress, wait_s: float, now: datetime) -> float | None:
    """Seconds until a surge unit is given up because it, or a replaced unit, has no place.

    At least a second for a replaced unit: its old pods may end for long.
    """
    if surge.waiting_since is not None:
        return max(0.0, wait_s - (now - surge.waiting_since).total_seconds())
    if surge.displaced_since is not None:
        return max(1.0, wait_s - (now - surge.displaced_since).total_seconds())
    return None


def surge_refused(before: SurgeProgress | None, after: SurgeProgress, wait_s: float) -> str:
    """The message if the update has just given up surge units; empty otherwise."""
    if not after.not_placed or (before is not None and before.not_placed):
        return ""
    left = many(len(after.indexes), "surge unit is", "surge units are") if after.indexes else "none is"
    how = "the update goes on with those" if after.indexes else "the update takes old units down first"
    return f"the scheduler did not place all new units within {wait_s:g}s: {left} left, and {how}"


def _free(first: int, used: Collection[int]) -> Iterator[int]:
    return (index for index in itertools.count(first) if index not in used)
