"""No pod is evicted in vain: no set of fewer pods would do, where all such sets can be tried."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from tests.support.scheduler.cases import LEVELS
from tests.support.scheduler.crowds import NODES, PRIORITY, crowded, fits_without, ways_to_lose, world
from tests.support.scheduler.kit import GPU, RACK, free_of, gang, group, pod, racks, snap

from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.evict.preempt import Victims, preempt
from grove.scheduler.evict.running import MOST_SETS, DisruptionBudget, Running
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.gang import Gang, PodGroup
from grove.scheduler.solve.place import place


def unit(name: str, *pods: tuple[int, str], minimum: int | None = None) -> Running:
    there = tuple(pod(f"{name}-{i}", gpu, on=node, group="x", gang=name) for i, (gpu, node) in enumerate(pods))
    return Running(name, 0, there, {"x": len(pods) if minimum is None else minimum})


@pytest.mark.parametrize(
    ("units", "wanted", "want"),
    [
        pytest.param(
            [unit("a", (2, "r1-0")), unit("b", (2, "r1-0")), unit("c", (4, "r1-0"))],
            group("g", 1, 4),
            ["c-0"],
            id="one large pod instead of two small ones",
        ),
        pytest.param(
            [unit("a", (2, "r1-0"), (6, "r1-0"), minimum=1)],
            group("g", 1, 5),
            ["a-1"],
            id="the pod above the minimum that is large enough, instead of the whole gang",
        ),
        pytest.param(
            [unit("a", (4, "r1-0"), (4, "r1-1")), unit("b", (4, "r1-0")), unit("c", (4, "r1-1"), (8, "r1-2"))],
            group("g", 2, 4),
            ["a-0", "a-1"],
            id="a gang that stands on both nodes",
        ),
    ],
)
def test_who_goes(units: list[Running], wanted: PodGroup, want: list[str]) -> None:
    snapshot = snap(racks({"r1": 3}), [one for unit_ in units for one in unit_.pods])
    for name in ("r1-0", "r1-1", "r1-2"):
        if left := free_of(snapshot, name).get(GPU, 0):
            snapshot.add_pod(pod(f"fixed-{name}", left, on=name))
    answer = preempt(snapshot, gang(wanted, priority=PRIORITY), units)
    assert isinstance(answer, Victims)
    assert sorted(one.uid for one in answer.pods) == want


Crowd = tuple[Snapshot, Gang, list[Running], list[DisruptionBudget]]


def crowd(seed: int) -> Crowd:
    """Gangs of one to three pods on a random cluster, or units of two groups under budgets on four nodes."""
    if seed % 2:
        case, fixed, units, wanted = crowded(seed)
        running = [*fixed, *(one for unit_ in units for one in unit_.pods)]
        return cluster(case.nodes, running, {"t": LEVELS}), wanted, units, []
    rng = Random(seed)
    made = []
    for _ in range(rng.randint(2, 4)):
        pods = [(rng.choice("ab"), rng.randint(1, 4), rng.choice(NODES)) for _ in range(rng.randint(1, 4))]
        made.append((pods, rng.choice((0, 0, 1, 9)), rng.randint(0, 2), rng.randint(0, 2)))
    kept = [({rng.randint(0, 15) for _ in range(4)}, rng.randint(0, 2)) for _ in range(rng.choice((0, 0, 1, 2)))]
    groups = [group(name, rng.randint(1, 3), rng.randint(1, 8)) for name in ("g", "h")[: rng.randint(1, 2)]]
    snapshot, units, budgets = world(made, kept)
    return snapshot, gang(*groups, required=rng.choice((RACK, "")), priority=PRIORITY), units, budgets


@pytest.mark.parametrize("first", range(0, 800, 200), ids=lambda first: f"seeds from {first}")
def test_no_set_of_fewer_pods_would_do(first: int) -> None:
    compared = 0
    for seed in range(first, first + 200):
        snapshot, wanted, units, budgets = crowd(seed)
        if isinstance(place(snapshot, wanted), Placement):
            continue
        answer = preempt(snapshot, wanted, units, budgets)
        if not isinstance(answer, Victims):
            continue
        gone = {one.uid for one in answer.pods}
        highest = max(unit_.priority for unit_ in units if not gone.isdisjoint(one.uid for one in unit_.pods))
        ways = [list(ways_to_lose(unit_)) for unit_ in units if unit_.priority <= highest]
        sets = {frozenset(one.uid for some in chosen for one in some) for chosen in product(*ways)}
        smaller = [some for some in sets if 0 < len(some) < len(gone)]
        if len(smaller) > MOST_SETS:
            smaller = [some for some in smaller if some < gone]
        compared += 1
        for some in smaller:
            if sum(len(some & one.uids) > one.allowed for one in budgets) <= len(answer.budgets_broken):
                assert not fits_without(snapshot, set(some), wanted), f"seed {seed}: {sorted(some)} of {sorted(gone)}"
    assert compared > 20
