"""Gangs with parts inside parts on clusters too large for brute force: CP-SAT says whether they fit, and so do we.

A third of the clusters is so full that most gangs do not fit; proofs are tested as much as placements. A failure prints
its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from ortools.sat.python import cp_model
from tests.support.scheduler.cases import brim_case, nested_case
from tests.support.scheduler.checker import domain, faults
from tests.support.scheduler.kit import GPU, LEVELS, snap

from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.facts import NodeFacts, PodFacts
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.reasons import BUDGET_ENDED
from grove.scheduler.solve.place import place

Anchored = tuple[Branch | PodGroup, ...]
"""Parts above a group, and itself, that require a level."""


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


@pytest.mark.parametrize("seed", [32, 264, 276, 279, 289, 333, 415, 482])
def test_gangs_that_fill_a_cluster_to_the_brim_are_decided(seed):
    nodes, running, wanted = brim_case(seed)
    answer = place(snap(nodes, running), wanted)
    if isinstance(answer, Placement):
        assert faults(nodes, running, wanted, LEVELS, answer) == []
    else:
        assert answer.reason != BUDGET_ENDED
        assert not fits(nodes, running, wanted)
