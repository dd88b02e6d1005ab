"""Keeps Python's garbage collector away from what is cached: it frees by reference count, the collector finds nothing.

At 100,000 pods a full collection walks more than a million tuples and dicts and stops the event loop for half a second.
So the collector rests during the first lists, and afterwards whatever outlives a young collection is moved out of its
sight (`gc.freeze`). A reference cycle that dies out of sight would leak; when the frozen set has doubled, one full
collection looks at everything again.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

YOUNG = (10_000, 10, 10)
"""Young collections see at most a hundred thousand new containers, some ten milliseconds."""
LOOK_EVERY = 100
SLACK = 500_000


class Collector:
    """Process-wide, as the garbage collector is: one cache of a process owns it."""

    def __init__(self) -> None:
        self._thresholds = gc.get_threshold()
        self._frozen = 0
        self._young = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def rest(self) -> None:
        gc.disable()

    def settle(self) -> None:
        """The big lists are in: put everything out of sight as it is and go on with small collections.

        Without collecting first: there is hardly any garbage yet, and looking for it would stop the loop for long.
        """
        self._loop = asyncio.get_running_loop()
        gc.freeze()
        self._frozen = gc.get_freeze_count()
        gc.set_threshold(*YOUNG)
        if self._after not in gc.callbacks:
            gc.callbacks.append(self._after)
        gc.enable()

    def release(self) -> None:
        """Back to Python's defaults."""
        if self._after in gc.callbacks:
            gc.callbacks.remove(self._after)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()
        gc.enable()

    def _after(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] == 0:
            return
        gc.freeze()
        self._young += 1
        if self._young % LOOK_EVERY == 0 and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon(self._check)  # not from here: a collection cannot start inside another

    def _check(self) -> None:
        if gc.get_freeze_count() > 2 * self._frozen + SLACK:
            self._collect_all()

    def _collect_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._frozen = gc.get_freeze_count()
