"""How the server of a process leaves its Service without a refused request.

Kubernetes removes a pod from its Service and sends SIGTERM to it at the same time. Requests still come to this pod
until every kube-proxy has the change, and as long as a client keeps its connection. So the server answers for some
seconds more. The work of the process has ended by then, and its lease is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

HAND_OVER_S = 10.0
"""A kube-proxy needs about a second, and some more in a large cluster. The chart's grace period is longer than this and
the `STOP_S` of the process together."""

log = structlog.get_logger(__name__)


class HandOver:
    """The seconds between the signal and the end of a server. With 0, for clients without a Service, there are none."""

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._has_begun = False

    def watch(self, app: web.Application) -> None:
        """From the signal on, each answer of `app` closes its connection. The client opens the next one elsewhere."""
        app.on_response_prepare.append(self._close)

    async def _close(self, request: web.Request, response: web.StreamResponse) -> None:
        if self._has_begun:
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp has decided about this header before it calls us

    @asynccontextmanager
    async def after(self) -> AsyncIterator[None]:
        """Around the work of the process, inside the server. Delays the block's cancellation, but none of its errors.

        A process that fails ends at once: the kubelet starts it again in the same pod.
        """
        try:
            yield
        except asyncio.CancelledError:
            if self._lasts_s:
                self._has_begun = True
                log.info("answering until clients use another replica", seconds=self._lasts_s)
                await asyncio.sleep(self._lasts_s)
            raise
