"""The line between our processes and the API server, which can be bad: a reverse proxy that speaks HTTP on both sides.

While it is bad, requests and watched events are late. A request is sent on twice and the second answer given. An answer
is lost after the work was done. An event of a watch comes twice. `cut` ends all watches at once. `balancer` stands
in front of admission as the Service would: it connects to the first process that answers.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from grove.local.ports import LOOPBACK

NOT_PASSED_ON = ("host", "connection", "transfer-encoding", "content-length")


@dataclass(frozen=True, slots=True)
class Quality:
    """Probabilities a request or event, and the longest delay."""

    delay_s: float = 0.0
    twice: float = 0.0
    lost: float = 0.0


GOOD = Quality()
BAD = Quality(delay_s=0.8, twice=0.15, lost=0.08)


class Line:
    """`quality` may be changed at any time; it holds for requests and events from then on."""

    def __init__(self, server: str, authority: bytes, rng: random.Random) -> None:
        self._server, self._tls = server, ssl.create_default_context(cadata=authority.decode())
        self._rng = rng
        self.quality = GOOD
        self.done = Counter[str]()
        self._watches: dict[int, web.Request] = {}

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Gives the address for kubeconfigs."""
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            self._session = session
            app = web.Application(client_max_size=16 * 1024**2)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
            await runner.setup()
            try:
                await web.TCPSite(runner, LOOPBACK, 0).start()
                yield f"http://{LOOPBACK}:{runner.addresses[0][1]}"
            finally:
                await runner.cleanup()

    def cut(self) -> int:
        """Ends every open watch in the middle; how many there were."""
        cut = list(self._watches.values())
        for request in cut:
            _hang_up(request)
        self.done["watches cut"] += len(cut)
        return len(cut)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        await self._linger()
        is_watch = request.query.get("watch") in ("true", "1")
        try:
            if not is_watch and self._strikes(self.quality.twice):
                self.done["requests sent twice"] += 1
                async with self._ask(request, body) as first:
                    await first.read()
            async with self._ask(request, body) as answer:
                if is_watch:
                    return await self._stream(request, answer)
                content = await answer.read()
        except aiohttp.ClientError:
            return _hang_up(request)
        await self._linger()
        if self._strikes(self.quality.lost):
            self.done["answers lost"] += 1
            return _hang_up(request)
        return web.Response(status=answer.status, body=content, headers=_headers(answer.headers))

    def _ask(self, request: web.Request, body: bytes) -> aiohttp.client._RequestContextManager:
        url = f"{self._server}{request.path_qs}"
        return self._session.request(request.method, url, data=body or None, headers=_headers(request.headers))

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        given = web.StreamResponse(status=answer.status, headers=_headers(answer.headers))
        await given.prepare(request)
        self._watches[id(request)] = request
        try:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    await self._linger()
                    again = self._strikes(self.quality.twice)
                    self.done["events given twice"] += again
                    await given.write((line + b"\n") * (1 + again))
            if rest:
                await given.write(rest)
        except (ConnectionError, aiohttp.ClientError):
            return _hang_up(request)
        finally:
            del self._watches[id(request)]
        return given

    async def _linger(self) -> None:
        if self.quality.delay_s:
            await asyncio.sleep(self._rng.uniform(0, self.quality.delay_s))

    def _strikes(self, rate: float) -> bool:
        return rate > 0 and self._rng.random() < rate


def _headers(headers: object) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in NOT_PASSED_ON]  # type: ignore[attr-defined]


def _hang_up(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


@asynccontextmanager
async def balancer(ports: Callable[[], Sequence[int]]) -> AsyncIterator[int]:
    """A port whose connections go to the first of these ports that takes them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in ports():
            try:
                there = await asyncio.open_connection(LOOPBACK, port)
                break
            except OSError:
                continue
        else:
            writer.close()
            return
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
