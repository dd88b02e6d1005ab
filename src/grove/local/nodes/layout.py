"""Names and addresses of a cluster of real nodes, in one place because certificates, routes and DNS must agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HUB = "10.100.0.1"
"""The address of the control plane on the wire that joins it with the nodes."""
WIRE = "wire"
DNS_ADDRESS = "10.0.0.10"
"""The cluster address of the Service `kube-dns`; it lies in the control plane's Service range."""
DNS_DOMAIN = "cluster.local"
PAUSE = "docker.io/library/grove-pause:1"
PLUGINS = Path("/usr/lib/cni")
HOLDS = "held"
"""A folder: a program with a file of its name in it stays down. See `inside`."""
READY = "real-nodes.json"
"""Written when the cluster is ready."""
MOST_NODES = 9


@dataclass(frozen=True, slots=True)
class Place:
    """One node: its name, addresses and folder. Nodes are numbered from 1."""

    number: int
    directory: Path

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def folder(self) -> Path:
        return self.directory / self.name

    @property
    def address(self) -> str:
        return f"10.100.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.number}.0/24"

    @property
    def link(self) -> str:
        """The end of the node's cable that is plugged into the hub's bridge."""
        return f"to-{self.name}"

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def pod_logs(self) -> Path:
        return self.folder / "pod-logs"


def places(count: int, directory: Path) -> list[Place]:
    return [Place(number, directory) for number in range(1, count + 1)]
