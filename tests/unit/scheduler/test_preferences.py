"""Which of several possible places is taken: few domains, the tightest, whole racks spared, preferences of pods
counted.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.support.scheduler.kit import GPU, HOST, RACK, ZONE, branch, gang, group, node, racks, shape, snap, used

from grove.api.core import Taint
from grove.api.fragmentation import GangSize
from grove.api.selector import Requirement, of_labels
from grove.diagnosis.reasons import sentence
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.loop.metrics import watch_headroom
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import NodeTerm, PodScope, PodTerm
from grove.scheduler.model.gang import Gang, Pin
from grove.scheduler.solve.place import place
from grove.scheduler.solve.placement_score import fragmentation, slots_by_domain


def nodes_of(snapshot: Snapshot, wanted: Gang, **more) -> list[str]:
    answer = place(snapshot, wanted, **more)
    assert isinstance(answer, Placement), answer
    return [p.node for p in answer.pods]


def racks_of(snapshot: Snapshot, wanted: Gang) -> set[str]:
    return {n.rsplit("-", 1)[0] for n in nodes_of(snapshot, wanted)}


def test_the_tightest_rack_that_holds_all_is_taken():
    assert racks_of(snap(racks({"big": 4, "fit": 2, "small": 1})), gang(group("g", 2, 8), required=RACK)) == {"fit"}


def test_a_broken_rack_is_used_before_a_whole_one_even_if_it_has_more_capacity():
    snapshot = snap(racks({"whole": 1, "broken": 3}), [used("broken-0", 8)])
    assert racks_of(snapshot, gang(group("g", 1, 1))) == {"broken"}


def test_small_pods_fill_up_the_fullest_node():
    snapshot = snap(racks({"r": 3}), [used("r-1", 5), used("r-2", 2)])
    assert nodes_of(snapshot, gang(group("g", 1, 1))) == ["r-1"]


def test_a_preferred_rack_is_left_only_when_it_is_too_small():
    assert racks_of(snap(racks({"a": 3, "b": 2})), gang(group("g", 3, 8), preferred=RACK)) == {"a"}
    assert racks_of(snap(racks({"a": 3, "b": 2, "c": 1})), gang(group("g", 4, 8), preferred=RACK)) == {"a", "c"}


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(gang(group("g", 2, 8), preferred="no/such"), id="by the gang"),
        pytest.param(gang(group("g", 2, 8, preferred="no/such"), required=RACK), id="by a group in a rack"),
        pytest.param(gang(branch("b", group("g", 2, 8), preferred="no/such"), preferred=RACK), id="by a branch"),
    ],
)
def test_a_preferred_level_that_no_node_has_excludes_no_node(wanted):
    answer = place(snap(racks({"a": 2, "b": 2})), wanted)
    assert isinstance(answer, Placement)
    assert len({p.node.split("-")[0] for p in answer.pods}) == 1
    assert answer.score == 1.0


def test_an_unconstrained_gang_stays_together():
    assert len(racks_of(snap(racks({"a": 3, "b": 3})), gang(group("g", 2, 8), group("h", 1, 4)))) == 1


def test_spread_evens_out_over_nodes():
    snapshot = snap(racks({"r": 3}))
    assert sorted(nodes_of(snapshot, gang(group("g", 6, 1), strategy="spread"))) == [
        f"r-{i}" for i in (0, 0, 1, 1, 2, 2)
    ]


def test_a_preferred_node_affinity_counts():
    likes = NodeTerm(labels=(Requirement("disk", "In", frozenset(("ssd",))),))
    snapshot = snap([node("a"), node("b", labels={"disk": "ssd"})])
    assert nodes_of(snapshot, gang(group("g", 1, 1, preferred_nodes=((10, likes),)))) == ["b"]


def test_a_soft_taint_is_avoided():
    snapshot = snap([node("a", taints=(Taint(key="k", effect="PreferNoSchedule"),)), node("b")])
    assert nodes_of(snapshot, gang(group("g", 1, 1))) == ["b"]


def test_the_domain_with_headroom_for_scaled_gangs_is_preferred():
    snapshot = snap(racks({"fit": 2, "big": 4}))
    base = gang(group("g", 2, 8), required=RACK)
    assert racks_of(snapshot, base) == {"fit"}
    assert racks_of(snapshot, replace(base, headroom=((shape(8), 2),))) == {"big"}


def test_a_scaled_gang_goes_to_the_base_gangs_domain():
    snapshot = snap(racks({"a": 3, "b": 1}), [used("a-0", 8)])
    scaled = gang(group("g", 1, 8))
    assert racks_of(snapshot, replace(scaled, pinned_domain=Pin(RACK, "a-0"))) == {"a"}
    full = snap(racks({"a": 1, "b": 1}), [used("a-0", 8)])
    answer = place(full, replace(scaled, pinned_domain=Pin(RACK, "a-0")))
    assert isinstance(answer, NoFit)
    assert answer.proven


@pytest.mark.parametrize(
    ("taken", "want"),
    [
        pytest.param([], ["big-0", "big-1"], id="the former place, though another is tighter"),
        pytest.param(["big-2"], ["big-0", "big-1"], id="what others took beside it does not matter"),
        pytest.param(["big-1"], ["big-0", "big-2"], id="the same rack when a node of it is not free any more"),
        pytest.param(["big-1", "big-2", "big-3"], ["fit-0", "fit-1"], id="anywhere when its rack has no room for it"),
    ],
)
def test_a_gang_takes_over_the_place_of_the_one_it_names_if_it_fits_there_whole(taken, want):
    snapshot = snap(racks({"fit": 2, "big": 4}), [used(name, 8) for name in taken])
    wanted = replace(gang(group("g", 2, 8), required=RACK), former=frozenset(("big-0", "big-1", "gone")))
    assert nodes_of(snapshot, wanted) == want


LIKES_B = ((50, NodeTerm((Requirement(RACK, "In", frozenset("b")),))),)
LIKES_FAST = ((10, NodeTerm((Requirement("fast", "Exists", frozenset()),))),)


@pytest.mark.parametrize(
    ("levels", "taken", "want"),
    [
        pytest.param({"required": RACK}, [], {"b"}, id="a required level: the liked rack, though another is tighter"),
        pytest.param({"preferred": RACK}, [], {"b"}, id="a preferred level"),
        pytest.param({}, [], {"b"}, id="no level"),
        pytest.param({"required": RACK}, ["b-0", "b-1"], {"a"}, id="another rack when the liked one is full"),
        pytest.param({"preferred": RACK}, ["b-0", "b-1"], {"a"}, id="one rack before half of the liked one"),
    ],
)
def test_node_preferences_choose_among_domains(levels, taken, want):
    snapshot = snap(racks({"a": 2, "b": 3}), [used(name, 8) for name in taken])
    wanted = gang(group("g", 1, 8, preferred_nodes=LIKES_B), group("h", 1, 8, preferred_nodes=LIKES_B), **levels)
    assert racks_of(snapshot, wanted) == want


def test_the_domain_with_most_liked_nodes_is_chosen():
    nodes = [
        node(f"{rack}-{i}", rack=rack, labels={"fast": ""} if i < fast else {})
        for rack, fast in (("a", 1), ("b", 2))
        for i in range(3)
    ]
    assert nodes_of(snap(nodes), gang(group("g", 2, 8, preferred_nodes=LIKES_FAST), required=RACK)) == ["b-0", "b-1"]


def test_only_allowed_domains_are_used():
    snapshot = snap(racks({"a": 1, "b": 1}))
    wanted = replace(gang(group("g", 1, 8)), allowed=((RACK, frozenset(("b",))),))
    assert racks_of(snapshot, wanted) == {"b"}


def test_closed_nodes_are_left_alone():
    snapshot = snap(racks({"a": 2}))
    assert nodes_of(snapshot, gang(group("g", 1, 1)), closed=["a-0"]) == ["a-1"]


def test_surplus_follows_the_core_and_the_rest_is_named():
    snapshot = snap(racks({"a": 2, "b": 2}))
    answer = place(snapshot, gang(group("g", 4, 8, minimum=2), required=RACK))
    assert isinstance(answer, Placement)
    assert (answer.core, [p.node for p in answer.pods], answer.unplaced) == (2, ["a-0", "a-1"], answer.unplaced)
    assert [p.name for p in answer.unplaced] == ["g-2", "g-3"]


def test_surplus_goes_near_its_group():
    snapshot = snap(racks({"a": 2, "b": 2}), [used("a-1", 7)])
    answer = place(snapshot, gang(group("g", 2, 8, minimum=1, bound=["b-0"])))
    assert isinstance(answer, Placement)
    assert answer.core == 0
    assert sorted(p.node for p in answer.pods) == ["b-0", "b-1"]


def test_nested_levels_hold_together():
    nodes = [node(f"{z}{r}-{i}", zone=z, block="b", rack=f"{z}{r}") for z in "xy" for r in range(2) for i in range(2)]
    wanted = gang(
        branch("pair", group("leader", 1, 4), group("worker", 3, 4), required=RACK),
        group("single", 2, 4, required=HOST),
        required=ZONE,
    )
    answer = place(snap(nodes), wanted)
    assert isinstance(answer, Placement)
    by_name = {p.name: p.node for p in answer.pods}
    assert len({n[0] for n in by_name.values()}) == 1
    assert len({by_name[k].split("-")[0] for k in by_name if not k.startswith("single")}) == 1
    assert by_name["single-0"] == by_name["single-1"]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        pytest.param(gang(group("g", 1, 1), required="no/such"), "UnknownTopologyLevel", id="a level nobody has"),
        pytest.param(gang(group("g", 1, 1, minimum=2)), "MissingPods", id="fewer pods than the minimum"),
        pytest.param(gang(group("g", 1, 99)), "NoSuitableNode", id="larger than any node"),
        pytest.param(gang(group("g", 9, 8)), "InsufficientRoom", id="more than there is"),
        pytest.param(gang(group("g", 3, 8), required=RACK), "NoDomainFits", id="more than a rack has"),
        pytest.param(gang(group("g", 1, 1, blocked="claim is missing")), "NoSuitableNode", id="a pod that is blocked"),
    ],
)
def test_refusals_say_why_and_are_proven(wanted, reason):
    answer = place(snap(racks({"a": 2, "b": 2})), wanted)
    assert isinstance(answer, NoFit)
    assert (answer.reason, answer.proven) == (reason, True)
    assert sentence(answer.why)


def test_nothing_to_place_is_a_placement():
    answer = place(snap(racks({"a": 1})), gang())
    assert isinstance(answer, Placement)
    assert (answer.pods, answer.score) == ((), 1.0)


def test_a_cluster_without_nodes_refuses():
    answer = place(snap([]), gang(group("g", 1, 1)))
    assert isinstance(answer, NoFit)
    assert answer.proven


def test_a_small_budget_is_kept():
    answer = place(snap(racks({"a": 4})), gang(group("g", 2, 8), required=RACK), Budget(400))
    assert isinstance(answer, Placement)
    assert answer.steps <= 400


def test_headroom_numbers_by_domain():
    snapshot = snap(racks({"a": 2, "b": 1}), [used("a-0", 4)])
    assert slots_by_domain(snapshot, shape(8), RACK) == {"z/b/a": 1, "z/b/b": 1}
    assert slots_by_domain(snapshot, shape(2), RACK) == {"z/b/a": 6, "z/b/b": 4}
    assert fragmentation(snapshot, GPU, RACK, GangSize(1, 8)) == pytest.approx(4 / 20)
    assert fragmentation(snapshot, GPU, RACK, GangSize(2, 8)) == 1.0
    assert fragmentation(snapshot, GPU, RACK, None) == 0.0


def test_headroom_is_served_as_metrics():
    registry = CollectorRegistry()
    snapshot = snap(racks({"a": 2, "b": 1}), [used("a-0", 4)])
    watch_headroom(snapshot, lambda resource: GangSize(3, 4) if resource == GPU else None, registry)
    labels = {"level": RACK, "resource": GPU}
    assert registry.get_sample_value("grove_largest_placeable_gang", labels) == 12
    assert registry.get_sample_value("grove_fragmentation_ratio", labels) == pytest.approx(8 / 20)


def near(key: str, app: str) -> PodTerm:
    return PodTerm(key, PodScope(of_labels({"app": app}), frozenset(("default",))))


def test_a_soft_taint_elsewhere_does_not_scatter_a_gang():
    tainted = node("x-0", taints=(Taint(key="k", effect="PreferNoSchedule"),), zone="z", block="b", rack="x")
    snapshot = snap([*racks({"a": 3, "b": 2, "c": 1}), tainted])
    assert racks_of(snapshot, gang(group("g", 2, 8))) == {"b"}


def test_pods_that_would_rather_be_apart_share_a_host_only_when_they_must():
    wishes = ((-100, near(HOST, "a")),)
    four = group("g", 4, 1, labels={"app": "a"}, preferred_pods=wishes)
    assert sorted(nodes_of(snap(racks({"r": 4})), gang(four))) == ["r-0", "r-1", "r-2", "r-3"]
    assert sorted(nodes_of(snap(racks({"r": 2})), gang(four))) == ["r-0", "r-0", "r-1", "r-1"]


def test_a_wish_to_be_near_running_pods_counts():
    snapshot = snap(racks({"a": 1, "b": 2}), [used("b-0", 1, labels={"app": "db"})])
    assert racks_of(snapshot, gang(group("g", 1, 8, preferred_pods=((10, near(RACK, "db")),)))) == {"b"}
