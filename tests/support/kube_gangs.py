"""A real control plane with kube-scheduler's gangs switched on, an operator on it, and capacity counted in
accelerators.

with gang_plane(directory, "1.36.3") as plane: ...
async with gang_world(plane, "ns", gpus=12) as world: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from grove.api.core import Namespace, Pod, ServiceAccount
from grove.api.meta import Json, Resource
from grove.api.podgang import PodGang
from grove.backends import kube_api
from grove.crds.install import install
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.binaries import find_or_build
from grove.local.blueprint import Settings
from grove.local.controlplane import ControlPlane
from grove.local.loopback import Loopback
from grove.local.state import GRACE_S
from grove.sim.topology import Topology
from tests.support.cluster import Cluster
from tests.support.manifests import clique
from tests.support.operating import World, operating
from tests.support.planes import FEWER_CONTROLLERS, GrovePlane

GANGS = "scheduler: {profiles: [{name: default-scheduler, config: {gangScheduling: true}}]}\n"
PER_CLIQUE = (
    "scheduler: {profiles: [{name: default-scheduler, config: {gangScheduling: true, gangMapping: PerClique}}]}\n"
)
GATES = {"GenericWorkload": True, "GangScheduling": True}
VERSION_OF = {"1.36.3": kube_api.V1ALPHA2, "1.35.4": kube_api.V1ALPHA1}
NEWEST_FIRST = pytest.mark.parametrize(
    "gangs", ["1.36.3", pytest.param("1.35.4", marks=pytest.mark.soak)], indirect=True
)
"""For tests in which the versions do not differ: the older one is left to `make soak`."""


class GangPlane(GrovePlane):
    """A control plane that can be upgraded."""

    def upgrade(self, version: str) -> None:
        """All but etcd, which keeps its data, stopped and started again in another version."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver"):
            self._children.pop(name).stop(GRACE_S[name])
        self.version, self.settings = version, _settings(version)
        self.blueprint.binaries, self.blueprint.settings = find_or_build(version), self.settings
        self.start_apiserver()
        self._start_controllers()

    def scheduler_metrics(self) -> str:
        admin = self.blueprint.apiserver_client()
        scheduler = Loopback(self.blueprint.ports.scheduler, admin.authority, admin.certificate, admin.key)
        return scheduler.call("GET", "/metrics").decode()


def _settings(
    version: str, gates: Mapping[str, bool] | None = None, *, served: bool = True, **options: Any
) -> Settings:
    return Settings(
        feature_gates=GATES if gates is None else gates,
        runtime_config={f"scheduling.k8s.io/{VERSION_OF[version]}": True} if served else {},
        scheduler=True,
        controller_manager=True,
        **options,
    )


@contextmanager
def gang_plane(
    directory: Path,
    version: str,
    gates: Mapping[str, bool] | None = None,
    *,
    served: bool = True,
    scheduler_args: tuple[str, ...] = (),
    controller_manager_args: tuple[str, ...] = (FEWER_CONTROLLERS,),
) -> Iterator[GangPlane]:
    """A control plane with the gates for gangs, its Workload API (unless `served` is off) and Grove's CRDs."""
    extra = {
        "extra_scheduler_args": scheduler_args,
        "extra_controller_manager_args": controller_manager_args,
    }
    plane = GangPlane(directory, version)
    plane.settings = _settings(version, gates, served=served, **extra)
    with plane:
        yield plane


class RealCluster(Cluster):
    """The cluster of one test, for `tests.support.operating`."""

    def __init__(self, client: HttpClient, namespace: str, stack: AsyncExitStack) -> None:
        super().__init__(client, SYSTEM, None, stack)
        self.namespace = namespace


@asynccontextmanager
async def gang_world(
    plane: ControlPlane, namespace: str, *, gpus: int = 12, racks: int = 1, config: str = GANGS
) -> AsyncIterator[World]:
    """An operator and nodes of four accelerators each, `gpus` in all and as many in each rack."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        cluster = RealCluster(client, namespace, stack)
        await install(client, say=lambda line: None)
        await client.create(Namespace, {"metadata": {"name": namespace}})
        await cluster.eventually(lambda: client.get(ServiceAccount, "default", namespace))
        shape = Topology(racks=racks, nodes=gpus // 4 // racks, gpus=4, cpu="64")
        world = await stack.enter_async_context(operating(cluster, config=config, nodes=shape))
        try:
            yield world
        finally:
            await client.delete(Namespace, namespace)


def hungry(name: str, replicas: int, *, gpus: int = 1, **options: Any) -> Json:
    """A clique each of whose pods takes accelerators."""
    made = clique(name, replicas, **options)
    resources = {"nvidia.com/gpu": str(gpus)}
    made["spec"]["podSpec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    made["spec"]["podSpec"]["terminationGracePeriodSeconds"] = 0
    return made


async def occupy(world: World, name: str, gpus: int) -> None:
    """Takes accelerators of the first node that has as many, without asking a scheduler."""
    used: dict[str, int] = dict.fromkeys(sorted(world.nodes.names), 0)
    for pod in (await world.client.list(Pod)).items:
        if pod.spec.node_name in used:
            asked = pod.spec.containers[0].resources.requests.get("nvidia.com/gpu", 0)
            used[pod.spec.node_name] += int(asked)
    node = next(one for one, taken in used.items() if taken + gpus <= 4)
    await loose_pod(world, name, gpus=gpus, nodeName=node)


async def loose_pod(world: World, name: str, *, gpus: int, **fields: Any) -> None:
    """A pod without an owner."""
    resources = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "c", "image": "x", "resources": {"requests": resources, "limits": resources}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **fields}
    await world.client.create(Pod, {"metadata": {"name": name, "namespace": world.namespace}, "spec": spec})


async def bound(world: World, *cliques: str) -> int:
    """How many of these cliques' pods have a node; without names, of all sets' pods."""
    pods = [pod for name in cliques for pod in await world.pods(name)] if cliques else await world.pods()
    return sum(pod.is_bound for pod in pods if "grove.io/podclique" in pod.metadata.labels)


async def is_bound(world: World, count: int, *cliques: str) -> bool:
    return await bound(world, *cliques) == count


async def released(world: World, *cliques: str, count: int) -> bool:
    """True if this number of pods of these cliques exists and none of them is gated."""
    pods = [pod for name in cliques for pod in await world.pods(name)]
    return len(pods) == count and not any(pod.is_gated for pod in pods)


async def bindings_within(world: World, seconds: float) -> list[str]:
    """Pods of sets that got a node while we watched, for so long."""
    before = {pod.metadata.name for pod in await world.pods() if pod.is_bound}
    seen: dict[str, None] = {}
    try:
        async with asyncio.timeout(seconds):
            async for event in world.client.watch(Pod, world.namespace, initial_events=True):
                found = event.object
                if isinstance(found, Pod) and found.is_bound and "grove.io/podclique" in found.metadata.labels:
                    seen[found.metadata.name] = None
    except TimeoutError:
        pass
    return sorted(seen.keys() - before)


async def objects(world: World, resource: Resource) -> dict[str, Json]:
    page = await world.client.list(resource, world.namespace)
    return {one["metadata"]["name"]: _without_nulls(one) for one in page.items}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


async def gang_said(world: World, name: str, type_: str) -> tuple[str, str]:
    gang = await world.get(PodGang, name)
    found = next((one for one in gang.status.conditions if one.type == type_), None)
    return (found.status, found.reason) if found is not None else ("", "")


async def says(world: World, gang: str, status: str, reason: str, type_: str = "SchedulerObjectsReady") -> bool:
    return await gang_said(world, gang, type_) == (status, reason)


async def group_said(world: World, name: str, status: str) -> str:
    """Why kube-scheduler 1.36 says so of a PodGroup; empty until it does, which may be long after it bound the pods."""
    found = (await objects(world, kube_api.pod_group(kube_api.V1ALPHA2))).get(name, {})
    conditions = found.get("status", {}).get("conditions", ())
    wanted = [one for one in conditions if (one["type"], one["status"]) == ("PodGroupScheduled", status)]
    return wanted[0]["reason"] if wanted else ""
