"""Capacity that is free but not for every unit: nodes held for gangs that wait, headroom, and Reservations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from grove.api import conditions as words
from grove.api.koordinator import Reservation
from grove.api.labels import PART_OF
from grove.api.meta import find_condition
from grove.api.podgang import PodGang
from grove.api.quantity import InvalidQuantity, amount
from grove.api.words import many

WAITS = (words.WAITED_LONG, words.OVERTAKEN)
AVAILABLE = "Available"
HEADROOM = "Headroom"
FEW = 3


def held_nodes(gangs: Iterable[PodGang]) -> dict[str, str]:
    """By node, the gang (namespace/name) that it is held for, as the scheduler wrote it; the first where two are."""
    gang_of: dict[str, str] = {}
    for gang in sorted(gangs, key=lambda gang: gang.metadata.key):
        for node in held_for(gang):
            gang_of.setdefault(node, str(gang.metadata.key))
    return gang_of


def held_for(gang: PodGang) -> list[str]:
    """The nodes that are held whole for a gang that waits."""
    return [node for hold in gang.status.capacity_holds if hold.reason in WAITS for node in hold.nodes]


def held_sentence(gang: PodGang) -> str:
    """That nodes are held for a gang, with the first few of their names; empty if none are."""
    names = held_for(gang)
    if not names:
        return ""
    rest = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"{many(len(names), 'node is', 'nodes are')} held for it: {', '.join(names[:FEW])}{rest}"


def headroom_lines(gangs: Iterable[PodGang]) -> tuple[str, ...]:
    """A line for each gang that asks for headroom: how much of it is held, and why not all of it."""
    ordered = sorted(gangs, key=lambda gang: gang.metadata.key)
    conditions = ((gang.metadata.name, find_condition(gang.status.conditions, words.HEADROOM_HELD)) for gang in ordered)
    return tuple(f"{name}: {condition.message}" for name, condition in conditions if condition is not None)


def headroom_on(gangs: Iterable[PodGang], resource: str) -> dict[str, Counter[str]]:
    """By node and set, how much of a resource is held as headroom and in use by no pod."""
    held_on: dict[str, Counter[str]] = {}
    for gang in gangs:
        meta = gang.metadata
        owner = f"{meta.namespace}/{meta.labels.get(PART_OF) or meta.name}"
        held = (entry for hold in gang.status.capacity_holds if hold.reason == HEADROOM for entry in hold.amounts)
        for entry in held:
            try:
                count = amount(resource, entry.requests.get(resource, 0))
            except InvalidQuantity:
                continue
            if count > 0:
                held_on.setdefault(entry.node, Counter())[owner] += count
    return held_on


def reserved_on(reservations: Iterable[Reservation], resource: str) -> dict[str, Counter[str]]:
    """By node and Reservation, how much of a resource is kept for its owners and used by none of them yet."""
    kept_on: dict[str, Counter[str]] = {}
    for reservation in reservations:
        status = reservation.status
        if status.phase != AVAILABLE or not status.node_name or reservation.metadata.is_deleting:
            continue
        if reservation.spec.allocate_once is not False and status.current_owners:
            continue  # for one pod, and it has come
        try:
            left = amount(resource, status.allocatable.get(resource, 0)) - amount(
                resource, status.allocated.get(resource, 0)
            )
        except InvalidQuantity:
            continue
        if left > 0:
            kept_on.setdefault(status.node_name, Counter())[reservation.metadata.name] += left
    return kept_on
