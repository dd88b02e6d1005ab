"""Claims that ask for more than a number of devices: alternatives, shared attributes, all that a node has."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.devices import Devices, claiming, sharing, with_devices
from tests.support.gangs import gang

from grove.api.core import ResourceClaim, ResourceSlice
from grove.api.meta import Json


def either(devices: Devices, *models: str) -> Json:
    """A device of the first of these models that can be had."""
    found = [{"name": model, "deviceClassName": devices.driver, **devices.model(model)} for model in models]
    return {"devices": {"requests": [{"name": "gpu", "firstAvailable": found}]}}


def alike(devices: Devices, count: int) -> Json:
    """This number of devices of any model."""
    same = [{"matchAttribute": f"{devices.driver}/model"}]
    return {"devices": {**devices.spec(count=count)["devices"], "constraints": same}}


def everything(devices: Devices) -> Json:
    exactly = {"deviceClassName": devices.driver, "allocationMode": "All"}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


async def names_given(devices: Devices) -> list[str]:
    """The requests that were met, as the claims' status names them."""
    claims = (await devices.client.list(ResourceClaim, devices.bench.namespace)).items
    given = (claim.status.allocation["devices"]["results"] for claim in claims if claim.status.allocation is not None)
    return sorted(one["request"] for results in given for one in results)


async def test_the_first_alternative_that_can_be_had_is_taken(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        (node,) = await bench.add_nodes(1)
        await devices.put(node, "old", "new", "old")
        await devices.template("either", spec=either(devices, "new", "old"))
        await bench.apply(gang("g", claiming("w", 3, resourceClaimTemplateName="either")))
        await devices.make_claims("either")
        await bench.expect({"g/w": 3})
        assert await names_given(devices) == ["gpu/new", "gpu/old", "gpu/old"]
        assert sorted(device for got in (await devices.given()).values() for device in got) == [
            f"{node}/dev-0",
            f"{node}/dev-1",
            f"{node}/dev-2",
        ]


async def test_devices_of_one_claim_share_an_attribute(cluster: Any) -> None:
    """Four devices are free on the mixed node, and no two of them alike."""
    async with with_devices(cluster) as (bench, devices):
        mixed, pair = await bench.add_nodes(2)
        await devices.put(mixed, "a", "b", "c", "d")
        await devices.template("alike", spec=alike(devices, 2))
        await bench.apply(gang("g", claiming("w", 1, resourceClaimTemplateName="alike")))
        await devices.make_claims("alike")
        await bench.condition("g", status="False", reason="Unschedulable")
        await devices.put(pair, "a", "b", "c", "b")
        await bench.expect({"g/w": 1})
        assert await devices.given() == {"g-w-0": [f"{pair}/dev-1", f"{pair}/dev-3"]}


async def test_who_asks_for_all_devices_gets_a_node_of_which_none_is_taken(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        used, whole = await bench.add_nodes(2)
        await devices.put(used, "a", "a", "a")
        await devices.template("all", spec=everything(devices))
        await bench.apply(gang("small", claiming("w", 1, resourceClaimTemplateName="one")))
        await devices.make_claims("one")
        await bench.expect({"small/w": 1})
        await bench.apply(gang("g", claiming("w", 1, resourceClaimTemplateName="all")))
        await devices.make_claims("all")
        await bench.condition("g", status="False", reason="Unschedulable")
        await devices.put(whole, "a", "b")
        await bench.expect({"small/w": 1, "g/w": 1})
        assert (await devices.given())["g-w-0"] == [f"{whole}/dev-0", f"{whole}/dev-1"]


@pytest.mark.simulated
async def test_a_node_with_a_device_that_is_not_ours_to_give_is_not_given_whole(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        (node,) = await bench.add_nodes(1)
        await devices.put(node, "a", "a")
        taint = {"key": "example.com/broken", "effect": "NoSchedule"}
        await bench.client.patch(
            ResourceSlice,
            devices.slices[0],
            {"spec": {"devices": [{"name": "dev-0"}, {"name": "dev-1", "taints": [taint]}]}},
        )
        await devices.template("all", spec=everything(devices))
        await bench.apply(gang("g", claiming("w", 1, resourceClaimTemplateName="all")))
        await devices.make_claims("all")
        await bench.condition("g", status="False", reason="Unschedulable")
        await bench.expect({})


@pytest.mark.simulated
async def test_requests_of_one_claim_that_want_the_same_device_go_where_there_are_two(cluster: Any) -> None:
    """Counted one by one, the node with a single new device has one for each of the two requests."""
    async with with_devices(cluster) as (bench, devices):
        single, double = await bench.add_nodes(2)
        await devices.put(single, "new")
        await devices.put(double, "new", "old")
        both = [
            {"name": "any", "exactly": {"deviceClassName": devices.driver}},
            {"name": "new", "exactly": {"deviceClassName": devices.driver, **devices.model("new")}},
        ]
        await devices.template("both", spec={"devices": {"requests": both}})
        await bench.apply(gang("g", claiming("w", 1, resourceClaimTemplateName="both")))
        await devices.make_claims("both")
        await bench.expect({"g/w": 1})
        assert list((await bench.nodes_of("g")).values()) == [double]


@pytest.mark.simulated
async def test_claims_of_different_kinds_that_meet_on_one_node_are_sent_apart(cluster: Any) -> None:
    """Each pod by itself fits on the first node, which has one new device; only trying shows that both do not."""
    async with with_devices(cluster) as (bench, devices):
        first, second = await bench.add_nodes(2)
        await devices.put(first, "new", "old")
        await devices.put(second, "new", "old")
        await devices.template("either", spec=either(devices, "new", "best"))
        await devices.template("alike", spec=alike(devices, 1))
        await bench.apply(
            gang(
                "g",
                claiming("a", 2, resourceClaimTemplateName="either"),
                claiming("b", 2, resourceClaimTemplateName="alike"),
            )
        )
        await devices.make_claims("either", "alike")
        await bench.expect({"g/a": 2, "g/b": 2})
        given = [device for got in (await devices.given()).values() for device in got]
        assert len(set(given)) == 4


@pytest.mark.simulated
async def test_a_shared_claim_with_alternatives_finds_a_home(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        _, other = await bench.add_nodes(2, gpus=4)
        await devices.put(other, "old")
        await devices.claim("common", spec=either(devices, "new", "old"))
        await bench.apply(gang("g", sharing("w", 3, "common")))
        await bench.expect({"g/w": 3})
        assert set((await bench.nodes_of("g")).values()) == {other}
        assert await names_given(devices) == ["gpu/old"]
