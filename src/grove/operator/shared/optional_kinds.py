"""Kinds that a cluster may lack: autoscalers, resource claims, ComputeDomains. What lacks is off and said, not fatal.

A kind that is installed later is found at the next pass that wants it, and followed from then on.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from grove.api import labels as key
from grove.api.core import HorizontalPodAutoscaler, ResourceClaim
from grove.api.meta import Object
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import ConnectionLost, TooManyRequests, Unavailable

log = structlog.get_logger(__name__)

MANAGED = f"{key.MANAGED_BY}={key.OPERATOR}"
OPTIONAL: tuple[type[Object], ...] = (HorizontalPodAutoscaler, ResourceClaim)


class OptionalKinds:
    """Knows which optional kinds are served, and has the cache follow those."""

    def __init__(
        self, cache: Cache, client: Client, namespace: str = "", kinds: tuple[type[Object], ...] = OPTIONAL
    ) -> None:
        self._cache, self._client, self._namespace, self._kinds = cache, client, namespace, kinds
        self._followed: set[type[Object]] = set()
        self._told: Callable[[type[Object]], None] = lambda kind: None

    def on_follow(self, told: Callable[[type[Object]], None]) -> None:
        """Calls `told` with each kind when the cache begins to follow it, for handlers to be added."""
        self._told = told

    async def look(self) -> None:
        """Before the cache starts: has it follow what is served now."""
        for kind in self._kinds:
            try:
                await self._follow(kind, started=False)
            except (TooManyRequests, Unavailable, ConnectionLost) as error:
                # Not knowing is no reason not to start: whoever wants the kind asks again.
                log.info("cannot tell whether a kind is served", kind=kind.RESOURCE.kind, error=str(error))

    async def has(self, kind: type[Object]) -> bool:
        """Whether objects of this kind can be made and are followed."""
        return kind in self._followed or await self._follow(kind, started=True)

    def follows(self, kind: type[Object]) -> bool:
        return kind in self._followed

    async def _follow(self, kind: type[Object], *, started: bool) -> bool:
        if not await self._client.serves(kind):
            return False
        self._cache.add(kind, namespace=self._namespace, labels=MANAGED)
        self._told(kind)
        if started:
            await self._cache.wait_synced()
        self._followed.add(kind)
        return True
