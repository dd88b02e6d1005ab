"""Koordinator's Device objects read as a node's devices, and what a pod has of them as it is written on the pod."""

from __future__ import annotations

import json
from functools import lru_cache

from grove.api.core import Pod
from grove.api.koordinator import Device, DeviceInfo
from grove.api.quantity import InvalidQuantity, format_bytes, whole
from grove.scheduler.devices.minors import Allotment, Card, NodeDevices
from grove.scheduler.devices.wants import ALLOCATED, CORE, FULL, MEMORY, PARTITIONS, RATIO, RDMA


def read_devices(device: Device) -> NodeDevices:
    """The devices of a node, all free; one that lists a minor twice, or an amount that is none, has a fault."""
    found = NodeDevices()
    for one in device.spec.devices:
        cards = found.cards if one.type == "gpu" else found.rdma if one.type == "rdma" else None
        if cards is None:
            continue
        minor = one.minor if one.minor is not None else -1
        if minor in cards:
            found.fault = f"it lists {one.type} minor {minor} twice"
            return found
        try:
            size = max(0, whole(one.resources.get(MEMORY, 0)))
            if any(whole(amount) < 0 for amount in one.resources.values()):
                raise InvalidQuantity(f"{one.type} minor {minor} has a negative amount")
        except InvalidQuantity as error:
            found.fault = str(error)
            return found
        if one.health:
            cards[minor] = _card(one, minor, size)
    found.partitions = _partitions(device)
    return found


def _card(one: DeviceInfo, minor: int, size: int) -> Card:
    place = one.topology
    numa = place.node_id if place is not None else -1
    return Card(minor, one.id, place.pcie_id if place is not None else "", numa, size, FULL, size)


def _partitions(device: Device) -> dict[int, tuple[frozenset[int], ...]]:
    """Sets of minors by their size, the best scored first; a table that cannot be read is none."""
    try:
        table = json.loads(device.metadata.annotations.get(PARTITIONS, "") or "{}")
        return {
            int(size): tuple(
                frozenset(one["minors"])
                for one in sorted(rows, key=lambda one: (-float(one.get("allocationScore") or 0), one["minors"]))
            )
            for size, rows in table.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def written(devices: NodeDevices, one: Allotment) -> str:
    """An allotment as Koordinator writes it on a pod."""
    body: dict[str, list[dict[str, object]]] = {}
    for minor, core, memory in one.cards:
        card = devices.cards.get(minor)
        ratio = memory * FULL // card.size if card is not None and card.size else core
        resources = {CORE: str(core), RATIO: str(ratio)} | ({MEMORY: format_bytes(memory)} if memory else {})
        body.setdefault("gpu", []).append(
            {"minor": minor, "resources": resources} | ({"id": card.id} if card is not None and card.id else {})
        )
    for minor, parts in one.rdma:
        body.setdefault("rdma", []).append({"minor": minor, "resources": {RDMA: str(parts)}})
    return json.dumps(body)


def allotted(pod: Pod) -> Allotment | None:
    """What is written on a pod; None if nothing, or nothing that can be read."""
    text = pod.metadata.annotations.get(ALLOCATED)
    return _read_allotment(text) if text else None


@lru_cache(maxsize=65536)
def _read_allotment(text: str) -> Allotment | None:
    """The same few texts are on the pods of a whole fleet."""
    try:
        body = json.loads(text)
        cards = tuple(
            (int(one["minor"]), whole(one["resources"].get(CORE, FULL)), whole(one["resources"].get(MEMORY, 0)))
            for one in body.get("gpu") or ()
        )
        rdma = tuple((int(one["minor"]), whole(one["resources"].get(RDMA, FULL))) for one in body.get("rdma") or ())
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Allotment(cards, rdma)
