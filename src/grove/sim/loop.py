"""An event loop whose time jumps: when every task is blocked, the clock moves to the next timer at once.

A four-hour delay takes microseconds, and a run is a pure function of its seed. Tasks hash by creation order, so sets of
tasks iterate the same way every time. Work meant for threads runs in place. If nothing can ever wake a task again, the
loop raises `Stalled` instead of hanging. It raises `OutOfTime` when virtual time passes its limit.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
DEFAULT_LIMIT_S = 30 * 24 * 3600.0


class Stalled(RuntimeError):
    """Every task waits for another: no timer is left and no callback is ready."""


class OutOfTime(RuntimeError):
    """Virtual time passed the limit of the run: something waits for what never happens while timers keep ticking."""


class _Task(asyncio.Task[T]):
    """A task that hashes by creation order; `TaskGroup` and `asyncio.wait` keep tasks in sets and walk them."""

    def __init__(self, coro: Any, *, order: int, **kw: Any) -> None:
        self._order = order  # before super().__init__, which puts the task into a set
        super().__init__(coro, **kw)

    def __hash__(self) -> int:
        return self._order

    def __eq__(self, other: object) -> bool:
        return self is other


class _JumpingSelector(selectors.BaseSelector):
    """No files are ever ready here; a wait for `timeout` seconds is a jump of as many."""

    def __init__(self) -> None:
        self.jump: Callable[[float | None], None] = lambda _timeout: None
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self.jump(timeout)
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop of the simulator; it has no sockets, no threads and no wall time."""

    def __init__(self, *, limit_s: float = DEFAULT_LIMIT_S) -> None:
        self._virtual_s = 0.0
        self._limit_s = limit_s
        self._ids = itertools.count(1)
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.jump = self._jump
        self._clock_resolution = 1e-9
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._virtual_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        return None

    def _make_task(self, loop: Any, coro: Any, **kw: Any) -> asyncio.Task[Any]:
        # The counter is the loop's own, so two runs of a seed have the same tasks, in name and in order.
        order = next(self._ids)
        kw.setdefault("name", f"task-{order}")
        return _Task(coro, order=order, loop=loop, **kw)

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            names = sorted(f"{t.get_name()}: {t.get_coro()!r}" for t in asyncio.all_tasks(self))
            raise Stalled("nothing can wake these tasks:\n  " + "\n  ".join(names))
        self._virtual_s += timeout
        if self._virtual_s > self._limit_s:
            raise OutOfTime(f"virtual time passed {self._limit_s:.0f} s")


class LoopClock:
    """Wall time that moves with the running loop: a fixed epoch plus the loop's own seconds.

    On a `VirtualLoop` it is virtual; on an ordinary loop it ticks like a wall clock that was set to the epoch.
    """

    def __init__(self, epoch: datetime = EPOCH, *, start_s: float | None = None) -> None:
        self._epoch, self._start_s = epoch, start_s

    def now(self) -> datetime:
        loop_s = asyncio.get_running_loop().time()
        if self._start_s is None:
            self._start_s = loop_s
        return self._epoch + timedelta(seconds=loop_s - self._start_s)


def run(main: Coroutine[Any, Any, T], *, seed: int = 0, limit_s: float = DEFAULT_LIMIT_S) -> T:
    """Runs `main` in virtual time and returns its result; `random` is seeded for the run and put back afterwards."""
    with _seeded(seed), asyncio.Runner(loop_factory=lambda: VirtualLoop(limit_s=limit_s)) as runner:
        return runner.run(main)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Jitter anywhere in the code under test comes from `random`: seeding it makes the run repeatable."""
    saved = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(saved)
