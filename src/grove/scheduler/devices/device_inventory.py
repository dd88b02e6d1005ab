"""Devices that pods claim (dynamic resource allocation): what there is, and how an allocation is written down.

The search counts devices like any other resource of a node. `DeviceRequest.resource` names what a request asks for. A
node offers as many of it as it has free devices that match. `claim_requests` reads claims. Once a node is chosen,
`device_allocation` picks the devices. A request that cannot be understood holds the pod with a reason. This package
does no I/O; the source is `sources.device_claims`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from grove.api.core import DeviceClass, NodeSelector, ResourceSlice
from grove.api.meta import Json
from grove.api.quantity import InvalidQuantity, exact
from grove.scheduler.devices.cel import selector
from grove.scheduler.model.facts import NodeTerms, node_terms

DEVICES = "deviceclass/"
"""How the names of counted devices begin, among a node's resources."""
ANY = f"{DEVICES}~any"
"""Free devices of a node, whatever they are: claims of different kinds compete for them. Sorts behind all classes."""
SHARED = f"{DEVICES}?shared"
"""Marks, with an amount of zero, a pod that shares a claim whose devices are not allocated yet."""

ODD = ("taints", "consumesCounters", "bindingConditions", "allowMultipleAllocations")

SET = "?set="
"""Before the mark of a set of devices, in the name of what stands for it."""

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
    is_odd: bool = False
    """Given by rules that counting does not know, so not given by us: tainted, in parts, or under conditions."""

    @property
    def driver(self) -> str:
        return self.id[0]

    @property
    def reach(self) -> NodeTerms | None:
        return None if self.selector is None else node_terms(msgspec.convert(self.selector, NodeSelector))


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim, or one alternative of it: a number of devices that match all selectors."""

    name: str
    """As results name it: `request`, or `request/alternative`."""
    kind: str
    count: int
    """0 for all of a node's, however many it has."""
    selectors: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """The counted name of the resource: the class, and a mark for each further selector."""
        return f"{DEVICES}{self.kind}" + "".join(f"?{text}" for text in self.selectors)

    def matches(self, device: Device) -> bool:
        return all(selector(text)(device) for text in self.selectors)


def is_shorthand(resource: str) -> bool:
    """True if a counted name is no class of devices. Such a name helps the search, and messages do not show it."""
    return resource in (ANY, SHARED) or (resource.startswith(DEVICES) and SET in resource)


def read_devices(slices: Iterable[ResourceSlice]) -> list[Device]:
    """Devices of the newest generation of each pool, sorted."""
    newest: dict[tuple[str, str], int] = {}
    known = [slice_.spec for slice_ in slices]
    for spec in known:
        key = (spec.get("driver", ""), spec["pool"]["name"])
        newest[key] = max(newest.get(key, 0), spec["pool"].get("generation", 0))
    devices = []
    for spec in known:
        driver, pool = spec.get("driver", ""), spec["pool"]["name"]
        if spec["pool"].get("generation", 0) == newest[driver, pool]:
            devices += [_device(driver, pool, spec, device) for device in spec.get("devices") or ()]
    return sorted(devices, key=lambda device: device.id)


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
    is_odd = any(device.get(key) for key in ODD)
    return Device((driver, pool, device["name"]), node, only, attributes, capacity, is_odd)


def _qualified(driver: str, name: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def allocation(chosen: Sequence[tuple[DeviceRequest, Device]], spec: Json, classes: Mapping[str, DeviceClass]) -> Json:
    """The `status.allocation` that says so, with the configuration that goes with it."""
    results = [
        {"request": device_request.name, "driver": device.id[0], "pool": device.id[1], "device": device.id[2]}
        for device_request, device in chosen
    ]
    config: list[Json] = []
    for device_request in dict.fromkeys(device_request for device_request, _ in chosen):
        kind = classes.get(device_request.kind)
        entries = (kind.spec.get("config") or ()) if kind is not None else ()
        config += [{"source": "FromClass", "requests": [device_request.name], **entry} for entry in entries]
    config += [{"source": "FromClaim", **entry} for entry in (spec.get("devices") or {}).get("config") or ()]
    devices: Json = {"results": results, **({"config": config} if config else {})}
    status: Json = {"devices": devices}
    device = next((device for _, device in chosen if device.node or device.selector), None)
    if device is not None and device.node:
        field_ = {"key": "metadata.name", "operator": "In", "values": [device.node]}
        status["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field_]}]}
    elif device is not None:
        status["nodeSelector"] = device.selector
    return status


def allocated(status: Json | None) -> set[DeviceId]:
    """The devices an allocation gives away."""
    results = ((status or {}).get("devices") or {}).get("results") or ()
    return {(result["driver"], result["pool"], result["device"]) for result in results if not result.get("adminAccess")}


Pool = tuple[str, str]
"""Driver and name."""


class DeviceInventory:
    def __init__(self) -> None:
        self.local: dict[str, list[Device]] = {}
        """Devices in nodes, sorted."""
        self.wide: list[Device] = []
        """Devices that several nodes reach, as far as they are for us to give."""
        self.odd: set[DeviceId] = set()
        """Devices that are not for us to give."""
        self._slices: dict[Pool, dict[str, ResourceSlice]] = {}
        self._devices: dict[Pool, list[Device]] = {}
        self._node_of: dict[DeviceId, str] = {}

    def change(self, old: ResourceSlice | None, new: ResourceSlice | None) -> set[str]:
        """Takes a slice in, over or out; the nodes whose devices may have changed."""
        touched: set[str] = set()
        if old is not None:
            self._slices.get(_pool_of(old), {}).pop(old.metadata.name, None)
        if new is not None:
            self._slices.setdefault(_pool_of(new), {})[new.metadata.name] = new
        for pool in dict.fromkeys(
            _pool_of(resource_slice) for resource_slice in (old, new) if resource_slice is not None
        ):
            touched |= self._read_again(pool)
        return touched

    def nodes_of(self, devices: Iterable[DeviceId]) -> set[str]:
        return {node for device in devices if (node := self._node_of.get(device, ""))}

    def _read_again(self, pool: Pool) -> set[str]:
        before = self._devices.pop(pool, [])
        slices = self._slices.get(pool)
        after = read_devices(slices.values()) if slices else []
        if after:
            self._devices[pool] = after
        if not slices:
            self._slices.pop(pool, None)
        gone = {device.id for device in before}
        self.odd = (self.odd - gone) | {device.id for device in after if device.is_odd}
        for device in before:
            self._node_of.pop(device.id, None)
        self._node_of.update((device.id, device.node) for device in after if device.node)
        if not all(device.node for device in (*before, *after)):
            kept = [device for device in self.wide if device.id not in gone]
            more = [device for device in after if not device.node and not device.is_odd]
            self.wide = sorted([*kept, *more], key=lambda device: device.id)
        touched = {device.node for device in (*before, *after) if device.node}
        for node in touched:
            kept = [device for device in self.local.get(node, ()) if device.id not in gone]
            more = [device for device in after if device.node == node]
            self.local[node] = sorted([*kept, *more], key=lambda device: device.id)
            if not self.local[node]:
                del self.local[node]
        return touched


def _pool_of(slice_: ResourceSlice) -> Pool:
    return slice_.spec.get("driver", ""), slice_.spec["pool"]["name"]
