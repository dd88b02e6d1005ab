"""Nodes held for a gang that waited too long, or was overtaken: others who come later in the queue may not use them.

Chosen as the nodes where the gang would fit if everything that can end there ended, least occupied first, so that the
wait is short; chosen anew when room came and was not enough, so that what became free first is kept. What sources keep
for its owners, and what daemons use, never ends. A gang that would not fit then either is held nothing for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

import msgspec
import numpy as np

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import Requests
from grove.scheduler.model.gang import Gang
from grove.scheduler.policy.queue import Order
from grove.scheduler.solve.place import place_on

SCALE = 1000


class Hold(msgspec.Struct, frozen=True):
    """Nodes held for a gang, since when, and whether because others overtook it."""

    gang: str
    order: Order
    nodes: Mapping[str, object]
    """By name, as they looked when they were chosen."""
    since: datetime
    overtaken: bool

    def has_lost(self, snapshot: Snapshot) -> bool:
        """Whether one of the nodes has gone or became another: holding the others alone helps nobody."""
        return any(looks_of(snapshot, node) != looks for node, looks in self.nodes.items())


def looks_of(snapshot: Snapshot, node: str) -> object:
    """What of a node decides whether it is still the one that was chosen: its taints; None if it is not there."""
    row = snapshot.nodes.row_of.get(node)
    facts = snapshot.nodes.facts[row] if row is not None else None
    return facts.taints if facts is not None else None


def nodes_to_hold(
    snapshot: Snapshot, gang: Gang, budget: Budget, others: Collection[str]
) -> Callable[[Snapshot], Placement | NoFit]:
    """Which nodes to hold for a gang, as a question about the snapshot; `others` are held for somebody else."""
    kept = [item for source in snapshot.seams.sources for item in source.kept().items()]

    def choose(snapshot: Snapshot) -> Placement | NoFit:
        emptied = _emptied(snapshot, kept)
        return place_on(snapshot, gang, budget, sorted(others), emptied, _occupied(snapshot, emptied))

    return choose


def _emptied(snapshot: Snapshot, kept: Iterable[tuple[str, Requests]]) -> Ints:
    """What would be free if everything that can end did."""
    rows: dict[Requests, list[int]] = {}
    for node, requests in kept:
        if (row := snapshot.nodes.row_of.get(node)) is not None:
            rows.setdefault(requests, []).append(row)
    taken = [(at, snapshot.amounts(requests)) for requests, at in rows.items()]  # resources may be met here first
    free = snapshot.allocatable.copy()
    for at, amounts in taken:
        for resource, amount in amounts:
            np.subtract.at(free[resource], at, amount)
    return free


def _occupied(snapshot: Snapshot, emptied: Ints) -> Ints:
    """By row, the largest share of any resource that is in use and would come free, in thousandths."""
    used = np.maximum(emptied - snapshot.free, 0)
    shares: Ints = (SCALE * used // np.maximum(snapshot.allocatable, 1)).max(axis=0)
    return shares
