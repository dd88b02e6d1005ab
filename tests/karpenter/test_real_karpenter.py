"""Real Karpenter buys nodes for a gang that waits: `make test-karpenter`.

Karpenter runs with its own provider of KWOK nodes: it creates and deletes Node objects. `FakeNodes` plays kubelets.
Everything else is real: the control plane, Karpenter's decisions, Grove's operator and scheduler.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from grove.api import labels as key
from grove.api.core import CustomResourceDefinition, Event, Namespace, Node, Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.config import load_configuration
from grove.crds.install import install
from grove.diagnosis.reasons import sentence
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists, KubeError
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.sim.nodes import FakeNodes
from grove.sim.topology import ZONE
from tests.karpenter.build import KARPENTER
from tests.support.fleet import GPU
from tests.support.go_programs import CRDS, free_port, running, tail
from tests.support.manifests import clique, pcs
from tests.support.operating import TOPOLOGY
from tests.support.waiting import nothing_missing

pytestmark = pytest.mark.soak

NODE_POOL = Resource("karpenter.sh", "v1", "NodePool", "nodepools", namespaced=False)
NODE_CLASS = Resource("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses", namespaced=False)
NODE_CLAIM = Resource("karpenter.sh", "v1", "NodeClaim", "nodeclaims", namespaced=False)
ZONES = ("zone-a", "zone-b", "zone-c")
NAMESPACE = "bought"
PATIENCE_S = 240.0
BATCH_S = 1.0
"""Karpenter decides when no new pod came for this time."""


def node_type(name: str, gpus: int, price: float) -> Json:
    """A machine that every zone has at the same price."""
    offerings = [
        {
            "Price": price,
            "Available": True,
            "Requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": ZONE, "operator": "In", "values": [zone]},
            ],
        }
        for zone in ZONES
    ]
    resources = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", GPU: str(gpus)}
    return {
        "name": name,
        "offerings": offerings,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {name: amount for name, amount in resources.items() if amount != "0"},
    }


def node_pool() -> Json:
    requirements = [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]
    return {
        "metadata": {"name": "default"},
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "5s",
                "budgets": [{"nodes": "100%"}],
            },
            "template": {
                "spec": {
                    "expireAfter": "Never",
                    "requirements": requirements,
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                }
            },
        },
    }


@dataclass
class World:
    client: HttpClient
    log: Path

    async def nodes(self) -> list[Node]:
        return list((await self.client.list(Node)).items)

    async def pods(self, name: str) -> list[Pod]:
        page = await self.client.list(Pod, NAMESPACE, labels=f"{key.PART_OF}={name}")
        return [pod for pod in page.items if not pod.metadata.is_deleting]

    async def placed(self, name: str, count: int) -> None:
        """Waits until all pods of a set are ready."""

        async def missing() -> str:
            pods = await self.pods(name)
            ready = sum(pod.is_ready for pod in pods)
            nodes = [(one.metadata.name, one.metadata.labels.get(ZONE)) for one in await self.nodes()]
            said = {pod.waits_for for pod in pods}
            return "" if (len(pods), ready) == (count, count) else f"{ready}/{len(pods)} ready, {said}; {nodes}"

        await self.reached(missing)

    async def bought(self) -> set[str]:
        return {claim["metadata"]["name"] for claim in (await self.client.list(NODE_CLAIM)).items}

    async def removed(self, name: str) -> None:
        """Deletes a set, and waits until Karpenter has deleted every node."""
        await self.client.delete(PodCliqueSet, name, NAMESPACE)

        async def left() -> str:
            nodes, claims, pods = await self.nodes(), await self.bought(), await self.pods(name)
            return f"{len(pods)} pods, {len(nodes)} nodes, {len(claims)} claims" if nodes or claims or pods else ""

        await self.reached(left)

    async def reached(self, missing: Callable[[], Awaitable[str]]) -> None:
        try:
            await nothing_missing(missing, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; Karpenter: {tail(self.log)}") from None


async def play_kubelets(client: HttpClient, fakes: FakeNodes) -> None:
    """Every node that Karpenter creates gets a kubelet, which reports that the node is ready."""
    known: set[str] = set()
    while True:
        with suppress(KubeError):
            nodes = {node.metadata.name for node in (await client.list(Node)).items}
            for name in sorted(nodes - known):
                fakes.adopt([name])
                await fakes.start_node(name)
                known.add(name)
        await asyncio.sleep(0.5)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not KARPENTER.is_built:
        pytest.skip(f"Karpenter is not in {KARPENTER.directory}; `make test-karpenter` builds it")
    with ControlPlane(tmp_path_factory.mktemp("karpenter"), controller_manager=True) as plane:
        yield plane


@asynccontextmanager
async def karpenter(plane: ControlPlane, folder: Path) -> AsyncIterator[World]:
    types = folder / "types.json"
    types.write_text(json.dumps([node_type("small", 0, 1.0), node_type("gpu-8", 8, 20.0)]))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        await install(client, lambda said: None)

        async def create(kind: Any, body: Json) -> None:
            with suppress(AlreadyExists):  # the tests share a control plane
                await client.create(kind, body)

        for path in sorted((KARPENTER.directory / CRDS).glob("*.yaml")):
            await create(CustomResourceDefinition.RESOURCE, yaml.safe_load(path.read_text()))
        await create(Namespace, {"metadata": {"name": NAMESPACE}})

        async def unserved() -> str:
            for kind in (NODE_CLASS, NODE_POOL, NODE_CLAIM):
                try:
                    await client.list(kind)
                except KubeError as error:
                    return str(error)
            return ""

        await nothing_missing(unserved)
        await create(NODE_CLASS, {"metadata": {"name": "default"}})
        await create(NODE_POOL, node_pool())
        levels = [{"domain": "zone", "key": ZONE}, {"domain": "host", "key": "kubernetes.io/hostname"}]
        binding = {"metadata": {"name": "cloud"}, "spec": {"levels": levels}}
        await create(ClusterTopologyBinding, binding)
        fakes = FakeNodes(client, SYSTEM)
        await stack.enter_async_context(fakes.running())
        operator = Operator(client, load_configuration(TOPOLOGY), rng=random.Random(1))
        await stack.enter_async_context(operator.running())
        scheduler = Scheduler(client, SchedulerConfiguration(), SYSTEM, say=sentence)
        for work in (scheduler.run(), play_kubelets(client, fakes)):
            task = asyncio.get_running_loop().create_task(work)
            stack.push_async_callback(_ended, task)
        log = folder / "karpenter.log"
        program = running(
            str(KARPENTER.directory / "karpenter-kwok"),
            f"--instance-types-file-path={types}",
            f"--metrics-port={free_port()}",
            f"--health-probe-port={free_port()}",
            "--disable-leader-election=true",
            log=log,
            KUBECONFIG=str(plane.kubeconfig),
            KUBERNETES_MIN_VERSION="1.19.0-0",
            SYSTEM_NAMESPACE="kube-system",
        )
        await stack.enter_async_context(program)
        yield World(client, log)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def engine(gpus: int) -> Json:
    resources = {"requests": {"cpu": "4", GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    return {"name": "engine", "image": "registry.k8s.io/pause:3.10", "resources": resources}


def packed(name: str, pods: int, gpus: int, **metadata: Any) -> Json:
    """A set of one clique whose pods must be in one zone."""
    pack = {"topologyName": "cloud", "pack": {"required": "zone"}}
    meta: Json = {"annotations": {key.DOMAIN_AFFINITY: "true"}, **metadata}
    one = clique("worker", pods, containers=[engine(gpus)])
    return pcs(name, one, namespace=NAMESPACE, metadata=meta, scheduler=key.GROVE_SCHEDULER, topologyConstraint=pack)


async def test_a_gang_gets_eight_nodes_in_one_zone(plane: ControlPlane, tmp_path: Path) -> None:
    async with karpenter(plane, tmp_path) as world:
        await world.client.create(PodCliqueSet, packed("chat", 8, 8))
        await world.placed("chat", 8)
        zone_of = {node.metadata.name: node.metadata.labels[ZONE] for node in await world.nodes()}
        used = {pod.spec.node_name for pod in await world.pods("chat")}
        assert len(used) == 8
        assert len({zone_of[node] for node in used}) == 1
        await world.removed("chat")


async def test_no_node_is_bought_for_a_gang_that_no_type_of_node_can_take(plane: ControlPlane, tmp_path: Path) -> None:
    """Karpenter says of each pod that no type fits. That a node would be bought is shown by the same gang, smaller."""
    async with karpenter(plane, tmp_path) as world:
        before = await world.bought()
        await world.client.create(PodCliqueSet, packed("huge", 4, 16))

        async def unanswered() -> str:
            pods = {pod.metadata.name for pod in await world.pods("huge")}
            events = (await world.client.list(Event, NAMESPACE)).items
            said = {one.involved_object.name for one in events if one.reason == "FailedScheduling" and _by(one)}
            return "" if len(pods) == 4 and pods <= said else f"{pods} without {said}"

        await world.reached(unanswered)
        assert all(pod.is_unschedulable for pod in await world.pods("huge"))
        await asyncio.sleep(10 * BATCH_S)
        assert await world.bought() == before
        assert not any(pod.is_bound for pod in await world.pods("huge"))
        await world.client.delete(PodCliqueSet, "huge", NAMESPACE)
        await world.client.create(PodCliqueSet, packed("small", 2, 8))
        await world.placed("small", 2)
        assert len(await world.bought()) >= 2
        await world.removed("small")


def _by(event: Event) -> bool:
    return "karpenter" in (event.reporting_component, event.source.get("component"))
