"""Counting bounds: cheap tests that every placement passes, so a gang that fails one has no placement.

For groups that share nodes, a bound takes one resource and one size u and counts everything in units of u. A pod of
size q weighs q // u, and a node holds free // u. No packing can be better. The bound also finds fragmentation that
plain sums miss (ten nodes with 7 GPUs hold no 8-GPU pod). A group's own bound counts exactly the pods of it that each
node holds. Sums over a domain are differences of running sums, so one pass answers for every domain of every level.

`PartCapacity` has these sums for one part in one run: which domains could hold it, and how well. If no single domain
can, `domain_sets` names the few that can together. That is a covering problem. It tries several greedy orders and
exchanges the last domain of each set for the tightest that suffices. Sets come out smallest first. For one class of
pods the largest-first order is exactly right, and it is the only one tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask, running_sum
from grove.scheduler.solve.problem import Problem, Segments

if TYPE_CHECKING:
    from grove.scheduler.solve.search_state import SearchState

MOST_MASKS = 6


@dataclass(slots=True)
class Bound:
    """`need` units must fit. By capacity: over these options, none better than `least`. By size: over a resource."""

    need: int
    options: tuple[int, ...] = ()
    resource: int = -1
    unit: int = 1
    mask: Mask | None = None
    groups: tuple[int, ...] = ()
    least: Ints | None = None


def bounds_for(problem: Problem, groups: tuple[int, ...]) -> list[Bound]:
    """The bounds that must hold so that the minima of these groups fit on the same rows."""
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


class BoundsOf(dict[tuple[int, ...], list[Bound]]):
    """The bounds of groups. The first access to a key computes them."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self._problem = problem

    def __missing__(self, groups: tuple[int, ...]) -> list[Bound]:
        bounds = self[groups] = bounds_for(self._problem, groups)
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
    sets: list[tuple[list[int], Mask | None]] = []
    if b"" not in distinct:
        sets.append((groups, np.logical_or.reduce([mask for mask in distinct.values() if mask is not None])))
    for mask in list(distinct.values())[:MOST_MASKS]:
        inside = [g for g in groups if _is_inside(masks[g], mask)]
        if len(inside) > 1:
            sets.append((inside, mask))
    return sets


def _union(problem: Problem, group: int) -> Mask | None:
    masks = [problem.options[o].mask for o in problem.groups[group].options]
    narrowed = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(narrowed) if len(narrowed) == len(masks) else None


def _is_inside(inner: Mask | None, outer: Mask | None) -> bool:
    if outer is None:
        return True
    return inner is not None and not bool((inner & ~outer).any())


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


MOST_LIKINGS = 32
"""How many degrees of preference are distinguished; lower ones count as none."""


class PartCapacity:
    def __init__(self, state: SearchState, bounds: list[Bound], low: int, high: int) -> None:
        self._problem, self._low, self._high = state.problem, low, high
        self.bounds = bounds
        self.need = np.array([bound.need for bound in bounds], dtype=np.int64)
        capacities = state.capacities(bounds, low, high)
        self._running = np.zeros((len(bounds), high - low + 1), dtype=np.int64)
        capacities.cumsum(axis=1, out=self._running[:, 1:])

    @property
    def is_enough(self) -> bool:
        """True if the whole run passes every bound."""
        return bool((self._running[:, -1] >= self.need).all())

    def held(self, domains: Segments) -> Ints:
        """The capacity of each of these domains, by each bound."""
        counts: Ints = self._running[:, domains.ends - self._low] - self._running[:, domains.starts - self._low]
        return counts

    def fitting(self, held: Ints) -> Ints:
        """Indices of the domains that pass every bound."""
        fits: Mask = np.logical_and.reduce(held >= self.need[:, None], axis=0)
        return fits.nonzero()[0]

    def scarce(self, held: Ints) -> int:
        """The bound that leaves least to spare over all these domains: tightness is measured by it."""
        return int((self.need / np.maximum(held.sum(axis=1), 1)).argmax())

    def fewest(self, prefer: int, domains: Segments) -> Ints:
        """A bound, for each domain (in rising order), on how many domains of the preferred level it takes."""
        inner = self._problem.segments(prefer).inside(self._low, self._high)
        parent = domains.starts.searchsorted(inner.starts, side="right") - 1
        inside = (parent >= 0) & (inner.ends <= domains.ends[np.maximum(parent, 0)])
        held = self.held(inner)
        fewest = np.ones(domains.size, dtype=np.int64)
        for t, units in enumerate(self.need.tolist()):
            fewest = np.maximum(fewest, fewest_per_parent(held[t][inside], parent[inside], domains.size, units))
        return fewest

    def fewest_anywhere(self, prefer: int) -> int:
        """The same bound for the whole run."""
        held = self.held(self._problem.segments(prefer).inside(self._low, self._high))
        return max(fewest_needed(held[t], units) for t, units in enumerate(self.need.tolist()))

    def is_scattered(self, pods_at: Ints, level: int) -> bool:
        """True if nodes are in more domains of a level than are needed now. Pods of a part that left whole do not
        return to such nodes.
        """
        return int(np.unique(self._problem.tree.domains[level][pods_at]).size) > self.fewest_anywhere(level)

    def costs(self, bound: int, domains: Segments) -> Ints:
        """The cost of the cheapest sufficient rows in each domain (preemption)."""
        cost = self._problem.cost
        assert cost is not None
        capacity = np.diff(self._running[bound])
        costs = np.zeros(domains.size, dtype=np.int64)
        for i, (low, high) in enumerate(zip(domains.starts.tolist(), domains.ends.tolist(), strict=True)):
            price = cost[low:high]
            order = price.argsort(kind="stable")
            filled = capacity[low - self._low : high - self._low][order].cumsum()
            used = int(filled.searchsorted(self.need[bound])) + 1
            costs[i] = int(price[order][:used].sum())
        return costs


def suitability(state: SearchState, groups: Iterable[int], low: int, high: int, domains: Segments) -> Ints:
    """How well the groups' pods would like each of these domains of a run: their node preferences met, summed up."""
    scores = np.zeros(domains.size, dtype=np.int64)
    for g in groups:
        group = state.problem.groups[g]
        column = state.problem.options[group.options[0]].suitability if group.options else None
        if column is None or group.need == 0:
            continue
        free_slots, column = state.pod_slots(group.options[0], low, high), column[low:high]
        left = np.full(domains.size, group.need, dtype=np.int64)
        for value in np.unique(column)[::-1][:MOST_LIKINGS]:
            held = running_sum(free_slots * (column == value))
            got = np.minimum(left, held[domains.ends - low] - held[domains.starts - low])
            scores += int(value) * got
            left -= got
    return scores


def headroom_sums(problem: Problem) -> list[tuple[int, int]]:
    """Sums by resource that the gang and those expected to join it need together."""
    expected = problem.gang.headroom
    if not expected or problem.root.required_level < 0:
        return []
    totals: dict[int, int] = {}
    at = {r: i for i, r in enumerate(problem.resources)}
    for shape, count in expected:
        for r, amount in problem.snapshot.amounts(shape.requests):
            if r in at:
                totals[at[r]] = totals.get(at[r], 0) + amount * count
    for group in problem.groups:
        if group.options:
            request = problem.options[group.options[0]].request
            for i in totals:
                totals[i] += int(request[i]) * group.need
    return sorted(totals.items())


MOST_SETS = 12


def domain_sets(held: Ints, need: Ints) -> Iterator[Ints]:
    """Sets of domain indices, few domains first. `held[t, d]` is what domain d holds by test t, of `need[t]`."""
    found_sets: dict[tuple[int, ...], None] = {}
    for order in _orders(held, need):
        chosen = _prefix(held, need, order)
        if chosen.size:
            found_sets.setdefault(tuple(np.sort(_tight_last(held, need, chosen)).tolist()))
            found_sets.setdefault(tuple(np.sort(chosen).tolist()))
    sets = sorted(found_sets, key=lambda members: (len(members), int(held[:, list(members)].sum()), members))
    for members in sets[:MOST_SETS]:
        yield np.array(members, dtype=np.int64)
    # A set that passes the counting tests may still not pack: offer the best with one more domain as well.
    for members in sets[:2]:
        gains = np.minimum(held, need[:, None]).sum(axis=0)
        gains[list(members)] = -1
        if gains.size and gains.max() > 0:
            yield np.sort(np.append(np.array(members, dtype=np.int64), np.argmax(gains)))


def _orders(held: Ints, need: Ints) -> Iterator[Ints]:
    share = held / np.maximum(need, 1)[:, None]
    useful = np.minimum(share, 1).sum(axis=0)
    for t in range(held.shape[0]):
        yield np.lexsort((-useful, -held[t]))
    if held.shape[0] > 1:
        yield (-share.min(axis=0)).argsort(kind="stable")
        yield (-useful).argsort(kind="stable")
        yield _by_cover(held, need)


def _by_cover(held: Ints, need: Ints) -> Ints:
    """Each next domain is the one that brings most of what is still missing."""
    missing = need.copy()
    left = np.ones(held.shape[1], dtype=np.bool_)
    order: list[int] = []
    while left.any() and (missing > 0).any():
        gains = (np.minimum(held, np.maximum(missing, 0)[:, None]) / np.maximum(need, 1)[:, None]).sum(axis=0)
        gains[~left] = -1.0
        best = int(gains.argmax())
        order.append(best)
        left[best] = False
        missing = missing - held[:, best]
    return np.array(order, dtype=np.int64)


def _prefix(held: Ints, need: Ints, order: Ints) -> Ints:
    """The shortest beginning of the order that passes every test; empty if the whole does not."""
    holds: Mask = np.logical_and.reduce(held[:, order].cumsum(axis=1) >= need[:, None], axis=0)
    enough = holds.nonzero()[0]
    return order[: int(enough[0]) + 1] if enough.size else order[:0]


def _tight_last(held: Ints, need: Ints, chosen: Ints) -> Ints:
    """The set with its last domain replaced by the least roomy one that will still do."""
    base = held[:, chosen[:-1]].sum(axis=1)
    fits = (base[:, None] + held >= need[:, None]).all(axis=0)
    fits[chosen[:-1]] = False
    options = fits.nonzero()[0]
    best = options[held[:, options].sum(axis=0).argmin()]
    return np.append(chosen[:-1], best)
