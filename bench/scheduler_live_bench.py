"""The live scheduler on a real API server: gangs of pods created at once on plain Node objects, until all are bound.

    python -m bench scheduler_live

The scheduler is a process of its own (`grove scheduler`); pods are created as fast as the API server takes them. Times
are those of this process's own watch. API server, etcd, scheduler and this process share the machine's cores. The
baseline is a bare client that binds the same pods once the last exists, and writes one status of their gang. A gang
cannot be bound earlier, and nothing is decided. `GROVE_BENCH_BEFORE` names an earlier checkout, whose scheduler places
gangs of the same sizes on the same nodes just before.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figures import Figure, cpu_s
from bench.operator_bench import BEFORE
from bench.planes import stock_plane
from bench.processes import Process, bare_process
from bench.reads import least_reading
from grove.api.core import Namespace, Node, Pod, ServiceAccount
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.crds.install import install
from grove.kube.cache import Cache
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.topology import Topology

SIZES = (10, 50, 100, 500)
BESIDE = {10: 0.23, 50: 0.57, 100: 0.79, 500: 4.9}
"""Seconds from the last pod created to the last bound that kube-scheduler's own gang takes on such a machine."""
CREATORS = 64
ROUNDS = 3
SETS, SET_PODS = 1_000, 4
"""Systems that run already when a gang of a hundred comes to the largest cluster, and how many pods each has."""


@dataclass
class Watched:
    """When pods were seen bound, by name; those that are waited for."""

    bound: dict[str, float] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def expect(self, names: Iterable[str]) -> None:
        self.bound, self.wanted = {}, frozenset(names)
        self.done.clear()

    def see(self, _: Pod | None, pod: Pod | None) -> None:
        name = pod.metadata.name if pod is not None and pod.spec.node_name else ""
        if name in self.wanted and name not in self.bound:
            self.bound[name] = time.perf_counter()
            if len(self.bound) == len(self.wanted):
                self.done.set()


def pod_json(name: str, namespace: str, gang: str, node: str = "") -> Json:
    resources = {"requests": {"cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"grove.io/podgang": gang}},
        "spec": {
            "schedulerName": "grove-scheduler",
            "automountServiceAccountToken": False,
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}],
        },
    }


def gang_json(name: str, namespace: str, pods: Iterable[str], required: str = "") -> Json:
    references = [{"namespace": namespace, "name": pod} for pod in pods]
    spec: Json = {"podgroups": [{"name": "workers", "minReplicas": len(references), "podReferences": references}]}
    if required:
        spec["topologyConstraint"] = {"packConstraint": {"required": required}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def all_at_once(work: Iterable[Any], limit: int = CREATORS) -> None:
    turns = asyncio.Semaphore(limit)

    async def in_turn(coro: Any) -> None:
        async with turns:
            await coro

    async with asyncio.TaskGroup() as group:
        for coro in work:
            group.create_task(in_turn(coro))


async def create_node(client: HttpClient, node: Json) -> None:
    """A node that takes pods at once: the API server taints new ones, and a controller takes that off in its time."""
    await client.create(Node, node)
    await client.patch(Node, node["metadata"]["name"], {"spec": {"taints": None}})


@asynccontextmanager
async def scheduler_process(
    kubeconfig: Path, folder: Path, checkout: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The scheduler, that of another checkout if one is named."""
    env = {**os.environ, "PYTHONPATH": f"{checkout}/src"} if checkout else None
    with (folder / "scheduler.log").open("wb") as log:
        command = [sys.executable, "-m", "grove", "scheduler", "--kubeconfig", str(kubeconfig), "--port", "0"]
        command += ["--no-leader-elect"]
        child = await asyncio.create_subprocess_exec(*command, stderr=log, stdout=log, env=env, cwd=checkout or None)
        try:
            while b"in step with the cluster" not in (folder / "scheduler.log").read_bytes():
                if child.returncode is not None:
                    raise RuntimeError((folder / "scheduler.log").read_text()[-2000:])
                await asyncio.sleep(0.05)
            yield child
        finally:
            child.terminate()
            await child.wait()


def peak_mb(pid: int) -> float:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


@dataclass(frozen=True)
class BareScheduler:
    """Binds given pods to given nodes: the baseline."""

    process: Process
    nodes: list[str]

    async def bind(self, namespace: str, pods: list[str], gang: str) -> None:
        places = [(pod, self.nodes[n * 7 % len(self.nodes)]) for n, pod in enumerate(pods)]
        self.process.say(json.dumps({"do": "bind", "namespace": namespace, "places": places, "gang": gang}))
        await asyncio.to_thread(self.process.expect, "done")


async def one_gang(
    client: HttpClient, watched: Watched, namespace: str, name: str, size: int, bare: BareScheduler | None = None
) -> tuple[float, float]:
    """Seconds from the first, and from the last, pod created to the last bound; by `bare` or by the scheduler."""
    names = [f"{name}-{n}" for n in range(size)]
    watched.expect(names)
    await client.create(PodGang, gang_json(name, namespace, names))
    first = last = 0.0

    async def create(pod: str) -> None:
        nonlocal first, last
        await client.create(Pod, pod_json(pod, namespace, name))
        last = time.perf_counter()
        first = first or last

    await all_at_once(create(pod) for pod in names)
    if bare is not None:
        await bare.bind(namespace, names, name)
    async with asyncio.timeout(120):
        await watched.done.wait()
    end = max(watched.bound.values())
    # There is no kubelet to end them in peace.
    await all_at_once(client.delete(Pod, pod, namespace, grace_period_s=0) for pod in names)
    await client.delete(PodGang, name, namespace)
    await asyncio.sleep(0.5)
    return end - first, end - last


async def run_sets(client: HttpClient, namespace: str, nodes: list[str]) -> None:
    """Systems as a cluster has them after a while: PodGangs whose pods are bound, spread over all nodes."""
    for n in range(SETS):
        pods = {f"set-{n}-{i}": nodes[(n * SET_PODS + i) * 7 % len(nodes)] for i in range(SET_PODS)}
        await all_at_once(client.create(Pod, pod_json(pod, namespace, f"set-{n}", node)) for pod, node in pods.items())
        await client.create(PodGang, gang_json(f"set-{n}", namespace, pods))


async def until_quiet(pid: int) -> None:
    """Waits until the scheduler has said what there is to say about what it found."""
    before = -1.0
    while cpu_s(pid) - before > 0.02:
        before = cpu_s(pid)
        await asyncio.sleep(1)


@dataclass(frozen=True)
class Gangs:
    """What gangs of several sizes took: medians of seconds by size (whole, tail), and CPU of the scheduler."""

    times_s: dict[int, tuple[float, float]]
    cpu_s: float
    pods: int

    @property
    def cpu_ms_a_pod(self) -> float:
        return self.cpu_s / self.pods * 1000


async def gangs_of(
    client: HttpClient,
    watched: Watched,
    namespace: str,
    sizes: Iterable[int],
    pid: int,
    bare: BareScheduler | None = None,
) -> Gangs:
    prefix = "g" if bare is None else "bare"
    await one_gang(client, watched, namespace, f"{prefix}-warm", 10, bare)
    before, times_s, pods = cpu_s(pid), dict[int, tuple[float, float]](), 0
    for size in sizes:
        times = [await one_gang(client, watched, namespace, f"{prefix}{size}-{n}", size, bare) for n in range(ROUNDS)]
        whole, tail = (sorted(part)[len(times) // 2] for part in zip(*times, strict=True))
        times_s[size], pods = (whole, tail), pods + size * ROUNDS
    return Gangs(times_s, cpu_s(pid) - before, pods)


async def measure_with_sets(
    client: HttpClient,
    watched: Watched,
    namespace: str,
    nodes: list[str],
    pid: int,
    least: Gangs,
    results: dict[str, Figure],
) -> None:
    await run_sets(client, namespace, nodes)
    await until_quiet(pid)
    gangs = await gangs_of(client, watched, namespace, [100], pid)
    what = f"100 pods, {len(nodes)} nodes, {SETS} sets running"
    for words, ours, baseline, aim in zip(
        ("first", "last"), gangs.times_s[100], least.times_s[100], ("≤ 10 s", "≤ 2 × 1,000 nodes"), strict=True
    ):
        results[f"{what}: {words} created → last bound"] = Figure(ours, "s", aim, baseline)
    results[f"{what}: scheduler CPU per pod"] = Figure(gangs.cpu_ms_a_pod, "ms", "", least.cpu_ms_a_pod)
    results[f"{what}: scheduler peak memory"] = Figure(peak_mb(pid), "MB")


async def measure(
    plane: ControlPlane, folder: Path, nodes: int, sizes: tuple[int, ...], results: dict[str, Figure], *, last: bool
) -> None:
    async with HttpClient(load_config(plane.kubeconfig), max_writes=CREATORS) as client:
        racks = max(1, nodes // 20 // 10)
        topology = Topology(blocks=10, racks=racks, nodes=20, prefix=f"n{nodes}-")
        await all_at_once(create_node(client, node) for node in topology.objects())
        namespace = f"bench-{nodes}"
        await client.create(Namespace, {"metadata": {"name": namespace}})
        try:
            await client.create(ServiceAccount, {"metadata": {"name": "default", "namespace": namespace}})
        except AlreadyExists:
            pass
        watched, cache = Watched(), Cache(client)
        cache.add(Pod, namespace=namespace)
        cache.on_event(Pod, watched.see)
        names = [node["metadata"]["name"] for node in topology.objects()]
        async with cache:
            await cache.wait_synced()
            with bare_process(plane.kubeconfig) as bare:
                binder = BareScheduler(bare, names)
                least = await gangs_of(client, watched, namespace, sizes, bare.child.pid, binder)
            if BEFORE:
                async with scheduler_process(plane.kubeconfig, folder, BEFORE) as child:
                    before = await gangs_of(client, watched, namespace, sizes, child.pid)
                add_gangs(f"{nodes} nodes, before", before, least, results)
            async with scheduler_process(plane.kubeconfig, folder) as child:
                start_s = cpu_s(child.pid)
                gangs = await gangs_of(client, watched, namespace, sizes, child.pid)
                add_gangs(f"{nodes} nodes", gangs, least, results)
                read = await asyncio.to_thread(least_reading, plane.kubeconfig, ["/api/v1/nodes", "/api/v1/pods"])
                results[f"{nodes} nodes: scheduler CPU until in step"] = Figure(
                    start_s, "s", "baseline: starts and reads nodes and pods", read.cpu_s
                )
                results[f"{nodes} nodes: scheduler peak memory"] = Figure(peak_mb(child.pid), "MB")
                if last:
                    await measure_with_sets(client, watched, namespace, names, child.pid, least, results)
        if not last:
            await all_at_once(client.delete(Node, name) for name in names)


def add_gangs(what: str, gangs: Gangs, least: Gangs, results: dict[str, Figure]) -> None:
    for size, (whole, tail) in gangs.times_s.items():
        aim = f"≤ {BESIDE[size] / (4 if size == 500 else 2):.3g} s" if what == "1000 nodes" else ""
        least_whole, least_tail = least.times_s[size]
        results[f"{size} pods, {what}: last created → last bound"] = Figure(tail, "s", aim, least_tail)
        results[f"{size} pods, {what}: first created → last bound"] = Figure(whole, "s", "", least_whole)
    results[f"{what}: scheduler CPU per pod; baseline: the bare client"] = Figure(
        gangs.cpu_ms_a_pod, "ms", "", least.cpu_ms_a_pod
    )


async def main(results: dict[str, Figure], node_counts: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder, stock_plane(Path(folder) / "kube") as plane:
        async with HttpClient(load_config(plane.kubeconfig)) as client:
            await install(client, lambda _: None, 60)
        for nodes in node_counts:
            await measure(plane, Path(folder), nodes, sizes, results, last=nodes == node_counts[-1])


def run(results: dict[str, Figure]) -> None:
    """Adds the live scheduler's figures to `results`."""
    asyncio.run(main(results, (1_000, 10_000), SIZES))


if __name__ == "__main__":
    figures: dict[str, Figure] = {}
    counts = tuple(int(arg) for arg in sys.argv[1:]) or (1_000,)
    asyncio.run(main(figures, counts, SIZES))
    for name, figure in figures.items():
        print(f"{name:60} {figure.value:10.4g} {figure.unit:4} {figure.aim}")
