"""Warnings about what cannot fit: pods larger than any node, domains smaller than a gang, levels no node carries.

Never a refusal: nodes may be on their way. Everything is compared with what nodes have, not with what is free, so a
warning stays true until the cluster changes. `NodeSummary` is built when nodes change; a review only reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grove.admission.rules.view import CliqueView, Constraint, SetView
from grove.api.podrequest import PODS, add_amounts, pod_request
from grove.api.quantity import format_amount

Amounts = Mapping[str, int]
_MOST = 2**62
"""Larger numbers are nonsense anyway and must not overflow a column."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node: its labels and what it can give to pods, in the units of `grove.api.quantity.amount`."""

    labels: Mapping[str, str]
    allocatable: Amounts


class NodeSummary:
    """A summary of the nodes for admission: their different sizes, and the capacity of each topology domain.

    Building costs one pass over the nodes for each level key; reading costs as many comparisons as there are sizes
    (usually a few) or domains.
    """

    def __init__(self, nodes: Iterable[NodeFacts], level_keys: Iterable[str] = ()) -> None:
        known = list(nodes)
        self.count = len(known)
        self._resources = {name: i for i, name in enumerate(sorted({r for node in known for r in node.allocatable}))}
        table = np.zeros((len(known), len(self._resources)), dtype=np.int64)
        for row, node in enumerate(known):
            for name, value in node.allocatable.items():
                table[row, self._resources[name]] = min(value, _MOST)
        self._sizes = np.unique(table, axis=0) if known else table
        self._domains = {key: _sum_by_domain(known, table, key) for key in set(level_keys)}

    def has_level(self, key: str) -> bool | None:
        """True if a node has the label key. None if the summary was built without this key."""
        domains = self._domains.get(key)
        return None if domains is None else len(domains) > 0

    def fits_a_node(self, need: Amounts) -> bool:
        return self._fits(self._sizes, need)

    def fits_a_domain(self, key: str, need: Amounts) -> bool:
        domains = self._domains.get(key)
        return True if domains is None else self._fits(domains, need)

    def largest(self, resource: str) -> int:
        """The most of one resource that any node has."""
        column = self._resources.get(resource)
        return 0 if column is None or not len(self._sizes) else int(self._sizes[:, column].max())

    def largest_in_domain(self, key: str, resource: str) -> int:
        domains, column = self._domains.get(key), self._resources.get(resource)
        return 0 if domains is None or column is None or not len(domains) else int(domains[:, column].max())

    def _fits(self, rows: npt.NDArray[np.int64], need: Amounts) -> bool:
        wanted = np.zeros(len(self._resources), dtype=np.int64)
        for name, value in need.items():
            if name in self._resources:
                wanted[self._resources[name]] = min(value, _MOST)
            elif value > 0:
                return False
        return bool((rows >= wanted).all(axis=1).any())


def _sum_by_domain(nodes: Sequence[NodeFacts], table: npt.NDArray[np.int64], key: str) -> npt.NDArray[np.int64]:
    index: dict[str, int] = {}
    rows, domains = [], []
    for row, node in enumerate(nodes):
        value = node.labels.get(key)
        if value is not None:
            rows.append(row)
            domains.append(index.setdefault(value, len(index)))
    sums = np.zeros((len(index), table.shape[1]), dtype=np.int64)
    np.add.at(sums, np.array(domains, dtype=np.intp), table[np.array(rows, dtype=np.intp)])
    return sums


def feasibility_warnings(
    new: SetView, summary: NodeSummary | None, level_keys: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Warnings for one set; none while the nodes are unknown. `level_keys`: node label key of each topology domain."""
    if summary is None or not summary.count:
        return
    needs = {clique.name: pod_request(clique.pod_spec) for clique in new.cliques}
    for clique in new.cliques:
        yield from _too_large_for_a_node(clique, needs[clique.name], summary)
    if level_keys:
        yield from _domain_warnings(new, needs, summary, level_keys)


def _too_large_for_a_node(clique: CliqueView, need: Amounts, summary: NodeSummary) -> Iterator[str]:
    if summary.fits_a_node(need):
        return
    over = [name for name, value in need.items() if value > summary.largest(name)]
    where = f"{clique.path}.spec.podSpec"
    if not over:
        yield f"{where}: no node has all that a pod asks for together ({_listed(need, need)}); it cannot be placed now"
        return
    amounts = ", ".join(
        f"{format_amount(name, need[name])} {name} (largest node: {format_amount(name, summary.largest(name))})"
        for name in over
    )
    yield f"{where}: a pod asks for more than any node has: {amounts}; it cannot be placed now"


def _domain_warnings(
    new: SetView, needs: Mapping[str, Amounts], summary: NodeSummary, level_keys: Mapping[str, str]
) -> Iterator[str]:
    reported_levels: set[str] = set()
    for spread in new.spreads:
        key = level_keys.get(spread.domain, "")
        if key and summary.has_level(key) is False:
            yield f'{spread.path}.domain: no node carries label {key} of topology level "{spread.domain}"'
    for owner, constraint, need in _gangs(new, needs):
        for domain in (constraint.hard, constraint.preferred):
            key = level_keys.get(domain, "")
            if domain and summary.has_level(key) is False and domain not in reported_levels:
                reported_levels.add(domain)
                yield f'{constraint.path}: no node carries label {key} of topology level "{domain}"'
        key = level_keys.get(constraint.hard, "")
        if constraint.hard and summary.has_level(key) and not summary.fits_a_domain(key, need):
            over = {name: value for name, value in need.items() if value > summary.largest_in_domain(key, name)}
            amounts = ", ".join(
                f"{format_amount(name, value)} {name} "
                f"(largest: {format_amount(name, summary.largest_in_domain(key, name))})"
                for name, value in (over or need).items()
            )
            where = f'{constraint.path}: no "{constraint.hard}" is large enough for {owner}'
            yield f"{where}, which needs {amounts}; it cannot be placed now"


def _gangs(new: SetView, needs: Mapping[str, Amounts]) -> Iterator[tuple[str, Constraint, Amounts]]:
    """Every constrained unit with what its smallest allowed form needs: set replica, group replica, clique."""
    minimums = {clique.name: max(clique.min_available or 1, 1) for clique in new.cliques}

    def total(cliques: Iterable[str], times: int = 1) -> dict[str, int]:
        summed: dict[str, int] = {}
        for name in cliques:
            add_amounts(
                summed, {r: v * minimums[name] * times for r, v in needs.get(name, {}).items() if name in minimums}
            )
        return summed

    members: dict[str, list[str]] = {}
    for clique in new.cliques:
        group = new.group_of(clique.name)
        members.setdefault(group.name if group else "", []).append(clique.name)
    if new.constraint is not None:
        whole = total(members.get("", []))
        for group in new.groups:
            add_amounts(whole, total(members.get(group.name, []), max(group.min_available or 1, 1)))
        yield "one replica of the set", new.constraint, whole
    for group in new.groups:
        if group.constraint is not None:
            yield f'one replica of scaling group "{group.name}"', group.constraint, total(members.get(group.name, []))
    for clique in new.cliques:
        if clique.constraint is not None:
            yield f'clique "{clique.name}"', clique.constraint, total([clique.name])


def _listed(need: Amounts, of: Iterable[str]) -> str:
    return ", ".join(f"{format_amount(name, need[name])} {name}" for name in of if name != PODS)
