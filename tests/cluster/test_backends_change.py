"""What changes under a running workload, and what must not: the default profile, the queue, the server's version."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.backend_schemas import definitions
from tests.gang_schedulers import GangScheduler, Kai, Kube
from tests.manifests import clique, group, pcs

from grove.api.core import CustomResourceDefinition, Namespace, Pod
from grove.api.meta import find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends.kai import POD_GROUP, TOPOLOGY
from grove.backends.kube_api import V1ALPHA2, pod_group, workload
from grove.config import load_configuration
from grove.operator import Operator
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.topology import BLOCK, RACK, Topology

pytestmark = pytest.mark.simulated


def profiles(default: str, *names: str, extra: str = "") -> str:
    listed = ", ".join(f"{{name: {name}}}" for name in names or (default,))
    return f"scheduler: {{profiles: [{listed}], defaultProfileName: {default}}}\n{extra}"


@asynccontextmanager
async def cluster(schema: str, *schedulers: type[GangScheduler]) -> AsyncIterator[SimCluster]:
    found = (*own_crds(), *definitions(schema))
    async with SimCluster(nodes=Topology(racks=2, nodes=4), definitions=found) as sim:
        await sim.client().create(Namespace, {"metadata": {"name": "ns"}})
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(kind(sim.client(user=kind.name), "ns").run()) for kind in schedulers]
        try:
            yield sim
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def operator(sim: SimCluster, config: str) -> AsyncIterator[Operator]:
    made = Operator(
        sim.client(user="grove-operator"), load_configuration(config), clock=sim.clock, rng=random.Random(1),
        startup_image="x",
    )  # fmt: skip
    async with made.running():
        yield made


async def pods(sim: SimCluster, bound: int) -> dict[str, Pod]:
    """The pods, once so many are bound and nothing moves any more."""
    async with asyncio.timeout(300):
        while True:
            found = (await sim.client().list(Pod, "ns")).items
            if sum(pod.is_bound for pod in found) == bound:
                await asyncio.sleep(5)
                return {pod.metadata.uid: pod for pod in (await sim.client().list(Pod, "ns")).items}
            await asyncio.sleep(0.5)


async def eventually(look: Any, timeout_s: float = 120) -> Any:
    async with asyncio.timeout(timeout_s):
        while not (found := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        return found


async def test_a_new_default_profile_moves_no_running_workload() -> None:
    async with cluster("kube-1.36", Kube) as sim:
        async with operator(sim, profiles("default-scheduler")):
            await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), clique("b", 2), namespace="ns"))
            before = await pods(sim, 4)
        async with operator(sim, profiles("grove-scheduler", "grove-scheduler", "default-scheduler")):
            await asyncio.sleep(60)
            after = await pods(sim, 4)
            assert after.keys() == before.keys()
            gang = await sim.client().get(PodGang, "d-0", "ns")
            assert gang.metadata.labels["grove.io/scheduler-name"] == "default-scheduler"

            patch = {"spec": {"replicas": 3}}
            await sim.client().patch(PodClique, "d-0-a", patch, "ns", subresource="scale")
            grown = await pods(sim, 5)
            assert {pod.spec.scheduler_name for pod in grown.values()} == {"default-scheduler"}


async def test_a_changed_queue_reaches_a_living_group_of_kai() -> None:
    async with cluster("kai", Kai) as sim, operator(sim, profiles("kai-scheduler")):
        queue = {"labels": {"kai.scheduler/queue": "research"}}
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=queue))
        await pods(sim, 2)
        assert (await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]["queue"] == "research"

        patch = {"metadata": {"labels": {"kai.scheduler/queue": "production"}}}
        await sim.client().patch(PodCliqueSet, "d", patch, "ns")

        async def moved() -> bool:
            return bool((await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]["queue"] == "production")

        await eventually(moved)


async def test_a_binding_becomes_a_topology_of_kai_and_drift_is_mended() -> None:
    async with cluster("kai", Kai) as sim, operator(sim, profiles("kai-scheduler")):
        levels = [{"domain": "rack", "key": RACK}]
        body = {"metadata": {"name": "topo"}, "spec": {"levels": levels}}
        await sim.client().create(ClusterTopologyBinding, body)

        async def told() -> Any:
            found = await sim.client().get(ClusterTopologyBinding, "topo")
            return [one for one in found.status.scheduler_topology_statuses if one.scheduler_name == "kai-scheduler"]

        (said,) = await eventually(told)
        assert said.in_sync
        made = await sim.client().get(TOPOLOGY, "topo")
        assert made["spec"] == {"levels": [{"nodeLabel": RACK}]}


async def test_an_object_that_somebody_deletes_or_edits_is_made_right() -> None:
    async with cluster("kai", Kai) as sim, operator(sim, profiles("kai-scheduler")):
        queue = {"labels": {"kai.scheduler/queue": "research"}}
        await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), namespace="ns", metadata=queue))
        await pods(sim, 2)
        wanted = (await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]

        async def right() -> bool:
            page = await sim.client().list(POD_GROUP, "ns")
            return [one["spec"] for one in page.items] == [wanted]

        await sim.client().patch(POD_GROUP, "d-0", {"spec": {"minMember": 1}}, "ns")
        assert not await right()
        await eventually(right)
        await sim.client().delete(POD_GROUP, "d-0", "ns")
        await eventually(right)


async def test_after_an_upgrade_old_gangs_run_on_and_new_ones_use_the_new_version() -> None:
    async with cluster("kube-1.35", Kube) as sim:
        async with operator(sim, profiles("default-scheduler")):
            await sim.client().create(PodCliqueSet, pcs("old", clique("a", 2), clique("b", 2), namespace="ns"))
            before = await pods(sim, 4)
        await sim.client().delete(CustomResourceDefinition, "workloads.scheduling.k8s.io")
        for crd in definitions("kube-1.36"):
            await sim.client().create(CustomResourceDefinition.RESOURCE, crd)
        async with operator(sim, profiles("default-scheduler")):
            await sim.client().create(PodCliqueSet, pcs("new", clique("a", 2), clique("b", 2), namespace="ns"))
            after = await pods(sim, 8)
            assert before.keys() <= after.keys()
            for resource in (workload(V1ALPHA2), pod_group(V1ALPHA2)):
                page = await sim.client().list(resource, "ns")
                assert [one["metadata"]["name"] for one in page.items] == ["new-0"]

            async def said() -> Any:
                gang = await sim.client().get(PodGang, "old-0", "ns")
                found = find_condition(gang.status.conditions, "SchedulerObjectsReady")
                return found is not None and found.reason == "GangsNotOffered"

            victim = next(pod for pod in after.values() if pod.metadata.name.startswith("old-0-a"))
            await sim.client().delete(Pod, victim.metadata.name, "ns", grace_period_s=0)
            await eventually(said)
            await pods(sim, 8)


async def test_a_disaggregated_set_in_the_shape_of_kais_own_example() -> None:
    """Queue and scheduler on each clique, the set in one block, copies of its groups in one rack each."""
    topology = "topologyAwareScheduling: {enabled: true}\n"
    async with (
        cluster("kai", Kai) as sim,
        operator(sim, profiles("default-scheduler", "kai-scheduler", extra=topology)),
    ):
        levels = [{"domain": "block", "key": BLOCK}, {"domain": "rack", "key": RACK}]
        body = {"metadata": {"name": "topo"}, "spec": {"levels": levels}}
        await sim.client().create(ClusterTopologyBinding, body)
        queue = {"kai.scheduler/queue": "default-queue"}
        names = ("dworker", "dleader", "pworker", "pleader", "router")
        cliques = [clique(name, labels=queue, schedulerName="kai-scheduler") for name in names]
        rack = {"topologyName": "topo", "pack": {"required": "rack"}}
        groups = [
            group("decoder", "dworker", "dleader", replicas=2, topologyConstraint=rack),
            group("prefill", "pworker", "pleader", topologyConstraint=rack),
        ]
        block = {"topologyName": "topo", "pack": {"required": "block"}}
        await sim.client().create(
            PodCliqueSet, pcs("d", *cliques, groups=groups, namespace="ns", topologyConstraint=block)
        )
        await pods(sim, 7)

        made = (await sim.client().get(POD_GROUP, "d-0", "ns"))["spec"]
        assert (made["queue"], made["minMember"]) == ("default-queue", 5)
        assert made["topologyConstraint"] == {"topology": "topo", "requiredTopologyLevel": BLOCK}
        assert [(one["name"], one.get("parent")) for one in made["subGroups"]] == [
            ("d-0-decoder-0", None),
            ("d-0-prefill-0", None),
            ("d-0-router", None),
            ("d-0-decoder-0-dworker", "d-0-decoder-0"),
            ("d-0-decoder-0-dleader", "d-0-decoder-0"),
            ("d-0-prefill-0-pworker", "d-0-prefill-0"),
            ("d-0-prefill-0-pleader", "d-0-prefill-0"),
        ]
        scaled = (await sim.client().get(POD_GROUP, "d-0-decoder-0", "ns"))["spec"]
        assert scaled["topologyConstraint"] == {"topology": "topo", "requiredTopologyLevel": RACK}
