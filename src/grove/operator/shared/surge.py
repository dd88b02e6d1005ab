"""Surge units: units beyond `replicas` that an update makes before it takes old ones down.

A surge unit is made from the new template. While it is up, one old unit may be down. The scheduler decides whether a
surge unit has a place: if one has none for `wait_s`, the update removes it and goes on without it. If none is left, the
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


def next_surge(
    recorded: SurgeProgress | None,
    budget: SurgeBudget,
    needed: int,
    units: Collection[int],
    placed: Collection[int],
    up: Collection[int],
    now: datetime,
) -> SurgeProgress:
    """The surge units that are to exist while `needed` old units are to be replaced or are on their way back.

    `units` are the indexes in use, `placed` those with a place and `up` those that are available.
    """
    before = recorded or NONE
    indexes = budget.indexes(before)
    more = min(budget.most, needed) - len(indexes) if not before.not_placed else 0
    if more > 0:
        indexes = (*indexes, *itertools.islice(_free(budget.first, {*units, *indexes}), more))
    since, not_placed = None, before.not_placed
    if any(index not in placed for index in indexes):
        since = before.waiting_since or now
        if now - since >= timedelta(seconds=budget.wait_s):
            indexes = tuple(index for index in indexes if index in placed)
            since, not_placed = None, True
    ready = sum(index in up for index in indexes)
    settled = budget.slice if budget.slice and ready == len(indexes) else before.settled_slice
    return SurgeProgress(
        indexes=indexes, ready=ready, waiting_since=since, not_placed=not_placed, settled_slice=settled
    )


def paused(recorded: SurgeProgress | None) -> SurgeProgress | None:
    """The time of a pause does not count."""
    return structs.replace(recorded, waiting_since=None) if recorded is not None else None


def overtaken(recorded: SurgeProgress | None) -> SurgeProgress | None:
    """The surge progress that a new change keeps: the units, without answers of the scheduler or a slice."""
    return SurgeProgress(indexes=recorded.indexes) if recorded is not None and recorded.indexes else None


def surge_given_up_s(surge: SurgeProgress, wait_s: float, now: datetime) -> float | None:
    """Seconds until a surge unit without a place is given up."""
    if surge.waiting_since is None:
        return None
    return max(0.0, wait_s - (now - surge.waiting_since).total_seconds())


def surge_refused(before: SurgeProgress | None, after: SurgeProgress, wait_s: float) -> str:
    """The message if the update has just given up surge units; empty otherwise."""
    if not after.not_placed or (before is not None and before.not_placed):
        return ""
    left = many(len(after.indexes), "surge unit is", "surge units are") if after.indexes else "none is"
    how = "the update goes on with those" if after.indexes else "the update takes old units down first"
    return f"the scheduler placed too few surge units within {wait_s:g}s: {left} left, and {how}"


def _free(first: int, used: Collection[int]) -> Iterator[int]:
    return (index for index in itertools.count(first) if index not in used)
