"""The search's scratch pad: free amounts of the candidate rows, what was put where, and how to take it back."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.filters.fit import PLENTY, pod_slots
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.solve.bounds import Bound
from grove.scheduler.solve.problem import Problem

ROWS_A_STEP = 1024
"""A pass over this many rows costs about as much as the Python around it."""


class OutOfSteps(Exception):
    """The work budget has ended; what was not tried is unknown."""


class TakesLong(Exception):
    """The decision takes more steps than its caller allows on the event loop. Nothing is decided."""


class _ThreadLimit(threading.local):
    steps: float = float("inf")


_limit = _ThreadLimit()


@contextmanager
def limited_steps(steps: int) -> Iterator[None]:
    """Decisions inside, in this thread, end with TakesLong after this many steps in total, whatever their budgets."""
    _limit.steps = steps
    try:
        yield
    finally:
        _limit.steps = float("inf")


def raise_if_limited() -> None:
    """Before something that takes seconds and no steps: raises TakesLong if the caller runs on the event loop."""
    if _limit.steps < float("inf"):
        raise TakesLong


class SearchState:
    def __init__(self, problem: Problem, steps: int) -> None:
        self.problem = problem
        self.free = problem.free.copy()
        self.open: Mask | None = None
        """Rows that may be used just now; None for all."""
        self.placed: list[tuple[int, Ints, Ints]] = []
        """(option, candidate rows, pods on each), in the order they were put."""
        self.taken = [[0] * len(group.classes) for group in problem.groups]
        """Pods placed, by group and class."""
        self._given = self.steps_left = steps
        self._tracked = any(problem.conflicts) or any(o.limit < PLENTY for o in problem.options)
        self._used: Ints = np.zeros((len(problem.options), problem.size if self._tracked else 0), dtype=np.int64)

    @property
    def steps_used(self) -> int:
        return self._given - self.steps_left

    def spend(self, rows: int = 0) -> None:
        steps = 1 + rows // ROWS_A_STEP
        self.problem.steps_used += min(steps, self.steps_left)
        self.steps_left -= steps
        _limit.steps -= steps
        if _limit.steps < 0:
            raise TakesLong
        if self.steps_left < 0:
            raise OutOfSteps

    @contextmanager
    def allowed(self, steps: int) -> Iterator[None]:
        """Work inside may take this number of the steps that are left. More raises OutOfSteps."""
        before = self.steps_left
        given = self.steps_left = min(before, steps)
        try:
            yield
        finally:
            self.steps_left = before - (given - max(self.steps_left, 0))

    def put_all(self, placement: list[tuple[int, int, int]]) -> None:
        """Puts (option, row, pods) as the exact search gives them."""
        for option, row, pods in placement:
            self.put(option, np.array([row]), np.array([pods]))

    def pod_slots(self, option: int, low: int, high: int) -> Ints:
        """How many more pods of the option each row of the run can take now."""
        o = self.problem.options[option]
        slots = pod_slots(self.free[:, low:high], o.request)
        if o.mask is not None:
            slots *= o.mask[low:high]
        if self.open is not None:
            slots *= self.open[low:high]
        if self._tracked:
            if o.limit < PLENTY:
                np.minimum(slots, o.limit - self._used[option, low:high], out=slots)
            for other in self.problem.conflicts[option]:
                slots *= self._used[other, low:high] == 0
        return slots

    def capacities(self, bounds: list[Bound], low: int, high: int) -> Ints:
        """The capacity of each row, in the measure of each bound."""
        capacities = np.zeros((len(bounds), high - low), dtype=np.int64)
        for i, bound in enumerate(bounds):
            if bound.resource < 0:
                for option in bound.options:
                    capacities[i] += self.pod_slots(option, low, high)
                if bound.least is not None:
                    np.minimum(capacities[i], pod_slots(self.free[:, low:high], bound.least), out=capacities[i])
                continue
            units = np.maximum(self.free[bound.resource, low:high] // bound.unit, 0)
            if bound.mask is not None:
                units *= bound.mask[low:high]
            if self.open is not None:
                units *= self.open[low:high]
            capacities[i] = units
        return capacities

    def put(self, option: int, at: Ints, pods: Ints) -> None:
        o = self.problem.options[option]
        self.free[:, at] -= o.request[:, None] * pods
        self.taken[o.group][o.kind] += int(pods.sum())
        if self._tracked:
            self._used[option, at] += pods
        self.placed.append((option, at, pods))

    def take_back(self, length: int) -> None:
        """Undoes everything put after `placed` had this length."""
        while len(self.placed) > length:
            option, at, pods = self.placed.pop()
            o = self.problem.options[option]
            self.free[:, at] += o.request[:, None] * pods
            self.taken[o.group][o.kind] -= int(pods.sum())
            if self._tracked:
                self._used[option, at] -= pods

    def positions_of(self, groups: Collection[int]) -> Ints:
        """Positions, in the tree's order, of the rows where pods of these groups were put."""
        problem = self.problem
        positions = [at for option, at, _ in self.placed if problem.options[option].group in groups]
        return problem.positions[np.concatenate(positions)] if positions else problem.positions[:0]

    def pods_at(self, groups: Collection[int]) -> Ints:
        """The same for all pods of these groups: those that run already, and those that were put."""
        running = (self.problem.groups[g].pods_at for g in groups)
        return np.concatenate([self.positions_of(groups), *(at for at in running if at is not None)])

    def earlier_nodes_left(self, group: int) -> dict[int, int]:
        """Rows that pods of the group left, and how many of these places none of its pods has taken again."""
        left = dict(self.problem.groups[group].earlier_nodes)
        for option, at, pods in self.placed if left else ():
            if self.problem.options[option].group == group:
                for row, n in zip(at.tolist(), pods.tolist(), strict=True):
                    left[row] = left.get(row, 0) - n
        return {row: earlier_nodes for row, earlier_nodes in sorted(left.items()) if earlier_nodes > 0}

    def pods(self) -> list[PodFacts]:
        """Pods with their nodes, in the order they were put: of each class the first ones, on nodes in their order."""
        problem = self.problem
        following = [[iter(pods) for pods in group.classes] for group in problem.groups]
        placed: list[PodFacts] = []
        for option, at, pods in self.placed:
            o = problem.options[option]
            source = following[o.group][o.kind]
            for node, count in zip(problem.snapshot.nodes.names(problem.rows[at]), pods, strict=True):
                placed += [problem.as_chosen(next(source), option).on(node) for _ in range(int(count))]
        return placed

    def domain_signature(self, low: int, high: int, level: int, levels: list[int]) -> tuple[object, ...]:
        """Equal for domains of a level that are interchangeable for a gang with constraints on these levels.

        They hold the same amounts in the same inner domains and lie in the same outer ones. Two equal hosts are not
        interchangeable if one is in a rack that another gang could use whole.
        """
        problem = self.problem
        inner, outer = [], []
        for other in levels:
            if other > level:
                inner.append((problem.segments(other).inside(low, high).starts - low).tobytes())
            elif other < level:
                outer.append(int(problem.tree.domains[other][problem.positions[low]]))
        return (self.signature(low, high), *inner, *outer)

    def signature(self, low: int, high: int) -> bytes:
        """Equal for runs of rows that are the same for every pod of this gang."""
        parts = [self.free[:, low:high].tobytes()]
        parts += [o.mask[low:high].tobytes() for o in self.problem.options if o.mask is not None]
        parts += [o.suitability[low:high].tobytes() for o in self.problem.options if o.suitability is not None]
        if self.open is not None:
            parts.append(self.open[low:high].tobytes())
        if self._tracked:
            parts.append(self._used[:, low:high].tobytes())
        return b"|".join(parts)
