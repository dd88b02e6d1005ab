"""Why nodes say no, in words and numbers: the text behind `NoFit` and the first part of an explanation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from grove.api.quantity import format_amount
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import filters
from grove.scheduler.filters.scope import pinned_rows
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang


@dataclass(frozen=True, slots=True)
class NodeCount:
    """How many nodes fall to one filter that passed all filters before it."""

    reason: str
    nodes: int


def node_counts(
    snapshot: Snapshot, gang: Gang, pod: PodFacts, closed: Iterable[str] = ()
) -> tuple[int, list[NodeCount]]:
    """Nodes that could take a pod of the gang, and for the rest the first filter each fails, most frequent first."""
    table = snapshot.nodes
    standing = table.alive[: table.rows].copy()
    for name in closed:
        if name in table.row_of:
            standing[table.row_of[name]] = False
    counts: list[NodeCount] = []
    pinned = pinned_rows(snapshot, gang)
    if pinned is not None:
        inside, where = pinned
        counts.append(NodeCount(f"outside {where}, where its base gang is", int((standing & ~inside).sum())))
        standing &= inside
    for reason, passed in filters(snapshot, pod):
        fallen = int((standing & ~passed).sum())
        if fallen:
            text = f"insufficient {reason}" if reason in snapshot.resources else reason
            counts.append(NodeCount(text, fallen))
        standing &= passed
    return int(standing.sum()), sorted(counts, key=lambda c: (-c.nodes, c.reason))


def room_text(snapshot: Snapshot, gang: Gang, closed: Iterable[str] = ()) -> str:
    """What the gang asks in total and what the nodes have, and why nodes fall out, for its hardest group."""
    total = len(snapshot.nodes.row_of)
    lines = []
    for group in gang.groups():
        if group.need == 0 or not group.pods:
            continue
        fits, counts = node_counts(snapshot, gang, group.pods[0], closed)
        why = ", ".join(f"{c.nodes} {c.reason}" for c in counts) or "no reason by itself"
        lines.append((fits, f"{group.name}: {fits}/{total} nodes can take one of its pods ({why})"))
    lines.sort(key=lambda line: line[0])
    scarce = scarcest(snapshot, gang)
    head = f"{scarce}; " if scarce else ""
    return head + (lines[0][1] if lines else "nothing to place")


def surplus_text(snapshot: Snapshot, gang: Gang, pod: PodFacts) -> str:
    """Why a pod above its gang's minimum has no node."""
    fits, counts = node_counts(snapshot, gang, pod)
    why = ", ".join(f"{c.nodes} {c.reason}" for c in counts) or "none of them where its gang may be"
    return f"{fits}/{len(snapshot.nodes.row_of)} nodes can take one more pod of the gang ({why})"


def scarcest(snapshot: Snapshot, gang: Gang) -> str:
    """The resource of which the gang wants the largest share of what is free, in numbers."""
    wanted: dict[str, int] = {}
    for group in gang.groups():
        for pod in group.pods[: group.need]:
            for name, amount in pod.shape.requests:
                wanted[name] = wanted.get(name, 0) + amount
    worst, text = -1.0, ""
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
            text = f"wants {format_amount(name, amount)} {name}, {format_amount(name, free)} free in {where}"
    return text
