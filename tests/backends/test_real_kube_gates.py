"""kube-scheduler 1.36 with topology and whole-group preemption switched on as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.support.kube_gangs import (
    GANGS,
    GATES,
    GangPlane,
    bindings_within,
    bound,
    gang_plane,
    gang_world,
    group_said,
    hungry,
    is_bound,
    objects,
    occupy,
)
from tests.support.manifests import pcs
from tests.support.operating import World

from grove.admission.serving.service import WebhookService, WebhookSettings
from grove.admission.serving.wiring import admission_of
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.backends.kube_api import V1ALPHA2, pod_group
from grove.kube.errors import ApiError, Invalid
from grove.local.ports import free_ports
from grove.sim.kinds import PRIORITY_CLASS
from grove.sim.topology import RACK

pytestmark = pytest.mark.real
POD_GROUP = pod_group(V1ALPHA2)
ALL = {**GATES, "TopologyAwareWorkloadScheduling": True, "WorkloadAwarePreemption": True}
TOPOLOGY = GANGS + "topologyAwareScheduling: {enabled: true}\n"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangPlane]:
    with gang_plane(tmp_path_factory.mktemp("gangs-all"), "1.36.3", ALL) as plane:
        yield plane


async def test_a_gang_that_must_share_a_rack_does_or_waits(plane: GangPlane, fresh_name: str) -> None:
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
        said = await world.eventually(lambda: _why_not(world, "e-0"))
        assert "placements" in said
        assert await bindings_within(world, 3) == []
        assert await bound(world, "e-0-a", "e-0-b") == 0
        await world.client.delete(ClusterTopologyBinding, fresh_name)


async def _why_not(world: World, group: str) -> str:
    """What kube-scheduler says of a group that it could not place."""
    found = (await objects(world, POD_GROUP)).get(group, {})
    conditions = found.get("status", {}).get("conditions", ())
    return next((one["message"] for one in conditions if one["reason"] == "Unschedulable"), "")


async def _classes(world: World, name: str) -> None:
    for suffix, value in (("low", 10), ("high", 1000)):
        await world.client.create(PRIORITY_CLASS, {"metadata": {"name": f"{name}-{suffix}"}, "value": value})


@pytest.mark.soak
async def test_pods_of_high_priority_in_a_group_without_one_evict_no_pod(plane: GangPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await _classes(world, fresh_name)
        await world.apply(pcs("low", hungry("a", 4), hungry("b", 8), priorityClassName=f"{fresh_name}-low"))
        await world.available("low")

        one = hungry("a", 2, priorityClassName=f"{fresh_name}-high")
        await world.apply(pcs("d", one, hungry("b", 2, priorityClassName=f"{fresh_name}-high")))
        await world.eventually(lambda: _why_not(world, "d-0"))
        assert (await objects(world, POD_GROUP))["d-0"]["spec"]["priority"] == 0
        assert await bindings_within(world, 3) == []
        assert await bound(world, "low-0-a", "low-0-b") == 12
        for suffix in ("low", "high"):
            await world.client.delete(PRIORITY_CLASS, f"{fresh_name}-{suffix}")


@asynccontextmanager
async def guarded(world: World) -> AsyncIterator[None]:
    """Admission of the world's operator, asked by its API server for this namespace."""
    (port,) = free_ports(1)
    admission = admission_of(world.config, world.operator.backends, namespace=world.namespace, operator_users=())
    settled = WebhookSettings(namespace=world.namespace, host="127.0.0.1", port=port, url=f"https://127.0.0.1:{port}")
    service = WebhookService(world.client, admission, settled)
    await service.start()
    keeping = asyncio.gather(service.run(), service.lead())

    async def asked() -> bool:
        try:
            bad = pcs("bad", hungry("Bad_Name", 1), namespace=world.namespace)
            await world.client.create(PodCliqueSet, bad, dry_run=True)
        except Invalid as error:
            return "cliques[0].name" in str(error)
        return False

    try:
        await world.eventually(asked)
        yield
    finally:
        await service.registration.withdraw()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_the_shape_of_a_gang_that_was_written_cannot_change_and_its_size_can(
    plane: GangPlane, fresh_name: str
) -> None:
    async with gang_world(plane, fresh_name) as world:
        await _classes(world, fresh_name)
        async with guarded(world):
            await world.apply(pcs("d", hungry("a", 2), hungry("b", 2), priorityClassName=f"{fresh_name}-low"))
            await world.available("d")
            await world.eventually(lambda: group_said(world, "d-0", "True"))
            before = await objects(world, POD_GROUP)
            template = (await world.client.get(PodCliqueSet.RESOURCE, "d", fresh_name))["spec"]["template"]
            first, second = template["cliques"]
            fewer = {**first, "spec": {**first["spec"], "minAvailable": 1}}
            shapes: dict[str, Json] = {
                "minAvailable": {"cliques": [fewer, second]},
                "cliques": {"cliques": [first, second, hungry("c", 1)]},
                "topologyConstraint": {"topologyConstraint": {"topologyName": "t", "pack": {"required": "rack"}}},
                "priorityClassName": {"priorityClassName": f"{fresh_name}-high"},
            }
            for field, change in shapes.items():
                with pytest.raises(ApiError, match=field):
                    await world.client.patch(PodCliqueSet, "d", {"spec": {"template": change}}, fresh_name)

            await world.client.patch(PodCliqueSet, "d", {"spec": {"replicas": 2}}, fresh_name)
            await world.scale(PodClique, "d-0-a", 3)
            await world.eventually(lambda: is_bound(world, 9))
            await world.quiet()
            after = await objects(world, POD_GROUP)
            assert after.keys() == {"d-0", "d-1"}
            assert after["d-0"]["metadata"]["resourceVersion"] == before["d-0"]["metadata"]["resourceVersion"]
        for suffix in ("low", "high"):
            await world.client.delete(PRIORITY_CLASS, f"{fresh_name}-{suffix}")


@pytest.mark.soak
async def test_a_gang_of_lower_priority_goes_whole(plane: GangPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await _classes(world, fresh_name)
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
