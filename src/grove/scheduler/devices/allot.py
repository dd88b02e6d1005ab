"""Which devices of a node claims get: exactly, by Kubernetes' rules, or a plain no.

Every choice of alternatives is tried, the first of the first request before all others, and for each attribute that
devices must share every value of it. What is left is a matching of devices to requests, found by augmenting paths: a
device given to an easy request moves on when a harder one needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from grove.scheduler.devices.devices import Asked, Device, DeviceId
from grove.scheduler.devices.wants import Same, Wants

Chosen = list[tuple[Asked, Device]]

MOST_DEVICES = 32
"""The API allows so many in one claim."""
MOST_WAYS = 4096
"""Choices of alternatives and values that are tried; claims people write have a handful."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A request of one of the claims, and the values its devices must have."""

    claim: int
    asked: Asked
    values: tuple[tuple[str, object], ...] = ()

    def agrees(self, device: Device) -> bool:
        return all(_value(device, key) == value for key, value in self.values)


def allot(wants: Sequence[Wants], devices: Sequence[Device], taken: Collection[DeviceId]) -> list[Chosen] | None:
    """Devices for each of the claims, none twice and none that is taken; None if that cannot be."""
    matching = {asked: [d for d in devices if asked.matches(d)] for one in wants for asked in one.asked()}
    for slots in islice(_ways(wants, devices), MOST_WAYS):
        found = _matched(slots, matching, taken)
        if found is not None and all(len(found[c]) <= MOST_DEVICES for c in found):
            return [sorted(found.get(c, []), key=lambda pair: (pair[0].name, pair[1].id)) for c in range(len(wants))]
    return None


def copies(wants: Sequence[Wants], devices: Sequence[Device], taken: Collection[DeviceId]) -> int:
    """How many times over these claims could be met at once; at least that, where there are too many ways to try."""
    for more in range(1, len(devices) + 1):
        if allot([*wants] * more, devices, taken) is None:
            return more - 1
    return len(devices)


def looks(wants: Sequence[Wants], devices: Sequence[Device], taken: Collection[DeviceId]) -> tuple[object, ...]:
    """Equal for nodes of which `copies` says the same: what each device is good for, and which of them are alike."""
    keys = sorted({same.attribute for one in wants for same in one.same})
    seen: list[dict[object, int]] = [{} for _ in keys]
    found = []
    for device in devices:
        values = (_value(device, key) for key in keys)
        alike = tuple(-1 if v is None else seen[k].setdefault(v, len(seen[k])) for k, v in enumerate(values))
        good_for = tuple(asked.matches(device) for one in wants for asked in one.asked())
        found.append((good_for, alike, device.id in taken))
    return tuple(found)


def _ways(wants: Sequence[Wants], devices: Sequence[Device]) -> Iterator[list[_Slot]]:
    """Every choice of alternatives and of shared values, best alternatives first."""
    requests = [(claim, either) for claim, one in enumerate(wants) for either in one.requests]
    shared = [(claim, same) for claim, one in enumerate(wants) for same in one.same]
    for picked in product(*(either for _, either in requests)):
        slots = [_Slot(claim, asked) for (claim, _), asked in zip(requests, picked, strict=True)]
        bound = [(claim, same) for claim, same in shared if any(_covers(same, claim, slot) for slot in slots)]
        for values in product(*(_values(same.attribute, devices) for _, same in bound)):
            chosen = [(claim, same, value) for (claim, same), value in zip(bound, values, strict=True)]
            yield [
                _Slot(
                    slot.claim,
                    slot.asked,
                    tuple((same.attribute, value) for claim, same, value in chosen if _covers(same, claim, slot)),
                )
                for slot in slots
            ]


def _covers(same: Same, claim: int, slot: _Slot) -> bool:
    return slot.claim == claim and same.covers(slot.asked)


def _value(device: Device, attribute: str) -> object:
    """The attribute with its type, for 1 is not true; None for a device that lacks it."""
    value: Any = device.attributes.get(attribute)
    return None if value is None else (type(value).__name__, value)


def _values(attribute: str, devices: Sequence[Device]) -> list[object]:
    """Values that devices have, those of the fewest first: what is whole elsewhere stays whole."""
    count: dict[object, int] = {}
    for device in devices:
        value = _value(device, attribute)
        if value is not None:
            count[value] = count.get(value, 0) + 1
    return sorted(count, key=lambda value: (count[value], repr(value)))


def _matched(
    slots: Sequence[_Slot], matching: Mapping[Asked, Sequence[Device]], taken: Collection[DeviceId]
) -> dict[int, Chosen] | None:
    """Devices by claim for one choice. Who wants all of them gets all or nothing; the others share the rest."""
    found: dict[int, Chosen] = {}
    used: set[DeviceId] = set()
    for slot in slots:
        if slot.asked.count == 0:
            everything = matching[slot.asked]
            ids = {device.id for device in everything}
            if not ids or ids & used or not ids.isdisjoint(taken) or not all(map(slot.agrees, everything)):
                return None
            used |= ids
            found.setdefault(slot.claim, []).extend((slot.asked, device) for device in everything)
    wanted: list[tuple[_Slot, list[Device]]] = []
    for slot in slots:
        free = [d for d in matching[slot.asked] if d.id not in taken and d.id not in used and slot.agrees(d)]
        if len(free) < slot.asked.count:
            return None
        wanted += [(slot, free)] * slot.asked.count
    owner: dict[DeviceId, int] = {}

    def settle(w: int, seen: set[DeviceId]) -> bool:
        open_ = [device.id for device in wanted[w][1] if device.id not in seen]
        if (idle := next((id_ for id_ in open_ if id_ not in owner), None)) is not None:
            owner[idle] = w
            return True
        for id_ in open_:
            seen.add(id_)
            if settle(owner[id_], seen):
                owner[id_] = w
                return True
        return False

    if not all(settle(w, set()) for w in range(len(wanted))):
        return None
    by_id = {device.id: device for _, free in wanted for device in free}
    for id_, w in owner.items():
        slot = wanted[w][0]
        found.setdefault(slot.claim, []).append((slot.asked, by_id[id_]))
    return found
