"""An operator at work on a test's cluster, and a binder that places its pods. The fixture `world` yields one.

The binder is an honest stand-in for a gang scheduler. It binds a gang whole, when every pod of it exists and, for a
scaled gang, when its base gang is placed. It counts capacity only if the test limits it. It also plays kube-scheduler
for ungated pods where the cluster has none.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from grove.api import labels as key
from grove.api.core import (
    Event,
    HorizontalPodAutoscaler,
    Node,
    Pod,
    ResourceClaim,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.meta import Json, Key, Object, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.config import OperatorConfiguration, load_configuration
from grove.diagnosis.reasons import sentence
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import Conflict, NotFound
from grove.kube.http import HttpClient
from grove.kube.tracing import Traces
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.sim.topology import Topology
from tests.support.running import beside

T = TypeVar("T", bound=Object)

KUBE = "scheduler: {profiles: [{name: default-scheduler}]}\n"
"""A configuration in which kube-scheduler places the pods."""
TOPOLOGY = "topologyAwareScheduling: {enabled: true}\n"
MANAGED = f"{key.MANAGED_BY}={key.OPERATOR}"
MINUTE = 60.0


class Binder:
    """Places pods on the nodes of one test, gangs whole. `room` is how many pods it may still place."""

    def __init__(self, client: Client, namespace: str, prefix: str, *, plays_kube: bool) -> None:
        self._client, self._namespace, self._prefix, self._plays_kube = client, namespace, prefix, plays_kube
        self.room: int | None = None
        self.refuses: Callable[[Pod], bool] = lambda pod: False
        """Pods that never get a node."""
        self._capacity: int | None = None
        self._bound: set[str] = set()
        self._cache = Cache(client)
        for kind in (Pod, PodGang):
            self._cache.add(kind, namespace=namespace)
        self._cache.add(Node)
        self._changed = asyncio.Event()
        for kind in (Pod, PodGang, Node):
            self._cache.on_event(kind, lambda old, new: self._changed.set())
        self._next = 0

    def allow(self, pods: int | None) -> None:
        """Capacity for this number of further pods; None is capacity for all."""
        self.room = pods
        self._changed.set()

    def has_places(self, pods: int | None) -> None:
        """At most this number of pods has a node at a time; a pod that terminates frees its place when it no longer
        exists.
        """
        self._capacity = pods
        self._changed.set()

    def _count_places(self) -> None:
        if self._capacity is not None:
            there = sum(pod.is_bound or pod.metadata.uid in self._bound for pod in self._cache.list(Pod))
            self.room = max(0, self._capacity - there)

    async def run(self) -> None:
        async with self._cache:
            await self._cache.wait_synced()
            while True:
                self._changed.clear()
                self._count_places()
                await self._place_all()
                await self._changed.wait()

    async def _place_all(self) -> None:
        for gang in sorted(self._cache.list(PodGang), key=lambda one: one.metadata.name):
            await self._place(gang)
        if self._plays_kube:
            loose = (pod for pod in self._cache.list(Pod) if pod.spec.scheduler_name == "default-scheduler")
            await self._bind([pod for pod in loose if _is_placeable(pod)])

    async def _place(self, gang: PodGang) -> None:
        pods: dict[str, list[Pod]] = {}
        for group in gang.spec.podgroups:
            found = [self._cache.get(Pod, Key(ref.namespace, ref.name)) for ref in group.pod_references]
            pods[group.name] = [pod for pod in found if pod is not None and not pod.metadata.is_deleting]
            if len(pods[group.name]) < max(group.min_replicas, len(group.pod_references)):
                return
        every = [pod for members in pods.values() for pod in members]
        waiting = [pod for pod in every if _is_placeable(pod) and pod.spec.scheduler_name == key.GROVE_SCHEDULER]
        if not waiting or not self._base_is_placed(every) or any(map(self.refuses, every)):
            return
        missing = [
            pod
            for group in gang.spec.podgroups
            for bound in [sum(pod.is_bound for pod in pods[group.name])]
            for pod in [one for one in pods[group.name] if not one.is_bound][: max(0, group.min_replicas - bound)]
        ]
        if self.room is not None and len(missing) > self.room:
            return
        surplus = [pod for pod in waiting if pod not in missing]
        await self._bind(missing + surplus)

    def _base_is_placed(self, pods: list[Pod]) -> bool:
        base = next(
            (pod.metadata.labels[key.BASE_POD_GANG] for pod in pods if key.BASE_POD_GANG in pod.metadata.labels), ""
        )
        gang = self._cache.get(PodGang, Key(self._namespace, base)) if base else None
        if not base:
            return True
        return gang is not None and all(
            sum(self._is_bound(ref.name) for ref in group.pod_references) >= group.min_replicas
            for group in gang.spec.podgroups
        )

    def _is_bound(self, name: str) -> bool:
        pod = self._cache.get(Pod, Key(self._namespace, name))
        return pod is not None and pod.is_bound

    async def _bind(self, pods: list[Pod]) -> None:
        nodes = sorted(node.metadata.name for node in self._cache.list(Node) if _is_usable(node, self._prefix))
        for pod in pods:
            if not nodes or self.room == 0:
                return
            self._next += 1
            try:
                await self._client.bind(pod.metadata.namespace, pod.metadata.name, nodes[self._next % len(nodes)])
            except (Conflict, NotFound):
                continue
            self._bound.add(pod.metadata.uid)  # the cache may show that later
            if self.room is not None:
                self.room -= 1


def _is_placeable(pod: Pod) -> bool:
    return not pod.is_bound and not pod.is_gated and not pod.metadata.is_deleting


def _is_usable(node: Node, prefix: str) -> bool:
    return node.metadata.name.startswith(prefix) and not node.spec.unschedulable and not node.metadata.is_deleting


class World:
    """A cluster with an operator: what a test does and asks in few words."""

    def __init__(self, cluster: Any, config: OperatorConfiguration, stack: AsyncExitStack, startup_image: str) -> None:
        self.cluster, self.client, self.namespace = cluster, cluster.client, cluster.namespace
        self.config, self._stack, self._startup_image = config, stack, startup_image
        self.operator: Operator
        self.binder: Binder
        self.nodes: Any = None
        self.operator_client: Any = None
        self.traces: Traces | None = None
        self._running: AsyncExitStack | None = None

    async def start(self) -> None:
        """Starts an operator like a new process: all its facts come from the cluster."""
        self._running = stack = AsyncExitStack()
        self.operator_client = await self._own_client(stack)
        self.operator = Operator(
            self.operator_client,
            self.config,
            clock=self.cluster.clock,
            rng=random.Random(7),
            startup_image=self._startup_image,
            namespace="" if self.cluster.is_sim else self.namespace,
            traces=self.traces,
        )
        await stack.enter_async_context(self.operator.running())

    async def stop(self) -> None:
        if self._running is not None:
            await self._running.aclose()
            self._running = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _own_client(self, stack: AsyncExitStack) -> Any:
        if self.cluster.is_sim:
            return self.cluster.sim.client(user="system:serviceaccount:grove-system:grove-operator")
        return await stack.enter_async_context(HttpClient(self.client.config, user_agent="grove-operator"))

    # Doing

    async def apply(self, manifest: Json) -> PodCliqueSet:
        manifest["metadata"]["namespace"] = self.namespace
        made: PodCliqueSet = await self.client.create(PodCliqueSet, manifest)
        return made

    async def scale(self, kind: type[Object], name: str, replicas: int) -> None:
        """As `kubectl scale` does it."""
        patch = {"spec": {"replicas": replicas}}
        await self.client.patch(kind, name, patch, self.namespace, subresource="scale")

    async def delete(self, kind: type[Object], name: str, **options: Any) -> None:
        await self.client.delete(kind, name, self.namespace, **options)

    async def clear(self) -> None:
        """Removes what the test made while there is an operator to take its finalizers off: the cluster is shared."""
        if self.cluster.is_sim:
            return
        if self._running is None:
            await self.start()
        await self.client.delete_collection(PodCliqueSet, self.namespace)

        async def gone() -> bool:
            left = [await self.list(kind) for kind in (PodCliqueSet, PodCliqueScalingGroup, PodClique)]
            return not any(left)

        await self.eventually(gone, 60)

    # Asking

    async def list(self, kind: type[T], **labels: str) -> list[T]:
        page = await self.client.list(kind, self.namespace)
        found = [one for one in page.items if all(one.metadata.labels.get(k) == v for k, v in labels.items())]
        return sorted(found, key=lambda one: one.metadata.name)

    async def names(self, kind: type[Object]) -> list[str]:
        """Names of what is there to stay."""
        return [one.metadata.name for one in await self.list(kind) if not one.metadata.is_deleting]

    async def get(self, kind: type[T], name: str) -> T:
        found: T = await self.client.get(kind, name, self.namespace)
        return found

    async def pods(self, clique: str = "") -> list[Pod]:
        """Pods that stay, of one clique or of all."""
        labels = {key.POD_CLIQUE: clique} if clique else {}
        return [pod for pod in await self.list(Pod, **labels) if not pod.metadata.is_deleting]

    async def has_pods(self, count: int, clique: str = "") -> bool:
        """True if this number of pods stays, of one clique or of all."""
        return len(await self.pods(clique)) == count

    async def hostnames(self, clique: str = "") -> list[str]:
        return sorted(pod.spec.hostname for pod in await self.pods(clique))

    async def available(self, name: str, replicas: int | None = None, timeout_s: float = MINUTE) -> PodCliqueSet:
        """The set, once it has settled with all its replicas (or as many as said) available and said so itself."""

        async def settled() -> PodCliqueSet | None:
            pcs: PodCliqueSet = await self.get(PodCliqueSet, name)
            want = pcs.spec.replicas if replicas is None else replicas
            said = pcs.status.observed_generation == pcs.metadata.generation
            return pcs if said and pcs.status.available_replicas == want else None

        await self.cluster.eventually(settled, timeout_s)
        await self.quiet()
        return await self.get(PodCliqueSet, name)

    async def ready(self, pods: int) -> None:
        """Returns when this number of pods exists, and the cliques say that all of them are ready.

        A set is available before its scaled gangs are, and before pods above a minimum.
        """

        async def all_ready() -> bool:
            said = [clique.status.ready_replicas for clique in await self.list(PodClique)]
            return len(await self.pods()) == sum(said) == pods

        await self.eventually(all_ready)

    async def quiet(self, for_s: float = 1.5, timeout_s: float = MINUTE) -> None:
        """Returns when the operator has written nothing for a while, and no status waits to be written."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.cluster.patience_s(timeout_s)):
            before, since = self.writes(), loop.time()
            while loop.time() - since < for_s or not self.operator.is_idle or self.operator.deps.status_batches.waiting:
                await asyncio.sleep(0.1)
                if self.writes() != before:
                    before, since = self.writes(), loop.time()

    async def eventually(self, look: Callable[[], Awaitable[Any]], timeout_s: float = MINUTE) -> Any:
        return await self.cluster.eventually(look, timeout_s)

    def writes(self) -> Counter[tuple[str, str]]:
        """What this operator has written so far, by verb and resource."""
        reads = ("get", "list", "watch", "serves", "discover")
        return Counter({call: n for call, n in self.operator_client.calls.items() if call[0] not in reads})

    async def graph(self) -> list[Json]:
        """Every object made for the sets of this test, as plain JSON."""
        kinds = (
            PodClique,
            PodCliqueScalingGroup,
            PodGang,
            Pod,
            Service,
            ServiceAccount,
            Role,
            RoleBinding,
            Secret,
            HorizontalPodAutoscaler,
            ResourceClaim,
        )
        found: list[Json] = []
        for kind in kinds:
            res = kind.RESOURCE
            page = await self.client.list(res, self.namespace, labels=MANAGED)
            found += ({"apiVersion": res.api_version, "kind": res.kind, **one} for one in page.items)
        return found

    async def delete_without_children(self, name: str, *, away: bool) -> None:
        """As `kubectl delete --cascade=orphan`; the operator may be away until the garbage collector has done its."""
        if away:
            await self.stop()
        await self.delete(PodCliqueSet, name, propagation="Orphan")

        async def only_waits_for_us() -> bool:
            return "orphan" not in (await self.get(PodCliqueSet, name)).metadata.finalizers

        async def gone() -> bool:
            return not await self.list(PodCliqueSet)

        if away:
            await self.eventually(only_waits_for_us)
            await self.start()
        await self.eventually(gone)
        await self.cluster.settle(3.0)

    async def event(self, about: str, reason: str) -> str:
        """Waits for the words of such an Event: the operator writes them behind its other writes, in their order."""

        async def message() -> str:
            events = await self.list(Event)
            fitting = (one.message for one in events if (one.involved_object.name, one.reason) == (about, reason))
            return next(fitting, "")

        words: str = await self.eventually(message)
        return words

    async def event_reasons(self, about: str) -> set[str]:
        events = await self.list(Event)
        return {event.reason for event in events if event.involved_object.name == about}


@asynccontextmanager
async def operating(
    cluster: Any,
    *,
    config: str = "",
    nodes: Topology | None = None,
    startup_image: str = "grove/startup:test",
    traces: Traces | None = None,
) -> AsyncIterator[World]:
    """A world with an operator of this configuration, some nodes, and a binder for their pods."""
    async with AsyncExitStack() as stack:
        world = World(cluster, load_configuration(config), stack, startup_image)
        world.traces = traces
        world.nodes = await cluster.add_nodes(nodes or Topology(racks=2, nodes=2))
        world.binder = Binder(cluster.client, cluster.namespace, cluster.prefix, plays_kube=cluster.is_sim)
        async with beside(world.binder.run()):
            try:
                await world.start()
                yield world
                await world.clear()
            finally:
                await world.stop()


@dataclass(frozen=True)
class Operating:
    """How the fixture `world` runs the operator. A module that needs other settings has `OPERATING = Operating(…)`.

    With `scheduled` a scheduler places the pods instead of the binder. With `stopped` the operator has been stopped.
    """

    config: str = ""
    nodes: Topology | None = None
    startup_image: str = "grove/startup:test"
    start_s: float | None = None
    stop_s: float | None = None
    scheduled: bool = False
    stopped: bool = False

    @asynccontextmanager
    async def on(self, cluster: Any) -> AsyncIterator[World]:
        async with (
            operating(cluster, config=self.config, nodes=self.nodes, startup_image=self.startup_image) as world,
            AsyncExitStack() as stack,
        ):
            if self.start_s is not None:
                world.nodes.start_s = self.start_s
            if self.stop_s is not None:
                world.nodes.stop_s = self.stop_s
            if self.scheduled:
                world.binder.allow(0)
                scheduler = Scheduler(world.client, clock=world.cluster.clock, say=sentence)
                await stack.enter_async_context(beside(scheduler.run()))
            if self.stopped:
                await world.stop()
            yield world


def condition(conditions: Iterable[Any], type_: str) -> tuple[str, str] | None:
    """Status and reason of a condition, to compare with."""
    found = next((one for one in conditions if one.type == type_), None)
    return (found.status, found.reason) if found is not None else None


__all__ = [
    "KUBE",
    "TOPOLOGY",
    "Binder",
    "Operating",
    "PodClique",
    "PodCliqueScalingGroup",
    "World",
    "condition",
    "is_true",
    "operating",
]
