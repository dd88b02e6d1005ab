"""Replaced pods go back to where their gang was: the same node, else the rack, else as near as the levels go."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.support.scheduler.kit import BLOCK, HOST, RACK, gang, group, node, racks, shape, snap, used

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import NodeFacts
from grove.scheduler.model.gang import Gang, PodGroup
from grove.scheduler.solve.place import place


def placed(snapshot: Snapshot, wanted: Gang) -> Placement:
    answer = place(snapshot, wanted)
    assert isinstance(answer, Placement), answer
    return answer


def standing(name: str, lost: int, nodes: list[str], gpu: int = 2, **more: object) -> PodGroup:
    """A group whose other pods run on these nodes."""
    made = group(name, lost, gpu, bound=nodes, **more)
    return replace(made, standing=((shape(gpu), len(nodes)),))


def on(nodes: list[str], gpu: int = 2) -> list:
    """What is counted on the nodes of a gang's running pods."""
    return [used(name, gpu, tag=i) for i, name in enumerate(nodes)]


# `r2` is what packing likes best when it looks at the new pod alone: a node that is used in part.
ELSEWHERE = [used("r2-0", 4)]
AT_HOME = ["r1-0"] * 4 + ["r1-1"] * 4 + ["r1-2"] * 3


@pytest.mark.parametrize(
    ("required", "preferred"),
    [
        pytest.param("", "", id="nothing is asked for"),
        pytest.param("", RACK, id="a rack is preferred"),
        pytest.param(BLOCK, RACK, id="a block is required and a rack preferred"),
        pytest.param(BLOCK, "", id="a block is required"),
        pytest.param("", BLOCK, id="a block is preferred"),
        pytest.param("", HOST, id="a host is preferred"),
    ],
)
def test_a_replaced_pod_goes_back_to_the_rack_of_its_gang(required, preferred):
    snapshot = snap(racks({"r1": 4, "r2": 4}), [*on(AT_HOME), *ELSEWHERE])
    wanted = gang(standing("decode", 1, AT_HOME), required=required, preferred=preferred)
    answer = placed(snapshot, wanted)
    assert {name.rpartition("-")[0] for name in answer.nodes.values()} == {"r1"}
    assert answer.score == 1.0


def test_a_group_that_lost_all_its_pods_goes_where_its_gang_is():
    snapshot = snap(racks({"r1": 4, "r2": 4}), [*on(AT_HOME), *ELSEWHERE])
    answer = placed(snapshot, gang(standing("decode", 0, AT_HOME), group("router", 1, 2), preferred=RACK))
    assert answer.nodes["router-0"].startswith("r1")


def test_a_group_goes_to_its_own_rack_before_that_of_a_sibling():
    nodes = racks({"r1": 2, "r2": 2, "r3": 2})
    decode, prefill = ["r1-0"] * 3, ["r2-0"] * 2
    wanted = gang(standing("decode", 1, decode), standing("prefill", 1, prefill), preferred=BLOCK)
    answer = placed(snap(nodes, [*on(decode), *on(prefill)]), wanted)
    assert {name: where.rpartition("-")[0] for name, where in answer.nodes.items()} == {
        "decode-0": "r1",
        "prefill-0": "r2",
    }


def blocks() -> list[NodeFacts]:
    """Two blocks of two racks in a zone, one block in another; two nodes in a rack."""
    places = {"a": ("z1", "b1"), "b": ("z1", "b1"), "c": ("z1", "b2"), "d": ("z1", "b2"), "e": ("z2", "b3")}
    return [
        node(f"{rack}-{i}", zone=zone, block=block, rack=rack)
        for rack, (zone, block) in places.items()
        for i in range(2)
    ]


@pytest.mark.parametrize(
    ("full", "goes_to"),
    [
        pytest.param("", "a", id="its rack has room"),
        pytest.param("a", "b", id="its rack is full and a rack of its block has room"),
        pytest.param("ab", "cd", id="its block is full and its zone has room"),
        pytest.param("abcd", "e", id="its zone is full"),
    ],
)
@pytest.mark.parametrize("preferred", ["", RACK], ids=["nothing asked", "rack preferred"])
def test_where_there_is_no_capacity_it_is_as_near_as_the_levels_go(full, goes_to, preferred):
    home = ["a-0"] * 3
    filled = [used(f"{rack}-{i}", 8 if (rack, i) != ("a", 0) else 2) for rack in full for i in range(2)]
    # Packing alone would take the node that is used most.
    answer = placed(
        snap(blocks(), [*on(home), *filled, used("e-1", 5)]), gang(standing("g", 1, home), preferred=preferred)
    )
    (where,) = answer.nodes.values()
    assert where[0] in goes_to


def test_what_its_rack_cannot_hold_goes_to_one_more_rack_nearby_and_not_all_of_it():
    home = ["a-0"] * 3
    answer = placed(snap(blocks(), [*on(home), used("a-1", 4)]), gang(standing("g", 4, home), preferred=RACK))
    assert sorted(name[0] for name in answer.nodes.values()) == ["a", "a", "a", "b"]


def test_a_pod_goes_back_to_its_own_node():
    home = ["r1-0"] * 3
    snapshot = snap(racks({"r1": 4, "r2": 2}), [*on(home), used("r1-3", 5)])
    back = replace(standing("g", 2, home), earlier_nodes=("r1-2", "r1-1"))
    assert sorted(placed(snapshot, gang(back, preferred=RACK)).nodes.values()) == ["r1-1", "r1-2"]


def test_a_node_that_another_gang_took_is_not_waited_for():
    home = ["r1-0"] * 3
    snapshot = snap(racks({"r1": 3, "r2": 2}), [*on(home), used("r1-2", 8)])
    back = replace(standing("g", 1, home), earlier_nodes=("r1-2",))
    assert set(placed(snapshot, gang(back, preferred=RACK)).nodes.values()) <= {"r1-0", "r1-1"}


@pytest.mark.parametrize("required", ["", RACK], ids=["rack preferred", "rack required"])
def test_a_replica_that_is_updated_whole_keeps_its_domain(required):
    earlier_nodes = ("r2-0", "r2-0", "r2-1", "r2-1")
    snapshot = snap(racks({"r1": 2, "r2": 2, "r3": 2}), [used("r1-0", 4), used("r3-1", 4)])
    again = replace(group("g", 4, 4), earlier_nodes=earlier_nodes)
    answer = placed(snapshot, gang(again, required=required, preferred=RACK))
    assert sorted(answer.nodes.values()) == sorted(earlier_nodes)


def test_a_replica_that_was_scattered_and_is_updated_whole_moves_together():
    again = replace(group("g", 4, 4), earlier_nodes=("r1-0", "r2-0", "r3-0", "r1-1"))
    answer = placed(
        snap(racks({"r1": 2, "r2": 2, "r3": 2}), [used("r1-0", 4), used("r1-1", 4)]), gang(again, preferred=RACK)
    )
    assert len({name.rpartition("-")[0] for name in answer.nodes.values()}) == 1


def test_a_replica_that_does_not_fit_where_it_was_goes_elsewhere():
    again = replace(group("g", 4, 4), earlier_nodes=("r2-0", "r2-0", "r2-1", "r2-1"))
    answer = placed(snap(racks({"r1": 2, "r2": 2}), [used("r2-0", 8)]), gang(again, required=RACK))
    assert {name.rpartition("-")[0] for name in answer.nodes.values()} == {"r1"}


def test_surplus_pods_go_back_too():
    home = ["r1-0"] * 3
    snapshot = snap(racks({"r1": 3, "r2": 2}), [*on(home), used("r2-0", 5)])
    back = replace(standing("g", 1, home), minimum=3, earlier_nodes=("r1-2",))
    assert set(placed(snapshot, gang(back)).nodes.values()) == {"r1-2"}


def test_the_score_is_that_of_the_whole_gang():
    home = ["r1-0"] * 4 + ["r1-1"] * 4
    full = [*on(home), used("r1-2", 8), used("r1-3", 8)]
    answer = placed(snap(racks({"r1": 4, "r2": 4}), full), gang(standing("g", 1, home), preferred=RACK))
    assert answer.score == 0.5, "nine pods that would fit into one rack are in two"


def test_the_score_of_a_gang_too_large_for_a_rack_counts_what_it_needs_when_idle():
    home = ["r1-0"] * 4 + ["r1-1"] * 4 + ["r2-0"] * 3
    answer = placed(snap(racks({"r1": 2, "r2": 2}), on(home)), gang(standing("g", 1, home), preferred=RACK))
    assert answer.score == 1.0


def test_the_score_counts_groups_that_lost_nothing():
    home = ["r1-0"] * 4 + ["r1-1"] * 4 + ["r2-0"] * 4
    wanted = gang(standing("big", 0, home), group("router", 1, 2), preferred=RACK)
    answer = placed(snap(racks({"r1": 2, "r2": 2}), on(home)), wanted)
    assert answer.score == 1.0


def test_a_gang_repaired_pod_by_pod_stays_as_close_as_it_was():
    """Whatever is lost, in whatever order: while its capacity stays free, the gang is again as close together as
    before.
    """
    for seed in range(60):
        rng = Random(seed)
        nodes = racks({f"r{i}": rng.randint(2, 4) for i in range(4)})
        others = [used(one.name, rng.randint(1, 4)) for one in nodes if rng.random() < 0.4]
        count = rng.randint(4, 10)
        snapshot = snap(nodes, others)
        first = placed(snapshot, gang(group("g", count, 2), preferred=RACK))
        snapshot.assume(first)
        where = dict(first.nodes)
        for _ in range(6):
            lost = rng.sample(sorted(where), rng.randint(1, 3))
            for uid in lost:
                snapshot.remove_pod(uid)
                del where[uid]
            made = group("g", count, 2)
            pods = tuple(pod for pod in made.pods if pod.uid in lost)
            again = replace(
                made, pods=pods, bound=tuple(sorted(where.values())), standing=((pods[0].shape, len(where)),)
            )
            answer = placed(snapshot, gang(again, preferred=RACK))
            assert answer.score == first.score, f"seed {seed}"
            snapshot.assume(answer)
            where |= answer.nodes
