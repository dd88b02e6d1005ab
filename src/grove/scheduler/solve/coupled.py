"""Gangs whose pods depend on each other: placed pod by pod on a copy of the snapshot, with backtracking.

Examples are affinity among the gang's own pods, spread over zones, and anti-affinity wider than a host. Each placed pod
changes where the next may go, in the order of binding. The masks of single pods have the same rules. The search is
slower than the class-wise one, complete within its budget, and used only when needed. If it takes too many detours,
`tally` first decides how many pods go where, and then only the order is left to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.filters.pod_relations import (
    affinity_mask,
    anti_affinity_mask,
    pods_by_domain,
    roomy,
    spread_mask,
    sums_by_domain,
)
from grove.scheduler.model.facts import PodFacts, PodScope
from grove.scheduler.solve.bind_order import BindOrdering
from grove.scheduler.solve.preferred import PreferredLevel
from grove.scheduler.solve.problem import Part
from grove.scheduler.solve.search_state import ROWS_A_STEP, OutOfSteps, SearchState
from grove.scheduler.solve.tally import Counter

LOOK_STEPS = 5
"""What it costs in steps, the pass over rows aside, to see where one pod may go: a dozen masks by label values."""

DIRECT_SHARE = 8
"""One in this number of steps goes to the pods one by one before they are counted."""

CLOSER_STEPS, CLOSER_STEPS_A_POD = 200, 40
"""Work allowed for one try to do with one domain fewer: a few times what placing without any detour takes."""


class Coupled:
    """`most` limits how many domains of its level each preference may use, by its place among `preferences`."""

    def __init__(self, state: SearchState, most: Mapping[int, int] = {}) -> None:
        problem = state.problem
        self._problem, self.state, self._most = problem, state, most
        self._scratch = problem.snapshot.copy()
        self._parts = list(problem.root.walk())
        levelled = [(i, part) for i, part in enumerate(self._parts) if part.required_level >= 0]
        self._chains = {g: [i for i, part in levelled if g in part.groups] for g in problem.root.groups}
        """By group: parts with a requirement from the root down to it."""
        self._domain: dict[int, list[int]] = {}
        """By part: domains chosen, one entry a pod below it."""
        self._left = [group.need for group in problem.groups]
        self._next = [[0] * len(group.classes) for group in problem.groups]
        self._order: list[PodFacts] = []
        """Pods in the order they were placed: that of the state's `placed`."""
        self._firsts = [[pods[0] for pods in group.classes] for group in problem.groups]
        self._mingled = self._look_at_each_other()
        """Whether pods of one group follow, or are spread with, those of another, so that turns matter."""
        self.preferences = self._stated_preferences()

    def _stated_preferences(self) -> list[PreferredLevel]:
        """Parts that prefer a level; if none does, the whole would be together in the narrowest above the host."""
        problem = self._problem
        if problem.gang.strategy != "pack":
            return []
        narrowest = problem.tree.host_level - 1
        stated = [(part, part.preferred_level) for part in problem.root.preferring()]
        return [
            PreferredLevel(self.state, *preference)
            for preference in stated or [(problem.root, narrowest)]
            if preference[1] > preference[0].required_level
        ]

    def _look_at_each_other(self) -> bool:
        matches = self._scratch.counts.matches
        return any(
            g != other and matches(scope, pod)
            for g, own in enumerate(self._firsts)
            for first in own
            for scope in _scopes(first)
            for other, pods in enumerate(self._firsts)
            for pod in pods
        )

    def solve(self) -> bool:
        """Places the core; False if no order and no choice of nodes works. May raise OutOfSteps."""
        dead: set[tuple[tuple[int, int], ...]] = set()
        """What was placed when nothing more could be: the same pods on the same nodes, in whatever order."""
        stack: list[Iterator[None]] = [self._ways()]
        while stack:
            if next(stack[-1], _END) is _END:
                stack.pop()
                dead.add(self._chosen())
            elif not any(self._left):
                return True
            elif not dead or self._chosen() not in dead:
                stack.append(self._ways())
        return False

    def put_all(self, order: Iterable[tuple[int, int]]) -> None:
        """Puts pods of these options on these rows, in an order that is known to be one."""
        problem = self._problem
        for option, row in order:
            group, kind = problem.options[option].group, problem.options[option].kind
            self._put(problem.groups[group].classes[kind][self._next[group][kind]], option, row, group, kind)

    def _chosen(self) -> tuple[tuple[int, int], ...]:
        """(option, candidate row) of each pod, whatever the order."""
        return tuple(sorted((option, int(at[0])) for option, at, _ in self.state.placed))

    def add_surplus(self, group: int) -> bool:
        """Places one more pod of a group if there is a node for it."""
        self._left[group] += 1
        placed = next(self._place_one(group), _END) is not _END
        if not placed:
            self._left[group] -= 1
        return placed

    def pods(self) -> list[PodFacts]:
        """Pods with their nodes, in the order they may be bound."""
        problem = self._problem
        placed = [(option, int(problem.rows[at[0]])) for option, at, _ in self.state.placed]
        nodes = problem.snapshot.nodes.names(row for _, row in placed)
        return [
            problem.as_chosen(pod, option).on(node)
            for pod, (option, _), node in zip(self._order, placed, nodes, strict=True)
        ]

    def _ways(self) -> Iterator[None]:
        """Ways to place one more pod; which group goes next matters, because the first of a series sets the place."""
        waiting = [group for group, left in enumerate(self._left) if left > 0]
        # Groups that do not look at each other need no taking turns: one after the other loses nothing.
        for group in waiting if self._mingled else waiting[:1]:
            yield from self._place_one(group)

    def _place_one(self, group: int) -> Iterator[None]:
        problem = self._problem
        entry = problem.groups[group]
        for option in entry.options:
            kind = problem.options[option].kind
            at = self._next[group][kind]
            if at >= len(entry.classes[kind]):
                continue
            pod = entry.classes[kind][at]
            tried: set[tuple[object, ...]] = set()
            for row in self._rows(option, pod, group):
                signature = self._signature(int(row))
                if signature in tried:
                    continue
                tried.add(signature)
                self.state.spend()
                self._put(pod, option, int(row), group, kind)
                yield
                self._take_back(pod, group, kind)

    def _rows(self, option: int, pod: PodFacts, group: int) -> Ints:
        """Candidate rows for the pod: former nodes, few preferred domains, best score, near placed pods, fullest."""
        problem = self._problem
        self.state.spend(problem.size + LOOK_STEPS * ROWS_A_STEP)
        slots = self.state.pod_slots(option, 0, problem.size)
        alike = len(problem.groups[group].options) == 1
        mask = self._neighbours(pod)[problem.rows] & (slots > 0)
        for i in self._chains[group]:
            part = self._parts[i]
            domains = problem.tree.domains[part.required_level][problem.positions]
            mask &= domains >= 0
            if self._domain.get(i):
                mask &= domains == self._domain[i][0]
            elif part.pinned_domains is not None:
                mask &= np.isin(domains, sorted(part.pinned_domains))
            elif alike:
                mask &= roomy(domains, slots, self._left[group])
        if alike and not self._mingled and len(pod.shape.affinity) == 1:
            term = pod.shape.affinity[0]
            if not pods_by_domain(self._scratch, term.topology_key, term.scope).any():
                # The first of a series decides for the others: only where all of them have capacity.
                ids = self._scratch.nodes.column(term.topology_key).ids[problem.rows]
                mask &= roomy(ids, slots, self._left[group])
        for i, most in self._most.items():
            if group in self.preferences[i].part.groups and self.crossed(i) >= most:
                mask &= self.preferences[i].is_used(self._used_by(self.preferences[i].part))
        rows = np.flatnonzero(mask)
        near = np.zeros(rows.size, dtype=np.int64)
        used = self._used_by(problem.root)
        for domains in problem.tree.domains[:-1] if used.size else ():
            near -= np.isin(domains[problem.positions[rows]], domains[used])
        suitability = problem.options[option].suitability
        tight = slots[rows] if problem.gang.strategy == "pack" else -slots[rows]
        keys = [tight, near]
        if suitability is not None:
            keys.append(-suitability[rows])
        keys += self._capacity_for_all(group, slots, rows)
        for preference in reversed([preference for preference in self.preferences if group in preference.part.groups]):
            keys += preference.keys(rows, slots, self._left[group], self._used_by(preference.part))
        if earlier_nodes := self.state.earlier_nodes_left(group):
            keys.append(-np.isin(rows, list(earlier_nodes)).astype(np.int64))
        return rows[np.lexsort(keys)]

    def _capacity_for_all(self, group: int, slots: Ints, rows: Ints) -> list[Ints]:
        """Where a domain is yet to be chosen for good: those first that hold most of the pods above the minimum too."""
        problem = self._problem
        wanted = problem.groups[group].pending - sum(self.state.taken[group])
        keys = []
        for i in self._chains[group] if wanted > self._left[group] else ():
            if not self._domain.get(i):
                domains = problem.tree.domains[self._parts[i].required_level][problem.positions]
                capacity = sums_by_domain(domains, np.minimum(slots, wanted), int(domains.max(initial=0)) + 1)
                keys.append(-np.minimum(capacity, wanted)[domains[rows]])
        return keys

    def crossed(self, preference: int) -> int:
        """Domains that a preference's part uses so far."""
        return self.preferences[preference].crossed(self._used_by(self.preferences[preference].part))

    def _used_by(self, part: Part) -> Ints:
        """Positions, in the tree's order, of nodes where pods of the part are."""
        placed = self.state.positions_of(part.groups)
        return placed if part.pods_at is None else np.concatenate([placed, part.pods_at])

    def _neighbours(self, pod: PodFacts) -> Mask:
        snapshot = self._scratch
        mask = anti_affinity_mask(snapshot, pod)
        if pod.shape.affinity:
            mask = mask & affinity_mask(snapshot, pod)
        if pod.shape.spread:
            mask = mask & spread_mask(snapshot, pod)
        return mask

    def _signature(self, row: int) -> tuple[object, ...]:
        """Rows that look alike lead to alike results: same capacity, same labels that any term or level looks at."""
        problem = self._problem
        table, at = problem.snapshot.nodes, int(problem.rows[row])
        keys = {t.topology_key for o in problem.options for t in (*o.shape.affinity, *o.shape.anti_affinity)}
        keys |= {s.topology_key for o in problem.options for s in o.shape.spread}
        keys |= {t.topology_key for t in self._scratch.counts.standing_terms()}
        labels = tuple(int(table.column(key).ids[at]) for key in sorted(keys))
        position = problem.tree.position[at]
        domains = tuple(int(problem.tree.domains[level][position]) for level in range(problem.tree.host_level))
        return (self.state.signature(row, row + 1), labels, domains)

    def _put(self, pod: PodFacts, option: int, row: int, group: int, kind: int) -> None:
        problem = self._problem
        at = int(problem.rows[row])
        self.state.put(option, np.array([row]), np.array([1]))
        self._scratch.add_pod(pod.on(problem.snapshot.nodes.names([at])[0]))
        for i in self._chains[group]:
            domain = problem.tree.domain_of(at, self._parts[i].required_level)
            self._domain.setdefault(i, []).append(domain)
        self._left[group] -= 1
        self._next[group][kind] += 1
        self._order.append(pod)

    def _take_back(self, pod: PodFacts, group: int, kind: int) -> None:
        self.state.take_back(len(self.state.placed) - 1)
        self._scratch.remove_pod(pod.uid)
        for i in self._chains[group]:
            self._domain[i].pop()
        self._left[group] += 1
        self._next[group][kind] -= 1
        self._order.pop()


def placed_in_some_order(state: SearchState) -> Coupled | None:
    """The core placed; None if no order and no choice of nodes works. May raise OutOfSteps.

    Pod by pod first, which keeps them close together. A gang that is hard to place is counted before it is ordered.
    """
    counter = Counter(state)
    if not counter.close_in(counter.start()):
        return None
    direct = Coupled(state)
    try:
        with state.allowed(state.steps_left // DIRECT_SHARE):
            return direct if direct.solve() else None
    except OutOfSteps:
        state.take_back(0)
    for tally in counter.tallies():
        ordering = BindOrdering(state, counter.rules, tally.put)
        if ordering.solve():
            counted = Coupled(state)
            counted.put_all(ordering.order)
            return counted
    return None


def closer(coupled: Coupled, steps: int) -> Coupled:
    """The placement, or one that uses fewer of the domains that its parts prefer to be few, as far as steps go."""
    most: dict[int, int] = {}
    for i, preference in enumerate(coupled.preferences):
        while coupled.crossed(i) > preference.fewest and steps > 0:
            state = SearchState(
                coupled.state.problem, min(steps, CLOSER_STEPS + CLOSER_STEPS_A_POD * len(coupled.state.placed))
            )
            fewer = Coupled(state, {**most, i: coupled.crossed(i) - 1})
            try:
                is_solved = fewer.solve()
            except OutOfSteps:
                is_solved = False
            steps -= state.steps_used
            if not is_solved:
                break
            coupled = fewer
        most[i] = max(coupled.crossed(i), 1)
    return coupled


_END = object()


def _scopes(pod: PodFacts) -> list[PodScope]:
    """The pods this one follows or is spread with."""
    return [term.scope for term in pod.shape.affinity] + [spread.scope for spread in pod.shape.spread]
