"""Clusters that are full of units to evict, and every way in which such units may lose pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random

import msgspec

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import DisruptionBudget, Running
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place
from tests.support.scheduler.cases import random_case
from tests.support.scheduler.kit import GPU, pod, racks, snap

PRIORITY = 5
NODES = ("r1-0", "r1-1", "r2-0", "r2-1")


def crowded(seed: int):
    """A case whose running pods belong to gangs of one to three, of priorities below, at and above the gang's."""
    case, rng = random_case(seed), Random(seed)
    loose = [p for p in case.running if not p.name.startswith("bound-")]
    fixed = [p for p in case.running if p.name.startswith("bound-")]
    for n in case.nodes:
        taken = sum(p.shape.amount(GPU) for p in case.running if p.node == n.name)
        if taken < n.allocatable[GPU] and rng.random() < 0.8:
            loose.append(pod(f"more-{n.name}", n.allocatable[GPU] - taken, on=n.name))
    rng.shuffle(loose)
    units: list[Running] = []
    while loose:
        size = min(len(loose), rng.choice((1, 1, 2, 3)))
        members = [msgspec.structs.replace(p, group="x", priority=0) for p in loose[:size]]
        loose = loose[size:]
        minimum = rng.randint(1, size)
        units.append(Running(f"u{len(units)}", rng.choice((1, 1, 2, 2, PRIORITY, 9)), tuple(members), {"x": minimum}))
    return case, fixed, units, replace(case.gang, priority=PRIORITY)


def world(made: list, kept: list) -> tuple[Snapshot, list[Running], list[DisruptionBudget]]:
    """As many units as the nodes have capacity for, and budgets over pods by number."""
    free = dict.fromkeys(NODES, 8)
    found: list[Running] = []
    for number, (pods, priority, less_a, less_b) in enumerate(made):
        there: list[PodFacts] = []
        for i, (name, gpu, where) in enumerate(pods):
            if free[where] >= gpu:
                free[where] -= gpu
                there.append(pod(f"u{number}-{i}", gpu, on=where, group=name, priority=priority, gang=f"u{number}"))
        count = Counter(one.group for one in there)
        minima = {name: max(0, count[name] - less) for name, less in (("a", less_a), ("b", less_b)) if count[name]}
        if there:
            found.append(Running(f"u{number}", priority, tuple(there), minima))
    everyone = [one for unit in found for one in unit.pods]
    over = [
        DisruptionBudget(f"b{n}", allowed, frozenset(everyone[i].uid for i in numbers if i < len(everyone)))
        for n, (numbers, allowed) in enumerate(kept)
    ]
    return snap(racks({"r1": 2, "r2": 2}), everyone), found, over


def ways_to_lose(unit: Running) -> Iterator[tuple[PodFacts, ...]]:
    """Nothing, the whole of it, or pods above the minimum of each group."""
    by_group: dict[str, list[PodFacts]] = {}
    for one in unit.pods:
        by_group.setdefault(one.group, []).append(one)
    single = [
        [some for n in range(len(pods) - unit.minimums[name] + 1) for some in combinations(pods, n)]
        for name, pods in by_group.items()
    ]
    for choice in product(*single):
        yield tuple(one for some in choice for one in some)
    yield unit.pods


def fits_without(snapshot: Snapshot, gone: set[str], asked: Gang) -> bool:
    twin = snapshot.copy()
    for uid in gone:
        twin.remove_pod(uid)
    return isinstance(place(twin, asked), Placement)
