"""Waits for a condition: it is asked until it holds. When time is up, the message has the last state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from grove.kube.errors import KubeError

HANGS_S = 180.0
"""A command that has not ended by then never will; on a busy machine one of two seconds was seen to take a minute."""


def pauses_s(longest_s: float = 0.25) -> Iterator[float]:
    """Pauses between two looks: short at first, then longer, because every look costs a busy server CPU."""
    pause_s = 0.05
    while True:
        pause_s = min(pause_s, longest_s)
        yield pause_s
        pause_s *= 1.3


async def nothing_missing(missing: Callable[[], Awaitable[str]], timeout_s: float = 300.0) -> None:
    """Returns when nothing is missing any more; an error of the cluster is something that is missing."""
    last = ""
    pauses = pauses_s()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    last = await missing()
                except KubeError as error:
                    last = str(error)
                if not last:
                    return
                await asyncio.sleep(next(pauses))
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {last}") from None


async def eventually(look: Callable[[], Awaitable[Any]], timeout_s: float = 300.0, what: str = "") -> Any:
    """The first truthy answer; an error of the cluster counts as not yet."""
    last: Any = None
    pauses = pauses_s()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    if last := await look():
                        return last
                except KubeError as error:
                    last = error
                await asyncio.sleep(next(pauses))
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what or last!r}") from None


def wait_until(look: Callable[[], Any], timeout_s: float = 180.0, what: str = "") -> Any:
    """The same for a test without a loop: a process that is run, a page that is asked for."""
    last: Any = None
    pauses = pauses_s()
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if last := look():
                return last
        except OSError as error:
            last = error
        time.sleep(next(pauses))
    raise AssertionError(f"not within {timeout_s} s: {what or last!r}")
