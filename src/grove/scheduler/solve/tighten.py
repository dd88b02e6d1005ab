"""Fewer domains for a placement that was found: the exact search improves what the greedy search gave up.

Every part that prefers a level keeps to the domains it uses, and one part uses one domain less. It tries a single
domain if counting allows it, else it leaves out the domain with the fewest of its pods. So no preference gets worse
for another, and the result is better for at least one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.solve.bounds import PartCapacity, bounds_for, domain_sets
from grove.scheduler.solve.exact import Found, exact_placement
from grove.scheduler.solve.problem import Part, Problem
from grove.scheduler.solve.search_state import OutOfSteps, SearchState

TRY_STEPS, ALL_STEPS = 200, 600
"""Work allowed for one domain less, and for all of them."""
MOST_SETS = 3
"""Sets of other domains that are tried after those in use without one of them."""


def tightened(state: SearchState, steps: int) -> SearchState:
    """The placement in the state, or one that uses fewer of the domains that parts prefer to be few, more of none.

    Left as it is where pods of the gang run or ran: to be near those counts as well, and not only how few domains.
    """
    problem = state.problem
    if not problem.is_new or problem.gang.strategy != "pack" or problem.cost is not None:
        return state
    preferences = [_Preference(problem, part) for part in problem.root.preferring()]
    until = problem.steps_used + min(steps, ALL_STEPS)
    for preference in preferences:
        while (used := preference.used(state)).size > preference.fewest:
            better = _with_one_less(problem, state, preferences, preference, used, until)
            if better is None:
                break
            state = better
    return state


def _with_one_less(
    problem: Problem,
    state: SearchState,
    preferences: list[_Preference],
    preference: _Preference,
    used: Ints,
    until: int,
) -> SearchState | None:
    others = [(other, other.used(state)) for other in preferences if other is not preference]
    alone = [other.part for other, ids in others if ids.size == 1]
    held = [(other.part, other.rows_in(ids)) for other, ids in others if ids.size > 1]
    if preference.fewest == 1 and (placement := _asked(problem, held, [*alone, preference.part], until)) is not None:
        return _placed(problem, placement)
    without = (used[used != less] for less in (used if used.size > 2 else ()))
    for ids in chain(without, preference.sets_of_fewer(used.size)):
        if problem.steps_used >= until:
            break
        if (
            placement := _asked(problem, [*held, (preference.part, preference.rows_in(ids))], alone, until)
        ) is not None:
            return _placed(problem, placement)
    return None


def _asked(problem: Problem, held: list[tuple[Part, Mask]], alone: list[Part], until: int) -> Found | None:
    """A placement with these parts held to these rows, and these to one domain; None if none is found in time."""
    state = SearchState(problem, max(0, min(TRY_STEPS, until - problem.steps_used)))
    with _held(problem, held):
        try:
            return exact_placement(state, problem.root, (0, problem.size), -1, alone)
        except OutOfSteps:
            return None


@contextmanager
def _held(problem: Problem, held: list[tuple[Part, Mask]]) -> Iterator[None]:
    before = [option.mask for option in problem.options]
    for part, rows in held:
        for option in (problem.options[o] for g in part.groups for o in problem.groups[g].options):
            option.mask = rows if option.mask is None else option.mask & rows
    try:
        yield
    finally:
        for option, mask in zip(problem.options, before, strict=True):
            option.mask = mask


def _placed(problem: Problem, placement: Found) -> SearchState:
    state = SearchState(problem, 0)
    state.put_all(placement)
    return state


class _Preference:
    def __init__(self, problem: Problem, part: Part) -> None:
        self._problem, self.part = problem, part
        domains = problem.tree.domains[part.preferred_level][problem.positions]
        self._ids = np.where(domains >= 0, domains, -1 - np.arange(problem.size))
        """By row; a node outside every domain is one by itself."""
        self._capacity = PartCapacity(SearchState(problem, 1), bounds_for(problem, tuple(part.groups)), 0, problem.size)
        self.fewest = self._capacity.fewest_anywhere(part.preferred_level)
        """No placement uses fewer domains, by counting alone."""

    def used(self, state: SearchState) -> Ints:
        """Domains that the part uses, those with the fewest pods first."""
        mine = [(at, pods) for o, at, pods in state.placed if self._problem.options[o].group in self.part.groups]
        rows, pods = (np.concatenate([columns[i] for columns in mine]) for i in (0, 1))
        ids, at = np.unique(self._ids[rows], return_inverse=True)
        return ids[np.bincount(at, weights=pods).argsort(kind="stable")]

    def sets_of_fewer(self, than: int) -> Iterator[Ints]:
        """A few sets of fewer domains that have capacity for the part by every count."""
        segments = self._problem.segments(self.part.preferred_level)
        held = self._capacity.held(segments)
        fewer = (chosen for chosen in domain_sets(held, self._capacity.need) if 1 < chosen.size < than)
        return (segments.ids[chosen] for chosen in islice(fewer, MOST_SETS))

    def rows_in(self, ids: Ints) -> Mask:
        mask: Mask = np.isin(self._ids, ids)
        return mask
