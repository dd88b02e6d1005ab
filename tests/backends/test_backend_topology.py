"""Topology objects of other schedulers: the operator makes its own from a binding and compares the others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.backend_schemas import definitions
from tests.support.gang_schedulers import cluster, eventually, operator

from grove.api.core import CustomResourceDefinition
from grove.api.meta import Json, Resource
from grove.api.topology import ClusterTopologyBinding, SchedulerTopologyStatus
from grove.backends.kai import TOPOLOGY
from grove.backends.koord_topology import NETWORK_TOPOLOGY
from grove.backends.volcano import HYPER_NODE
from grove.kube.errors import NotFound
from grove.sim.cluster import SimCluster
from grove.sim.topology import BLOCK, RACK

pytestmark = pytest.mark.simulated

LEVELS = [{"domain": "block", "key": BLOCK}, {"domain": "rack", "key": RACK}]
KAI_LEVELS = {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": RACK}]}
KOORD_LAYERS = {
    "networkTopologySpec": [
        {"topologyLayer": "blockLayer", "labelKey": [BLOCK]},
        {"topologyLayer": "rack", "labelKey": [RACK], "parentTopologyLayer": "blockLayer"},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "rack"},
    ]
}


def profile(name: str, **config: Any) -> str:
    return f"scheduler: {json.dumps({'profiles': [{'name': name, 'config': config}]})}"


async def bind(sim: SimCluster, **spec: Any) -> None:
    body = {"metadata": {"name": "topo"}, "spec": {"levels": LEVELS, **spec}}
    await sim.client().create(ClusterTopologyBinding, body)


async def said(sim: SimCluster, scheduler: str, in_sync: bool) -> SchedulerTopologyStatus:
    """What the binding says of a scheduler, once it says so."""

    async def found() -> SchedulerTopologyStatus | None:
        status = (await sim.client().get(ClusterTopologyBinding, "topo")).status
        told = (one for one in status.scheduler_topology_statuses if one.scheduler_name == scheduler)
        return next((one for one in told if one.in_sync == in_sync), None)

    answer: SchedulerTopologyStatus = await eventually(found)
    return answer


async def spec_is(sim: SimCluster, resource: Resource, name: str, spec: Json) -> bool:
    try:
        return bool((await sim.client().get(resource, name))["spec"] == spec)
    except NotFound:
        return False


CASES = [
    pytest.param("kai-scheduler", "kai", {}, TOPOLOGY, "topo", KAI_LEVELS, id="KAI"),
    pytest.param(
        "koord-scheduler",
        "koord",
        {"topologyLayers": {BLOCK: "blockLayer"}},
        NETWORK_TOPOLOGY,
        "default",
        KOORD_LAYERS,
        id="Koordinator",
    ),
]


@pytest.mark.parametrize(("scheduler", "schema", "config", "kind", "name", "spec"), CASES)
async def test_it_is_made_and_mended_when_a_person_edits_or_deletes_it(
    scheduler: str, schema: str, config: Json, kind: Resource, name: str, spec: Json
) -> None:
    async with cluster(schema) as sim, operator(sim, profile(scheduler, **config)):
        await bind(sim)
        await said(sim, scheduler, True)
        assert await spec_is(sim, kind, name, spec)

        (field,) = spec
        await sim.client().patch(kind, name, {"spec": {field: spec[field][:1]}})
        assert not await spec_is(sim, kind, name, spec)
        await eventually(lambda: spec_is(sim, kind, name, spec))
        await sim.client().delete(kind, name)
        await eventually(lambda: spec_is(sim, kind, name, spec))


@pytest.mark.parametrize(("scheduler", "schema", "config", "kind", "name", "spec"), CASES)
async def test_a_topology_of_another_owner_is_compared_and_left_alone(
    scheduler: str, schema: str, config: Json, kind: Resource, name: str, spec: Json
) -> None:
    async with cluster(schema) as sim, operator(sim, profile(scheduler, **config)):
        (field,) = spec
        theirs = {"metadata": {"name": name}, "spec": {field: spec[field][:1]}}
        await sim.client().create(kind, theirs)
        await bind(sim, schedulerTopologyBindings=[{"schedulerName": scheduler, "topologyReference": name}])
        assert (await said(sim, scheduler, False)).message
        assert await spec_is(sim, kind, name, theirs["spec"])

        await sim.client().patch(kind, name, {"spec": spec})
        assert (await said(sim, scheduler, True)).message == ""


async def test_a_scheduler_that_is_not_installed_is_said_and_found_when_it_comes() -> None:
    async with cluster("koord") as sim, operator(sim, profile("kai-scheduler")):
        await bind(sim)
        assert (await said(sim, "kai-scheduler", False)).message == "topologies.kai.scheduler is not served here"

        for crd in definitions("kai"):
            await sim.client().create(CustomResourceDefinition.RESOURCE, crd)
        await asyncio.sleep(300)
        await said(sim, "kai-scheduler", True)
        assert await spec_is(sim, TOPOLOGY, "topo", KAI_LEVELS)


async def test_tiers_of_volcano_are_compared_with_the_levels() -> None:
    async with cluster("volcano") as sim:
        body = {"metadata": {"name": "r0"}, "spec": {"tier": 1, "tierName": "leaf"}}
        await sim.client().create(HYPER_NODE, body)
        async with operator(sim, profile("volcano", tiers={BLOCK: "spine", RACK: "leaf"})):
            await bind(sim)
            assert (await said(sim, "volcano", False)).message == "no HyperNode has the tier spine"

            body = {"metadata": {"name": "b0"}, "spec": {"tier": 2, "tierName": "spine"}}
            await sim.client().create(HYPER_NODE, body)
            await asyncio.sleep(300)
            await said(sim, "volcano", True)
