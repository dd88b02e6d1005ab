"""Since when a node is missing. A pod on a node that is gone for good will never be confirmed dead by a kubelet."""

from __future__ import annotations

from datetime import datetime

from grove.api.core import Node, Pod
from grove.api.meta import Key
from grove.kube.cache import Cache
from grove.kube.clock import Clock

ON_NODE = "node"
"""Index: pods by the name of their node."""


def by_node(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class Nodes:
    """Answers from the cache; a node we never saw counts as missing from the first time somebody asks."""

    def __init__(self, cache: Cache, clock: Clock) -> None:
        self._cache, self._clock = cache, clock
        self._gone: dict[str, datetime] = {}
        cache.on_event(Node, self._on_node)

    def gone_since(self, name: str) -> datetime | None:
        if self._cache.get(Node, Key("", name)) is not None:
            return None
        return self._gone.setdefault(name, self._clock.now())

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._gone.pop(new.metadata.name, None)
            return
        if old is not None:
            self._gone[old.metadata.name] = self._clock.now()
        # What no pod stands on any more is of no interest; so this stays as small as the trouble is.
        self._gone = {name: at for name, at in self._gone.items() if self._cache.by_index(Pod, ON_NODE, name)}
