"""Since when a node is missing. A pod on a node that is gone for good will never be confirmed dead by a kubelet.

Pods are given up by force there, so a cache that lags must not decide alone: when the time is up the cluster itself is
asked whether the node is really gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from grove.api.core import Node, Pod
from grove.api.meta import Key
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import NotFound
from grove.operator.podclique.pods import VANISHED_NODE_GRACE_S

ON_NODE = "node"
"""Index: pods by the name of their node."""


def by_node(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class VanishedNodes:
    """Answers from the cache; a node we never saw counts as missing from the first time somebody asks."""

    def __init__(self, cache: Cache, client: Client, clock: Clock) -> None:
        self._cache, self._client, self._clock = cache, client, clock
        self._gone: dict[str, datetime] = {}
        self._confirmed: set[str] = set()
        cache.on_event(Node, self._on_node)

    def gone_since(self, name: str) -> datetime | None:
        if self._cache.get(Node, Key("", name)) is not None:
            return None
        return self._gone.setdefault(name, self._clock.now())

    async def confirm(self, pods: Iterable[Pod]) -> None:
        """Asks the cluster about nodes of these pods that have been missing so long that it is about to matter."""
        for name in sorted({pod.spec.node_name for pod in pods if pod.is_bound}):
            since = self.gone_since(name)
            if since is None or name in self._confirmed:
                continue
            if (self._clock.now() - since).total_seconds() < VANISHED_NODE_GRACE_S:
                continue
            try:
                await self._client.get(Node, name)
                self._gone[name] = self._clock.now()  # it is there, only our cache is late
            except NotFound:
                self._confirmed.add(name)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._gone.pop(new.metadata.name, None)
            self._confirmed.discard(new.metadata.name)
            return
        if old is not None:
            self._gone[old.metadata.name] = self._clock.now()
        # What no pod stands on any more is of no interest; so this stays as small as the trouble is.
        self._gone = {name: at for name, at in self._gone.items() if self._cache.by_index(Pod, ON_NODE, name)}
        self._confirmed &= self._gone.keys()
