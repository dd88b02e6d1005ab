"""Engines that are not there: one HTTP server on this machine that answers for every pod a test gives a page to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web

from grove.metrics.targets import Target

Page = bytes | Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FakeEngines:
    """Pages by pod name; `default` is asked where none is set, by pod name."""

    pages: dict[str, Page] = field(default_factory=dict)
    default: Callable[[str], bytes | None] = lambda pod: None
    port: int = 0
    reads: int = 0

    def reach(self, target: Target) -> Target:
        return replace(target, address="127.0.0.1", port=self.port, path=f"/{target.pod}")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.reads += 1
        pod = request.path.strip("/")
        page = self.pages.get(pod) or self.default(pod)
        if page is None:
            return web.Response(status=404)
        return web.Response(body=page) if isinstance(page, bytes) else await page(request)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeEngines]:
        app = web.Application()
        app.router.add_get("/{pod:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            yield self
        finally:
            await runner.cleanup()
