"""What the score of the network is made of, term by term, and the one of bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from tests.support.scheduler.kit import RACK, ZONE, racks, shape, snap, used

from grove.api.selector import Requirement
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.node_scores import NVLINK_LABEL, NetworkAffinity, NetworkBandwidth
from grove.scheduler.model.facts import Network, NodeTerm
from grove.scheduler.model.reading import BANDWIDTH
from grove.scheduler.model.seams import NETWORK_AFFINITY

TERMS = ("distance", "gpuFill", "accelerator", "zone")


def only(snapshot: Snapshot, term: str) -> Snapshot:
    """With that term for the whole score."""
    weights = {f"{NETWORK_AFFINITY}.{one}": 100 * (one == term) for one in TERMS}
    snapshot.use(snapshot.seams.joined(weights=weights))
    return snapshot


def scores(snapshot: Snapshot, network: Network, gpus: int = 1) -> dict[str, int]:
    column = NetworkAffinity().rows(snapshot, msgspec.structs.replace(shape(gpus), network=network))
    assert column is not None
    return {name: int(column[row]) for name, row in snapshot.nodes.row_of.items()}


def two_racks(busy: Mapping[str, int] | None = None, labels: Mapping[str, Mapping[str, str]] | None = None) -> Snapshot:
    nodes = [replace(one, labels={**one.labels, **(labels or {}).get(one.name, {})}) for one in racks({"a": 2, "b": 2})]
    return snap(nodes, [used(node, gpus) for node, gpus in (busy or {}).items()])


def in_domain(key: str, value: str) -> NodeTerm:
    return NodeTerm((Requirement(key, "In", frozenset({value})),))


def test_distance_counts_the_levels_that_are_shared_with_peers_by_their_weights() -> None:
    found = scores(only(two_racks(), "distance"), Network(peers=((3, "a-0"), (1, "b-0"))))
    assert found["a-0"] > found["a-1"] > found["b-0"] > found["b-1"]
    assert found["a-0"] < 100, "the other peer is elsewhere"
    assert scores(only(two_racks(), "distance"), Network(peers=((1, "a-0"),)))["a-0"] == 100


def test_while_no_peer_has_a_place_a_domain_with_capacity_for_all_is_preferred() -> None:
    found = scores(only(two_racks({"a-0": 8}), "distance"), Network(waiting=16))
    assert found == {"a-0": 50, "a-1": 50, "b-0": 100, "b-1": 100}


def test_fuller_nodes_are_liked_by_what_they_would_have_in_use_with_the_pod() -> None:
    found = scores(only(two_racks({"a-0": 6, "b-0": 2}), "gpuFill"), Network(), gpus=2)
    assert found == {"a-0": 100, "a-1": 25, "b-0": 50, "b-1": 25}


def test_the_nvlink_domain_with_most_of_the_clique_is_liked_best() -> None:
    labels = {node: {NVLINK_LABEL: "one"} for node in ("a-0", "a-1")} | {"b-0": {NVLINK_LABEL: "two"}}
    found = scores(only(two_racks(labels=labels), "accelerator"), Network(clique=("a-0", "a-0", "a-1", "b-0")))
    assert found == {"a-0": 75, "a-1": 75, "b-0": 25, "b-1": 0}


def test_while_none_of_a_clique_has_a_place_the_nvlink_domain_that_could_take_most_is_liked_best() -> None:
    labels = {node: {NVLINK_LABEL: "one"} for node in ("a-0", "a-1")} | {"b-0": {NVLINK_LABEL: "two"}}
    found = scores(only(two_racks(labels=labels), "accelerator"), Network(waiting=16))
    assert found == {"a-0": 100, "a-1": 100, "b-0": 50, "b-1": 0}


def test_zones_are_worth_less_with_their_rank() -> None:
    zones = tuple((worth, in_domain(RACK, rack)) for worth, rack in ((100, "b"), (50, "a")))
    assert scores(only(two_racks(), "zone"), Network(zones=zones)) == {"a-0": 50, "a-1": 50, "b-0": 100, "b-1": 100}


def test_together_they_weigh_as_configured() -> None:
    """Half by distance, a fifth by cards, a fifth by NVLink, a tenth by zone."""
    labels = {"a-0": {NVLINK_LABEL: "one", ZONE: "z"}}
    zones = ((100, in_domain(ZONE, "z")),)
    network = Network(peers=((1, "a-0"),), clique=("a-0",), zones=zones)
    assert scores(two_racks({"a-0": 7}, labels), network)["a-0"] == 100
    assert scores(two_racks({"a-0": 3}, labels), network)["a-0"] == 90, "half of its cards would be in use"


def test_pods_that_are_not_linked_are_not_scored() -> None:
    assert NetworkAffinity().rows(two_racks(), shape(1)) is None


@pytest.mark.parametrize(
    ("asked", "network", "want"),
    [
        pytest.param(10, None, {"a-0": 100, "a-1": 20, "b-0": 0, "b-1": 0}, id="a pod that asks for some"),
        pytest.param(0, Network(), {"a-0": 100, "a-1": 20, "b-0": 0, "b-1": 0}, id="a pod that talks to others"),
        pytest.param(0, None, None, id="a pod that does neither"),
    ],
)
def test_bandwidth_likes_nodes_with_more_of_it(
    asked: int, network: Network | None, want: dict[str, int] | None
) -> None:
    has = {"a-0": 400, "a-1": 100}
    nodes = [
        replace(one, allocatable={**one.allocatable, BANDWIDTH: has.get(one.name, 0)})
        for one in racks({"a": 2, "b": 2})
    ]
    snapshot = snap(nodes)
    wanted = shape(1)
    wanted = msgspec.structs.replace(
        wanted, requests=tuple(sorted((*wanted.requests, (BANDWIDTH, asked)))), network=network
    )
    column = NetworkBandwidth().rows(snapshot, wanted)
    found = None if column is None else {name: int(column[row]) for name, row in snapshot.nodes.row_of.items()}
    assert found == want
