"""Where a running process spends its time, asked over HTTP: a profile of the event loop, and what its tasks wait for.

The paths are `/debug/pprof/profile?seconds=N` and `/debug/pprof/tasks`, as text. Profiling slows the process down, so
it is off unless the configuration switches it on. The process makes one profile at a time.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from grove.kube.run import listening

LONGEST_S = 300.0
SHOWN = 60


@asynccontextmanager
async def profiling(host: str, port: int) -> AsyncIterator[int]:
    """Serves profiles while the block runs; gives the port, useful when 0 was asked for."""
    app = web.Application()
    app.router.add_get("/debug/pprof/profile", _Profiles().take)
    app.router.add_get("/debug/pprof/tasks", _tasks)
    async with listening(app, host, port) as bound:
        yield bound


class _Profiles:
    def __init__(self) -> None:
        self._busy = False

    async def take(self, request: web.Request) -> web.Response:
        try:
            seconds = float(request.query.get("seconds", "30"))
        except ValueError:
            seconds = -1.0
        if not 0.0 < seconds <= LONGEST_S:
            return web.Response(text=f"seconds must be between 0 and {LONGEST_S:g}\n", status=400)
        if self._busy:
            return web.Response(text="a profile is being taken already\n", status=409)
        self._busy = True
        profile = cProfile.Profile()
        try:
            profile.enable()
            await asyncio.sleep(seconds)
        finally:
            profile.disable()
            self._busy = False
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(SHOWN)
        return web.Response(text=text.getvalue())


async def _tasks(_: web.Request) -> web.Response:
    text = io.StringIO()
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        task.print_stack(file=text)
    return web.Response(text=text.getvalue())
