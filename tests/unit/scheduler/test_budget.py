"""A budget that is true: what a decision costs is counted where the work is done, on cases made to be expensive.

Work is counted in calls of Python functions, so that no machine is too busy for the test: a step may stand for a fixed
number of them and no more, however a gang is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from tests.support.scheduler.cases import brim_case, nested_case, random_case
from tests.support.scheduler.kit import RACK, gang, group, node, racks, shape, snap, used

from grove.api.selector import of_labels
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import PodScope, PodTerm, Spread
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place

CALLS_A_STEP = 64
"""Calls of functions, steps of generators included, that one step of the budget may stand for."""
CALLS_TO_BEGIN = 400
"""What it takes to state a problem, for each class of pods in it."""

Case = tuple[Snapshot, Gang]


def counted(work: Callable[[], Placement | NoFit]) -> tuple[int, Placement | NoFit]:
    """Calls of Python functions while working, and the answer."""
    calls = 0

    def seen(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        answer = work()
    finally:
        sys.setprofile(before)
    return calls, answer


def roomy_cpu_node_beside_gpus(groups: int) -> Case:
    """Groups of CPU pods that all go on one large node, beside GPU groups that cannot be packed."""
    nodes = [node("large", 0, cpu=1_000_000, pods=500), *(node(f"g{i}") for i in range(4))]
    small = [group(f"cpu{i}", 8, 0, cpu=100 + i) for i in range(groups)]
    return snap(nodes), gang(*small, group("a", 4, 5), group("b", 2, 3), group("c", 3, 2))


def many_sizes_on_many_nodes(groups: int) -> Case:
    """Every node can take some of every group, and the sum is one too many for all of them together."""
    nodes = [node(f"n{i}", 0, cpu=10_000 + 7 * i, pods=20) for i in range(8)]
    sizes = [997 + 13 * i for i in range(groups)]
    return snap(nodes), gang(*(group(f"g{i}", 80 // groups, 0, cpu=size) for i, size in enumerate(sizes)))


def racks_that_differ_a_little(parts: int) -> Case:
    """Parts that each require a rack, racks that no two are alike, and one rack too few."""
    nodes = racks({f"r{i}": 2 for i in range(parts - 1)})
    taken = [used(one.name, i % 3, cpu=11 * i) for i, one in enumerate(nodes)]
    return snap(nodes, taken), gang(*(group(f"g{i}", 3, 4, required=RACK) for i in range(parts)))


def pods_that_look_at_each_other(pods: int) -> Case:
    """Spread over racks within a skew of one, and apart on hosts, with one host too few."""
    scope = PodScope(of_labels({"app": "x"}), frozenset(("default",)))
    apart = PodTerm("kubernetes.io/hostname", scope)
    alike = shape(1, spread=(Spread(RACK, 1, scope),), anti_affinity=(apart,))
    nodes = racks({f"r{i}": 2 for i in range((pods - 1) // 2)})
    return snap(nodes), gang(group("g", pods, of=alike, labels={"app": "x"}))


def expensive() -> Iterator[object]:
    for groups in (2, 6, 10):
        yield pytest.param(lambda g=groups: roomy_cpu_node_beside_gpus(g), id=f"{groups} CPU groups on a roomy node")
    for groups in (4, 8):
        yield pytest.param(lambda g=groups: many_sizes_on_many_nodes(g), id=f"{groups} sizes on many nodes")
    for parts in (4, 8):
        yield pytest.param(lambda p=parts: racks_that_differ_a_little(p), id=f"{parts} parts for racks one too few")
    for pods in (6, 12):
        yield pytest.param(lambda p=pods: pods_that_look_at_each_other(p), id=f"{pods} pods that look at each other")
    for seed in (32, 280, 289, 402, 479):
        yield pytest.param(lambda s=seed: of(*brim_case(s)), id=f"to the brim, seed {seed}")
    for seed in (5, 44, 102, 198):
        yield pytest.param(lambda s=seed: of(*nested_case(s)), id=f"parts inside parts, seed {seed}")
    for seed in (1082, 91, 567):
        yield pytest.param(lambda s=seed: small(s), id=f"small, seed {seed}")


def of(nodes: list, running: list, wanted: Gang) -> Case:
    return snap(nodes, running), wanted


def small(seed: int) -> Case:
    case = random_case(seed)
    return snap(case.nodes, case.running), case.gang


@pytest.mark.parametrize("make", list(expensive()))
@pytest.mark.parametrize("steps", [500, 20_000])
def test_a_step_stands_for_a_fixed_amount_of_work(make: Callable[[], Case], steps: int) -> None:
    snapshot, wanted = make()
    place(snapshot, wanted, Budget(1))  # what is kept between decisions is there
    calls, answer = counted(lambda: place(snapshot, wanted, Budget(steps)))
    classes = sum(len({pod.shape for pod in part.pods}) for part in wanted.groups())
    assert answer.steps <= steps
    allowed = CALLS_TO_BEGIN * (1 + classes) + CALLS_A_STEP * answer.steps
    assert calls <= allowed, f"{calls} calls in {answer.steps} steps"


@pytest.mark.parametrize("groups", [6, 8, 10])
def test_only_maximal_ways_to_fill_a_node_are_looked_at(groups: int) -> None:
    """There is one way to fill the roomy node; with nine choices a group all would be 9 to the power of the groups."""
    snapshot, wanted = roomy_cpu_node_beside_gpus(groups)
    answer = place(snapshot, wanted)
    assert isinstance(answer, NoFit)
    assert (answer.reason, answer.proven) == ("NoPacking", True)
    assert answer.steps < 60 + 20 * groups
