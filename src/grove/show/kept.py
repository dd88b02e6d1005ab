"""Room that is free and yet not for everybody: nodes held for gangs that wait, and Koordinator's Reservations. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from grove.api import conditions as words
from grove.api.koordinator import Reservation
from grove.api.meta import find_condition
from grove.api.podgang import PodGang
from grove.api.quantity import InvalidQuantity, amount

AVAILABLE = "Available"
FEW = 3
_MORE = re.compile(r" and (\d+) more$")


def held_nodes(gangs: Iterable[PodGang]) -> dict[str, str]:
    """By node, the gang (namespace/name) that it is held for, as the scheduler says on it; the first where two are."""
    found: dict[str, str] = {}
    for gang in sorted(gangs, key=lambda one: one.metadata.key):
        for node in held_for(gang)[0]:
            found.setdefault(node, str(gang.metadata.key))
    return found


def held_for(gang: PodGang) -> tuple[list[str], int]:
    """The nodes that are held for a gang, and how many more there are that its condition does not name."""
    said = find_condition(gang.status.conditions, words.NODES_HELD)
    if said is None or said.status != words.TRUE:
        return [], 0
    names = said.message.partition(": ")[2]
    more = _MORE.search(names)
    return [name for name in _MORE.sub("", names).split(", ") if name], int(more[1]) if more else 0


def held_sentence(gang: PodGang) -> str:
    """That nodes are held for a gang, with the first few of their names; empty if none are."""
    names, more = held_for(gang)
    if not names:
        return ""
    count = len(names) + more
    rest = f" and {count - FEW} more" if count > FEW else ""
    return f"{count} node{'s are' if count != 1 else ' is'} held for it: {', '.join(names[:FEW])}{rest}"


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
