"""One HTTP exchange with an API server: TLS, credentials, pool, time-outs, and failures as our errors.

This is the only module that uses aiohttp's client. It sends a request once, and again only with a newer credential.
`grove.kube.http` decides about every other repetition.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from grove.kube import wire
from grove.kube.connection import ClusterConfig, load_client_cert
from grove.kube.credentials import Credential
from grove.kube.errors import ConfigError, ConnectionLost, KubeError, Unauthorized, Unreachable

CONNECT_S = 10.0
IDLE_S = 50.0
"""An unused connection is closed before a load balancer would forget it."""

READ_BYTES = 1 << 18
"""Bytes of a large list that are buffered between the socket and us; with aiohttp's default it stops and starts."""


_DISCARD = struct.pack("ii", 1, 0)


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that drops what it has not delivered when it is closed.

    Otherwise the kernel would send the last data of a process for minutes, also after the process ended. When the
    network is back, a write of a former leader could then arrive.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
    return made


class Answer(NamedTuple):
    status: int
    body: bytes


class _Body(aiohttp.BytesPayload):
    """A body that asks `leaving` when its connection stands and its bytes would go.

    To get a connection may take longer than a lease lasts, and a process may be stopped on the way.
    """

    def __init__(self, body: bytes, content: str, leaving: Callable[[], None]) -> None:
        super().__init__(body, content_type=content)
        self._leaving = leaving
        self.held_back: KubeError | None = None

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        try:
            self._leaving()
        except KubeError as err:
            self.held_back = err
            raise
        await super().write_with_length(writer, content_length)


class Silence:
    """Ends a stream with TimeoutError when nothing comes for `limit_s`.

    One timer a silence, not one a chunk as aiohttp's `sock_read` has it: that costs a tenth of a watch event.
    """

    def __init__(self, content: aiohttp.StreamReader, limit_s: float) -> None:
        self._content, self._limit_s = content, limit_s
        self._loop = asyncio.get_running_loop()
        self._received_s = self._loop.time()

    def __enter__(self) -> Silence:
        self._timer = self._loop.call_at(self._received_s + self._limit_s, self._look)
        return self

    def __exit__(self, *exc: object) -> None:
        self._timer.cancel()

    def broken(self) -> None:
        """Something came."""
        self._received_s = self._loop.time()

    def _look(self) -> None:
        due_s = self._received_s + self._limit_s
        if due_s > self._loop.time():
            self._timer = self._loop.call_at(due_s, self._look)
        else:
            self._content.set_exception(TimeoutError())


class Transport:
    def __init__(self, config: ClusterConfig, *, user_agent: str, timeout_s: float, pool: int) -> None:
        self._config, self._pool = config, pool
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        self._base = config.server.rstrip("/")
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._headers["Accept-Encoding"] = "gzip" if config.compress else "identity"
        if config.impersonate:
            self._headers["Impersonate-User"] = config.impersonate
        self._session: aiohttp.ClientSession | None = None
        self._credential: Credential | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._by_content: dict[str, dict[str, str]] = {}
        self._extra: dict[str, Any] = {}
        if config.tls_server_name:
            self._extra["server_hostname"] = config.tls_server_name
        proxy = config.proxy()
        if proxy:
            self._extra["proxy"] = proxy

    def url(self, path: str) -> URL:
        return URL(self._base + path, encoded=True)

    async def close(self) -> None:
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(
        self,
        method: str,
        url: URL,
        body: bytes | None,
        content: str,
        leaving: Callable[[], None],
        *,
        again: bool = True,
    ) -> Answer:
        """The answer to one request; a refusal is raised as the error its Status names.

        `leaving` is called when credential and connection are there and the request would go; what it raises holds a
        write back. With `again` it is sent once more if the server did not know us and there is a newer credential.
        """
        session = await self._ready()
        used = self._credential
        data = _Body(body, content, leaving) if body is not None else None
        if data is None:
            leaving()
        headers = self._by_content.get(content) or self._headers_for(content)
        try:
            async with session.request(method, url, data=data, headers=headers, **self._extra) as got:
                payload = await got.read()
                if got.status < 400:
                    return Answer(got.status, payload)
                raise wire.error_of(got.status, payload, got.headers.get("Retry-After"))
        except Unauthorized:
            if not again or not await self._has_newer(used):
                raise
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            if data is not None and data.held_back is not None:
                raise data.held_back from None
            raise self._error(err) from err
        return await self.send(method, url, body, content, leaving, again=False)

    async def stream(self, url: URL, leaving: Callable[[], None], *, silence_s: float) -> AsyncGenerator[bytes, None]:
        """The chunks of a long answer, as they come; ConnectionLost when none comes for `silence_s`.

        That the answer begins, or a refusal ends, takes no longer than any other answer may take.
        """
        try:
            async with await self._begin(url, leaving) as got:
                content = got.content
                with Silence(content, silence_s) as silence:
                    while chunk := await content.readany():
                        silence.broken()
                        yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            raise self._error(err) from err

    async def _begin(self, url: URL, leaving: Callable[[], None], *, again: bool = True) -> aiohttp.ClientResponse:
        session = await self._ready()
        used = self._credential
        leaving()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        headers = self._by_content.get("") or self._headers_for("")
        async with asyncio.timeout(self._timeout.total):
            got = await session.request("GET", url, headers=headers, timeout=timeout, **self._extra)
        if got.status < 400:
            return got
        try:
            async with got, asyncio.timeout(self._timeout.total):
                raise wire.error_of(got.status, await got.read(), got.headers.get("Retry-After"))
        except Unauthorized:
            if not again or not await self._has_newer(used):
                raise
        return await self._begin(url, leaving, again=False)

    async def _has_newer(self, used: Credential | None) -> bool:
        """True if a newer credential may exist after the server refused this one.

        When a token is rotated, the server refuses many requests at once, also those of other clients of the same
        source. The first of them fetches a new credential, and the others use it.
        """
        await self._ready()
        return used is not self._credential or self._config.credentials.reject()

    async def _ready(self) -> aiohttp.ClientSession:
        credential = await self._config.credentials.current()
        if credential is not self._credential or self._session is None:
            self._session = self._adopt(credential)
        return self._session

    def _adopt(self, credential: Credential) -> aiohttp.ClientSession:
        """The session for a credential: the one there is, unless a new certificate needs new connections."""
        session, before = self._session, self._credential
        if session is None or before is None or before.cert != credential.cert:
            opened = self._open(credential)
            if session is not None:
                self._retire(session)
            session = opened
        self._credential = credential
        self._by_content.clear()
        return session

    def _open(self, credential: Credential) -> aiohttp.ClientSession:
        tls = self._config.ssl_context()
        if tls is not None and credential.cert:
            load_client_cert(tls, credential, self._config.source or self._config.server)
        connector = aiohttp.TCPConnector(
            ssl=tls if tls is not None else False, limit=self._pool, keepalive_timeout=IDLE_S, socket_factory=_socket
        )
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=self._config.compress,
            trust_env=False,
            read_bufsize=READ_BYTES,
        )
        # aiohttp would send a DELETE twice on its own, past the guard on writes and unknown to who counts attempts.
        session._retry_connection = False
        return session

    def _retire(self, session: aiohttp.ClientSession) -> None:
        """Closes the connections of the last certificate after their requests had time to end; watches resume."""

        async def close_later() -> None:
            try:
                await asyncio.sleep(self._timeout.total or 0.0)
            finally:
                await session.close()

        task = asyncio.get_running_loop().create_task(close_later(), name="retire-connections")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _headers_for(self, content: str) -> dict[str, str]:
        headers = dict(self._headers)
        if content:
            headers["Content-Type"] = content
        if self._credential is not None and self._credential.token:
            headers["Authorization"] = f"Bearer {self._credential.token}"
        self._by_content[content] = headers
        return headers

    def _error(self, err: Exception) -> KubeError:
        server = self._config.server
        if isinstance(err, aiohttp.ClientConnectorCertificateError):
            return ConfigError(
                f"{server}: the server's certificate is not trusted: {_tls_reason(err.certificate_error)}"
            )
        if isinstance(err, aiohttp.ClientConnectorSSLError | aiohttp.ClientSSLError):
            return ConfigError(f"{server}: TLS failed: {_tls_reason(err)}")
        if isinstance(err, aiohttp.InvalidURL):
            return ConfigError(f"{server} is not a usable address")
        if isinstance(err, aiohttp.ClientConnectorError):
            number = err.os_error.errno or 0
            # Names that do not resolve have negative numbers and words of their own.
            why = os.strerror(number) if number > 0 else err.os_error.strerror or str(err.os_error)
            return Unreachable(f"cannot reach {server}: {why}")
        if isinstance(err, aiohttp.ConnectionTimeoutError):
            return Unreachable(f"cannot reach {server}: no connection in {CONNECT_S:g} s")
        if isinstance(err, TimeoutError):
            return ConnectionLost(f"{server}: no answer in time")
        return ConnectionLost(f"{server}: connection lost: {err or type(err).__name__}")


def _tls_reason(err: BaseException) -> str:
    reason = getattr(err, "verify_message", "") or getattr(err, "reason", "") or str(err)
    return str(reason)
