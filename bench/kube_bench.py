"""What the kube layer costs: CPU of a request over TLS, watch decoding, a cache of 100,000 pods, the workqueue.

The server is a process of its own and replays pods in the API server's format. The sync is a process too, so that its
memory is measured alone. Times of our side are CPU seconds of the measured process, which a busy machine does not
change. The baseline is the HTTP library alone: it reads the same bytes, but does not decode or keep them.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp

from bench.figures import Figure, stopwatch
from grove.api.core import Pod
from grove.api.meta import Key
from grove.kube.cache import Cache
from grove.kube.connection import ClusterConfig
from grove.kube.http import HttpClient
from grove.kube.workqueue import Workqueue
from grove.local.pki import Authority

REQUESTS = 2000
EVENTS = 20_000
PODS = 100_000
KEYS = 50_000
IDLE_S = 2.0
PODS_PATH = "/api/v1/pods"
POD = "/api/v1/namespaces/ns/pods/a"


@contextmanager
def serving(pods: int, *, tls: bool) -> Iterator[ClusterConfig]:
    with tempfile.TemporaryDirectory() as folder:
        cert = key = ""
        ca = b""
        if tls:
            authority = Authority("bench")
            ca = authority.pair.certificate
            files = authority.server("bench-server").write(Path(folder), "server")
            cert, key = (str(file) for file in files)
        command = [sys.executable, "-m", "bench.kube_server", cert, key, str(pods)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            yield ClusterConfig(server=f"{'https' if tls else 'http'}://127.0.0.1:{port}", ca=ca)
        finally:
            child.terminate()
            child.wait()
            child.stdout.close()


def bare(config: ClusterConfig) -> aiohttp.ClientSession:
    """The HTTP library by itself."""
    connector = aiohttp.TCPConnector(ssl=config.ssl_context() or True)
    return aiohttp.ClientSession(config.server, connector=connector, read_bufsize=2**20)


async def read_stream(config: ClusterConfig, path: str, end: bytes) -> None:
    """Reads a stream until a chunk of it says `end`, and looks for nothing else."""
    last = b""
    async with bare(config) as http, http.get(path) as answer:
        async for chunk in answer.content.iter_any():
            if end in last[-len(end) :] + chunk:
                return
            last = chunk


async def requests(results: dict[str, Figure]) -> None:
    with serving(1, tls=True) as config:
        async with HttpClient(config) as client:
            patch = {"metadata": {"annotations": {"example.com/revision": "43"}}}
            for _ in range(50):
                await client.get(Pod, "a", "ns")
            with stopwatch() as gets:
                for _ in range(REQUESTS):
                    await client.get(Pod, "a", "ns")
            with stopwatch() as patches:
                for _ in range(REQUESTS):
                    await client.patch(Pod, "a", patch, "ns")
        async with bare(config) as http:
            with stopwatch() as least_gets:
                for _ in range(REQUESTS):
                    await (await http.get(POD)).read()
            with stopwatch() as least_patches:
                for _ in range(REQUESTS):
                    await (await http.patch(POD, data=json.dumps(patch))).read()
    for name, ours, least in (("typed GET", gets, least_gets), ("merge patch", patches, least_patches)):
        cpu_us, least_us = (cost.cpu_s / REQUESTS * 1e6 for cost in (ours, least))
        results[f"kube: {name} over TLS, CPU"] = Figure(cpu_us, "µs", "≤ 300 µs", least_us)


async def watch(results: dict[str, Figure]) -> None:
    with serving(EVENTS, tls=True) as config:
        async with HttpClient(config) as client:
            seen = 0
            with stopwatch() as took:
                async for event in client.watch(Pod, resource_version="1"):
                    if event.type == "BOOKMARK":
                        break
                    seen += 1
            assert seen == EVENTS
        with stopwatch() as least:
            await read_stream(config, f"{PODS_PATH}?watch=true&resourceVersion=1", b'"BOOKMARK"')
    results["kube: watch events decoded"] = Figure(seen / took.cpu_s, "per s and core", "≥ 25,000")
    results["kube: a watch event decoded, CPU"] = Figure(
        took.cpu_s / seen * 1e6, "µs", "≤ 40 µs", least.cpu_s / seen * 1e6
    )


async def sync_here(config: ClusterConfig) -> dict[str, float]:
    """Fills a cache with PODS pods and watches the loop afterwards, while every pod is modified once more."""
    async with HttpClient(config) as client:
        cache = Cache(client, tune_gc=True)
        cache.add(Pod)
        async with cache:
            with stopwatch() as took:
                await cache.wait_synced()
            assert len(cache.store(Pod)) == PODS
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            async with beating() as idle:
                await asyncio.sleep(IDLE_S)
            async with beating() as stalls:
                await _change_all(client, cache)
    return {
        "wall_s": took.wall_s,
        "cpu_s": took.cpu_s,
        "peak_mb": rss / 1024,
        "stall_ms": max(stalls) * 1e3,
        "idle_ms": max(idle) * 1e3,
    }


@asynccontextmanager
async def beating() -> AsyncIterator[list[float]]:
    """Seconds by which the loop was late, every few milliseconds of the block."""
    loop, late_s = asyncio.get_running_loop(), [0.0]

    async def beat() -> None:
        while True:
            due = loop.time() + 0.005
            await asyncio.sleep(0.005)
            late_s.append(loop.time() - due)

    task = loop.create_task(beat())
    try:
        yield late_s
    finally:
        task.cancel()


async def _change_all(client: HttpClient, cache: Cache) -> None:
    """Every pod is modified once more, and garbage is collected."""
    store = cache.store(Pod)
    async for event in client.watch(Pod, resource_version="1"):
        if event.object is None:
            break
        store.put(event.object)


def sync(results: dict[str, Figure]) -> None:
    with serving(PODS, tls=True) as config, tempfile.NamedTemporaryFile() as ca:
        Path(ca.name).write_bytes(config.ca)
        command = [sys.executable, "-m", "bench.kube_bench", "sync", config.server, ca.name]
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        with stopwatch() as least:
            streamed = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            asyncio.run(read_stream(config, f"{PODS_PATH}?{streamed}", b"k8s.io/initial-events-end"))
    measured = json.loads(out)
    results["kube: sync of 100,000 pods"] = Figure(measured["wall_s"], "s", "≤ 5 s", least.wall_s)
    results["kube: sync of 100,000 pods, CPU"] = Figure(measured["cpu_s"], "s", "", least.cpu_s)
    results["kube: memory with 100,000 pods"] = Figure(measured["peak_mb"], "MB", "≤ 1 GB")
    results["kube: longest loop stall after sync"] = Figure(measured["stall_ms"], "ms", "≤ 100 ms", measured["idle_ms"])


async def workqueue(results: dict[str, Figure]) -> None:
    queue: Workqueue[Key] = Workqueue()
    keys = [Key(f"ns-{n % 50}", f"object-{n}") for n in range(KEYS)]
    with stopwatch() as took:
        for key in keys:
            queue.add(key, priority=len(key.name) % 3)
        for key in keys:
            queue.add(key)  # a second event for each: seen as a second event, not queued twice
        for _ in keys:
            key = await queue.get()
            queue.forget(key)
            queue.done(key)
    results["kube: workqueue, keys added twice and taken"] = Figure(KEYS / took.cpu_s, "per s and core")


def run(results: dict[str, Figure]) -> None:
    """Adds the numbers of this package to `results`."""
    asyncio.run(requests(results))
    asyncio.run(watch(results))
    sync(results)
    asyncio.run(workqueue(results))


if __name__ == "__main__":
    if sys.argv[1:2] == ["sync"]:
        print(json.dumps(asyncio.run(sync_here(ClusterConfig(sys.argv[2], ca=Path(sys.argv[3]).read_bytes())))))
