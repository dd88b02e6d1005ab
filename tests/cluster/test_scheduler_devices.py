"""Pods that claim devices: counted before the gang is placed, given before the pod is bound, never given twice.

Claims are made from templates by Kubernetes' controller; on the simulator the test plays it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.gangs import HOME, Bench, Group, gang, group, scheduling

from grove.api.core import DeviceClass, Node, Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from grove.api.meta import Json
from grove.scheduler.sharing import TRIES
from grove.sim.topology import RACK, Topology


class Devices:
    """A driver of this test's own, with a class, a template and devices on nodes."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.client = bench, bench.client
        self.driver = f"{bench.namespace}.example.com"
        self._slices: list[str] = []

    async def set_up(self) -> None:
        selector = {"cel": {"expression": f'device.driver == "{self.driver}"'}}
        await self.client.create(
            DeviceClass, {"metadata": {"name": self.driver}, "spec": {"selectors": [selector]}}
        )  # fmt: skip
        await self.template("one")

    async def clear(self) -> None:
        for name in self._slices:
            await self.client.delete(ResourceSlice, name)
        await self.client.delete(DeviceClass, self.driver)

    async def claim(self, *names: str, count: int = 1) -> None:
        for name in names:
            body = {"metadata": {"name": name, "namespace": self.bench.namespace}, "spec": self.spec(count=count)}
            await self.client.create(ResourceClaim, body)

    def spec(self, *expressions: str, count: int = 1) -> Json:
        exactly: Json = {"deviceClassName": self.driver, "count": count, "allocationMode": "ExactCount"}
        if expressions:
            exactly["selectors"] = [{"cel": {"expression": text}} for text in expressions]
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    async def template(self, name: str, *expressions: str, count: int = 1) -> None:
        body = {"metadata": {"name": name, "namespace": self.bench.namespace}}
        await self.client.create(
            ResourceClaimTemplate, {**body, "spec": {"spec": self.spec(*expressions, count=count)}}
        )  # fmt: skip

    async def put(self, node: str, *models: str) -> None:
        """Devices on a node, of these models."""
        devices = [
            {"name": f"dev-{i}", "attributes": {"model": {"string": model}}, "capacity": {"memory": {"value": "80Gi"}}}
            for i, model in enumerate(models)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": devices}
        self._slices.append(f"{node}-{self.driver}"[:60].rstrip("-."))
        await self.client.create(ResourceSlice, {"metadata": {"name": self._slices[-1]}, "spec": spec})

    async def make_claims(self, *templates: str) -> None:
        """What Kubernetes' controller does for pods with templates; on a real control plane it does."""
        if not self.bench.cluster.is_sim:
            return
        for pod in await self.bench.pods():
            name = next((c.get("resourceClaimTemplateName") for c in pod.spec.resource_claims), None)
            if name not in templates or pod.status.resource_claim_statuses:
                continue
            template = await self.client.get(ResourceClaimTemplate, name, self.bench.namespace)
            claim = f"{pod.metadata.name}-{name}"
            body = {"metadata": {"name": claim, "namespace": self.bench.namespace}, "spec": template.spec["spec"]}
            await self.client.create(ResourceClaim, body)
            status = {"resourceClaimStatuses": [{"name": "device", "resourceClaimName": claim}]}
            await self.client.patch(
                Pod, pod.metadata.name, {"status": status}, self.bench.namespace, subresource="status"
            )  # fmt: skip

    async def given(self) -> dict[str, list[str]]:
        """Pools and devices by the name of the pod they are reserved for; the claims of one test."""
        found: dict[str, list[str]] = {}
        for claim in (await self.client.list(ResourceClaim, self.bench.namespace)).items:
            if claim.status.allocation is not None:
                results = claim.status.allocation["devices"]["results"]
                for user in claim.status.reserved_for:
                    found.setdefault(user.name, []).extend(f"{one['pool']}/{one['device']}" for one in results)
        return found


@asynccontextmanager
async def with_devices(cluster: Any) -> AsyncIterator[tuple[Bench, Devices]]:
    async with scheduling(cluster) as bench:
        devices = Devices(bench)
        await devices.set_up()
        try:
            yield bench, devices
        finally:
            await devices.clear()


def claiming(name: str, pods: int, **entry: str) -> Group:
    """A group whose pods claim a device, from a template or by the name of a claim."""
    claim = {"name": "device", **entry}
    spec: Json = {"resourceClaims": [claim]}
    return group(name, pods, gpus=0, spec=spec)


def sharing(name: str, pods: int, *claims: str, gpus: int = 0, **more: Any) -> Group:
    """A group whose pods all use these claims."""
    entries = [{"name": f"device-{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)]
    return group(name, pods, gpus=gpus, spec={"resourceClaims": entries}, **more)


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
            f"{one}/dev-0", f"{other}/dev-0", f"{other}/dev-1",
        ]  # fmt: skip
        assert all(given[pod][0].startswith(f"{node}/") for pod, node in nodes.items())


async def test_a_gang_waits_whole_until_there_are_devices_for_all(cluster: Any) -> None:
    async with with_devices(cluster) as (bench, devices):
        one, other = await bench.add_nodes(2)
        await devices.put(one, "a")
        await bench.apply(gang("g", claiming("w", 2, resourceClaimTemplateName="one")))
        await devices.make_claims("one")
        said = await bench.condition("g", status="False", reason="Unschedulable")
        await bench.expect({})
        assert f"deviceclass/{devices.driver}" in said.message
        assert await devices.given() == {}
        await devices.put(other, "a")
        await bench.expect({"g/w": 2})


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
            f"{node}/dev-0", f"{node}/dev-1",
        ]  # fmt: skip


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
        said = await bench.condition("odd", status="False", reason="Unschedulable")
        assert "is not understood" in said.message


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
        [home] = set(pods.values())  # either will do: each has a device, and room for all
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


async def test_a_gang_that_shares_waits_for_room_on_a_node_with_devices_and_takes_it(cluster: Any) -> None:
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


async def test_a_home_where_the_rest_of_the_gang_has_no_room_is_given_up_for_the_next(cluster: Any) -> None:
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
