"""Capacity that is free but not for every unit: nodes held for gangs that wait, and Reservations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from grove.api import conditions as words
from grove.api.koordinator import Reservation
from grove.api.podgang import PodGang
from grove.api.quantity import InvalidQuantity, amount
from grove.api.words import many

WAITS = (words.WAITED_LONG, words.OVERTAKEN)
AVAILABLE = "Available"
FEW = 3


def held_nodes(gangs: Iterable[PodGang]) -> dict[str, str]:
    """By node, the gang (namespace/name) that it is held for, as the scheduler wrote it; the first where two are."""
    found: dict[str, str] = {}
    for gang in sorted(gangs, key=lambda one: one.metadata.key):
        for node in held_for(gang):
            found.setdefault(node, str(gang.metadata.key))
    return found


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


def reserved_on(reservations: Iterable[Reservation], resource: str) -> dict[str, Counter[str]]:
    """By node and Reservation, how much of a resource is kept for its owners and used by none of them yet."""
    found: dict[str, Counter[str]] = {}
    for one in reservations:
        status = one.status
        if status.phase != AVAILABLE or not status.node_name or one.metadata.is_deleting:
            continue
        if one.spec.allocate_once is not False and status.current_owners:
            continue  # for one pod, and it has come
        try:
            left = amount(resource, status.allocatable.get(resource, 0)) - amount(
                resource, status.allocated.get(resource, 0)
            )
        except InvalidQuantity:
            continue
        if left > 0:
            found.setdefault(status.node_name, Counter())[one.metadata.name] += left
    return found
