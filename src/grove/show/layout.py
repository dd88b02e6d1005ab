"""The cluster as a tree of domains: how full each is, which gang sits where, and how large a gang still fits.

Pure: from nodes and pods to values. Speaks of one resource, the accelerators; a domain's free amount counts only nodes
that take new pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from grove.api import labels
from grove.api.core import Node
from grove.api.fragmentation import GangSize, gang_size, unusable_share
from grove.api.quantity import amount
from grove.diagnosis.held_capacity import headroom_on, held_nodes, reserved_on
from grove.diagnosis.seen import Seen
from grove.scheduler.model.reading import pod_requests

if TYPE_CHECKING:  # it brings numpy along
    from grove.diagnosis.spreads import SpreadCount

NO_DOMAIN = "(no label)"
USUAL = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Spot:
    """One node. `taken` is by gang (with its namespace where two share the name), or by namespace/pod for pods without
    a gang; `reserved` is by Reservation.

    `broken` is what the node has and cannot give, such as GPUs that its driver found unhealthy: not part of `total`.
    `held_for` is the gang that the scheduler keeps the node for: still free, but not for later gangs.
    """

    node: str
    total: int
    used: int
    open: bool
    note: str = ""
    taken: tuple[tuple[str, int], ...] = ()
    broken: int = 0
    reserved: tuple[tuple[str, int], ...] = ()
    held_for: str = ""
    headroom: tuple[tuple[str, int], ...] = ()
    """What is held for further replicas, by set."""

    @property
    def free(self) -> int:
        kept = sum(count for _, count in (*self.reserved, *self.headroom))
        return max(0, self.total - self.used - kept) if self.open else 0

    @property
    def words(self) -> str:
        """Short notes on the node: faults, reservations, holds. Empty for most nodes."""
        notes = [self.note, f"{self.broken} broken" if self.broken else ""]
        notes += [f"{count} reserved by {name}" for name, count in self.reserved]
        notes += [f"{count} held as headroom of {name}" for name, count in self.headroom]
        notes.append(f"held for {self.held_for}" if self.held_for else "")
        return ", ".join(filter(None, notes))


@dataclass(frozen=True, slots=True)
class Domain:
    level: str
    name: str
    total: int
    used: int
    free: int
    nodes: int
    whole: int
    """Nodes that are open and entirely unused."""
    domains: tuple[Domain, ...] = field(default=())
    spots: tuple[Spot, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Level:
    """The capacity of one topology level for a gang that must stay within one of its domains."""

    name: str
    key: str
    domains: int
    largest_free: int
    largest_whole: int
    best: str
    fragmentation: float
    """Share of the free amount that gangs of the layout's `size`, each within one domain, cannot use."""
    unlabelled: int
    to_free: str = ""
    """The domain that would be whole with the least to move, where something is fragmented."""
    movers: tuple[tuple[str, int], ...] = ()
    """Who would have to move out of it, with how much each."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`set_of` gives the set of each gang among the owners, `gang_of` its namespace and name."""

    resource: str
    root: Domain
    levels: tuple[Level, ...]
    set_of: Mapping[str, str] = field(default_factory=dict)
    gang_of: Mapping[str, str] = field(default_factory=dict)
    size: GangSize | None = None
    """The size of gang with which fragmentation is measured."""
    spreads: tuple[SpreadCount, ...] = ()
    """How evenly the units of sets are distributed; only `topology` fills it."""

    @property
    def measure(self) -> str:
        """The meaning of the column FRAGMENTED."""
        if self.size is None:
            return "FRAGMENTED is 0: no gang asks for this resource"
        unit = self.resource.rpartition("/")[2]
        return f"FRAGMENTED: share of the free {unit} that gangs of {self.size.words} in one domain cannot use"


def layout_of(seen: Seen, topology: str = "", resource: str = "") -> Layout:
    """The picture of all nodes. Pods that have ended take nothing."""
    resource = resource or accelerator(seen.nodes)
    levels = seen.levels(topology)
    taken: dict[str, Counter[str]] = {}
    set_of: dict[str, str] = {}
    gang_of: dict[str, str] = {}
    namespace_of: dict[str, str] = {}
    gangs: dict[str, tuple[bool, list[int]]] = {}
    for pod in seen.pods:
        if not pod.is_finished and (requested := dict(pod_requests(pod)).get(resource, 0)):
            if not pod.metadata.is_deleting:
                name = f"{pod.metadata.namespace}/{pod.metadata.labels.get(labels.POD_GANG) or pod.metadata.name}"
                waits, asked = gangs.get(name, (True, []))
                gangs[name] = (waits and not pod.spec.node_name, [*asked, requested])
            if pod.spec.node_name:
                meta = pod.metadata
                gang, whole = meta.labels.get(labels.POD_GANG, ""), f"{meta.namespace}/{meta.name}"
                owner = gang or whole
                if gang:
                    whole = f"{meta.namespace}/{gang}"
                    owner = gang if namespace_of.setdefault(gang, meta.namespace) == meta.namespace else whole
                    set_of[owner] = f"{meta.namespace}/{meta.labels.get(labels.PART_OF, '')}"
                    gang_of[owner] = whole
                taken.setdefault(pod.spec.node_name, Counter())[owner] += requested
    reserved, held = reserved_on(seen.reservations, resource), held_nodes(seen.gangs)
    headroom = headroom_on(seen.gangs, resource)
    spots = [
        replace(
            _spot(node, resource, taken.get(name, _NONE), reserved.get(name, _NONE), held.get(name, "")),
            headroom=_most_first(headroom.get(name, _NONE)),
        )
        for node in seen.nodes
        if (name := node.metadata.name)
    ]
    placed = sorted(
        ((seen.path(spot.node, levels), spot) for spot in spots), key=lambda entry: (entry[0], entry[1].node)
    )
    size = gang_size((name, waits, asked) for name, (waits, asked) in gangs.items())
    root = _domain("cluster", "cluster", placed, [name for name, _ in levels])
    found_levels = tuple(_level(root, depth, name, key, size) for depth, (name, key) in enumerate(levels))
    return Layout(resource, root, found_levels, set_of, gang_of, size)


def accelerator(nodes: Sequence[Node]) -> str:
    """The extended resource the cluster has most of; GPUs if it has none at all."""
    total: Counter[str] = Counter()
    for node in nodes:
        for name, quantity in node.status.allocatable.items():
            if "/" in name and not name.startswith("hugepages"):
                total[name] += amount(name, quantity)
    best = max(total.items(), key=lambda entry: (entry[1], entry[0] == USUAL), default=(USUAL, 0))
    return best[0] if best[1] else USUAL


_NONE: Counter[str] = Counter()


def _spot(node: Node, resource: str, taken: Counter[str], reserved: Counter[str], held_for: str) -> Spot:
    total = amount(resource, node.status.allocatable.get(resource, 0))
    broken = max(0, amount(resource, node.status.capacity.get(resource, 0)) - total)
    note = "does not answer" if not node.is_ready else "cordoned" if node.spec.unschedulable else ""
    return Spot(
        node.metadata.name,
        total,
        sum(taken.values()),
        not note,
        note,
        _most_first(taken),
        broken,
        _most_first(reserved),
        held_for,
    )


def _most_first(amounts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items(), key=lambda entry: (-entry[1], entry[0])))


def _domain(level: str, name: str, placed: Sequence[tuple[tuple[str, ...], Spot]], below: Sequence[str]) -> Domain:
    spots = [spot for _, spot in placed]
    domains: list[Domain] = []
    if below:
        at = len(placed[0][0]) - len(below) if placed else 0
        names = sorted({path[at] for path, _ in placed}, key=lambda name: (not name, name))
        for inner in names:
            inside = [entry for entry in placed if entry[0][at] == inner]
            domains.append(_domain(below[0], inner or NO_DOMAIN, inside, below[1:]))
    return Domain(
        level,
        name,
        sum(spot.total for spot in spots),
        sum(spot.used for spot in spots),
        sum(spot.free for spot in spots),
        len(spots),
        sum(spot.open and not spot.used for spot in spots),
        tuple(domains),
        () if below else tuple(spots),
    )


def at_depth(root: Domain, depth: int) -> Iterable[Domain]:
    """The domains of a level, 0 being the broadest, in order."""
    if depth < 0:
        return [root]
    return [inner for domain in at_depth(root, depth - 1) for inner in domain.domains]


def _level(root: Domain, depth: int, name: str, key: str, size: GangSize | None) -> Level:
    every = list(at_depth(root, depth))
    real = [domain for domain in every if domain.name != NO_DOMAIN]
    best = max(real, key=lambda domain: (domain.free, domain.whole), default=None)
    outside = sum(domain.free for domain in every if domain.name == NO_DOMAIN)
    lost = sum(domain.nodes for domain in every if domain.name == NO_DOMAIN)
    share = unusable_share(([spot.free for spot in spots_of(domain)] for domain in real), size, outside)
    movable = share > 0 and len(real) > 1
    nearest = min(
        (domain for domain in real if domain.used and domain.free),
        key=lambda domain: (domain.used, -domain.free, domain.name),
        default=None,
    )
    return Level(
        name,
        key,
        len(real),
        best.free if best else 0,
        max((domain.whole for domain in real), default=0),
        best.name if best else "",
        share,
        lost,
        nearest.name if nearest and movable else "",
        _owners(nearest) if nearest and movable else (),
    )


def _owners(domain: Domain) -> tuple[tuple[str, int], ...]:
    """Who uses a domain, with how much each, the most first."""
    counter: Counter[str] = Counter()
    for spot in spots_of(domain):
        for owner, amount_ in spot.taken:
            counter[owner] += amount_
    return _most_first(counter)


def spots_of(domain: Domain) -> Iterator[Spot]:
    yield from domain.spots
    for inner in domain.domains:
        yield from spots_of(inner)
