"""A tree of queues: guaranteed amounts, limits, and fair shares of the rest.

A queue has amounts by resource; a resource that no limit names is not limited. Only leaves hold gangs. A fault of a
queue is kept beside the tree. It keeps the gangs of that queue and of the queues below it waiting, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from grove.api import quantity
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.fair_shares import ShareClaim, fair_shares

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot

NO_LIMIT = 2**62
"""Stands for an amount without limit; larger than anything a cluster has."""
SCALE = 10**6
"""Shares are compared in millionths."""
CARDS = quantity.CARDS
"""What KAI's queues count, in thousandths: devices of any vendor, whole and shared."""
CORE, RATIO, MEMORY, SHARED = (
    f"koordinator.sh/{name}" for name in ("gpu-core", "gpu-memory-ratio", "gpu-memory", "gpu.shared")
)
THOUSANDTHS = {
    "nvidia.com/gpu": 1000,
    "amd.com/gpu": 1000,
    "gpu.intel.com/i915": 1000,
    "koordinator.sh/gpu": 10,
    CORE: 10,
}
"""What one of a resource is of a card."""

Amounts = Mapping[str, int]
NOTHING: Amounts = {}


class QuotaQueue(msgspec.Struct, frozen=True):
    """`name` is `Kind/name`, so both dialects live side by side. `tree` parts quotas that have nothing in common."""

    name: str
    parent: str = ""
    guaranteed: Amounts = msgspec.field(default_factory=dict)
    limit: Amounts = msgspec.field(default_factory=dict)
    weight: Amounts = msgspec.field(default_factory=dict)
    lends: bool = True
    tree: str = ""
    priority: int = 0
    min_runtime_s: float = 0.0
    is_inner: bool = False
    """Said to have queues below it, whether there are some or not."""

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]

    @property
    def short(self) -> str:
        return self.name.partition("/")[2]

    @property
    def resources(self) -> set[str]:
        return {*self.guaranteed, *self.limit}


class QueueTree:
    """Queues by name with their places in the tree. `faults` are those found while reading them, by queue."""

    def __init__(
        self,
        queues: Iterable[QuotaQueue] = (),
        faults: Mapping[str, str] | None = None,
        totals: Mapping[str, Amounts] = {},
    ) -> None:
        self.queues = {
            quota_queue.name: quota_queue for quota_queue in sorted(queues, key=lambda quota_queue: quota_queue.name)
        }
        self.totals = totals
        """The total of a tree, by its name, where the cluster states it."""
        self.faults = dict(faults or {})
        self.children: dict[str, list[str]] = {}
        for name, queue in self.queues.items():
            if why := self._misplaced(queue):
                self.faults.setdefault(name, why)
        for name, queue in self.queues.items():
            if not self._is_cut_off(queue):
                self.children.setdefault(queue.parent, []).append(name)
        self.paths = {name: self._path(name) for name in self.queues}
        self.leaves: dict[str, list[str]] = {}
        """The leaves below a queue; a leaf is below itself."""
        for name, path in self.paths.items():
            if name not in self.children:
                for above in path:
                    self.leaves.setdefault(above, []).append(name)
        self.resources = sorted({r for queue in self.queues.values() for r in queue.resources})

    def __bool__(self) -> bool:
        return bool(self.queues)

    def is_leaf(self, name: str) -> bool:
        return name in self.queues and name not in self.children and not self.queues[name].is_inner

    def path(self, name: str) -> tuple[QuotaQueue, ...]:
        """From the queue up to its root."""
        return tuple(self.queues[queue] for queue in self.paths.get(name, ()))

    def fault(self, name: str) -> tuple[str, str] | None:
        """The queue at fault on the way up from this one, and what is wrong with it."""
        seen: set[str] = set()
        while name in self.queues and name not in seen:
            if why := self.faults.get(name):
                return name, why
            seen.add(name)
            name = self.queues[name].parent
        return None

    def roots(self) -> list[str]:
        return self.children.get("", [])

    def all_leaves(self) -> set[str]:
        """Leaves whose way up ends in a root."""
        return {leaf for root in self.roots() for leaf in self.leaves.get(root, ())}

    def walk(self) -> Iterator[tuple[QuotaQueue, int]]:
        """Every queue with its depth, parents first, by name; those that are cut off come last."""

        def below(names: Iterable[str], depth: int) -> Iterator[tuple[QuotaQueue, int]]:
            for name in names:
                yield self.queues[name], depth
                yield from below(self.children.get(name, ()), depth + 1)

        yield from below(self.roots(), 0)
        yield from ((queue, 0) for queue in self.queues.values() if self._is_cut_off(queue))

    # Use and shares

    def shares(self, wanted: Mapping[str, Amounts], total: Amounts) -> dict[str, dict[str, int]]:
        """The fair share of every queue by resource, when each leaf asks for this amount (what it uses included).

        `total` is what there is to share, for trees that do not say it themselves.
        """
        shares: dict[str, dict[str, int]] = {name: {} for name in self.queues}
        for resource in self.resources:
            asks = self._asks(wanted, resource)
            for tree in sorted({self.queues[name].tree for name in self.roots()}):
                names = [name for name in self.roots() if self.queues[name].tree == tree]
                whole = self.totals.get(tree, total).get(resource, total.get(resource, 0))
                self._share_out(resource, whole, names, asks, shares)
        return shares

    def _asks(self, wanted: Mapping[str, Amounts], resource: str) -> dict[str, int]:
        """The demand of each queue: the demands of its leaves, each up to the leaf's own limit.

        A queue that does not lend always asks for its guarantee. Otherwise its siblings would get a share of it, and
        their share would be too small without it.
        """
        asks: dict[str, int] = {}

        def ask(name: str) -> int:
            below, queue = self.children.get(name), self.queues[name]
            own = sum(map(ask, below)) if below else wanted.get(name, NOTHING).get(resource, 0)
            asks[name] = own
            kept = 0 if queue.lends else queue.guaranteed.get(resource, 0)
            return min(max(own, kept), queue.limit.get(resource, NO_LIMIT))

        for name in self.roots():
            ask(name)
        return asks

    def _share_out(
        self, resource: str, whole: int, names: list[str], asks: Mapping[str, int], shares: dict[str, dict[str, int]]
    ) -> None:
        claims = [
            ShareClaim(
                min(self.queues[name].guaranteed.get(resource, 0), max(0, whole)),
                asks[name],
                self.queues[name].limit.get(resource, NO_LIMIT),
                self.queues[name].weight.get(resource, 1),
                self.queues[name].lends,
            )
            for name in names
        ]
        for name, share in zip(names, fair_shares(whole, claims), strict=True):
            shares[name][resource] = share
            if below := self.children.get(name):
                self._share_out(resource, share, below, asks, shares)

    # Places in the tree

    def _misplaced(self, queue: QuotaQueue) -> str:
        over = [r for r, amount in queue.guaranteed.items() if queue.limit.get(r, NO_LIMIT) < amount < NO_LIMIT]
        if over:
            return f"more {over[0]} is guaranteed than its limit allows"
        if not queue.parent:
            return ""
        parent = self.queues.get(queue.parent)
        if parent is None:
            return f"its parent {queue.parent.partition('/')[2]} does not exist"
        if parent.tree != queue.tree:
            return f"it is of another tree than its parent {parent.short}"
        seen, at = {queue.name}, queue.parent
        while at in self.queues:
            if at == queue.name:
                return "it is above itself: its parents form a cycle"
            if at in seen:
                return ""
            seen.add(at)
            at = self.queues[at].parent
        return ""

    def _is_cut_off(self, queue: QuotaQueue) -> bool:
        """True if the chain of its parents does not end in a root."""
        seen: set[str] = set()
        while queue.parent:
            if queue.parent not in self.queues or queue.name in seen:
                return True
            seen.add(queue.name)
            queue = self.queues[queue.parent]
        return False

    def _path(self, name: str) -> tuple[str, ...]:
        if self._is_cut_off(self.queues[name]):
            return (name,)
        path = [name]
        while parent := self.queues[path[-1]].parent:
            path.append(parent)
        return tuple(path)


def counted(amounts: Iterable[tuple[str, int]], card_memory: int = 0) -> dict[str, int]:
    """Requests as queues count them: GPUs of any vendor together, and each also by its own name.

    A share of a card counts by its core or by its memory, whichever is more. Memory in bytes counts as a part of a
    card with `card_memory`. Without that number it counts as the whole card.
    """
    totals: dict[str, int] = {}
    for name, amount in amounts:
        totals[name] = totals.get(name, 0) + amount
    cards = sum(totals.get(name, 0) * of for name, of in THOUSANDTHS.items() if name != CORE)
    memory = totals.get(MEMORY, 0)
    by_bytes = memory * 1000 // card_memory if card_memory else totals.get(SHARED, 0) * 1000 if memory else 0
    cards += max(totals.get(CORE, 0) * THOUSANDTHS[CORE], totals.get(RATIO, 0) * THOUSANDTHS[CORE], by_bytes)
    if cards:
        totals[CARDS] = totals.get(CARDS, 0) + cards
    return totals


class QueueUsage:
    """The use of each leaf, and of all leaves below each queue. Valid for one state of a snapshot."""

    def __init__(self, snapshot: Snapshot, tree: QueueTree) -> None:
        self.state, self.tree, self._of = snapshot.usage.state, tree, snapshot.usage.of
        self.card_memory = _card_memory(snapshot)
        self._leaves: dict[str, Amounts] = {}
        self._below: dict[str, dict[str, int]] = {}
        self._fullness: dict[str, int] = {}

    def get(self, leaf: str) -> Amounts:
        mapping = self._leaves.get(leaf)
        if mapping is None:
            mapping = self._leaves[leaf] = counted(self._of(leaf).items(), self.card_memory)
        return mapping

    def counted(self, pods: Iterable[PodFacts]) -> dict[str, int]:
        """The requests of pods, as queues count them."""
        return counted((item for pod in pods for item in pod.shape.used), self.card_memory)

    def below(self, name: str) -> dict[str, int]:
        totals = self._below.get(name)
        if totals is None:
            totals = self._below[name] = {}
            for leaf in self.tree.leaves.get(name, ()):
                for resource, amount in self.get(leaf).items():
                    totals[resource] = totals.get(resource, 0) + amount
        return totals

    def fullness(self, queue: QuotaQueue, share: Amounts) -> int:
        """How full a queue's share is, by the resource it has most of, in millionths."""
        if (known := self._fullness.get(queue.name)) is not None:
            return known
        used = self.below(queue.name)
        most = 0
        for resource in queue.resources:
            if have := used.get(resource, 0):
                whole = share.get(resource, 0)
                most = max(most, have * SCALE // whole if whole > 0 else 2 * SCALE + have)
        self._fullness[queue.name] = most
        return most


def _card_memory(snapshot: Snapshot) -> int:
    """Bytes that a card has on average, as far as nodes say how much GPU memory they have and in how many cards."""
    rows = {name: row for row, name in enumerate(snapshot.resources) if name in (MEMORY, RATIO)}
    if len(rows) < 2:
        return 0
    cards = int(snapshot.allocatable[rows[RATIO]].sum()) // 100
    return int(snapshot.allocatable[rows[MEMORY]].sum()) // cards if cards else 0
