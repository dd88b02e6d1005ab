"""A part against a run of rows by every counting bound at once: which domains could hold it, and how well.

Running sums make every question about domains a difference of two columns, so one pass over the rows serves all levels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.solve.bounds import Bound, fewest_needed, fewest_per_parent, running_sums
from grove.scheduler.solve.problem import Problem
from grove.scheduler.solve.state import State

MOST_WISHES = 32
"""Degrees of liking that are told apart; what is liked less than all these counts as nothing."""


class Weighed:
    def __init__(self, problem: Problem, state: State, bounds: list[Bound], low: int, high: int) -> None:
        self._problem, self._low, self._high = problem, low, high
        self.bounds = bounds
        self.need = np.array([bound.need for bound in bounds], dtype=np.int64)
        self._running = running_sums(state.capacities(bounds, low, high))

    def held(self, starts: Ints, ends: Ints) -> Ints:
        """What each of these runs holds, by each bound."""
        found: Ints = self._running[:, ends - self._low] - self._running[:, starts - self._low]
        return found

    def fitting(self, held: Ints) -> Ints:
        """Indices of the runs that pass every bound."""
        return np.flatnonzero((held >= self.need[:, None]).all(axis=0))

    def scarce(self, held: Ints) -> int:
        """The bound that leaves least to spare over all these runs: tightness is measured by it."""
        return int(np.argmax(self.need / np.maximum(held.sum(axis=1), 1)))

    def fewest(self, prefer: int, starts: Ints, ends: Ints) -> Ints:
        """A bound, for each run (in rising order), on how many domains of the preferred level it takes."""
        inner = self._problem.segments(prefer)
        a, b = inner.within(self._low, self._high)
        parent = np.searchsorted(starts, inner.starts[a:b], side="right") - 1
        inside = (parent >= 0) & (inner.ends[a:b] <= ends[np.maximum(parent, 0)])
        held = self.held(inner.starts[a:b], inner.ends[a:b])
        found = np.ones(starts.size, dtype=np.int64)
        for t, units in enumerate(self.need.tolist()):
            found = np.maximum(found, fewest_per_parent(held[t][inside], parent[inside], starts.size, units))
        return found

    def fewest_anywhere(self, prefer: int) -> int:
        """The same bound for the whole run."""
        segments = self._problem.segments(prefer)
        first, last = segments.within(self._low, self._high)
        held = self.held(segments.starts[first:last], segments.ends[first:last])
        return max(fewest_needed(held[t], units) for t, units in enumerate(self.need.tolist()))

    def is_scattered(self, homes: Ints, level: int) -> bool:
        """Whether nodes lie in more domains of a level than would be needed now; of pods that all left, nobody goes
        back to such seats."""
        return int(np.unique(self._problem.tree.domains[level][homes]).size) > self.fewest_anywhere(level)

    def costs(self, bound: int, starts: Ints, ends: Ints) -> Ints:
        """What the cheapest rows that could do would cost in each run (preemption)."""
        cost = self._problem.cost
        assert cost is not None
        capacity = np.diff(self._running[bound])
        found = np.zeros(starts.size, dtype=np.int64)
        for i, (low, high) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            price = cost[low:high]
            order = np.argsort(price, kind="stable")
            filled = np.cumsum(capacity[low - self._low : high - self._low][order])
            used = int(np.searchsorted(filled, self.need[bound])) + 1
            found[i] = int(price[order][:used].sum())
        return found


def liking(
    problem: Problem, state: State, groups: Iterable[int], run: tuple[int, int], starts: Ints, ends: Ints
) -> Ints:
    """How well the groups' pods would like each of these runs inside `run`: their node preferences met, summed up."""
    low, high = run
    found = np.zeros(starts.size, dtype=np.int64)
    for g in groups:
        group = problem.groups[g]
        soft = problem.options[group.options[0]].soft if group.options else None
        if soft is None or group.need == 0:
            continue
        room, soft = state.room(group.options[0], low, high), soft[low:high]
        left = np.full(starts.size, group.need, dtype=np.int64)
        for value in np.unique(soft)[::-1][:MOST_WISHES]:
            held = np.concatenate([[0], np.cumsum(room * (soft == value))])
            got = np.minimum(left, held[ends - low] - held[starts - low])
            found += int(value) * got
            left -= got
    return found
