"""Nodes held for gangs that waited too long, or were overtaken: others who come later in the queue may not use them.

Chosen as the nodes where the gang would fit if everything that can end there ended, least occupied first, so that the
wait is short; chosen anew when room came and was not enough, so that what became free first is kept. What sources keep
for its owners, and what daemons use, never ends. A gang that would not fit then either is held nothing for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import structlog

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import Requests
from grove.scheduler.model.gang import Gang
from grove.scheduler.policy.queue import Order
from grove.scheduler.solve.place import place_on

log = structlog.get_logger(__name__)

SCALE = 1000


@dataclass(frozen=True, slots=True)
class Hold:
    """Nodes held for a gang, since when, and whether because others overtook it."""

    gang: str
    order: Order
    nodes: frozenset[str]
    since: datetime
    overtaken: bool = False


class Holds:
    def __init__(self, snapshot: Snapshot, budget: Budget) -> None:
        self._snapshot, self._budget = snapshot, budget
        self._held: dict[str, Hold] = {}
        self._looks: dict[str, dict[str, object]] = {}
        """Taints of held nodes when they were chosen, by gang and node."""
        self._hopeless: dict[str, int] = {}
        """Gangs that no emptying would help, with the version of the nodes that was found at."""

    def __contains__(self, name: str) -> bool:
        return name in self._held or self._hopeless.get(name) == self._snapshot.nodes.version

    def find(self, name: str) -> Hold | None:
        return self._held.get(name)

    def names(self) -> list[str]:
        return sorted(self._held)

    def closed_for(self, name: str, order: Order) -> dict[str, Hold]:
        """Nodes that are held for somebody who comes before this unit."""
        return {
            node: hold
            for holder, hold in self._held.items()
            if holder != name and hold.order < order
            for node in hold.nodes
        }

    def choice(self, name: str, gang: Gang) -> Callable[[Snapshot], Placement | NoFit]:
        """What nodes to hold for a gang, as a question to the core."""
        others = sorted({node for holder, hold in self._held.items() if holder != name for node in hold.nodes})
        budget = self._budget
        kept = [item for source in self._snapshot.seams.sources for item in source.kept().items()]

        def choose(snapshot: Snapshot) -> Placement | NoFit:
            emptied = _emptied(snapshot, kept)
            return place_on(snapshot, gang, budget, others, emptied, _occupied(snapshot, emptied))

        return choose

    def take(
        self, name: str, order: Order, answer: Placement | NoFit, since: datetime, *, overtaken: bool = False
    ) -> Hold | None:
        """Holds the nodes that were chosen; None if nothing that could end would make room for the gang."""
        if isinstance(answer, NoFit):
            self.drop(name)
            self._hopeless[name] = self._snapshot.nodes.version
            return None
        nodes = frozenset(pod.node for pod in answer.pods[: answer.core])
        known = self._held.get(name)
        if known is None:
            log.info("nodes held for a gang that waits", gang=name, nodes=len(nodes), overtaken=overtaken)
            known = Hold(name, order, nodes, since, overtaken)
        found = self._held[name] = replace(known, order=order, nodes=nodes)
        self._looks[name] = {node: self._look(node) for node in nodes}
        return found

    def drop(self, name: str) -> bool:
        """Lets go of what was held; whether there was anything."""
        self._hopeless.pop(name, None)
        self._looks.pop(name, None)
        return self._held.pop(name, None) is not None

    def reconsider(self) -> None:
        """Something changed that may help anybody: who was held nothing for may be now."""
        self._hopeless.clear()

    def has_lost(self, name: str) -> bool:
        """Whether a node that is held for a gang has gone or became another: holding the others alone helps nobody."""
        return any(self._look(node) != look for node, look in self._looks.get(name, {}).items())

    def _look(self, node: str) -> object:
        row = self._snapshot.nodes.row_of.get(node)
        facts = self._snapshot.nodes.facts[row] if row is not None else None
        return facts.taints if facts is not None else None


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
