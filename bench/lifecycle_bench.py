"""Start order, updates and gang termination in figures: on a real API server, with grove-scheduler and fake nodes.

Release is measured on `grove startup` itself, many processes of it, from the moment the API server has a parent's Ready
to the end of the process. What a container runtime needs to start the next container comes on top, in any system. Its
baseline is a process that waits with the standard library alone (`bare_wait`). That of an update is a bare client that
replaces the pods one by one. That of a restart after a breach is a bare client's delete, until a watch shows it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.support.manifests import clique, pcs

from bench.baseline import NUMBER
from bench.figures import Figure
from bench.operator_bench import (
    BEFORE,
    SETTLE_S,
    Bench,
    bare_client,
    clear,
    fake_nodes,
    operating,
    running,
    token_kubeconfig,
    writes,
)
from bench.planes import stock_plane
from grove.api import conditions as words
from grove.api.core import Node, Pod
from grove.api.meta import Json, Key, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.crds.install import install
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim import kubelet

PAIRS, AT_ONCE = int(os.environ.get("GROVE_BENCH_PAIRS", "240")), 20
ABSENT = 10_000
"""The number of a parent that is not there."""
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

    async def batch(self, first: int, count: int, *, bare: bool = False) -> list[float]:
        """Seconds from Ready to release of each; of processes that only wait if `bare`."""
        numbers = range(first, first + count)
        for number in numbers:
            labels = {"grove.io/podgang": "web-0", "grove.io/podclique": f"web-0-p{number}"}
            spec = {"containers": [{"name": "c", "image": "none"}], "schedulerName": "nobody"}
            meta = {"name": f"p{number}", "namespace": "default", "labels": labels}
            await self._client.create(POD, {"metadata": meta, "spec": spec})
        waiting = [await self._start(number, bare=bare) for number in numbers]
        for child in waiting:
            await _said(child, "waiting for")
        taken = []
        for number, child in zip(numbers, waiting, strict=True):
            # One after the other: the ends of twenty programs on one machine would be waiting for each other.
            ready = await self._make_ready(number)
            taken.append(await _ended(child) - ready)
        return taken

    async def alone(self, *, bare: bool = False) -> tuple[float, float]:
        """Seconds from the start of one such process to its first look at the pods, and its memory then, in MB."""
        began = time.perf_counter()
        child = await self._start(ABSENT, bare=bare)
        await _said(child, "waiting for")
        seconds = time.perf_counter() - began
        memory_mb = _peak_mb(child.pid)
        child.terminate()
        await child.wait()
        return seconds, memory_mb

    async def _start(self, number: int, *, bare: bool = False) -> asyncio.subprocess.Process:
        address, parent = urlsplit(self._client.config.server), f"web-0-p{number}"
        folders = ["--pod-info", str(self._info), "--account", str(self._account)]
        command = ["grove.startup", *folders, f"--podcliques={parent}:1"]
        if bare:
            command = ["bench.bare_wait", str(self._account), parent]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={
                **os.environ,
                "KUBERNETES_SERVICE_HOST": str(address.hostname),
                "KUBERNETES_SERVICE_PORT": str(address.port),
            },
        )

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
    crowd, taken, least = Releases(client, directory, token), list[float](), list[float]()
    for first in range(0, 2 * PAIRS, 2 * AT_ONCE):
        least += await crowd.batch(first, AT_ONCE, bare=True)
        taken += await crowd.batch(first + AT_ONCE, AT_ONCE)
    bare = sorted([await crowd.alone(bare=True) for _ in range(5)])[2]
    starts = sorted([await crowd.alone() for _ in range(5)])[2]
    results["lifecycle: grove startup, from start to its first look"] = Figure(
        starts[0] * 1000, "ms", "<= 300 ms", bare[0] * 1000
    )
    results["lifecycle: grove startup, memory"] = Figure(starts[1], "MB", "<= 40 MB", bare[1])
    for name, rank in (("median", 0.5), ("p99", 0.99)):
        value, baseline = (sorted(times)[int(rank * (len(times) - 1))] * 1000 for times in (taken, least))
        results[f"lifecycle: parent Ready to release, {name} of {PAIRS}"] = Figure(value, "ms", "p99 <= 1 s", baseline)
    await client.delete_collection(Pod, "default")


class Least(NamedTuple):
    """What a bare client takes that replaces as many pods, one at a time: wall seconds, and CPU seconds by process."""

    wall_s: float
    cpu_s: Mapping[str, float]


async def least_update(bench: Bench, kubeconfig: Path) -> Least:
    order = {"do": "replace", "set": pcs("roll", clique("w")), "count": REPLICAS}
    with bare_client(bench, kubeconfig) as bare:
        bare.say(json.dumps(order | {"rename": "roll-0", "to": f"roll-{NUMBER}"}))
        await asyncio.to_thread(bare.expect, "planned")
        await bench.until(lambda: bench.pods(ready=True) == REPLICAS)
        await asyncio.sleep(SETTLE_S)
        cpu, began = bench.cpu_s(), time.perf_counter()
        bare.say("")
        await asyncio.to_thread(bare.expect, "done")
        seconds = time.perf_counter() - began
        await asyncio.sleep(SETTLE_S)
        spent = bench.spent_since(cpu)
    await bench.client.delete_collection(Pod, "default")
    await bench.until(lambda: not bench.pods())
    return Least(seconds, spent)


async def update(bench: Bench, results: dict[str, Figure], least: Least, who: str = "lifecycle") -> None:
    """One changed variable in a set of many replicas of one pod, one replica at a time."""
    await bench.client.create(PodCliqueSet, pcs("roll", clique("w"), replicas=REPLICAS))
    await bench.until(lambda: bench.available() == REPLICAS)
    await asyncio.sleep(SETTLE_S)
    before, cpu, began = bench.operator.ask(), bench.cpu_s(), time.perf_counter()
    live: Json = await bench.client.get(PodCliqueSet.RESOURCE, "roll", "default")
    cliques = live["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["containers"][0]["env"] = [{"name": "VERSION", "value": "two"}]
    await bench.client.patch(PodCliqueSet, "roll", {"spec": {"template": {"cliques": cliques}}}, "default")

    def over() -> bool:
        (live_set,) = bench.cache.list(PodCliqueSet)
        progress = live_set.status.update_progress
        return progress is not None and progress.update_ended_at is not None

    await bench.until(over)
    seconds = time.perf_counter() - began
    await asyncio.sleep(SETTLE_S)  # what is still on its way belongs to it
    after, spent = bench.operator.ask(), bench.spent_since(cpu)
    results[f"{who}: update of {REPLICAS} replicas, one at a time"] = Figure(seconds, "s", "", least.wall_s)
    everybodys, baseline = (sum(cpu_of.values()) / REPLICAS * 1000 for cpu_of in (spent, least.cpu_s))
    results[f"{who}: CPU of all processes a replaced pod"] = Figure(everybodys, "ms", "", baseline)
    own, bare = spent["operator"] + spent["scheduler"], least.cpu_s["bare client"]
    results[f"{who}: CPU of operator and scheduler a replaced pod; baseline: the bare client"] = Figure(
        own / REPLICAS * 1000, "ms", "", bare / REPLICAS * 1000
    )
    results[f"{who}: operator's CPU a replaced pod"] = Figure(spent["operator"] / REPLICAS * 1000, "ms")
    results[f"{who}: API writes a replaced pod, operator's"] = Figure(writes(after, before) / REPLICAS, "")
    for call, count in after["calls"].items():
        more = count - before["calls"].get(call, 0)
        if more * 10 >= REPLICAS and call.split()[0] not in ("get", "list", "watch"):
            results[f"{who}: … {call}"] = Figure(more / REPLICAS, "")
    await clear(bench)


async def least_deletes(bench: Bench) -> list[float]:
    """Seconds from asking for a pod's deletion to the sight of it, of as many pods, sorted."""
    taken = []
    for number in range(SETS):
        name = f"least-{number}"
        spec = {"containers": [{"name": "c", "image": "none"}], "schedulerName": "nobody"}
        await bench.client.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        await bench.until(lambda: bench.cache.get(Pod, Key("default", name)) is not None)  # noqa: B023
        began = time.perf_counter()
        await bench.client.delete(Pod, name, "default")
        await bench.until(lambda: _is_leaving(bench.cache.get(Pod, Key("default", name))))  # noqa: B023
        taken.append(time.perf_counter() - began)
    return sorted(taken)


def _is_leaving(pod: Pod | None) -> bool:
    return pod is None or pod.metadata.is_deleting


async def breaches(bench: Bench, results: dict[str, Figure]) -> None:
    """From the end of the delay to the deletion of the gang's pods, as a watch sees both.

    The condition's time is cut to seconds on the wire; the delay counts from when it was first seen instead. The
    baseline is the delete by itself: from the request to what the same watch sees.
    """
    least_s = await least_deletes(bench)
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
        breached = find_condition(new.status.conditions, words.MIN_AVAILABLE_BREACHED) if new is not None else None
        if new is not None and breached is not None and breached.status == "True":
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
    for name, rank, aim in ((f"median of {SETS}", SETS // 2, ""), ("at most", -1, "<= 1 s")):
        results[f"lifecycle: breach to restart, late by ({name})"] = Figure(
            late[rank] * 1000, "ms", aim, least_s[rank] * 1000
        )
    await clear(bench)


async def measure(plane: ControlPlane, results: dict[str, Figure]) -> None:
    async with HttpClient(load_config(plane.kubeconfig)) as admin:
        await install(admin, lambda message: None)
        kubeconfig = await token_kubeconfig(admin, plane.directory)
    async with HttpClient(load_config(kubeconfig)) as client:
        await releases(client, plane.directory, results)
        bench = Bench(plane, client)
        async with bench.cache:
            with running(bench, fake_nodes(kubeconfig, NODES)):
                await bench.cache.wait_synced()
                await bench.until(lambda: len(bench.cache.list(Node)) == NODES)
                least = await least_update(bench, kubeconfig)
                if BEFORE:
                    with operating(bench, kubeconfig, BEFORE):
                        await update(bench, results, least, "before")
                with operating(bench, kubeconfig):
                    await update(bench, results, least)
                    await breaches(bench, results)


def run(results: dict[str, Figure]) -> None:
    with tempfile.TemporaryDirectory() as folder, stock_plane(folder) as plane:
        asyncio.run(measure(plane, results))
