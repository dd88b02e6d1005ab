"""Pods that want to be near, apart from, or evenly spread with others: kube-scheduler's rules, as masks over rows.

All three count pods by the value of a node label (the domain). Counters live in the snapshot, so the search can add its
own pods to a copy one by one and ask again. `PodRelations` is the same for the pods of one gang. Pods are alike if they
have the same shape and every relevant term treats them alike. Most terms concern running pods only, or keep pods of the
gang on different hosts. These become masks, limits and pairs. The rest (affinity to, spread over, or zones apart from
each other) makes the gang coupled, and the search goes pod by pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.node_table import Ids, Ints, Mask
from grove.scheduler.filters.node_filters import selected_mask, taint_mask
from grove.scheduler.model.facts import HOSTNAME, PodFacts, PodScope, PodTerm, Shape, Spread

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot


def affinity_mask(snapshot: Snapshot, pod: PodFacts) -> Mask:
    """Rows near enough to pods that match every affinity term.

    The first pod of a series has no pod to be near. If no pod in the cluster matches and the pod matches itself, any
    node with all the labels is allowed.
    """
    terms = pod.shape.affinity
    rows = snapshot.nodes.rows
    everyone = _matching_all(snapshot, tuple(term.scope for term in terms))
    near = np.ones(rows, dtype=np.bool_)
    labelled = np.ones(rows, dtype=np.bool_)
    counted = False
    for term in terms:
        ids = _ids(snapshot, term.topology_key)
        present = ids >= 0
        by_value = _by_value(snapshot, term.topology_key, everyone)
        labelled &= present
        near &= present & (by_value[ids] > 0)
        counted = counted or bool(by_value.any())
    if not counted and all(snapshot.counts.matches(term.scope, pod) for term in terms):
        return labelled
    return near


def _matching_all(snapshot: Snapshot, scopes: tuple[PodScope, ...]) -> Ints:
    """Pods by row that are in every scope."""
    if len(scopes) == 1:
        return _in_scope(snapshot, scopes[0])
    counts = np.zeros(snapshot.nodes.rows, dtype=np.int64)
    for pod, row in snapshot.pod_rows():
        if all(snapshot.counts.matches(scope, pod) for scope in scopes):
            counts[row] += 1
    return counts


def anti_affinity_mask(snapshot: Snapshot, pod: PodFacts) -> Mask:
    """Rows where neither this pod minds those running, nor any of those running minds this pod."""
    mask = np.ones(snapshot.nodes.rows, dtype=np.bool_)
    for term in pod.shape.anti_affinity:
        mask &= ~_occupied(snapshot, term.topology_key, _in_scope(snapshot, term.scope))
    for term in snapshot.counts.terms_against(pod):
        mask &= ~_occupied(snapshot, term.topology_key, snapshot.counts.holders(term))
    return mask


def spread_mask(snapshot: Snapshot, pod: PodFacts) -> Mask:
    """Rows where one more pod keeps every DoNotSchedule spread within its skew."""
    mask = np.ones(snapshot.nodes.rows, dtype=np.bool_)
    for spread in pod.shape.spread:
        mask &= _within_skew(snapshot, pod, spread)
    return mask


def spread_counts(snapshot: Snapshot, spread: Spread, counted: Mask) -> tuple[Ints, Ints]:
    """Pods that a spread counts, by coded value of its label; and the values of the domains that it evens out."""
    numbers = _by_value(snapshot, spread.topology_key, np.where(counted, _in_scope(snapshot, spread.scope), 0))
    return numbers, np.unique(_ids(snapshot, spread.topology_key)[counted])


def counted_rows(snapshot: Snapshot, pod: PodFacts, spread: Spread) -> Mask:
    """Rows that count in a pod's spread: not those that the pod itself may not go to, as far as the spread says so."""
    counted: Mask = snapshot.nodes.alive[: snapshot.nodes.rows].copy()
    for other in pod.shape.spread:
        counted &= _ids(snapshot, other.topology_key) >= 0
    if spread.honor_affinity:
        counted &= selected_mask(snapshot.nodes, pod.shape)
    if spread.honor_taints:
        counted &= taint_mask(snapshot.nodes, pod.shape)
    return counted


def _within_skew(snapshot: Snapshot, pod: PodFacts, spread: Spread) -> Mask:
    ids = _ids(snapshot, spread.topology_key)
    present = ids >= 0
    numbers, domains = spread_counts(snapshot, spread, counted_rows(snapshot, pod, spread))
    if domains.size == 0:
        return present
    fewest = int(numbers[domains].min()) if domains.size >= spread.min_domains else 0
    itself = int(snapshot.counts.matches(spread.scope, pod))
    within: Mask = present & (numbers[ids] + itself - fewest <= spread.max_skew)
    return within


def pods_near(snapshot: Snapshot, term: PodTerm) -> Ints:
    """By row, how many pods in a term's scope are in the same domain."""
    return pods_by_domain(snapshot, term.topology_key, term.scope)[_ids(snapshot, term.topology_key)]


def pods_by_domain(snapshot: Snapshot, key: str, scope: PodScope) -> Ints:
    """Pods in a scope by coded value of a label; the extra last entry stands for no value and is zero."""
    return _by_value(snapshot, key, _in_scope(snapshot, scope))


def pods_matching_all(snapshot: Snapshot, key: str, scopes: tuple[PodScope, ...]) -> Ints:
    """The same for pods that are in every one of several scopes."""
    return _by_value(snapshot, key, _matching_all(snapshot, scopes))


def _occupied(snapshot: Snapshot, key: str, holders: Ints) -> Mask:
    """Rows in a domain where the counter is not zero; a node without the label is in no domain."""
    ids = _ids(snapshot, key)
    rows = ids.size
    if holders.size < rows:
        holders = np.concatenate([holders, np.zeros(rows - holders.size, dtype=np.int64)])
    taken = _by_value(snapshot, key, holders[:rows])[ids] > 0
    occupied: Mask = taken & (ids >= 0)
    return occupied


def _by_value(snapshot: Snapshot, key: str, by_row: Ints) -> Ints:
    """Sums of a counter by label value; the extra last entry stands for no value and is zero."""
    return sums_by_domain(_ids(snapshot, key), by_row, len(snapshot.nodes.column(key).values) + 1)


def _in_scope(snapshot: Snapshot, scope: PodScope) -> Ints:
    return snapshot.counts.in_scope(scope, snapshot.pod_rows(), snapshot.nodes.rows)


def _ids(snapshot: Snapshot, key: str) -> Ids:
    return snapshot.nodes.column(key).ids[: snapshot.nodes.rows]


def roomy(ids: Ids | Ints, slots: Ints, need: int) -> Mask:
    """Rows in domains with capacity for as many as needed. Where they may go now does not matter: it may change."""
    sums = sums_by_domain(ids, np.minimum(slots, need), int(ids.max(initial=0)) + 1)
    mask: Mask = (ids >= 0) & (sums[ids] >= need)
    return mask


def sums_by_domain(ids: Ids | Ints, values: Ints, size: int) -> Ints:
    """Sums by domain number, for `count` domains; rows in no domain (-1) are not counted."""
    sums = np.zeros(size, dtype=np.int64)
    some = np.flatnonzero((ids >= 0) & (values != 0))
    np.add.at(sums, ids[some], values[some])
    return sums


class PodRelations:
    def __init__(self, snapshot: Snapshot, pods: Sequence[PodFacts]) -> None:
        self._snapshot = snapshot
        shapes: dict[Shape, None] = dict.fromkeys(pod.shape for pod in pods)
        own = {
            scope
            for shape in shapes
            if shape.sees_pods
            for scope in (
                *(term.scope for term in shape.affinity),
                *(term.scope for term in shape.anti_affinity),
                *(spread.scope for spread in shape.spread),
            )
        }
        self._scopes = tuple(own)  # only ever used as parts of a dictionary key, so its order is free
        self._standing = any(True for _ in snapshot.counts.standing_terms())
        self._firsts = self.classes(pods) if own else []
        self.coupled = bool(own) and self._is_coupled()

    def classes(self, pods: Sequence[PodFacts]) -> list[list[PodFacts]]:
        """Pods in classes of alike ones, in order of first appearance."""
        classes: dict[object, list[PodFacts]] = {}
        if not self._scopes and not self._standing:
            for pod in pods:
                classes.setdefault(pod.shape, []).append(pod)
        else:
            counts = self._snapshot.counts
            for pod in pods:
                seen = tuple(counts.matches(scope, pod) for scope in self._scopes)
                classes.setdefault((pod.shape, seen, frozenset(counts.terms_against(pod))), []).append(pod)
        return list(classes.values())

    def mask(self, pod: PodFacts) -> Mask | None:
        """Rows that running pods leave open to this one, where that does not depend on the rest of the gang.

        None if running pods mean nothing to it.
        """
        if not self._scopes and not self._standing:
            return None
        mask = anti_affinity_mask(self._snapshot, pod)
        shape = pod.shape
        if shape.affinity and not any(self._concerns_gang(term.scope) for term in shape.affinity):
            mask &= affinity_mask(self._snapshot, pod)
        if shape.spread and not any(self._concerns_gang(spread.scope) for spread in shape.spread):
            mask &= spread_mask(self._snapshot, pod)
        return mask

    def apart_from_itself(self, pod: PodFacts) -> bool:
        """True if two pods of this shape may not share a host."""
        return self._apart(pod, pod)

    def rather_apart(self, pod: PodFacts) -> bool:
        """True if two pods of this shape prefer different hosts."""
        return any(
            weight < 0 and term.topology_key == HOSTNAME and self._snapshot.counts.matches(term.scope, pod)
            for weight, term in pod.shape.preferred_pods
        )

    def conflicts(self, firsts: Sequence[PodFacts]) -> list[list[int]]:
        """For each of these pods, which of the others may not share a host with it."""
        if not any(pod.shape.ports or pod.shape.anti_affinity for pod in firsts):
            return [[] for _ in firsts]
        return [[j for j, b in enumerate(firsts) if i != j and self._apart(a, b)] for i, a in enumerate(firsts)]

    def _apart(self, a: PodFacts, b: PodFacts) -> bool:
        if any(mine.clashes(theirs) for mine in a.shape.ports for theirs in b.shape.ports):
            return True
        return self._minds(a, b) or self._minds(b, a)

    def _minds(self, a: PodFacts, b: PodFacts) -> bool:
        return any(
            term.topology_key == HOSTNAME and self._snapshot.counts.matches(term.scope, b)
            for term in a.shape.anti_affinity
        )

    def _concerns_gang(self, scope: PodScope) -> bool:
        return any(self._snapshot.counts.matches(scope, pods[0]) for pods in self._firsts)

    def _is_coupled(self) -> bool:
        for pods in self._firsts:
            shape = pods[0].shape
            if any(self._concerns_gang(term.scope) for term in shape.affinity):
                return True
            if any(self._concerns_gang(spread.scope) for spread in shape.spread):
                return True
            for term in shape.anti_affinity:
                if self._concerns_gang(term.scope) and not (term.topology_key == HOSTNAME and self._one_node_a_host()):
                    return True
        return False

    def _one_node_a_host(self) -> bool:
        table = self._snapshot.nodes
        ids = table.column(HOSTNAME).ids[: table.rows][table.alive[: table.rows]]
        return bool((ids >= 0).all()) and np.unique(ids).size == ids.size
