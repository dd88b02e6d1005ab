"""kube-scheduler 1.36 with topology and whole-group preemption switched on as well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.kube_gangs import GANGS, GATES, bound, gang_plane, gang_world, hungry, is_bound, objects, occupy
from tests.manifests import pcs

from grove.api.core import Pod
from grove.api.topology import ClusterTopologyBinding
from grove.backends.kube_api import V1ALPHA2, pod_group
from grove.local.controlplane import ControlPlane
from grove.sim.kinds import PRIORITY_CLASS
from grove.sim.topology import RACK

pytestmark = pytest.mark.real
POD_GROUP = pod_group(V1ALPHA2)
ALL = {**GATES, "TopologyAwareWorkloadScheduling": True, "WorkloadAwarePreemption": True}
TOPOLOGY = GANGS + "topologyAwareScheduling: {enabled: true}\n"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with gang_plane(tmp_path_factory.mktemp("gangs-all"), "1.36.3", ALL) as plane:
        yield plane


async def test_a_gang_that_must_share_a_rack_does_or_waits(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name, gpus=16, racks=2, config=TOPOLOGY) as world:
        levels = [{"domain": "rack", "key": RACK}]
        await world.client.create(
            ClusterTopologyBinding, {"metadata": {"name": fresh_name}, "spec": {"levels": levels}}
        )
        constraint = {"topologyName": fresh_name, "pack": {"required": "rack"}}
        await occupy(world, "filler", 1)  # the first rack has seven places left, the second eight
        await world.apply(pcs("d", hungry("a", 4), hungry("b", 4), topologyConstraint=constraint))
        await world.available("d")

        (made,) = (await objects(world, POD_GROUP)).values()
        assert made["spec"]["schedulingConstraints"] == {"topology": [{"key": RACK}]}
        members = await world.pods("d-0-a") + await world.pods("d-0-b")
        assert len({pod.spec.node_name.rpartition("-")[0] for pod in members}) == 1

        await world.apply(pcs("e", hungry("a", 4), hungry("b", 4), topologyConstraint=constraint))
        await asyncio.sleep(5)
        assert await bound(world, "e-0-a", "e-0-b") == 0
        await world.client.delete(ClusterTopologyBinding, fresh_name)


async def test_a_gang_of_lower_priority_goes_whole(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        for name, value in (("low", 10), ("high", 1000)):
            await world.client.create(PRIORITY_CLASS, {"metadata": {"name": f"{fresh_name}-{name}"}, "value": value})
        low = pcs("low", hungry("a", 4), hungry("b", 8), priorityClassName=f"{fresh_name}-low")
        await world.apply(low)
        await world.available("low")
        (made,) = (await objects(world, POD_GROUP)).values()
        assert made["spec"]["disruptionMode"] == "PodGroup"
        assert made["spec"]["priorityClassName"] == f"{fresh_name}-low"
        assert made["spec"]["priority"] == 10

        await world.apply(pcs("high", hungry("a", 2), hungry("b", 2), priorityClassName=f"{fresh_name}-high"))

        await world.eventually(lambda: is_bound(world, 4, "high-0-a", "high-0-b"), 60)
        await world.eventually(lambda: is_bound(world, 0, "low-0-a", "low-0-b"), 60)
        for pod in (await world.client.list(Pod, fresh_name)).items:
            assert pod.spec.priority == (1000 if pod.metadata.name.startswith("high") else 10)
        for name in ("low", "high"):
            await world.client.delete(PRIORITY_CLASS, f"{fresh_name}-{name}")
