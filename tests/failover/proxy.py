"""A way from one process to the API server that can be cut and mended, on loopback.

Cut, nothing passes and no side gets an error, as when a switch dies. Mended, everything that either side still sends
arrives, as TCP would repeat it. What a side has taken back by a reset does not arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK = 1 << 16


class Link:
    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        accepting = asyncio.create_task(self._accept(listening))
        try:
            yield
        finally:
            for task in (accepting, *self._tasks):
                task.cancel()
            await asyncio.gather(accepting, *self._tasks, return_exceptions=True)
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._open.wait()
            near, _ = await loop.sock_accept(listening)
            task = asyncio.create_task(self._pass_on(near))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, near: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        near.setblocking(False)
        far = socket.socket()
        far.setblocking(False)
        with near, far, contextlib.suppress(OSError):
            await loop.sock_connect(far, ("127.0.0.1", self._target))
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(near, far))
                both.create_task(self._pump(far, near))

    async def _pump(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                await _readable(source)
                await self._open.wait()
                if source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    break  # reset while the way was cut: what it had sent before was never on this side
                chunk = await loop.sock_recv(source, CHUNK)
                if not chunk:
                    break
                await loop.sock_sendall(target, chunk)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


async def _readable(source: socket.socket) -> None:
    """Returns when there is something to read, or an end; reads nothing."""
    loop = asyncio.get_running_loop()
    seen = loop.create_future()
    loop.add_reader(source, lambda: seen.done() or seen.set_result(None))
    try:
        await seen
    finally:
        loop.remove_reader(source)
