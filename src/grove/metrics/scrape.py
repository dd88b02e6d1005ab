"""Reads the pages of all targets, each once an interval, a bounded number at a time.

A page may be endless, huge, binary, slow or wrong. Then it costs only the numbers of its own pod and one warning.
Bytes, seconds and connections have limits, redirects are not followed, and a compressed answer is not unpacked. A
target that fails is read less and less often, so a crowd of dead pods does not delay the others.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
from yarl import URL

from grove.metrics.targets import Target

HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "User-Agent": "grove-metrics"}
LONGEST_PAUSE_S = 300.0
"""Between two tries of a target that keeps failing. A pod that becomes ready is tried at once."""


class BadPage(Exception):
    """A page that cannot be used; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of reading metrics pages."""

    interval_s: float = 10.0
    timeout_s: float = 3.0
    page_bytes: int = 4 * 1024 * 1024
    concurrent: int = 32


Take = Callable[[Target, bytes, float], None]
"""Receives a page and the loop's time at which it came; raises `BadPage` if it cannot be read."""
Warn = Callable[[Target, str], None]
"""Called once when a target's pages can no longer be used."""
PageKey = tuple[str, str]


class _Due(NamedTuple):
    at: float
    number: int
    key: PageKey


@dataclass(slots=True)
class _State:
    target: Target
    number: int
    failures: int = 0


class Scraper:
    """Follows targets. `follow` and `forget` come from a watch; `run` reads until it is cancelled."""

    def __init__(self, bounds: Bounds, take: Take, warn: Warn, rng: random.Random | None = None) -> None:
        self._bounds, self._take, self._warn = bounds, take, warn
        self._rng = rng or random.Random(random.getrandbits(64))
        self._states: dict[PageKey, _State] = {}
        self._due: list[_Due] = []
        self._numbers = 0
        self._earlier = asyncio.Event()
        self._read = self._failed = 0

    def __len__(self) -> int:
        return len(self._states)

    def follow(self, target: Target, *, within_s: float | None = None) -> None:
        """Reads this target from now on; asking again with the same target changes nothing.

        The first read comes `within_s`, by default within an interval, so that many targets do not begin together.
        """
        key = (target.namespace, target.pod)
        known = self._states.get(key)
        if known is not None and known.target == target:
            return
        self._schedule(key, _State(target, 0), within_s)

    def hurry(self, namespace: str, pod: str) -> None:
        """Forgets that a target failed: there is reason to think that it works now."""
        state = self._states.get((namespace, pod))
        if state is not None and state.failures:
            self._schedule((namespace, pod), _State(state.target, 0), 1.0)

    def forget(self, namespace: str, pod: str) -> None:
        self._states.pop((namespace, pod), None)

    def counts(self) -> tuple[int, int]:
        """Pages that were read and that could not be, since this was last asked."""
        counts = (self._read, self._failed)
        self._read = self._failed = 0
        return counts

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._bounds.timeout_s, sock_connect=min(1.0, self._bounds.timeout_s))
        # A connection a page: thousands of open ones would cost more memory than their making costs time.
        connector = aiohttp.TCPConnector(limit=self._bounds.concurrent, force_close=True, ssl=False)
        async with (
            aiohttp.ClientSession(
                connector=connector,
                timeout=timeout,
                headers=HEADERS,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
            asyncio.TaskGroup() as group,
        ):
            free = asyncio.Semaphore(self._bounds.concurrent)
            while True:
                key, state = await self._next()
                await free.acquire()
                group.create_task(self._visit(session, key, state)).add_done_callback(lambda _: free.release())

    async def _next(self) -> tuple[PageKey, _State]:
        """The next target, when its time has come."""
        loop = asyncio.get_running_loop()
        while True:
            self._earlier.clear()
            wait_s = self._due[0].at - loop.time() if self._due else None
            if wait_s is not None and wait_s <= 0:
                due = heapq.heappop(self._due)
                state = self._states.get(due.key)
                if state is not None and state.number == due.number:
                    return due.key, state
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._earlier.wait()
            except TimeoutError:
                pass

    async def _visit(self, session: aiohttp.ClientSession, key: PageKey, state: _State) -> None:
        started = asyncio.get_running_loop().time()
        try:
            page = await read_page(session, state.target, self._bounds.page_bytes)
            self._take(state.target, page, asyncio.get_running_loop().time())
        except Exception as error:
            # Whatever it is, it is of this page: one pod must not end the reading of all others.
            self._failed += 1
            state.failures += 1
            if state.failures == 1 and self._states.get(key) is state:
                self._warn(state.target, _reason(error, self._bounds))
        else:
            self._read += 1
            state.failures = 0
        if self._states.get(key) is state:
            pause_s = self._bounds.interval_s
            if state.failures:
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2 ** min(state.failures - 1, 10))
            self._push(key, state, started + pause_s * self._rng.uniform(0.95, 1.0))

    def _schedule(self, key: PageKey, state: _State, within_s: float | None) -> None:
        self._numbers += 1
        state.number = self._numbers
        self._states[key] = state
        within_s = self._bounds.interval_s if within_s is None else min(within_s, self._bounds.interval_s)
        self._push(key, state, asyncio.get_running_loop().time() + self._rng.uniform(0.0, within_s))

    def _push(self, key: PageKey, state: _State, at: float) -> None:
        heapq.heappush(self._due, _Due(at, state.number, key))
        if self._due[0].key == key:
            self._earlier.set()


async def read_page(session: aiohttp.ClientSession, target: Target, most_bytes: int) -> bytes:
    """The page of a target; raises `BadPage`, `aiohttp.ClientError`, `TimeoutError`."""
    url = URL.build(scheme=target.scheme, host=target.address, port=target.port, path=target.path)
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise BadPage(
                f"answered {answer.status}" + (", which is not followed" if answer.status // 100 == 3 else "")
            )
        if encoding := answer.headers.get("Content-Encoding", ""):
            raise BadPage(f"is encoded as {encoding[:20]}, but no encoding was asked for")
        if (answer.content_length or 0) > most_bytes:
            raise BadPage(f"has more than {most_bytes} bytes")
        parts: list[bytes] = []
        size = 0
        while part := await answer.content.readany():
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                raise BadPage(f"has more than {most_bytes} bytes")
    page = b"".join(parts)
    if b"\0" in page:
        raise BadPage("is binary")
    return page


def _reason(error: Exception, bounds: Bounds) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {bounds.timeout_s:g} s"
    if isinstance(error, (BadPage, aiohttp.ClientError, OSError, ValueError)):
        return str(error) or type(error).__name__
    return f"could not be taken in ({error!r}); this is a fault of grove's"
