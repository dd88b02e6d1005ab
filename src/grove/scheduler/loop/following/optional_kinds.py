"""Follows kinds that a cluster may lack, from the start or when they are installed later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import cast

import structlog

from grove.api.core import CustomResourceDefinition
from grove.api.meta import Object
from grove.kube.client import Client, WatchEvent
from grove.kube.errors import ConnectionLost, KubeError, TooManyRequests, Unavailable

RETRY_S = 1.0
LOOK_S = 30.0
"""How often the server is asked for missing kinds, where their definitions cannot be watched."""
WATCH_S = 300.0
SERVED_SOON = 10

log = structlog.get_logger(__name__)


class OptionalKinds:
    """Kinds that a cluster may lack: quotas, queues, reservations, devices. A missing kind is off, and the rest works.

    Kinds that are served when the scheduler starts are in step before the first decision. The event of its definition
    announces a kind that is installed later; where definitions cannot be watched, the scheduler asks now and then. No
    restart is needed. `kinds` has what to call when a kind is served: it starts to follow the kind. Kinds in `built_in`
    come with a version of Kubernetes and are not waited for.
    """

    def __init__(
        self,
        client: Client,
        kinds: Mapping[type[Object], Callable[[], None]],
        built_in: Mapping[type[Object], Callable[[], None]] = {},
    ) -> None:
        self._client, self._built_in = client, built_in
        self._missing = {**built_in, **kinds}

    async def follow_served(self) -> None:
        """Follows the kinds that the server has now; asks until it answers."""
        kinds = list(self._missing)
        for kind, is_served in zip(kinds, await asyncio.gather(*map(self._is_served, kinds)), strict=True):
            if is_served:
                self._follow(kind)

    async def _is_served(self, kind: type[Object]) -> bool:
        while True:
            try:
                return await self._client.serves(kind)
            except (ConnectionLost, TooManyRequests, Unavailable):
                await asyncio.sleep(RETRY_S)  # no watch can begin before the server answers

    async def follow_installed(self) -> None:
        """Follows kinds that come later; ends when no kind is missing."""
        async with asyncio.TaskGroup() as tasks:
            for kind in [kind for kind in self._missing if kind not in self._built_in]:
                tasks.create_task(self._wait_for(kind))

    async def _wait_for(self, kind: type[Object]) -> None:
        while kind in self._missing:
            try:
                await self._watch_for(kind)
            except KubeError as error:
                log.debug("cannot watch for a kind", kind=kind.RESOURCE.kind, error=str(error))
                await asyncio.sleep(LOOK_S)
                with suppress(KubeError):
                    await self._follow_if_served(kind)

    async def _watch_for(self, kind: type[Object]) -> None:
        """Returns when a kind is followed, or the server has ended the watch on its definition."""
        stream = self._client.watch(
            CustomResourceDefinition, fields=f"metadata.name={kind.RESOURCE}", initial_events=True, timeout_s=WATCH_S
        )
        seen = False
        async with aclosing(cast(AsyncGenerator[WatchEvent[CustomResourceDefinition], None], stream)) as events:
            async for event in events:
                seen = True
                if event.object is not None and event.type != "DELETED" and event.object.is_established:
                    for _ in range(SERVED_SOON):
                        await self._follow_if_served(kind)
                        if kind not in self._missing:
                            return
                        await asyncio.sleep(RETRY_S)  # the server accepts it a moment before it serves it
        if not seen:
            raise ConnectionLost("the watch ended without a word")

    async def _follow_if_served(self, kind: type[Object]) -> None:
        if await self._client.serves(kind):
            self._follow(kind)

    def _follow(self, kind: type[Object]) -> None:
        log.info("following", kind=str(kind.RESOURCE))
        self._missing.pop(kind)()
