"""Gangs with parts inside parts on clusters too large for brute force: CP-SAT says whether they fit, and so do we.

A third of the clusters is so full that most gangs do not fit; proofs are tested as much as placements. A failure prints
its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from ortools.sat.python import cp_model
from tests.support.scheduler.checker import domain, faults
from tests.support.scheduler.kit import BLOCK, GPU, HOST, LEVELS, RACK, ZONE, node, pod, shape, snap, used

from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.facts import NodeFacts, PodFacts
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.reasons import BUDGET_ENDED
from grove.scheduler.solve.place import place

Anchored = tuple[Branch | PodGroup, ...]
"""Parts above a group, and itself, that require a level."""


def nested_case(seed: int) -> tuple[list[NodeFacts], list[PodFacts], Gang]:
    rng = Random(seed)
    per_rack, per_block, load = rng.choice((4, 8)), rng.choice((2, 4)), rng.choice((0.0, 0.3, 0.6, 0.9))
    nodes, running = [], []
    for i in range(rng.choice((24, 48, 96))):
        rack = i // per_rack
        block = rack // per_block
        places = {"zone": f"z{block // 2}", "block": f"b{block}", "rack": f"r{rack}"}
        found = node(f"n{i:03}", rng.choice((4, 8, 8)), labels={"pool": rng.choice("ab")}, **places)
        nodes.append(found)
        if rng.random() < load:
            running.append(used(found.name, rng.randint(1, found.allocatable[GPU]), cpu=rng.choice((1_000, 40_000))))
    groups = [_group(rng, f"g{n}") for n in range(rng.randint(1, 7))]
    parts: list[Branch | PodGroup] = list(groups)
    if len(groups) > 2:
        split = rng.randint(1, len(groups) - 1)
        halves = (groups[:split], groups[split:])
        parts = [
            Branch(f"half{n}", tuple(half), rng.choice(("", RACK, BLOCK)), rng.choice(("", RACK)))
            for n, half in enumerate(halves)
        ]  # fmt: skip
    root = Branch("gang", tuple(parts), rng.choice(("", BLOCK, ZONE)), rng.choice(("", RACK)))
    return nodes, running, Gang(f"default/case-{seed}", root)


def _group(rng: Random, name: str) -> PodGroup:
    more = {"node_selector": (("pool", rng.choice("ab")),)} if rng.random() < 0.2 else {}
    alike = shape(rng.choice((0, 1, 2, 3, 4, 5, 8)), cpu=rng.choice((1_000, 7_000, 30_000)), **more)
    count = rng.choice((1, 2, 4, 8, 16))
    pods = tuple(pod(f"{name}-{i}", of=alike, group=name) for i in range(count))
    return PodGroup(name, rng.randint(1, count), pods, (), rng.choice(("", "", RACK, BLOCK, HOST)), "")


def anchored(part: Branch | PodGroup, above: Anchored = ()) -> Iterator[tuple[PodGroup, Anchored]]:
    here = (*above, part) if part.required else above
    if isinstance(part, PodGroup):
        yield part, here
    else:
        for child in part.children:
            yield from anchored(child, here)


def fits(nodes: list[NodeFacts], running: list[PodFacts], gang: Gang) -> bool:
    """Whether CP-SAT finds numbers of pods a node, and a domain for every part that requires one."""
    model = cp_model.CpModel()
    free = {n.name: dict(n.allocatable) for n in nodes}
    for p in running:
        for name, amount in p.shape.requests:
            free[p.node][name] = free[p.node].get(name, 0) - amount
    homes: dict[int, dict[object, cp_model.IntVar]] = {}
    on: dict[str, list[tuple[PodGroup, cp_model.IntVar]]] = {n.name: [] for n in nodes}
    for group, parts in anchored(gang.root):
        for part in parts:
            if id(part) not in homes:
                homes[id(part)] = {domain(n, LEVELS, part.required): model.new_bool_var("") for n in nodes}
                model.add_exactly_one(homes[id(part)].values())
        of = group.pods[0].shape
        counts = []
        for n in nodes:
            if all(n.labels.get(key) == value for key, value in of.node_selector):
                most = max(0, min([group.need, *(free[n.name].get(r, 0) // q for r, q in of.requests)]))
                count = model.new_int_var(0, most, "")
                counts.append(count)
                on[n.name].append((group, count))
                for part in parts:
                    model.add(count <= most * homes[id(part)][domain(n, LEVELS, part.required)])
        model.add(sum(counts) == group.need)
    for n in nodes:
        for resource in ("pods", "cpu", GPU):
            asked = sum(g.pods[0].shape.amount(resource) * count for g, count in on[n.name])
            model.add(asked <= max(0, free[n.name].get(resource, 0)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE)
    return status != cp_model.INFEASIBLE


@pytest.mark.parametrize("first", range(0, 200, 50), ids=lambda first: f"seeds from {first}")
def test_nested_gangs_are_placed_exactly_when_they_fit(first):
    wrong, seen = {}, Counter()
    for seed in range(first, first + 50):
        nodes, running, wanted = nested_case(seed)
        answer = place(snap(nodes, running), wanted)
        seen[type(answer)] += 1
        if isinstance(answer, Placement):
            if found := faults(nodes, running, wanted, LEVELS, answer):
                wrong[seed] = "; ".join(found)
        elif answer.reason == BUDGET_ENDED:
            wrong[seed] = "the search did not end"
        elif fits(nodes, running, wanted):
            wrong[seed] = f"it fits, we say {answer.why}"
    assert wrong == {}
    assert min(seen[Placement], seen[NoFit]) >= 10, seen


def brim_case(seed: int) -> tuple[list[NodeFacts], list[PodFacts], Gang]:
    """Mixed sizes that would fill what is left of a cluster nearly to the last GPU: packing alone decides."""
    rng = Random(seed)
    nodes, running, left = [], [], 0
    for i in range(rng.choice((12, 24, 48, 96))):
        found = node(f"n{i:04}", 8, zone="z", block=f"b{i // 32}", rack=f"r{i // 8}")
        nodes.append(found)
        taken = rng.choice(range(8)) if rng.random() < 0.9 else 0
        if taken:
            running.append(used(found.name, taken, cpu=rng.choice((1_000, 30_000, 50_000))))
        left += 8 - taken
    left = int(left * rng.choice((0.8, 0.9, 0.95, 1.0)))
    groups: list[PodGroup] = []
    while left > 0 and len(groups) < 8:
        size = rng.randint(1, 7)
        count = max(1, min(left // size, rng.choice((2, 4, 8, 16, 32))))
        left -= size * count
        if left < 0:
            break
        name, alike = f"g{len(groups)}", shape(size, cpu=rng.choice((1_000, 7_000, 20_000)))
        pods = tuple(pod(f"{name}-{i}", of=alike, group=name) for i in range(count))
        groups.append(PodGroup(name, count, pods, (), rng.choice(("", "", "", RACK)), rng.choice(("", "", RACK))))
    return nodes, running, Gang(f"default/brim-{seed}", Branch("gang", tuple(groups), "", rng.choice(("", RACK))))


@pytest.mark.parametrize("seed", [32, 264, 276, 279, 289, 333, 415, 482])
def test_gangs_that_fill_a_cluster_to_the_brim_are_decided(seed):
    nodes, running, wanted = brim_case(seed)
    answer = place(snap(nodes, running), wanted)
    if isinstance(answer, Placement):
        assert faults(nodes, running, wanted, LEVELS, answer) == []
    else:
        assert answer.reason != BUDGET_ENDED
        assert not fits(nodes, running, wanted)
