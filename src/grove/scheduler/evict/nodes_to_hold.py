"""Which nodes to hold for a gang that waited too long, or was overtaken.

They are the nodes where the gang would fit if everything that can end there ended. The least occupied come first, so
that the wait is short. Pods that are always restarted may stay for ever. So a node comes before others if the gang
would fit there once the pods that end by themselves have ended. The choice is made again when capacity became free and
was not enough, and when another unit took a free held node. A new choice replaces the old one only if at least as
many of its nodes are free.

What sources keep for its owners, what daemons use, and the gang's own pods on nodes never end. If the gang would not
fit even then, nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import Requests, Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place_admitted

SCALE = 1000


def may_be_used(snapshot: Snapshot, node: str, shapes: Collection[Shape]) -> bool:
    """True if the node exists and its filters allow a pod of one of these shapes. Free amounts do not count."""
    row = snapshot.nodes.row_of.get(node)
    return row is not None and any(bool(allowed_mask(snapshot, shape)[row]) for shape in shapes)


Uses = Sequence[tuple[str, Requests]]
"""What pods use, with the nodes where they are."""


def free_nodes(snapshot: Snapshot, nodes: Iterable[str], own: Uses, open_uids: Collection[str] = ()) -> int:
    """How many of these nodes nothing occupies that can end; `own` pods of the gang stay, `open_uids` do not count."""
    kept = [*own, *(item for source in snapshot.seams.sources for item in source.kept().items())]
    now = snapshot.without(open_uids)
    occupied = _occupied(now, _emptied(now, kept))
    row_of = now.nodes.row_of
    return sum(1 for node in nodes if (row := row_of.get(node)) is not None and not occupied[row])


Question = Callable[[Snapshot, Budget], Placement | NoFit]


def nodes_to_hold(snapshot: Snapshot, gang: Gang, others: Collection[str], own: Uses) -> Question:
    """Which nodes to hold for a gang, as a question about the snapshot; `others` are held for other units.

    `own` pods of the gang are on nodes and stay there.
    """
    kept = [*own, *(item for source in snapshot.seams.sources for item in source.kept().items())]

    def choose(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
        emptied = _emptied(snapshot, kept)
        return place_admitted(snapshot, gang, budget, sorted(others), emptied, _occupied(snapshot, emptied))

    return choose


def nodes_of_ending_pods(snapshot: Snapshot, gang: Gang, others: Collection[str], own: Uses) -> Question | None:
    """The same, where only pods go that end by themselves; None if there are no such pods.

    `own` are those of the gang itself that would end by themselves.
    """
    ending = [item for source in snapshot.seams.sources for item in source.ending().items()]

    def choose(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
        _meet(snapshot, (*ending, *own))
        emptied = snapshot.free.copy()
        _add(snapshot, emptied, ending, 1)
        _add(snapshot, emptied, own, -1)
        return place_admitted(snapshot, gang, budget, sorted(others), emptied, _occupied(snapshot, emptied))

    return choose if ending else None


def _emptied(snapshot: Snapshot, kept: Iterable[tuple[str, Requests]]) -> Ints:
    """The free amounts if every pod that can end has ended."""
    _meet(snapshot, kept)
    free = snapshot.allocatable.copy()
    _add(snapshot, free, kept, -1)
    return free


def _add(snapshot: Snapshot, amounts: Ints, of_nodes: Iterable[tuple[str, Requests]], sign: int) -> None:
    """Adds what each node has of these, or subtracts it."""
    rows: dict[Requests, list[int]] = {}
    for node, requests in of_nodes:
        if (row := snapshot.nodes.row_of.get(node)) is not None:
            rows.setdefault(requests, []).append(row)
    for requests, at in rows.items():
        for resource, amount in snapshot.amounts(requests):
            np.add.at(amounts[resource], at, sign * amount)


def _meet(snapshot: Snapshot, of_nodes: Iterable[tuple[str, Requests]]) -> None:
    """Adds resources to the snapshot that are met here first."""
    for requests in {requests for _, requests in of_nodes}:
        snapshot.amounts(requests)


def _occupied(snapshot: Snapshot, emptied: Ints) -> Ints:
    """By row, the largest share of any resource that is in use and would come free, in thousandths."""
    used = np.maximum(emptied - snapshot.free, 0)
    shares: Ints = (SCALE * used // np.maximum(snapshot.allocatable, 1)).max(axis=0)
    return shares
