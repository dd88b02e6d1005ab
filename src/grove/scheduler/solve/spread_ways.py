"""Ways to distribute the units of a gang over domains: each is the gang without its spreads, with its units confined.

A unit is confined to some domains. A group of pods is split by domain. Units go only to domains that count. Pods that
run stay where they are: a unit with running pods goes to their domain and changes no count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.cluster.topology import Tree
from grove.scheduler.filters.fit import PLENTY
from grove.scheduler.filters.pod_relations import sums_by_domain
from grove.scheduler.model.gang import Branch, Gang, Pin, PodGroup, UnitSpread, leaves_of, parts_of
from grove.scheduler.solve.bounds import PartCapacity, bounds_for
from grove.scheduler.solve.distributions import MOST_DOMAINS, Distribution, distributions, divided
from grove.scheduler.solve.problem import Problem
from grove.scheduler.solve.search_state import SearchState
from grove.scheduler.solve.spread_domains import SpreadDomains, container_of, rows_of, spread_domains

FEW = 4
"""Distributions that are tried for one skew of a spread that is only preferred, and sizes of a group's surplus."""


class SpreadWays:
    """`problem` is the gang's own, its spreads left aside: the capacity that each domain has."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._snapshot, self._tree = problem, problem.snapshot, problem.tree
        self._state = SearchState(problem, 1)
        self._group_at = {group.name: g for g, group in enumerate(problem.groups)}
        self.is_complete = True
        """Whether the gangs listed so far leave no way out."""

    def all(self) -> Iterator[Gang]:
        """Gangs without a spread, each with its units distributed in another way; the best first."""
        gang = self._problem.gang
        outer_first = sorted(
            gang.spreads, key=lambda spread: (not spread.unit_label, -max(map(_size, spread.units), default=0))
        )
        return self._from(replace(gang, spreads=()), outer_first)

    def _from(self, gang: Gang, spreads: Sequence[UnitSpread]) -> Iterator[Gang]:
        if not spreads:
            yield gang
            return
        for narrowed in self._choices(gang, spreads[0]):
            yield from self._from(narrowed, spreads[1:])

    def _choices(self, gang: Gang, spread: UnitSpread) -> Iterator[Gang]:
        if self._tree.find_level(spread.key) is None:
            yield gang  # no node has the label of a spread that is only preferred
            return
        container = container_of(gang.root, spread, self._tree)
        if container is None:
            yield from self._distributed(gang, spread, None)
            return
        for pin in self._homes_for(container):
            fixed = gang.with_part(container, within=(pin,))
            yield from self._distributed(fixed, spread, rows_of(self._snapshot, self._tree, [pin]))

    def _homes_for(self, container: Branch | PodGroup) -> Iterator[Pin]:
        """Domains that could hold a part whose units are spread inside it, the tightest first."""
        level = self._tree.find_level(container.required)
        assert level is not None
        leaves = list(leaves_of(container))
        allowed = rows_of(self._snapshot, self._tree, container.within) if container.within else None
        if bound := [node for leaf in leaves for node in leaf.bound if node in self._snapshot.nodes.row_of]:
            domains = {self._tree.domain_of(self._snapshot.nodes.row_of[node], level) for node in bound}
            yield from (self._pin(container.required, level, domain) for domain in sorted(domains - {-1}))
            return
        segments = self._problem.segments(level)
        # A group that another spread has split is there several times.
        groups = tuple(dict.fromkeys(self._group_at[leaf.name] for leaf in leaves))
        order: Ints = np.arange(segments.size)
        if bounds := bounds_for(self._problem, groups):
            capacity = PartCapacity(self._state, bounds, 0, self._problem.size)
            held = capacity.held(segments)
            order = capacity.fitting(held)
            order = order[held[capacity.scarce(held), order].argsort(kind="stable")] if order.size else order
        for domain in segments.ids[order].tolist():
            pin = self._pin(container.required, level, domain)
            if allowed is None or allowed[self._snapshot.nodes.row_of[pin.node]]:
                yield pin

    def _distributed(self, gang: Gang, spread: UnitSpread, inside: Mask | None) -> Iterator[Gang]:
        where = spread_domains(self._snapshot, self._problem.gang, spread, self._tree, inside)
        if spread.unit_label:
            yield from self._units(gang, spread, where)
            return
        waiting = [name for _, names in spread.units for name in names]
        yield from self._pods(gang, spread, where, waiting)

    # Replicas

    def _units(self, gang: Gang, spread: UnitSpread, where: SpreadDomains) -> Iterator[Gang]:
        waiting = {name: group for group in gang.groups() for name in (group.name,) if group.pods}
        units = [(unit, names) for unit, names in spread.units if any(name in waiting for name in names)]
        settled = gang
        for unit, names in units:
            if unit in where.homes:
                settled = self._confined(settled, spread, unit, names, where.homes[unit])
        fresh = [(unit, names) for unit, names in units if unit not in where.homes]
        if not fresh:
            yield settled
        elif len(fresh) == 1:
            yield from self._one(settled, spread, where, *fresh[0])
        else:
            yield from self._several(settled, spread, where, fresh)
        if not spread.is_required:
            yield gang

    def _one(
        self, gang: Gang, spread: UnitSpread, where: SpreadDomains, unit: str, names: tuple[str, ...]
    ) -> Iterator[Gang]:
        """One unit, which goes where there are fewest; for preemption wherever it is cheapest."""
        free_slots = self._capacity_for(names, where)
        lowest = min(where.counts, default=0)
        tiers: dict[int, list[int]] = {}
        for domain, count, held in zip(where.ids, where.counts, free_slots, strict=True):
            if held > 0 and (count - lowest + 1 <= spread.max_skew or not spread.is_required):
                tiers.setdefault(count if self._problem.cost is None else 0, []).append(domain)
        for _, domains in sorted(tiers.items()):
            yield self._confined(gang, spread, unit, names, tuple(domains))

    def _several(
        self, gang: Gang, spread: UnitSpread, where: SpreadDomains, units: list[tuple[str, tuple[str, ...]]]
    ) -> Iterator[Gang]:
        kinds = [_kind(gang, names, self._problem.gang.spreads) for _, names in units]
        free_slots = [self._capacity_for(names, where) for _, names in units]
        # A domain has capacity for no more units than for those that fit it best.
        most = [max(column) for column in zip(*free_slots, strict=True)]
        for distribution in self._found(spread, where, most, len(units)):
            for domains in _assignments(kinds, where.ids, distribution):
                assigned = gang
                for (unit, names), domain in zip(units, domains, strict=True):
                    assigned = self._confined(assigned, spread, unit, names, (domain,))
                yield assigned

    def _capacity_for(self, names: Sequence[str], where: SpreadDomains) -> list[int]:
        """How many units like this one each domain has capacity for, by counting."""
        bounds = bounds_for(self._problem, tuple(self._group_at[name] for name in names))
        if not bounds:
            return [PLENTY] * len(where.ids)
        segments = self._problem.segments(where.level)
        capacity = PartCapacity(self._state, bounds, 0, self._problem.size)
        held = (capacity.held(segments) // capacity.need[:, None]).min(axis=0)
        capacity_of = dict(zip(segments.ids.tolist(), held.tolist(), strict=True))
        return [capacity_of.get(domain, 0) for domain in where.ids]

    def _found(
        self, spread: UnitSpread, where: SpreadDomains, free_slots: Sequence[int], units: int
    ) -> Iterator[Distribution]:
        if len(where.ids) > MOST_DOMAINS:
            self.is_complete = False
        if spread.is_required:
            yield from distributions(where.counts, free_slots, units, spread.max_skew)
            return
        skew, most = spread.max_skew, max(where.counts, default=0) + units
        while skew < 2 * most:
            yield from islice(distributions(where.counts, free_slots, units, skew), FEW)
            skew *= 2

    def _confined(
        self, gang: Gang, spread: UnitSpread, unit: str, names: Sequence[str], domains: Sequence[int]
    ) -> Gang:
        """The gang with a unit in one of these domains."""
        level = self._tree.find_level(spread.key)
        assert level is not None
        pins = tuple(self._pin(spread.key, level, domain) for domain in domains)
        root = _confine(gang.root, frozenset(names), unit, pins, self._tree)
        return replace(gang, root=root if isinstance(root, Branch) else Branch(root.name, (root,)))

    def _pin(self, key: str, level: int, domain: int) -> Pin:
        row = int(self._tree.rows_in(level, domain)[0])
        return Pin(key, self._snapshot.nodes.names([row])[0])

    # Pods

    def _pods(self, gang: Gang, spread: UnitSpread, where: SpreadDomains, names: Collection[str]) -> Iterator[Gang]:
        """All groups of the spread at once: they are counted together."""
        groups = [group for group in gang.groups() if group.name in names and group.pods]
        for splits in self._splits(groups, spread, where) if groups else ([],):
            split = gang
            for group, parts in zip(groups, splits, strict=True):
                split = split.with_other(group, parts)
            yield split
        if groups and not spread.is_required:
            yield gang

    def _splits(
        self, groups: Sequence[PodGroup], spread: UnitSpread, where: SpreadDomains
    ) -> Iterator[list[Branch | PodGroup]]:
        """Each group split by domain; first with all their pods, then with fewer."""
        free_slots = [self._pod_capacity(group, where) for group in groups]
        if where.level == self._tree.host_level and len(groups) == 1:
            yield from self._by_host(groups[0], spread, where, free_slots[0])
        sizes, needs, tried = [len(group.pods) for group in groups], [group.need for group in groups], 0
        while sizes != needs and tried < FEW:
            for shares in islice(self._shares(spread, where, free_slots, sizes), 1):
                tried += 1
                yield self._split_all(groups, where, shares)
            largest = max(range(len(groups)), key=lambda g: sizes[g] - needs[g])
            sizes[largest] -= 1
        for shares in self._shares(spread, where, free_slots, needs) if any(needs) else ():
            yield self._split_all(groups, where, shares)
        if not any(needs):
            yield [replace(group, pods=()) for group in groups]

    def _shares(
        self, spread: UnitSpread, where: SpreadDomains, free_slots: Sequence[Sequence[int]], sizes: Sequence[int]
    ) -> Iterator[tuple[Distribution, ...]]:
        """Distributions of groups of these sizes, which together keep the skew."""
        most = [sum(map(min, column, sizes)) for column in zip(*free_slots, strict=True)]
        for distribution in self._found(spread, where, most, sum(sizes)):
            yield from divided(distribution, free_slots, sizes)

    def _split_all(
        self, groups: Sequence[PodGroup], where: SpreadDomains, shares: Sequence[Distribution]
    ) -> list[Branch | PodGroup]:
        return [self._split(group, where, share) for group, share in zip(groups, shares, strict=True)]

    def _by_host(
        self, group: PodGroup, spread: UnitSpread, where: SpreadDomains, free_slots: Sequence[int]
    ) -> Iterator[list[Branch | PodGroup]]:
        """At most `maxSkew` pods on each of the hosts with the fewest: one group instead of one for each host."""
        lowest = min(where.counts, default=0)
        hosts = [i for i, count in enumerate(where.counts) if count == lowest and free_slots[i] > 0]
        if sum(min(free_slots[i], spread.max_skew) for i in hosts) < max(group.need, 1):
            return
        pins = group.within
        if len(hosts) < len(where.ids):
            pins = tuple(self._pin(spread.key, where.level, where.ids[i]) for i in hosts)
        yield [replace(group, within=pins, most_on_host=spread.max_skew)]

    def _pod_capacity(self, group: PodGroup, where: SpreadDomains) -> list[int]:
        capacities = np.zeros(self._problem.size, dtype=np.int64)
        for option in self._problem.groups[self._group_at[group.name]].options:
            capacities += self._state.pod_slots(option, 0, self._problem.size)
        at = self._tree.domains[where.level][self._problem.positions]
        sums = sums_by_domain(at, np.minimum(capacities, len(group.pods)), self._tree.order.size + 1)
        limits: list[int] = np.minimum(sums, len(group.pods))[list(where.ids)].tolist()
        return limits

    def _split(self, group: PodGroup, where: SpreadDomains, distribution: Distribution) -> Branch:
        key = self._tree.keys[where.level]
        row_of = self._snapshot.nodes.row_of

        def inside(nodes: Sequence[str], domain: int) -> tuple[str, ...]:
            return tuple(n for n in nodes if n in row_of and self._tree.domain_of(row_of[n], where.level) == domain)

        stated = self._tree.find_level(group.preferred) if group.preferred else None
        narrow = group.preferred if stated is not None and stated > where.level else ""
        left, parts, used = list(group.bound), [], 0
        for domain, pods in zip(where.ids, distribution, strict=True):
            if pods:
                bound = inside(group.bound, domain)
                left = [node for node in left if node not in bound]
                mine = group.pods[used : used + pods]
                earlier_nodes, pin = inside(group.earlier_nodes, domain), self._pin(key, where.level, domain)
                parts.append(
                    PodGroup(
                        group.name,
                        len(bound) + pods,
                        mine,
                        bound,
                        "",
                        narrow,
                        earlier_nodes=earlier_nodes,
                        within=(pin,),
                    )
                )
                used += pods
        if left:
            parts.append(PodGroup(group.name, len(left), (), tuple(left)))
        broad = "" if narrow else group.preferred
        return Branch(group.name, tuple(parts), group.required, broad, group.within)


def _size(unit: tuple[str, tuple[str, ...]]) -> int:
    return len(unit[1])


def _kind(gang: Gang, names: Sequence[str], spreads: Sequence[UnitSpread]) -> tuple[object, ...]:
    """Equal for units of these groups that can take each other's place."""
    at = {name: i for i, name in enumerate(names)}
    parts = list[object]()
    for part in parts_of(gang.root):
        leaves = list(leaves_of(part))
        if inside := tuple(at[leaf.name] for leaf in leaves if leaf.name in at):
            around = id(part) if len(inside) < len(leaves) else 0
            parts.append((inside, part.required, part.preferred, part.within, around))
            if isinstance(part, PodGroup):
                shapes = tuple(pod.shape for pod in part.pods)
                parts.append((part.minimum, shapes, part.bound, part.earlier_nodes))
    own = [
        (spread.key, spread.max_skew, spread.is_required, inside)
        for spread in spreads
        for _, groups in spread.units
        if not spread.unit_label and (inside := tuple(at[name] for name in groups if name in at))
    ]
    return (*parts, *own)


def _confine(
    part: Branch | PodGroup, names: frozenset[str], unit: str, pins: tuple[Pin, ...], tree: Tree
) -> Branch | PodGroup:
    """The part with the groups of a unit in one of these domains."""
    own = frozenset(leaf.name for leaf in leaves_of(part))
    if own <= names:
        return _within(part, pins, tree)
    assert isinstance(part, Branch)
    touched = [child for child in part.children if names & {leaf.name for leaf in leaves_of(child)}]
    if len(touched) == 1:
        inner = _confine(touched[0], names, unit, pins, tree)
        return replace(part, children=tuple(inner if child is touched[0] else child for child in part.children))
    others = tuple(child for child in part.children if child not in touched)
    return replace(part, children=(*others, Branch(unit, tuple(touched), pins[0].key, within=pins)))


def _within(part: Branch | PodGroup, pins: tuple[Pin, ...], tree: Tree) -> Branch | PodGroup:
    if part.within:
        return Branch(part.name, (part,), pins[0].key, within=pins)
    stated = tree.find_level(part.required) if part.required else None
    level = tree.find_level(pins[0].key)
    assert level is not None
    return replace(part, within=pins, required=pins[0].key if stated is None or stated < level else part.required)


def _assignments(kinds: Sequence[object], ids: Sequence[int], distribution: Distribution) -> Iterator[tuple[int, ...]]:
    """Domains for the units, as many in each as the distribution says; units of one kind are interchangeable."""

    def from_unit(u: int, left: list[int], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if u == len(kinds):
            yield tuple(ids[i] for i in chosen)
            return
        alike = [chosen[other] for other in range(u) if kinds[other] == kinds[u]]
        for i in range(alike[-1] if alike else 0, len(ids)):
            if left[i]:
                left[i] -= 1
                yield from from_unit(u + 1, left, (*chosen, i))
                left[i] += 1

    return from_unit(0, list(distribution), ())
