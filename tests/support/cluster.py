"""A cluster as behaviour tests see it: the simulator in virtual time, or a real Kubernetes, by the same calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import KubeError, NotFound
from grove.sim.cluster import SimCluster
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology
from tests.support.waiting import pauses_s

T = TypeVar("T")

BUSY_S = 300.0
"""The least time to wait for something on a real cluster: its machine may be busy with something else."""


class Cluster:
    """One of the two clusters, as a behaviour test sees it."""

    def __init__(self, client: Client, clock: Clock, sim: SimCluster | None, stack: AsyncExitStack) -> None:
        self.client, self.clock, self.sim = client, clock, sim
        self.namespace = ""
        self._stack = stack

    @property
    def is_sim(self) -> bool:
        return self.sim is not None

    async def add_nodes(self, topology: Topology, **options: Any) -> FakeNodes:
        """Fake nodes, running until the test ends. Their names carry a prefix of the test's own."""
        topology = Topology(**{name: getattr(topology, name) for name in topology.__slots__} | {"prefix": self.prefix})
        nodes = FakeNodes(self.client, self.clock, **options)
        await self._stack.enter_async_context(nodes.running())
        await nodes.add(topology)
        self._stack.push_async_callback(self._remove, nodes)
        return nodes

    @property
    def prefix(self) -> str:
        return f"{self.namespace}-"

    @property
    def nowhere(self) -> str:
        """A node that does not exist, of this test's own, to bind pods to.

        A real pod collector ends whatever is bound to such a name, of any test, forty seconds after it first saw it.
        """
        return f"{self.prefix}nowhere"

    async def _remove(self, nodes: FakeNodes) -> None:
        for name in nodes.names:
            with suppress(NotFound):  # the test deleted it
                await nodes.remove_node(name)

    async def eventually(self, look: Callable[[], Awaitable[T]], timeout_s: float = 30.0) -> T:
        """The first truthy answer of `look`; an API error counts as not yet. Virtual time is held to the second."""
        last: object = None
        timeout_s = self.patience_s(timeout_s)
        pauses = pauses_s(longest_s=0.05 if self.is_sim else 0.25)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        last = await look()
                        if last:
                            return last
                    except KubeError as error:
                        last = error
                    await asyncio.sleep(next(pauses))
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s} s; the last answer was {last!r}") from None

    def patience_s(self, timeout_s: float) -> float:
        """How long to wait for what should take no longer than `timeout_s`."""
        return timeout_s if self.is_sim else max(timeout_s, BUSY_S)

    async def settle(self, seconds: float = 1.0) -> None:
        """Gives the cluster's own controllers time to do what they should not do."""
        await asyncio.sleep(seconds)
