"""Volcano as its chart installs it: what Grove finds out about its topology, and what it makes of that.

The stand-in ignores topology without its plugin and forgets it when it restarts, as the real one was seen to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.gang_schedulers import Volcano, cluster, eventually, operator
from tests.support.manifests import clique, pcs

from grove.api.conditions import SCHEDULER_OBJECTS_READY, TOPOLOGY_NOT_HONOURED
from grove.api.core import ConfigMap, Namespace, Node, Pod
from grove.api.meta import Condition, Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends.volcano import HYPER_NODE
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.topology import RACK

pytestmark = pytest.mark.simulated

CHART = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""volcano-scheduler.conf as the chart of Volcano 1.15.1 writes it."""
ON = f"{CHART}  - name: network-topology-aware\n"
CONFIG = f"""
topologyAwareScheduling: {{enabled: true}}
scheduler: {{defaultProfileName: volcano, profiles: [{{name: volcano, config: {{tiers: {{{RACK}: rack}}}}}}]}}
"""


class Seen(Volcano):
    """The stand-in that works in this test, and the client of the operator beside it."""

    at_work: Volcano
    operators: SimClient

    async def run(self) -> None:
        Seen.at_work = self
        await super().run()


@asynccontextmanager
async def place(config: str | None, *, hyper_nodes: bool = True) -> AsyncIterator[SimCluster]:
    async with cluster("volcano", Seen) as sim:
        client = sim.client()
        await client.create(Namespace, {"metadata": {"name": "volcano-system"}})
        if config is not None:
            meta = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
            await client.create(ConfigMap, {"metadata": meta, "data": {"volcano-scheduler.conf": config}})
        levels = [{"domain": "rack", "key": RACK}]
        await client.create(ClusterTopologyBinding, {"metadata": {"name": "topo"}, "spec": {"levels": levels}})
        if hyper_nodes:
            await add_hyper_nodes(sim)
        async with operator(sim, CONFIG) as made:
            assert isinstance(made.deps.client, SimClient)
            Seen.operators = made.deps.client
            yield sim


async def add_hyper_nodes(sim: SimCluster) -> None:
    for rack in sorted({node.metadata.labels[RACK] for node in (await sim.client().list(Node)).items}):
        members = [{"type": "Node", "selector": {"labelMatch": {"matchLabels": {RACK: rack}}}}]
        spec = {"tier": 1, "tierName": "rack", "members": members}
        await sim.client().create(HYPER_NODE, {"metadata": {"name": rack}, "spec": spec})


def in_one_rack() -> Json:
    rack = {"topologyName": "topo", "pack": {"required": "rack"}}
    return pcs("demo", clique("a", 2), clique("b", 2), namespace="ns", topologyConstraint=rack)


async def bound(sim: SimCluster) -> list[Pod]:
    pods = [pod for pod in (await sim.client().list(Pod, "ns")).items if not pod.metadata.is_deleting]
    return pods if len(pods) == 4 and all(pod.is_bound for pod in pods) else []


def racks(pods: list[Pod]) -> set[str]:
    return {pod.spec.node_name.rpartition("-")[0] for pod in pods}


async def gang_says(sim: SimCluster, type_: str) -> Condition | None:
    gangs = (await sim.client().list(PodGang, "ns")).items
    return find_condition(gangs[0].status.conditions, type_) if gangs else None


async def test_a_replacement_stays_in_the_rack_of_its_set_after_vc_scheduler_restarts() -> None:
    async with place(ON) as sim:
        await sim.client().create(PodCliqueSet, in_one_rack())
        before = await eventually(lambda: bound(sim))
        assert len(racks(before)) == 1

        Seen.at_work.restart()
        await sim.client().delete(Pod, before[0].metadata.name, "ns")
        await asyncio.sleep(5)
        after = await eventually(lambda: bound(sim))
        assert {pod.metadata.name for pod in after} != {pod.metadata.name for pod in before}
        assert racks(after) == racks(before)
        assert await gang_says(sim, TOPOLOGY_NOT_HONOURED) is None


async def test_where_the_configuration_cannot_be_read_pods_that_span_racks_are_reported() -> None:
    async with place(None) as sim:
        await sim.client().create(PodCliqueSet, in_one_rack())
        assert len(racks(await eventually(lambda: bound(sim)))) == 2
        said = await eventually(lambda: gang_says(sim, TOPOLOGY_NOT_HONOURED))
        assert all(pod.metadata.name in said.message for pod in await bound(sim))


async def test_a_gang_waits_while_the_plugin_is_off_and_goes_soon_after_it_is_on() -> None:
    async with place(CHART) as sim:
        await sim.client().create(PodCliqueSet, in_one_rack())

        async def waits() -> Condition | None:
            said = await gang_says(sim, SCHEDULER_OBJECTS_READY)
            return said if said is not None and said.reason == "NotRepresentable" else None

        said = await eventually(waits)
        assert "- name: network-topology-aware" in said.message
        assert "volcano-system/volcano-scheduler-configmap" in said.message
        await asyncio.sleep(60)
        assert not await bound(sim)

        patch = {"data": {"volcano-scheduler.conf": ON}}
        await sim.client().patch(ConfigMap, "volcano-scheduler-configmap", patch, "volcano-system")
        assert len(racks(await eventually(lambda: bound(sim), timeout_s=30))) == 1


async def test_hyper_nodes_that_a_gang_waits_for_are_seen_when_they_come() -> None:
    async with place(ON, hyper_nodes=False) as sim:
        await sim.client().create(PodCliqueSet, in_one_rack())

        async def waits() -> bool:
            said = await gang_says(sim, SCHEDULER_OBJECTS_READY)
            return said is not None and "no HyperNode has the tier 'rack'" in said.message

        await eventually(waits)
        await asyncio.sleep(100)
        await add_hyper_nodes(sim)
        assert len(racks(await eventually(lambda: bound(sim), timeout_s=30))) == 1
        said = await gang_says(sim, SCHEDULER_OBJECTS_READY)
        assert said is not None
        assert (said.status, said.reason) == ("True", "Told")


async def test_they_are_watched_only_while_a_tier_or_the_plugin_is_missing() -> None:
    async with place(CHART, hyper_nodes=False) as sim:
        await asyncio.sleep(600)
        calls = Seen.operators.calls
        assert (calls["watch", "hypernodes"], calls["watch", "configmaps"]) == (1, 1)
    async with place(ON) as sim:
        await sim.client().create(PodCliqueSet, in_one_rack())
        await eventually(lambda: bound(sim))
        await asyncio.sleep(600)
        calls = Seen.operators.calls
        assert (calls["watch", "hypernodes"], calls["watch", "configmaps"]) == (0, 0)
        assert calls["list", "hypernodes"] <= 3  # at the start, and every five minutes
