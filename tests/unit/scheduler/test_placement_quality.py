"""How close together: domains crossed against the optimum that CP-SAT proves, on clusters too large for brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from ortools.sat.python import cp_model
from tests.support.scheduler.cases import medium_case
from tests.support.scheduler.kit import BLOCK, GPU, RACK, ZONE, node, pod, snap, used

from grove.scheduler.model.answers import Placement
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.solve.place import place

CASES = 200


Preference = tuple[frozenset[str], str]
"""Groups that prefer to be in one domain of a level together."""


def optimum(nodes, running, gang: Gang, preferences: list[Preference]) -> int | None:
    """Fewest domains used, summed over the preferences, or None if nothing fits."""
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
    if gang.root.required == ZONE:
        zones = sorted({n.labels[ZONE] for n in nodes})
        chosen = {z: model.new_bool_var("") for z in zones}
        model.add(sum(chosen.values()) == 1)
        for g in groups:
            for n in nodes:
                model.add(x[g.name, n.name] <= len(g.pods) * chosen[n.labels[ZONE]])
    uses = {}
    for at, (names, key) in enumerate(preferences):
        for n in nodes:
            used_domain = uses.setdefault((at, n.labels[key]), model.new_bool_var(""))
            for g in (g for g in groups if g.name in names):
                model.add(x[g.name, n.name] <= len(g.pods) * used_domain)
    model.minimize(sum(uses.values()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return round(solver.objective_value)


def domains_used(nodes, answer: Placement, preferences: list[Preference]) -> int:
    labels = {n.name: n.labels for n in nodes}
    return sum(len({labels[p.node][key] for p in answer.pods if p.group in names}) for names, key in preferences)


def whole_prefers_a_rack(seed: int):
    nodes, running, wanted = medium_case(seed, nested=False)
    return nodes, running, wanted, [(frozenset(g.name for g in wanted.groups()), RACK)]


def groups_prefer_racks(seed: int):
    nodes, running, wanted = medium_case(seed, nested=True)
    return nodes, running, wanted, [(frozenset((g.name,)), RACK) for g in wanted.groups()]


def whole_prefers_a_zone_and_groups_racks(seed: int):
    nodes, running, wanted, preferences = groups_prefer_racks(seed)
    wanted = replace(wanted, root=replace(wanted.root, required="", preferred=ZONE))
    return nodes, running, wanted, [*preferences, (frozenset(g.name for g in wanted.groups()), ZONE)]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(whole_prefers_a_rack, id="the gang prefers a rack"),
        pytest.param(groups_prefer_racks, id="each group prefers a rack"),
        pytest.param(whole_prefers_a_zone_and_groups_racks, id="the gang prefers a zone and each group a rack"),
    ],
)
def test_domains_crossed_against_the_optimum(case):
    worse: Counter[int] = Counter()
    far = []
    for seed in range(CASES):
        nodes, running, wanted, preferences = case(seed)
        best = optimum(nodes, running, wanted, preferences)
        answer = place(snap(nodes, running), wanted)
        assert isinstance(answer, Placement) == (best is not None), f"seed {seed}"
        if isinstance(answer, Placement):
            assert best is not None
            gap = domains_used(nodes, answer, preferences) - best
            worse[gap] += 1
            if gap > 1:
                far.append(seed)
    assert far == [], f"more than one domain from the optimum: {worse}"
    assert worse[0] >= 0.97 * worse.total(), worse


def test_of_two_blocks_the_gang_takes_the_one_in_which_its_clique_fits_in_one_rack():
    """The other block is fuller, so it comes first if the preference of the clique does not count."""
    nodes = [node(f"{rack}-{i}", zone="z", block=rack[0], rack=rack) for rack in ("a0", "a1", "b0") for i in range(2)]
    clique = PodGroup("g", 2, tuple(pod(f"g-{i}", 8, group="g") for i in range(2)), (), "", RACK)
    full = [used("a0-0", 8), used("a1-0", 8)]
    answer = place(snap(nodes, full), Gang("default/g", Branch("g", (clique,), "", BLOCK)))
    assert isinstance(answer, Placement)
    assert {p.node for p in answer.pods} == {"b0-0", "b0-1"}


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
