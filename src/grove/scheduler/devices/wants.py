"""What a pod asks of Koordinator's devices: cards or shares of cards, RDMA beside them, how near to each other.

Requests come in several spellings, hints as annotations; both are read into one `Want`. All amounts are whole numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from grove.api.quantity import format_bytes
from grove.scheduler.model.facts import Requests

K = "koordinator.sh/"
GPU_NAMES = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
CORE, MEMORY, RATIO, SHARED, SHARE = (
    f"{K}{name}" for name in ("gpu-core", "gpu-memory", "gpu-memory-ratio", "gpu.shared", "gpu")
)  # fmt: skip
RDMA = f"{K}rdma"
NAMES = (CORE, MEMORY, RATIO, SHARED, SHARE, RDMA)
HINT, JOINT = "scheduling.koordinator.sh/device-allocate-hint", "scheduling.koordinator.sh/device-joint-allocate"
PARTITION_SPEC, PARTITIONS = "scheduling.koordinator.sh/gpu-partition-spec", "scheduling.koordinator.sh/gpu-partitions"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
FULL = 100


class InvalidWant(ValueError):
    """The pod asks for devices in a way that means nothing; the message says what does."""


@dataclass(frozen=True, slots=True)
class Want:
    """`cards` cards with so much core and memory of each. Memory in bytes or in parts of a card, whichever was said."""

    cards: int = 0
    core: int = FULL
    memory: int = 0
    ratio: int = 0
    rdma: int = 0
    """Parts of RDMA devices: 100 is one."""
    scope: str = ""
    """`PCIe` or `NUMANode`: all cards at one place."""
    same_pcie: bool = False
    """Every card has an RDMA device at its own place."""
    partition: str = ""
    """`Restricted`: only sets of the node's table; `BestEffort`: those first."""

    @property
    def words(self) -> str:
        """What it is called among a node's resources, and by people: `2-gpus-at-one-PCIe`; unlike for unlike ones."""
        parts = [f"{self.cards}-gpu" + ("s" if self.cards != 1 else "")] if self.cards else []
        if self.cards and self.core != FULL:
            parts.append(f"of-{self.core}-core")
        if self.memory:
            parts.append(f"with-{format_bytes(self.memory)}")
        if self.ratio not in (0, self.core):
            parts.append(f"with-{self.ratio}-memory-ratio")
        elif self.ratio != FULL and self.ratio:
            parts.append("and-memory")
        if self.scope:
            parts.append(f"at-one-{self.scope}")
        if self.rdma:
            parts.append(f"{self.rdma}-rdma" + ("-beside-each" if self.same_pcie else ""))
        if self.partition:
            parts.append(f"partition-{self.partition}")
        return "-".join(parts)

    @property
    def is_plain(self) -> bool:
        """Whole cards of any kind: counting cards says how many fit."""
        whole_cards = self.core == FULL and not self.memory and self.ratio in (0, FULL)
        return whole_cards and not (self.rdma or self.scope or self.same_pcie or self.partition == "Restricted")


def want_of(requests: Requests, annotations: Mapping[str, str]) -> Want | None:
    """What a pod asks for, from its requests in any spelling; None without devices. Raises `InvalidWant`."""
    asked = {name: amount for name, amount in requests if name in (*GPU_NAMES, *NAMES) and amount}
    if not asked:
        return None
    if any(amount < 0 for amount in asked.values()):
        raise InvalidWant("an amount of devices is negative")
    rdma = asked.pop(RDMA, 0)
    if rdma > FULL and rdma % FULL:
        raise InvalidWant(f"{RDMA} above {FULL} must be a multiple of it, not {rdma}")
    found = _cards(asked)
    hint = _annotation(annotations, HINT).get("gpu")
    scope = str((hint or {}).get("requiredTopologyScope") or "") if isinstance(hint, dict) or hint is None else ""
    if scope not in ("", "Device", "PCIe", "NUMANode", "Node"):
        raise InvalidWant(f"{HINT}: requiredTopologyScope must be Device, PCIe, NUMANode or Node, not {scope}")
    joint = _annotation(annotations, JOINT)
    same = joint.get("requiredScope") == "SamePCIe" and "rdma" in _texts(joint.get("deviceTypes"))
    partition = _annotation(annotations, PARTITION_SPEC).get("allocatePolicy") or ""
    return Want(
        found.cards, found.core, found.memory, found.ratio, rdma or (FULL if same and found.cards else 0),
        scope if scope in ("PCIe", "NUMANode") else "", same, str(partition),
    )  # fmt: skip


def _cards(asked: Mapping[str, int]) -> Want:
    names = set(asked)
    plain = [name for name in GPU_NAMES if name in names]
    if plain:
        if len(names) > 1:
            raise InvalidWant(f"{plain[0]} does not go with {', '.join(sorted(names - {plain[0]}))}")
        return Want(asked[plain[0]])
    if not names:
        return Want()
    if names == {SHARE}:
        share = asked[SHARE]
        if share > FULL and share % FULL:
            raise InvalidWant(f"{SHARE} above {FULL} must be a multiple of it, not {share}")
        return Want(max(1, share // FULL), min(share, FULL), 0, min(share, FULL))
    cards = asked.get(SHARED, 0)
    rest = names - {SHARED}
    if rest not in ({CORE, MEMORY}, {CORE, RATIO}, {MEMORY}, {RATIO}) or (not cards and rest in ({MEMORY}, {RATIO})):
        raise InvalidWant(
            f"{', '.join(sorted(names))}: ask for {CORE} with {MEMORY} or {RATIO}, for {SHARE}, or for {SHARED} besides"
        )
    core, ratio, memory = asked.get(CORE, 0), asked.get(RATIO, 0), asked.get(MEMORY, 0)
    if not cards:
        by = core if core else ratio
        cards = max(1, by // FULL) if by > FULL else 1
        if by > FULL and by % FULL:
            raise InvalidWant(f"{CORE if core else RATIO} above {FULL} must be a multiple of it, not {by}")
    if core % cards or ratio % cards or memory % cards:
        raise InvalidWant(f"what is asked for does not divide among {cards} cards")
    return Want(cards, core // cards, memory // cards, ratio // cards)


def _annotation(annotations: Mapping[str, str], name: str) -> dict[str, object]:
    text = annotations.get(name)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidWant(f"{name} is not a JSON object")
    return found


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
