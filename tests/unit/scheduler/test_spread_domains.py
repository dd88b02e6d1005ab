"""Spread outside, pack inside: whatever brute force can place, we place, and the skew is never above its limit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduler.checker import faults
from tests.support.scheduler.kit import HOST, RACK, ZONE, branch, gang, node, snap, used
from tests.support.scheduler.spreads import (
    COUNTED,
    LEVELS,
    UNIT,
    exists,
    pod_spread,
    runs,
    skews,
    spread,
    spread_case,
    unit,
    zones,
)

from grove.api.meta import Key
from grove.api.podgang import GangSpreadConstraint, NamespacedName, PodGang, PodGangSpec, PodGroup
from grove.diagnosis.reasons import sentence
from grove.scheduler.cluster.snapshot import cluster
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.gang import BadGang, Gang, UnitSpread, build_gang
from grove.scheduler.model.reasons import NO_CAPACITY, SPREAD_SKEW
from grove.scheduler.solve.distributions import distributions, skew_of
from grove.scheduler.solve.place import place, place_on
from grove.scheduler.solve.problem import Problem, state_problem
from grove.scheduler.solve.referee import Opinion, opinion, question_of
from grove.scheduler.solve.spread_domains import broken_spreads

THREE = {"a": 2, "b": 2, "c": 2}


def where(answer: Placement | NoFit) -> dict[str, int]:
    """Pods by zone; nodes are named after theirs."""
    assert isinstance(answer, Placement), sentence(answer.why)
    return dict(Counter(pod.node.split("-")[0] for pod in answer.pods))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_distributions_are_all_that_keep_the_skew(domains: list[tuple[int, int]], units: int, skew: int) -> None:
    counts, capacity = zip(*domains, strict=True)
    found = list(distributions(counts, capacity, units, skew))
    ways = product(*(range(most + 1) for most in capacity))
    wanted = {way for way in ways if sum(way) == units and skew_of(counts, way) <= skew}
    assert set(found) == wanted
    assert len(found) == len(wanted)


def test_the_most_even_distribution_comes_first() -> None:
    assert next(distributions((0, 0, 0), (9, 9, 9), 7, 3)) in {(3, 2, 2), (2, 3, 2), (2, 2, 3)}
    assert next(distributions((4, 1, 2), (9, 9, 9), 3, 5)) == (0, 2, 1)


BATCH = 500
BATCHES = [pytest.param(first, marks=[] if first < BATCH else pytest.mark.soak) for first in range(0, 5000, BATCH)]


@pytest.mark.parametrize("first", BATCHES, ids=lambda first: f"seeds from {first}")
def test_we_place_what_can_be_packed_and_spread(first: int) -> None:
    wrong = {}
    for seed in range(first, first + BATCH):
        case = spread_case(seed)
        answer = place(cluster(case.nodes, case.running, {"t": LEVELS}), case.gang)
        if isinstance(answer, NoFit):
            if exists(case):
                wrong[seed] = f"brute force finds a placement, we say {sentence(answer.why)}"
            continue
        found = faults(case.nodes, case.running, case.gang, LEVELS, answer)
        for one, skew in zip(case.gang.spreads, skews(case.nodes, case.running, case.gang, answer.pods), strict=True):
            found += [f"the skew is {skew}"] if skew > one.max_skew else []
        if found:
            wrong[seed] = "; ".join(found)
    assert wrong == {}


class InPlace:
    """The referee's model without a process."""

    def ask(self, problem: Problem) -> Opinion:
        return opinion(question_of(problem))


def test_the_referee_agrees_with_brute_force() -> None:
    """A search of one step decides little, so nearly everything is the solver's."""
    answers, inside = Counter[bool](), Counter[bool]()
    for seed in range(160):
        case = spread_case(seed)
        snapshot = cluster(case.nodes, case.running, {"t": LEVELS})
        problem = state_problem(snapshot, case.gang)
        if isinstance(problem, NoFit):
            continue
        said = InPlace().ask(problem)
        assert said.proven
        assert (said.found is not None) == exists(case), f"seed {seed}"
        answers[said.found is not None] += 1
        inside[said.found is not None] += bool(case.gang.root.required)
        answer = place(snapshot, case.gang, Budget(1, InPlace()))
        if isinstance(answer, Placement):
            assert faults(case.nodes, case.running, case.gang, LEVELS, answer) == [], f"seed {seed}"
            assert skews(case.nodes, case.running, case.gang, answer.pods)[0] <= case.gang.spreads[0].max_skew
    assert min(answers.values()) > 30
    assert min(inside.values()) >= 3, "spreads inside one required zone"


def test_both_answers_are_frequent() -> None:
    answers = [exists(spread_case(seed)) for seed in range(200)]
    assert 0.25 < sum(answers) / len(answers) < 0.75


def test_a_new_replica_goes_where_there_are_fewest() -> None:
    running = [runs("0", "a-0"), runs("1", "b-0")]
    answer = place(snap(zones(THREE), running), gang(unit("2-w", 2, of="2"), spreads=(spread({"2": ["2-w"]}),)))
    assert where(answer) == {"c": 2}


def test_where_the_skew_allows_more_the_emptiest_zone_still_comes_first() -> None:
    running = [runs("0", "a-0"), runs("1", "b-0")]
    one = spread({"2": ["2-w"]}, skew=2)
    assert where(place(snap(zones(THREE), running), gang(unit("2-w", 2, of="2"), spreads=(one,)))) == {"c": 2}
    full = [*running, used("c-0", 8), used("c-1", 8)]
    answer = place(snap(zones(THREE), full), gang(unit("2-w", 2, of="2"), spreads=(one,)))
    assert isinstance(answer, Placement)
    assert set(where(answer)) < {"a", "b"}


def full_zone() -> tuple[Gang, Placement | NoFit]:
    running = [runs("0", "a-0"), runs("1", "b-0"), used("c-0", 8), used("c-1", 7)]
    wanted = gang(unit("2-w", 2, of="2"), spreads=(spread({"2": ["2-w"]}),))
    return wanted, place(snap(zones(THREE), running), wanted)


def test_the_refusal_names_the_full_zone_and_the_skew() -> None:
    _, answer = full_zone()
    assert isinstance(answer, NoFit)
    assert (answer.reason, answer.proven) == (SPREAD_SKEW, True)
    assert sentence(answer.why) == (
        f"{ZONE} c has no capacity for replica 2; in a it would make the skew 2, and maxSkew is 1 (now a 1, b 1, c 0)"
    )


def test_a_gang_without_capacity_anywhere_is_not_refused_for_its_spread() -> None:
    wanted = gang(unit("2-w", 9, 8, of="2"), spreads=(spread({"2": ["2-w"]}),))
    answer = place(snap(zones(THREE)), wanted)
    assert isinstance(answer, NoFit)
    assert answer.reason == NO_CAPACITY


def test_a_preferred_spread_gives_way() -> None:
    wanted, _ = full_zone()
    loose = replace(wanted, spreads=(replace(wanted.spreads[0], is_required=False),))
    running = [runs("0", "a-0"), runs("1", "b-0"), runs("3", "b-1"), used("c-0", 8), used("c-1", 7)]
    assert where(place(snap(zones(THREE), running), loose)) == {"a": 2}, "of those with room the one with the fewest"


def test_a_zone_without_nodes_that_could_run_the_replica_does_not_count() -> None:
    nodes = [*zones({"a": 2, "b": 2}), *zones({"c": 2}, gpu=0)]
    running = [runs("0", "a-0"), runs("1", "b-0")]
    answer = place(snap(nodes, running), gang(unit("2-w", 2, of="2"), spreads=(spread({"2": ["2-w"]}),)))
    assert isinstance(answer, Placement)


def test_pods_that_terminate_do_not_count() -> None:
    leaving = runs("0", "a-0", terminating=True)
    running = [leaving, runs("1", "b-0"), runs("2", "c-0")]
    answer = place(snap(zones(THREE), running), gang(unit("0-w", 2, of="0"), spreads=(spread({"0": ["0-w"]}),)))
    assert where(answer) == {"a": 2}


def test_a_replica_that_runs_is_completed_in_its_zone_and_changes_no_count() -> None:
    running = [runs("0", "a-0"), runs("1", "a-1"), runs("2", "b-0")]
    answer = place(snap(zones(THREE), running), gang(unit("1-w", 3, of="1"), spreads=(spread({"1": ["1-w"]}),)))
    assert where(answer) == {"a": 3}, "though zone c has none"


def test_replicas_of_one_gang_are_packed_by_rack_and_spread_by_zone() -> None:
    units = {str(i): [f"{i}-lead", f"{i}-work"] for i in range(3)}
    parts = [branch(i, unit(f"{i}-lead", 1, 4, of=i), unit(f"{i}-work", 3, 4, of=i), required=RACK) for i in units]
    nodes = zones({"a": 4, "b": 4, "c": 4}, racks=2)
    answer = place(snap(nodes), gang(*parts, spreads=(spread(units),)))
    assert where(answer) == {"a": 4, "b": 4, "c": 4}
    assert faults(nodes, [], gang(*parts), LEVELS, answer) == []  # type: ignore[arg-type]


def test_packing_decides_which_zones_get_the_replicas() -> None:
    """Only zones b and c have a rack that holds a replica whole, though zone a has the most free GPUs."""
    nodes = [node(f"a-{i}", 8, zone="a", rack=f"a-r{i}") for i in range(4)] + zones({"b": 2, "c": 2})
    parts = [branch(i, unit(f"{i}-w", 2, 8, of=i), required=RACK) for i in "01"]
    answer = place(snap(nodes), gang(*parts, spreads=(spread({"0": ["0-w"], "1": ["1-w"]}, skew=2),)))
    assert where(answer) == {"b": 2, "c": 2}


def test_pods_of_a_clique_are_spread_and_count_those_that_run() -> None:
    running = [runs("w", "a-0", tag=str(i)) for i in range(3)]
    answer = place(snap(zones(THREE), running), gang(unit("w", 5), spreads=(pod_spread("w"),)))
    assert where(answer) == {"b": 3, "c": 2} or where(answer) == {"b": 2, "c": 3}


def test_surplus_keeps_the_skew_too() -> None:
    full = [used("c-0", 8), used("c-1", 7)]
    answer = place(snap(zones(THREE), full), gang(unit("w", 8, minimum=3), spreads=(pod_spread("w"),)))
    assert where(answer) == {"a": 2, "b": 2, "c": 1}
    assert isinstance(answer, Placement)
    assert (answer.core, len(answer.unplaced)) == (3, 3)


def test_pods_spread_over_hosts() -> None:
    answer = place(snap(zones(THREE)), gang(unit("w", 6), spreads=(pod_spread("w", key=HOST),)))
    assert isinstance(answer, Placement)
    assert set(Counter(pod.node for pod in answer.pods).values()) == {1}
    more = place(snap(zones(THREE)), gang(unit("w", 9), spreads=(pod_spread("w", key=HOST),)))
    assert isinstance(more, Placement)
    assert sorted(Counter(pod.node for pod in more.pods).values()) == [1, 1, 1, 2, 2, 2]


def test_pods_spread_over_the_hosts_of_the_rack_they_are_packed_into() -> None:
    nodes = zones({"a": 4, "b": 4}, racks=2)
    answer = place(snap(nodes), gang(unit("w", 4, required=RACK), spreads=(pod_spread("w", key=HOST),)))
    assert isinstance(answer, Placement)
    assert sorted(Counter(pod.node for pod in answer.pods).values()) == [2, 2], "only hosts of that rack count"


def test_replicas_of_a_group_spread_over_the_racks_of_the_zone_of_their_set() -> None:
    nodes = zones({"a": 4, "b": 4}, racks=2)
    units = {i: [f"{i}-w"] for i in "01"}
    answer = place(
        snap(nodes), gang(*(unit(f"{i}-w", 2, of=i) for i in "01"), required=ZONE, spreads=(spread(units, key=RACK),))
    )
    assert isinstance(answer, Placement)
    assert len(where(answer)) == 1
    racks = {pod.node: next(n.labels[RACK] for n in nodes if n.name == pod.node) for pod in answer.pods}
    assert len(set(racks.values())) == 2


def test_two_levels_at_once_replicas_over_zones_and_pods_over_racks() -> None:
    nodes = zones({"a": 4, "b": 4, "c": 4}, racks=2)
    both = (spread({"1": ["1-w"]}), pod_spread("1-w", key=RACK))
    pods = unit("1-w", 4, of="1")
    answer = place(snap(nodes, [runs("0", "a-0")]), gang(pods, spreads=both))
    assert isinstance(answer, Placement)
    zone = {node.split("-")[0] for node in answer.nodes.values()}
    assert len(zone) == 1
    assert zone < {"b", "c"}
    assert sorted(Counter(int(n.split("-")[1]) % 2 for n in answer.nodes.values()).values()) == [2, 2]


def test_preemption_asks_for_the_cheapest_zone_within_the_skew() -> None:
    snapshot = snap(zones(THREE), [runs("0", "a-0"), used("b-0", 8), used("b-1", 8), used("c-0", 8), used("c-1", 8)])
    cost = snapshot.free[0] * 0
    for name in ("b-0", "b-1"):
        cost[snapshot.nodes.row_of[name]] = 5
    free = snapshot.allocatable.copy()
    wanted = gang(unit("1-w", 2, 8, of="1"), spreads=(spread({"1": ["1-w"]}),))
    assert where(place_on(snapshot, wanted, Budget(), free=free, cost=cost)) == {"c": 2}


def test_a_budget_that_ends_is_no_proof() -> None:
    case = next(c for c in map(spread_case, range(400)) if exists(c) and len(list(c.gang.groups())) > 2)
    answer = place(cluster(case.nodes, case.running, {"t": LEVELS}), case.gang, Budget(1))
    assert isinstance(answer, Placement) or not answer.proven


def test_what_others_placed_meanwhile_breaks_the_skew() -> None:
    snapshot = snap(zones(THREE), [runs("0", "a-0")])
    wanted = gang(unit("1-w", 2, of="1"), spreads=(spread({"1": ["1-w"]}),))
    answer = place(snapshot, wanted)
    assert isinstance(answer, Placement)
    assert list(broken_spreads(snapshot, wanted, answer.pods)) == []
    snapshot.add_pod(runs("2", answer.pods[0].node))
    assert [one.skew for one in broken_spreads(snapshot, wanted, answer.pods)] == [2]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(("out", "in", "lose", "return")), min_size=3, max_size=14), st.integers(1, 2))
def test_the_skew_is_never_above_its_limit(steps: list[str], skew: int) -> None:
    """Replicas come and go, a zone is lost and comes back: no placement ever makes the skew larger than allowed."""
    nodes = zones(THREE, gpu=4)
    snapshot = snap(nodes)
    lost: set[str] = set()
    running: dict[str, Placement] = {}
    for number, step in enumerate(steps):
        if step == "in" and running:
            for pod in running.pop(min(running)).pods:
                snapshot.remove_pod(pod.uid)
        elif step == "lose" and not lost:
            for one in nodes:
                if one.labels[ZONE] == "b":
                    snapshot.remove_node(one.name)
                    lost.add(one.name)
            for name, placed in list(running.items()):
                if any(pod.node in lost for pod in placed.pods):
                    for pod in running.pop(name).pods:
                        snapshot.remove_pod(pod.uid)
        elif step == "return":
            for one in nodes:
                if one.name in lost:
                    snapshot.add_node(one)
            lost.clear()
        elif step == "out":
            name = f"{number:02}"
            wanted = gang(unit(f"{name}-w", 2, 2, of=name), spreads=(spread({name: [f"{name}-w"]}, skew=skew),))
            here = [one for one in nodes if one.name not in lost]
            before = [pod for placed in running.values() for pod in placed.pods]
            answer = place(snapshot, wanted)
            if isinstance(answer, Placement):
                assert skews(here, before, wanted, answer.pods)[0] <= skew
                snapshot.assume(answer)
                running[name] = answer


def podgang(*constraints: GangSpreadConstraint, groups: tuple[str, ...] = ("x-0", "x-1")) -> tuple[PodGang, dict]:  # type: ignore[type-arg]
    pods = {Key("default", f"{g}-p"): unit(g, 1, of=g[-1]).pods[0] for g in groups}
    entries = tuple(PodGroup(g, (NamespacedName("default", f"{g}-p"),), 1) for g in groups)
    made = PodGang(spec=PodGangSpec(podgroups=entries, spread_constraints=constraints))
    return made, pods


def test_a_podgang_names_its_units_by_a_pod_label() -> None:
    made, pods = podgang(GangSpreadConstraint(ZONE, 2, match_labels=COUNTED, unit_label=UNIT))
    (found,) = build_gang(made, pods).spreads
    assert isinstance(found, UnitSpread)
    assert (found.max_skew, found.is_required, found.units) == (2, True, (("0", ("x-0",)), ("1", ("x-1",))))


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ((GangSpreadConstraint(ZONE, pod_group_names=("y",)),), "unknown pod group 'y'"),
        ((GangSpreadConstraint(ZONE), GangSpreadConstraint(HOST)), "two spread constraints"),
    ],
    ids=["unknown group", "two for the same pods"],
)
def test_a_podgang_that_contradicts_itself_is_refused(
    constraints: tuple[GangSpreadConstraint, ...], message: str
) -> None:
    made, pods = podgang(*constraints)
    with pytest.raises(BadGang, match=message):
        build_gang(made, pods)


def test_the_counts_of_units_follow_pods_and_copies() -> None:
    snapshot = snap(zones(THREE), [runs("0", "a-0")])
    scope = spread({}).scope

    def units(of) -> dict[tuple[str, str], int]:  # type: ignore[no-untyped-def]
        found = of.counts.units_in_scope(scope, UNIT, of.pod_rows(), of.nodes.rows)
        return {(name, of.nodes.names([row])[0]): n for (name, row), n in found.items()}

    assert units(snapshot) == {("0", "a-0"): 1}
    twin = snapshot.copy()
    twin.add_pod(runs("1", "b-0"))
    snapshot.remove_pod(runs("0", "a-0").uid)
    assert units(twin) == {("0", "a-0"): 1, ("1", "b-0"): 1}
    assert units(snapshot) == {}
