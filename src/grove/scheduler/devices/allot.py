"""What resource claims ask for, and which devices of a node they get: exactly, by Kubernetes' rules, or a plain no.

`counted` is what the search counts. Where counting one request at a time could be too hopeful (requests that compete
for the same devices, alternatives, all devices of a node, shared attributes), `set_name` names one more resource: whole
sets of what a pod claims, of which a node has as many as `copies` finds.

`allot` tries every choice of alternatives, the first of the first request before all others, and for each attribute
that devices must share every value of it. What is left is a matching of devices to requests, found by augmenting paths:
a device given to an easy request moves on when a harder one needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice, product
from typing import Any

from grove.api.core import DeviceClass
from grove.api.meta import Json
from grove.scheduler.devices.cel import NotUnderstood, selector
from grove.scheduler.devices.devices import ANY, DEVICES, SET, Asked, Device, DeviceId

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


def device_signature(
    wants: Sequence[Wants], devices: Sequence[Device], taken: Collection[DeviceId]
) -> tuple[object, ...]:
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


def _covers(same: MatchAttribute, claim: int, slot: _Slot) -> bool:
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


@dataclass(frozen=True, slots=True)
class MatchAttribute:
    """Devices of the named requests, or of all if none is named, must have one value of the attribute."""

    attribute: str
    requests: frozenset[str] = frozenset()

    def covers(self, asked: Asked) -> bool:
        return not self.requests or asked.name in self.requests or asked.name.partition("/")[0] in self.requests


@dataclass(frozen=True, slots=True)
class Wants:
    requests: tuple[tuple[Asked, ...], ...]
    """The alternatives of each request, best first."""
    same: tuple[MatchAttribute, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether each request asks for a number of devices, whatever the others get."""
        return not self.same and all(len(either) == 1 and either[0].count for either in self.requests)

    def asked(self) -> list[Asked]:
        return [one for either in self.requests for one in either]

    def only(self, kept: Iterable[tuple[Asked, ...]]) -> Wants:
        return replace(self, requests=tuple(kept))


def counted(wants: Iterable[Wants]) -> Counter[str]:
    """Devices that must be free on a node whatever else is true, by what is asked of them."""
    count: Counter[str] = Counter()
    for one in wants:
        for either in one.requests:
            if len(either) == 1 and either[0].count:
                count[either[0].resource] += either[0].count
            count[ANY] += min(max(1, asked.count) for asked in either)
    return count


def set_name(wants: Sequence[Wants]) -> str:
    """The resource that stands for one whole set of what these claims ask for; empty where counting is exact."""
    if all(one.is_plain for one in wants) and len(counted(wants).keys() - {ANY}) <= 1:
        return ""
    kinds = sorted({asked.kind for one in wants for asked in one.asked()})
    mark = sha256(repr(sorted(map(repr, wants))).encode()).hexdigest()[:8]
    return f"{DEVICES}{'+'.join(kinds)}{SET}{mark}"


def read_wants(spec: Json, classes: Mapping[str, DeviceClass]) -> Wants:
    """What a claim asks for. Raises NotUnderstood for what we cannot meet, and for unknown classes."""
    devices = spec.get("devices") or {}
    requests: list[tuple[Asked, ...]] = []
    for request in devices.get("requests") or ():
        name = request.get("name", "")
        if exactly := request.get("exactly"):
            requests.append((_asked(name, exactly, classes),))
        elif either := request.get("firstAvailable"):
            requests.append(tuple(_asked(f"{name}/{one.get('name', '')}", one, classes) for one in either))
        else:
            raise NotUnderstood(f"request {name!r}: neither `exactly` nor `firstAvailable` is given")
    return Wants(tuple(requests), tuple(_same(one) for one in devices.get("constraints") or ()))


def _asked(name: str, request: Json, classes: Mapping[str, DeviceClass]) -> Asked:
    odd = [key for key in ("adminAccess", "capacity") if request.get(key)]
    mode = request.get("allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        odd.append(f"allocationMode {mode}")
    if odd:
        raise NotUnderstood(f"request {name!r}: {odd[0]} is not understood")
    kind = classes.get(request.get("deviceClassName", ""))
    if kind is None:
        raise NotUnderstood(f"device class {request.get('deviceClassName', '')!r} does not exist")
    texts = tuple(_expressions(kind.spec) + _expressions(request))
    for text in texts:
        selector(text)
    return Asked(name, kind.metadata.name, 0 if mode == "All" else max(1, request.get("count", 1)), texts)


def _same(constraint: Json) -> MatchAttribute:
    attribute = constraint.get("matchAttribute")
    if not attribute:
        raise NotUnderstood("constraints other than matchAttribute are not understood")
    return MatchAttribute(attribute, frozenset(constraint.get("requests") or ()))


def _expressions(spec: Json) -> list[str]:
    found = []
    for one in spec.get("selectors") or ():
        if "cel" not in one:
            raise NotUnderstood(f"selector {sorted(one)} is not understood")
        found.append(str(one["cel"].get("expression", "")))
    return found


Copies = dict[tuple[object, ...], int]
"""What `copies` said, by the signature of a node's devices: nodes of a fleet are much alike."""


def free_amounts(
    devices: Sequence[Device], taken: Collection[DeviceId], asked: Mapping[str, Asked],
    sets: Mapping[str, Sequence[Wants]], known: Copies,
) -> dict[str, int]:  # fmt: skip
    """Free devices of a node, by what is asked for; `known` keeps what is worked out."""
    free = [device for device in devices if device.id not in taken]
    if not free:
        return {}
    found = {name: sum(map(one.matches, free)) for name, one in asked.items()}
    found[ANY] = len(free)
    for name, wants in sets.items():
        key = (name, device_signature(wants, devices, taken))
        if key not in known:
            known[key] = copies(wants, devices, taken)
        found[name] = known[key]
    return found


class ClaimsVacancy:
    """What would be free of nodes' devices without some pods: those of claims that nobody else uses."""

    def __init__(
        self, devices: Mapping[str, Sequence[Device]], taken: frozenset[DeviceId],
        given: Mapping[str, Sequence[tuple[frozenset[DeviceId], frozenset[str]]]], asked: Mapping[str, Asked],
        sets: Mapping[str, Sequence[Wants]],
    ) -> None:  # fmt: skip
        """`given` has, by node, the devices of each claim and the uids of its users."""
        self._devices, self._taken, self._given, self._asked, self._sets = devices, taken, given, asked, sets
        self._known: Copies = {}

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        gone = set(uids)
        back = self.given_back(gone, self._given.get(node, ()))
        if not back:
            return {}
        devices = self._devices.get(node, ())
        before, after = (
            free_amounts(devices, taken, self._asked, self._sets, self._known)
            for taken in (self._taken, self._taken - back)
        )
        return {name: amount - before.get(name, 0) for name, amount in after.items()}

    @staticmethod
    def given_back(
        gone: Collection[str], claims: Sequence[tuple[frozenset[DeviceId], frozenset[str]]]
    ) -> frozenset[DeviceId]:
        """Devices of the claims all of whose users are gone."""
        return frozenset(id_ for ids, users in claims if users and users <= set(gone) for id_ in ids)
