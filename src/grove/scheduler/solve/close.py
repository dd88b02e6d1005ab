"""The closest placement of several: searches that differ in which group goes first, until a bound says it is the best.

Groups that each prefer a domain of their own compete for the same ones, and whoever goes first has the choice. Trying a
few orders is cheap and nearly always ends at the fewest domains possible.
"""

from __future__ import annotations

import numpy as np

from grove.scheduler.solve.problem import Part, Problem
from grove.scheduler.solve.search import Order, Run, Search, preferring_parts
from grove.scheduler.solve.state import OutOfSteps, State

ORDERS: tuple[Order, ...] = (
    lambda part, size: (-part.level, -size, -part.need),
    lambda part, size: (-part.level, -size * part.need),
    lambda part, size: (-part.level, part.need, size),
    lambda part, size: (-part.level, size * part.need),
)
"""Narrow requirements always go first; then large pods, large groups, short groups, small groups."""

_END = object()


def close_placement(problem: Problem, steps: int, most: int, *, is_known_to_fit: bool = False) -> State | None:
    """A state with the core placed, or None if none of the greedy ways works.

    `steps` is the work allowed for one order, `most` for all of them.
    If the first order fails the others mostly do too; they are tried only when it is known that there is a placement.
    """
    wishes = preferring_parts(problem.root)
    turns = ORDERS if wishes and len(problem.root.groups) > 1 else ORDERS[:1]
    everything = Run(0, problem.size, -1)
    best: State | None = None
    fewest = bound = 0
    allowed = steps // len(turns) if is_known_to_fit else steps
    until = problem.steps_used + most
    for order in turns:
        state = State(problem, min(allowed, until - problem.steps_used))
        search = Search(problem, state, order)
        try:
            placed = next(search.ways(problem.root, everything), _END) is not _END
        except OutOfSteps:
            placed = False
        state.open = None
        if not placed and best is None and not is_known_to_fit:
            return None
        if len(turns) == 1:
            return state if placed else None
        if placed:
            crossed = sum(_crossed(problem, state, part) for part in wishes)
            if best is None:
                # Measured on the free amounts before anything was placed: no order can do better.
                fresh = Search(problem, State(problem, steps), order)
                bound = sum(fresh.weigh(part, everything).fewest_anywhere(part.prefer) for part in wishes)
                # A better order should be found about as fast as the first one was; more is not worth it.
                allowed = min(steps, 50 + 2 * state.steps_used)
            if best is None or crossed < fewest:
                best, fewest = state, crossed
            if fewest <= bound:
                break
    return best


def _crossed(problem: Problem, state: State, part: Part) -> int:
    """Domains of its preferred level that the part uses; a node outside every domain counts as one."""
    groups = set(part.groups)
    rows = np.concatenate([at for o, at, _ in state.placed if problem.options[o].group in groups])
    domains = problem.tree.domains[part.prefer][problem.positions[rows]]
    return int(np.unique(domains[domains >= 0]).size + (domains < 0).sum())
