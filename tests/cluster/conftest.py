"""Behaviour tests run twice with the same code: on the simulator in virtual time, and on a real Kubernetes 1.36.

A test takes `cluster` and gets a client, a namespace of its own, fake nodes on demand and `eventually`. Which of the
two it is, is the event loop's choice: `[sim]` runs on the simulator's loop, `[real]` on an ordinary one. The operator's
run a third time in `make soak`, on Kubernetes 1.35 (`[real-1.35]`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest

from grove.api.core import Namespace, ServiceAccount
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.config import load_config
from grove.kube.errors import KubeError
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.cluster import SimCluster
from grove.sim.loop import VirtualLoop
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology

T = TypeVar("T")

Loop = Callable[[], asyncio.AbstractEventLoop]


def _loop_of_135() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop()


LOOPS: Mapping[str, Loop] = {"sim": VirtualLoop, "real": asyncio.SelectorEventLoop}
OLDER: Mapping[str, Loop] = {"real-1.35": _loop_of_135}


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Loop]:
    """Both; only the simulator for what is marked `simulated`, a catalogue of which one case runs on both."""
    if item.get_closest_marker("simulated"):
        return {"sim": LOOPS["sim"]}
    return {**LOOPS, **OLDER} if item.path.name.startswith("test_operator_") else LOOPS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        loop = callspec.params.get("_asyncio_loop_factory") if callspec else None
        if loop in (LOOPS["real"], _loop_of_135):
            item.add_marker(pytest.mark.real)
        if loop is _loop_of_135:
            item.add_marker(pytest.mark.soak)


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

    async def _remove(self, nodes: FakeNodes) -> None:
        for name in nodes.names:
            await nodes.remove_node(name)

    async def eventually(self, look: Callable[[], Awaitable[T]], timeout_s: float = 30.0) -> T:
        """The first truthy answer of `look`; an API error counts as not yet."""
        last: object = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        last = await look()
                        if last:
                            return last
                    except KubeError as error:
                        last = error
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s} s; the last answer was {last!r}") from None

    async def settle(self, seconds: float = 1.0) -> None:
        """Gives the cluster's own controllers time to do what they should not do."""
        await asyncio.sleep(seconds)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane when this run of the test is `[real]`; it is started on the first such test."""
    callspec = getattr(request.node, "callspec", None)
    loop = callspec.params.get("_asyncio_loop_factory", LOOPS["sim"]) if callspec is not None else LOOPS["sim"]
    if loop is LOOPS["sim"]:
        return None
    plane: ControlPlane = request.getfixturevalue("control_plane_135" if loop is _loop_of_135 else "control_plane")
    return plane


@pytest.fixture
async def cluster(backend: ControlPlane | None, fresh_name: str) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        if backend is None:
            random.seed(0)
            sim = await stack.enter_async_context(SimCluster())
            found = Cluster(sim.client(), sim.clock, sim, stack)
        else:
            client = await stack.enter_async_context(HttpClient(load_config(backend.kubeconfig)))
            found = Cluster(client, SYSTEM, None, stack)
        found.namespace = fresh_name
        await found.client.create(Namespace, {"metadata": {"name": fresh_name}})
        await _await_default_account(found)
        yield found
        await found.client.delete(Namespace, fresh_name)


async def _await_default_account(cluster: Cluster) -> None:
    await cluster.eventually(lambda: cluster.client.get(ServiceAccount, "default", cluster.namespace))
