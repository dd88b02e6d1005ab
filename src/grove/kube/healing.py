"""Objects that others may change or delete are looked at whenever one of them changes, and corrected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

import structlog

from grove.api.meta import Object
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import KubeError

RETRY_S = 1.0
"""Pause after an API server that could not be written to; its next answer may be long in coming."""

log = structlog.get_logger(__name__)


async def heal(
    client: Client,
    kinds: Iterable[type[Object]],
    names: Collection[str],
    changed: asyncio.Event,
    ensure: Callable[[], Awaitable[None]],
) -> None:
    """Calls `ensure` after every change of an object of these kinds and names, and when `changed` is set, for ever."""

    def look(old: Object | None, new: Object | None) -> None:
        known = new or old
        if known is not None and known.metadata.name in names:
            changed.set()

    cache = Cache(client)
    for kind in kinds:
        cache.on_event(kind, look)
    async with cache:
        while True:
            await changed.wait()
            changed.clear()
            try:
                await ensure()
            except KubeError as error:
                log.warning("objects could not be corrected", objects=sorted(names), error=str(error))
                await asyncio.sleep(RETRY_S)
                changed.set()
