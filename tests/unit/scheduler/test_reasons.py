"""Reasons are values: they go through JSON and back, and every kind of the scheduler has words of its own."""

from __future__ import annotations

import msgspec
import pytest

from grove.diagnosis.reasons import _WORDS, sentence
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reasons import Reason, named

KINDS = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}


def test_a_reason_survives_json():
    why = Reason(
        kinds.NO_DOMAIN, "prefill", {"pods": 4}, {"level": "example.com/rack"}, (Reason(kinds.HELD, "a", {"nodes": 2}),)
    )
    assert msgspec.json.decode(msgspec.json.encode(why), type=Reason) == why


@pytest.mark.parametrize("kind", sorted(KINDS - {kinds.GROUP_CAPACITY}))
def test_every_kind_has_words(kind):
    assert kind in _WORDS
    why = Reason(kind, "subject", {"pods": 1, "units": 2}, {"level": "rack", "node": "n"})
    assert sentence(why) not in ("", kind)


def test_a_level_is_called_what_the_topology_calls_it_all_the_way_down():
    why = Reason(kinds.NO_DOMAIN, "g", {"pods": 4}, {"level": "x/rack"}).with_parts(
        Reason(
            kinds.CLOSEST, "r1", {}, {"level": "x/rack"}, (Reason(kinds.GROUP_CAPACITY, "g", {"room": 3, "pods": 4}),)
        )
    )
    assert sentence(named(why, {"x/rack": "rack"})) == (
        "no rack has capacity for g (4 pods); rack r1 comes closest, with capacity for g 3/4 pods"
    )


def test_the_closest_domain_of_a_refused_gang_is_named_once():
    full = Reason(kinds.QUEUE_MISSING, "research", {}, {"kind": "ElasticQuota"})
    closest = Reason(
        kinds.CLOSEST, "r1", {}, {"level": "rack"}, (Reason(kinds.GROUP_CAPACITY, "g", {"room": 3, "pods": 4}),)
    )
    assert sentence(Reason(kinds.NOT_ADMITTED, "quota", parts=(full, closest))) == (
        "quota: there is no ElasticQuota research; rack r1 comes closest, with capacity for g 3/4 pods"
    )


@pytest.mark.parametrize(
    ("each", "rooms", "words"),
    [
        pytest.param(
            {},
            {"leader": (1, 1), "worker": (2, 3)},
            "rack r1 comes closest, with capacity for worker 2/3 pods",
            id="a group that fits is not named",
        ),
        pytest.param(
            {},
            {"leader": (0, 1), "worker": (2, 3)},
            "rack r1 comes closest, with capacity for leader 0/1, worker 2/3 pods each by itself",
            id="two groups that do not fit",
        ),
        pytest.param(
            {"each": 1},
            {"leader": (1, 1), "worker": (3, 3)},
            "rack r1 has capacity for each of the 2 cliques alone, but not for all of them together",
            id="every group fits alone",
        ),
        pytest.param(
            {},
            {"leader": (1, 1), "worker": (3, 3)},
            "rack r1 has capacity for each of the 2 cliques alone, but not for all of them together",
            id="no group is too large, and the reason does not say so",
        ),
        pytest.param({}, {}, "rack r1 comes closest", id="a reason without groups"),
    ],
)
def test_the_closest_domain_names_only_what_does_not_fit(each, rooms, words):
    parts = tuple(
        Reason(kinds.GROUP_CAPACITY, group, {"room": capacity, "pods": pods})
        for group, (capacity, pods) in rooms.items()
    )
    assert sentence(Reason(kinds.CLOSEST, "r1", each, {"level": "rack"}, parts)) == words


def test_a_domain_with_enough_for_the_only_group_is_not_said_to_have_too_little():
    capacity = Reason(kinds.GROUP_CAPACITY, "g", {"room": 1, "pods": 1})
    said = sentence(Reason(kinds.CLOSEST, "r1", {"each": 1}, {"level": "rack"}, (capacity,)))
    assert said == "rack r1 has enough free, but no way to divide it among its nodes works"


def test_a_label_that_no_node_carries_keeps_its_key():
    why = Reason(kinds.UNKNOWN_LEVEL, "x/rack")
    assert "the label x/rack" in sentence(named(why, {"x/rack": "rack"}))


def test_totals_are_reported_unless_no_node_can_take_a_single_pod():
    wants = Reason(kinds.NEEDS, "nvidia.com/gpu", {"wanted": 16, "free": 8}, {"where": "the cluster"})
    some, none = (Reason(kinds.NODES_FOR, "g", {"fit": fit, "nodes": 2}) for fit in (1, 0))
    assert sentence(Reason(kinds.NO_CAPACITY, parts=(wants, some))).startswith("needs 16 nvidia.com/gpu, 8 free")
    assert sentence(Reason(kinds.NO_CAPACITY, parts=(wants, none))).startswith("g: 0/2 nodes")


def test_missing_pods_are_reported_without_an_empty_list_of_groups():
    why = Reason(kinds.NO_CAPACITY, "g", parts=(Reason(kinds.NEEDS, "gpu", {"wanted": 8000, "free": 0}),))
    assert sentence(Reason(kinds.PODS_LOST, "g")) == "pods are missing since the gang was placed"
    assert sentence(Reason(kinds.PODS_LOST, "g", parts=(why,))) == (
        "needs 8 gpu, 0 free in the cluster; pods are missing since the gang was placed"
    )
