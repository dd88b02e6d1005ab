"""Counting bounds: cheap tests that every placement passes, so a gang that fails one has no placement.

For groups that share nodes, a bound takes one resource and one size u and counts everything in units of u: a pod of
size q weighs q // u, a node holds free // u. No packing can beat that, and it sees fragmentation that plain sums miss
(ten nodes with 7 GPUs hold no 8-GPU pod). A group's own bound counts the pods of it that each node holds, exactly.
Sums over a domain are differences of running sums, so one pass answers for every domain of every level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grove.scheduler.cluster.nodes import Ints, Mask
from grove.scheduler.solve.problem import Problem, Segments

MOST_MASKS = 6


@dataclass(slots=True)
class Bound:
    """`need` units must fit. By room: over these options, none better than `least`. By size: over a resource."""

    need: int
    options: tuple[int, ...] = ()
    resource: int = -1
    unit: int = 1
    mask: Mask | None = None
    groups: tuple[int, ...] = ()
    least: Ints | None = None


def bounds_for(problem: Problem, groups: tuple[int, ...]) -> list[Bound]:
    """What must hold for the core of these groups to be placed on the same rows."""
    needed = {g: problem.groups[g].need for g in groups}
    active = [g for g in groups if needed[g] > 0]
    bounds = [_own_bound(problem, g) for g in active]
    if len(active) < 2:
        return bounds
    for members, mask in _by_mask(problem, active):
        for r in range(len(problem.resources)):
            smallest = {g: min(int(problem.options[o].request[r]) for o in problem.groups[g].options) for g in members}
            for unit in sorted({size for size in smallest.values() if size > 0}):
                weighing = tuple(g for g in members if smallest[g] >= unit)
                if len(weighing) > 1:
                    need = sum(needed[g] * (smallest[g] // unit) for g in weighing)
                    bounds.append(Bound(need, resource=r, unit=unit, mask=mask, groups=weighing))
    return bounds


def _own_bound(problem: Problem, g: int) -> Bound:
    options = tuple(problem.groups[g].options)
    least = problem.least_request(g) if len(options) > 1 else None
    return Bound(problem.groups[g].need, options=options, groups=(g,), least=least)


def _by_mask(problem: Problem, groups: list[int]) -> list[tuple[list[int], Mask | None]]:
    """Sets of groups that are confined to the same rows: all of them, and those inside each narrower mask."""
    masks: dict[int, Mask | None] = {g: _union(problem, g) for g in groups}
    distinct: dict[bytes, Mask | None] = {}
    for g in groups:
        mask = masks[g]
        distinct.setdefault(b"" if mask is None else mask.tobytes(), mask)
    found: list[tuple[list[int], Mask | None]] = []
    if b"" not in distinct:
        total = np.zeros(problem.size, dtype=np.bool_)
        for mask in masks.values():
            assert mask is not None
            total |= mask
        found.append((groups, total))
    for mask in list(distinct.values())[:MOST_MASKS]:
        inside = [g for g in groups if _is_inside(masks[g], mask)]
        if len(inside) > 1:
            found.append((inside, mask))
    return found


def _union(problem: Problem, group: int) -> Mask | None:
    masks = [problem.options[o].mask for o in problem.groups[group].options]
    if any(mask is None for mask in masks):
        return None
    union = np.zeros(problem.size, dtype=np.bool_)
    for mask in masks:
        assert mask is not None
        union |= mask
    return union


def _is_inside(inner: Mask | None, outer: Mask | None) -> bool:
    if outer is None:
        return True
    return inner is not None and not bool((inner & ~outer).any())


def within_segments(running: Ints, segments: Segments, first: int, last: int, low: int) -> Ints:
    """Sums over some domains, from running sums (tests by rows, a leading zero column) that begin at row `low`."""
    return running[:, segments.ends[first:last] - low] - running[:, segments.starts[first:last] - low]


def running_sums(capacities: Ints) -> Ints:
    sums = np.zeros((capacities.shape[0], capacities.shape[1] + 1), dtype=np.int64)
    capacities.cumsum(axis=1, out=sums[:, 1:])
    return sums


def fewest_needed(capacity: Ints, need: int) -> int:
    """How many of these domains it takes at least to hold `need`; one more than there are if all do not."""
    descending = np.sort(capacity)[::-1]
    reached = descending.cumsum().searchsorted(need)
    return int(reached) + 1


def fewest_per_parent(capacity: Ints, parent: Ints, parents: int, need: int) -> Ints:
    """The same for each parent domain at once: `parent[i]` is the index of the one that child i is in, rising."""
    counts = np.full(parents, capacity.size + 1, dtype=np.int64)
    if capacity.size == 0:
        return counts
    order = np.lexsort((-capacity, parent))
    owner = parent[order]
    sums = capacity[order].cumsum()
    first = owner.searchsorted(np.arange(parents))
    base = np.where(first > 0, sums[np.maximum(first - 1, 0)], 0)
    enough = sums - base[owner] >= need
    at = enough.nonzero()[0]
    owners, where = np.unique(owner[at], return_index=True)
    counts[owners] = at[where] - first[owners] + 1
    return counts
