"""Kinds that a cluster may lack: autoscalers, resource claims, ComputeDomains. A missing kind is off, not fatal.

A kind that is installed later is found at the next pass that needs it, and followed from then on. A kind that is
uninstalled is noticed when its watch gets NotFound.
"""

from __future__ import annotations

import structlog

from grove.api import labels
from grove.api.core import HorizontalPodAutoscaler, ResourceClaim
from grove.api.meta import Object
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import ConnectionLost, NotFound, TooManyRequests, Unavailable
from grove.kube.store import Handler

log = structlog.get_logger(__name__)

MANAGED = f"{labels.MANAGED_BY}={labels.OPERATOR}"
OPTIONAL: tuple[type[Object], ...] = (HorizontalPodAutoscaler, ResourceClaim)


class OptionalKinds:
    """Finds the optional kinds of the server, and lets the cache follow them."""

    def __init__(
        self, cache: Cache, client: Client, namespace: str = "", kinds: tuple[type[Object], ...] = OPTIONAL
    ) -> None:
        self._cache, self._client, self._namespace, self._kinds = cache, client, namespace, kinds
        self._handlers: dict[type[Object], list[Handler[Object]]] = {}
        self._declared: set[type[Object]] = set()
        self._followed: set[type[Object]] = set()

    def on_event(self, kind: type[Object], handler: Handler[Object]) -> None:
        """As `Cache.on_event`, from the moment the kind is followed; to be called before any `look`."""
        self._handlers.setdefault(kind, []).append(handler)

    async def look(self) -> None:
        """Before the cache starts: has it follow the kinds that the server has now."""
        for kind in self._kinds:
            try:
                if await self._client.serves(kind):
                    self._declare(kind)
                    self._followed.add(kind)
            except (TooManyRequests, Unavailable, ConnectionLost) as error:
                # The operator starts all the same. A controller that needs the kind asks again.
                log.info("no answer whether the API server serves a kind", kind=kind.RESOURCE.kind, error=str(error))

    async def follow(self, kind: type[Object]) -> bool:
        """Has the cache follow a kind, if it is served; answers whether its objects can be made and are followed."""
        if kind in self._followed and not isinstance(self._cache.informer(kind).error, NotFound):
            return True
        if not await self._client.serves(kind):
            return False
        self._declare(kind)
        try:
            await self._cache.wait_synced(kind=kind)
        except NotFound:
            return False  # uninstalled between the two questions
        self._followed.add(kind)
        return True

    def follows(self, kind: type[Object]) -> bool:
        return kind in self._followed

    def _declare(self, kind: type[Object]) -> None:
        """Once for each kind, however many ask at the same time and however often it comes and goes."""
        if kind in self._declared:
            return
        self._declared.add(kind)
        self._cache.add(kind, namespace=self._namespace, labels=MANAGED)
        for handler in self._handlers.get(kind, ()):
            self._cache.on_event(kind, handler)
