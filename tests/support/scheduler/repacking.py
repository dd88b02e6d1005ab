"""Small fragmented clusters, every plan that makes a gang fit there, and a greedy consolidation to compare with."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from random import Random

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.repack import Movable
from grove.scheduler.evict.running import Running
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place
from tests.support.scheduler.kit import GPU, RACK, gang, group, pod, racks, snap

CAPACITY = 8
Free = tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """A gang of pods that are all alike, in one rack or anywhere."""

    name: str
    pods: int
    gpu: int
    in_rack: bool = False

    @property
    def tree(self) -> Gang:
        made = group("g", self.pods, self.gpu) if self.name == "waits" else group(self.name, self.pods, self.gpu)
        return gang(made, required=RACK if self.in_rack else "")


@dataclass(frozen=True)
class Fragmented:
    """Running gangs, each with the nodes of its pods, and one that waits."""

    nodes: tuple[str, ...]
    running: tuple[tuple[Asked, tuple[str, ...]], ...]
    waits: Asked
    priorities: tuple[int, ...] = ()

    @property
    def free(self) -> Free:
        left = Counter(dict.fromkeys(self.nodes, CAPACITY))
        for asked, nodes in self.running:
            left.subtract({node: asked.gpu * n for node, n in Counter(nodes).items()})
        return tuple(left[node] for node in self.nodes)

    def rack(self, node: str) -> str:
        return node.split("-")[0]

    def movable(self) -> list[Movable]:
        found = []
        for i, (asked, nodes) in enumerate(self.running):
            priority = self.priorities[i] if self.priorities else 0
            pods = tuple(
                pod(f"{asked.name}-{k}", asked.gpu, on=node, group=asked.name, gang=asked.name, priority=priority)
                for k, node in enumerate(nodes)
            )
            found.append(Movable(Running(asked.name, priority, pods, {asked.name: len(pods)}), asked.tree))
        return found

    def snapshot(self) -> Snapshot:
        counts = Counter(self.rack(node) for node in self.nodes)
        return snap(racks(dict(counts)), [one for unit in self.movable() for one in unit.unit.pods])

    def places(self, asked: Asked, free: Free, now: Sequence[str] = ()) -> Iterator[tuple[int, ...]]:
        """Every way to put a gang on these free amounts and on the nodes it has now, as numbers of nodes."""
        has = Counter(self.nodes.index(node) for node in now)
        for chosen in product(range(len(self.nodes)), repeat=asked.pods):
            if list(chosen) != sorted(chosen):
                continue  # its pods are all alike
            if asked.in_rack and len({self.rack(self.nodes[i]) for i in chosen}) > 1:
                continue
            if all(free[i] >= (n - has[i]) * asked.gpu for i, n in Counter(chosen).items()):
                yield chosen


def fewest_restarts(case: Fragmented) -> int | None:
    """Pods that restart in the cheapest plan; None if there is no plan. Tries all of them."""
    begin = (0, case.free, frozenset[int]())
    heap, ties, seen = [(0, 0, begin)], count(1), set()
    while heap:
        _, _, (cost, free, moved) = heapq.heappop(heap)
        if (free, moved) in seen:
            continue
        seen.add((free, moved))
        if next(case.places(case.waits, free), None) is not None:
            return cost
        for i, (asked, nodes) in enumerate(case.running):
            if i in moved:
                continue
            for chosen in case.places(asked, free, nodes):
                left = list(free)
                for k in chosen:
                    left[k] -= asked.gpu
                for node in nodes:
                    left[case.nodes.index(node)] += asked.gpu
                after = (cost + asked.pods, tuple(left), moved | {i})
                heapq.heappush(heap, (after[0], next(ties), after))
    return None


Relocated = list[tuple[Movable, Placement]]
"""Gangs that got other nodes, with their new places."""


def restarts_of(moved: Relocated | None) -> int | None:
    return None if moved is None else sum(len(one.unit.pods) for one, _ in moved)


def greedy_restarts(case: Fragmented, *, newest_first: bool = False) -> int | None:
    return restarts_of(greedy_moves(case, newest_first=newest_first))


def greedy_moves(case: Fragmented, *, newest_first: bool = False) -> Relocated | None:
    """Gangs that move if gangs are taken out one after the other, lowest priority first, until all fit again.

    The waiting gang is placed first and then every gang that was taken out. One that gets its old nodes again did not
    move. This is how KAI describes its consolidation. Names stand for ages: the last name is the newest gang.
    """
    order = sorted(case.movable(), key=lambda one: one.unit.name, reverse=newest_first)
    order.sort(key=lambda one: one.unit.priority)
    for taken in range(1, len(order) + 1):
        moved = _all_fit(case, order[:taken])
        if moved is not None:
            return moved
    return None


def has_an_order(case: Fragmented, moved: Relocated) -> bool:
    """Whether these moves can be made one after the other, each to nodes that are free while its gang still runs."""

    def walk(free: Counter[str], left: Relocated) -> bool:
        for at, (one, placement) in enumerate(left):
            gpu = one.unit.pods[0].shape.amount(GPU)
            change = Counter(pod.node for pod in placement.pods)
            change.subtract(Counter(pod.node for pod in one.unit.pods))
            if all(free[node] >= more * gpu for node, more in change.items()):
                after = Counter({node: free[node] - change[node] * gpu for node in case.nodes})
                if walk(after, left[:at] + left[at + 1 :]):
                    return True
        return not left

    return walk(Counter(dict(zip(case.nodes, case.free, strict=True))), moved)


def _all_fit(case: Fragmented, out: Sequence[Movable]) -> Relocated | None:
    now = case.snapshot().copy()
    for one in out:
        for member in one.unit.pods:
            now.remove_pod(member.uid)
    answer = place(now, case.waits.tree)
    if isinstance(answer, NoFit):
        return None
    now.assume(answer)
    moved: Relocated = []
    for one in out:
        again = place(now, one.tree)
        if not isinstance(again, Placement) or again.unplaced:
            return None
        now.assume(again)
        stays = sorted(p.node for p in again.pods) == sorted(p.node for p in one.unit.pods)
        moved += [] if stays else [(one, again)]
    return moved


def random_fleet(seed: int) -> Fragmented:
    """Two to four racks of two to four nodes with gangs of one to three pods, and a gang that may wait."""
    rng = Random(seed)
    in_rack = rng.randint(2, 4)
    nodes = tuple(f"r{rack}-{n}" for rack in range(rng.randint(2, 4)) for n in range(in_rack))
    left, running = dict.fromkeys(nodes, CAPACITY), list[tuple[Asked, tuple[str, ...]]]()
    for number in range(rng.randint(len(nodes) // 2, 2 * len(nodes))):
        asked = Asked(f"u{number:02}", rng.choice((1, 1, 1, 2, 3)), rng.randint(1, 5), rng.random() < 0.4)
        rack = rng.choice(nodes).split("-")[0]
        open_to_it = [node for node in nodes if not asked.in_rack or node.split("-")[0] == rack]
        at = tuple(rng.choices(open_to_it, k=asked.pods))
        if all(left[node] >= pods * asked.gpu for node, pods in Counter(at).items()):
            for node in at:
                left[node] -= asked.gpu
            running.append((asked, at))
    waits = Asked("waits", rng.randint(1, 3), rng.randint(4, 8), rng.random() < 0.5)
    return Fragmented(nodes, tuple(running), waits, tuple(rng.choice((0, 5)) for _ in running))


def free_gpus(snapshot: Snapshot) -> int:
    return int(snapshot.free[snapshot.resources.index(GPU), : snapshot.nodes.rows].sum())
