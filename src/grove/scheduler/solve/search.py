"""The search for a good placement: choose domains part by part, tightest first, fill, and come back when siblings fail.

`ways(part, run)` puts the part somewhere in the run and yields; asked again, it takes that back and tries the next way.
So siblings backtrack over each other without anyone keeping a list. Runs that look alike are tried once. Filling a run
is greedy, so failing here proves nothing: `exact` has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask, running_sum
from grove.scheduler.solve.bounds import BoundsOf, PartCapacity, domain_sets, headroom_sums, suitability
from grove.scheduler.solve.exact import exact_placement
from grove.scheduler.solve.fill import fill_group
from grove.scheduler.solve.problem import Part, Segments
from grove.scheduler.solve.search_state import ROWS_A_STEP, OutOfSteps, SearchState

MOST_SCOPES = 8
"""How many ways to honour a preference are tried before it is given up."""
SCOPE_STEPS = 3
"""What it costs, passes over rows aside, to compare the domains of a level or to compose sets of them by a bound."""
EXACT_STEPS = 120
"""Work allowed for packing one small set of domains exactly where the greedy way failed."""

Order: TypeAlias = Callable[[Part, float], tuple[float, ...]]
"""Sorts siblings; it is given the size of a part's largest pod."""


@dataclass(frozen=True, slots=True)
class DomainRun:
    """A contiguous stretch of candidate rows, and the level it is one domain of (-1: the whole cluster)."""

    low: int
    high: int
    level: int


class Search:
    def __init__(self, state: SearchState, order: Order) -> None:
        problem = state.problem
        self._problem, self._state, self._order = problem, state, order
        self._bounds_of = BoundsOf(problem)
        parts = list(problem.root.walk())
        self._pinned = any(part.pinned_domains is not None for part in parts)
        self._levels = sorted({level for part in parts for level in (part.required_level, part.preferred_level)} - {-1})
        self._headroom = headroom_sums(problem)
        self._has_scores = any(option.suitability is not None for option in problem.options)

    def ways(self, part: Part, run: DomainRun) -> Iterator[None]:
        """Each yield leaves the part placed inside the run; the next step undoes it."""
        if part.need == 0:
            yield
        elif part.required_level > run.level:
            for inner in self._domains(part, run):
                yield from self._inside(part, inner)
        elif part.required_level < 0 or self._is_inside(part, run):
            yield from self._inside(part, run)

    def capacity(self, part: Part, run: DomainRun) -> PartCapacity:
        self._state.spend(run.high - run.low)
        return PartCapacity(self._state, self._bounds_of[tuple(part.groups)], run.low, run.high)

    def _is_inside(self, part: Part, run: DomainRun) -> bool:
        """True if a run narrower than the part's level lies in an allowed domain of that level."""
        domain = int(self._problem.tree.domains[part.required_level][self._problem.positions[run.low]])
        return domain >= 0 and (part.pinned_domains is None or domain in part.pinned_domains)

    def _domains(self, part: Part, run: DomainRun) -> Iterator[DomainRun]:
        """Domains at the part's required level that could hold it, best first."""
        domains = self._problem.segments(part.required_level).inside(run.low, run.high)
        if domains.size == 0:
            return
        capacity = self.capacity(part, run)
        held = capacity.held(domains)
        chosen = capacity.fitting(held)
        if part.pinned_domains is not None:
            chosen = chosen[np.isin(domains.ids[chosen], sorted(part.pinned_domains))]
        if chosen.size > 1:
            chosen = chosen[self._ranking(part, run, capacity, held[:, chosen], domains.only(chosen))]
        tried: set[object] = set()
        for low, high in zip(domains.starts[chosen].tolist(), domains.ends[chosen].tolist(), strict=True):
            if chosen.size > 1 and not self._pinned:
                signature = self._state.domain_signature(low, high, part.required_level, self._levels)
                if signature in tried:
                    continue
                tried.add(signature)
            yield DomainRun(low, high, part.required_level)

    def _ranking(self, part: Part, run: DomainRun, capacity: PartCapacity, held: Ints, domains: Segments) -> Ints:
        """Cheapest to empty (preemption), where it was before, fewest preferred domains, capacity for later pods, best
        score, tightest."""
        scarce = capacity.scarce(held)
        keys: list[Ints] = [held[scarce]]
        if self._has_scores:
            keys.append(-self._suitability(part, run, domains))
        if part is self._problem.root and self._headroom:
            keys.append(self._lacks_headroom(domains))
        if (missing := self._surplus_missing(part, run, domains)) is not None:
            keys.append(missing)
        crossed = np.zeros(domains.size, dtype=np.int64)
        for inner in part.preferring():
            if inner.preferred_level > part.required_level:
                scale = capacity if inner is part else self.capacity(inner, run)
                crossed += scale.fewest(inner.preferred_level, domains)
        keys.append(crossed)
        if part.pods_at is not None and part.pinned_domains is None:
            kept = np.isin(domains.ids, self._problem.tree.domains[part.required_level][part.pods_at])
            keys.append(-kept.astype(np.int64))
        if self._problem.cost is not None:
            keys.append(capacity.costs(scarce, domains))
        return np.lexsort(keys)

    def _suitability(self, part: Part, run: DomainRun, domains: Segments) -> Ints:
        self._state.spend(len(part.groups) * (run.high - run.low))
        return suitability(self._state, part.groups, run.low, run.high, domains)

    def _surplus_missing(self, part: Part, run: DomainRun, domains: Segments) -> Ints | None:
        """How many of the part's pods above the minimum do not fit in each of these domains; None if there are none."""
        problem, missing = self._problem, None
        for g in part.groups:
            group = problem.groups[g]
            if group.pending > group.need:
                capacities = [self._state.pod_slots(o, run.low, run.high) for o in group.options]
                held = running_sum(np.sum(capacities, axis=0))
                free_slots = held[domains.ends - run.low] - held[domains.starts - run.low]
                lacks = np.maximum(group.pending - free_slots, 0)
                missing = lacks if missing is None else missing + lacks
        return missing

    def _lacks_headroom(self, domains: Segments) -> Ints:
        """0 where the gang and those expected to join it have capacity by plain sums, else 1."""
        lacks = np.zeros(domains.size, dtype=np.int64)
        for resource, need in self._headroom:
            held = running_sum(np.maximum(self._state.free[resource], 0))
            lacks |= held[domains.ends] - held[domains.starts] < need
        return lacks

    def _inside(self, part: Part, run: DomainRun) -> Iterator[None]:
        """Ways to place the part in the run, first those that honour its preferred level."""
        if self._problem.gang.strategy == "pack" and self._problem.cost is None:
            if part.pods_at is not None:
                yield from self._near_own_pods(part, run, part.pods_at)
            if part.preferred_level > run.level:
                yield from self._preferring(part, run)
            elif sum(child.need > 0 for child in part.children) > 1:
                yield from self._together(part, run)
        yield from self._settled(part, run)

    def _near_own_pods(self, part: Part, run: DomainRun, pods_at: Ints) -> Iterator[None]:
        """Ways beside the part's own pods: in the domains they are in, else with few others, as near as can be.

        Measured at the level it prefers or, without a preference, at the narrowest above the host.
        """
        problem, tree = self._problem, self._problem.tree
        level = part.preferred_level if part.preferred_level > run.level else tree.host_level - 1
        if level <= run.level:
            return
        domains = problem.segments(level).inside(run.low, run.high)
        own = np.isin(domains.ids, tree.domains[level][pods_at])
        capacity = self.capacity(part, run)
        if not part.has_running_pods and capacity.is_scattered(pods_at, level):
            return
        held = capacity.held(domains)
        missing = capacity.need - held[:, own].sum(axis=1)
        if (missing <= 0).all():
            yield from self._in_domains(part, self._around(run, level, domains.only(own)), domains.only(own))
            missing = np.minimum(capacity.need, 1)  # there is capacity by every count, and one more domain may help
        here = problem.positions[run.low : run.high]
        for outer in range(level - 1, run.level - 1, -1):
            around = np.zeros(problem.size, dtype=np.bool_)
            around[run.low : run.high] = outer == run.level or np.isin(
                tree.domains[outer][here], tree.domains[outer][pods_at]
            )
            others = (~own & around[domains.starts]).nonzero()[0]
            if (held[:, others].sum(axis=1) >= missing).all():
                self._state.spend(SCOPE_STEPS * capacity.need.size * ROWS_A_STEP)
                for chosen in domain_sets(held[:, others], np.maximum(missing, 0)):
                    both = domains.only(np.union1d(own.nonzero()[0], others[chosen]))
                    yield from self._in_domains(part, self._around(run, level, both), both)
            elif outer > run.level and (tree.domains[level][here][around[run.low : run.high]] < 0).any():
                yield from self._opened(part, run, around)  # with nodes that are near and in no such domain

    def _in_domains(self, part: Part, run: DomainRun, domains: Segments) -> Iterator[None]:
        """Ways that use these domains inside the run only."""
        rows = np.zeros(self._problem.size, dtype=np.bool_)
        for low, high in zip(domains.starts.tolist(), domains.ends.tolist(), strict=True):
            rows[low:high] = True
        return self._opened(part, run, rows)

    def _around(self, run: DomainRun, level: int, domains: Segments) -> DomainRun:
        """The narrowest domain, of this level or a broader one, that has all of these; the run itself if none has."""
        low, high = int(domains.starts.min()), int(domains.ends.max())
        for outer in range(level, run.level, -1):
            segments = self._problem.segments(outer)
            at = int(segments.starts.searchsorted(low, side="right")) - 1
            if at >= 0 and segments.ends[at] >= high:
                return DomainRun(int(segments.starts[at]), int(segments.ends[at]), outer)
        return run

    def _settled(self, part: Part, run: DomainRun) -> Iterator[None]:
        """Ways to put the pods on nodes of the run: one greedy way for a group, the children's ways for a branch."""
        if part.children:
            yield from self._children(self._ordered(part), 0, run)
            return
        mark = len(self._state.placed)
        if fill_group(self._state, part.groups[0], part.need, run.low, run.high, run.level) == part.need:
            yield
        self._state.take_back(mark)

    def _children(self, children: list[Part], at: int, run: DomainRun) -> Iterator[None]:
        if at == len(children):
            yield
            return
        for _ in self.ways(children[at], run):
            yield from self._children(children, at + 1, run)

    def _ordered(self, part: Part) -> list[Part]:
        needing = [child for child in part.children if child.need > 0]
        if len(needing) > 1:
            needing.sort(key=lambda child: self._order(child, self._size(child)))
        return needing

    def _size(self, part: Part) -> float:
        """The largest share of any resource that one pod of the part takes of the largest node."""
        problem = self._problem
        most = np.maximum(problem.free.max(axis=1), 1)
        options = [problem.options[o].request for g in part.groups for o in problem.groups[g].options]
        return max((float((request / most).max()) for request in options), default=0.0)

    def _together(self, part: Part, run: DomainRun) -> Iterator[None]:
        """Without a stated preference: in one domain, as narrow as can be, one that is broken already if possible."""
        for level in range(self._problem.tree.host_level - 1, run.level, -1):
            for inner in islice(self._single_domains(part, run, level), 2):
                yield from self._settled(part, inner)

    def _single_domains(self, part: Part, run: DomainRun, level: int) -> Iterator[DomainRun]:
        domains = self._problem.segments(level).inside(run.low, run.high)
        if domains.size == 0:
            return
        capacity = self.capacity(part, run)
        held = capacity.held(domains)
        fits = capacity.fitting(held)
        scarce = capacity.scarce(held)
        option = self._problem.groups[capacity.bounds[scarce].groups[0]].options[0]
        domains = domains.only(fits)
        free = running_sum(self._state.pod_slots(option, run.low, run.high))
        now = free[domains.ends - run.low] - free[domains.starts - run.low]
        whole = self._problem.idle_in(option, level, domains) <= now
        keys = [held[scarce, fits], whole]
        if self._has_scores:
            keys.append(-self._suitability(part, run, domains))
        for i in np.lexsort(keys):
            yield DomainRun(int(domains.starts[i]), int(domains.ends[i]), level)

    def _preferring(self, part: Part, run: DomainRun) -> Iterator[None]:
        """Ways that cross few domains of the preferred level: in one if possible, else in a small set of them."""
        capacity = self.capacity(part, run)
        for scope in self._scopes(part, run, capacity):
            if scope.level == part.preferred_level:
                yield from self._packed(part, scope)
                continue
            domains = self._problem.segments(part.preferred_level).inside(scope.low, scope.high)
            self._state.spend(SCOPE_STEPS * capacity.need.size * ROWS_A_STEP)
            for chosen in domain_sets(capacity.held(domains), capacity.need):
                yield from self._in_domains(part, scope, domains.only(chosen))

    def _scopes(self, part: Part, run: DomainRun, capacity: PartCapacity) -> list[DomainRun]:
        """Domains of all levels down to the preferred one, those first in which fewest preferred domains are needed.

        Among equals the narrower level goes first, then the domain in which the parts inside cross fewer domains that
        they prefer. Then the one that is liked better, then the tighter one.
        """
        scopes: list[tuple[int, int, int, int, int, int, int]] = []
        inner_parts = [inner for inner in part.preferring() if inner.preferred_level > part.preferred_level]
        inner_capacities = [self.capacity(inner, run) for inner in inner_parts]
        self._state.spend(SCOPE_STEPS * (part.preferred_level - run.level) * ROWS_A_STEP)
        for level in range(part.preferred_level, run.level - 1, -1):
            domains = self._problem.segments(level).inside(run.low, run.high)
            held = capacity.held(domains)
            fits = capacity.fitting(held)
            if fits.size == 0:
                continue
            free_slots = held[capacity.scarce(held), fits]
            domains = domains.only(fits)
            fewest = capacity.fewest(part.preferred_level, domains)
            crossed = np.zeros_like(fewest)
            for inner, inner_capacity in zip(inner_parts, inner_capacities, strict=True):
                crossed += inner_capacity.fewest(inner.preferred_level, domains)
            disliked = -self._suitability(part, run, domains) if self._has_scores else np.zeros_like(fewest)
            scopes += [
                (
                    int(fewest[i]),
                    -level,
                    int(crossed[i]),
                    int(disliked[i]),
                    int(free_slots[i]),
                    int(domains.starts[i]),
                    int(domains.ends[i]),
                )
                for i in np.lexsort((free_slots, disliked, crossed, fewest))[:MOST_SCOPES]
            ]
        return [DomainRun(low, high, -level) for _, level, _, _, _, low, high in sorted(scopes)[:MOST_SCOPES]]

    def _opened(self, part: Part, run: DomainRun, rows: Mask) -> Iterator[None]:
        """Ways inside the run that use these rows only; the limit does not outlive the part's own turn."""
        state = self._state
        outer = state.open
        inner = rows if outer is None else rows & outer
        state.open = inner
        for _ in self._packed(part, run):
            state.open = outer
            yield
            state.open = inner
        state.open = outer

    def _packed(self, part: Part, run: DomainRun) -> Iterator[None]:
        """Ways to settle in a run that has capacity by every count; exactly, if the greedy ways find none."""
        has_settled = False
        for _ in self._settled(part, run):
            has_settled = True
            yield
        broader = (inner for inner in part.walk() if 0 <= inner.required_level <= run.level and inner.need > 0)
        if has_settled or len(part.groups) < 2 or not all(self._is_inside(inner, run) for inner in broader):
            return
        state = self._state
        mark = len(state.placed)
        try:
            with state.allowed(EXACT_STEPS):
                exact = exact_placement(state, part, (run.low, run.high), run.level)
        except OutOfSteps:
            exact = None
        if exact is not None:
            state.put_all(exact)
            yield
            state.take_back(mark)
