"""Gangs through kube-scheduler 1.36, with the Workload API and without: time to all bound, and what telling costs.

A hundred gangs of twelve pods (two cliques) on a thousand fake nodes, one operator and one scheduler on this machine.
The baseline is a bare client that makes the same Services, cliques, gangs and pods on the same control plane.
kube-scheduler places the pods one by one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.kube_gangs import GANGS, GangPlane, RealCluster, gang_plane
from tests.support.manifests import clique, pcs
from tests.support.operating import KUBE, World, operating

from bench.baseline import NUMBER
from bench.figures import Figure
from bench.planes import STOCK
from bench.processes import bare_process
from grove.api.core import Namespace, Pod, ServiceAccount
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.crds.install import install
from grove.kube.config import load_config
from grove.kube.errors import Unavailable
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.topology import Topology

SETS, PODS = 100, 12
NODES = Topology(racks=10, nodes=100)
OFF = KUBE.replace("name: default-scheduler", "name: default-scheduler, config: {gang: Off}")
ATTEMPT_SECONDS = "scheduler_podgroup_scheduling_attempt_duration_seconds"
ATTEMPTS = "scheduler_podgroup_schedule_attempts_total"


@asynccontextmanager
async def _cluster(plane: ControlPlane, namespace: str) -> AsyncIterator[tuple[RealCluster, AsyncExitStack]]:
    """Grove's kinds and a namespace of its own on a control plane."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        await install(client, say=lambda line: None)
        await client.create(Namespace, {"metadata": {"name": namespace}})
        cluster = RealCluster(client, namespace, stack)
        await cluster.eventually(lambda: client.get(ServiceAccount, "default", namespace))
        yield cluster, stack


def _gang(**fields: Any) -> Json:
    return pcs("b", clique("prefill", 4), clique("decode", 8), **fields)


async def _least(plane: ControlPlane, namespace: str = "baseline") -> float:
    """Seconds until every pod is bound that a bare client makes."""
    order = {"do": "make", "set": _gang(namespace=namespace), "count": SETS, "scheduler": "default-scheduler"}
    async with _cluster(plane, namespace) as (cluster, _):
        await cluster.add_nodes(NODES)
        with bare_process(plane.kubeconfig) as bare:
            bare.say(json.dumps(order | {"rename": "b-0", "to": f"b-{NUMBER}", "promised": True}))
            await asyncio.to_thread(bare.expect, "planned")
            bound = await _watching(cluster.client, namespace)
            began = time.perf_counter()
            bare.say("")
            await bound
            took_s = time.perf_counter() - began
            await asyncio.to_thread(bare.expect, "done")
            bare.say(json.dumps({"do": "remove"}))
            await asyncio.to_thread(bare.expect, "done")

        async def gone() -> bool:
            return not (await cluster.client.list(Pod, namespace, limit=1)).items

        await cluster.eventually(gone, 300)
    return took_s


async def _measure(plane: ControlPlane, namespace: str, config: str) -> tuple[float, float]:
    """Seconds until every pod is bound, and the operator's writes a pod."""
    async with _cluster(plane, namespace) as (cluster, stack):
        world = await stack.enter_async_context(operating(cluster, config=config, nodes=NODES))
        bound = await _watching(world.client, namespace)
        began, before = time.perf_counter(), sum(world.writes().values())
        await world.apply(_gang(replicas=SETS))
        await bound
        took_s = time.perf_counter() - began
        await world.quiet(timeout_s=300)
        wrote = sum(world.writes().values()) - before
        await world.delete(PodCliqueSet, "b")
        await world.eventually(lambda: _is_gone(world), 300)
        return took_s, wrote / (SETS * PODS)


async def _is_gone(world: World) -> bool:
    return not await world.names(PodClique)


async def _watching(client: HttpClient, namespace: str) -> asyncio.Task[None]:
    """Ends when every pod is bound; it watches before the first is made, as a busy server is slow to begin a watch."""
    task = asyncio.create_task(_all_bound(client, namespace))
    await asyncio.sleep(1)
    return task


async def _all_bound(client: HttpClient, namespace: str) -> None:
    bound: set[str] = set()
    while len(bound) < SETS * PODS:  # a watch ends now and then, and a busy server may refuse to begin one
        with suppress(Unavailable):
            async for event in client.watch(Pod, namespace, initial_events=True):
                if event.object is not None and event.object.is_bound:
                    bound.add(event.object.metadata.uid)
                if len(bound) == SETS * PODS:
                    return


def _sum(metrics: str, name: str, **labels: str) -> float:
    """Of all series of this name that have these labels."""
    series = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", metrics, re.MULTILINE)
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(float(value) for own, value in series if all(label in own for label in wanted))


def _quantile_s(metrics: str, name: str, q: float) -> float:
    """An upper bound of a quantile: the first bucket of a histogram that holds this share of it."""
    total = _sum(metrics, f"{name}_count")
    edges = sorted(set(re.findall(rf'^{name}_bucket\{{.*le="([^"]+)"', metrics, re.MULTILINE)), key=float)
    return next((float(edge) for edge in edges if _sum(metrics, f"{name}_bucket", le=edge) >= q * total), float("inf"))


def stock_gangs(directory: Path) -> AbstractContextManager[GangPlane]:
    """As people have it: all controllers, stock settings, and only the gates of gangs switched on."""
    os.environ.pop("GOGC", None)
    return gang_plane(directory, "1.36.3", controller_manager_args=STOCK)


def run(results: dict[str, Figure]) -> None:
    with tempfile.TemporaryDirectory() as directory, stock_gangs(Path(directory)) as plane:
        least_s = asyncio.run(_least(plane))
        plain_s, plain = asyncio.run(_measure(plane, "plain", OFF))
        gangs_s, gangs = asyncio.run(_measure(plane, "gangs", GANGS))
        metrics = plane.scheduler_metrics()
    results["100 gangs of 12 pods bound by kube-scheduler, one by one"] = Figure(plain_s, "s", "", least_s)
    results["100 gangs of 12 pods bound by kube-scheduler, as gangs"] = Figure(gangs_s, "s", "", least_s)
    results["writes a pod that gangs add"] = Figure(gangs - plain, "", "≤ 0.3")
    results["attempts of kube-scheduler a gang"] = Figure(_sum(metrics, ATTEMPTS) / SETS, "", "1")
    results["p99 of an attempt at a gang, at most"] = Figure(_quantile_s(metrics, ATTEMPT_SECONDS, 0.99), "s", "")
