"""The processes of the metrics benchmark: engines that answer with pages of 200 KB, and a reader that serves them.

`engines` prints its port and answers every path but `/jump`, which raises the queue. `reader PORT PODS` reads them all
each ten seconds, serves the metrics APIs over plain HTTP, prints its port, and when its stdin closes what it cost.
`idle` answers everything and does nothing else. `fetch PORT PODS` gets as many pages as often, looks at none, and says
when its stdin closes what share of a core that took.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from tests.support.pages import cumulative, histogram, padded, vllm

from grove.api import labels as key
from grove.kube.run import loop_factory
from grove.metrics.access import Aggregator, Ask, User
from grove.metrics.exposition import page_slices
from grove.metrics.messages import FromReader, PageRead
from grove.metrics.readerprocess import ReaderProcess
from grove.metrics.readings import Readings
from grove.metrics.scrape import Bounds
from grove.metrics.server import MetricsApi
from grove.metrics.service import RawNames
from grove.metrics.targets import Target

PAGE_BYTES = 200 * 1024


def page(waiting: float, served: int) -> bytes:
    seen = cumulative([0.3, 0.7, 2.0, 4.0] * served)
    names = ("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds")
    more = "".join(histogram(name, seen) for name in names).encode()
    return padded(vllm(waiting, running=4, kv=0.5, latency=seen) + more, PAGE_BYTES)


class Engines(asyncio.Protocol):
    """As little of an HTTP server as will do: what is measured is the reader."""

    pages = [page(1, served) for served in range(1, 60)]
    begun = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET /jump"):
            Engines.pages = [page(2, served) for served in range(1, 60)]
        body = Engines.pages[min(int((time.monotonic() - Engines.begun) / 10), 58)]
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def engines() -> None:
    server = await asyncio.get_running_loop().create_server(Engines, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Believing(Aggregator):
    def find_user(self, certificate: Any, headers: Any) -> User | None:
        return User("hpa")


class Allowing:
    async def may(self, user: User, ask: Ask) -> bool:
        return True


async def reader(port: int, pods: int) -> None:
    """As `grove metrics` does it: pages are read by a process of their own."""
    readings = Readings(10.0)
    reads = 0

    def hear(message: FromReader) -> None:
        nonlocal reads
        if isinstance(message, PageRead):
            reads += 1
            readings.observe("n", message.pod, message.numbers, message.at)
        else:
            print(message, file=sys.stderr)

    process = ReaderProcess(Bounds(), hear)
    for number in range(pods):
        own = {key.PART_OF: f"s{number // 40}", key.SCALING_GROUP: f"s{number // 40}-0-g", key.POD_CLIQUE: f"c{number}"}
        readings.add_pod("n", f"p{number}", own)
        process.follow("engine", Target("n", f"p{number}", "127.0.0.1", port, f"/p{number}"))
    api = MetricsApi(readings, RawNames(), Believing, Allowing())
    app = api.application()
    app.router.add_get("/metrics", own_page(readings))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    reading = asyncio.get_running_loop().create_task(process.run())
    await asyncio.sleep(15)  # every pod was read once, and searched thoroughly once
    assert process.process is not None
    pids = {"serving": os.getpid(), "reading": process.process.pid}
    started, before = time.monotonic(), reads
    used = {name: cpu_s(pid) for name, pid in pids.items()}
    await asyncio.to_thread(sys.stdin.read)
    seconds = time.monotonic() - started
    cost = {"per_s": (reads - before) / seconds}
    for name, pid in pids.items():
        cost[f"{name} core"] = (cpu_s(pid) - used[name]) / seconds
        cost[f"{name} mb"] = peak_mb(pid)
    print(json.dumps(cost), flush=True)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def idle() -> None:
    """A server that does nothing but answer: what a request costs whatever is asked, on this machine at this moment."""
    app = web.Application()
    body = b'{"items": [{"value": "0"}]}'

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app.router.add_get("/{any:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def fetch(port: int, pods: int) -> None:
    """What it costs to get the pages with the HTTP library that the reader has."""
    turns = asyncio.Semaphore(32)
    print(port, flush=True)

    async def get(number: int) -> None:
        async with turns, http.get(f"http://127.0.0.1:{port}/p{number}") as answer:
            await answer.read()

    async def get_all() -> None:
        while True:
            began = time.monotonic()
            await asyncio.gather(*(get(number) for number in range(pods)))
            await asyncio.sleep(max(0.0, began + 10.0 - time.monotonic()))

    async with aiohttp.ClientSession() as http:
        getting = asyncio.get_running_loop().create_task(get_all())
        began, used = time.monotonic(), time.process_time()
        await asyncio.to_thread(sys.stdin.read)
        print(json.dumps((time.process_time() - used) / (time.monotonic() - began)), flush=True)
        getting.cancel()
        await asyncio.gather(getting, return_exceptions=True)


def own_page(readings: Readings) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Our page for a Prometheus, on the loop that also answers autoscalers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for part in page_slices(readings):
            await response.write(part)
        return response

    return answer


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    if sys.argv[1] == "engines":
        asyncio.run(engines())
    elif sys.argv[1] == "fetch":
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(fetch(int(sys.argv[2]), int(sys.argv[3])))
    elif sys.argv[1] == "idle":
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(idle())
    else:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(reader(int(sys.argv[2]), int(sys.argv[3])))
