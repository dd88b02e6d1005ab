"""The devices of the cluster by node, kept current slice by slice: a change costs what its pool holds, not all."""

from __future__ import annotations

from collections.abc import Iterable

from grove.api.core import ResourceSlice
from grove.scheduler.devices.devices import Device, DeviceId, read_devices

Pool = tuple[str, str]
"""Driver and name."""


class Inventory:
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
        for pool in dict.fromkeys(_pool_of(one) for one in (old, new) if one is not None):
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
