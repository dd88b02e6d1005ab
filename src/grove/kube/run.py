"""What every process of ours does around its work: signals, exit codes, probes and metrics.

    sys.exit(run_process(main))

SIGTERM and SIGINT cancel `main`, which has `STOP_S` to put things in order; then the process ends with 0. A cluster
that cannot be used ends it with 2 and one line that says why, anything else with 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from grove.kube.errors import KubeError
from grove.kube.lease import LeadershipLost
from grove.kube.metrics import TASKS

STOP_S = 4.0
"""Less than the five seconds we promise, so that the promise holds on a busy machine too."""

log = structlog.get_logger(__name__)


def run_process(main: Callable[[], Coroutine[Any, Any, None]], *, verbose: bool = False, stop_s: float = STOP_S) -> int:
    """Runs `main` to its end or to the first signal; the exit code."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_until_stopped(main, stop_s))
    except KubeError as err:
        if verbose:
            raise
        print(f"error: {err}", file=sys.stderr)
        return 2
    except LeadershipLost as err:
        log.error("leadership lost, ending so that a fresh process takes part again", reason=str(err))
        return 1
    except KeyboardInterrupt:
        return 130


async def _until_stopped(main: Callable[[], Coroutine[Any, Any, None]], stop_s: float) -> int:
    loop = asyncio.get_running_loop()
    TASKS.set_function(lambda: float(len(asyncio.all_tasks(loop))))
    work = loop.create_task(main(), name="main")
    stopping = asyncio.Event()

    def stop(name: str) -> None:
        if stopping.is_set():
            os._exit(1)  # the second signal ends the process at once
        log.info("stopping", signal=name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    asked = loop.create_task(stopping.wait(), name="signals")
    try:
        await asyncio.wait((work, asked), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait((work,), timeout=stop_s)
    finally:
        asked.cancel()
    if not work.done():
        log.warning("work did not stop in time, leaving it behind")
        sys.stderr.flush()
        os._exit(0)
    if stopping.is_set():
        if not work.cancelled() and (error := work.exception()) is not None:
            log.warning("stopped with an error", error=str(error))
        return 0
    try:
        work.result()
    except BaseExceptionGroup as group:
        raise _first_of(group) from group
    return 0


def _first_of(group: BaseExceptionGroup[Any]) -> BaseException:
    """The error of a group to report: an error of the cluster if there is one, else the first."""
    reported = group.subgroup((KubeError, LeadershipLost)) or group
    first: BaseException = reported
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: a sixth less CPU for a small request."""
    try:
        import uvloop  # noqa: PLC0415 (the package is optional)
    except ImportError:
        return None

    class Loop(uvloop.Loop):  # type: ignore[misc,valid-type,name-defined,unused-ignore]
        def time(self) -> float:
            # uvloop reads its clock once a turn; a process stopped in the middle of one would wake up believing that
            # its lease still holds.
            return time.monotonic()

        def call_exception_handler(self, context: dict[str, Any]) -> None:
            if _gave_up_a_handshake(context):
                log.debug("a connection was closed in its TLS handshake")
            else:
                super().call_exception_handler(context)

    return Loop


def _gave_up_a_handshake(context: dict[str, Any]) -> bool:
    """uvloop writes the end of a TLS handshake also if the task that opened the connection was cancelled meanwhile.

    The socket is closed by then, no task waits for the connection, and uvloop reports an error.
    """
    error, message = context.get("exception"), context.get("message", "")
    return isinstance(error, RuntimeError) and "SSL protocol" in message and "the handler is closed" in str(error)


@asynccontextmanager
async def probes(
    port: int, *, ready: Callable[[], bool], host: str = "", more: Callable[[], AsyncIterator[bytes]] | None = None
) -> AsyncIterator[int]:
    """Serves /healthz, /readyz and /metrics while the block runs; gives the port, useful when 0 was asked for.

    `more` is written below what the registry says, part by part, for pages too long to be made in one go.
    """

    def answer(check: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def respond(_: web.Request) -> web.Response:
            return web.Response(text="ok\n") if check() else web.Response(text="not yet\n", status=503)

        return respond

    async def metrics(request: web.Request) -> web.StreamResponse:
        # OpenMetrics has an end, below which nothing can be written.
        encode, content = choose_encoder(request.headers.get("Accept", "") if more is None else "")
        if more is None:
            return web.Response(body=encode(REGISTRY), headers={"Content-Type": content})
        answer = web.StreamResponse(headers={"Content-Type": content})
        await answer.prepare(request)
        await answer.write(encode(REGISTRY))
        async for part in more():
            await answer.write(part)
        return answer

    app = web.Application()
    app.router.add_get("/healthz", answer(lambda: True))
    app.router.add_get("/readyz", answer(ready))
    app.router.add_get("/metrics", metrics)
    async with listening(app, host, port) as bound:
        yield bound


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serves `app` while the block runs; gives the port, useful when 0 was asked for."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
