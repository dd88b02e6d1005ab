"""Shapes of fake clusters: zones of blocks of racks of nodes, as Node objects ready to be created.

Domain names carry their whole path (`z0-b1-r2`), so a label value names one domain in the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from grove.api.meta import Json

ZONE, BLOCK, RACK, HOST = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/block",
    "topology.kubernetes.io/rack",
    "kubernetes.io/hostname",
)
LEVELS: tuple[tuple[str, str], ...] = (("zone", ZONE), ("block", BLOCK), ("rack", RACK), ("host", HOST))
"""Domain names and label keys from broad to narrow, as a ClusterTopologyBinding lists them."""


@dataclass(frozen=True, slots=True)
class Topology:
    """`nodes` is per rack, `racks` per block, `blocks` per zone; every node is alike."""

    zones: int = 1
    blocks: int = 1
    racks: int = 1
    nodes: int = 1
    gpus: int = 8
    cpu: str = "128"
    memory: str = "1024Gi"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    def __len__(self) -> int:
        return self.zones * self.blocks * self.racks * self.nodes

    def objects(self) -> Iterator[Json]:
        """The nodes in topology order, without the time they became ready, which their creator sets."""
        for z, b, r, n in product(range(self.zones), range(self.blocks), range(self.racks), range(self.nodes)):
            zone, block, rack = f"z{z}", f"z{z}-b{b}", f"z{z}-b{b}-r{r}"
            name = f"{self.prefix}{rack}-n{n}"
            domains = {ZONE: self.prefix + zone, BLOCK: self.prefix + block, RACK: self.prefix + rack}
            yield self._node(name, domains)

    def _node(self, name: str, domains: Mapping[str, str]) -> Json:
        capacity = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        if self.gpus:
            capacity["nvidia.com/gpu"] = str(self.gpus)
        arch = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**arch, **domains, HOST: name, **self.labels}},
            "spec": {},
            "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
        }
