"""Packs groups of pods, each into its own run of rows, node by node and exactly.

On a node it needs to try only patterns to which nothing can be added, because unused capacity never helps the nodes
that follow. It records the rest of the pods after each node that led to no solution. So the packing walks over (node,
remaining pods) states and not over assignments.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.filters.fit import PLENTY, pod_slots
from grove.scheduler.solve.search_state import ROWS_A_STEP, SearchState

Slice = tuple[int, int]
Pattern = tuple[tuple[int, int], ...]
"""(option, pods) on one node."""
LOOKS_A_STEP = 16
"""One step pays for this number of choices of how many pods of one option go on one node."""


class Packing:
    """One question. Setting it up goes over its rows one by one, in Python, and may raise OutOfSteps already."""

    def __init__(self, state: SearchState, slices: dict[int, Slice]) -> None:
        problem = state.problem
        self._problem, self._state = problem, state
        rows_seen = max((high - low for low, high in slices.values()), default=0)
        state.spend((10 + rows_seen // 4) * ROWS_A_STEP)
        # What remains to be placed is a tuple of cells: one a group, one more a class where a group has several.
        self._cells: list[int] = []
        self._cells_of: dict[int, tuple[int, ...]] = {}
        needed: list[int] = []
        for g in slices:
            group = problem.groups[g]
            cell = len(needed)
            needed.append(group.need)
            several = len(group.classes) > 1
            first_class = len(needed)
            if several:
                needed += [len(pods) for pods in group.classes]
            for o in group.options:
                self._cells_of[o] = (cell, first_class + problem.options[o].kind) if several else (cell,)
            self._cells.append(cell)
        self._start = tuple(needed)
        self._request = {o: [int(q) for q in problem.options[o].request] for o in self._cells_of}
        # The innermost loops go over these: only what an option asks for, and only those that are more than amounts.
        self._asks = {o: tuple((r, q) for r, q in enumerate(asked) if q > 0) for o, asked in self._request.items()}
        self._rivals = {(o, other) for o in self._cells_of for other in problem.conflicts[o]}
        self._looks = 0
        self._particular = {o for o in self._cells_of if problem.conflicts[o] or problem.options[o].limit < PLENTY}
        capacities = {o: self._capacity_in(o, slices[problem.options[o].group]) for o in self._cells_of}
        self._order_rows(capacities)
        self._bounds = [(tuple(weights.items()), held) for weights, held in self._suffix_bounds(slices, capacities)]

    def _capacity_in(self, option: int, run: Slice) -> Ints:
        capacities = np.zeros(self._problem.size, dtype=np.int64)
        capacities[run[0] : run[1]] = self._state.pod_slots(option, *run)
        return capacities

    def _order_rows(self, capacities: dict[int, Ints]) -> None:
        """Rows that can take something: first those that few options compete for, then by domain, most capacity first.

        On each row the options with least to spare go first.
        """
        stack = np.array([capacities[o] for o in capacities])
        rows = np.flatnonzero(stack.any(axis=0))
        self._free = [[int(v) for v in self._state.free[:, row]] for row in rows]
        groups = [self._problem.groups[self._problem.options[o].group] for o in capacities]
        spare = [
            int(capacity) / group.need if group.need else 0.0
            for capacity, group in zip(stack.sum(axis=1), groups, strict=True)
        ]
        scarce_first = sorted(range(len(capacities)), key=lambda i: (spare[i], i))
        option = list(capacities)
        active = [tuple(option[i] for i in scarce_first if stack[i, row]) for row in rows]
        level = max(self._problem.tree.host_level - 1, 0)
        domains = self._problem.tree.domains[level][self._problem.positions[rows]]
        near, at = np.unique(domains, return_inverse=True)
        roomy = np.bincount(at, weights=np.minimum(stack[:, rows], PLENTY).sum(axis=0), minlength=near.size)[at]
        order = sorted(range(rows.size), key=lambda i: (len(active[i]), active[i], -roomy[i], domains[i], i))
        self._rows = [int(rows[i]) for i in order]
        self._free = [self._free[i] for i in order]
        self._active = [active[i] for i in order]

    def _suffix_bounds(
        self, slices: dict[int, Slice], capacities: dict[int, Ints]
    ) -> list[tuple[dict[int, int], list[int]]]:
        """(weights by group cell, what the rows from i on hold) for each counting bound."""
        problem = self._problem
        cell_of = dict(zip(slices, self._cells, strict=True))
        bounds: list[tuple[dict[int, int], list[int]]] = []
        for g, cell in cell_of.items():
            options = problem.groups[g].options
            held = sum((capacities[o] for o in options), np.zeros(problem.size, dtype=np.int64))
            if len(options) > 1:
                held = np.minimum(held, pod_slots(self._state.free, problem.least_request(g)))
            bounds.append(({cell: 1}, self._suffix(held)))
        for r in range(len(problem.resources)):
            least = {g: min(self._request[o][r] for o in problem.groups[g].options) for g in slices}
            for unit in sorted({size for size in least.values() if size > 0}):
                weights = {cell_of[g]: size // unit for g, size in least.items() if size >= unit}
                if len(weights) > 1:
                    bounds.append((weights, self._suffix(np.maximum(self._state.free[r] // unit, 0))))
        return bounds

    def _suffix(self, held: Ints) -> list[int]:
        sums = [0]
        for row in reversed(self._rows):
            sums.append(sums[-1] + int(held[row]))
        return sums[::-1]

    def solve(self) -> list[tuple[int, int, int]] | None:
        """Depth first over the rows with an explicit stack: there may be more rows than Python likes to recurse."""
        if self._is_done(self._start):
            return []
        if not self._may_fit(0, self._start):
            return None
        dead: set[tuple[int, tuple[int, ...]]] = set()
        stack = [(self._start, self._patterns(0, self._start))] if self._rows else []
        path: list[Pattern] = []
        while stack:
            left, patterns = stack[-1]
            at = len(stack) - 1
            pattern = next(patterns, None)
            if pattern is None:
                dead.add((at, left))
                stack.pop()
                if path:
                    path.pop()
                continue
            self._state.spend()
            after = self._after(left, pattern)
            if self._is_done(after):
                return [(o, self._rows[i], n) for i, p in enumerate([*path, pattern]) for o, n in p]
            follows = at + 1
            if follows == len(self._rows) or (follows, after) in dead or not self._may_fit(follows, after):
                continue
            path.append(pattern)
            stack.append((after, self._patterns(follows, after)))
        return None

    def _patterns(self, at: int, left: tuple[int, ...]) -> Iterator[Pattern]:
        """Maximal ways to use a row."""
        return self._extend(self._active[at], 0, list(self._free[at]), list(left), [])

    def _extend(
        self, options: tuple[int, ...], i: int, free: list[int], left: list[int], used: list[tuple[int, int]]
    ) -> Iterator[Pattern]:
        self._looks += 1
        if self._looks % LOOKS_A_STEP == 0:
            self._state.spend()
        if i == len(options):
            if not any(self._fits(o, free, left, used) for o in options):
                yield tuple(used)
            return
        o = options[i]
        asks, cells = self._asks[o], self._cells_of[o]
        most = self._most(o, free, left, used)
        for n in range(most, self._least(options, i, most, free, left) - 1, -1):
            if n:
                for r, q in asks:
                    free[r] -= q * n
                for c in cells:
                    left[c] -= n
                used.append((o, n))
            yield from self._extend(options, i + 1, free, left, used)
            if n:
                used.pop()
                for r, q in asks:
                    free[r] += q * n
                for c in cells:
                    left[c] += n

    def _least(self, options: tuple[int, ...], i: int, most: int, free: list[int], left: list[int]) -> int:
        """How many of an option a maximal pattern has at least: with fewer, one more of it would fit in the end.

        The options that follow take no more than this of each resource, so what they leave is there for it.
        """
        if most == 0:
            return 0
        o = options[i]
        cells = self._cells_of[o]
        spare = {r: free[r] for r, _ in self._asks[o]}
        for other in options[i + 1 :]:
            if (o, other) in self._rivals or any(c in cells for c in self._cells_of[other]):
                return 0  # it may shut the other out in ways that amounts do not show
            count = min(left[c] for c in self._cells_of[other])
            for r, q in self._asks[other]:
                if free[r] < count * q:
                    count = free[r] // q
            for r, q in self._asks[other]:
                if r in spare:
                    spare[r] -= count * q
        return max(0, min([most, *(spare[r] // q for r, q in self._asks[o])]))

    def _most(self, option: int, free: list[int], left: list[int], used: list[tuple[int, int]]) -> int:
        most = PLENTY
        if option in self._particular:
            conflicts = self._problem.conflicts[option]
            if any(other in conflicts for other, _ in used):
                return 0
            most = self._problem.options[option].limit - sum(n for other, n in used if other == option)
        for c in self._cells_of[option]:
            if left[c] < most:
                most = left[c]
        for r, q in self._asks[option]:
            if free[r] < most * q:
                most = free[r] // q
        return max(most, 0)

    def _fits(self, option: int, free: list[int], left: list[int], used: list[tuple[int, int]]) -> bool:
        """True if one more pod fits on the row."""
        for c in self._cells_of[option]:
            if left[c] <= 0:
                return False
        for r, q in self._asks[option]:
            if free[r] < q:
                return False
        return option not in self._particular or self._most(option, free, left, used) > 0

    def _after(self, left: tuple[int, ...], pattern: Pattern) -> tuple[int, ...]:
        rest = list(left)
        for o, n in pattern:
            for c in self._cells_of[o]:
                rest[c] -= n
        return tuple(rest)

    def _is_done(self, left: tuple[int, ...]) -> bool:
        return all(left[c] == 0 for c in self._cells)

    def _may_fit(self, at: int, left: tuple[int, ...]) -> bool:
        for weights, held in self._bounds:
            needed = 0
            for c, weight in weights:
                needed += left[c] * weight
            if needed > held[at]:
                return False
        return True
