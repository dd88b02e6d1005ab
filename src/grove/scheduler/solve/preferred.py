"""A part's preference for few domains of a level: as keys by which rows are sorted, the weightier later."""

from __future__ import annotations

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.filters.fit import PLENTY
from grove.scheduler.filters.pod_relations import sums_by_domain
from grove.scheduler.solve.bounds import PartCapacity, bounds_for
from grove.scheduler.solve.problem import Part
from grove.scheduler.solve.search_state import SearchState


class PreferredLevel:
    def __init__(self, state: SearchState, part: Part, level: int) -> None:
        problem, self.part = state.problem, part
        self._tree, self._level = problem.tree, level
        self._domains = problem.tree.domains[level]
        self._row_domains = self._domains[problem.positions]
        segments = problem.segments(level)
        capacity = PartCapacity(state, bounds_for(problem, tuple(part.groups)), 0, problem.size)
        held = capacity.held(segments)
        self._enough = segments.ids[capacity.fitting(held)] if capacity.need.size else segments.ids[:0]
        self.fewest = capacity.fewest_anywhere(level) if capacity.need.size else 0
        """No placement uses fewer domains, by counting alone."""

    def crossed(self, used: Ints) -> int:
        """Domains of the level that these positions are in."""
        return self._tree.crossed(self._level, used)

    def is_used(self, used: Ints) -> Mask:
        """Candidate rows in the domains of these positions."""
        mask: Mask = (self._row_domains >= 0) & np.isin(self._row_domains, self._domains[used])
        return mask

    def keys(self, rows: Ints, slots: Ints, left: int, used: Ints) -> list[Ints]:
        """Rows of domains in use come first, then of the tightest that holds all that is left, then of the roomiest."""
        domains = self._row_domains
        here = domains[rows]
        free_slots = sums_by_domain(domains, np.minimum(slots, left), int(domains.max(initial=0)) + 1)[here]
        enough = (free_slots >= left) & (here >= 0)
        if used.size == 0:
            enough &= np.isin(here, self._enough)
        is_used = (here >= 0) & np.isin(here, self._domains[used])
        whole_capacity = sums_by_domain(domains, np.minimum(slots, PLENTY), int(domains.max(initial=0)) + 1)[here]
        tight = np.where(is_used, 0, np.where(enough, whole_capacity, -free_slots))
        rank = np.where(is_used, 0, np.where(enough, 1, np.where(here >= 0, 2, 3)))
        return [tight, rank]
