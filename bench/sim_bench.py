"""How fast the simulated cluster is: the price of a thousand seeded runs, and of a demo with hundreds of pods."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from bench.figures import Figure, stopwatch
from grove.api.core import Node, Pod
from grove.api.podclique import PodClique
from grove.kube.cache import Cache
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.loop import run as run_virtual
from grove.sim.topology import Topology

PODS, PATCHES, STARTS, READERS = 3000, 3000, 20, 20
POD_SPEC = {
    "schedulingGates": [{"name": "grove.io/podgang-pending-creation"}],
    "containers": [
        {
            "name": "worker",
            "image": "registry.example/worker:1",
            "args": ["--model", "llama"],
            "env": [{"name": f"GROVE_{at}", "value": str(at)} for at in range(8)],
            "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "8", "memory": "64Gi"}},
        }
    ],
}


def run(results: dict[str, Figure]) -> None:
    with stopwatch() as taken:
        run_virtual(_to_ready(PODS, readers=1))
    results["simulator: pods created, ungated, bound, Ready"] = Figure(PODS / taken.wall_s, "pods/s")
    with stopwatch() as taken:
        run_virtual(_to_ready(PODS, readers=READERS))
    results[f"simulator: the same with {READERS} caches watching"] = Figure(PODS / taken.wall_s, "pods/s")
    with stopwatch() as taken:
        run_virtual(_patch_status(PATCHES))
    results["simulator: status patches of a PodClique"] = Figure(PATCHES / taken.wall_s, "patches/s")
    with stopwatch() as taken:
        for _ in range(STARTS):
            run_virtual(_idle(0.0))
    results["simulator: start of a cluster"] = Figure(taken.wall_s / STARTS * 1000, "ms")
    with stopwatch() as taken:
        run_virtual(_idle(4 * 3600.0))
    results["simulator: four idle hours, 64 nodes, 20 watches"] = Figure(taken.wall_s * 1000, "ms")


async def _to_ready(count: int, *, readers: int) -> None:
    async with SimCluster(nodes=Topology(racks=8, nodes=8)) as cluster:
        client, names = cluster.client(), cluster.nodes.names
        caches = [Cache(cluster.client()) for _ in range(readers - 1)]
        for cache in caches:
            cache.add(Pod)
            cache.start()
        done = asyncio.ensure_future(_all_ready(cluster.client(), count))

        async def make_ready(at: int) -> None:
            meta = {"generateName": "pod-", "namespace": "default", "labels": {"app": "x"}}
            pod = await client.create(Pod, {"metadata": meta, "spec": POD_SPEC})
            name, gate = pod.metadata.name, [{"op": "remove", "path": "/spec/schedulingGates/0"}]
            await client.patch(Pod, name, gate, "default")
            await client.bind("default", name, names[at % len(names)], uid=pod.metadata.uid)

        await asyncio.gather(*(make_ready(at) for at in range(count)))
        await done
        for cache in caches:
            await cache.stop()


async def _all_ready(client: SimClient, count: int) -> None:
    ready: set[str] = set()
    async with aclosing(client.watch(Pod, "default", initial_events=True)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.object is not None and event.object.is_ready:
                ready.add(event.object.metadata.uid)
                if len(ready) == count:
                    return


async def _patch_status(count: int) -> None:
    async with SimCluster() as cluster:
        client = cluster.client()
        spec = {"roleName": "r", "replicas": 4, "podSpec": POD_SPEC}
        await client.create(PodClique, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})
        for at in range(count):
            status = {"replicas": at, "readyReplicas": at, "scheduledReplicas": at}
            await client.patch(PodClique, "c", {"status": status}, "default", subresource="status")


async def _idle(seconds: float) -> None:
    async with SimCluster(nodes=Topology(racks=8, nodes=8) if seconds else None) as cluster:
        caches = [Cache(cluster.client()) for _ in range(10 if seconds else 0)]
        for cache in caches:
            cache.add(Pod)
            cache.add(Node)
            cache.start()
        await asyncio.sleep(seconds)
        for cache in caches:
            await cache.stop()
