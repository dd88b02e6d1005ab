"""Holds as they are written on a PodGang, and read back by the next scheduler. Pure.

`status.capacityHolds` has every hold with all its nodes and amounts. What cannot be read is a fault, which becomes an
event on the PodGang, and nothing is held for it. An older scheduler wrote conditions instead: `of_conditions` is the
one place that still understands them.

A pod without a PodGang has one node held at most. It names that node in `status.nominatedNodeName`, as pods of
kube-scheduler do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from grove.api import conditions as words
from grove.api.core import Pod
from grove.api.meta import find_condition
from grove.api.podgang import HeldAmount, HeldCapacity, PodGang
from grove.api.quantity import InvalidQuantity, amount, format_amount
from grove.scheduler.model.facts import PODS, PodFacts, Requests
from grove.scheduler.policy.gang_state import ReplacedPod
from grove.scheduler.policy.hold_ledger import CapacityHold, HoldReason

FORMER_PLACE = "FormerPlace"
"""Nodes of the gang whose place this one may take over. Nothing is held there; the list survives the other gang."""
LONG_WAIT = (HoldReason.WAITED_LONG.value, HoldReason.OVERTAKEN.value)
AMOUNTS = (HoldReason.NOMINATED, HoldReason.HEADROOM)
REASONS = (*LONG_WAIT, *(reason.value for reason in AMOUNTS), HoldReason.REPLACEMENT.value, FORMER_PLACE)
MOST, MOST_RESOURCES = 10_000, 64
"""Nodes or amounts that are read of one hold, and resources: each one adds a row to the snapshot of all nodes."""
MOST_AMOUNT = 2**48
"""Of one resource, for one pod. The sum of `MOST` such amounts is still a number that the snapshot can count."""


class ReadHolds(msgspec.Struct, frozen=True):
    """The usable part of a PodGang's hold records, and the faults of the rest."""

    waiting: HeldCapacity | None = None
    """Whole nodes that are held for a gang that waits."""
    replaced: Mapping[str, Sequence[tuple[str, Requests]]] = {}
    """By group, nodes and amounts of pods that are being replaced."""
    former: frozenset[str] = frozenset()
    faults: tuple[str, ...] = ()
    headroom: Sequence[tuple[str, Requests]] = ()
    """Nodes and amounts that are held for further replicas. A scheduler that decides forms them again."""
    nominated_since: datetime | None = None
    """Since when capacity is held for a unit whose victims terminate. A scheduler finds the place again by a search."""


def records(
    holds: Iterable[CapacityHold],
    replaced: Mapping[str, Sequence[ReplacedPod]],
    former: Collection[str],
    since: datetime,
    before: Sequence[HeldCapacity],
) -> tuple[HeldCapacity, ...]:
    """The hold records that a PodGang should have. `since` is the time of records that are not in `before`."""
    began = {record.reason: record.since for record in before}
    records: list[HeldCapacity] = []
    for hold in holds:
        if hold.reason.value in LONG_WAIT:
            at = hold.since.replace(microsecond=0)
            records.append(HeldCapacity(reason=hold.reason.value, since=at, nodes=tuple(sorted(hold.nodes))))
        elif hold.reason in AMOUNTS:
            amounts = tuple(_amount(pod.group, pod.node, pod.shape.requests) for pod in _sorted(hold.pods))
            at = hold.since.replace(microsecond=0)
            records.append(HeldCapacity(reason=hold.reason.value, since=at, amounts=amounts))
    lost = tuple(
        _amount(group, pod.node, pod.shape.requests) for group, left in sorted(replaced.items()) for pod in left
    )
    since = since.replace(microsecond=0)
    if lost:
        reason = HoldReason.REPLACEMENT.value
        records.append(HeldCapacity(reason=reason, since=began.get(reason) or since, amounts=lost))
    if former:
        at = began.get(FORMER_PLACE) or since
        records.append(HeldCapacity(reason=FORMER_PLACE, since=at, nodes=tuple(sorted(former))))
    return tuple(sorted(records, key=lambda record: record.reason))


def _sorted(pods: Iterable[PodFacts]) -> list[PodFacts]:
    return sorted(pods, key=lambda pod: (pod.group, pod.node, pod.name))


def _amount(group: str, node: str, requests: Requests) -> HeldAmount:
    shown = {name: format_amount(name, held) for name, held in requests if name != PODS and held}
    return HeldAmount(group=group, node=node, requests=shown)


def read(podgang: PodGang, nodes: Collection[str]) -> ReadHolds:
    """The holds in a PodGang's records, given the names of existing nodes."""
    holds = podgang.status.capacity_holds or tuple(of_conditions(podgang))
    waiting: HeldCapacity | None = None
    replaced: dict[str, list[tuple[str, Requests]]] = {}
    former: frozenset[str] = frozenset()
    headroom: list[tuple[str, Requests]] = []
    nominated_since: datetime | None = None
    faults: list[str] = []
    groups = {group.name for group in podgang.spec.podgroups}
    for hold in holds:
        if hold.reason not in REASONS:
            faults.append(f"unknown reason {hold.reason!r}")
        elif len(hold.nodes) > MOST or len(hold.amounts) > MOST:
            faults.append(f"{hold.reason}: more than {MOST} entries")
        elif len({name for held in hold.amounts for name in held.requests}) > MOST_RESOURCES:
            faults.append(f"{hold.reason}: more than {MOST_RESOURCES} resources")
        elif hold.reason == FORMER_PLACE:
            former = frozenset(hold.nodes).intersection(nodes)
            faults += _unknown_nodes(hold, hold.nodes, nodes)
        elif hold.reason in LONG_WAIT:
            most = sum(group.min_replicas for group in podgang.spec.podgroups)
            if unknown := _unknown_nodes(hold, hold.nodes, nodes):
                faults += unknown
            elif len(set(hold.nodes)) > most:
                faults.append(f"{hold.reason}: {len(set(hold.nodes))} nodes for a minimum of {most} pods")
            elif waiting is None:
                waiting = hold
        elif hold.reason == HoldReason.HEADROOM.value:
            # Groups of scaled gangs are among them. The next turn forms it again, on nodes that are there.
            faults += _unknown_nodes(hold, (held.node for held in hold.amounts), nodes)
            try:
                headroom = [_amount_of(held) for held in hold.amounts if held.node in nodes]
            except ValueError as error:
                faults.append(f"{hold.reason}: {error}")
        elif hold.reason == HoldReason.NOMINATED.value:
            try:
                for held in hold.amounts:
                    _read_amount(held, groups, nodes)
                nominated_since = hold.since
            except ValueError as error:
                faults.append(f"{hold.reason}: {error}")
        elif hold.reason == HoldReason.REPLACEMENT.value:
            for held in hold.amounts:
                try:
                    replaced.setdefault(held.group, []).append(_read_amount(held, groups, nodes))
                except ValueError as error:
                    faults.append(f"{hold.reason}: {error}")
    kept = {group: left for group, left in replaced.items() if left}
    return ReadHolds(waiting, kept, former, tuple(faults), headroom, nominated_since)


def _unknown_nodes(hold: HeldCapacity, named: Iterable[str], nodes: Collection[str]) -> list[str]:
    """The fault that it names unknown nodes; empty if it names none."""
    unknown = sorted(set(named) - set(nodes))
    return [f"{hold.reason}: there is no node {unknown[0]}"] if unknown else []


def read_pod(pod: Pod, nodes: Collection[str]) -> ReadHolds:
    """The same of a pod without a PodGang."""
    node = pod.status.nominated_node_name
    if not node or pod.spec.node_name:
        return ReadHolds()
    if node not in nodes:
        return ReadHolds(faults=(f"there is no node {node}",))
    return ReadHolds(HeldCapacity(reason=HoldReason.WAITED_LONG.value, nodes=(node,)))


def _read_amount(held: HeldAmount, groups: Collection[str], nodes: Collection[str]) -> tuple[str, Requests]:
    if held.group not in groups:
        raise ValueError(f"there is no group {held.group!r}")
    if held.node not in nodes:
        raise ValueError(f"there is no node {held.node}")
    return _amount_of(held)


def _amount_of(held: HeldAmount) -> tuple[str, Requests]:
    amounts: dict[str, int] = {PODS: 1}
    for name, text in held.requests.items():
        try:
            amounts[name] = amount(name, text)
        except InvalidQuantity as error:
            raise ValueError(f"{name}: {text!r} is not a quantity") from error
        if amounts[name] < 0:
            raise ValueError(f"{name}: {text!r} is negative")
        if amounts[name] > MOST_AMOUNT:
            raise ValueError(f"{name}: {text!r} is more than a node can have")
    return held.node, tuple(sorted(amounts.items()))


def of_conditions(podgang: PodGang) -> Iterator[HeldCapacity]:
    """Holds as schedulers before `capacityHolds` wrote them: names in the messages of conditions."""
    conditions = podgang.status.conditions
    if (condition := find_condition(conditions, words.NODES_HELD)) is not None and condition.status == words.TRUE:
        yield HeldCapacity(reason=condition.reason, since=condition.last_transition_time)
    if (condition := find_condition(conditions, words.FORMER_PLACE)) is not None:
        yield HeldCapacity(
            reason=FORMER_PLACE, since=condition.last_transition_time, nodes=tuple(condition.message.split())
        )
    if (condition := find_condition(conditions, words.OLDER_REPLACEMENT)) is not None:
        parts = [part.partition(": ") for part in condition.message.split("; ")]
        amounts = tuple(HeldAmount(group=group, node=node) for group, _, nodes in parts for node in nodes.split())
        reason = HoldReason.REPLACEMENT.value
        yield HeldCapacity(reason=reason, since=condition.last_transition_time, amounts=amounts)
