"""The HTTP server of the console: the page, one stream of changes for each viewer, and questions.

There are no cookies and no ambient authority. Every request carries a token in its Authorization header, so another
site cannot make a browser send a valid request. The server accepts only its own host names (DNS rebinding). The page
loads nothing from elsewhere and cannot be framed. Bodies, streams and questions under way are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
import structlog
from aiohttp import web

from grove import __version__
from grove.console.ledger import Change, Ledger
from grove.console.trends import LONGEST_S, Trends
from grove.console.viewers import RIGHTS_S, Question, Unanswerable, Viewer, Watched
from grove.diagnosis.words import camel
from grove.kube.errors import ApiError, Forbidden, KubeError, NotFound, Unauthorized
from grove.show.figures import FLEET

STATIC = Path(__file__).parent / "static"
LARGEST_BODY = 1024 * 1024
MOST_STREAMS = 500
MOST_QUESTIONS = 4
"""Questions under way at a time: each may take a copy of the cluster and a second of a core."""
KEEPALIVE_S = 15.0
BUFFER = 64 * 1024
"""A viewer who reads slower than this fills is waited for; meanwhile changes are merged, not queued."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

log = structlog.get_logger(__name__)


class ViewerDirectory(Protocol):
    """Finds viewers by their tokens."""

    mode: str

    async def find(self, token: str) -> Viewer | None: ...


class Console:
    """The console as an aiohttp application. `hosts` are the names it may be called by, beside loopback ones."""

    def __init__(
        self,
        viewer_directory: ViewerDirectory,
        questions: Mapping[str, Question],
        *,
        hosts: Collection[str] = (),
        token_header: str = "",
        act: Callable[[Mapping[str, Any]], Awaitable[Any]] | None = None,
        trends: Trends | None = None,
    ) -> None:
        self._viewer_directory, self._questions, self._act = viewer_directory, questions, act
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token_header = token_header
        self._trends = trends or Trends()
        self._asking = asyncio.Semaphore(MOST_QUESTIONS)
        self.streams = 0

    def application(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=[self._guard])
        app.router.add_get("/", self._page)
        app.router.add_get("/static/{file}", self._static)
        app.router.add_get("/healthz", self._healthy)
        app.router.add_get("/api/mode", self._mode)
        app.router.add_post("/api/session", self._session)
        app.router.add_get("/api/stream", self._stream)
        app.router.add_get("/api/series", self._series)
        app.router.add_post("/api/ask/{question}", self._ask)
        app.router.add_post("/api/act", self._acts)
        return app

    # Guarding

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        refused = "" if request.path == "/healthz" else self._stranger(request)
        try:
            response: web.StreamResponse = _answer(403, {"error": refused}) if refused else await handler(request)
        except web.HTTPException as error:
            response = _answer(error.status, {"error": error.reason})
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _stranger(self, request: web.Request) -> str:
        """Why a request is not from our own page; empty if nothing speaks against it."""
        host = (request.headers.get("Host") or "").lower()
        name = urlsplit(f"//{host}").hostname or ""
        if name not in ("localhost", "127.0.0.1", "::1") and name not in self._hosts:
            return f"the console does not know itself by the name {name!r} (--host names it)"
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host:
            return "requests of other sites are not answered"
        if request.path.startswith("/api/") and request.headers.get("Sec-Fetch-Site", "same-origin") not in (
            "same-origin",
            "none",
        ):
            return "requests of other sites are not answered"
        return ""

    async def _viewer(self, request: web.Request) -> Viewer:
        token = request.headers.get(self._token_header, "") if self._token_header else ""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if not token and scheme.lower() == "bearer":
            token = given.strip()
        viewer = await self._viewer_directory.find(token) if token else None
        if viewer is None:
            raise web.HTTPUnauthorized(reason="sign in first")
        return viewer

    # The page

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return _file("index.html")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["file"]
        if name not in _FILES:
            raise web.HTTPNotFound(reason="there is no such file")
        return _file(name)

    async def _healthy(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _mode(self, request: web.Request) -> web.StreamResponse:
        """The data that the page needs before a viewer signs in. It has nothing of the cluster."""
        by_header = bool(self._token_header and request.headers.get(self._token_header))
        return _answer(200, {"mode": self._viewer_directory.mode, "version": __version__, "signedIn": by_header})

    async def _session(self, request: web.Request) -> web.StreamResponse:
        opened = getattr(self._viewer_directory, "open", None)
        link = (await _body(request)).get("link")
        session = opened(link) if opened is not None and isinstance(link, str) else None
        if session is None:
            return _answer(401, {"error": "this link was used already; the console printed a new one"})
        return _answer(200, {"session": session})

    # Changes

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        viewer = await self._viewer(request)
        if self.streams >= MOST_STREAMS:
            return _answer(503, {"error": "too many pages are open; close some"})
        namespace = request.query.get("namespace", "")
        seen = request.headers.get("Last-Event-ID", "")
        try:
            async with viewer.watching(namespace) as watched:
                return await self._send_changes(request, viewer, watched, int(seen) if seen.isdecimal() else -1)
        except (KubeError, BaseExceptionGroup) as error:
            return _refused(error)

    async def _send_changes(
        self, request: web.Request, viewer: Viewer, watched: Watched, revision: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        response.headers.update(_HEADERS)
        await response.prepare(request)
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=BUFFER)
        loop = asyncio.get_running_loop()
        fresh, checked_s = revision < 0, loop.time()
        self.streams += 1
        try:
            async for change in _changes(watched.ledger, revision):
                if loop.time() - checked_s >= RIGHTS_S:
                    checked_s = loop.time()
                    if not await viewer.still_may(watched):
                        await response.write(b'event: ended\ndata: {"why": "your rights have changed"}\n\n')
                        break
                await response.write(_event(change, behind=change is not None and change.whole and not fresh))
                fresh = False
        except ConnectionResetError:
            pass  # the viewer has left
        finally:
            self.streams -= 1
        return response

    async def _series(self, request: web.Request) -> web.StreamResponse:
        """How the figures of the fleet, or of one set, were until now; the stream has how they go on."""
        viewer, asked = await self._viewer(request), request.query
        last = asked.get("last", "3600")
        if not last.isdecimal() or not 0 < int(last) <= LONGEST_S:
            return _answer(400, {"error": f"last must be a number of seconds, at most {LONGEST_S}"})
        try:
            async with viewer.watching(asked.get("namespace", "")) as watched:
                return _answer(200, await self._trends.answer(watched, asked.get("key", FLEET), int(last)))
        except (KubeError, BaseExceptionGroup) as error:
            return _refused(error)

    # Questions

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        viewer = await self._viewer(request)
        name = request.match_info["question"]
        question = self._questions.get(name)
        if question is None:
            raise web.HTTPNotFound(reason=f"there is no question {name}")
        asked = await _body(request)
        namespace = asked.pop("namespace", "")
        if not isinstance(namespace, str):
            return _answer(400, {"error": "namespace must be text"})
        try:
            async with self._asking:
                return _answer(200, camel(msgspec.to_builtins(await viewer.answer(question, namespace, asked))))
        except Unanswerable as error:
            return _answer(422, {"error": str(error)})
        except (KubeError, BaseExceptionGroup) as error:
            return _refused(error)

    async def _acts(self, request: web.Request) -> web.StreamResponse:
        await self._viewer(request)
        if self._act is None:
            return _answer(404, {"error": "the console changes nothing on a cluster"})
        try:
            return _answer(200, await self._act(await _body(request)))
        except (Unanswerable, KubeError) as error:
            return _answer(422, {"error": str(error)})


async def _changes(ledger: Ledger, revision: int) -> AsyncIterator[Change | None]:
    """Changes after a revision as they come; None now and then, so that a silent line is known to be alive."""
    while True:
        change = ledger.since(revision)
        if not change.is_empty:
            yield change
        revision = change.revision
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                await ledger.moved(revision)
        except TimeoutError:
            yield None


def _event(change: Change | None, *, behind: bool) -> bytes:
    if change is None:
        return b": still here\n\n"
    kind = b"whole" if change.whole else b"change"
    body = msgspec.json.encode({"put": change.put, "gone": change.gone, "behind": behind})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (change.revision, kind, body)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(await request.read())
    except web.HTTPRequestEntityTooLarge as error:
        raise web.HTTPRequestEntityTooLarge(LARGEST_BODY, 0, reason="more than 1 MiB") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise web.HTTPBadRequest(reason="the body is no JSON object") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(reason="the body is no JSON object")
    return body


_FILES = frozenset(path.name for path in STATIC.iterdir()) if STATIC.is_dir() else frozenset()


def _file(name: str) -> web.Response:
    path = STATIC / name
    headers = {"Cache-Control": "no-cache"}
    return web.Response(body=path.read_bytes(), content_type=_TYPES[path.suffix], charset="utf-8", headers=headers)


def _answer(status: int, value: Any) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers
    )


def _refused(error: BaseException) -> web.Response:
    """The response for an error of the API server or of the connection to it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, KubeError):
        raise error
    status = 502
    for kind, code in ((Unauthorized, 401), (Forbidden, 403), (NotFound, 404), (ApiError, 422)):
        if isinstance(error, kind):
            status = code
            break
    text = "the API server does not accept this token" if status == 401 else str(error)
    return _answer(status, {"error": " ".join(text.split())})
