"""Homes of shared claims: which node is tried first, what the claims of one pod mean, and that every choice comes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.scheduler.kit import node, pod

from grove.api.meta import Key
from grove.scheduler.cluster.snapshot import cluster
from grove.scheduler.devices.claim_requests import ClaimRequests
from grove.scheduler.devices.device_inventory import ANY, Device, DeviceRequest
from grove.scheduler.devices.shared_claims import DeviceNodes, SharedClaims, tied_claims
from grove.scheduler.model.facts import PodFacts

DRIVER = "gpu.example.com"
GPU = DeviceRequest("gpu", DRIVER, 1)


def keys(*names: str) -> dict[Key, ClaimRequests]:
    return {Key("default", name): ClaimRequests(((GPU,),)) for name in names}


def sites(devices: dict[str, int], gpus: dict[str, int] | None = None, near: str = "") -> DeviceNodes:
    """Nodes with this number of devices each; `gpus` is what pods ask for besides."""
    snapshot = cluster(
        node(name, (gpus or {}).get(name, 8), extra={GPU.resource: count, ANY: count})
        for name, count in devices.items()
    )
    local = {name: [Device((DRIVER, name, f"d{i}"), name) for i in range(count)] for name, count in devices.items()}
    mask = np.ones(snapshot.nodes.rows, dtype=np.bool_)
    if near:
        mask[:] = False
        mask[snapshot.nodes.row_of[near]] = True
    return DeviceNodes(snapshot, local, (), mask)


def shared(*users: PodFacts, claims: tuple[str, ...] = ("c",)) -> SharedClaims:
    return SharedClaims(keys(*claims), users)


@pytest.mark.parametrize(
    ("given", "wanted", "want"),
    [
        pytest.param(sites({"a": 1, "b": 2}), shared(pod("p")), "b a", id="most free devices first"),
        pytest.param(sites({"a": 1, "b": 2}, near="a"), shared(pod("p")), "a b", id="near the rest of the gang first"),
        pytest.param(sites({"a": 0, "b": 1}), shared(pod("p")), "b", id="not where the devices are missing"),
        pytest.param(
            sites({"a": 1, "b": 2}, {"b": 1}), shared(pod("p", 1), pod("q", 1)), "a b", id="room for all before some"
        ),
        pytest.param(sites({"a": 1, "b": 2}, {"b": 0}), shared(pod("p", 1)), "a", id="never where no user has room"),
        pytest.param(
            sites({"a": 1, "b": 2}), shared(pod("p"), claims=("c", "d")), "b", id="two claims of a pod need two devices"
        ),
    ],
)
def test_the_order_of_homes(given, wanted, want):
    assert " ".join(node for (node,) in given.choices([wanted])) == want


def test_lots_are_counted_one_after_the_other():
    two = [shared(pod("p", 4), pod("q", 4)), shared(pod("r", 4), pod("s", 4), claims=("d",))]
    assert next(sites({"a": 2, "b": 3}).choices(two)) == ("b", "a")


def test_every_choice_of_homes_comes_once_until_there_is_no_other():
    two = [shared(pod("p")), shared(pod("q"), claims=("d",))]
    found = list(sites({"a": 2, "b": 2}).choices(two))
    assert sorted(found) == [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]


def test_no_home_says_which_lot_lacks_one():
    two = [shared(pod("p")), shared(pod("q", 9), claims=("d",))]
    given = sites({"a": 2})
    assert list(given.choices(two)) == []
    assert given.lacking(two) == two[1]


def test_claims_that_a_pod_ties_together_are_one_lot():
    first, second, third, both = (pod(name) for name in ("first", "second", "third", "both"))
    found = tied_claims([(first, keys("a")), (second, keys("b")), (third, keys("c")), (both, keys("a", "b"))])
    assert [(sorted(key.name for key in one.claims), [user.name for user in one.users]) for one in found] == [
        (["a", "b"], ["first", "second", "both"]),
        (["c"], ["third"]),
    ]
