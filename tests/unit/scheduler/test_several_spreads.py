"""Several spreads in one gang: pods over hosts inside replicas over zones, and cliques that are counted together."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduler.checker import faults
from tests.support.scheduler.kit import HOST, RACK, branch, gang, snap, used
from tests.support.scheduler.spreads import (
    LEVELS,
    pod_spread,
    runs,
    several_spreads_case,
    skews,
    spread,
    unit,
    zones,
)

from grove.scheduler.cluster.snapshot import cluster
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.solve.distributions import divided
from grove.scheduler.solve.place import place
from grove.scheduler.solve.problem import state_problem
from grove.scheduler.solve.referee import opinion, question_of
from grove.scheduler.solve.search_state import SearchState
from grove.scheduler.solve.spread_domains import broken_spreads


def by_host(answer: Placement | NoFit) -> Counter[str]:
    assert isinstance(answer, Placement), answer.why
    return Counter(pod.node for pod in answer.pods)


def by_zone(answer: Placement | NoFit) -> Counter[str]:
    return Counter(host.split("-")[0] for host in by_host(answer).elements())


@pytest.mark.parametrize("first", range(0, 900, 300), ids=lambda first: f"seeds from {first}")
def test_spreads_hold_together_exactly_when_the_solver_finds_a_placement(first: int) -> None:
    wrong, answers = {}, Counter[bool]()
    for seed in range(first, first + 300):
        case = several_spreads_case(seed)
        snapshot = cluster(case.nodes, case.running, {"t": LEVELS})
        answer = place(snapshot, case.gang)
        found = []
        if isinstance(answer, Placement):
            found = faults(case.nodes, case.running, case.gang, LEVELS, answer)
            found += broken(case.gang.spreads, skews(case.nodes, case.running, case.gang, answer.pods))
        problem = state_problem(snapshot, case.gang)
        if isinstance(problem, NoFit):
            continue
        solved = opinion(question_of(problem))
        assert solved.proven, f"seed {seed}"
        answers[solved.found is not None] += 1
        if (solved.found is not None) != isinstance(answer, Placement):
            found.append("the solver and the search disagree")
        if solved.found is not None:
            state = SearchState(problem, 0)
            state.put_all(solved.found)
            found += broken(case.gang.spreads, skews(case.nodes, case.running, case.gang, state.pods()))
        if found:
            wrong[seed] = "; ".join(found)
    assert wrong == {}
    assert min(answers[True], answers[False]) > 30, answers


def broken(spreads, found: list[int]) -> list[str]:  # type: ignore[no-untyped-def]
    return [f"the skew is {skew}" for one, skew in zip(spreads, found, strict=True) if skew > one.max_skew]


def test_pods_spread_over_hosts_stay_in_the_zone_of_their_replica() -> None:
    """Zone a has no replica yet. The pods of a replica of one clique are spread over hosts too."""
    spreads = (spread({"1": ["1-w"], "2": ["2-w"]}), pod_spread("1-w", key=HOST, clique="1-w"))
    parts = [unit(f"{i}-w", 2, of=i, clique=f"{i}-w") for i in "12"]
    answer = place(snap(zones({"a": 2, "b": 3}), [runs("0", "b-0", 6)]), gang(*parts, spreads=spreads))
    assert by_zone(answer)["a"] >= 2


def test_two_cliques_of_a_replica_are_each_spread_over_the_racks_of_its_zone() -> None:
    """The zone has capacity for the pods once, and not twice."""
    spreads = (
        spread({"0": ["lead", "work"]}),
        pod_spread("lead", key=RACK, clique="lead"),
        pod_spread("work", key=RACK, clique="work"),
    )
    parts = [unit("lead", 2, of="0", clique="lead"), unit("work", 4, of="0", clique="work")]
    answer = place(snap(zones({"a": 2, "b": 1}, gpu=3, racks=2)), gang(*parts, spreads=spreads))
    assert by_host(answer) == {"a-0": 3, "a-1": 3}


def test_cliques_that_are_counted_together_keep_one_skew() -> None:
    """Two pods of one clique fit in zone a only, four of the other in b and c: together two in each zone."""
    nodes = [*zones({"a": 1}, gpu=4), *zones({"b": 1, "c": 1}, gpu=2)]
    parts = [unit("large", 2, 2), unit("small", 4, 1)]
    assert by_zone(place(snap(nodes), gang(*parts, spreads=(pod_spread("large", "small"),)))) == {
        "a": 2,
        "b": 2,
        "c": 2,
    }


def test_cliques_that_are_counted_together_are_spread_over_hosts() -> None:
    parts = [unit("x", 2), unit("y", 2)]
    answer = place(snap(zones({"a": 4})), gang(*parts, spreads=(pod_spread("x", "y", key=HOST),)))
    assert set(by_host(answer).values()) == {1}


def test_surplus_of_cliques_that_are_counted_together_keeps_the_skew() -> None:
    parts = [unit("x", 4, minimum=1), unit("y", 4, minimum=1)]
    nodes = [*zones({"a": 1}, gpu=8), *zones({"b": 1}, gpu=2)]
    assert by_zone(place(snap(nodes), gang(*parts, spreads=(pod_spread("x", "y"),)))) == {"a": 3, "b": 2}


def test_replicas_with_other_constraints_do_not_take_each_others_place() -> None:
    """Only zone b has a rack with two nodes, and only the first replica is packed into a rack."""
    nodes = [*zones({"a": 2}, racks=2), *zones({"b": 2})]
    parts = [branch("0", unit("0-w", 2, 8, of="0"), required=RACK), branch("1", unit("1-w", 2, 8, of="1"))]
    answer = place(snap(nodes), gang(*parts, spreads=(spread({"0": ["0-w"], "1": ["1-w"]}),)))
    assert by_zone(answer) == {"a": 2, "b": 2}


def test_a_spread_inside_a_replica_counts_the_domains_of_its_zone_alone() -> None:
    """Four pods on two hosts: zone b has empty hosts, and they are not for this replica."""
    spreads = (spread({"0": ["w"]}), pod_spread("w", key=HOST, clique="w"))
    snapshot, wanted = (
        snap(zones({"a": 2, "b": 2}), [used("b-0", 8)]),
        gang(unit("w", 4, 3, of="0", clique="w"), spreads=spreads),
    )
    answer = place(snapshot, wanted)
    assert by_host(answer) == {"a-0": 2, "a-1": 2}
    assert isinstance(answer, Placement)
    assert list(broken_spreads(snapshot, wanted, answer.pods)) == []
    snapshot.add_pod(used("a-1", 1, labels={"clique": "w"}))
    assert list(broken_spreads(snapshot, wanted, answer.pods)) == []
    snapshot.add_pod(used("a-1", 1, tag="2", labels={"clique": "w"}))
    assert [one.skew for one in broken_spreads(snapshot, wanted, answer.pods)] == [2]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_a_distribution_is_divided_among_groups_in_every_way(
    domains: list[tuple[int, int]], first: int, second: int
) -> None:
    capacities = list(zip(*domains, strict=True))
    for total in product(range(4), repeat=len(domains)):
        if sum(total) != first + second:
            continue
        ways = product(*(range(min(a, units) + 1) for (a, _), units in zip(domains, total, strict=True)))
        wanted = {
            way
            for way in ways
            if sum(way) == first and all(u - a <= held for u, a, (_, held) in zip(total, way, domains, strict=True))
        }
        found = list(divided(total, capacities, (first, second)))
        assert {one for one, _ in found} == wanted
        assert len(found) == len(wanted)
        assert all(tuple(map(sum, zip(*shares, strict=True))) == total for shares in found)
