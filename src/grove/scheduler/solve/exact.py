"""The last word on whether a gang fits: a complete search, cut short only by proofs and by the work budget.

Every part under a requirement is given a domain: next always the part with the fewest left to choose from, the roomiest
domain first. A choice stands as long as the counting bounds allow it and the pods confined so far can be packed there.
So a conflict in one domain is not found again under every choice for the others. In the end all is packed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from grove.scheduler.solve.bounds import BoundsOf, PartCapacity
from grove.scheduler.solve.packing import Packing, Slice
from grove.scheduler.solve.problem import Part
from grove.scheduler.solve.search_state import OutOfSteps, SearchState

MOST_ROWS, PACK_STEPS = 256, 400
"""Domains up to this size are packed when a part is sent there, with this much work; larger ones are only counted."""
PREFERENCE_STEPS = 300
"""Work allowed for finding out whether one more preference can be granted."""

Found = list[tuple[int, int, int]]
"""(option, candidate row, pods)."""


def exact_placement(
    state: SearchState, part: Part, run: Slice, level: int, preferring: Collection[Part] = ()
) -> Found | None:
    """A placement of the part's core in the run, beside what the state holds already; None if there is none.

    The run is one domain of `level`, so requirements no narrower than that hold by themselves. Parts among `preferring`
    are held to the level they only prefer. May raise OutOfSteps.
    """
    return _Exact(state, part, run, level, preferring).solve()


def preferences_granted(state: SearchState, preferring: Iterable[Part]) -> Found | None:
    """A placement that grants as many of the preferences for one domain as can be, in their order; None if none can."""
    problem = state.problem
    granted: list[Part] = []
    best: Found | None = None
    for part in preferring:
        pinned = [inner for inner in part.walk() if inner.pinned_domains is not None]
        if any(inner is part or inner.required_level <= part.preferred_level for inner in pinned):
            continue
        if any(
            part is inner and part.preferred_level <= outer.preferred_level
            for outer in granted
            for inner in outer.walk()
        ):
            continue  # it is in one domain because all around it is
        try:
            with state.allowed(PREFERENCE_STEPS):
                placement = exact_placement(state, problem.root, (0, problem.size), -1, [*granted, part])
        except OutOfSteps:
            continue
        if placement is not None:
            granted.append(part)
            best = placement
    return best


class _Exact:
    def __init__(self, state: SearchState, root: Part, run: Slice, level: int, preferring: Collection[Part]) -> None:
        problem = state.problem
        self._problem, self._state, self._run, self._level = problem, state, run, level
        self._preferring = {id(part) for part in preferring}
        self._chosen: dict[int, Slice] = {}
        self._parts: list[tuple[Part, int]] = []
        """Parts with a requirement, each with the index of the nearest one above it (-1: none)."""
        self._constraint_of: dict[int, int] = {}
        """Group to the index of the nearest constrained part above or at it."""
        self._collect(root, -1, level)
        self._pinned = any(part.pinned_domains is not None for part, _ in self._parts)
        self._levels = sorted({self._level_of(part) for part, _ in self._parts})
        self._bounds_of = BoundsOf(problem)
        self._candidates: dict[tuple[int, Slice], list[Slice]] = {}
        self._packs = _Packs(state)

    def _collect(self, part: Part, above: int, level: int) -> None:
        """`level` is that of the domain which all around the part is in: what is no narrower holds by itself."""
        if part.need == 0:
            return
        if self._level_of(part) > level and not self._holds_anyway(part):
            self._parts.append((part, above))
            above, level = len(self._parts) - 1, self._level_of(part)
        if part.is_leaf:
            self._constraint_of[part.groups[0]] = above
        for child in part.children:
            self._collect(child, above, level)

    def _level_of(self, part: Part) -> int:
        return max(part.required_level, part.preferred_level) if id(part) in self._preferring else part.required_level

    def _holds_anyway(self, part: Part) -> bool:
        """True if there is only one pod to place, and each position is in a domain. One pod is always in one domain."""
        low, high = self._run
        positions = self._problem.positions[low:high]
        levels = {part.required_level, self._level_of(part)} - {-1}
        everywhere = all(bool((self._problem.tree.domains[level][positions] >= 0).all()) for level in levels)
        return part.need == 1 and part.pinned_domains is None and everywhere

    def solve(self) -> Found | None:
        at = self._hardest()
        if at < 0:
            return Packing(self._state, self._slices(self._constraint_of, self._run)).solve()
        tried: set[object] = set()
        for run in self._runs_for(at):
            signature = run if self._pinned else self._signature(at, run)
            if signature in tried:
                continue
            tried.add(signature)
            self._state.spend(run[1] - run[0])
            self._chosen[at] = run
            if self._may_hold(at):
                placement = self.solve()
                if placement is not None:
                    return placement
            del self._chosen[at]
        return None

    def _hardest(self) -> int:
        """The part without a domain that has the fewest to choose from, among those whose outer part has one."""
        placed = {-1, *self._chosen}
        waiting = [at for at, (_, above) in enumerate(self._parts) if at not in placed and above in placed]
        return min(waiting, key=lambda at: (len(self._runs_for(at)), at), default=-1)

    def _runs_for(self, at: int) -> list[Slice]:
        """Domains inside the outer part's that have capacity for this part by every count, most capacity first."""
        part, above = self._parts[at]
        outer = self._chosen[above] if above >= 0 else self._run
        runs = self._candidates.get((at, outer))
        if runs is None:
            domains = self._problem.segments(self._level_of(part)).inside(*outer)
            self._state.spend(outer[1] - outer[0])
            capacity = PartCapacity(self._state, self._bounds_of[tuple(part.groups)], *outer)
            held = capacity.held(domains)
            fits = capacity.fitting(held)
            if part.pinned_domains is not None:
                fits = fits[np.isin(domains.ids[fits], sorted(part.pinned_domains))]
            for level in {inner.required_level for inner in part.walk()} - {-1, self._level_of(part)}:
                # Held to a preference that is narrower than a requirement in it: a host may be outside every rack.
                if level < self._level_of(part):
                    positions = self._problem.positions[domains.starts[fits]]
                    fits = fits[self._problem.tree.domains[level][positions] >= 0]
            if fits.size > 1:
                fits = fits[(-held[capacity.scarce(held), fits]).argsort(kind="stable")]
            runs = list(zip(domains.starts[fits].tolist(), domains.ends[fits].tolist(), strict=True))
            self._candidates[at, outer] = runs
        return runs

    def _signature(self, at: int, run: Slice) -> object:
        """Equal for domains that can be exchanged: alike, and the same parts have been sent to the same inner ones."""
        here = tuple((i, low - run[0]) for i, (low, high) in self._chosen.items() if run[0] <= low and high <= run[1])
        return (self._state.domain_signature(*run, self._level_of(self._parts[at][0]), self._levels), here)

    def _may_hold(self, at: int) -> bool:
        """True if every chosen run around the new one has capacity for the pods that must be in it."""
        low, high = self._chosen[at]
        around = {run for run in self._chosen.values() if run[0] <= low and high <= run[1]}
        return all(self._counts(run) for run in around) and all(self._can_pack(run) for run in around)

    def _confined(self, run: Slice) -> dict[int, int]:
        """Groups that are kept inside the run by now, with the part that keeps them."""
        inside = [i for i, (low, high) in self._chosen.items() if run[0] <= low and high <= run[1]]
        groups = {g for i in inside for g in self._parts[i][0].groups}
        return {g: at for g, at in self._constraint_of.items() if g in groups}

    def _counts(self, run: Slice) -> bool:
        bounds = self._bounds_of[tuple(sorted(self._confined(run)))]
        held = self._state.capacities(bounds, *run).sum(axis=1)
        return all(held[t] >= bound.need for t, bound in enumerate(bounds))

    def _can_pack(self, run: Slice) -> bool:
        """True if the groups that must be in a run of moderate size can be packed there. Unknown counts as True."""
        confined = self._confined(run)
        if run[1] - run[0] > MOST_ROWS or len(confined) < 2:
            return True
        return self._packs[tuple(self._slices(confined, run).items())]

    def _slices(self, constraints: dict[int, int], run: Slice) -> dict[int, Slice]:
        """Each group's run: that of the nearest part above it that has one inside this run."""
        slices: dict[int, Slice] = {}
        for group, at in constraints.items():
            while at >= 0 and at not in self._chosen:
                at = self._parts[at][1]
            slice_ = self._chosen[at] if at >= 0 else run
            slices[group] = slice_ if run[0] <= slice_[0] and slice_[1] <= run[1] else run
        return slices


class _Packs(dict[tuple[tuple[int, Slice], ...], bool]):
    """True for groups that can be packed, each into its slice. The first access tries it; unknown counts as True."""

    def __init__(self, state: SearchState) -> None:
        super().__init__()
        self._state = state

    def __missing__(self, slices: tuple[tuple[int, Slice], ...]) -> bool:
        try:
            with self._state.allowed(PACK_STEPS):
                fits = Packing(self._state, dict(slices)).solve() is not None
        except OutOfSteps:
            fits = True
        self[slices] = fits
        return fits
