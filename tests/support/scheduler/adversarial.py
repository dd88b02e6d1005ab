"""Gangs made to be expensive: what a budget, and an event loop, have to bear at worst."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from grove.api.selector import of_labels
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.facts import PodScope, PodTerm, Spread
from grove.scheduler.model.gang import Gang
from tests.support.scheduler.cases import brim_case, nested_case, random_case, unending_case
from tests.support.scheduler.kit import RACK, gang, group, node, racks, shape, snap, used

Case = tuple[Snapshot, Gang]


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


def expensive() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Every case by its name, made when it is asked for."""
    for groups in (2, 6, 10):
        yield f"{groups} CPU groups on a roomy node", partial(roomy_cpu_node_beside_gpus, groups)
    for groups in (4, 8):
        yield f"{groups} sizes on many nodes", partial(many_sizes_on_many_nodes, groups)
    for parts in (4, 8):
        yield f"{parts} parts for racks one too few", partial(racks_that_differ_a_little, parts)
    for pods in (6, 12):
        yield f"{pods} pods that look at each other", partial(pods_that_look_at_each_other, pods)
    for seed in (32, 280, 289, 402, 479):
        yield f"to the brim, seed {seed}", partial(brim, seed)
    for seed in (5, 44, 102, 198):
        yield f"parts inside parts, seed {seed}", partial(nested, seed)
    for seed in (1082, 91, 567):
        yield f"small, seed {seed}", partial(small, seed)
    yield "more sizes than end, seed 378", partial(unending, 378)


def brim(seed: int) -> Case:
    nodes, running, wanted = brim_case(seed)
    return snap(nodes, running), wanted


def nested(seed: int) -> Case:
    nodes, running, wanted = nested_case(seed)
    return snap(nodes, running), wanted


def unending(seed: int) -> Case:
    nodes, wanted = unending_case(seed)
    return snap(nodes), wanted


def small(seed: int) -> Case:
    case = random_case(seed)
    return snap(case.nodes, case.running), case.gang
