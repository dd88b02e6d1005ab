"""Sets on KAI, Koordinator and Volcano with a real API server: the operator's account has all rights it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from grove.api.core import Event, Node, Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.backends import koord
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.nodes import FakeNodes
from grove.sim.topology import LEVELS, RACK, Topology
from tests.support.backend_schemas import definitions
from tests.support.gang_schedulers import GangScheduler, Kai, Koordinator, Volcano
from tests.support.installed import Grove, give_accounts, stopped
from tests.support.manifests import clique, pcs
from tests.support.observed import held_to
from tests.support.planes import GrovePlane
from tests.support.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.soak]

SCHEDULERS: dict[str, type[GangScheduler]] = {
    "kai-scheduler": Kai,
    "koord-scheduler": Koordinator,
    "volcano": Volcano,
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with GrovePlane(tmp_path_factory.mktemp("schedulers"), "1.36.3", controller_manager=True) as plane:
        give_accounts(plane, *(one for name in ("kai", "koord", "volcano") for one in definitions(name)))
        yield plane


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[HttpClient]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        nodes = FakeNodes(client, SYSTEM)
        await stack.enter_async_context(nodes.running())
        await nodes.add(Topology(racks=1, nodes=4))
        for stand_in in SCHEDULERS.values():
            task = asyncio.ensure_future(stand_in(client, "default").run())
            stack.push_async_callback(stopped, task)
        grove = Grove(plane)
        grove.profiles = ["grove-scheduler", "default-scheduler", *SCHEDULERS]
        grove.options = {"koord-scheduler": {"topologyLayers": {RACK: "rackLayer"}}}
        await grove.start()
        stack.push_async_callback(grove.stop)
        yield client


def wanted(name: str, scheduler: str) -> Json:
    made = pcs(name, clique("lead"), clique("work", 2), scheduler=scheduler)
    made["metadata"].setdefault("labels", {})["kai.scheduler/queue"] = "default"
    return made


async def test_the_operators_own_account_writes_the_objects_of_every_scheduler(admin: HttpClient) -> None:
    levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
    await admin.create(ClusterTopologyBinding, {"metadata": {"name": "racks"}, "spec": {"levels": levels}})
    for scheduler in SCHEDULERS:
        await admin.create(PodCliqueSet, wanted(scheduler, scheduler))

    async def available(name: str) -> bool:
        status = (await admin.get(PodCliqueSet, name, "default")).status
        return status.available_replicas == status.updated_replicas == 1

    for scheduler in SCHEDULERS:
        await eventually(lambda name=scheduler: available(name), 180, f"{scheduler} placed its set")  # type: ignore[misc]

    topology = Resource("kai.scheduler", "v1alpha1", "Topology", "topologies", namespaced=False)
    narrower = {"spec": {"levels": levels[-2:]}}
    await admin.patch(ClusterTopologyBinding, "racks", narrower)

    async def follows() -> bool:
        found: Json = await admin.get(topology, "racks")
        return len(found["spec"]["levels"]) == 2

    await eventually(follows, 180, "KAI's topology follows the binding")
    for scheduler in SCHEDULERS:
        set_: Json = await admin.get(PodCliqueSet.RESOURCE, scheduler, "default")
        cliques = set_["spec"]["template"]["cliques"]
        cliques[1]["spec"]["podSpec"]["containers"][0]["env"] = [{"name": "V", "value": "2"}]
        await admin.patch(PodCliqueSet, scheduler, {"spec": {"template": {"cliques": cliques}}}, "default")
        await eventually(lambda name=scheduler: available(name), 180, f"{scheduler} placed the new pods")  # type: ignore[misc]
        await admin.delete(PodCliqueSet, scheduler, "default")

    async def gone() -> bool:
        return not (await admin.list(PodCliqueSet, "default")).items

    await eventually(gone, 180, "all sets are gone")
    await admin.delete(ClusterTopologyBinding, "racks")
    told = [one.message for one in (await admin.list(Event, "default")).items]
    assert [one for one in told if "forbidden" in one.lower()] == []


async def test_koordinators_late_pods_are_held_to_the_rack_of_the_core_while_they_are_gated(admin: HttpClient) -> None:
    """An API server lets the node affinity of gated pods alone be narrowed."""
    levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
    await admin.create(ClusterTopologyBinding, {"metadata": {"name": "racks"}, "spec": {"levels": levels}})
    rack = {"topologyName": "racks", "pack": {"required": "rack"}}
    made = pcs("held", clique("a", 3, min_available=2), scheduler="koord-scheduler", topologyConstraint=rack)
    await admin.create(PodCliqueSet, made)
    racks = {node.metadata.name: node.metadata.labels[RACK] for node in (await admin.list(Node)).items}

    async def bound() -> list[Pod]:
        return [
            pod for pod in (await admin.list(Pod, "default")).items if pod.is_bound and not pod.metadata.is_deleting
        ]

    async def all_there() -> bool:
        return len(await bound()) == 3

    await eventually(all_there, 180, "core and surplus are placed")
    first = await bound()
    core = [pod for pod in first if koord.GANG in pod.metadata.labels]
    assert [held_to(pod, RACK) for pod in core] == [None, None]
    domain = racks[core[0].spec.node_name]
    assert [held_to(pod, RACK) for pod in first if pod not in core] == [[domain]]

    await admin.delete(Pod, core[0].metadata.name, "default", grace_period_s=0)
    before = {pod.metadata.uid for pod in first}

    async def replaced() -> bool:
        return any(pod.metadata.uid not in before for pod in await bound())

    await eventually(replaced, 180, "a new core pod is placed")
    assert [held_to(pod, RACK) for pod in await bound() if pod.metadata.uid not in before] == [[domain]]
    await admin.delete(PodCliqueSet, "held", "default")
    await admin.delete(ClusterTopologyBinding, "racks")
