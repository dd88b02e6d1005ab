"""Something that runs beside a block and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(run: Callable[[asyncio.Event], Coroutine[Any, Any, None]], name: str) -> AsyncIterator[None]:
    """Runs it beside the block, which begins when it has set its event; what ends it before that is raised."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    task, waiting = loop.create_task(run(ready), name=name), loop.create_task(ready.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield
    finally:
        for pending in (waiting, task):
            pending.cancel()
        await asyncio.gather(waiting, task, return_exceptions=True)
