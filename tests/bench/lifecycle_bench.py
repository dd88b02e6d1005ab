"""Start order, updates and gang termination in figures: on a real API server, with grove-scheduler and fake nodes.

Release is measured on `grove startup` itself, many processes of it, from the moment the API server has a parent's Ready
to the end of the process. What a container runtime needs to start the next container comes on top, in any system.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from grove.api import conditions as words
from grove.api.core import Node, Pod
from grove.api.meta import Json, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.crds.install import install
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim import kubelet
from tests.bench.figures import Figure
from tests.bench.floor import numbered, unavoidable
from tests.bench.operator_bench import Bench, clear, fake_nodes, operating, running, token_kubeconfig, writes
from tests.bench.planes import stock_plane
from tests.support.manifests import clique, pcs

PAIRS, AT_ONCE = 240, 20
REPLICAS, NODES = 100, 32
SETS, DELAY_S = 20, 5
POD = Pod.RESOURCE


class Releases:
    """Waiting processes as init containers run them, a batch at a time, each for a parent pod of its own."""

    def __init__(self, client: HttpClient, directory: Path, token: str) -> None:
        self._client = client
        self._account, self._info = directory / "account", directory / "info"
        for folder, files in (
            (self._account, {"token": token.encode(), "ca.crt": client.config.ca}),
            (self._info, {"namespace": b"default", "podgangname": b"web-0"}),
        ):
            folder.mkdir()
            for name, content in files.items():
                (folder / name).write_bytes(content)

    async def batch(self, first: int, count: int) -> list[float]:
        """Seconds from Ready to release of each."""
        numbers = range(first, first + count)
        for number in numbers:
            labels = {"grove.io/podgang": "web-0", "grove.io/podclique": f"web-0-p{number}"}
            spec = {"containers": [{"name": "c", "image": "none"}], "schedulerName": "nobody"}
            meta = {"name": f"p{number}", "namespace": "default", "labels": labels}
            await self._client.create(POD, {"metadata": meta, "spec": spec})
        waiting = [await self._start(number) for number in numbers]
        for child in waiting:
            await _said(child, "waiting for")
        taken = []
        for number, child in zip(numbers, waiting, strict=True):
            # One after the other: the ends of twenty programs on one machine would be waiting for each other.
            ready = await self._make_ready(number)
            taken.append(await _ended(child) - ready)
        return taken

    async def alone(self) -> tuple[float, float]:
        """Seconds from the start of one such process to its first look at the pods, and its memory then, in MB."""
        began = time.perf_counter()
        child = await self._start(0)
        await _said(child, "waiting for")
        seconds = time.perf_counter() - began
        memory_mb = _peak_mb(child.pid)
        child.terminate()
        await child.wait()
        return seconds, memory_mb

    async def _start(self, number: int) -> asyncio.subprocess.Process:
        address = urlsplit(self._client.config.server)
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "grove.startup", "--pod-info", str(self._info), "--account", str(self._account),
            f"--podcliques=web-0-p{number}:1", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={
                **os.environ, "KUBERNETES_SERVICE_HOST": str(address.hostname),
                "KUBERNETES_SERVICE_PORT": str(address.port),
            },
        )  # fmt: skip

    async def _make_ready(self, number: int) -> float:
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        await self._client.patch(POD, f"p{number}", {"status": status}, "default", subresource="status")
        return time.perf_counter()


def _peak_mb(pid: int) -> float:
    (highest_kb,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(highest_kb) / 1024


async def _said(child: asyncio.subprocess.Process, what: str) -> None:
    assert child.stdout is not None
    while what not in (await child.stdout.readline()).decode():
        assert not child.stdout.at_eof()


async def _ended(child: asyncio.subprocess.Process) -> float:
    assert await child.wait() == 0
    return time.perf_counter()


async def releases(client: HttpClient, directory: Path, results: dict[str, Figure]) -> None:
    token = (await client.config.credentials.current()).token
    crowd, taken = Releases(client, directory, token), []
    starts = sorted([await crowd.alone() for _ in range(5)])
    results["lifecycle: grove startup, from start to its first look"] = Figure(starts[2][0] * 1000, "ms", "<= 300 ms")
    results["lifecycle: grove startup, memory"] = Figure(starts[2][1], "MB", "<= 40 MB")
    for first in range(0, PAIRS, AT_ONCE):
        taken += await crowd.batch(first, AT_ONCE)
    taken.sort()
    for name, rank in (("median", 0.5), ("p99", 0.99)):
        value = taken[int(rank * (len(taken) - 1))] * 1000
        results[f"lifecycle: parent Ready to release, {name} of {PAIRS}"] = Figure(value, "ms", "p99 <= 1 s")
    await client.delete_collection(Pod, "default")


async def least_update(bench: Bench) -> float:
    """Seconds in which a bare client replaces as many pods, one at a time: deleted, gone, made, bound, Ready."""
    one = [obj for obj in unavoidable(pcs("roll", clique("w"))) if obj["kind"] == "Pod"]
    pods = [pod for n in range(REPLICAS) for pod in numbered(one, "roll-0", f"roll-{n}", n)]
    nodes = itertools.cycle(node.metadata.name for node in bench.cache.list(Node))

    async def make(pod: Json) -> None:
        await bench.client.create(POD, pod)
        await bench.client.bind("default", pod["metadata"]["name"], next(nodes))

    await asyncio.gather(*(make(pod) for pod in pods))
    await bench.until(lambda: bench.pods(ready=True) == REPLICAS)
    began = time.perf_counter()
    for pod in pods:
        await bench.client.delete(Pod, pod["metadata"]["name"], "default")
        await bench.until(lambda: bench.pods() == REPLICAS - 1)
        await make(pod)
        await bench.until(lambda: bench.pods(ready=True) == REPLICAS)
    seconds = time.perf_counter() - began
    await bench.client.delete_collection(Pod, "default")
    await bench.until(lambda: not bench.pods())
    return seconds


async def update(bench: Bench, results: dict[str, Figure], least_s: float) -> None:
    """One changed variable in a set of many replicas of one pod, one replica at a time."""
    await bench.client.create(PodCliqueSet, pcs("roll", clique("w"), replicas=REPLICAS))
    await bench.until(lambda: bench.available() == REPLICAS)
    await asyncio.sleep(3.0)
    before, began = bench.operator.ask(), time.perf_counter()
    found: Json = await bench.client.get(PodCliqueSet.RESOURCE, "roll", "default")
    cliques = found["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["env"] = [{"name": "VERSION", "value": "two"}]
    await bench.client.patch(PodCliqueSet, "roll", {"spec": {"template": {"cliques": cliques}}}, "default")

    def over() -> bool:
        (one,) = bench.cache.list(PodCliqueSet)
        progress = one.status.update_progress
        return progress is not None and progress.update_ended_at is not None

    await bench.until(over)
    seconds = time.perf_counter() - began
    await asyncio.sleep(3.0)  # what is still on its way belongs to it
    after = bench.operator.ask()
    results[f"lifecycle: update of {REPLICAS} replicas, one at a time"] = Figure(seconds, "s", "", least_s)
    results["lifecycle: API writes a replaced pod"] = Figure(writes(after, before) / REPLICAS, "")
    cpu = (after["cpu_s"] - before["cpu_s"]) / REPLICAS * 1000
    results["lifecycle: operator's CPU a replaced pod"] = Figure(cpu, "ms")
    for call, count in after["calls"].items():
        spent = count - before["calls"].get(call, 0)
        if spent * 10 >= REPLICAS and call.split()[0] not in ("get", "list", "watch"):
            results[f"lifecycle: … {call}"] = Figure(spent / REPLICAS, "")
    await clear(bench)


async def breaches(bench: Bench, results: dict[str, Figure]) -> None:
    """From the end of the delay to the deletion of the gang's pods, as a watch sees both.

    The condition's time is cut to seconds on the wire; the delay counts from when it was first seen instead.
    """
    for number in range(SETS):
        manifest = pcs(f"b{number}", clique("w", 2), termination_delay=f"{DELAY_S}s")
        await bench.client.create(PodCliqueSet, manifest)
    await bench.until(lambda: bench.available() == SETS)
    gone: dict[str, datetime] = {}
    since: dict[str, datetime] = {}

    def on_pod(old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is not None and (new is None or new.metadata.is_deleting):
            gone.setdefault(pod.metadata.labels.get("app.kubernetes.io/part-of", ""), datetime.now(UTC))

    def on_clique(old: PodClique | None, new: PodClique | None) -> None:
        found = find_condition(new.status.conditions, words.MIN_AVAILABLE_BREACHED) if new is not None else None
        if new is not None and found is not None and found.status == "True":
            since.setdefault(new.metadata.labels["app.kubernetes.io/part-of"], datetime.now(UTC))

    bench.cache.on_event(Pod, on_pod)
    bench.cache.on_event(PodClique, on_clique)
    await asyncio.sleep(2.0)
    for name in sorted(f"b{number}-0-w" for number in range(SETS)):
        page = await bench.client.list(kubelet.RunPod, "default", labels=f"grove.io/podclique={name}")
        pod = page.items[0]
        report = kubelet.crashed(pod, SYSTEM.now(), exit_code=1)
        await bench.client.patch(kubelet.RunPod, pod.metadata.name, report, "default", subresource="status")
        await asyncio.sleep(0.3)  # apart, as failures are: each answer is timed, not the crowd
    await bench.until(lambda: len(gone) == SETS, 60.0)
    late = sorted((gone[name] - since[name]).total_seconds() - DELAY_S for name in gone)
    results[f"lifecycle: breach to restart, late by (median of {SETS})"] = Figure(late[SETS // 2] * 1000, "ms")
    results["lifecycle: … at most"] = Figure(late[-1] * 1000, "ms", "<= 1 s")
    await clear(bench)


async def measure(plane: ControlPlane, results: dict[str, Figure]) -> None:
    async with HttpClient(load_config(plane.kubeconfig)) as admin:
        await install(admin, lambda said: None)
        kubeconfig = await token_kubeconfig(admin, plane.directory)
    async with HttpClient(load_config(kubeconfig)) as client:
        await releases(client, plane.directory, results)
        bench = Bench(plane, client)
        async with bench.cache:
            with running(bench, fake_nodes(kubeconfig, NODES)):
                await bench.cache.wait_synced()
                await bench.until(lambda: len(bench.cache.list(Node)) == NODES)
                least_s = await least_update(bench)
                with operating(bench, kubeconfig):
                    await update(bench, results, least_s)
                    await breaches(bench, results)


def run(results: dict[str, Figure]) -> None:
    with tempfile.TemporaryDirectory() as folder, stock_plane(folder) as plane:
        asyncio.run(measure(plane, results))
