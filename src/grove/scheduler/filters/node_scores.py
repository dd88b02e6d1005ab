"""What pods would like, where several nodes will do: preferred terms, peers nearby, no better GPU than needed.

A score decides only between places that are equally close together by the gang's own constraints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from grove.api.fields import natural
from grove.scheduler.cluster.node_table import Ints, NodeTable
from grove.scheduler.filters.node_filters import term_mask
from grove.scheduler.filters.pod_relations import pods_near, sums_by_domain
from grove.scheduler.model.facts import HOSTNAME, SLOT, Network, Shape
from grove.scheduler.model.reading import BANDWIDTH
from grove.scheduler.model.seams import (
    GPU_CAPABILITY,
    NETWORK_AFFINITY,
    NETWORK_BANDWIDTH,
    NETWORK_TERMS,
    PREFERRED_NODES,
    PREFERRED_PODS,
    RESERVED,
    Score,
)

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot

GPU_MEMORY_LABEL, GPU_COMPUTE_LABEL = "nvidia.com/gpu.memory", "nvidia.com/gpu.compute.major"
"""Labels of GPU feature discovery: memory of a card in MiB, and the first number of its compute capability."""
NVLINK_LABEL = "nvidia.com/gpu.clique"
"""The same for the NVLink domain of a node."""
WHOLE = 1000
"""What terms of a score are measured in."""
STEP = 5
"""Degrees in which the network is judged: the search distinguishes a few dozen."""
TENTHS = 10
GPUS = ("nvidia.com/gpu", "amd.com/gpu", "koordinator.sh/gpu", "koordinator.sh/gpu-core")


class NetworkAffinity(Score):
    """A score from 0 to 100 for a node.

    It counts how near the node is to the pods that this pod talks to, and how full its cards would be. It also counts
    pods of the same clique in its NVLink domain, and whether the node is in a requested zone.

    While none of these pods has a node, the score prefers nodes whose domain can take the whole gang.
    """

    name = NETWORK_AFFINITY

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        network = shape.network
        if network is None:
            return None
        terms = {"distance": _closeness, "gpuFill": _gpu_fill, "accelerator": _accelerator, "zone": _zone}
        total = np.zeros(snapshot.nodes.rows, dtype=np.int64)
        for term, worth in terms.items():
            name = f"{NETWORK_AFFINITY}.{term}"
            weight = snapshot.seams.weights.get(name, NETWORK_TERMS[name])
            column = worth(snapshot, shape, network) if weight else None
            if column is not None:
                total += weight * column
        return (total + STEP * WHOLE // 2) // (STEP * WHOLE) * STEP


def _levels(snapshot: Snapshot) -> tuple[str, ...]:
    return max(snapshot.topologies.values(), key=len, default=(HOSTNAME,))


def _closeness(snapshot: Snapshot, shape: Shape, network: Network) -> Ints | None:
    """The share of levels that a node has in common with placed peers, by their weights."""
    table = snapshot.nodes
    peers = [(weight, row) for weight, node in network.peers if (row := table.row_of.get(node)) is not None]
    if not peers:
        above = [key for key in _levels(snapshot) if key != HOSTNAME]
        return _capacity_for_all(snapshot, shape, network, above[-1]) if above else None
    levels = _levels(snapshot)
    near = np.zeros(table.rows, dtype=np.int64)
    for key in levels:
        ids = table.column(key).ids
        here = ids[: table.rows]
        for weight, row in peers:
            if ids[row] >= 0:
                near += weight * (here == ids[row])
    return near * WHOLE // (len(levels) * sum(weight for weight, _ in peers))


def _capacity_for_all(snapshot: Snapshot, shape: Shape, network: Network, key: str) -> Ints | None:
    """The share of its gang's waiting pods that a node's domain of a label would hold, were they all like this one."""
    asked = [(r, amount) for r, amount in snapshot.amounts(shape.requests) if amount > 0]
    if not asked:
        return None
    rows = snapshot.nodes.rows
    ids = snapshot.nodes.column(key).ids[:rows]
    slots = np.maximum(np.minimum.reduce([snapshot.free[r, :rows] // amount for r, amount in asked]), 0)
    held = sums_by_domain(ids, slots, int(ids.max(initial=-1)) + 2)  # the last one is that of nodes in no domain
    return np.minimum(held[ids], network.waiting) * WHOLE // max(1, network.waiting)


def _gpu_fill(snapshot: Snapshot, shape: Shape, network: Network) -> Ints | None:
    """How much of a node's cards is used with the pod on it."""
    wanted = tuple((name, amount) for name, amount in shape.requests if name in GPUS and amount)[:1]
    for r, amount in snapshot.amounts(wanted):
        rows = snapshot.nodes.rows
        has, free = snapshot.allocatable[r, :rows], snapshot.free[r, :rows]
        filled: Ints = np.clip(has - free + amount, 0, has) * WHOLE // np.maximum(has, 1)
        return filled
    return None


def _accelerator(snapshot: Snapshot, shape: Shape, network: Network) -> Ints | None:
    """The share of its clique's placed pods that are in a node's NVLink domain; of none, the capacity there for all."""
    table = snapshot.nodes
    ids = table.column(NVLINK_LABEL).ids
    if not network.clique:
        return _capacity_for_all(snapshot, shape, network, NVLINK_LABEL) if ids.max(initial=-1) >= 0 else None
    placed = [row for node in network.clique if (row := table.row_of.get(node)) is not None and ids[row] >= 0]
    if not placed:
        return None
    here = ids[: table.rows]
    scores = np.zeros(table.rows, dtype=np.int64)
    for row in placed:
        scores += here == ids[row]
    return scores * WHOLE // len(network.clique)


def _zone(snapshot: Snapshot, shape: Shape, network: Network) -> Ints | None:
    scores = np.zeros(snapshot.nodes.rows, dtype=np.int64)
    for worth, term in network.zones:
        scores = np.maximum(scores, worth * (WHOLE // 100) * term_mask(snapshot.nodes, term))
    return scores if network.zones else None


class NetworkBandwidth(Score):
    """0 to 100: nodes with more bandwidth, for pods that ask for some or are known to talk to others."""

    name = NETWORK_BANDWIDTH

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        if BANDWIDTH not in snapshot.resources or (shape.network is None and not shape.amount(BANDWIDTH)):
            return None
        has = snapshot.allocatable[snapshot.resources.index(BANDWIDTH), : snapshot.nodes.rows]
        most = int(has.max(initial=0))
        return has * (100 // TENTHS) // most * TENTHS if most else None


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
    scores = np.zeros(table.rows, dtype=np.int64)
    for key, unit in ((GPU_MEMORY_LABEL, 1024), (GPU_COMPUTE_LABEL, 1)):
        column = table.column(key)
        if not column.values:
            continue
        sizes = [(natural(value) or 0) // unit for value in column.values]
        scores -= np.array([*sizes, max(sizes)], dtype=np.int64)[column.ids[: table.rows]]
    return scores if scores.any() else None


class Reserved(Score):
    """Nodes where the pod has a place in a reservation: what is kept for it is used first."""

    name = RESERVED

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        slots = {name for way in (shape.requests, *shape.alternatives) for name, _ in way if name.startswith(SLOT)}
        if not slots:
            return None
        scores = np.zeros(snapshot.nodes.rows, dtype=np.int64)
        for r, _ in snapshot.amounts(tuple((name, 1) for name in sorted(slots))):
            scores |= (snapshot.free[r, : scores.size] > 0).astype(np.int64)
        return scores


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
