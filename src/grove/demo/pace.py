"""Virtual time at a pace people can follow: the jumping loop, which rests a while on the way over a jump.

What happens does not depend on the pace: the clock that the cluster reads is the virtual one. Long waits (five minutes
until a dead node's pods are given up) are cut short for the spectator, never for the cluster.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from grove.sim.loop import VirtualLoop

T = TypeVar("T")

PER_SECOND = 5.0
"""Virtual seconds that pass in a real one, at speed 1."""
LONGEST_REST_S = 0.7
_LEAST_REST_S = 0.03


class PacedLoop(VirtualLoop):
    """`speed` 0 does not rest at all. `frame` is called before each rest, to draw what there is to see."""

    def __init__(self, *, speed: float = 0.0, frame: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.speed, self._frame, self._owed_s = speed, frame, 0.0
        self._main: asyncio.Task[Any] | None = None

    def _jump(self, timeout: float | None) -> None:
        super()._jump(timeout)
        if not self.speed or timeout is None:
            return
        self._owed_s += min(timeout / (PER_SECOND * self.speed), LONGEST_REST_S)
        if self._owed_s >= _LEAST_REST_S:
            self._frame()
            self.rest(self._owed_s)
            self._owed_s = 0.0

    def rest(self, seconds: float) -> None:
        """Lets real time pass; not a moment longer once Ctrl-C asked the whole to end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (self._main and self._main.cancelling()):
            time.sleep(min(left, _LEAST_REST_S))

    async def as_main(self, main: Coroutine[Any, Any, T]) -> T:
        self._main = asyncio.current_task()
        return await main


async def idle() -> None:
    """Lets time go on, at a pace, until cancelled."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PacedLoop)
    loop.speed = loop.speed or 1.0
    for _ in itertools.count():
        await asyncio.sleep(1.0)


def run_paced(
    main: Coroutine[Any, Any, T], *, seed: int = 0, speed: float = 0.0, frame: Callable[[], None] = lambda: None
) -> T:
    """Runs `main` in virtual time at a pace. Jitter anywhere comes from `random`, which is seeded for the run."""
    saved = random.getstate()
    random.seed(seed)
    try:
        loop = PacedLoop(speed=speed, frame=frame)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(loop.as_main(main))
    finally:
        random.setstate(saved)
