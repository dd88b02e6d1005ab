"""What Koordinator's objects say: a node's devices, what a pod asks of them, and what it has as written on the pod.

Requests come in several spellings, and hints as annotations. Both are read into one `CardRequest`. All amounts are
whole numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from grove.api.core import Pod
from grove.api.fields import parsed
from grove.api.koordinator import Device, DeviceInfo
from grove.api.quantity import InvalidQuantity, format_bytes, whole
from grove.scheduler.devices.gpu_cards import FULL, Allotment, Card, CardRequest, NodeDevices
from grove.scheduler.model.facts import Requests

K = "koordinator.sh/"
GPU_NAMES = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
CORE, MEMORY, RATIO, SHARED, SHARE = (
    f"{K}{name}" for name in ("gpu-core", "gpu-memory", "gpu-memory-ratio", "gpu.shared", "gpu")
)
RDMA = f"{K}rdma"
NAMES = (CORE, MEMORY, RATIO, SHARED, SHARE, RDMA)
HINT, JOINT = "scheduling.koordinator.sh/device-allocate-hint", "scheduling.koordinator.sh/device-joint-allocate"
PARTITION_SPEC, PARTITIONS = "scheduling.koordinator.sh/gpu-partition-spec", "scheduling.koordinator.sh/gpu-partitions"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"


class InvalidCardRequest(ValueError):
    """The pod asks for devices in a way that means nothing; the message says what does."""


def want_of(requests: Requests, annotations: Mapping[str, str]) -> CardRequest | None:
    """The cards that a pod requests, in any spelling; None without devices. Raises `InvalidCardRequest`."""
    asked = {name: amount for name, amount in requests if name in (*GPU_NAMES, *NAMES) and amount}
    if not asked:
        return None
    if any(amount < 0 for amount in asked.values()):
        raise InvalidCardRequest("an amount of devices is negative")
    rdma = asked.pop(RDMA, 0)
    if rdma > FULL and rdma % FULL:
        raise InvalidCardRequest(f"{RDMA} above {FULL} must be a multiple of it, not {rdma}")
    card_request = _cards(asked)
    hint = _annotation(annotations, HINT).get("gpu")
    scope = str((hint or {}).get("requiredTopologyScope") or "") if isinstance(hint, dict) or hint is None else ""
    if scope not in ("", "Device", "PCIe", "NUMANode", "Node"):
        raise InvalidCardRequest(f"{HINT}: requiredTopologyScope must be Device, PCIe, NUMANode or Node, not {scope}")
    joint = _annotation(annotations, JOINT)
    same = joint.get("requiredScope") == "SamePCIe" and "rdma" in _texts(joint.get("deviceTypes"))
    partition = _annotation(annotations, PARTITION_SPEC).get("allocatePolicy") or ""
    return CardRequest(
        card_request.cards,
        card_request.core,
        card_request.memory,
        card_request.ratio,
        rdma or (FULL if same and card_request.cards else 0),
        scope if scope in ("PCIe", "NUMANode") else "",
        same,
        str(partition),
    )


def _cards(asked: Mapping[str, int]) -> CardRequest:
    names = set(asked)
    plain = [name for name in GPU_NAMES if name in names]
    if plain:
        if len(names) > 1:
            raise InvalidCardRequest(f"{plain[0]} does not go with {', '.join(sorted(names - {plain[0]}))}")
        return CardRequest(asked[plain[0]])
    if not names:
        return CardRequest()
    if names == {SHARE}:
        share = asked[SHARE]
        if share > FULL and share % FULL:
            raise InvalidCardRequest(f"{SHARE} above {FULL} must be a multiple of it, not {share}")
        return CardRequest(max(1, share // FULL), min(share, FULL), 0, min(share, FULL))
    cards = asked.get(SHARED, 0)
    rest = names - {SHARED}
    if rest not in ({CORE, MEMORY}, {CORE, RATIO}, {MEMORY}, {RATIO}) or (not cards and rest in ({MEMORY}, {RATIO})):
        raise InvalidCardRequest(
            f"{', '.join(sorted(names))}: ask for {CORE} with {MEMORY} or {RATIO}, for {SHARE}, or for {SHARED} besides"
        )
    core, ratio, memory = asked.get(CORE, 0), asked.get(RATIO, 0), asked.get(MEMORY, 0)
    if not cards:
        by = core if core else ratio
        cards = max(1, by // FULL) if by > FULL else 1
        if by > FULL and by % FULL:
            raise InvalidCardRequest(f"{CORE if core else RATIO} above {FULL} must be a multiple of it, not {by}")
    if core % cards or ratio % cards or memory % cards:
        raise InvalidCardRequest(f"what is asked for does not divide among {cards} cards")
    return CardRequest(cards, core // cards, memory // cards, ratio // cards)


def _annotation(annotations: Mapping[str, str], name: str) -> dict[str, object]:
    text = annotations.get(name)
    if not text:
        return {}
    try:
        body = parsed(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise InvalidCardRequest(f"{name} is not a JSON object")
    return body


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def read_devices(device: Device) -> NodeDevices:
    """The devices of a node, all free; one that lists a minor twice, or an amount that is none, has a fault."""
    devices = NodeDevices()
    for info in device.spec.devices:
        cards = devices.cards if info.type == "gpu" else devices.rdma if info.type == "rdma" else None
        if cards is None:
            continue
        minor = info.minor if info.minor is not None else -1
        if minor in cards:
            devices.fault = f"it lists {info.type} minor {minor} twice"
            return devices
        try:
            size = max(0, whole(info.resources.get(MEMORY, 0)))
            if any(whole(amount) < 0 for amount in info.resources.values()):
                raise InvalidQuantity(f"{info.type} minor {minor} has a negative amount")
        except InvalidQuantity as error:
            devices.fault = str(error)
            return devices
        if info.health:
            cards[minor] = _card(info, minor, size)
    devices.partitions = _partitions(device)
    return devices


def _card(device: DeviceInfo, minor: int, size: int) -> Card:
    place = device.topology
    numa = place.node_id if place is not None else -1
    return Card(minor, device.id, place.pcie_id if place is not None else "", numa, size, FULL, size)


def _partitions(device: Device) -> dict[int, tuple[frozenset[int], ...]]:
    """Sets of minors by their size, the best scored first; a table that cannot be read is none."""
    try:
        table = parsed(device.metadata.annotations.get(PARTITIONS, "") or "{}")
        return {
            int(size): tuple(
                frozenset(row["minors"])
                for row in sorted(rows, key=lambda row: (-float(row.get("allocationScore") or 0), row["minors"]))
            )
            for size, rows in table.items()
        }
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError):
        return {}


def written(devices: NodeDevices, allotment: Allotment) -> str:
    """An allotment as Koordinator writes it on a pod."""
    body: dict[str, list[dict[str, object]]] = {}
    for minor, core, memory in allotment.cards:
        card = devices.cards.get(minor)
        ratio = memory * FULL // card.size if card is not None and card.size else core
        resources = {CORE: str(core), RATIO: str(ratio)} | ({MEMORY: format_bytes(memory)} if memory else {})
        body.setdefault("gpu", []).append(
            {"minor": minor, "resources": resources} | ({"id": card.id} if card is not None and card.id else {})
        )
    for minor, parts in allotment.rdma:
        body.setdefault("rdma", []).append({"minor": minor, "resources": {RDMA: str(parts)}})
    return json.dumps(body)


def allotted(pod: Pod) -> Allotment | None:
    """The allotment in the annotation of a pod; None without one, or if it is not readable."""
    text = pod.metadata.annotations.get(ALLOCATED)
    return _read_allotment(text) if text else None


@lru_cache(maxsize=65536)
def _read_allotment(text: str) -> Allotment | None:
    """The same few texts are on the pods of a whole fleet."""
    try:
        body = parsed(text)
        cards = tuple(
            (int(entry["minor"]), whole(entry["resources"].get(CORE, FULL)), whole(entry["resources"].get(MEMORY, 0)))
            for entry in body.get("gpu") or ()
        )
        rdma = tuple(
            (int(entry["minor"]), whole(entry["resources"].get(RDMA, FULL))) for entry in body.get("rdma") or ()
        )
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError):
        return None
    return Allotment(cards, rdma)
