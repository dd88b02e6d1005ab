"""Which domains of a spread count, how many units each has, and which spreads a placement would break.

A domain counts if it has nodes that could run every group of the unit when they are empty. Pods that terminate do not
count. Where a part around the units must be in one broader domain, only what is inside that domain counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from grove.scheduler.cluster.node_table import Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.cluster.topology import Tree
from grove.scheduler.filters.fit import allowed_mask, fits_mask, open_rows
from grove.scheduler.filters.pod_relations import sums_by_domain
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Branch, Gang, Pin, PodGroup, UnitSpread, leaves_of
from grove.scheduler.solve.distributions import skew_of


@dataclass(frozen=True, slots=True)
class SpreadDomains:
    """The domains of a spread that count, in topology order, and the units in each of them."""

    level: int
    ids: tuple[int, ...]
    counts: tuple[int, ...]
    homes: dict[str, tuple[int, ...]]
    """Domains by unit that has running pods."""


def spread_domains(
    snapshot: Snapshot, gang: Gang, spread: UnitSpread, tree: Tree, inside: Mask | None
) -> SpreadDomains:
    """`inside` marks the rows that count; all rows if None."""
    level = tree.find_level(spread.key)
    assert level is not None, "the gang's tree has the levels of its spreads"
    by_position = tree.domains[level]
    rows = snapshot.nodes.rows
    homes: dict[str, set[int]] = {}
    if spread.unit_label:
        pods = snapshot.counts.units_in_scope(spread.scope, spread.unit_label, snapshot.pod_rows(), rows)
        for unit, row in pods:
            if (domain := tree.domain_of(row, level)) >= 0 and (inside is None or inside[row]):
                homes.setdefault(unit, set()).add(domain)
    ids = _counted(snapshot, gang, spread, tree, level, inside)
    if spread.unit_label:
        count_of = dict.fromkeys(ids, 0)
        for domain in (domain for home in homes.values() for domain in home if domain in count_of):
            count_of[domain] += 1
        counts = tuple(count_of[domain] for domain in ids)
    else:
        pods_at = snapshot.counts.in_scope(spread.scope, snapshot.pod_rows(), rows)[tree.order]
        counts = tuple(sums_by_domain(by_position, pods_at, by_position.size + 1)[list(ids)].tolist())
    return SpreadDomains(level, ids, counts, {unit: tuple(sorted(home)) for unit, home in homes.items()})


def _counted(
    snapshot: Snapshot, gang: Gang, spread: UnitSpread, tree: Tree, level: int, inside: Mask | None
) -> tuple[int, ...]:
    """Domains with nodes that could run a pod of every group of the spread if nothing ran there."""
    names = {name for _, groups in spread.units for name in groups}
    shapes = [{pod.shape for pod in group.pods} for group in gang.groups() if group.name in names and group.pods]
    scope = open_rows(snapshot, gang, ())
    domains: set[int] | None = None
    for alike in dict.fromkeys(map(frozenset, shapes)):
        mask = np.zeros(snapshot.nodes.rows, dtype=np.bool_)
        for shape in alike:
            idle = [fits_mask(snapshot, requests, idle=True) for requests in (shape.requests, *shape.alternatives)]
            mask |= allowed_mask(snapshot, shape) & np.logical_or.reduce(idle)
        for narrower in (scope, inside):
            mask = mask if narrower is None else mask & narrower
        here = set(np.unique(tree.domains[level][mask[tree.order]]).tolist()) - {-1}
        domains = here if domains is None else domains & here
    return tuple(sorted(domains or ()))


@dataclass(frozen=True, slots=True)
class BrokenSpread:
    """A spread that a placement does not keep: the domain with too many, and the one with the fewest."""

    spread: UnitSpread
    unit: str
    skew: int
    domain: str
    emptiest: str
    counts: dict[str, int]
    """Units by domain, before the placement."""


def broken_spreads(snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Iterator[BrokenSpread]:
    """Required spreads that these pods of the gang would break on their nodes."""
    if not gang.spreads:
        return
    tree = snapshot.tree(gang.keys(), gang.topology)
    for spread in (unit_spread for unit_spread in gang.spreads if unit_spread.is_required):
        where = spread_domains(snapshot, gang, spread, tree, _inside_container(snapshot, gang, spread, tree, pods))
        added = [0] * len(where.ids)
        at = {domain: i for i, domain in enumerate(where.ids)}
        unit_of = {name: unit for unit, names in spread.units for name in names}
        group_of = {pod.uid: group.name for group in gang.groups() for pod in group.pods}
        mine = [(group_of[pod.uid], tree.domain_of(snapshot.nodes.row_of[pod.node], where.level)) for pod in pods]
        placed: dict[tuple[str, int], str] = {}
        for number, (group, domain) in enumerate(mine):
            if group in unit_of and domain in at:
                unit = unit_of[group] if spread.unit_label else str(number)
                if unit not in where.homes:
                    placed.setdefault((unit, domain), f"replica {unit}" if spread.unit_label else group)
        for _, domain in placed:
            added[at[domain]] += 1
        skew = skew_of(where.counts, added)
        if skew > spread.max_skew:
            ends = [count + more for count, more in zip(where.counts, added, strict=True)]
            most = max((i for i, more in enumerate(added) if more), key=lambda i: (ends[i], -i))
            named = [snapshot.domain_name(tree, where.level, domain) for domain in where.ids]
            unit = next(name for (_, domain), name in placed.items() if domain == where.ids[most])
            counts = dict(zip(named, where.counts, strict=True))
            yield BrokenSpread(spread, unit, skew, named[most], named[ends.index(min(ends))], counts)


def _inside_container(
    snapshot: Snapshot, gang: Gang, spread: UnitSpread, tree: Tree, pods: Sequence[PodFacts]
) -> Mask | None:
    """Rows of the domain that holds all units of the spread, by where these pods are; None if nothing holds them."""
    kept = kept_in(gang, spread, tree)
    if kept is None:
        return None
    key, names = kept
    mine = {pod.uid for group in gang.groups() if group.name in names for pod in group.pods}
    nodes = [pod.node for pod in pods if pod.uid in mine]
    rows = rows_of(snapshot, tree, [Pin(key, node) for node in nodes[:1]])
    is_kept = all(rows[snapshot.nodes.row_of[node]] for node in nodes)
    return rows if nodes and is_kept else None


def kept_in(gang: Gang, spread: UnitSpread, tree: Tree) -> tuple[str, frozenset[str]] | None:
    """The key of a broader level, and the groups that share one domain of it with all units of a spread.

    A part that requires the level keeps them together, or another spread of which they are in one unit.
    """
    container, level = container_of(gang.root, spread, tree), tree.find_level(spread.key)
    kept = [(container.required, frozenset(leaf.name for leaf in leaves_of(container)))] if container else []
    names = {name for _, groups in spread.units for name in groups}
    for other in gang.spreads:
        kept += [
            (other.key, frozenset(groups)) for _, groups in other.units if other.unit_label and names <= set(groups)
        ]
    levels = [(at, key, groups) for key, groups in kept if (at := tree.find_level(key)) is not None]
    narrower = [entry for entry in levels if level is not None and entry[0] < level]
    _, key, groups = max(narrower, key=lambda entry: entry[0], default=(-1, "", frozenset[str]()))
    return (key, groups) if key else None


def container_of(root: Branch | PodGroup, spread: UnitSpread, tree: Tree) -> Branch | PodGroup | None:
    """The innermost part that has all units of a spread in it and must be in one domain of a broader level."""
    level, container = tree.find_level(spread.key), None
    names = {name for _, groups in spread.units for name in groups}
    part: Branch | PodGroup | None = root
    while part is not None and level is not None:
        own = {leaf.name for leaf in leaves_of(part)}
        is_unit = bool(spread.unit_label) and any(own <= set(groups) for _, groups in spread.units)
        stated = tree.find_level(part.required) if part.required else None
        if not is_unit and stated is not None and stated < level:
            container = part
        children = part.children if isinstance(part, Branch) else ()
        part = next((child for child in children if names <= {leaf.name for leaf in leaves_of(child)}), None)
    return container


def rows_of(snapshot: Snapshot, tree: Tree, pins: Sequence[Pin]) -> Mask:
    """The nodes of these domains."""
    mask = np.zeros(snapshot.nodes.rows, dtype=np.bool_)
    for pin in pins:
        level, row = tree.find_level(pin.key), snapshot.nodes.row_of.get(pin.node)
        if level is not None and row is not None:
            mask[tree.rows_in(level, tree.domain_of(row, level))] = True
    return mask
