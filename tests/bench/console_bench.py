"""What the console costs with many viewers: 50 pages on 1,000 sets, 10,000 pods and 10,000 nodes that keep changing.

Server and viewers are processes of their own; the figures are the server's. The cluster is made up inside the server,
so the API server's part and the reading of its watches are small in them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from aiohttp import ClientSession, ClientTimeout

from tests.bench.figures import Figure

ROOT = Path(__file__).parents[2]
NODES, SETS, PODS, CHANGES, VIEWERS, SECONDS = 10_000, 1_000, 10, 20, 50, 30.0


def run(results: dict[str, Figure]) -> None:
    words = [sys.executable, "-m", "tests.bench.console_server", *map(str, (NODES, SETS, PODS, CHANGES))]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    begun = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env) as server:
        try:
            assert server.stdout is not None
            port, session = server.stdout.readline().split()
            up_s = time.perf_counter() - begun
            process = psutil.Process(server.pid)
            first_s, told = asyncio.run(_watched(int(port), session))
            before, wall = process.cpu_times(), time.perf_counter()
            told = asyncio.run(_watched(int(port), session, SECONDS))[1]
            after, wall = process.cpu_times(), time.perf_counter() - wall
            cpu = (after.user + after.system - before.user - before.system) / wall
            name = f"console, {VIEWERS} viewers, {SETS:,} sets, {NODES:,} nodes"
            results[f"{name}: CPU"] = Figure(100 * cpu, "% of a core", "≤ 60")
            results[f"{name}: memory"] = Figure(process.memory_info().rss / 1e6, "MB", "≤ 500")
            results[f"{name}: events to all viewers"] = Figure(told / wall, "a second")
            results["console: whole picture to a new viewer"] = Figure(first_s, "s", "≤ 1.5")
            results["console: from start to serving"] = Figure(up_s, "s")
        finally:
            server.terminate()


async def _watched(port: int, session: str, seconds: float = 0.0) -> tuple[float, int]:
    """How long the first picture took for one viewer; with `seconds`, how many events all viewers were told."""
    headers, told = {"Authorization": f"Bearer {session}"}, 0

    async def watch() -> float:
        nonlocal told
        begun, first_s = time.perf_counter(), 0.0
        async with http.get(f"http://127.0.0.1:{port}/api/stream", headers=headers) as stream:
            while True:
                chunk = await stream.content.readuntil(b"\n\n")
                told += chunk.startswith(b"id:")
                first_s = first_s or time.perf_counter() - begun
                if time.perf_counter() - begun >= seconds:
                    return first_s

    async with ClientSession(timeout=ClientTimeout(), read_bufsize=2**25) as http:
        found = await asyncio.gather(*(watch() for _ in range(VIEWERS if seconds else 1)))
    return found[0], told
