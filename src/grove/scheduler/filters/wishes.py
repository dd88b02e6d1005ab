"""What pods would like, by their own words: preferred node affinity, and pods to be near to or apart from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.filters.interpod import pods_near
from grove.scheduler.filters.selectors import term_mask
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.seams import PREFERRED_NODES, PREFERRED_PODS, Score

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot


class PreferredNodes(Score):
    """Weights of the preferred terms that a node meets."""

    name = PREFERRED_NODES

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        if not shape.preferred_nodes:
            return None
        table = snapshot.nodes
        score = np.zeros(table.rows, dtype=np.int64)
        for weight, term in shape.preferred_nodes:
            # In a preference, unlike a requirement, an empty term matches every node.
            met = term_mask(table, term) if term.labels or term.names else np.ones(table.rows, dtype=np.bool_)
            score += weight * met
        return score


class PreferredPods(Score):
    """Weights of preferred pod terms, times the pods that are near; what is wished apart counts against."""

    name = PREFERRED_PODS

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        if not shape.preferred_pods:
            return None
        score = np.zeros(snapshot.nodes.rows, dtype=np.int64)
        for weight, pods in shape.preferred_pods:
            score += weight * pods_near(snapshot, pods)
        return score
