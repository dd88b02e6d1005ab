"""A real cluster with an operator, engines that are not there, and metrics services that read them, behind one Service.

Pods stand on fake nodes; a server on this machine answers for their /metrics pages. Everything between the page and the
replicas is real: `grove.metrics` reads, registers with the aggregator, and the HPA controller asks it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from grove.api import labels as key
from grove.api.core import HorizontalPodAutoscaler, Namespace, Pod, Service
from grove.api.meta import Json
from grove.crds.install import install
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import AlreadyExists, KubeError
from grove.kube.http import HttpClient
from grove.local.blueprint import Options
from grove.local.controlplane import ControlPlane
from grove.metrics.apiservices import API_SERVICE
from grove.metrics.scrape import Bounds
from grove.metrics.service import MetricsService, MetricsSettings
from grove.operator.wiring import Operator
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology
from tests.support.engines import FakeEngines
from tests.support.operating import Binder
from tests.support.storm import half_placed
from tests.support.waiting import nothing_missing

NAMESPACE = "metered"
QUICK: Options = {
    "controller_manager": True,
    "feature_gates": {"HPAScaleToZero": True},
    "hpa_sync_period_s": 1.0,
    "hpa_downscale_stabilization_s": 2.0,
    "aggregator_routing": False,
}
"""A control plane with quick autoscalers, which reaches Services by their external name."""


@dataclass
class Balancer:
    """A Service's part: connections to one port go to the replicas in turn, to the next where one does not answer."""

    ports: Callable[[], list[int]]
    port: int = 0
    served: Counter[int] = field(default_factory=Counter)
    """Connections by port of the replica."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Balancer]:
        turn = itertools.count()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ports = self.ports()
            start = next(turn)
            for number in range(len(ports)):
                port = ports[(start + number) % len(ports)]
                with suppress(OSError):
                    their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port)
                    self.served[port] += 1
                    await asyncio.gather(_copy(reader, their_writer), _copy(their_reader, writer))
                    return
            writer.close()

        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await source.read(64 * 1024):
            sink.write(part)
            await sink.drain()
    with suppress(OSError):
        sink.close()


@dataclass
class Metered:
    """What tests ask of the cluster."""

    client: HttpClient
    plane: ControlPlane
    engines: FakeEngines
    balancer: Balancer
    services: list[MetricsService]
    operator: Operator

    @property
    def metrics(self) -> MetricsService:
        return self.services[0]

    async def pods(self, set_name: str) -> list[Pod]:
        page = await self.client.list(Pod, NAMESPACE, labels=f"{key.PART_OF}={set_name}")
        return [pod for pod in page.items if not pod.metadata.is_deleting]

    async def all_whole(self, set_name: str) -> None:
        """Waits until no gang of the set has some pods on nodes and some on none: they are bound one by one."""

        async def halves() -> str:
            return ", ".join(half_placed(await self.pods(set_name)))

        await nothing_missing(halves)

    async def get_raw(self, path: str, kubeconfig: Path | None = None) -> tuple[int, Any]:
        """What the API server answers at a path, as admin or another user."""
        config = load_config(kubeconfig or self.plane.kubeconfig)
        async with HttpClient(config) as other:
            try:
                answer = await other._read("get", Pod.RESOURCE, other._transport.url(path))
                return 200, msgspec.json.decode(answer.body)
            except KubeError as error:
                return getattr(error, "code", 0), str(error)

    async def answered(self, path: str) -> Any:
        """The API server's answer at a path once it has one; numbers that were not read for a while are gone."""
        found: Any = None

        async def unanswered() -> str:
            nonlocal found
            status, found = await self.get_raw(path)
            return "" if status == 200 else f"{status} {found}"

        await nothing_missing(unanswered)
        return found

    async def unregistered(self, name: str) -> str:
        """Why an APIService is not ours and available; nothing if it is."""
        stored = await self.client.get(API_SERVICE, name)
        conditions = (stored.get("status") or {}).get("conditions") or ()
        if stored["spec"]["service"]["name"] != "grove-metrics":
            return "not ours"
        return "" if any(one["status"] == "True" for one in conditions) else f"not available: {conditions}"

    async def complaints(self) -> str:
        """What autoscalers say that they cannot do."""
        scalers = await self.client.list(HorizontalPodAutoscaler.RESOURCE, NAMESPACE)
        said = [
            f"{one['metadata']['name']}: {condition['message']}"
            for one in scalers.items
            for condition in (one.get("status") or {}).get("conditions") or ()
            if condition["status"] == "False"
        ]
        return "; ".join(said)


@asynccontextmanager
async def metered(
    plane: ControlPlane, *, replicas: int = 1, interval_s: float = 1.0, nodes: Topology | None = None
) -> AsyncIterator[Metered]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        await install(client, lambda said: None)
        services: list[MetricsService] = []
        engines = await stack.enter_async_context(FakeEngines().serving())
        balancer = Balancer(lambda: [one.port for one in services if one.is_ready])
        await stack.enter_async_context(balancer.serving())
        with suppress(AlreadyExists):
            await client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": balancer.port}]}
        meta = {"name": "grove-metrics", "namespace": NAMESPACE}
        try:
            await client.create(Service, {"metadata": meta, "spec": spec})
        except AlreadyExists:
            await client.patch(Service, "grove-metrics", {"spec": spec}, NAMESPACE)
        fakes = FakeNodes(client, SYSTEM)
        operator = Operator(client, rng=random.Random(1))
        binder = Binder(client, NAMESPACE, "", plays_kube=False)
        placing = asyncio.get_running_loop().create_task(binder.run())
        stack.push_async_callback(ended, placing)
        await stack.enter_async_context(fakes.running())
        await stack.enter_async_context(operator.running())
        world = Metered(client, plane, engines, balancer, services, operator)
        for _ in range(replicas):
            await stack.enter_async_context(another(world, interval_s))
        await fakes.add(nodes or Topology(racks=2, nodes=8))
        yield world


@asynccontextmanager
async def another(world: Metered, interval_s: float = 1.0) -> AsyncIterator[MetricsService]:
    """One more replica of the metrics service, behind the same Service."""
    bounds = Bounds(interval_s=interval_s, timeout_s=interval_s * 10)  # a busy machine is slow
    settings = MetricsSettings(NAMESPACE, host="127.0.0.1", port=0, service_port=world.balancer.port, bounds=bounds)
    service = MetricsService(world.client, settings, reach=world.engines.reach)
    world.services.append(service)
    try:
        async with service.running():
            yield service
    finally:
        world.services.remove(service)


async def ended(task: asyncio.Task[Any]) -> None:
    """Ends a task and returns when it has."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def object_metric(name: str, kind: str, **target: str) -> Json:
    about = {"apiVersion": "grove.io/v1alpha1", "kind": kind, "name": "self"}
    return {"type": "Object", "object": {"describedObject": about, "metric": {"name": name}, "target": target}}
