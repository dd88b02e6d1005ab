"""Waiting for a real cluster: a condition is asked until it holds; what was missing last is told when time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from grove.kube.errors import KubeError


async def nothing_missing(missing: Callable[[], Awaitable[str]], timeout_s: float = 120.0) -> None:
    """Returns when nothing is missing any more; an error of the cluster is something that is missing."""
    last = ""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    last = await missing()
                except KubeError as error:
                    last = str(error)
                if not last:
                    return
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {last}") from None
