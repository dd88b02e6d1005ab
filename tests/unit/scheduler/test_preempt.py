"""Victims: the least priority, the cheapest domain, the fewest pods; never a part of a gang, never in vain."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scheduler.kit import HOST, RACK, gang, group, node, pod, racks, snap

from grove.api.labels import BASE_POD_GANG, POD_GANG
from grove.api.selector import of_labels, parse
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.running import DisruptionBudget, Running, RunningIndex
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.facts import HostPort
from grove.scheduler.solve.place import place


def unit(name: str, *pods, priority: int = 0, preemptible: bool = True, **minimums: int) -> Running:
    return Running(name, priority, tuple(pods), minimums, preemptible)


def jobs(nodes: list[str], gpu: int = 8, priority: int = 0) -> list[Running]:
    return [
        unit(f"job-{n}", pod(f"job-{n}", gpu, on=n, priority=priority, group="job"), priority=priority) for n in nodes
    ]


def cluster_of(nodes, running: list[Running]):
    return snap(nodes, [p for u in running for p in u.pods])


def chosen(answer: object) -> list[str]:
    assert isinstance(answer, Victims), answer
    return sorted(p.name for p in answer.pods)


def test_only_as_many_leave_as_are_needed():
    running = jobs(["r1-0", "r1-1", "r2-0", "r2-1"])
    snapshot = cluster_of(racks({"r1": 2, "r2": 2}), running)
    answer = preempt(snapshot, gang(group("g", 1, 8), priority=10), running)
    assert len(chosen(answer)) == 1


def test_a_full_rack_of_lower_priority_is_emptied_for_a_gang_that_needs_a_rack():
    low = jobs(["r1-0", "r1-1"])
    high = jobs(["r2-0", "r2-1"], priority=50)
    snapshot = cluster_of(racks({"r1": 2, "r2": 2}), low + high)
    answer = preempt(snapshot, gang(group("g", 2, 8), required=RACK, priority=10), low + high)
    assert chosen(answer) == ["job-r1-0", "job-r1-1"]
    assert {p.node for p in answer.placement.pods} == {"r1-0", "r1-1"}


def test_the_rack_with_fewer_to_evict_is_chosen():
    running = jobs(["r1-0", "r1-1", "r2-0"])
    snapshot = cluster_of(racks({"r1": 2, "r2": 2}), running)
    answer = preempt(snapshot, gang(group("g", 2, 8), required=RACK, priority=10), running)
    assert chosen(answer) == ["job-r2-0"]


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        pytest.param(10, 10, "NoLowerPriority", id="equal priority stays"),
        pytest.param(10, 11, "NoLowerPriority", id="higher priority stays"),
    ],
)
def test_who_may_not_be_evicted(mine, theirs, reason):
    running = jobs(["r1-0"], priority=theirs)
    answer = preempt(cluster_of(racks({"r1": 1}), running), gang(group("g", 1, 8), priority=mine), running)
    assert isinstance(answer, NoVictims)
    assert (answer.reason, answer.proven) == (reason, True)


def test_preemption_policy_never_evicts_no_pod():
    running = jobs(["r1-0"])
    snapshot = cluster_of(racks({"r1": 1}), running)
    answer = preempt(snapshot, gang(group("g", 1, 8), priority=10, may_preempt=False), running)
    assert isinstance(answer, NoVictims)
    assert answer.reason == "PreemptionNever"


def test_units_marked_as_not_preemptible_stay():
    running = [unit("a", pod("a", 8, on="r1-0"), preemptible=False)]
    answer = preempt(cluster_of(racks({"r1": 1}), running), gang(group("g", 1, 8), priority=10), running)
    assert isinstance(answer, NoVictims)


def test_surplus_goes_before_whole_gangs():
    service = unit("service", *(pod(f"s-{i}", 8, on=f"r1-{i}", group="s") for i in range(3)), s=2)
    batch = unit("batch", pod("b-0", 8, on="r1-3", group="b"), pod("b-1", 8, on="r1-4", group="b"), b=2)
    snapshot = cluster_of(racks({"r1": 5}), [service, batch])
    answer = preempt(snapshot, gang(group("g", 1, 8), priority=10), [service, batch])
    assert len(chosen(answer)) == 1
    assert chosen(answer)[0].startswith("s-")
    assert answer.gangs == ()


def test_beyond_its_surplus_a_gang_goes_whole():
    service = unit("service", *(pod(f"s-{i}", 8, on=f"r1-{i}", group="s") for i in range(3)), s=2)
    snapshot = cluster_of(racks({"r1": 3}), [service])
    answer = preempt(snapshot, gang(group("g", 2, 8), priority=10), [service])
    assert chosen(answer) == ["s-0", "s-1", "s-2"]
    assert answer.gangs == ("service",)


def test_the_lowest_priorities_that_suffice_are_taken():
    running = jobs(["r1-0"], priority=5) + jobs(["r1-1"], priority=1)
    answer = preempt(cluster_of(racks({"r1": 2}), running), gang(group("g", 1, 8), priority=10), running)
    assert chosen(answer) == ["job-r1-1"]


def test_no_gang_is_evicted_when_it_would_not_help():
    running = jobs(["r1-0"]) + jobs(["r2-0", "r2-1"], priority=99)
    snapshot = cluster_of(racks({"r1": 1, "r2": 2}), running)
    answer = preempt(snapshot, gang(group("g", 2, 8), required=RACK, priority=10), running)
    assert isinstance(answer, NoVictims)
    assert (answer.reason, answer.proven) == ("NotEnoughToPreempt", True)


def test_a_disruption_budget_is_kept_when_another_victim_will_do():
    running = jobs(["r1-0", "r1-1"])
    budgets = [DisruptionBudget("pdb", 0, frozenset(["job-r1-0"]))]
    answer = preempt(cluster_of(racks({"r1": 2}), running), gang(group("g", 1, 8), priority=10), running, budgets)
    assert chosen(answer) == ["job-r1-1"]
    assert answer.budgets_broken == ()


def test_a_disruption_budget_that_cannot_be_kept_is_named():
    running = jobs(["r1-0"])
    budgets = [DisruptionBudget("pdb", 0, frozenset(["job-r1-0"]))]
    answer = preempt(cluster_of(racks({"r1": 1}), running), gang(group("g", 1, 8), priority=10), running, budgets)
    assert chosen(answer) == ["job-r1-0"]
    assert answer.budgets_broken == ("pdb",)


def test_one_allowance_is_not_spent_twice():
    running = jobs(["r1-0", "r1-1", "r1-2"])
    budgets = [DisruptionBudget("pdb", 1, frozenset(["job-r1-0", "job-r1-1"]))]
    answer = preempt(cluster_of(racks({"r1": 3}), running), gang(group("g", 2, 8), priority=10), running, budgets)
    assert answer.budgets_broken == ()
    assert len(chosen(answer)) == 2


def test_capacity_that_is_being_vacated_is_waited_for():
    leaving = unit("leaving", pod("leaving", 8, on="r1-0", terminating=True))
    others = jobs(["r1-1"])
    snapshot = cluster_of(racks({"r1": 2}), [leaving, *others])
    answer = preempt(snapshot, gang(group("g", 1, 8), priority=10), [leaving, *others])
    assert isinstance(answer, NoVictims)
    assert answer.reason == "WaitingForTermination"


def test_a_host_port_in_the_way_is_cleared():
    holder = unit("holder", pod("holder", 0, cpu=1, ports=(HostPort(80),), on="n"))
    snapshot = cluster_of([node("n")], [holder])
    wanted = gang(group("g", 1, 1, ports=(HostPort(80),)), priority=10)
    assert isinstance(place(snapshot, wanted), NoFit)
    assert chosen(preempt(snapshot, wanted, [holder])) == ["holder"]


def test_what_was_placed_is_not_evicted_by_those_it_displaced():
    running = jobs(["r1-0", "r1-1"], priority=3)
    snapshot = cluster_of(racks({"r1": 2}), running)
    wanted = gang(group("g", 2, 8), required=RACK, priority=10)
    answer = preempt(snapshot, wanted, running)
    assert isinstance(answer, Victims)
    after = snapshot.copy()
    for p in answer.pods:
        after.remove_pod(p.uid)
    placement = place(after, wanted)
    assert isinstance(placement, Placement)
    after.assume(placement)
    winner = Running("default/gang", 10, placement.pods, {"g": 2})
    back = preempt(after, gang(group("job", 1, 8), priority=3), [winner])
    assert isinstance(back, NoVictims)


@pytest.mark.parametrize("guarded", [1, 9], ids=["one gang", "more than are tried one by one"])
def test_gangs_of_two_groups_without_surplus_are_spared_when_their_budgets_allow_no_pod_to_go(guarded: int):
    """Each group has exactly its minimum: no pod of it can go alone, and its budget lets no two go."""
    units, budgets = [], []
    for n in range(guarded):
        members = [
            pod(f"guarded{n}-{name}-{i}", 4, on=f"r1-{2 * n + at}", group=name)
            for at, name in enumerate("ab")
            for i in range(2)
        ]
        units.append(unit(f"guarded{n}", *members, a=2, b=2))
        budgets.append(DisruptionBudget(f"keep{n}", 1, frozenset(p.uid for p in members)))
    others = [pod(f"other-{i}", 4, on=f"r2-{i // 2}", group="x", priority=1) for i in range(4)]
    other = unit("other", *others, priority=1, x=4)
    snapshot = cluster_of(racks({"r1": 2 * guarded, "r2": 2}), [*units, other])
    answer = preempt(snapshot, gang(group("g", 1, 8), priority=10), [*units, other], budgets)
    assert isinstance(answer, Victims)
    assert (answer.gangs, answer.budgets_broken) == (("other",), ())


def test_surplus_that_a_budget_does_not_cover_may_go_alone():
    """The budget guards one group, the pods above the minimum are of the other."""
    kept = [pod(f"kept-{i}", 8, on=f"r1-{i}", group="kept") for i in range(2)]
    spare = [pod(f"spare-{i}", 8, on=f"r2-{i}", group="spare") for i in range(2)]
    both = unit("both", *kept, *spare, kept=2, spare=1)
    budget = DisruptionBudget("keep", 0, frozenset(p.uid for p in kept))
    snapshot = cluster_of(racks({"r1": 2, "r2": 2}), [both])
    answer = preempt(snapshot, gang(group("g", 1, 8), priority=10), [both], [budget])
    assert isinstance(answer, Victims)
    assert (len(answer.pods), answer.pods[0].group, answer.gangs, answer.budgets_broken) == (1, "spare", (), ())


def test_nodes_that_are_held_for_another_gang_are_not_emptied():
    running = jobs(["r1-0", "r1-1"])
    snapshot = cluster_of(racks({"r1": 2}), running)
    wanted = gang(group("g", 1, 8), priority=10)
    answer = preempt(snapshot, wanted, running, closed=["r1-0"])
    assert chosen(answer) == ["job-r1-1"]
    nobody = preempt(snapshot, wanted, running, closed=["r1-0", "r1-1"])
    assert isinstance(nobody, NoVictims)
    assert nobody.reason == "NotEnoughToPreempt"


def test_what_is_leaving_a_held_node_makes_no_capacity_for_others():
    leaving = pod("leaving", 8, on="r1-0", terminating=True)
    running = jobs(["r1-1"])
    snapshot = snap(racks({"r1": 2}), [leaving, *running[0].pods])
    answer = preempt(snapshot, gang(group("g", 1, 8), priority=10), running, closed=["r1-0"])
    assert chosen(answer) == ["job-r1-1"]


def terms(name: str) -> tuple[dict[str, int], bool] | None:
    return ({"x": 1}, True) if name.startswith("default/") else None


def test_the_index_of_what_runs_has_units_by_priority_and_what_budgets_cover():
    index = RunningIndex()
    pods = [
        pod("solo", 1, on="n", priority=5),
        pod("a", 1, on="n", gang="default/g", group="x", priority=1, labels={"app": "g"}),
        pod("b", 1, on="n", gang="default/g", group="x", priority=7, labels={"app": "g"}),
        pod("stray", 1, on="n", gang="unknown", group="x"),
    ]
    for one in pods:
        index.add(one)
    names = {one.name: (one.priority, len(one.pods)) for one in index.units(terms)}
    assert names == {"default/g": (7, 2), "pod:default/solo": (5, 1), "pod:default/stray": (0, 1)}
    assert [one.name for one in index.units(terms, below=5)] == ["pod:default/stray"]
    assert index.lowest_priority() == 0
    asked = [("default", "keep", of_labels({"app": "g"}), 1)]
    assert [budget.uids for budget in index.budgets(asked)] == [frozenset(("a", "b"))]
    index.remove("b")
    index.remove("stray")
    assert [one.name for one in index.units(terms, below=5)] == ["default/g"], "its highest priority has left"
    assert [budget.uids for budget in index.budgets(asked)] == [frozenset("a")]
    assert [one.name for one in index.units(terms, without={"a"})] == ["pod:default/solo"]


def test_the_index_of_what_runs_keeps_nothing_of_namespaces_whose_pods_have_gone():
    index = RunningIndex()
    pods = [
        msgspec.structs.replace(pod("solo", 1, on="n", priority=5), namespace="a"),
        msgspec.structs.replace(pod("member", 1, on="n", gang="b/g", group="x"), namespace="b"),
    ]
    for one in pods:
        index.add(one)
    budgets = [(name, "all", of_labels({}), 0) for name in ("a", "b", "without-pods")]
    assert [len(one.uids) for one in index.budgets(budgets)] == [1, 1, 0]
    for one in pods:
        index.remove(one.uid)
    assert [len(one.uids) for one in index.budgets(budgets)] == [0, 0, 0]
    assert {name: kept for name, kept in vars(index).items() if kept} == {}


class CountedLabels(dict[str, str]):
    """Labels that count their reads."""

    reads = 0

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        CountedLabels.reads += 1
        return super().get(name, default)


def test_budgets_of_many_sets_read_each_pod_a_few_times_and_not_once_for_each_budget():
    index, sets = RunningIndex(), 100
    for number in range(sets):
        for member in "abc":
            labels = CountedLabels({"app": f"set-{number}", "managed-by": "grove", "part": member})
            index.add(pod(f"{number}-{member}", 1, on="n", labels=labels))
    asked = [
        ("default", f"budget-{number:03}", of_labels({"app": f"set-{number}", "managed-by": "grove"}), 1)
        for number in range(sets)
    ]
    CountedLabels.reads = 0
    covered = [budget.uids for budget in index.budgets(asked)]
    assert covered == [frozenset(f"{number}-{member}" for member in "abc") for number in range(sets)]
    assert CountedLabels.reads <= 5 * 3 * sets, "100 budgets that read 300 pods each would be 30,000 reads"


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=6),
    st.lists(st.sampled_from(("", "a=x", "a=y,b=x", "a in (x,y)", "a!=x", "b", "!a", "a=x,b!=z", "b=q")), max_size=4),
)
def test_a_budget_covers_the_pods_that_its_selector_matches(labels: list[dict[str, str]], texts: list[str]) -> None:
    index = RunningIndex()
    pods = [pod(f"p{number}", 1, on="n", labels=of_one) for number, of_one in enumerate(labels)]
    for each in pods:
        index.add(each)
    selectors = [parse(text) for text in texts]
    asked = [("default", f"b{number}", selector, 1) for number, selector in enumerate(selectors)]
    for left in (pods, pods[1:]):
        covered = [budget.uids for budget in index.budgets(asked)[: len(asked)]]
        assert covered == [frozenset(p.uid for p in left if selector.matches(p.labels)) for selector in selectors]
        index.remove("p0")


def family(scaled_on: str = "b", *, priority: int = 0) -> list[Running]:
    """A base gang on node a, and a gang that is scaled with it."""
    base = unit(
        "default/base", pod("base", 8, on="a", gang="default/base", labels={POD_GANG: "base"}), priority=priority
    )
    marks = {POD_GANG: "scaled", BASE_POD_GANG: "base"}
    scaled = unit(
        "default/scaled", pod("scaled", 8, on=scaled_on, gang="default/scaled", labels=marks), priority=priority
    )
    return [base, scaled]


def test_a_scaled_gang_goes_before_its_base_gang():
    running = family()
    answer = preempt(cluster_of([node("a"), node("b")], running), gang(group("w", 1, 8), priority=5), running)
    assert chosen(answer) == ["scaled"]


def test_a_base_gang_that_has_to_go_takes_its_scaled_gangs_with_it():
    running = family()
    at_a = gang(group("w", 1, 8, node_selector=((HOST, "a"),)), priority=5)
    answer = preempt(cluster_of([node("a"), node("b")], running), at_a, running)
    assert chosen(answer) == ["base", "scaled"]


def test_a_lower_priority_counts_more_than_being_a_base_gang():
    running = [*family(), unit("default/other", pod("other", 8, on="c", gang="default/other", priority=3), priority=3)]
    nodes = [node("a"), node("b"), node("c")]
    answer = preempt(cluster_of(nodes, running), gang(group("w", 2, 8), priority=5), running)
    assert chosen(answer) == ["base", "scaled"]
