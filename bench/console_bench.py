"""What the console costs with many viewers: 50 pages on 1,000 sets, 10,000 pods and 10,000 nodes that keep changing.

Server and viewers are processes of their own; the figures are the server's. The cluster is made up inside the server,
so the API server's part and the reading of its watches are small in them. The baseline is a server that writes the same
bytes at the same moments to as many viewers, and does nothing else (`replay_server`).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from aiohttp import ClientSession, ClientTimeout

from bench.figures import Figure

ROOT = Path(__file__).parents[1]
NODES, SETS, PODS, CHANGES, VIEWERS, SECONDS = 10_000, 1_000, 10, 20, 50, 30.0


Chunks = list[tuple[float, str]]


class Served(NamedTuple):
    """What a server with all its viewers took."""

    up_s: float
    first_s: float
    core: float
    memory_mb: float
    events_a_second: float
    written: Chunks
    """To the first viewer, with the seconds after it came."""


def run(results: dict[str, Figure]) -> None:
    ours = _measured("console_server", *map(str, (NODES, SETS, PODS, CHANGES)))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(ours.written, file)
        file.flush()
        least = _measured("replay_server", file.name)
    name = f"console, {VIEWERS} viewers, {SETS:,} sets, {NODES:,} nodes"
    results[f"{name}: CPU"] = Figure(100 * ours.core, "% of a core", "≤ 10", 100 * least.core)
    results[f"{name}: memory"] = Figure(ours.memory_mb, "MB", "≤ 500")
    results[f"{name}: events to all viewers"] = Figure(ours.events_a_second, "a second")
    results["console: whole picture to a new viewer"] = Figure(ours.first_s, "s", "≤ 1.5", least.first_s)
    results["console: from start to serving"] = Figure(ours.up_s, "s", "", least.up_s)


def _measured(module: str, *words: str) -> Served:
    begun = time.perf_counter()
    with _server(module, *words) as server:
        assert server.stdout is not None
        port, session = server.stdout.readline().split()
        up_s = time.perf_counter() - begun
        process = psutil.Process(server.pid)
        first_s, _, _ = asyncio.run(_watched(int(port), session))
        before, wall = process.cpu_times(), time.perf_counter()
        _, events, written = asyncio.run(_watched(int(port), session, SECONDS))
        after, wall = process.cpu_times(), time.perf_counter() - wall
        core = (after.user + after.system - before.user - before.system) / wall
        return Served(up_s, first_s, core, process.memory_info().rss / 1e6, events / wall, written)


@contextmanager
def _server(module: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", f"bench.{module}", *words]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env) as server:
        try:
            yield server
        finally:
            server.terminate()


async def _watched(port: int, session: str, seconds: float = 0.0) -> tuple[float, int, Chunks]:
    """How long the first picture took for one viewer; with `seconds`, how many events all viewers got, and what
    was written to the first."""
    headers, events, written = {"Authorization": f"Bearer {session}"}, 0, list[tuple[float, str]]()

    async def watch(number: int) -> float:
        nonlocal events
        begun, first_s = time.perf_counter(), 0.0
        async with http.get(f"http://127.0.0.1:{port}/api/stream", headers=headers) as stream:
            while not stream.content.at_eof():
                chunk = await stream.content.readuntil(b"\n\n")
                events += chunk.startswith(b"id:")
                after_s = time.perf_counter() - begun
                first_s = first_s or after_s
                if number == 0 and seconds:
                    written.append((after_s, chunk.decode()))
                if after_s >= seconds:
                    break
        return first_s

    async with ClientSession(timeout=ClientTimeout(), read_bufsize=2**25) as http:
        seconds_taken = await asyncio.gather(*(watch(number) for number in range(VIEWERS if seconds else 1)))
    return seconds_taken[0], events, written
