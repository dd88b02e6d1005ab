"""Which nodes to hold for a gang that waited too long, or was overtaken.

They are the nodes where the gang would fit if everything that can end there ended. The least occupied come first, so
that the wait is short. Pods that are always restarted may stay for ever. So a node comes before others if the gang
would fit there once the pods that end by themselves have ended. The choice is made again when capacity became free and
was not enough, and when another unit took a free held node. A new choice replaces the old one only if at least as
many of its nodes are free.

What sources keep for its owners, what daemons use, and the gang's own pods on nodes never end. If the gang would not
fit even then, nothing is held.

Pods that end also give back devices and host ports, and the gang need not keep apart from them any more. Whether the
gang has the neighbours that it requires (pod affinity) is judged by the pods that run now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.victims import Vacancies, vacancies_of
from grove.scheduler.filters.fit import allowed_mask, looks_at_running_pods
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import PodFacts, Requests, Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place_admitted

SCALE = 1000


def may_be_used(snapshot: Snapshot, node: str, shapes: Collection[Shape]) -> bool:
    """True if the node exists and its filters allow a pod of one of these shapes. Free amounts do not count."""
    row = snapshot.nodes.row_of.get(node)
    return row is not None and any(bool(allowed_mask(snapshot, shape)[row]) for shape in shapes)


Uses = Sequence[tuple[str, Requests]]
"""What pods use, with the nodes where they are."""


def free_nodes(
    snapshot: Snapshot, nodes: Iterable[str], own: Sequence[PodFacts], open_uids: Collection[str] = ()
) -> int:
    """How many of these nodes nothing occupies that can end; `own` pods of the gang stay, `open_uids` do not count."""
    kept = [*_uses(own), *(item for source in snapshot.seams.sources for item in source.kept().items())]
    now = snapshot.without(open_uids)
    occupied = _occupied(now, _emptied(now, kept))
    row_of = now.nodes.row_of
    return sum(1 for node in nodes if (row := row_of.get(node)) is not None and not occupied[row])


Question = Callable[[Snapshot, Budget], Placement | NoFit]


def nodes_to_hold(snapshot: Snapshot, gang: Gang, others: Collection[str], own: Sequence[PodFacts]) -> Question:
    """Which nodes to hold for a gang, as a question about the snapshot; `others` are held for other units.

    `own` pods of the gang are on nodes and stay there.
    """
    sources = snapshot.seams.sources
    kept = [*_uses(own), *(item for source in sources for item in source.kept().items())]
    stay = frozenset(pod.uid for pod in own).union(*(source.staying_pods() for source in sources))
    gone = _gone(snapshot, gang, lambda uid: uid not in stay)

    def choose(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
        return _choose(snapshot, gang, budget, others, _emptied(snapshot, kept), gone)

    return choose


def nodes_of_ending_pods(
    snapshot: Snapshot, gang: Gang, others: Collection[str], own: Sequence[PodFacts]
) -> Question | None:
    """The same, where only pods go that end by themselves; None if there are no such pods.

    `own` are those of the gang itself that would end by themselves.
    """
    sources = snapshot.seams.sources
    ending = [item for source in sources for item in source.ending().items()]
    if not ending:
        return None
    end = frozenset[str]().union(*(source.ending_pods() for source in sources)) - {pod.uid for pod in own}
    gone = _gone(snapshot, gang, end.__contains__)

    def choose(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
        _meet(snapshot, (*ending, *_uses(own)))
        emptied = snapshot.free.copy()
        _add(snapshot, emptied, ending, 1)
        _add(snapshot, emptied, _uses(own), -1)
        return _choose(snapshot, gang, budget, others, emptied, gone)

    return choose


def looks_beyond_amounts(snapshot: Snapshot, gang: Gang) -> bool:
    """True if more of running pods matters to the gang than the amounts that they use: devices, ports or neighbours."""
    return _needs_counted(snapshot, gang) or looks_at_running_pods(snapshot, gang)


def may_be_worth_later(snapshot: Snapshot, gang: Gang) -> bool:
    """True if nodes may be worth holding later although no node changes: with other pods or free devices there."""
    is_near = any(pod.shape.affinity for group in gang.groups() for pod in group.pods)
    return is_near or bool(gang.spreads) or _needs_counted(snapshot, gang)


def _needs_counted(snapshot: Snapshot, gang: Gang) -> bool:
    """True if sources count what the gang requests."""
    counted = tuple(source.counts for source in snapshot.seams.sources if source.counts)
    shapes = {pod.shape for group in gang.groups() for pod in group.pods}
    asked = (item for shape in shapes for requests in (shape.requests, *shape.alternatives) for item in requests)
    return any(name.startswith(counted) for name, _ in asked)


class Gone(NamedTuple):
    """Pods that are gone before a gang comes to which more than their amounts matters."""

    goes: Callable[[str], bool]
    """Whether a pod of this uid is one of them."""
    departed: Mapping[str, Sequence[str]]
    """By node, uids of pods that are gone already, and whose devices are given back a moment later."""
    vacancies: Vacancies

    def devices(self, pods: Iterable[PodFacts]) -> list[tuple[str, Requests]]:
        """What sources count as free, by node, once these and the departed pods are gone."""
        uids = {node: list(departed) for node, departed in self.departed.items()}
        for pod in pods if self.vacancies else ():
            uids.setdefault(pod.node, []).append(pod.uid)
        freed = ((node, self.vacancies.freed(node, here)) for node, here in uids.items())
        return [(node, tuple(sorted(amounts.items()))) for node, amounts in freed if amounts]


def _gone(snapshot: Snapshot, gang: Gang, goes: Callable[[str], bool]) -> Gone | None:
    if not looks_beyond_amounts(snapshot, gang):
        return None
    departed: dict[str, list[str]] = {}
    for source in snapshot.seams.sources:
        for node, uids in source.departed_pods().items():
            departed.setdefault(node, []).extend(uids)
    return Gone(goes, departed, vacancies_of(snapshot, gang, snapshot.nodes.row_of.keys))


def _choose(
    snapshot: Snapshot, gang: Gang, budget: Budget, others: Collection[str], emptied: Ints, gone: Gone | None
) -> Placement | NoFit:
    alone = snapshot
    if gone is not None:
        pods = sorted((pod for pod in snapshot.pods() if gone.goes(pod.uid)), key=lambda pod: pod.uid)
        devices = gone.devices(pods)
        _meet(snapshot, devices)
        emptied = np.pad(emptied, ((0, len(snapshot.resources) - len(emptied)), (0, 0)))
        _add(snapshot, emptied, devices, 1)
        alone = snapshot.without(_in_the_way(snapshot, gang, pods))
    return place_admitted(alone, gang, budget, sorted(others), emptied, _occupied(snapshot, emptied))


def _in_the_way(snapshot: Snapshot, gang: Gang, pods: Iterable[PodFacts]) -> list[str]:
    """Uids of those pods that keep the gang off nodes by ports, anti-affinity or spread."""
    firsts = {pod.shape: pod for group in gang.groups() for pod in group.pods}
    matches, against = (
        snapshot.counts.matches,
        {term for pod in firsts.values() for term in snapshot.counts.terms_against(pod)},
    )
    ports = {port for shape in firsts for port in shape.ports}
    apart = {term.scope for shape in firsts for term in shape.anti_affinity}
    apart |= {spread.scope for shape in firsts for spread in shape.spread}
    near = {term.scope for shape, first in firsts.items() for term in shape.affinity if not matches(term.scope, first)}

    def keeps_off(pod: PodFacts) -> bool:
        return (
            any(matches(scope, pod) for scope in apart)
            or not against.isdisjoint(pod.shape.anti_affinity)
            or any(mine.clashes(theirs) for mine in ports for theirs in pod.shape.ports)
        )

    return [pod.uid for pod in pods if keeps_off(pod) and not any(matches(scope, pod) for scope in near)]


def _uses(pods: Iterable[PodFacts]) -> Uses:
    return [(pod.node, pod.shape.requests) for pod in pods]


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
    # Sources count as allocatable what is free now.
    shares: Ints = (SCALE * used // np.maximum(np.maximum(snapshot.allocatable, emptied), 1)).max(axis=0)
    return shares
