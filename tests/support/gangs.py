"""PodGangs and their pods made by hand, and a scheduler running over them: what the scheduler's behaviour tests share.

async with scheduling(cluster) as bench:
    await bench.add_nodes(3)
    await bench.apply(gang("demo", group("worker", 3)))
    await bench.expect({"worker": 3})
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from grove.api import labels
from grove.api.core import Event, Node, Pod, PriorityClass
from grove.api.meta import Json, Object, find_condition
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.errors import NotFound
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.seams import Seams
from grove.scheduler.replay.journal import Journal, RecordedSnapshot
from grove.scheduler.standard import STANDARD
from grove.sim.nodes import FakeNodes
from grove.sim.topology import HOST, Topology

GPU = "nvidia.com/gpu"
HOME = "example.com/bench"
"""A label that keeps the pods of one test on that test's own nodes."""


@dataclass(frozen=True)
class Group:
    name: str
    pods: int
    minimum: int
    gpus: int = 1
    required: str = ""
    preferred: str = ""
    spec: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Gang:
    """A PodGang to be: `branches` are (name, group names, required level) of groups that share a constraint."""

    name: str
    groups: tuple[Group, ...]
    required: str = ""
    preferred: str = ""
    branches: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    base: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    priority_class: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    """On the PodGang and on all its pods, as the operator puts a set's queue there."""


def group(name: str, pods: int, minimum: int | None = None, **fields: Any) -> Group:
    return Group(name, pods, pods if minimum is None else minimum, **fields)


def gang(name: str, *groups: Group, **fields: Any) -> Gang:
    return Gang(name, groups, **fields)


def constraint(required: str, preferred: str = "") -> Json:
    levels = {"required": required, "preferred": preferred}
    return {"topologyConstraint": {"packConstraint": {k: v for k, v in levels.items() if v}}}


def pod_name(gang: Gang, group: Group, number: int) -> str:
    return f"{gang.name}-{group.name}-{number}"


def gang_json(gang: Gang, namespace: str) -> Json:
    groups = []
    for one in gang.groups:
        refs = [{"namespace": namespace, "name": pod_name(gang, one, n)} for n in range(one.pods)]
        entry: Json = {"name": one.name, "minReplicas": one.minimum, "podReferences": refs}
        if one.required or one.preferred:
            entry |= constraint(one.required, one.preferred)
        groups.append(entry)
    spec: Json = {"podgroups": groups}
    if gang.required or gang.preferred:
        spec |= constraint(gang.required, gang.preferred)
    if gang.branches:
        spec["topologyConstraintGroupConfigs"] = [
            {"name": name, "podGroupNames": list(names), **constraint(required)}
            for name, names, required in gang.branches
        ]
    if gang.priority_class:
        spec["priorityClassName"] = gang.priority_class
    meta = {"name": gang.name, "namespace": namespace, "annotations": gang.annotations, "labels": gang.labels}
    return {"metadata": meta, "spec": spec}


def pod_json(name: str, namespace: str, *, gpus: int = 1, **spec: Any) -> Json:
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}} if gpus else {}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulerName": "grove-scheduler", "containers": [container], **spec},
    }


def member_json(gang: Gang, group: Group, number: int, namespace: str) -> Json:
    spec = dict(group.spec)
    if gang.priority_class:
        spec["priorityClassName"] = gang.priority_class
    pod = pod_json(pod_name(gang, group, number), namespace, gpus=group.gpus, **spec)
    pod["metadata"]["labels"] = {**gang.labels, labels.POD_GANG: gang.name, labels.POD_CLIQUE: group.name}
    if gang.base:
        pod["metadata"]["labels"][labels.BASE_POD_GANG] = gang.base
    return pod


async def add_priority(cluster: Any, name: str, value: int, **more: Any) -> None:
    """A PriorityClass that pods may name: a real server's admission plugin learns of it from a watch."""
    await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value, **more})
    probe = pod_json("probe", cluster.namespace, priorityClassName=name)
    await cluster.eventually(lambda: cluster.client.create(Pod, probe, dry_run=True))


@asynccontextmanager
async def priorities(cluster: Any, **values: int) -> AsyncIterator[None]:
    """PriorityClasses of these names, gone afterwards: they belong to the whole cluster."""
    for name, value in values.items():
        await add_priority(cluster, name, value)
    try:
        yield
    finally:
        for name in values:
            await cluster.client.delete(PriorityClass, name)


class Bench:
    """A cluster with the scheduler at work in one namespace."""

    def __init__(
        self, cluster: Any, config: SchedulerConfiguration, seams: Seams = STANDARD, journal: Journal | None = None
    ) -> None:
        self.cluster, self.client, self.namespace = cluster, cluster.client, cluster.namespace
        self.config, self.seams, self.journal = config, seams, journal
        self.scheduler: Scheduler
        self.nodes: FakeNodes
        self._running: asyncio.Task[None] | None = None
        self._node_count = 0

    # The scheduler

    async def start(self) -> None:
        journal = self.journal
        snapshot = Snapshot(seams=self.seams) if journal is None else RecordedSnapshot(journal)
        self.scheduler = Scheduler(
            self.client, self.config, self.cluster.clock, snapshot=snapshot, tape=journal, say=sentence
        )
        self._running = asyncio.get_running_loop().create_task(self.scheduler.run())
        while not self.scheduler.is_ready:
            if self._running.done():
                self._running.result()
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """As a crash: nothing is finished, nothing is said."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def clear(self) -> None:
        """Leaves nothing for the scheduler of the next test to see: a namespace takes its time to go."""
        await self.client.delete_collection(PodGang, self.namespace)
        for pod in await self.pods():
            try:
                await self.client.delete(Pod, pod.metadata.name, self.namespace, grace_period_s=0)
            except NotFound:
                continue

    # The cluster

    async def add_topology(self, topology: Topology, **options: Any) -> FakeNodes:
        labelled = Topology(
            **{name: getattr(topology, name) for name in topology.__slots__}
            | {"labels": {**topology.labels, HOME: self.namespace}}
        )
        self.nodes = await self.cluster.add_nodes(labelled, **options)
        await self.cluster.eventually(lambda: self._are_open(self.nodes.names))
        return self.nodes

    async def _are_open(self, names: Collection[str]) -> bool:
        """A real control plane taints new nodes until its controllers have seen them ready."""
        nodes = (await self.client.list(Node, labels=f"{HOME}={self.namespace}")).items
        return all(not node.spec.taints for node in nodes if node.metadata.name in names)

    async def add_nodes(self, count: int, *, gpus: int = 1) -> list[str]:
        """Further nodes; by default each has capacity for one pod."""
        if not hasattr(self, "nodes"):
            await self.add_topology(Topology(nodes=0))
        shape = next(Topology(gpus=gpus, labels={HOME: self.namespace}).objects())
        names = [f"{self.cluster.prefix}extra-{n}" for n in range(self._node_count, self._node_count + count)]
        self._node_count += count
        nodes = []
        for name in names:
            node = msgspec.json.decode(msgspec.json.encode(shape))
            node["metadata"]["name"] = name
            node["metadata"]["labels"][HOST] = name
            nodes.append(node)
        await self.nodes.add(nodes)
        await self.cluster.eventually(lambda: self._are_open(names))
        return names

    async def seen(self, kind: type[Object], name: str, namespace: str = "") -> None:
        """Returns when the scheduler has an object as it is now: pods, by another watch, may come before it."""

        async def is_known() -> bool:
            now = await self.client.get(kind, name, namespace)
            known = self.scheduler.cache.get(kind, now.metadata.key)
            return known is not None and known.metadata.resource_version == now.metadata.resource_version

        await self.cluster.eventually(is_known)

    async def apply(self, *gangs: Gang, pods: bool = True) -> None:
        for one in gangs:
            await self.client.create(PodGang, gang_json(one, self.namespace))
            if pods:
                await self.create_pods(one)

    async def create_pods(self, gang: Gang, only: Sequence[str] = ()) -> None:
        for part in gang.groups:
            for number in range(part.pods):
                pod = member_json(gang, part, number, self.namespace)
                if not only or pod["metadata"]["name"] in only:
                    await self.create_pod(pod)

    async def create_pod(self, pod: Json) -> None:
        pod["spec"].setdefault("nodeSelector", {})[HOME] = self.namespace
        await self.client.create(Pod, pod)

    # What became of it

    async def pods(self) -> list[Pod]:
        return list((await self.client.list(Pod, self.namespace)).items)

    async def nodes_of(self, gang: str, group: str = "") -> dict[str, str]:
        """Node by pod of a gang, bound ones only."""
        return {
            pod.metadata.name: pod.spec.node_name
            for pod in await self.pods()
            if pod.spec.node_name
            and not pod.metadata.is_deleting
            and pod.metadata.labels.get(labels.POD_GANG) == gang
            and (not group or pod.metadata.labels.get(labels.POD_CLIQUE) == group)
        }

    async def domains(self, level: str, gang: str, *groups: str) -> set[str]:
        """Values of a node label over the nodes that a gang, or some groups of it, are on."""
        nodes = [node for one in groups or ("",) for node in (await self.nodes_of(gang, one)).values()]
        return {(await self.client.get(Node, name)).metadata.labels[level] for name in nodes}

    async def bound(self) -> Counter[str]:
        """Pods on nodes by `gang/group`."""
        return Counter(
            f"{pod.metadata.labels.get(labels.POD_GANG, '')}/{pod.metadata.labels.get(labels.POD_CLIQUE, '')}"
            for pod in await self.pods()
            if pod.spec.node_name and not pod.metadata.is_deleting
        )

    async def expect(self, wanted: dict[str, int], *, timeout_s: float = 30.0, quiet_s: float | None = None) -> None:
        """Waits until exactly these pods are bound, and sees that it stays so for a while."""
        wanted = {name: count for name, count in wanted.items() if count}

        async def reached() -> Any:
            found = dict(await self.bound())
            return found == wanted or Wrong(found)

        await self.cluster.eventually(reached, timeout_s)
        await self.cluster.settle(quiet_s if quiet_s is not None else 3.0 if self.cluster.is_sim else 0.4)
        assert dict(await self.bound()) == wanted

    async def podgang(self, name: str) -> PodGang:
        found: PodGang = await self.client.get(PodGang, name, self.namespace)
        return found

    async def condition(self, name: str, type_: str = "Scheduled", *, words: str = "", **wanted: str) -> Any:
        """The gang's condition once it is as wanted, with these words in its message."""

        async def reached() -> Any:
            found = find_condition((await self.podgang(name)).status.conditions, type_)
            if found is None or words not in found.message:
                return Wrong(found)
            return found if all(getattr(found, key) == value for key, value in wanted.items()) else Wrong(found)

        return await self.cluster.eventually(reached)

    async def events(self, reason: str) -> list[Event]:
        return [event for event in (await self.client.list(Event, self.namespace)).items if event.reason == reason]

    async def event(self, reason: str, words: str = "") -> Event:
        async def reached() -> Any:
            found = await self.events(reason)
            fitting = [event for event in found if words in event.message]
            return fitting[0] if fitting else Wrong([event.message for event in found])

        found: Event = await self.cluster.eventually(reached)
        return found


class Wrong:
    """What was found instead; counts as not there yet and shows itself in the message of a failed wait."""

    def __init__(self, found: object) -> None:
        self._found = found

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return repr(self._found)


@asynccontextmanager
async def scheduling(
    cluster: Any, *, seams: Seams = STANDARD, journal: Journal | None = None, **config: Any
) -> AsyncIterator[Bench]:
    bench = Bench(cluster, SchedulerConfiguration(**config), seams, journal)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.stop()
        await bench.clear()
