"""Koordinator's gangs with topology after the first placement: a replacement waits for capacity and is tried again.

The stand-in tries a replacement once, as koord-scheduler 1.8.0 was seen to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.gang_schedulers import Koordinator, cluster, eventually, operator
from tests.support.manifests import clique, pcs

from grove.api.conditions import TOPOLOGY_NOT_HONOURED, EventReason
from grove.api.core import Event, Node, Pod
from grove.api.meta import find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.sim.cluster import SimCluster
from grove.sim.topology import RACK

pytestmark = pytest.mark.simulated

CONFIG = f"""
topologyAwareScheduling: {{enabled: true}}
scheduler:
  defaultProfileName: koord-scheduler
  profiles: [{{name: koord-scheduler, config: {{topologyLayers: {{{RACK}: rack}}}}}}]
"""


async def pods_of(sim: SimCluster) -> list[Pod]:
    return [pod for pod in (await sim.client().list(Pod, "ns")).items if not pod.metadata.is_deleting]


async def bound(sim: SimCluster) -> list[Pod]:
    pods = await pods_of(sim)
    return pods if len(pods) == 3 and all(pod.is_bound for pod in pods) else []


async def close(sim: SimCluster, *nodes: str) -> None:
    for name in nodes:
        await sim.client().patch(Node, name, {"spec": {"unschedulable": True}})


async def tries(sim: SimCluster) -> int:
    return sum(
        one.count or 1
        for one in (await sim.client().list(Event, "ns")).items
        if one.reason == EventReason.POD_TRIED_AGAIN
    )


@asynccontextmanager
async def one_replacement_waits() -> AsyncIterator[tuple[SimCluster, list[str]]]:
    """A gang in one rack lost a pod, and every node of that rack is closed; the names of these nodes."""
    async with cluster("koord", Koordinator) as sim:
        client = sim.client()
        levels = [{"domain": "rack", "key": RACK}]
        await client.create(ClusterTopologyBinding, {"metadata": {"name": "topo"}, "spec": {"levels": levels}})
        async with operator(sim, CONFIG):
            rack = {"topologyName": "topo", "pack": {"required": "rack"}}
            await client.create(PodCliqueSet, pcs("demo", clique("a", 3), namespace="ns", topologyConstraint=rack))
            pods = await eventually(lambda: bound(sim))
            (held,) = {pod.spec.node_name.rpartition("-")[0] for pod in pods}
            nodes = [node.metadata.name for node in (await client.list(Node)).items]
            mine = [name for name in nodes if name.startswith(held)]
            await close(sim, *mine)
            await client.delete(Pod, pods[0].metadata.name, "ns")
            await asyncio.sleep(60)
            assert len(await pods_of(sim)) == 3
            assert not await bound(sim)
            assert await tries(sim) == 0
            yield sim, mine


async def test_a_replacement_is_tried_again_when_a_node_of_its_rack_opens() -> None:
    async with one_replacement_waits() as (sim, nodes):
        await sim.client().patch(Node, nodes[0], {"spec": {"unschedulable": None}})

        pods = await eventually(lambda: bound(sim), timeout_s=30)

        assert {pod.spec.node_name for pod in pods} <= set(nodes)
        assert await tries(sim) == 1
        (gang,) = (await sim.client().list(PodGang, "ns")).items
        assert find_condition(gang.status.conditions, TOPOLOGY_NOT_HONOURED) is None


async def test_it_is_tried_again_when_a_pod_of_grove_leaves_its_rack() -> None:
    async with one_replacement_waits() as (sim, nodes):
        await sim.client().create(PodCliqueSet, pcs("other", clique("b", 1), namespace="ns"))
        await asyncio.sleep(20)
        other = next(pod for pod in await pods_of(sim) if pod.metadata.name.startswith("other"))
        assert other.spec.node_name not in nodes
        await sim.client().delete(Pod, other.metadata.name, "ns")  # in the other rack: that does not help
        await asyncio.sleep(60)
        assert await tries(sim) == 0

        mine = next(pod for pod in await pods_of(sim) if pod.spec.node_name in nodes)
        await sim.client().delete(Pod, mine.metadata.name, "ns")
        await asyncio.sleep(60)
        assert await tries(sim) == 1  # the other pod of the gang that waits by then is a replacement too, and young


async def test_a_node_of_another_rack_and_a_node_that_stays_closed_are_no_reason_to_try() -> None:
    async with one_replacement_waits() as (sim, nodes):
        before = {pod.metadata.name for pod in await pods_of(sim)}
        others = [
            node.metadata.name for node in (await sim.client().list(Node)).items if node.metadata.name not in nodes
        ]
        await close(sim, others[0])
        await sim.client().patch(Node, others[0], {"spec": {"unschedulable": None}})
        await sim.client().patch(Node, nodes[1], {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(100)
        assert {pod.metadata.name for pod in await pods_of(sim)} == before


async def test_many_events_at_once_are_one_try() -> None:
    async with one_replacement_waits() as (sim, nodes):
        for name in nodes:  # each opens and closes again
            await sim.client().patch(Node, name, {"spec": {"unschedulable": None}})
            await close(sim, name)
        await asyncio.sleep(100)
        assert await tries(sim) <= 2
