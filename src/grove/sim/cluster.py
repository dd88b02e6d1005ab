"""The assembled cluster: server, garbage collector, token and disruption controllers, fake nodes.

    async with SimCluster(nodes=Topology(racks=2, nodes=4)) as cluster:
        client = cluster.client(user="grove-operator")

Meant for the virtual-time loop (`grove.sim.loop.run`), where a run repeats exactly; works on an ordinary loop too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Self

from grove import crds
from grove.api.meta import Json, Key
from grove.kube.clock import Clock
from grove.sim.client import SimClient
from grove.sim.disruption import DisruptionController
from grove.sim.gc import GarbageCollector
from grove.sim.kinds import CRD, NAMESPACE, PRIORITY_CLASS
from grove.sim.lifecycle import NodeLifecycle
from grove.sim.loop import LoopClock
from grove.sim.nodes import Delay, FakeNodes
from grove.sim.quota import QuotaController
from grove.sim.server import SimServer
from grove.sim.tokens import TokenController
from grove.sim.topology import Topology

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES = (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))


class SimCluster:
    """A cluster inside the process. `definitions` are the CRDs to install; Grove's own when not given."""

    def __init__(
        self,
        *,
        nodes: Topology | None = None,
        seed: int = 0,
        clock: Clock | None = None,
        latency_s: float = 0.001,
        start_s: Delay = 0.0,
        stop_s: Delay = 0.0,
        report_init: bool = False,
        definitions: Sequence[Json] | None = None,
    ) -> None:
        self.clock = clock or LoopClock()
        self.rng = random.Random(seed)
        self.server = SimServer(self.clock, rng=random.Random(self.rng.getrandbits(64)))
        self._latency_s, self._topology = latency_s, nodes
        self._definitions = own_crds() if definitions is None else definitions
        self.gc = GarbageCollector(self.server)
        self.tokens = TokenController(self.server)
        self.disruption = DisruptionController(self.server)
        self.quota = QuotaController(self.server)
        self.lifecycle = NodeLifecycle(self.server)
        kubelets = self.client(user="system:nodes")
        self.nodes = FakeNodes(kubelets, self.clock, start_s=start_s, stop_s=stop_s, report_init=report_init)
        self._running = self.nodes.running()

    def client(self, *, user: str = "kubernetes-admin") -> SimClient:
        return SimClient(self.server, user=user, latency_s=self._latency_s)

    async def start(self) -> None:
        for name in _NAMESPACES:
            await self.server.create(NAMESPACE, {"metadata": {"name": name}})
        for name, value in _PRIORITIES:
            await self.server.create(PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})
        for crd in self._definitions:
            await self.server.create(CRD, crd)
        await self._running.__aenter__()
        if self._topology is not None:
            await self.nodes.add(self._topology)

    async def stop(self) -> None:
        await self._running.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def eventually(self, holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Waits until the condition holds, looking again after every write; TimeoutError when it does not in time."""
        changed = asyncio.Event()
        self.server.store.listeners.append(listener := lambda _resource, _change: changed.set())
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    changed.clear()
                    await changed.wait()
        finally:
            self.server.store.listeners.remove(listener)

    def json(self, kind: type, name: str, namespace: str = "") -> Json | None:
        """The stored JSON of an object, for assertions; not to be changed."""
        resource = kind.RESOURCE  # type: ignore[attr-defined]
        version = self.server.store.collection(resource).objects.get(Key(namespace, name))
        return version.json if version else None


@cache
def own_crds() -> tuple[Json, ...]:
    """Grove's own definitions; read once a process, because a thousand seeded runs start a thousand clusters."""
    return tuple(crds.load())
