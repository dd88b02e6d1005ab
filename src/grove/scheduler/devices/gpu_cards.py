"""GPUs by the minor: which concrete devices of a node a pod gets.

A node's devices are cards with a core (100 parts) and memory, and RDMA devices beside them. A pod gets minors that fit
and are as near each other as it asks. They come from the fullest part of the node that has enough, so that the rest
stays in one piece. All amounts are whole numbers; this module reads no cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from grove.api.quantity import format_bytes

FULL = 100
"""A whole card, in parts of its core or memory; a whole RDMA device."""
PREFIX = "minors.grove.io/"
"""How the names of what is counted of nodes' devices begin."""
FREE_CORE = f"{PREFIX}core"
"""Free parts of all cards together: pods that ask in different ways compete for them."""
MOST_STEPS = 2000
"""Sets of minors that are tried for all pods of one node together."""
MOST_SETS = 5000
"""Sets of minors that are looked at for one pod; eight cards have seventy of four."""
MOST_PATTERNS = 4096
"""Patterns of free minors that are remembered; then they are counted again."""


@dataclass(frozen=True, slots=True)
class CardRequest:
    """`cards` cards with `core` and `memory` of each. Memory in bytes or in parts of a card, whichever was said."""

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
        """The name of the request among a node's resources and in messages: `2-gpus-at-one-PCIe`.

        Each request has its own.
        """
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


@dataclass(slots=True)
class Card:
    """One healthy device. `core` and `memory` are what is free of it now."""

    minor: int
    id: str
    pcie: str
    numa: int
    size: int
    core: int = FULL
    memory: int = 0

    @property
    def is_free(self) -> bool:
        return self.core == FULL and self.memory == self.size


@dataclass(frozen=True, slots=True)
class Allotment:
    """Minors with core and memory taken of each, and RDMA minors with their parts."""

    cards: tuple[tuple[int, int, int], ...] = ()
    rdma: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class NodeDevices:
    """The devices of one node, with what is free of each. `fault` is what is wrong with its Device object."""

    cards: dict[int, Card] = field(default_factory=dict)
    rdma: dict[int, Card] = field(default_factory=dict)
    partitions: Mapping[int, tuple[frozenset[int], ...]] = field(default_factory=dict)
    fault: str = ""

    @property
    def kind(self) -> object:
        """Equal for nodes whose devices are alike, all of them free."""
        parts = (
            (minor, card.pcie, card.numa, card.size) for part in (self.cards, self.rdma) for minor, card in part.items()
        )
        return (*parts, len(self.cards), tuple(self.partitions.items()), self.fault)

    @property
    def pattern(self) -> object:
        """The free part of each device."""
        return tuple((card.core, card.memory) for part in (self.cards, self.rdma) for card in part.values())

    def copy(self) -> NodeDevices:
        """All of it as it is now, to be taken from."""
        cards, rdma = ({minor: replace(card) for minor, card in part.items()} for part in (self.cards, self.rdma))
        return NodeDevices(cards, rdma, self.partitions, self.fault)

    def without(self, taken: Iterable[Allotment], unknown: int = 0) -> NodeDevices:
        """The devices that are left beside these, and beside `unknown` cards of pods that do not name theirs."""
        devices = self.copy()
        for allotment in taken:
            devices.take(allotment)
        # Another scheduler bound them and did not say which cards they have: the last ones are assumed.
        for card in sorted(devices.cards.values(), key=lambda card: -card.minor):
            if unknown and card.is_free:
                devices.take(Allotment(((card.minor, FULL, card.size),)))
                unknown -= 1
        return devices

    @property
    def core(self) -> int:
        """Free parts of all cards together."""
        return sum(max(0, card.core) for card in self.cards.values())

    def allot(self, want: CardRequest) -> Allotment | None:
        """The minors for one pod, or None. Nothing is taken yet."""
        return next(self._allotments(want), None)

    def allot_all(self, card_requests: Sequence[CardRequest]) -> list[Allotment] | None:
        """The minors for several pods at once, best for the first; None if `MOST_STEPS` find no way."""
        left, failed = [MOST_STEPS], set[object]()

        def rest(number: int) -> list[Allotment] | None:
            if number == len(card_requests):
                return []
            state = (number, self.pattern)
            if state in failed:
                return None
            for allotment in self._allotments(card_requests[number]):
                left[0] -= 1
                if left[0] < 0:
                    break
                self.take(allotment)
                allotments = rest(number + 1)
                self.take(allotment, -1)
                if allotments is not None:
                    return [allotment, *allotments]
            failed.add(state)
            return None

        return rest(0)

    def _allotments(self, want: CardRequest) -> Iterator[Allotment]:
        """Ways to give a pod its minors, best first."""
        is_beside = bool(want.same_pcie and want.cards)
        if self.fault or (alone := () if is_beside else self._nics(want, ())) is None:
            return
        for chosen in self._sets(want):
            nics = self._nics(want, chosen) if is_beside else alone
            if nics is not None:
                yield Allotment(tuple((c.minor, want.core, self._memory(want, c)) for c in chosen), nics)

    def take(self, allotment: Allotment, sign: int = 1) -> None:
        for minor, core, memory in allotment.cards:
            if minor in self.cards:
                self.cards[minor].core -= sign * core
                self.cards[minor].memory -= sign * memory
        for minor, parts in allotment.rdma:
            if minor in self.rdma:
                self.rdma[minor].core -= sign * parts

    def pod_slots(self, want: CardRequest, most: int = 64) -> int:
        """How many such pods fit one after the other."""
        taken: list[Allotment] = []
        while len(taken) < most and (allotment := self.allot(want)) is not None:
            self.take(allotment)
            taken.append(allotment)
        for allotment in taken:
            self.take(allotment, -1)
        return len(taken)

    def _memory(self, want: CardRequest, card: Card) -> int:
        if want.memory:
            return want.memory
        return card.size * (want.ratio or want.core) // FULL

    def _serves(self, want: CardRequest, card: Card) -> int:
        """How many such pods a card could serve, one after the other."""
        by_core = card.core // want.core if want.core else MOST_SETS
        memory = self._memory(want, card)
        return min(by_core, card.memory // memory) if memory else by_core

    def _sets(self, want: CardRequest) -> Iterator[tuple[Card, ...]]:
        """Sets of cards that fit, best first: the fullest place, then lower minors."""
        if not want.cards:
            yield ()
            return
        fits = [c for c in self.cards.values() if c.core >= want.core and c.memory >= self._memory(want, c)]
        if want.rdma and want.same_pcie:  # whatever set is chosen of these, every card has an RDMA device beside it
            parts_of_each = min(want.rdma, FULL)
            beside = {nic.pcie for nic in self.rdma.values() if nic.core >= parts_of_each}
            fits = [card for card in fits if card.pcie in beside]
        # Parts of several cards each: taking them from the emptiest cards leaves most for the next pod.
        parts = want.cards > 1 and any(self._serves(want, card) > 1 for card in fits)
        fits.sort(key=lambda c: (-self._serves(want, c), c.minor) if parts else (c.core, c.memory, c.minor))
        table = self.partitions.get(want.cards, ()) if want.partition or self.partitions else ()
        by_minor = {card.minor: card for card in fits}
        if want.partition:
            for minors in table:
                if minors <= by_minor.keys() and self._is_near(want, [by_minor[m] for m in minors]):
                    yield tuple(by_minor[m] for m in sorted(minors))
            if want.partition == "Restricted":
                return
        looked = 0
        for place in [fits] if parts and not want.scope else self._places(want, fits):
            for chosen in combinations(place, want.cards):
                looked += 1
                if looked > MOST_SETS:
                    return
                yield tuple(sorted(chosen, key=lambda c: c.minor))

    def _places(self, want: CardRequest, fits: Sequence[Card]) -> Iterator[list[Card]]:
        """Cards that may be taken together: at one place if asked, the place with the least capacity first."""
        if not want.scope:
            # Without a wish still near each other: by place, fullest first, then across.
            for place in sorted(_by(fits, "pcie").values(), key=lambda p: (len(p), p[0].minor)):
                if len(place) >= want.cards:
                    yield place
            yield list(fits)
            return
        places = _by(fits, "pcie" if want.scope == "PCIe" else "numa").values()
        yield from (place for place in sorted(places, key=lambda p: (len(p), p[0].minor)) if len(place) >= want.cards)

    def _is_near(self, want: CardRequest, cards: Sequence[Card]) -> bool:
        places = {card.pcie if want.scope == "PCIe" else card.numa for card in cards}
        return not want.scope or len(places) == 1

    def _nics(self, want: CardRequest, cards: Sequence[Card]) -> tuple[tuple[int, int], ...] | None:
        if not want.rdma:
            return ()
        parts, count = (FULL, want.rdma // FULL) if want.rdma >= FULL else (want.rdma, 1)
        free = sorted((n for n in self.rdma.values() if n.core >= parts), key=lambda n: (n.core, n.minor))
        if want.same_pcie and cards:
            nics = []
            for place in sorted({card.pcie for card in cards}):
                here = next((n for n in free if n.pcie == place), None)
                if here is None:
                    return None
                nics.append((here.minor, parts))
            return tuple(nics)
        return tuple((n.minor, parts) for n in free[:count]) if len(free) >= count else None


def _by(cards: Iterable[Card], what: str) -> dict[object, list[Card]]:
    groups: dict[object, list[Card]] = {}
    for card in cards:
        groups.setdefault(getattr(card, what), []).append(card)
    return groups


@dataclass(frozen=True, slots=True)
class UsedCards:
    """A node's devices, and what its pods have of them, by uid: an allotment, or only how many cards."""

    devices: NodeDevices
    kind: object
    """Equal for nodes whose devices are alike."""
    by_pod: Mapping[str, Allotment | int]
    promised: tuple[Allotment, ...] = ()

    def without(self, gone: Collection[str] = ()) -> NodeDevices:
        """The free devices without some pods."""
        left = [use for uid, use in self.by_pod.items() if uid not in gone]
        taken = [use for use in left if isinstance(use, Allotment)]
        return self.devices.without([*taken, *self.promised], sum(use for use in left if isinstance(use, int)))


class CardCounts:
    """How many pods of each kind fit on a node. Nodes of a fleet are much alike: each pattern is worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, object], dict[str, int]] = {}

    def pod_slots(self, kind: object, free: NodeDevices, card_requests: Mapping[str, CardRequest]) -> dict[str, int]:
        """By the name of each kind; `kind` is that of the node's devices, `free` what is free of them."""
        if len(self._known) > MOST_PATTERNS:
            self._known.clear()
        known = self._known.setdefault((kind, free.pattern), {})
        for name in card_requests.keys() - known.keys():
            known[name] = free.pod_slots(card_requests[name])
        return {name: known[name] for name in card_requests}

    def forget(self) -> None:
        self._known.clear()


class CardVacancy:
    """How many pods of each kind would fit on nodes without some of those that are there."""

    def __init__(self, nodes: Mapping[str, UsedCards], card_requests: Mapping[str, CardRequest]) -> None:
        self._nodes, self._card_requests, self._counts = nodes, card_requests, CardCounts()

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        used = self._nodes.get(node)
        if used is None or not any(uid in used.by_pod for uid in uids):
            return {}
        before, after = self._capacity(used, ()), self._capacity(used, uids)
        return {name: after[name] - before[name] for name in after}

    def _capacity(self, used: UsedCards, gone: Collection[str]) -> dict[str, int]:
        free = used.without(gone)
        return {FREE_CORE: free.core, **self._counts.pod_slots(used.kind, free, self._card_requests)}
