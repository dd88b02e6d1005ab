"""Keeps the node summary for feasibility warnings: built beside the reviews, never inside one."""

from __future__ import annotations

import asyncio

import structlog

from grove.admission.rules.feasibility import NodeFacts, NodeSummary
from grove.api.core import Node
from grove.api.podrequest import parsed_amounts
from grove.api.topology import ClusterTopologyBinding
from grove.kube.cache import Cache

SETTLE_S = 1.0
"""Nodes come and go in crowds; a summary a second is enough for a warning."""

log = structlog.get_logger(__name__)


class NodeWatch:
    """Follows nodes and bindings of a cache. `summary`, None until the first is built, is for `Admission.nodes`."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._summary: NodeSummary | None = None
        self._due: asyncio.TimerHandle | None = None
        cache.on_event(Node, self._node_changed)
        cache.on_event(ClusterTopologyBinding, self._binding_changed)

    def summary(self) -> NodeSummary | None:
        return self._summary

    def build(self) -> None:
        """Builds the summary now, from what the cache holds."""
        self._due = None
        keys = {level.key for binding in self._cache.list(ClusterTopologyBinding) for level in binding.spec.levels}
        nodes = (
            NodeFacts(node.metadata.labels, parsed_amounts(node.status.allocatable)) for node in self._cache.list(Node)
        )
        self._summary = NodeSummary(nodes, keys)
        log.debug("node summary built", nodes=self._summary.count, levels=len(keys))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # Heartbeats change conditions and images, which say nothing about size or place.
        if (
            old is None
            or new is None
            or old.metadata.labels != new.metadata.labels
            or old.status.allocatable != new.status.allocatable
        ):
            self._schedule()

    def _binding_changed(self, old: ClusterTopologyBinding | None, new: ClusterTopologyBinding | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._schedule()

    def _schedule(self) -> None:
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(SETTLE_S, self.build)
