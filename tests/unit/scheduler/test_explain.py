"""Explanations: the blocking constraint in numbers, and changes that were tried out and work."""

from __future__ import annotations

from dataclasses import replace

from tests.support.scheduler.kit import RACK, ZONE, gang, group, node, pod, racks, snap, used

from grove.api.core import Taint
from grove.api.podgang import PodGang
from grove.diagnosis.advice import advice_of
from grove.diagnosis.reasons import level_of, sentence
from grove.scheduler.devices.device_inventory import ANY
from grove.scheduler.evict.running import Running
from grove.scheduler.explain.explanation import explain
from grove.scheduler.model.answers import Change, NoFit, Placement
from grove.scheduler.model.gang import Pin
from grove.scheduler.model.reading import UNSCHEDULABLE
from grove.scheduler.model.reasons import BASE_WAITS, Reason
from grove.scheduler.solve.place import place

CORDON = (Taint(key=UNSCHEDULABLE, effect="NoSchedule"),)


def kinds(explanation) -> dict[str, Change]:
    return {change.kind: change for change in explanation.changes}


def said(explanation, kind: str) -> str:
    return advice_of(kinds(explanation)[kind], PodGang(), None).text


def test_a_gang_that_fits_says_so():
    answer = explain(snap(racks({"r1": 2})), gang(group("g", 2, 8), required=RACK))
    assert (answer.fits, answer.reason, answer.changes) == (True, "Fits", ())


def test_gates_come_first():
    answer = explain(snap(racks({"r1": 2})), gang(group("g", 2, 8)), gate=Reason(BASE_WAITS, "ns/base"))
    assert (answer.fits, answer.why) == (False, Reason(BASE_WAITS, "ns/base"))


def test_the_closest_domain_is_named_with_numbers():
    answer = explain(snap(racks({"r1": 2, "r2": 3})), gang(group("g", 4, 8), required=RACK))
    assert not answer.fits
    assert "example.com/rack z/b/r2 comes closest, with capacity for g 3/4 pods" in sentence(answer.why)


def test_groups_that_fit_a_rack_alone_and_not_together_are_not_named_as_short():
    wanted = gang(group("leader", 1, 8), group("worker", 4, 8), required=RACK)
    answer = explain(snap(racks({"r1": 4, "r2": 4})), wanted)
    assert sentence(answer.why).endswith(
        "example.com/rack z/b/r1 has capacity for each of the 2 cliques alone, but not for all of them together"
    )


def test_findings_go_from_gang_to_node():
    answer = explain(snap(racks({"r1": 1}), [used("r1-0", 4)]), gang(group("g", 2, 8), required=RACK))
    assert [level_of(one) for one in answer.findings] == ["gang", "node"]
    assert "needs 16 nvidia.com/gpu, 4 free in the cluster" in sentence(answer.findings[0])
    assert sentence(answer.findings[1]) == "g: 0/1 nodes can take one of its pods (1 insufficient nvidia.com/gpu)"


def test_explain_says_that_the_base_gangs_domain_is_full_not_that_the_cluster_has_capacity():
    scaled = gang(group("g", 2, 8), pinned_domain=Pin(RACK, "r1-0"))
    answer = explain(snap(racks({"r1": 2, "r2": 4}), [used("r1-0", 8)]), scaled)
    assert "needs 16 nvidia.com/gpu, 8 free in z/b/r1" in sentence(answer.why)
    assert "g: 1/6 nodes can take one of its pods (4 outside z/b/r1, where its base gang is" in sentence(answer.why)


def test_nodes_that_are_held_for_others_are_counted_as_that():
    answer = place(snap(racks({"r1": 4})), gang(group("g", 4, 8)), closed=["r1-0", "r1-1"])
    assert isinstance(answer, NoFit)
    assert "2/4 nodes can take one of its pods (2 held" in sentence(answer.why)


def test_relaxing_the_level_helps_when_the_racks_are_too_small():
    answer = explain(snap(racks({"r1": 2, "r2": 2})), gang(group("g", 4, 8), required=RACK))
    assert said(answer, "relax") == "required: example.com/block instead of required: example.com/rack for gang"


def test_fewer_pods_are_counted_exactly():
    answer = explain(snap(racks({"r1": 3})), gang(group("g", 5, 8)))
    assert said(answer, "fewer-pods") == "minAvailable: 3 (now 5) for g"


def test_the_number_of_missing_nodes_is_exact():
    answer = explain(snap(racks({"r1": 3, "r2": 1})), gang(group("g", 5, 8), required=RACK))
    found = kinds(answer)["add-nodes"]
    assert (found.size, said(answer, "add-nodes")) == (2, "add 2 nodes like r1-0 in r1")


def test_a_cordoned_node_that_would_do_is_named():
    nodes = [replace(n, taints=CORDON) if n.name == "r1-1" else n for n in racks({"r1": 2})]
    answer = explain(snap(nodes), gang(group("g", 2, 8), required=RACK))
    assert said(answer, "uncordon") == "uncordon r1-1"


def test_a_taint_that_stands_in_the_way_is_named():
    nodes = [node("a"), node("b", taints=(Taint(key="team", value="x", effect="NoSchedule"),))]
    answer = explain(snap(nodes), gang(group("g", 2, 8)))
    assert said(answer, "untaint") == "remove or tolerate the taint team of b"


def test_the_smallest_gang_whose_end_helps_is_named():
    small = Running("default/small", 100, (pod("s", 8, on="r1-0"),))
    large = Running("default/large", 0, tuple(pod(f"l{i}", 8, on=f"r2-{i}") for i in range(2)))
    snapshot = snap(racks({"r1": 1, "r2": 2}), [*small.pods, *large.pods])
    answer = explain(snapshot, gang(group("g", 1, 8)), [large, small])
    assert said(answer, "end-other") == "free capacity: delete pod default/small"


def test_smaller_pods_are_proposed_when_devices_are_short():
    answer = explain(snap([node("a", 4), node("b", 4)]), gang(group("g", 2, 8)))
    assert said(answer, "smaller-pods") == "ask for 4 nvidia.com/gpu instead of 8 in each pod of g"


def test_fewer_claimed_devices_are_proposed_by_their_class():
    """A pod that claims devices asks for some of a class, and for as many of any kind; only the former is spoken of."""
    devices = {"deviceclass/tpu": 2, ANY: 2}
    snapshot = snap([node("a", 0, extra=devices), node("b", 0, extra=devices)])
    answer = explain(snapshot, gang(group("g", 2, 0, extra={"deviceclass/tpu": 4, ANY: 4})))
    assert said(answer, "smaller-pods") == "ask for 2 deviceclass/tpu instead of 4 in each pod of g"
    assert not any(ANY in change.names.get("resource", "") for change in answer.changes)


def test_explain_names_the_domain_where_a_pinned_gang_would_fit_whole():
    mine = pod("g-9", 8, on="r1-0", gang="default/gang", group="g")
    snapshot = snap(racks({"r1": 2, "r2": 2}), [mine, used("r1-1", 8)])
    answer = explain(snapshot, gang(group("g", 1, 8, bound=["r1-0"]), required=RACK))
    assert answer.reason == "DomainPinned"
    text = "restart the gang whole: its 1 running pod and the rest fit together in z/b/r2"
    assert said(answer, "restart") == text


def test_a_gang_pinned_to_a_full_domain_is_not_compared_with_a_domain_it_cannot_use():
    mine = pod("g-9", 8, on="r1-0", gang="default/gang", group="g")
    snapshot = snap(racks({"r1": 3, "r2": 3}), [mine, used("r1-1", 8)])
    answer = explain(snapshot, gang(group("g", 2, 8, bound=["r1-0"]), required=RACK))
    assert answer.reason == "DomainPinned"
    assert not [one for one in answer.findings if "z/b/r2" in sentence(one)]
    assert sentence(answer.why) == (
        "example.com/rack z/b/r1 has no capacity for the rest of gang, which running pods keep there; "
        "example.com/rack z/b/r1 has capacity for g 1/2 pods"
    )


def test_a_change_that_restarts_nothing_comes_before_a_restart():
    """Uncordoning r1-2 keeps the pod that runs; a restart moves it to the other rack."""
    mine = pod("g-9", 8, on="r1-0", gang="default/gang", group="g")
    nodes = [replace(one, taints=CORDON) if one.name == "r1-2" else one for one in racks({"r1": 3, "r2": 2})]
    snapshot = snap(nodes, [mine, used("r1-1", 8)])
    answer = explain(snapshot, gang(group("g", 1, 8, bound=["r1-0"]), required=RACK))
    assert [change.kind for change in answer.changes][:2] == ["uncordon", "restart"]


def test_pods_above_the_minimum_get_changes_that_keep_what_serves():
    """One pod of the minimum runs on the only node of r1; the other two of the gang are above the minimum."""
    mine = pod("g-9", 8, on="r1-0", gang="default/gang", group="g")
    snapshot = snap(racks({"r1": 1, "r2": 3}), [mine])
    partly = gang(group("g", 2, 8, minimum=1, bound=["r1-0"]), required=RACK)
    answer = explain(snapshot, partly, surplus=True)
    assert not answer.fits
    assert [(change.kind, change.size) for change in answer.changes] == [("add-nodes", 2), ("restart", 1)]
    assert all(change.in_place for change in answer.changes)
    roomy = explain(snap(racks({"r1": 3}), [mine]), partly, surplus=True)
    assert roomy.fits


def test_a_restart_that_still_leaves_a_pod_waiting_is_not_proposed():
    mine = pod("g-9", 8, on="r1-0", gang="default/gang", group="g")
    snapshot = snap(racks({"r1": 1, "r2": 2}), [mine])
    answer = explain(snapshot, gang(group("g", 2, 8, minimum=1, bound=["r1-0"]), required=RACK), surplus=True)
    assert "restart" not in kinds(answer)


def test_every_relaxed_gang_really_fits():
    snapshot = snap(racks({"r1": 2, "r2": 2}))
    wanted = gang(group("g", 4, 8, required=RACK), required=ZONE)
    answer = explain(snapshot, wanted)
    assert said(answer, "relax") == "required: example.com/block instead of required: example.com/rack for g"
    assert isinstance(place(snapshot, gang(group("g", 4, 8), required=ZONE)), Placement)


def test_at_most_five_changes():
    nodes = [replace(n, taints=CORDON) if n.name == "r1-1" else n for n in racks({"r1": 2, "r2": 1})]
    running = [Running("default/x", 0, (pod("x", 8, on="r2-0"),))]
    snapshot = snap(nodes, [p for u in running for p in u.pods])
    answer = explain(snapshot, gang(group("g", 2, 8), required=RACK), running)
    assert 1 <= len(answer.changes) <= 5


def test_what_can_be_done_in_place_comes_before_what_needs_a_new_set():
    answer = explain(snap(racks({"r1": 2, "r2": 2})), gang(group("g", 4, 8), required=RACK))
    assert [change.in_place for change in answer.changes] == sorted(
        (change.in_place for change in answer.changes), reverse=True
    )
    assert {change.in_place for change in answer.changes} == {True, False}


def test_a_part_is_not_asked_to_be_broader_than_what_it_is_inside_of():
    snapshot = snap(racks({"r1": 2, "r2": 2}))
    answer = explain(snapshot, gang(group("g", 3, 8, required=RACK), required=RACK))
    assert all(
        change.names["to"] == "" for change in answer.changes if change.kind == "relax" and change.subject == "g"
    )
