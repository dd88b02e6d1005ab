"""The snapshot's law: free is allocatable less what runs, whatever the order of events; copies do not leak."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scheduler.kit import GPU, RACK, TOPOLOGY, free_of, gang, group, node, observe, pod, racks, snap, used

from grove.api.core import Node, Pod, Taint
from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.filters.fit import feasible_nodes
from grove.scheduler.model.facts import SLOT, HostPort, NodeFacts, PodFacts, Shape
from grove.scheduler.model.seams import NodeFilter
from grove.scheduler.solve.place import place
from grove.scheduler.standard import STANDARD

NAMES = ("n0", "n1", "n2")
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NAMES), st.integers(1, 8)),
        st.tuples(st.just("no node"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("pod"), st.integers(0, 5), st.tuples(st.sampled_from(NAMES), st.integers(0, 4))),
        st.tuples(st.just("no pod"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("copy"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def test_a_node_that_is_empty_again_is_not_remembered():
    snapshot = snap([node("n0", 8), node("n1", 8)])
    for uid in ("p0", "p1"):
        snapshot.add_pod(pod(uid, 1, on="n0"))
        snapshot.remove_pod(uid)
    assert not snapshot._on


@settings(max_examples=300, deadline=None)
@given(EVENTS)
def test_free_is_what_is_left(events):
    snapshot = Snapshot(TOPOLOGY)
    nodes: dict[str, int] = {}
    pods: dict[int, tuple[str, int]] = {}
    old: list[tuple[Snapshot, dict[str, dict[str, int]]]] = []
    for kind, name, value in events:
        if kind == "node":
            snapshot.add_node(node(name, value, rack="r"))
            nodes[name] = value
        elif kind == "no node":
            snapshot.remove_node(name)
            nodes.pop(name, None)
        elif kind == "pod":
            snapshot.add_pod(pod(f"p{name}", value[1], on=value[0], ports=(HostPort(80),) if value[1] == 3 else ()))
            pods[name] = value
        elif kind == "no pod":
            snapshot.remove_pod(f"p{name}")
            pods.pop(name, None)
        else:
            old.append((snapshot.copy(), {n: free_of(snapshot, n) for n in nodes}))
    for name, gpu in nodes.items():
        here = [asked for at, asked in pods.values() if at == name]
        free = free_of(snapshot, name)
        assert free.get(GPU, 0) == gpu - sum(here)
        assert free["pods"] == 110 - len(here)
        clash = any(asked == 3 for asked in here)
        probe = pod("probe", ports=(HostPort(80),))
        assert (name in feasible_nodes(snapshot, probe)) is not clash
    for copy, free in old:
        for name, amounts in free.items():
            now = free_of(copy, name)
            assert {resource: now.get(resource, 0) for resource in amounts} == amounts


def test_a_copy_is_not_changed_by_the_original_nor_the_other_way():
    snapshot = snap(racks({"r1": 2}))
    copy = snapshot.copy()
    snapshot.add_pod(used("r1-0", 3))
    copy.add_pod(used("r1-0", 5))
    copy.add_node(node("new", rack="r1"))
    assert free_of(snapshot, "r1-0")[GPU] == 5
    assert free_of(copy, "r1-0")[GPU] == 3
    assert "new" not in snapshot.nodes.row_of
    assert snapshot.find_pod("new") is None


def test_an_update_that_changes_nothing_keeps_the_version():
    snapshot = snap(racks({"r1": 1}), [used("r1-0", 3)])
    before = snapshot.version
    snapshot.add_node(racks({"r1": 1})[0])
    snapshot.add_pod(used("r1-0", 3))
    assert snapshot.version == before


def test_pods_wait_for_a_node_that_comes_later():
    snapshot = Snapshot(TOPOLOGY)
    snapshot.add_pod(used("late", 3))
    snapshot.add_node(node("late"))
    assert free_of(snapshot, "late")[GPU] == 5


def test_a_node_that_comes_back_has_its_pods():
    snapshot = snap([node("n")], [used("n", 3)])
    snapshot.remove_node("n")
    snapshot.add_node(node("n", 4))
    assert free_of(snapshot, "n")[GPU] == 1


def test_an_assumed_pod_stays_when_its_old_state_arrives():
    snapshot = snap([node("n")])
    snapshot.add_pod(used("n", 3))
    unbound = msgspec.convert({"metadata": {"name": "x", "uid": "used-n-"}}, Pod)
    observe(snapshot, unbound)
    assert free_of(snapshot, "n")[GPU] == 5
    finished = msgspec.convert({"metadata": {"uid": "used-n-"}, "status": {"phase": "Failed"}}, Pod)
    observe(snapshot, finished)
    assert free_of(snapshot, "n")[GPU] == 8


def test_a_node_without_allocatable_offers_nothing():
    snapshot = snap([node("ok")])
    observe(snapshot, msgspec.convert({"metadata": {"name": "bare"}}, Node))
    assert feasible_nodes(snapshot, pod("p")) == ["ok"]


def test_a_node_that_is_not_ready_repels_even_before_it_is_tainted():
    snapshot = snap([node("ok")])
    conditions = [{"type": "Ready", "status": "Unknown"}]
    raw = {"metadata": {"name": "sick"}, "status": {"allocatable": {"pods": "10"}, "conditions": conditions}}
    observe(snapshot, msgspec.convert(raw, Node))
    assert feasible_nodes(snapshot, pod("p")) == ["ok"]


def test_domains_are_paths_sorted_by_name():
    nodes = [node("c", zone="z2", rack="r1"), node("a", zone="z1", rack="r1"), node("b", zone="z1", rack="r1")]
    snapshot = snap(nodes)
    tree = snapshot.tree((RACK,))
    assert snapshot.nodes.names(tree.order) == ["a", "b", "c"]
    level = tree.find_level(RACK)
    assert [snapshot.domain_name(tree, level, int(d)) for d in np.unique(tree.domains[level])] == ["z1/r1", "z2/r1"]


def test_a_label_no_topology_has_is_a_level_of_its_own():
    snapshot = snap([node("a", labels={"pod": "x"}), node("b", labels={"pod": "y"})])
    assert snapshot.tree(("pod",)).keys == ("pod", "kubernetes.io/hostname")


def test_nodes_that_came_and_went_leave_nothing_behind():
    """A cluster that scales up and down all day must not make every pod event and every copy dearer."""
    snapshot = Snapshot(TOPOLOGY)
    for number in range(50):
        snapshot.add_node(node(f"n{number}", 8, rack="r"))
        there = pod(f"p{number}", 1).on(f"n{number}")
        snapshot.add_pod(there)
        snapshot.remove_node(f"n{number}")
        snapshot.remove_pod(there.uid)
    assert not snapshot._homeless


def test_resources_no_one_counts_by_any_more_leave_their_rows_to_others():
    """A cluster where reservations come and go all day must not make every copy dearer."""
    snapshot = Snapshot()
    for number in range(50):
        name = f"{SLOT}{number}"
        snapshot.add_node(NodeFacts("n", allocatable={GPU: 8, name: 1}))
        there = PodFacts("u", "ns", "p", Shape(((name, 1),)), node="n")
        assert snapshot.amounts(there.shape.requests) == ((snapshot.resources.index(name), 1),)
        snapshot.add_pod(there)
        snapshot.forget([name])
        snapshot.add_node(NodeFacts("n", allocatable={GPU: 8, f"{SLOT}beside": 1}))
        assert free_of(snapshot, "n")[name] == -1, "its row is its own while a pod is counted by it"
        snapshot.remove_pod("u")
    assert len(snapshot.resources) <= 6
    assert free_of(snapshot, "n")[GPU] == 8


def test_a_resource_that_is_counted_by_again_keeps_its_row():
    snapshot = Snapshot()
    snapshot.add_node(NodeFacts("n", allocatable={f"{SLOT}old": 0}))
    snapshot.forget([f"{SLOT}old"])
    snapshot.add_node(NodeFacts("n", allocatable={f"{SLOT}new": 3, f"{SLOT}old": 0}))
    assert (free_of(snapshot, "n")[f"{SLOT}new"], free_of(snapshot, "n")[f"{SLOT}old"]) == (3, 0)


def test_a_copy_has_resources_by_the_rows_that_they_had():
    snapshot = Snapshot()
    snapshot.add_node(NodeFacts("n", allocatable={f"{SLOT}old": 1}))
    twin = snapshot.copy()
    snapshot.forget([f"{SLOT}old"])
    snapshot.add_node(NodeFacts("n", allocatable={}))
    snapshot.add_node(NodeFacts("n", allocatable={f"{SLOT}new": 3}))
    assert free_of(snapshot, "n")[f"{SLOT}new"] == 3
    assert f"{SLOT}old" not in snapshot.resources
    assert free_of(twin, "n")[f"{SLOT}old"] == 1


class Counted(NodeFilter):
    """Passes every node, and counts how often it is asked."""

    name = "counted"

    def __init__(self) -> None:
        self.asked = 0

    def rows(self, snapshot: Snapshot, shape: Shape) -> np.ndarray:
        self.asked += 1
        return np.ones(snapshot.nodes.rows, dtype=np.bool_)


def test_masks_outlive_a_recount_of_what_nodes_have_and_not_a_change_of_their_looks():
    counted = Counted()
    snapshot = cluster(racks({"r1": 2}), (), TOPOLOGY, STANDARD.joined(filters=[counted]))
    first = node("r1-0", 8, zone="z", block="b", rack="r1")
    wanted = gang(group("g", 1, 8))
    place(snapshot, wanted)
    place(snapshot, wanted)
    assert counted.asked == 1
    snapshot.add_node(node("r1-0", 2, zone="z", block="b", rack="r1"))
    assert set(place(snapshot, wanted).nodes.values()) == {"r1-1"}, "what it has is counted all the same"
    assert counted.asked == 1
    snapshot.add_node(replace(first, taints=(Taint(key="gone", effect="NoSchedule"),)))
    place(snapshot, wanted)
    assert counted.asked == 2


def test_removing_a_node_looks_at_its_own_pods_alone(monkeypatch):
    snapshot = snap(racks({"r1": 3}), [used(f"r1-{n}", 1, tag=i) for n in range(3) for i in range(4)])
    twin = snapshot.copy()
    with monkeypatch.context() as patch:
        patch.setattr(type(snapshot._pods), "values", lambda _: pytest.fail("all pods were walked over"))
        snapshot.remove_node("r1-1")
    assert sorted(one.node for one in snapshot.pods()) == ["r1-0"] * 4 + ["r1-2"] * 4
    twin.remove_node("r1-2")
    assert sorted(one.node for one in twin.pods()) == ["r1-0"] * 4 + ["r1-1"] * 4, "a copy has its own"
    snapshot.add_node(racks({"r1": 3})[1])
    assert free_of(snapshot, "r1-1")[GPU] == 4, "its pods came back with it"


def test_a_pod_that_comes_before_its_node_costs_the_same_however_many_nodes_are_awaited():
    """At the start pods may be listed before nodes, all of them."""

    def calls(pods: int) -> int:
        snapshot, counted = snap([]), Counter()
        awaiting = [pod(f"p{n}", 1, on=f"n{n}") for n in range(pods)]
        for one in awaiting[:-1]:
            snapshot.add_pod(one)
        sys.setprofile(lambda frame, event, arg: counted.update([event]))
        try:
            snapshot.add_pod(awaiting[-1])
            snapshot.remove_pod(awaiting[-1].uid)
        finally:
            sys.setprofile(None)
        return counted.total()

    assert calls(1000) == calls(10)
