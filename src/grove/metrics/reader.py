"""The process that reads pages: targets in, numbers out.

`grove metrics` starts it beside the process that serves. Reading four hundred pages a second keeps a Python process
busy a third of the time, and an autoscaler's request would wait behind pages. If a page causes an unexpected error,
only this process ends, and the other starts a new one (see `readerprocess`).

    python -m grove.metrics.reader FD      # FD: our end of the pair of sockets
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from grove.metrics import messages
from grove.metrics.engines import DCGM
from grove.metrics.messages import (
    Begin,
    Counted,
    Follow,
    Forget,
    FromReader,
    GpusRead,
    Hurry,
    Names,
    PageFault,
    PageRead,
    ToReader,
)
from grove.metrics.numbers import numbers_of, wanted_names
from grove.metrics.page import labelled, scan
from grove.metrics.scrape import Bounds, Scraper
from grove.metrics.targets import Target

PAGE_UNREADABLE, PAGE_STRANGE = "MetricsUnreadable", "MetricsStrange"
THOROUGH_EVERY = 30
"""One page of a pod in this number is searched for names that have no TYPE line."""
SEND_EVERY_S = 0.05
COUNT_EVERY_S = 1.0
MOST_UNSENT = 20_000
"""Messages kept for a serving process that does not listen; what it misses is absent there, as it should be."""
NICENESS = 5
"""Where there is too little CPU for both, answers come before pages."""


@dataclass(slots=True)
class _Reading:
    """The state of one pod's metrics between two pages."""

    pages: int = 0
    untyped: frozenset[str] = frozenset()
    strange: bool = False


class PageReader:
    """Follows its targets and sends the numbers of their pages."""

    def __init__(self, bounds: Bounds, publish: Callable[[FromReader], None]) -> None:
        self._publish = publish
        self._wanted = wanted_names(())
        self._readings: dict[tuple[str, str], _Reading] = {}
        self._engines = Scraper(bounds, self.take_page, self._unreadable)
        self._gpus = Scraper(bounds, self.take_gpus, self._unreadable)

    def obey(self, message: ToReader) -> None:
        match message:
            case Names(raw):
                self._wanted = wanted_names(raw)
            case Follow(what, target, within_s):
                self._scraper(what).follow(target, within_s=within_s)
            case Forget(what, namespace, pod):
                self._scraper(what).forget(namespace, pod)
                if what == "engine":
                    self._readings.pop((namespace, pod), None)
            case Hurry(namespace, pod):
                self._engines.hurry(namespace, pod)
            case Begin():
                pass  # was there before us

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._engines.run(), name="engines")
            group.create_task(self._gpus.run(), name="exporters")
            group.create_task(self._count(), name="counts")

    def take_page(self, target: Target, page: bytes, at: float) -> None:
        reading = self._readings.setdefault((target.namespace, target.pod), _Reading())
        thorough = reading.pages % THOROUGH_EVERY == 0
        scanned = scan(page, self._wanted, untyped=reading.untyped, thorough=thorough)
        reading.pages += 1
        if thorough:
            reading.untyped = scanned.untyped
        self._publish(PageRead(target.namespace, target.pod, at, numbers_of(scanned)))
        if scanned.faults and not reading.strange:
            message = f"its page of metrics has samples that are not used: {scanned.faults[0]}"
            self._publish(PageFault(target.namespace, target.pod, PAGE_STRANGE, message))
        reading.strange = bool(scanned.faults)

    def take_gpus(self, target: Target, page: bytes, at: float) -> None:
        highest: dict[tuple[str, str], float] = {}

        def visit(labels: dict[str, str], value: float) -> None:
            where = (labels.get("namespace", ""), labels.get("pod", ""))
            highest[where] = max(highest.get(where, 0.0), value)

        labelled(page, DCGM.name, visit)
        self._publish(GpusRead(at, tuple((*where, value * DCGM.scale) for where, value in highest.items())))

    def _scraper(self, what: messages.What) -> Scraper:
        return self._engines if what == "engine" else self._gpus

    def _unreadable(self, target: Target, reason: str) -> None:
        message = f"its page of metrics at port {target.port} {reason}"
        self._publish(PageFault(target.namespace, target.pod, PAGE_UNREADABLE, message))

    async def _count(self) -> None:
        while True:
            counts = [scraper.counts() for scraper in (self._engines, self._gpus)]
            self._publish(Counted(sum(read for read, _ in counts), sum(failed for _, failed in counts)))
            await asyncio.sleep(COUNT_EVERY_S)


async def serve(pair: socket.socket) -> None:
    """Reads pages until the other end of the pair is closed."""
    stream, writer = await asyncio.open_unix_connection(sock=pair)
    outbox: list[FromReader] = []
    (begin,) = messages.to_reader.decode(await messages.read_frame(stream))
    assert isinstance(begin, Begin)

    def publish(message: FromReader) -> None:
        if len(outbox) < MOST_UNSENT:
            outbox.append(message)

    reader = PageReader(Bounds(begin.interval_s, begin.timeout_s, begin.page_bytes, begin.concurrent), publish)

    async def listen() -> None:
        while True:
            for message in messages.to_reader.decode(await messages.read_frame(stream)):
                reader.obey(message)

    async def send() -> None:
        while True:
            await asyncio.sleep(SEND_EVERY_S)
            if outbox:
                writer.write(messages.frame(outbox))
                outbox.clear()
                await writer.drain()

    async with asyncio.TaskGroup() as group:
        for work in (listen(), send(), reader.run()):
            group.create_task(work)


def main() -> None:
    # A signal to the whole group is the other process' to answer; we end when it does.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    gc.freeze()
    try:
        # Not uvloop: bodies of 200 KB cost a tenth more there, measured.
        asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
    except* (EOFError, ConnectionError):
        pass  # the serving process has ended


if __name__ == "__main__":
    main()
