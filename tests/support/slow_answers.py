"""A pytest plugin (`-p tests.support.slow_answers`) that makes API servers slow to answer and to tell.

On a busy machine a write is answered late, a watch tells late, and Events come behind everything else; a test that
looks at once for what follows from what it saw finds it missing there, and passes everywhere else. This makes any
machine such a one: writes and watches of every `HttpClient` pause at random, and every Event is held back. Reads are
not slowed, so that tests look early. The simulator keeps its own time and is not touched.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from grove.kube.client import WatchEvent
from grove.kube.events import Recorder
from grove.kube.http import HttpClient
from grove.kube.transport import Answer

SEED = int(os.environ.get("GROVE_SLOW_SEED", "0")) or random.randrange(1, 1_000_000)
SELDOM, LONG_S, SHORT_S = 0.05, 0.8, 0.01
"""One pause in twenty is long."""
EVENT_S = 0.4

_rng = random.Random(SEED)
_write, _watch, _write_next = HttpClient._write, HttpClient.watch, Recorder._write_next


def pytest_report_header(config: pytest.Config) -> str:
    return f"slow answers: GROVE_SLOW_SEED={SEED}"


def pytest_configure(config: pytest.Config) -> None:
    HttpClient._write = write_slowly  # type: ignore[method-assign]
    HttpClient.watch = watch_slowly  # type: ignore[method-assign]
    Recorder._write_next = write_event_slowly  # type: ignore[method-assign]


async def write_slowly(self: HttpClient, *args: Any) -> Answer:
    await _pause()  # on its way there
    answer = await _write(self, *args)
    await _pause()  # and back: watches may be quicker than the answer
    return answer


async def watch_slowly(self: HttpClient, *args: Any, **options: Any) -> AsyncGenerator[WatchEvent[Any], None]:
    async with aclosing(_watch(self, *args, **options)) as events:
        async for event in events:
            await _pause(0.01)
            yield event


async def write_event_slowly(self: Recorder) -> None:
    await asyncio.sleep(EVENT_S * _rng.random())
    await _write_next(self)


async def _pause(seldom: float = SELDOM) -> None:
    await asyncio.sleep(_rng.random() * (LONG_S if _rng.random() < seldom else SHORT_S))
