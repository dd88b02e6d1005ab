"""Gangs whose pods look at each other: placed pod by pod on a copy of the snapshot, with backtracking.

Affinity among the gang's own pods, spread over zones, anti-affinity wider than a host: each placed pod changes where
the next may go, in the order they are bound. The rules are those of the masks that serve single pods. Slow beside the
class-wise search, complete within its budget, and used only when needed. Bounds come first: how many pods that look at
their own kind fit beside each other, whatever the order. Apart by a label: one a domain. Near by a label, with nobody
there yet: all in one domain. Spread: no domain gets more than the least roomy one allows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grove.scheduler.cluster.nodes import Ids, Ints, Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.pods import affinity_mask, anti_affinity_mask, pods_by_domain, spread_mask
from grove.scheduler.model.facts import PodFacts, PodScope, Spread
from grove.scheduler.solve.problem import Problem
from grove.scheduler.solve.state import ROWS_A_STEP, State

LOOK_STEPS = 5
"""What it costs in steps, the pass over rows aside, to see where one pod may go: a dozen masks by label values."""

Chosen = tuple[int, int]
"""(option, candidate row) of one pod."""


class Coupled:
    def __init__(self, problem: Problem, state: State) -> None:
        self._problem, self._state = problem, state
        self._scratch = problem.snapshot.copy()
        self._parts = list(problem.root.walk())
        levelled = [(i, part) for i, part in enumerate(self._parts) if part.level >= 0]
        self._chains = {g: [i for i, part in levelled if g in part.groups] for g in problem.root.groups}
        """By group: parts with a requirement from the root down to it."""
        self._domain: dict[int, list[int]] = {}
        """By part: domains chosen, one entry a pod below it."""
        self._left = [group.need for group in problem.groups]
        self._next = [[0] * len(group.classes) for group in problem.groups]
        self.order: list[tuple[PodFacts, Chosen]] = []
        """Pods in the order they were placed."""
        self._firsts = [[pods[0] for pods in group.classes] for group in problem.groups]
        self._mingled = self._look_at_each_other()
        """Whether pods of one group follow, or are spread with, those of another, so that turns matter."""

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

    def _is_hopeless(self, group: int) -> bool:
        """Whether a group of pods alike is too many for the room by its own rules, before anything is placed."""
        problem = self._problem
        options = problem.groups[group].options
        if len(options) > 1:
            return False
        pod = self._firsts[group][0]
        matches = self._scratch.counts.matches
        others = [one for g, pods in enumerate(self._firsts) if g != group for one in pods]
        alone = frozenset(scope for scope in _scopes(pod) if not any(matches(scope, other) for other in others))
        slots = self._state.room(options[0], 0, problem.size) * anti_affinity_mask(self._scratch, pod)[problem.rows]
        return most_beside_each_other(self._scratch, pod, slots, problem.rows, alone) < self._left[group]

    def solve(self) -> bool:
        """Places the core; False if no order and no choice of nodes works. May raise OutOfSteps."""
        if any(self._is_hopeless(g) for g, left in enumerate(self._left) if left):
            return False
        stack: list[Iterator[None]] = [self._ways()]
        while stack:
            if next(stack[-1], _END) is _END:
                stack.pop()
            elif not any(self._left):
                return True
            else:
                stack.append(self._ways())
        return False

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
        nodes = problem.snapshot.nodes.names(int(problem.rows[row]) for _, (_, row) in self.order)
        return [
            problem.as_chosen(pod, option).on(node) for (pod, (option, _)), node in zip(self.order, nodes, strict=True)
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
                looks = self._looks(int(row))
                if looks in tried:
                    continue
                tried.add(looks)
                self._state.spend()
                self._put(pod, option, int(row), group, kind)
                yield
                self._take_back(pod, group, kind)

    def _rows(self, option: int, pod: PodFacts, group: int) -> Ints:
        """Candidate rows for the pod now, nearest to what is placed first, then fullest."""
        problem = self._problem
        self._state.spend(problem.size + LOOK_STEPS * ROWS_A_STEP)
        slots = self._state.room(option, 0, problem.size)
        alike = len(problem.groups[group].options) == 1
        mask = self._neighbours(pod)[problem.rows] & (slots > 0)
        for i in self._chains[group]:
            part = self._parts[i]
            domains = problem.tree.domains[part.level][problem.positions]
            mask &= domains >= 0
            if self._domain.get(i):
                mask &= domains == self._domain[i][0]
            elif part.domains is not None:
                mask &= np.isin(domains, sorted(part.domains))
            elif alike:
                mask &= roomy(domains, slots, self._left[group])
        if alike and not self._mingled and len(pod.shape.affinity) == 1:
            term = pod.shape.affinity[0]
            if not pods_by_domain(self._scratch, term.topology_key, term.scope).any():
                # The first of a series decides for the others: only where all of them have room.
                ids = self._scratch.nodes.column(term.topology_key).ids[problem.rows]
                mask &= roomy(ids, slots, self._left[group])
        rows = np.flatnonzero(mask)
        near = np.zeros(rows.size, dtype=np.int64)
        used = problem.positions[[row for _, (_, row) in self.order]]
        if problem.root.homes is not None:
            used = np.concatenate([used, problem.root.homes])
        for domains in problem.tree.domains[:-1] if used.size else ():
            near -= np.isin(domains[problem.positions[rows]], domains[used])
        soft = problem.options[option].soft
        liked = np.zeros(rows.size, dtype=np.int64) if soft is None else -soft[rows]
        return rows[np.lexsort((slots[rows], near, liked))]

    def _neighbours(self, pod: PodFacts) -> Mask:
        snapshot = self._scratch
        mask = anti_affinity_mask(snapshot, pod)
        if pod.shape.affinity:
            mask = mask & affinity_mask(snapshot, pod)
        if pod.shape.spread:
            mask = mask & spread_mask(snapshot, pod)
        return mask

    def _looks(self, row: int) -> tuple[object, ...]:
        """Rows that look alike lead to alike results: same room, same labels that any term or level looks at."""
        problem = self._problem
        table, at = problem.snapshot.nodes, int(problem.rows[row])
        keys = {t.topology_key for o in problem.options for t in (*o.shape.affinity, *o.shape.anti_affinity)}
        keys |= {s.topology_key for o in problem.options for s in o.shape.spread}
        keys |= {t.topology_key for t in self._scratch.counts.standing_terms()}
        labels = tuple(int(table.column(key).ids[at]) for key in sorted(keys))
        position = problem.tree.position[at]
        domains = tuple(int(problem.tree.domains[level][position]) for level in range(problem.tree.host_level))
        return (self._state.signature(row, row + 1), labels, domains)

    def _put(self, pod: PodFacts, option: int, row: int, group: int, kind: int) -> None:
        problem = self._problem
        at = int(problem.rows[row])
        self._state.put(option, np.array([row]), np.array([1]))
        self._scratch.add_pod(pod.on(problem.snapshot.nodes.names([at])[0]))
        for i in self._chains[group]:
            domain = problem.tree.domain_of(at, self._parts[i].level)
            self._domain.setdefault(i, []).append(domain)
        self._left[group] -= 1
        self._next[group][kind] += 1
        self.order.append((pod, (option, row)))

    def _take_back(self, pod: PodFacts, group: int, kind: int) -> None:
        self._state.take_back(len(self._state.placed) - 1)
        self._scratch.remove_pod(pod.uid)
        for i in self._chains[group]:
            self._domain[i].pop()
        self._left[group] += 1
        self._next[group][kind] -= 1
        self.order.pop()


_END = object()


def _scopes(pod: PodFacts) -> list[PodScope]:
    """The pods this one follows or is spread with."""
    return [term.scope for term in pod.shape.affinity] + [spread.scope for spread in pod.shape.spread]


def most_beside_each_other(
    snapshot: Snapshot, pod: PodFacts, slots: Ints, rows: Ints, alone: frozenset[PodScope]
) -> int:
    """How many pods like this one the rows can hold at most, if `slots` is their room on each row.

    `alone` are scopes that no other pod to be placed is in: only for them does the future depend on these pods alone.
    """
    counts, most = snapshot.counts, int(slots.sum())
    for term in pod.shape.anti_affinity:
        if counts.matches(term.scope, pod):
            ids = _ids(snapshot, term.topology_key, rows)
            most = min(most, np.unique(ids[(slots > 0) & (ids >= 0)]).size + int(slots[ids < 0].sum()))
    for term in pod.shape.affinity:
        if len(pod.shape.affinity) == 1 and term.scope in alone and counts.matches(term.scope, pod):
            here = pods_by_domain(snapshot, term.topology_key, term.scope)
            if not here.any():
                most = min(most, int(_sums(_ids(snapshot, term.topology_key, rows), slots, here.size).max(initial=0)))
    for spread in pod.shape.spread:
        if len(pod.shape.spread) == 1 and spread.scope in alone and counts.matches(spread.scope, pod):
            most = min(most, _most_within_skew(snapshot, spread, slots, rows))
    return most


def _most_within_skew(snapshot: Snapshot, spread: Spread, slots: Ints, rows: Ints) -> int:
    ids = _ids(snapshot, spread.topology_key, rows)
    here = pods_by_domain(snapshot, spread.topology_key, spread.scope)
    room = _sums(ids, slots, here.size)
    known = np.unique(_ids(snapshot, spread.topology_key, np.flatnonzero(snapshot.nodes.alive[: snapshot.nodes.rows])))
    known = known[known >= 0]
    if known.size == 0:
        return 0
    # Nodes of a domain that the pod may not use might not count at all: the least is then taken over too many, and the
    # bound would be too low. Only domains where the pod could go are certain to count.
    usable = known[room[known] > 0] if spread.honor_affinity or spread.honor_taints else known
    if usable.size == 0:
        return 0
    least = int((here[usable] + room[usable]).min()) if usable.size >= spread.min_domains else 0
    return int(np.clip(least + spread.max_skew - here[known], 0, room[known]).sum())


def roomy(ids: Ids | Ints, slots: Ints, need: int) -> Mask:
    """Rows in domains with room for as many as needed; where they may go just now does not matter, it may change."""
    sums = _sums(ids, np.minimum(slots, need), int(ids.max(initial=0)) + 1)
    found: Mask = (ids >= 0) & (sums[ids] >= need)
    return found


def _sums(ids: Ids | Ints, values: Ints, size: int) -> Ints:
    sums = np.zeros(size, dtype=np.int64)
    some = ids >= 0
    np.add.at(sums, ids[some], values[some])
    return sums


def _ids(snapshot: Snapshot, key: str, rows: Ints) -> Ids:
    return snapshot.nodes.column(key).ids[rows]
