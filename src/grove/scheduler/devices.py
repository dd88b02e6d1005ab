"""Devices that pods claim (dynamic resource allocation): what there is, what a claim asks for, and which ones it gets.

The search counts devices like any other resource of a node: `Asked.resource` names what a request asks for, and a node
offers as many of it as it has free devices that match. Once a node is chosen, `choose` picks the devices themselves.
What cannot be understood holds the pod with a reason. Pure: the live side is `grove.scheduler.claims`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from grove.api.core import DeviceClass, NodeSelector, ResourceSlice
from grove.api.meta import Json
from grove.api.quantity import InvalidQuantity, exact
from grove.scheduler.devicecel import NotUnderstood, selector
from grove.scheduler.facts import NodeTerms
from grove.scheduler.podreq import node_terms

DEVICES = "deviceclass/"
"""How the names of counted devices begin, among a node's resources."""
SHARED = f"{DEVICES}?shared"
"""Marks, with an amount of zero, a pod that shares a claim whose devices nobody has yet."""

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass(frozen=True, slots=True)
class Device:
    id: DeviceId
    node: str = ""
    """The node it is in; empty for one that several nodes reach."""
    selector: Json | None = field(default=None, hash=False)
    """Which nodes reach it, if it is in none; None for all of them."""
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    capacity: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def driver(self) -> str:
        return self.id[0]

    @property
    def reach(self) -> NodeTerms | None:
        return None if self.selector is None else node_terms(msgspec.convert(self.selector, NodeSelector))


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a claim: so many devices that match all selectors."""

    name: str
    kind: str
    count: int
    selectors: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """What a node must have free of: the class, and a mark for what is asked beyond it."""
        return f"{DEVICES}{self.kind}" + "".join(f"?{text}" for text in self.selectors)

    def matches(self, device: Device) -> bool:
        return all(selector(text)(device) for text in self.selectors)


def read_devices(slices: Iterable[ResourceSlice]) -> list[Device]:
    """Devices of the newest generation of each pool that can be given by themselves, sorted.

    Tainted devices, and those that share counters or need conditions to be met, are left out: they are given by rules
    that counting does not know.
    """
    newest: dict[tuple[str, str], int] = {}
    known = [one.spec for one in slices]
    for spec in known:
        key = (spec.get("driver", ""), spec["pool"]["name"])
        newest[key] = max(newest.get(key, 0), spec["pool"].get("generation", 0))
    found = []
    for spec in known:
        driver, pool = spec.get("driver", ""), spec["pool"]["name"]
        if spec["pool"].get("generation", 0) == newest[driver, pool]:
            found += [_device(driver, pool, spec, one) for one in spec.get("devices") or () if _is_plain(one)]
    return sorted(found, key=lambda device: device.id)


def _is_plain(device: Json) -> bool:
    odd = ("taints", "consumesCounters", "bindingConditions", "allowMultipleAllocations")
    return not any(device.get(key) for key in odd)


def _device(driver: str, pool: str, spec: Json, device: Json) -> Device:
    reached = device if spec.get("perDeviceNodeSelection") else spec
    attributes = {
        _qualified(driver, name): next(iter(value.values()), None)
        for name, value in (device.get("attributes") or {}).items()
    }
    capacity: dict[str, Any] = {}
    for name, value in (device.get("capacity") or {}).items():
        try:
            capacity[_qualified(driver, name)] = exact(value.get("value", "0"))
        except InvalidQuantity:
            continue
    node, only = reached.get("nodeName") or "", reached.get("nodeSelector")
    return Device((driver, pool, device["name"]), node, only, attributes, capacity)


def _qualified(driver: str, name: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def read_requests(spec: Json, classes: Mapping[str, DeviceClass]) -> list[Asked]:
    """What a claim asks for. Raises NotUnderstood for what counting devices cannot meet, and for unknown classes."""
    devices = spec.get("devices") or {}
    if devices.get("constraints"):
        raise NotUnderstood("constraints between devices are not understood")
    found = []
    for request in devices.get("requests") or ():
        exactly = request.get("exactly")
        if exactly is None:
            raise NotUnderstood(f"request {request.get('name', '')!r}: only `exactly` is understood")
        odd = [key for key in ("adminAccess", "capacity") if exactly.get(key)]
        if exactly.get("allocationMode", "ExactCount") != "ExactCount":
            odd.append(f"allocationMode {exactly['allocationMode']}")
        if odd:
            raise NotUnderstood(f"request {request['name']!r}: {odd[0]} is not understood")
        kind = classes.get(exactly["deviceClassName"])
        if kind is None:
            raise NotUnderstood(f"device class {exactly['deviceClassName']!r} does not exist")
        texts = tuple(_expressions(kind.spec) + _expressions(exactly))
        for text in texts:
            selector(text)
        found.append(Asked(request["name"], kind.metadata.name, exactly.get("count", 1), texts))
    return found


def _expressions(spec: Json) -> list[str]:
    found = []
    for one in spec.get("selectors") or ():
        if "cel" not in one:
            raise NotUnderstood(f"selector {sorted(one)} is not understood")
        found.append(str(one["cel"].get("expression", "")))
    return found


def choose(
    asked: Sequence[Asked], devices: Sequence[Device], taken: Collection[DeviceId]
) -> list[tuple[Asked, Device]] | None:
    """A device for each one asked for, none twice and none that is taken; None if that cannot be.

    Augmenting paths: a device given to an easy request moves on to another when a harder one needs it.
    """
    wanted = [one for one in asked for _ in range(one.count)]
    free = [device for device in devices if device.id not in taken]
    owner: dict[int, int] = {}

    def settle(w: int, seen: set[int]) -> bool:
        for d, device in enumerate(free):
            if d in seen or not wanted[w].matches(device):
                continue
            seen.add(d)
            if d not in owner or settle(owner[d], seen):
                owner[d] = w
                return True
        return False

    if not all(settle(w, set()) for w in range(len(wanted))):
        return None
    return sorted(((wanted[w], free[d]) for d, w in owner.items()), key=lambda pair: (pair[0].name, pair[1].id))


def allocation(chosen: Sequence[tuple[Asked, Device]], spec: Json, classes: Mapping[str, DeviceClass]) -> Json:
    """The `status.allocation` that says so, with the configuration that goes with it."""
    results = [
        {"request": one.name, "driver": device.id[0], "pool": device.id[1], "device": device.id[2]}
        for one, device in chosen
    ]
    config: list[Json] = []
    for one in dict.fromkeys(one for one, _ in chosen):
        kind = classes.get(one.kind)
        entries = (kind.spec.get("config") or ()) if kind is not None else ()
        config += [{"source": "FromClass", "requests": [one.name], **entry} for entry in entries]
    config += [{"source": "FromClaim", **entry} for entry in (spec.get("devices") or {}).get("config") or ()]
    devices: Json = {"results": results, **({"config": config} if config else {})}
    found: Json = {"devices": devices}
    device = next((device for _, device in chosen if device.node or device.selector), None)
    if device is not None and device.node:
        field_ = {"key": "metadata.name", "operator": "In", "values": [device.node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field_]}]}
    elif device is not None:
        found["nodeSelector"] = device.selector
    return found


def allocated(status: Json | None) -> set[DeviceId]:
    """The devices an allocation gives away."""
    results = ((status or {}).get("devices") or {}).get("results") or ()
    return {(one["driver"], one["pool"], one["device"]) for one in results if not one.get("adminAccess")}
