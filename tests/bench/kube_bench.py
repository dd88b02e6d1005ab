"""What the kube layer costs: CPU of a request over TLS, watch decoding, a cache of 100,000 pods, the workqueue.

The server stands in a process of its own and replays pods in the API server's format; the sync runs in one too, so that
its memory is its own. Times of our side are CPU seconds of the measured process, which a busy machine does not stretch.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grove.api.core import Pod
from grove.api.meta import Key
from grove.kube.cache import Cache
from grove.kube.connection import ClusterConfig
from grove.kube.http import HttpClient
from grove.kube.workqueue import Workqueue
from grove.local.pki import Authority
from tests.bench.figures import Figure, stopwatch

REQUESTS = 2000
EVENTS = 20_000
PODS = 100_000
KEYS = 50_000


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
        command = [sys.executable, "-m", "tests.bench.kube_server", cert, key, str(pods)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            yield ClusterConfig(server=f"{'https' if tls else 'http'}://127.0.0.1:{port}", ca=ca)
        finally:
            child.terminate()
            child.wait()
            child.stdout.close()


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
    results["kube: typed GET over TLS, CPU"] = Figure(gets.cpu_s / REQUESTS * 1e6, "µs", "≤ 300 µs")
    results["kube: merge patch over TLS, CPU"] = Figure(patches.cpu_s / REQUESTS * 1e6, "µs", "≤ 300 µs")


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
    results["kube: watch events decoded"] = Figure(seen / took.cpu_s, "per s and core", "≥ 25,000")


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
            stall = await _worst_stall(client, cache)
    return {"wall_s": took.wall_s, "cpu_s": took.cpu_s, "peak_mb": rss / 1024, "stall_ms": stall * 1e3}


async def _worst_stall(client: HttpClient, cache: Cache) -> float:
    """The longest the loop was late while all pods changed and garbage was collected."""
    worst = 0.0
    loop = asyncio.get_running_loop()
    busy = True

    async def beat() -> None:
        nonlocal worst
        while busy:
            due = loop.time() + 0.005
            await asyncio.sleep(0.005)
            worst = max(worst, loop.time() - due)

    beating = loop.create_task(beat())
    store = cache.store(Pod)
    count = 0
    async for event in client.watch(Pod, resource_version="1"):
        if event.object is None:
            break
        store.put(event.object)
        count += 1
    busy = False
    await beating
    return worst


def sync(results: dict[str, Figure]) -> None:
    with serving(PODS, tls=True) as config, tempfile.NamedTemporaryFile() as ca:
        Path(ca.name).write_bytes(config.ca)
        command = [sys.executable, "-m", "tests.bench.kube_bench", "sync", config.server, ca.name]
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found = json.loads(out)
    results["kube: sync of 100,000 pods"] = Figure(found["wall_s"], "s", "≤ 5 s")
    results["kube: sync of 100,000 pods, CPU"] = Figure(found["cpu_s"], "s")
    results["kube: memory with 100,000 pods"] = Figure(found["peak_mb"], "MB", "≤ 1 GB")
    results["kube: longest loop stall after sync"] = Figure(found["stall_ms"], "ms", "≤ 100 ms")


async def workqueue(results: dict[str, Figure]) -> None:
    queue: Workqueue[Key] = Workqueue()
    keys = [Key(f"ns-{n % 50}", f"object-{n}") for n in range(KEYS)]
    with stopwatch() as took:
        for key in keys:
            queue.add(key, priority=len(key.name) % 3)
        for key in keys:
            queue.add(key)  # a second event for each: told apart, not queued twice
        for _ in keys:
            key = await queue.get()
            queue.forget(key)
            queue.done(key)
    results["kube: workqueue, keys added twice and taken"] = Figure(KEYS / took.cpu_s, "per s and core")


def run(results: dict[str, Figure]) -> None:
    """Adds this room's numbers to `results`."""
    asyncio.run(requests(results))
    asyncio.run(watch(results))
    sync(results)
    asyncio.run(workqueue(results))


if __name__ == "__main__":
    if sys.argv[1:2] == ["sync"]:
        print(json.dumps(asyncio.run(sync_here(ClusterConfig(sys.argv[2], ca=Path(sys.argv[3]).read_bytes())))))
