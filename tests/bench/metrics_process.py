"""The two processes of the metrics benchmark: engines that answer with pages of 200 KB, and a reader that serves them.

`engines` prints its port and answers every path but `/jump`, which raises the queue. `reader PORT PODS` reads them all
each ten seconds, serves the metrics APIs over plain HTTP, prints its port, and when its stdin closes what it cost.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

from aiohttp import web

from grove.api import labels as key
from grove.metrics.access import Aggregator, Ask, User
from grove.metrics.page import scan
from grove.metrics.readings import Readings
from grove.metrics.scrape import Bounds, Scraper
from grove.metrics.server import MetricsApi
from grove.metrics.service import THOROUGH_EVERY, RawNames
from grove.metrics.targets import Target
from tests.support.pages import cumulative, histogram, padded, vllm

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


async def watch_turns(turns: list[float]) -> None:
    """CPU that this process spent while somebody waited 5 ms for a turn: what a request may have to wait for, whatever
    else the machine does."""
    while True:
        before = time.process_time()
        await asyncio.sleep(0.005)
        turns.append(time.process_time() - before)


async def reader(port: int, pods: int) -> None:
    readings, names, pages = Readings(10.0), RawNames(), dict[str, int]()
    reads = 0

    def take(target: Target, found: bytes, at: float) -> None:
        nonlocal reads
        reads += 1
        seen = pages.get(target.pod, 0)
        pages[target.pod] = seen + 1
        readings.observe("n", target.pod, scan(found, names.wanted, thorough=seen % THOROUGH_EVERY == 0), at)

    bounds = Bounds(concurrent=int(sys.argv[4])) if len(sys.argv) > 4 else Bounds()
    scraper = Scraper(bounds, take, lambda target, why: print(why, file=sys.stderr))
    for number in range(pods):
        own = {key.PART_OF: f"s{number // 40}", key.SCALING_GROUP: f"s{number // 40}-0-g", key.POD_CLIQUE: f"c{number}"}
        readings.add_pod("n", f"p{number}", own)
        scraper.follow(Target("n", f"p{number}", "127.0.0.1", port, f"/p{number}"))
    api = MetricsApi(readings, names, Believing, Allowing())
    runner = web.AppRunner(api.application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    reading = asyncio.get_running_loop().create_task(scraper.run())
    await asyncio.sleep(15)  # every pod was read once, and searched thoroughly once
    started, cpu, before = time.monotonic(), time.process_time(), reads
    turns: list[float] = []
    watching = asyncio.get_running_loop().create_task(watch_turns(turns))
    await asyncio.to_thread(sys.stdin.read)
    watching.cancel()
    seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    share = (time.process_time() - cpu) / seconds
    turn_ms = 1000 * sorted(turns)[int(len(turns) * 0.99)]
    print(json.dumps({"core": share, "mb": peak, "per_s": (reads - before) / seconds, "turn_ms": turn_ms}), flush=True)
    reading.cancel()


if __name__ == "__main__":
    if sys.argv[1] == "engines":
        asyncio.run(engines())
    else:
        asyncio.run(reader(int(sys.argv[2]), int(sys.argv[3])))
