"""What pods would like, where several nodes will do: preferred terms, peers nearby, no better GPU than needed.

A score decides only between places that are equally close together by the gang's own constraints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.nodes import Ints, NodeTable
from grove.scheduler.filters.interpod import pods_near
from grove.scheduler.filters.selectors import term_mask
from grove.scheduler.model.facts import HOSTNAME, Shape
from grove.scheduler.model.seams import (
    GPU_CAPABILITY,
    NETWORK_AFFINITY,
    PREFERRED_NODES,
    PREFERRED_PODS,
    RESERVED,
    Score,
)
from grove.scheduler.reserve.slots import SLOT

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot

GPU_MEMORY_LABEL, GPU_COMPUTE_LABEL = "nvidia.com/gpu.memory", "nvidia.com/gpu.compute.major"
"""Labels of GPU feature discovery: memory of a card in MiB, and the first number of its compute capability."""
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "koordinator.sh/gpu", "koordinator.sh/gpu-core")


class NetworkAffinity(Score):
    """100 for a node that shares every level with all placed peers, less for each level that is not shared."""

    name = NETWORK_AFFINITY

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        table = snapshot.nodes
        peers = [(weight, row) for weight, node in shape.peers if (row := table.row_of.get(node)) is not None]
        if not peers:
            return None
        levels = max(snapshot.topologies.values(), key=len, default=(HOSTNAME,))
        near = np.zeros(table.rows, dtype=np.int64)
        for key in levels:
            ids = table.column(key).ids
            here = ids[: table.rows]
            for weight, row in peers:
                if ids[row] >= 0:
                    near += weight * (here == ids[row])
        return near * 100 // (len(levels) * sum(weight for weight, _ in peers))


class GpuCapability(Score):
    """Of nodes whose cards suffice, those with the least memory and compute are liked best."""

    name = GPU_CAPABILITY

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        if not any(name in GPUS for name, amount in shape.requests if amount):
            return None
        table = snapshot.nodes
        return table.derived("gpu capability", lambda: _lacking_capability(table))


def _lacking_capability(table: NodeTable) -> Ints | None:
    """Less for the larger card, by row; None where all cards are alike. Most clusters have one kind: asked once."""
    found = np.zeros(table.rows, dtype=np.int64)
    for key, unit in ((GPU_MEMORY_LABEL, 1024), (GPU_COMPUTE_LABEL, 1)):
        column = table.column(key)
        if not column.values:
            continue
        sizes = [int(value) // unit if value.isdigit() else 0 for value in column.values]
        found -= np.array([*sizes, max(sizes)], dtype=np.int64)[column.ids[: table.rows]]
    return found if found.any() else None


class Reserved(Score):
    """Nodes where the pod has a place in a reservation: what is kept for it is used first."""

    name = RESERVED

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        slots = {name for way in (shape.requests, *shape.alternatives) for name, _ in way if name.startswith(SLOT)}
        if not slots:
            return None
        found = np.zeros(snapshot.nodes.rows, dtype=np.int64)
        for r, _ in snapshot.amounts(tuple((name, 1) for name in sorted(slots))):
            found |= (snapshot.free[r, : found.size] > 0).astype(np.int64)
        return found


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
