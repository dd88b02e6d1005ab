"""Which nodes a pod may go to, and how much it would like each: the snapshot's filters and scores, put together.

What lasts (see `NodeFilter`) is cached until a node changes. Capacity, ports and neighbours are computed when asked.
`feasible_nodes` is all of it together and equals kube-scheduler's answer. `open_rows` is what is open to a whole gang:
allowed domains, pinned domain, held nodes. Requests of its pods do not count there. `capacity_reason` gives the numbers
of nodes that are excluded, by reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.pod_relations import affinity_mask, anti_affinity_mask, spread_mask
from grove.scheduler.model.facts import PodFacts, Requests, Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import FILTERED, HELD, INSUFFICIENT, NEEDS, NODES_FOR, ONE_MORE, OUTSIDE_BASE, Reason

PLENTY = 2**40
"""Capacity of a node for a pod that asks for nothing limited."""


def feasible_nodes(snapshot: Snapshot, pod: PodFacts) -> list[str]:
    """Names, sorted, of the nodes where this pod could be bound now."""
    mask = snapshot.nodes.alive[: snapshot.nodes.rows].copy()
    for _, passed in filters(snapshot, pod):
        mask &= passed
    return sorted(snapshot.nodes.names(np.flatnonzero(mask)))


def filters(snapshot: Snapshot, pod: PodFacts) -> Iterator[tuple[str, Mask]]:
    """Each filter under the name of its failure, with the rows that pass it; then capacity, then neighbours."""
    shape, rows = pod.shape, snapshot.nodes.rows
    for filter_ in snapshot.seams.filters:
        if filter_.looks_at(shape) is not None:
            yield from filter_.rows_by_word(snapshot, shape)
    for r, amount in snapshot.amounts(shape.requests):
        if amount > 0:
            passed = snapshot.free[r, :rows] >= amount
            for other in shape.alternatives:
                passed = passed | fits_mask(snapshot, other)
            yield snapshot.resources[r], passed
    if shape.affinity:
        yield "pod affinity", affinity_mask(snapshot, pod)
    yield "pod anti-affinity", anti_affinity_mask(snapshot, pod)
    if shape.spread:
        yield "topology spread", spread_mask(snapshot, pod)


def allowed_mask(snapshot: Snapshot, shape: Shape, *, but: str = "") -> Mask:
    """Rows that pass every filter that lasts, whatever is running there. Not to be written to.

    `but` names a filter to leave out.
    """

    def passing() -> Mask:
        mask = snapshot.nodes.alive[: snapshot.nodes.rows].copy()
        for filter_ in snapshot.seams.filters:
            if filter_.lasts and filter_.name != but and filter_.looks_at(shape) is not None:
                mask &= filter_.rows(snapshot, shape)
        return mask

    derived = snapshot.nodes.derived

    # Shapes keep their hash, so a second question about one is a look-up. Shapes alike to the filters share a mask.
    def shared() -> Mask:
        looked_at = [filter_.looks_at(shape) for filter_ in snapshot.seams.filters if filter_.lasts]
        return derived(("allowed", but, *looked_at), passing)

    return derived((shape, but), shared)


def open_mask(snapshot: Snapshot, shape: Shape) -> Mask:
    """Rows that pass every filter now, those that look at running pods included. Not to be written to."""
    mask = allowed_mask(snapshot, shape)
    for filter_ in snapshot.seams.filters:
        if not filter_.lasts and filter_.looks_at(shape) is not None:
            mask = mask & filter_.rows(snapshot, shape)
    return mask


def suitability(snapshot: Snapshot, shape: Shape) -> Ints | None:
    """How much a pod would like each row: the scores times their weights; None if all rows are alike to it."""
    total: Ints | None = None
    for score in snapshot.seams.scores:
        weight = snapshot.seams.weights.get(score.name, 1)
        column = score.rows(snapshot, shape) if weight else None
        if column is not None:
            total = weight * column if total is None else total + weight * column
    return total


def fits_mask(snapshot: Snapshot, requests: Requests, *, idle: bool = False) -> Mask:
    """Rows with that much of everything that is asked for: free now, or if nothing ran there."""
    mask = np.ones(snapshot.nodes.rows, dtype=np.bool_)
    for r, amount in snapshot.amounts(requests):
        if amount > 0:
            mask &= (snapshot.allocatable if idle else snapshot.free)[r, : mask.size] >= amount
    return mask


def pod_slots(free: Ints, request: Ints) -> Ints:
    """How many pods with this request each column of `free` (resource by node) holds."""
    slots: Ints | None = None
    for r, amount in enumerate(request.tolist()):
        if amount <= 0:
            continue
        # Most pods ask for one of what is scarce; dividing by one is the dearest copy there is.
        held = free[r] if amount == 1 else free[r] // amount
        slots = held if slots is None else np.minimum(slots, held)
    if slots is None:
        return np.full(free.shape[1], PLENTY, dtype=np.int64)
    return np.maximum(slots, 0)


def looks_at_running_pods(snapshot: Snapshot, gang: Gang) -> bool:
    """True if running pods may keep the gang off nodes by more than their amounts: by ports, affinity or spread."""
    firsts = {pod.shape: pod for group in gang.groups() for pod in group.pods}
    return (
        bool(gang.spreads)
        or any(
            shape.sees_pods
            or shape.preferred_pods
            or any(not filter_.lasts and filter_.looks_at(shape) is not None for filter_ in snapshot.seams.filters)
            for shape in firsts
        )
        or any(snapshot.counts.terms_against(pod) for group in gang.groups() for pod in group.pods)
    )


class Freed(NamedTuple):
    """What is free without some pods."""

    rows: frozenset[int]
    """Their nodes."""
    gained: tuple[int, ...]
    """For how many more pods of each counted group."""


class CapacityWithout:
    """How many pods of each group the nodes could hold without some of those that run, by amounts alone.

    A count that no placement can beat, at a fraction of what trying one costs. Groups of unlike pods are not counted.
    """

    def __init__(self, snapshot: Snapshot, gang: Gang) -> None:
        self._snapshot = snapshot
        self._column_of = cache(snapshot.column_of)
        self._groups: list[tuple[int, Ints, Ints]] = []
        """Pods that have no capacity now, what one asks for, and how many each row holds."""
        for group in gang.groups():
            kinds = {(pod.shape.requests, *pod.shape.alternatives) for pod in group.pods if group.need}
            if len(kinds) == 1 and not group.pods[0].shape.alternatives:
                request = self._column_of(group.pods[0].shape.requests)
                held = pod_slots(snapshot.free, request)
                self._groups.append((group.need - int(held.sum()), request, held))

    def may_suffice(self, gone: Iterable[PodFacts]) -> bool:
        """True if every group may have capacity somewhere. False is certain."""
        return self.suffices(self.without(gone))

    def without(self, gone: Iterable[PodFacts]) -> Freed:
        """How many more pods of each group there is capacity for without these pods."""
        freed: dict[int, Ints] = {}
        for pod in gone:
            row = self._snapshot.nodes.row_of.get(pod.node)
            if row is not None:
                freed[row] = freed.get(row, self._snapshot.free[:, row]) + self._column_of(pod.shape.requests)
        if not freed:
            return Freed(frozenset(), (0,) * len(self._groups))
        rows, free = list(freed), np.array(list(freed.values())).T
        gained = tuple(int((pod_slots(free, request) - held[rows]).sum()) for _, request, held in self._groups)
        return Freed(frozenset(rows), gained)

    def suffices(self, freed: Freed) -> bool:
        """True if every group may have capacity with what is freed. False is certain."""
        if not freed.rows:
            return False
        return all(more >= missing for more, (missing, _, _) in zip(freed.gained, self._groups, strict=True))


def open_rows(snapshot: Snapshot, gang: Gang, closed: Collection[str]) -> Mask | None:
    """Rows open to the gang; None is all. `closed` are nodes held for others."""
    if not gang.allowed and not closed and gang.pinned_domain is None:
        return None
    table = snapshot.nodes
    mask = table.alive[: table.rows].copy()
    for key, values in gang.allowed:
        column = table.column(key)
        mask &= column.spread([value in values for value in column.values], False, table.rows)
    for name in closed:
        if name in table.row_of:
            mask[table.row_of[name]] = False
    pinned = pinned_rows(snapshot, gang)
    return mask if pinned is None else mask & pinned[0]


def pinned_rows(snapshot: Snapshot, gang: Gang) -> tuple[Mask, str] | None:
    """The nodes of the domain a gang is pinned to, and its name; None for a gang that is free to go anywhere."""
    pin = gang.pinned_domain
    if pin is None:
        return None
    tree = snapshot.tree(gang.keys(), gang.topology)
    inside = np.zeros(snapshot.nodes.rows, dtype=np.bool_)
    level, row = tree.find_level(pin.key), snapshot.nodes.row_of.get(pin.node)
    domain = -1 if level is None or row is None else tree.domain_of(row, level)
    if level is None or domain < 0:
        return inside, f"the domain of node {pin.node}"  # the node or the level is gone
    inside[tree.rows_in(level, domain)] = True
    return inside, snapshot.domain_name(tree, level, domain)


def node_counts(
    snapshot: Snapshot, gang: Gang, pod: PodFacts, closed: Iterable[str] = ()
) -> tuple[int, tuple[Reason, ...]]:
    """Nodes that could take a pod of the gang, and for the rest the first thing each fails by, most frequent first.

    Nodes in `closed` are held for others; those that would do otherwise are counted as that, last.
    """
    table = snapshot.nodes
    standing = table.alive[: table.rows].copy()
    reasons: list[Reason] = []
    pinned = pinned_rows(snapshot, gang)
    if pinned is not None:
        inside, where = pinned
        _count(reasons, OUTSIDE_BASE, where, int((standing & ~inside).sum()))
        standing &= inside
    for word, passed in filters(snapshot, pod):
        _count(reasons, INSUFFICIENT if word in snapshot.resources else FILTERED, word, int((standing & ~passed).sum()))
        standing &= passed
    held = [table.row_of[name] for name in closed if name in table.row_of and standing[table.row_of[name]]]
    _count(reasons, HELD, "", len(held))
    reasons.sort(key=lambda reason: (-reason.number("nodes"), reason.kind, reason.subject))
    return int(standing.sum()) - len(held), tuple(reasons)


def _count(reasons: list[Reason], kind: str, subject: str, nodes: int) -> None:
    if nodes:
        reasons.append(Reason(kind, subject, {"nodes": nodes}))


def nodes_for_groups(snapshot: Snapshot, gang: Gang, closed: Iterable[str] = ()) -> list[Reason]:
    """For each group that needs pods, how many nodes can take one, and what stops the others."""
    total = len(snapshot.nodes.row_of)
    closed = tuple(closed)
    reasons = []
    for group in gang.groups():
        if group.need and group.pods:
            fit, why = node_counts(snapshot, gang, group.pods[0], closed)
            reasons.append(Reason(NODES_FOR, group.name, {"fit": fit, "nodes": total}, parts=why))
    return reasons


def capacity_reason(kind: str, snapshot: Snapshot, gang: Gang, closed: Iterable[str] = ()) -> Reason:
    """The gang's total requests beside the nodes' capacity, and for its hardest group why nodes are excluded."""
    groups = sorted(nodes_for_groups(snapshot, gang, closed), key=lambda node: node.number("fit"))
    scarce = scarcest(snapshot, gang)
    return Reason(kind, parts=(*([scarce] if scarce else ()), *groups[:1]))


def surplus_reason(snapshot: Snapshot, gang: Gang, pod: PodFacts) -> Reason:
    """Why a pod above its gang's minimum has no node."""
    if refusal := snapshot.seams.refusal(snapshot, gang, [pod]):
        return refusal
    fit, why = node_counts(snapshot, gang, pod)
    return Reason(ONE_MORE, gang.name, {"fit": fit, "nodes": len(snapshot.nodes.row_of)}, parts=why)


def scarcest(snapshot: Snapshot, gang: Gang) -> Reason | None:
    """The resource of which the gang asks for the largest share of what is free, in numbers."""
    wanted: dict[str, int] = {}
    for group in gang.groups():
        for pod in group.pods[: group.need]:
            for name, amount in pod.shape.requests:
                wanted[name] = wanted.get(name, 0) + amount
    worst, reason = -1.0, None
    pinned = pinned_rows(snapshot, gang)
    inside, where = (slice(None), "the cluster") if pinned is None else (pinned[0], pinned[1])
    for name, amount in sorted(wanted.items()):
        free = 0
        if name in snapshot.resources:
            rows = snapshot.free[snapshot.resources.index(name), : snapshot.nodes.rows]
            free = int(np.maximum(rows[inside], 0).sum())
        share = amount / free if free else float("inf")
        if amount and share > worst:
            worst = share
            reason = Reason(NEEDS, name, {"wanted": amount, "free": free}, {"where": where})
    return reason


def has_place(snapshot: Snapshot, pods: Sequence[PodFacts]) -> bool:
    """True if all these pods fit on their nodes together, beside the pods that run there."""
    twin = snapshot.copy()
    for pod in pods:
        row = twin.nodes.row_of.get(pod.node)
        asked = twin.amounts(pod.shape.requests)
        if row is None or not allowed_mask(twin, pod.shape)[row] or any(twin.free[r, row] < n for r, n in asked):
            return False
        twin.add_pod(pod)
    return True
