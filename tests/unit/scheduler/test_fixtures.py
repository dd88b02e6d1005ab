"""Feasible gangs that other schedulers call impossible, one test each, and their infeasible twins."""

from __future__ import annotations

import pytest
from tests.support.scheduler.kit import (
    BLOCK,
    HOST,
    RACK,
    ZONE,
    branch,
    gang,
    group,
    node,
    pod,
    racks,
    shape,
    snap,
    used,
)

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.answers import NoFit, Placement
from grove.scheduler.model.facts import PODS
from grove.scheduler.model.gang import Gang, PodGroup
from grove.scheduler.solve.place import place


def placed(snapshot: Snapshot, wanted: Gang) -> Placement:
    answer = place(snapshot, wanted)
    assert isinstance(answer, Placement), answer
    return answer


def refused(snapshot: Snapshot, wanted: Gang) -> NoFit:
    answer = place(snapshot, wanted)
    assert isinstance(answer, NoFit), answer
    return answer


def test_mixed_sizes_under_one_constraint_fill_a_zone_exactly():
    snapshot = snap([node("n1", 8, zone="a"), node("n2", 8, zone="a")])
    answer = placed(snapshot, gang(group("prefill", 1, 8), group("decode", 4, 2), required=ZONE))
    by_group = {p.name: p.node for p in answer.pods}
    assert len({by_group[f"decode-{i}"] for i in range(4)}) == 1
    assert by_group["prefill-0"] != by_group["decode-0"]
    assert answer.core == 5


def test_mixed_sizes_that_do_not_fit_are_refused_with_proof():
    snapshot = snap([node("n1", 8, zone="a"), node("n2", 8, zone="a")])
    answer = refused(snapshot, gang(group("prefill", 1, 8), group("decode", 5, 2), required=ZONE))
    assert answer.proven


def test_a_sibling_gives_up_the_tighter_rack_that_only_the_other_can_use():
    nic = "example.com/nic"
    snapshot = snap([node("a1", 6, rack="A"), node("b1", 4, rack="B", extra={nic: 1})])
    leader = pod("b-leader", 1, extra={nic: 1}, group="b")
    workers = tuple(pod(f"b-{i}", 1, group="b") for i in range(3))
    with_nic = PodGroup("b", 4, (leader, *workers), required=RACK)
    answer = placed(snapshot, gang(group("a", 4, 1, required=RACK), with_nic))
    assert {p.node for p in answer.pods if p.name.startswith("a-")} == {"a1"}
    assert {p.node for p in answer.pods if p.name.startswith("b-")} == {"b1"}


def test_the_minimum_may_be_met_by_other_pods_than_the_first_ones():
    snapshot = snap([node("n1", 2, rack="A"), node("n2", 2, rack="A")])
    big = [pod(f"g-{i}", 4, group="g") for i in range(2)]
    small = [pod(f"g-{i}", 2, group="g") for i in (2, 3)]
    answer = placed(snapshot, gang(PodGroup("g", 2, (*big, *small), required=RACK)))
    assert sorted(p.name for p in answer.pods) == ["g-2", "g-3"]
    assert sorted(p.name for p in answer.unplaced) == ["g-0", "g-1"]


@pytest.mark.parametrize("turned", [False, True], ids=["the narrow group is listed first", "the broad one is"])
def test_of_two_hosts_alike_the_one_is_taken_whose_rack_no_gang_needs(turned):
    snapshot = snap([node("h1", 8, rack="A"), node("h2", 8, rack="B"), node("h3", 8, rack="A")])
    parts = [group("one", 1, 8, required=HOST), group("two", 2, 8, required=RACK)]
    answer = placed(snapshot, gang(*(reversed(parts) if turned else parts)))
    assert {p.node for p in answer.pods if p.name == "one-0"} == {"h2"}


def test_blocks_alike_in_sum_and_unlike_in_their_racks_are_distinguished():
    rack_of = {"a": ["a1", "a1", "a2", "a2"], "b": ["b1", "b1", "b1", "b2"]}
    nodes = [node(f"{b}{i}", 8, block=b, rack=rack) for b, found in rack_of.items() for i, rack in enumerate(found)]
    inside = branch("both", group("w", 3, 8, required=RACK), group("v", 1, 8, required=RACK), required=BLOCK)
    answer = placed(snap(nodes), gang(inside))
    assert {p.node[0] for p in answer.pods} == {"b"}


def test_sums_that_pass_where_packing_fails_are_refused_with_proof_and_little_work():
    # 23 of 24 GPUs are asked for, but beside a 5 no 4 fits, and two 4s need the node that the third 5 needs.
    snapshot = snap([node(f"n{i}", 8, rack="A") for i in range(3)])
    answer = refused(snapshot, gang(group("five", 3, 5), group("four", 2, 4), required=RACK))
    assert (answer.proven, answer.reason) == (True, "NoPacking")
    assert answer.steps < 50


def test_another_device_may_stand_in_for_the_first_choice():
    a, b = "example.com/device-a", "example.com/device-b"
    snapshot = snap([node("n1", 0, extra={a: 1, b: 1}), node("n2", 0, extra={a: 1})])
    either = shape(extra={a: 1}, alternatives=(((b, 1), (PODS, 1)),))
    only_a = shape(extra={a: 1})
    answer = placed(snapshot, gang(group("either", 1, of=either), group("only", 2, of=only_a)))
    by_name = {p.name: p for p in answer.pods}
    assert by_name["either-0"].node == "n1"
    assert dict(by_name["either-0"].shape.requests) == {b: 1, PODS: 1}
    assert {by_name["only-0"].node, by_name["only-1"].node} == {"n1", "n2"}


def test_a_replacement_stays_in_its_domain_when_there_is_capacity():
    snapshot = snap(racks({"r1": 2, "r2": 2}), [used("r1-0", 8)])
    answer = placed(snapshot, gang(group("g", 1, 8, bound=["r1-0"]), required=RACK))
    assert [p.node for p in answer.pods] == ["r1-1"]


def test_a_replacement_whose_domain_is_full_is_reported():
    snapshot = snap(racks({"r1": 2, "r2": 2}), [used("r1-0", 8), used("r1-1", 8)])
    answer = refused(snapshot, gang(group("g", 1, 8, bound=["r1-0"]), required=RACK))
    assert (answer.proven, answer.reason) == (True, "DomainPinned")


@pytest.mark.parametrize(
    ("sizes", "fits"),
    [
        pytest.param([(4, 2), (4, 2)], True, id="two groups in two racks"),
        pytest.param([(4, 2), (4, 2), (2, 4)], False, id="a third group finds no rack of its own"),
        pytest.param([(2, 4), (2, 2), (2, 2)], True, id="two small groups share a rack"),
    ],
)
def test_groups_with_racks_of_their_own(sizes, fits):
    snapshot = snap(racks({"r1": 1, "r2": 1}))
    parts = [branch(f"b{i}", group(f"g{i}", n, gpu), required=RACK) for i, (n, gpu) in enumerate(sizes)]
    answer = place(snapshot, gang(*parts, required=ZONE))
    assert isinstance(answer, Placement) == fits
    if not fits:
        assert answer.proven
