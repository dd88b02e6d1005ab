"""Pods that claim devices: counted before the gang is placed, given before the pod is bound, never given twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.devices import Devices, claiming, sharing, with_devices
from tests.support.gangs import HOME, add_priority, gang, gang_json, group, member_json

from grove.api.core import Node, Pod, PriorityClass, ResourceClaim
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.plan.world import binding
from grove.scheduler.loop.deciding.decisions import TRIES
from grove.sim.topology import RACK, Topology

pytestmark = pytest.mark.real_in("soak")


@pytest.mark.real_in("test")
async def test_a_gang_gets_its_devices_before_its_pods_are_bound(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2)
        await devices.put(one, "a")
        await devices.put(other, "a", "a")
        await bench.apply(gang("g", claiming("w", 3, resourceClaimTemplateName="one")))
        await devices.make_claims("one")
        await bench.expect({"g/w": 3})
        nodes, given = await bench.nodes_of("g"), await devices.given()
        assert sorted(nodes.values()) == sorted([one, other, other])
        assert sorted(device for got in given.values() for device in got) == [
            f"{one}/dev-0",
            f"{other}/dev-0",
            f"{other}/dev-1",
        ]
        assert all(given[pod][0].startswith(f"{node}/") for pod, node in nodes.items())


@pytest.mark.real_in("test")
async def test_a_gang_waits_whole_until_there_are_devices_for_all(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2)
        await devices.put(one, "a")
        await bench.apply(gang("g", claiming("w", 2, resourceClaimTemplateName="one")))
        await devices.make_claims("one")
        words = f"deviceclass/{devices.driver}"
        await bench.condition("g", status="False", reason="Unschedulable", words=words)
        await bench.expect({})
        assert await devices.given() == {}
        await devices.put(other, "a")
        await bench.expect({"g/w": 2})


@pytest.mark.real_in("test")
async def test_a_device_is_never_given_twice(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        (node,) = await bench.add_nodes(1)
        await devices.put(node, "a", "b")
        for name in ("g1", "g2", "g3"):
            await bench.apply(gang(name, claiming("w", 1, resourceClaimTemplateName="one")))
        await devices.make_claims("one")

        async def two() -> bool:
            return sum((await bench.bound()).values()) == 2

        await cluster.eventually(two)
        await cluster.settle(0.4)
        assert sum((await bench.bound()).values()) == 2
        assert sorted(device for got in (await devices.given()).values() for device in got) == [
            f"{node}/dev-0",
            f"{node}/dev-1",
        ]


@pytest.mark.real_in("test")
async def test_a_selector_decides_and_one_that_is_not_understood_is_said(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2)
        await devices.put(one, "small")
        await devices.put(other, "small", "large")
        await devices.template("large", f'device.attributes["{devices.driver}"].model == "large"')
        await devices.template("odd", 'device.driver.startsWith("x")')
        await bench.apply(gang("large", claiming("w", 1, resourceClaimTemplateName="large")))
        await bench.apply(gang("odd", claiming("w", 1, resourceClaimTemplateName="odd")))
        await devices.make_claims("large", "odd")
        await bench.expect({"large/w": 1})
        assert list((await devices.given()).values()) == [[f"{other}/dev-1"]]
        await bench.condition("odd", status="False", reason="Unschedulable", words="is not understood")


@pytest.mark.parametrize("late", [False, True], ids=["pods of one gang", "a pod that comes later"])
async def test_a_shared_claim_keeps_its_pods_on_one_node(cluster: Any, late: bool) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2)
        await devices.put(one, "a")
        await devices.put(other, "a", "a")
        await devices.claim("shared")
        await bench.apply(gang("g", claiming("w", 2, resourceClaimName="shared")))
        await bench.expect({"g/w": 2})
        if late:
            await bench.apply(gang("h", claiming("w", 1, resourceClaimName="shared")))
            await bench.expect({"g/w": 2, "h/w": 1})
        pods = {**await bench.nodes_of("g"), **await bench.nodes_of("h")}
        given = await devices.given()
        assert set(given) == set(pods)
        [device] = {tuple(got) for got in given.values()}
        [home] = set(pods.values())  # either will do: each has a device, and capacity for all
        assert device[0].startswith(f"{home}/")


async def test_a_second_shared_claim_goes_where_the_first_one_is(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2)
        await devices.put(one, "a", "a")
        await devices.claim("first", "second")
        await bench.apply(gang("g", sharing("w", 1, "first")))
        await bench.expect({"g/w": 1})
        await devices.put(other, "a", "a", "a")
        await bench.apply(gang("h", sharing("w", 2, "first", "second")))
        await bench.expect({"g/w": 1, "h/w": 2})
        assert set((await bench.nodes_of("h")).values()) == {one}


async def test_claims_that_one_pod_shares_with_different_pods_meet_on_one_node(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other, third = await bench.add_nodes(3)
        for node, models in ((one, "a"), (other, "aa"), (third, "a")):
            await devices.put(node, *models)
        await devices.claim("left", "right")
        parts = [sharing("l", 1, "left"), sharing("both", 1, "left", "right"), sharing("r", 1, "right")]
        await bench.apply(gang("g", *parts))
        await bench.expect({"g/l": 1, "g/both": 1, "g/r": 1})
        assert set((await bench.nodes_of("g")).values()) == {other}


async def test_a_shared_claim_finds_another_home_when_the_node_with_most_devices_is_full(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2, gpus=2)
        await devices.put(one, "a")
        await devices.put(other, "a", "a")
        full = {"nodeSelector": {"kubernetes.io/hostname": other}}
        await bench.apply(gang("full", group("w", 1, spec=full)))
        await bench.expect({"full/w": 1})
        await devices.claim("shared")
        await bench.apply(gang("g", sharing("w", 2, "shared", gpus=1)))
        await bench.expect({"full/w": 1, "g/w": 2})
        assert set((await bench.nodes_of("g")).values()) == {one}


async def test_a_gang_that_shares_waits_for_capacity_on_a_node_with_devices_and_takes_it(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2, gpus=2)
        await devices.put(one, "a", "a")
        await devices.put(other, "a")
        for name, node in (("x", one), ("y", other)):
            await bench.apply(gang(name, group("w", 1, spec={"nodeSelector": {"kubernetes.io/hostname": node}})))
        await bench.expect({"x/w": 1, "y/w": 1})
        await devices.claim("shared")
        await bench.apply(gang("g", sharing("w", 2, "shared", gpus=1)))
        said = await bench.condition("g", status="False", reason="Unschedulable")
        assert f'share resourceclaim "shared" must be on one node, {one} was tried first' in said.message
        await bench.expect({"x/w": 1, "y/w": 1})
        assert await devices.given() == {}
        (pod,) = await bench.nodes_of("y")
        await bench.client.delete(PodGang, "y", bench.namespace)
        await bench.client.delete(Pod, pod, bench.namespace, grace_period_s=0)
        await bench.expect({"x/w": 1, "g/w": 2})
        assert set((await bench.nodes_of("g")).values()) == {other}


async def test_pods_above_the_minimum_that_share_find_another_home_too(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        await bench.add_topology(Topology(racks=2, nodes=1, gpus=2))
        nodes = (await bench.client.list(Node, labels=f"{HOME}={bench.namespace}")).items
        one, other = sorted(node.metadata.name for node in nodes)
        await devices.put(one, "a", "a")
        await devices.put(other, "a")
        await devices.claim("shared")
        at_other = {"nodeSelector": {"kubernetes.io/hostname": other}}
        parts = (group("w", 1, spec=at_other), sharing("s", 1, "shared", gpus=1, minimum=0))
        await bench.apply(gang("g", *parts, branches=(("c", ("w", "s"), RACK),)))
        await bench.expect({"g/w": 1, "g/s": 1})
        assert set((await bench.nodes_of("g", "s")).values()) == {other}


async def test_copies_that_share_find_a_node_each(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        nodes = await bench.add_nodes(3, gpus=2)
        for node in nodes:
            await devices.put(node, "a", "a", "a")
        await devices.claim("c0", "c1", "c2")
        await bench.apply(gang("g", *(sharing(f"w{n}", 2, f"c{n}", gpus=1) for n in range(3))))
        await bench.expect({"g/w0": 2, "g/w1": 2, "g/w2": 2})
        homes = [set((await bench.nodes_of("g", f"w{n}")).values()) for n in range(3)]
        assert sorted(map(sorted, homes)) == [[node] for node in sorted(nodes)]


async def test_a_home_where_the_rest_of_the_gang_has_no_capacity_is_given_up_for_the_next(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        await bench.add_topology(Topology(racks=2, nodes=2, gpus=2))
        nodes: dict[str, list[str]] = {}
        for node in (await bench.client.list(Node, labels=f"{HOME}={bench.namespace}")).items:
            nodes.setdefault(node.metadata.labels[RACK], []).append(node.metadata.name)
        narrow, wide = nodes.values()
        await devices.put(narrow[0], "a", "a")
        await devices.put(wide[0], "a")
        full = {"nodeSelector": {"kubernetes.io/hostname": narrow[1]}}
        await bench.apply(gang("full", group("w", 1, gpus=2, spec=full)))
        await bench.expect({"full/w": 1})
        await devices.claim("shared")
        parts = (sharing("s", 2, "shared", gpus=1), group("w", 1, gpus=2))
        await bench.apply(gang("g", *parts, branches=(("copy", ("s", "w"), RACK),)))
        await bench.expect({"full/w": 1, "g/s": 2, "g/w": 1})
        assert set((await bench.nodes_of("g", "s")).values()) == {wide[0]}


async def test_homes_are_tried_until_the_last_one(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        await bench.add_topology(Topology(racks=TRIES + 3, nodes=1, gpus=4))
        nodes = (await bench.client.list(Node, labels=f"{HOME}={bench.namespace}")).items
        names = sorted(node.metadata.name for node in nodes)
        for name in names:
            await devices.put(name, "a")
        await devices.claim("shared")
        pinned = group("w", 1, spec={"nodeSelector": {"kubernetes.io/hostname": names[-1]}})
        await bench.apply(gang("g", sharing("s", 2, "shared", gpus=1), pinned, branches=(("c", ("s", "w"), RACK),)))
        await bench.expect({"g/s": 2, "g/w": 1})
        assert set((await bench.nodes_of("g")).values()) == {names[-1]}


@asynccontextmanager
async def priorities(cluster: Any) -> AsyncIterator[tuple[str, str]]:
    names = (f"{cluster.prefix}low", f"{cluster.prefix}high")
    for name, value in zip(names, (10, 100), strict=True):
        await add_priority(cluster, name, value)
    yield names
    for name in names:
        await cluster.client.delete(PriorityClass, name)


async def test_a_gang_that_claims_devices_puts_out_those_that_have_them(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices), priorities(cluster) as (low, high):
        one, other = await bench.add_nodes(2)
        await devices.put(one, "a", "a")
        await devices.put(other, "a")
        await bench.apply(gang("under", claiming("w", 3, resourceClaimTemplateName="one"), priority_class=low))
        await devices.make_claims("one")
        await bench.expect({"under/w": 3})
        async with devices.freeing_claims():
            await bench.apply(gang("over", claiming("w", 2, resourceClaimTemplateName="one"), priority_class=high))
            await devices.make_claims("one")
            await bench.expect({"over/w": 2})
        await nothing_is_given_twice(devices)


async def test_a_gang_that_shares_a_claim_puts_out_those_who_have_its_devices(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices), priorities(cluster) as (low, high):
        one, other = await bench.add_nodes(2, gpus=4)
        await devices.put(one, "a")
        await devices.put(other, "a")
        await bench.apply(gang("under", claiming("w", 1, resourceClaimTemplateName="one"), priority_class=low))
        await bench.apply(gang("equal", claiming("w", 1, resourceClaimTemplateName="one"), priority_class=high))
        await devices.make_claims("one")
        await bench.expect({"under/w": 1, "equal/w": 1})
        await devices.claim("shared")
        async with devices.freeing_claims():
            await bench.apply(gang("over", sharing("w", 2, "shared"), priority_class=high))
            await bench.expect({"equal/w": 1, "over/w": 2})
        await nothing_is_given_twice(devices)


@pytest.mark.simulated
async def test_the_devices_of_a_pod_that_is_replaced_are_held_for_the_pod_that_replaces_it(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        (node,) = await bench.add_nodes(1)
        await devices.put(node, "a", "a")
        base = gang("base", claiming("w", 2, resourceClaimTemplateName="one"))
        await bench.apply(base)
        await devices.make_claims("one")
        await bench.expect({"base/w": 2})
        await bench.apply(gang("scaled", claiming("w", 1, resourceClaimTemplateName="one"), base="base"))
        await devices.make_claims("one")
        async with devices.freeing_claims():
            await devices.client.delete(Pod, "base-w-0", bench.namespace, grace_period_s=0)
            await bench.expect({"base/w": 1}, quiet_s=5)
            again = member_json(base, base.groups[0], 0, bench.namespace)
            again["metadata"]["name"] = "base-again"
            await bench.create_pod(again)
            body = gang_json(base, bench.namespace)["spec"]["podgroups"]
            body[0]["podReferences"][0]["name"] = "base-again"
            await devices.client.patch(PodGang, "base", {"spec": {"podgroups": body}}, bench.namespace)
            await devices.make_claims("one")
            await bench.expect({"base/w": 2}, quiet_s=5)
            assert "base-again" in await devices.given()
        await nothing_is_given_twice(devices)


@pytest.mark.simulated
@pytest.mark.parametrize("how", ["devices", "gpus"])
async def test_a_replacement_waits_for_the_device_of_the_pod_it_replaces_if_every_other_place_is_worse(
    cluster: Any, how: str
) -> None:
    """Two racks of two nodes with one device each. The gang fills its preferred rack; one pod is updated."""
    async with with_devices(cluster) as (bench, devices):
        await bench.client.create(ClusterTopologyBinding, binding(name=f"{bench.namespace}-levels"))
        await bench.seen(ClusterTopologyBinding, f"{bench.namespace}-levels")
        await bench.add_topology(Topology(racks=2, nodes=2, gpus=1), stop_s=5.0)
        for node in (await bench.client.list(Node)).items:
            await devices.put(node.metadata.name, "a")
        part = claiming("w", 2, resourceClaimTemplateName="one") if how == "devices" else group("w", 2)
        made = gang("g", part, preferred=RACK)
        await bench.apply(made)
        await devices.make_claims("one")
        await bench.expect({"g/w": 2})
        home = await bench.domains(RACK, "g")
        assert len(home) == 1
        async with devices.freeing_claims():
            await bench.client.delete(Pod, "g-w-0", bench.namespace)
            again = member_json(made, part, 0, bench.namespace)
            again["metadata"]["name"] = "g-again"
            await bench.create_pod(again)
            body = gang_json(made, bench.namespace)["spec"]["podgroups"]
            body[0]["podReferences"][0]["name"] = "g-again"
            await bench.client.patch(PodGang, "g", {"spec": {"podgroups": body}}, bench.namespace)
            await devices.make_claims("one")

            async def is_back() -> bool:
                return set(await bench.nodes_of("g")) == {"g-again", "g-w-1"}

            await cluster.eventually(is_back)
        assert await bench.domains(RACK, "g") == home


async def nothing_is_given_twice(devices: Devices) -> None:
    claims = (await devices.client.list(ResourceClaim, devices.bench.namespace)).items
    given = [
        (one["pool"], one["device"])
        for claim in claims
        if claim.status.allocation is not None and claim.status.reserved_for
        for one in claim.status.allocation["devices"]["results"]
    ]
    assert len(given) == len(set(given))
