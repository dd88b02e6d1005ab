"""Processes that die: a controller killed at any await and started again, with nothing left but the cluster.

A killed process must not write anything more. Its client stops first, so clean-up code that runs while the task
unwinds reaches no server, as after SIGKILL. A request under way at that moment is carried out or not, depending on how
far it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

from grove.kube.client import Client
from grove.kube.errors import ConnectionLost

Main = Callable[[Client], Awaitable[object]]
_MAX_STEPS = 64
"""A kill comes up to this number of turns of the loop after its time, so that it hits bursts of work."""


class MortalClient:
    """Passes everything on until it is killed; after that nothing reaches the cluster and every call is lost."""

    def __init__(self, inner: Client) -> None:
        self._inner = inner
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute
        if name == "watch":
            return self._watch

        async def call(*args: Any, **kw: Any) -> Any:
            if self.is_dead:
                raise ConnectionLost("this process is dead")
            answer = await attribute(*args, **kw)
            if self.is_dead:
                raise ConnectionLost("this process died while it waited")
            return answer

        return call

    async def _watch(self, *args: Any, **kw: Any) -> Any:
        if self.is_dead:
            raise ConnectionLost("this process is dead")
        async for event in self._inner.watch(*args, **kw):
            if self.is_dead:
                raise ConnectionLost("this process is dead")
            yield event


class Process:
    """Runs `main(client)` as a process would: killed at random (`mean_life_s`) or on demand, then started again.

    `connect` makes the client of a new life. A main that ends by itself, or fails, is started again too; what it
    failed with is kept in `failures`, for tests to be surprised by.
    """

    def __init__(
        self,
        main: Main,
        connect: Callable[[], Client],
        *,
        rng: random.Random | None = None,
        mean_life_s: float | None = None,
        restart_s: float = 1.0,
    ) -> None:
        self._main, self._connect = main, connect
        self._rng = rng or random.Random(0)
        self._mean_life_s, self._restart_s = mean_life_s, restart_s
        self._killed = asyncio.Event()
        self.lives = 0
        self.failures: list[Exception] = []

    def kill(self) -> None:
        """Ends the present life at once."""
        self._killed.set()

    def spare(self) -> None:
        """No more random kills from now on; the present life may still have one ahead of it unless it is long over."""
        self._mean_life_s = None

    async def run(self) -> None:
        """Lives and dies until cancelled."""
        while True:
            await self._live()
            await asyncio.sleep(self._restart_s)

    async def _live(self) -> None:
        self.lives += 1
        self._killed.clear()
        client = MortalClient(self._connect())
        task = asyncio.ensure_future(self._main(cast(Client, client)))
        killer = asyncio.ensure_future(self._await_death())
        try:
            await asyncio.wait((task, killer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            client.is_dead = True
            for part in (task, killer):
                part.cancel()
            results = await asyncio.gather(task, killer, return_exceptions=True)
        failure = results[0]
        if isinstance(failure, Exception) and not isinstance(failure, ConnectionLost):
            self.failures.append(failure)

    async def _await_death(self) -> None:
        if self._mean_life_s is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._killed.wait(), self._rng.expovariate(1 / self._mean_life_s))
            if self._mean_life_s is None and not self._killed.is_set():
                await self._killed.wait()  # spared in the meantime
            for _ in range(self._rng.randint(0, _MAX_STEPS)):
                await asyncio.sleep(0)
        else:
            await self._killed.wait()
