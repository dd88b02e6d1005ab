"""Bounds for pods that look at their own kind: how many of them fit beside each other, whatever the order.

Apart by a label: one a domain. Near by a label, with nobody there yet: all in one domain. Spread: no domain gets more
than the least roomy one allows. Each holds for every placement, so a group that fails one has none.
"""

from __future__ import annotations

import numpy as np

from grove.scheduler.cluster.nodes import Ids, Ints, Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.interpod import pods_by_domain
from grove.scheduler.model.facts import PodFacts, PodScope, Spread


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
