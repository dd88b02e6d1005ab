"""Kinds that a cluster may lack: quotas, queues, reservations, devices. What lacks is off, and the rest works.

What is served when the scheduler starts is in step before anything is decided. What is installed later is found by
asking now and then, since no event tells a scheduler without rights on definitions; no restart is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from grove.api.meta import Object
from grove.kube.client import Client
from grove.kube.errors import ConnectionLost, KubeError, TooManyRequests, Unavailable

RETRY_S = 1.0
LOOK_S = 30.0
"""How often is looked for kinds that are not there."""

log = structlog.get_logger(__name__)

Follow = Callable[[], None]


class OptionalKinds:
    """`kinds` says what to do when a kind is there: have a cache follow it and listen."""

    def __init__(self, client: Client, kinds: Mapping[type[Object], Follow]) -> None:
        self._client, self._missing = client, dict(kinds)

    async def look(self) -> None:
        """Follows what is served now; asks until the server answers."""
        for kind in list(self._missing):
            while True:
                try:
                    await self._find(kind)
                    break
                except (ConnectionLost, TooManyRequests, Unavailable):
                    await asyncio.sleep(RETRY_S)  # nothing can be followed before the server answers

    async def keep_looking(self) -> None:
        """Follows what is installed later; ends when nothing is missing."""
        while self._missing:
            await asyncio.sleep(LOOK_S)
            for kind in list(self._missing):
                try:
                    await self._find(kind)
                except KubeError as error:
                    log.debug("cannot tell whether a kind is served", kind=kind.RESOURCE.kind, error=str(error))

    async def _find(self, kind: type[Object]) -> None:
        if await self._client.serves(kind):
            log.info("following", kind=str(kind.RESOURCE))
            self._missing.pop(kind)()
