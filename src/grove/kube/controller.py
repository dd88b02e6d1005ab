"""Turns keys into calls of a reconcile function: a fixed number of workers, one look at a key at a time.

A reconcile reads, decides, writes and says when to look again. What it raises or returns as an error is logged here,
once, counted, and tried again after a back-off; `Terminal` is not tried again. Which events put which keys into the
queue is the caller's part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from grove.kube.errors import Conflict, KubeError, NotLeader, Terminal, TooManyRequests
from grove.kube.metrics import ControllerMetrics
from grove.kube.tracing import Span
from grove.kube.workqueue import Closed, Workqueue

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """When to reconcile again without an event: after an exact time. None waits for an event.

    `error` is for one of several steps that failed. The key is then tried again after a back-off as well, whichever
    comes first; each reconcile sets the next time.
    """

    after_s: float | None = None
    error: Exception | None = None


DONE = Result()


def earliest(*times_s: float | None) -> float | None:
    """The earliest of the given times; None if only an event can help."""
    return min((at for at in times_s if at is not None), default=None)


Reconcile = Callable[[K], Awaitable[Result]]
Tracing = Callable[[K], AbstractContextManager[Span] | None]
"""Gives the span of a reconcile; None if the key is not traced now."""


class Controller(Generic[K]):
    """Runs `reconcile` over the keys of `queue`. `run` ends when cancelled, or when the queue is shut down."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        queue: Workqueue[K] | None = None,
        *,
        workers: int = 1,
    ) -> None:
        self.name, self.queue = name, queue if queue is not None else Workqueue[K]()
        self._reconcile, self._workers = reconcile, workers
        self.tracing: Tracing[K] | None = None
        self._log = structlog.get_logger(__name__).bind(controller=name)
        self._metrics = ControllerMetrics(name, self.queue)

    def add(self, key: K, *, priority: int = 0, after_s: float = 0.0) -> None:
        self.queue.add(key, priority=priority, after_s=after_s)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{n}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except Closed:
                return
            try:
                if self.tracing is not None and (span := self.tracing(key)) is not None:
                    with span as traced:
                        traced.error = await self._look(key)
                else:
                    await self._look(key)
            finally:
                self.queue.done(key)

    async def _look(self, key: K) -> str:
        """Reconciles once; what went wrong, empty if nothing did."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome, wrong = "success", ""
        self._metrics.active.inc()
        try:
            result = await self._reconcile(key)
            if result.after_s is not None:
                self.queue.add(key, after_s=max(result.after_s, 1e-9))
                outcome = "requeue_after"
            if result.error is not None:
                raise result.error
            self.queue.forget(key)
        except Terminal as err:
            outcome, wrong = "terminal", str(err)
            self.queue.forget(key)
            self._log.warning("reconcile gave up until the object changes", key=str(key), reason=str(err))
        except NotLeader:
            outcome = "not_leader"  # the next leader looks at everything anyway
            self.queue.forget(key)
        except Exception as err:
            outcome, wrong = "error", str(err)
            self._failed(key, err)
        finally:
            self._metrics.active.dec()
            self._metrics.observe(outcome, loop.time() - began)
        return wrong

    def _failed(self, key: K, err: Exception) -> None:
        asked = err.retry_after_s if isinstance(err, TooManyRequests) else 0.0
        delay = self.queue.retry(key, at_least_s=asked)
        fields = {"key": str(key), "error": str(err), "retry_s": round(delay, 3), "failures": self.queue.failures(key)}
        if isinstance(err, Conflict):
            self._log.debug("reconcile lost a race, looking again", **fields)
        elif isinstance(err, KubeError):
            self._log.warning("reconcile failed", **fields)
        else:  # not the cluster's doing but ours: show where
            self._log.error("reconcile failed", **fields, exc_info=err)
