"""Why nodes say no, as values with numbers: what `NoFit` carries and the first part of an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import filters, pinned_rows
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import (
    FILTERED,
    HELD,
    INSUFFICIENT,
    NODES_FOR,
    ONE_MORE,
    OUTSIDE_BASE,
    SCORED,
    WANTS,
    Reason,
)


def node_counts(
    snapshot: Snapshot, gang: Gang, pod: PodFacts, closed: Iterable[str] = ()
) -> tuple[int, tuple[Reason, ...]]:
    """Nodes that could take a pod of the gang, and for the rest the first thing each fails by, most frequent first.

    Nodes in `closed` are held for others; those that would do otherwise are counted as that, last.
    """
    table = snapshot.nodes
    standing = table.alive[: table.rows].copy()
    found: list[Reason] = []
    pinned = pinned_rows(snapshot, gang)
    if pinned is not None:
        inside, where = pinned
        _count(found, OUTSIDE_BASE, where, int((standing & ~inside).sum()))
        standing &= inside
    for word, passed in filters(snapshot, pod):
        _count(found, INSUFFICIENT if word in snapshot.resources else FILTERED, word, int((standing & ~passed).sum()))
        standing &= passed
    held = [table.row_of[name] for name in closed if name in table.row_of and standing[table.row_of[name]]]
    _count(found, HELD, "", len(held))
    found.sort(key=lambda one: (-one.number("nodes"), one.kind, one.subject))
    return int(standing.sum()) - len(held), tuple(found)


def _count(found: list[Reason], kind: str, subject: str, nodes: int) -> None:
    if nodes:
        found.append(Reason(kind, subject, {"nodes": nodes}))


def nodes_for_groups(snapshot: Snapshot, gang: Gang, closed: Iterable[str] = ()) -> list[Reason]:
    """For each group that needs pods, how many nodes can take one, and what stops the others."""
    total = len(snapshot.nodes.row_of)
    closed = tuple(closed)
    found = []
    for group in gang.groups():
        if group.need and group.pods:
            fit, why = node_counts(snapshot, gang, group.pods[0], closed)
            found.append(Reason(NODES_FOR, group.name, {"fit": fit, "nodes": total}, parts=why))
    return found


def room_reason(kind: str, snapshot: Snapshot, gang: Gang, closed: Iterable[str] = ()) -> Reason:
    """What the gang asks in total and what the nodes have, and why nodes fall out, for its hardest group."""
    groups = sorted(nodes_for_groups(snapshot, gang, closed), key=lambda one: one.number("fit"))
    scarce = scarcest(snapshot, gang)
    return Reason(kind, parts=(*([scarce] if scarce else ()), *groups[:1]))


def surplus_reason(snapshot: Snapshot, gang: Gang, pod: PodFacts) -> Reason:
    """Why a pod above its gang's minimum has no node."""
    if refusal := snapshot.seams.refusal(snapshot, gang, [pod]):
        return refusal
    fit, why = node_counts(snapshot, gang, pod)
    return Reason(ONE_MORE, gang.name, {"fit": fit, "nodes": len(snapshot.nodes.row_of)}, parts=why)


def scores_of(snapshot: Snapshot, placement: Placement) -> Iterator[Reason]:
    """What each score that has a say thinks of a placement, beside the most it could have given."""
    row_of = snapshot.nodes.row_of
    for score in snapshot.seams.scores:
        columns = {shape: score.rows(snapshot, shape) for shape in {pod.shape for pod in placement.pods}}
        given = [(column, pod.node) for pod in placement.pods if (column := columns[pod.shape]) is not None]
        if given:
            got = sum(int(column[row_of[node]]) for column, node in given)
            yield Reason(SCORED, score.name, {"got": got, "most": sum(int(column.max()) for column, _ in given)})


def scarcest(snapshot: Snapshot, gang: Gang) -> Reason | None:
    """The resource of which the gang wants the largest share of what is free, in numbers."""
    wanted: dict[str, int] = {}
    for group in gang.groups():
        for pod in group.pods[: group.need]:
            for name, amount in pod.shape.requests:
                wanted[name] = wanted.get(name, 0) + amount
    worst, found = -1.0, None
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
            found = Reason(WANTS, name, {"wanted": amount, "free": free}, {"where": where})
    return found
