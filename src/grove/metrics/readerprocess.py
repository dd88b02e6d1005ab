"""The reader of pages as the serving process sees it: it receives targets, sends numbers, and is restarted when it
ends.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import suppress

import structlog
from prometheus_client import Counter

from grove.metrics import messages
from grove.metrics.messages import Begin, Counted, Follow, Forget, FromReader, Hurry, Names, ToReader, What
from grove.metrics.scrape import Bounds
from grove.metrics.targets import Target

READS = Counter("grove_metrics_page_reads", "Pages of engines that were read, by outcome.", ["outcome"])
STARTS = Counter("grove_metrics_reader_starts", "Starts of the process that reads pages; more than one is trouble.")
_GOOD, _BAD = READS.labels("read"), READS.labels("failed")
SILENCE_S, START_S = 15.0, 60.0
"""A reader that says nothing for so long is ended; it speaks every second, once it has started."""
RESTART_S = (0.5, 2.0)
"""The pause before the next start, drawn between these."""
END_S = 1.0
AT_A_TIME = 8
"""Messages that are taken in before others have their turn."""

log = structlog.get_logger(__name__)


class ReaderProcess:
    """Accepts targets before the process runs and while it runs. A new process receives all of them."""

    def __init__(
        self,
        bounds: Bounds,
        receive: Callable[[FromReader], None],
        rng: random.Random | None = None,
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._bounds, self._receive, self._silence_s = bounds, receive, silence_s
        self._rng = rng or random.Random(random.getrandbits(64))
        self._targets: dict[tuple[What, str, str], Target] = {}
        self._raw: tuple[str, ...] = ()
        self._outbox: list[ToReader] = []
        self._has_mail = asyncio.Event()
        self.process: Process | None = None

    def __len__(self) -> int:
        return len(self._targets)

    def targets(self, what: What) -> list[Target]:
        return [target for (of, _, _), target in self._targets.items() if of == what]

    def follow(self, what: What, target: Target, *, within_s: float | None = None) -> None:
        """Reads this target from now on; saying so again changes nothing."""
        key = (what, target.namespace, target.pod)
        if self._targets.get(key) != target:
            self._targets[key] = target
            self._say(Follow(what, target, within_s))

    def forget(self, what: What, namespace: str, pod: str) -> None:
        if self._targets.pop((what, namespace, pod), None) is not None:
            self._say(Forget(what, namespace, pod))

    def hurry(self, namespace: str, pod: str) -> None:
        """There is reason to think that a page which could not be read can be read now."""
        self._say(Hurry(namespace, pod))

    def look_for(self, raw: tuple[str, ...]) -> None:
        self._raw = raw
        self._say(Names(raw))

    async def run(self) -> None:
        """Keeps a reader running until cancelled."""
        while True:
            try:
                await self._run_one()
            except* (EOFError, OSError) as group:  # a TimeoutError is an OSError
                log.error("the reader of pages has ended, another is started", why=repr(group.exceptions[0]))
            await asyncio.sleep(self._rng.uniform(*RESTART_S))

    async def _run_one(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = (sys.executable, "-m", "grove.metrics.reader", str(theirs.fileno()))
            process = await asyncio.create_subprocess_exec(*command, pass_fds=(theirs.fileno(),), stdin=DEVNULL)
        self.process = process
        STARTS.inc()
        stream, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            self._outbox = [Names(self._raw), *(Follow(key[0], target) for key, target in self._targets.items())]
            self._has_mail.set()
            bounds = self._bounds
            begin = Begin(bounds.interval_s, bounds.timeout_s, bounds.page_bytes, bounds.concurrent)
            writer.write(messages.frame([begin]))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(writer), name="to the reader")
                group.create_task(self._listen(stream), name="from the reader")
        finally:
            writer.close()
            await _ended(process)
            self.process = None

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._has_mail.wait()
            self._has_mail.clear()
            writer.write(messages.frame(self._outbox))
            self._outbox = []
            await writer.drain()

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        limit_s = START_S
        while True:
            async with asyncio.timeout(limit_s):
                body = await messages.read_frame(stream)
            limit_s = self._silence_s
            for number, message in enumerate(messages.from_reader.decode(body)):
                if isinstance(message, Counted):
                    _GOOD.inc(message.read)
                    _BAD.inc(message.failed)
                else:
                    self._receive(message)
                if number % AT_A_TIME == AT_A_TIME - 1:
                    await asyncio.sleep(0)  # after a stall a frame may be long, and a request may be waiting

    def _say(self, message: ToReader) -> None:
        if self.process is not None:
            self._outbox.append(message)
            self._has_mail.set()


async def _ended(process: Process) -> None:
    """Returns when the process is gone; it goes by itself when its socket is closed, or is killed."""
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
