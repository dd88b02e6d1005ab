"""How close together: domains crossed against the optimum that CP-SAT proves, on clusters too large for brute force."""

from __future__ import annotations

from collections import Counter

import pytest
from ortools.sat.python import cp_model
from tests.support.scheduler.cases import medium_case
from tests.support.scheduler.kit import BLOCK, GPU, RACK, ZONE, node, pod, snap, used

from grove.scheduler.model.answers import Placement
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.solve.place import place

CASES = 250


def optimum(nodes, running, gang: Gang, nested: bool) -> int | None:
    """Fewest racks used (summed over the groups if each has its own preference), or None if nothing fits."""
    model = cp_model.CpModel()
    free = {n.name: dict(n.allocatable) for n in nodes}
    for p in running:
        for name, amount in p.shape.requests:
            free[p.node][name] = free[p.node].get(name, 0) - amount
    groups = list(gang.groups())
    x = {(g.name, n.name): model.new_int_var(0, len(g.pods), "") for g in groups for n in nodes}
    for g in groups:
        model.add(sum(x[g.name, n.name] for n in nodes) == len(g.pods))
    for n in nodes:
        for resource in ("pods", "cpu", GPU):
            asked = [(g, g.pods[0].shape.amount(resource)) for g in groups if g.pods[0].shape.amount(resource)]
            if asked:
                model.add(sum(q * x[g.name, n.name] for g, q in asked) <= max(0, free[n.name].get(resource, 0)))
    racks = sorted({n.labels[RACK] for n in nodes})
    if gang.root.required == ZONE:
        zones = sorted({n.labels[ZONE] for n in nodes})
        chosen = {z: model.new_bool_var("") for z in zones}
        model.add(sum(chosen.values()) == 1)
        for g in groups:
            for n in nodes:
                model.add(x[g.name, n.name] <= len(g.pods) * chosen[n.labels[ZONE]])
    uses = {}
    for r in racks:
        for owner in [g.name for g in groups] if nested else ["all"]:
            uses[r, owner] = model.new_bool_var("")
        for g in groups:
            for n in nodes:
                if n.labels[RACK] == r:
                    model.add(x[g.name, n.name] <= len(g.pods) * uses[r, g.name if nested else "all"])
    model.minimize(sum(uses.values()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return round(solver.objective_value)


def racks_used(nodes, answer: Placement, nested: bool) -> int:
    rack = {n.name: n.labels[RACK] for n in nodes}
    return len({(rack[p.node], p.group if nested else "") for p in answer.pods})


@pytest.mark.parametrize("nested", [False, True], ids=["the gang prefers a rack", "each group prefers a rack"])
def test_racks_crossed_against_the_optimum(nested):
    worse: Counter[int] = Counter()
    far = []
    for seed in range(CASES):
        nodes, running, wanted = medium_case(seed, nested)
        best = optimum(nodes, running, wanted, nested)
        answer = place(snap(nodes, running), wanted)
        assert isinstance(answer, Placement) == (best is not None), f"seed {seed}"
        if isinstance(answer, Placement):
            assert best is not None
            gap = racks_used(nodes, answer, nested) - best
            worse[gap] += 1
            if gap > 1:
                far.append(seed)
    assert far == [], f"more than one rack from the optimum: {worse}"
    assert worse[0] >= 0.95 * worse.total(), worse


def test_a_score_of_one_means_as_close_as_an_idle_cluster_allows():
    nodes = [node(f"r{r}-{i}", zone="z", block="b", rack=f"r{r}") for r in range(3) for i in range(2)]
    wanted = Gang("default/g", Branch("g", (PodGroup("g", 2, tuple(pod(f"g-{i}", 8) for i in range(2))),), "", RACK))
    idle = place(snap(nodes), wanted)
    assert isinstance(idle, Placement)
    assert idle.score == 1.0
    busy = place(snap(nodes, [used(f"r{r}-0", 8) for r in range(3)]), wanted)
    assert isinstance(busy, Placement)
    assert busy.score == 0.5


def test_the_broad_level_counts_when_racks_are_equal():
    nodes = [node(f"{b}{r}-{i}", zone="z", block=b, rack=f"{b}{r}") for b in "ab" for r in range(2) for i in range(2)]
    taken = [used("a0-0", 8), used("b0-0", 8), used("a1-0", 8)]
    wanted = Gang("default/g", Branch("g", (PodGroup("g", 3, tuple(pod(f"g-{i}", 8) for i in range(3))),), "", RACK))
    answer = place(snap(nodes, taken), wanted)
    assert isinstance(answer, Placement)
    blocks = {n.labels[BLOCK] for n in nodes if n.name in {p.node for p in answer.pods}}
    assert blocks == {"b"}
