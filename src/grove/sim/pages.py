"""Pages of metrics for pods that do not run: what engines would say under the load that a set's annotation names.

    kubectl annotate pcs chat grove.io/simulated-requests-per-second=40

`grove up` serves them, so that autoscalers on a local cluster have something to follow.
"""

from __future__ import annotations

import asyncio
import math

import structlog
from aiohttp import web

from grove.api.core import Pod
from grove.api.labels import MANAGED_BY, OPERATOR
from grove.api.meta import Key
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.sim.engines import EnginePages

LOAD = "grove.io/simulated-requests-per-second"
TICK_S = 1.0

log = structlog.get_logger(__name__)


class PageServer:
    """Answers `GET /NAMESPACE/POD` for every pod of Grove's; one that serves nothing has an empty page."""

    def __init__(self, client: Client) -> None:
        self._cache = Cache(client)
        self._cache.add(PodCliqueSet)
        self._cache.add(Pod, labels=f"{MANAGED_BY}={OPERATOR}")
        self._engines = EnginePages()
        self._loads: dict[Key, str] = {}
        self._pages: dict[Key, bytes] = {}

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{namespace}/{pod}", self._answer)
        return app

    async def run(self, port: int, *, host: str = "127.0.0.1") -> None:
        runner = web.AppRunner(self.application(), access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()
        try:
            async with self._cache:
                await self._cache.wait_synced()
                await web.TCPSite(runner, host, port).start()
                while True:
                    self._tick()
                    await asyncio.sleep(TICK_S)
        finally:
            await runner.cleanup()

    def _tick(self) -> None:
        sets = self._cache.list(PodCliqueSet)
        for pcs in sets:
            self._set_load(pcs)
        self._pages = self._engines.advance(TICK_S, sets, self._cache.list(Pod))

    def _set_load(self, pcs: PodCliqueSet) -> None:
        text = pcs.metadata.annotations.get(LOAD, "0")
        if self._loads.get(pcs.metadata.key) == text and pcs.metadata.key in self._engines:
            return
        self._loads[pcs.metadata.key] = text
        load = requests_per_second(text)
        if load is None:
            log.warning("not a number of requests", set=pcs.metadata.name, annotation=LOAD, said=text)
        self._engines.set_load(pcs, load or 0.0)

    async def _answer(self, request: web.Request) -> web.Response:
        key = Key(request.match_info["namespace"], request.match_info["pod"])
        if (page := self._pages.get(key)) is None and self._cache.get(Pod, key) is None:
            return web.Response(status=404)
        return web.Response(body=page or b"", content_type="text/plain")


def requests_per_second(text: str) -> float | None:
    """The load that an annotation asks for; None if it is no number of requests."""
    try:
        load = float(text)
    except ValueError:
        return None
    return load if math.isfinite(load) and load >= 0 else None
