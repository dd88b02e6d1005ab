"""The story of the demonstration as its tests see it."""

from __future__ import annotations

from pathlib import Path

import grove.demo
from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.meta import Resource
from grove.plan.world import World
from grove.sim.store import Change

ROOM = Path(grove.demo.__file__).parent
SAMPLES = Path(__file__).parents[2] / "samples"
TENTH = 0.1
"""The story's times are rounded to tenths of a second, and begin some milliseconds after those of the witness."""

LEVELS = {
    "zone": "topology.kubernetes.io/zone",
    "block": "topology.kubernetes.io/block",
    "rack": "topology.kubernetes.io/rack",
}


class Witness:
    """Sees every write of a run, and remembers of pods what the story speaks about."""

    def __init__(self) -> None:
        self.world: World
        self.bound: list[tuple[float, Pod]] = []
        self.ready: list[tuple[float, Pod]] = []
        self.left: list[tuple[float, Pod]] = []
        self.nodes: dict[str, Node] = {}
        self.images: set[str] = set()

    def attend(self, world: World) -> None:
        self.world = world
        self.nodes = {node.metadata.name: node for node in world.all(Node)}
        world.cluster.server.store.listeners.append(self._see)

    def _see(self, resource: Resource, change: Change) -> None:
        if resource != Pod.RESOURCE or change.type == "DELETED":
            return
        old = change.previous.view(Pod) if change.previous else None
        new = change.version.view(Pod)
        now = self.world.time_s
        if new.is_bound and not (old and old.is_bound):
            self.bound.append((now, new))
            self.images.add(new.spec.containers[0].image)
        if new.is_ready and not (old and old.is_ready):
            self.ready.append((now, new))
        if new.metadata.is_deleting and not (old and old.metadata.is_deleting):
            self.left.append((now, new))

    def domain(self, pod: Pod, level: str) -> str:
        return self.nodes[pod.spec.node_name].metadata.labels[LEVELS[level]]

    def first_ready(self, clique: str) -> float:
        return min(at for at, pod in self.ready if pod.metadata.labels[labels.POD_CLIQUE] == clique)
