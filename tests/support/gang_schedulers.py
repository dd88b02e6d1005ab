"""Stand-ins for other people's gang schedulers, as strict as the real ones about who told them what and when.

Each looks at the pods of its name, groups them as its PodGroups say, and binds a gang whole or not at all. What the
real one would stumble over is written down in `stumbles`: a gang tried while pods of it were still gated, a pod that
names a group it cannot be in.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from grove.api.core import Namespace, Node, Pod
from grove.api.meta import Json, Resource
from grove.backends import kai, koord, kube_api, volcano
from grove.config import load_configuration
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import Conflict, KubeError, NotFound
from grove.operator.wiring import Operator
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.topology import Topology
from tests.support.backend_schemas import definitions


class GangScheduler:
    """Binds what `gangs` finds ready. `room` is how many more pods the cluster takes."""

    name = ""
    kind: Resource

    def __init__(self, client: Client, namespace: str, room: int = 1000) -> None:
        self._client, self._namespace, self.room = client, namespace, room
        self.stumbles: list[str] = []
        self._cache = Cache(client)
        self._cache.add(Pod, namespace=namespace)
        self._cache.add(Node)
        self._changed = asyncio.Event()
        self._cache.on_event(Pod, lambda old, new: self._changed.set())

    async def run(self) -> None:
        """Acts on every change of a pod or of its own groups until cancelled."""
        async with self._cache:
            await self._cache.wait_synced()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_groups())
                group.create_task(self._place())

    async def _follow_groups(self) -> None:
        while True:
            try:
                async for _ in self._client.watch(self.kind, self._namespace, initial_events=True):
                    self._changed.set()
            except KubeError:
                await asyncio.sleep(1)

    async def _place(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                found = (await self._client.list(self.kind, self._namespace)).items
            except NotFound:
                found = ()  # a cluster of another version
            groups = {one["metadata"]["name"]: one for one in found}
            pods = [
                pod
                for pod in self._cache.list(Pod)
                if pod.spec.scheduler_name == self.name and not pod.metadata.is_deleting and not pod.is_finished
            ]
            for ready in self.gangs(groups, pods):
                await self._bind(ready)

    def gangs(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[list[Pod]]:
        """Gangs whose rules are met, as pods to bind together."""
        raise NotImplementedError

    async def _bind(self, pods: list[Pod]) -> None:
        waiting = [pod for pod in pods if not pod.is_bound]
        if len(waiting) > self.room:
            return
        if gated := [pod.metadata.name for pod in waiting if pod.is_gated]:
            self.stumbles.append(f"tried to bind gated pods {sorted(gated)}")
            return
        nodes = sorted(node.metadata.name for node in self._cache.list(Node))
        for at, pod in enumerate(sorted(waiting, key=lambda one: one.metadata.name)):
            try:
                await self._client.bind(self._namespace, pod.metadata.name, nodes[at % len(nodes)])
                self.room -= 1
            except (Conflict, NotFound):
                continue

    def allow(self, room: int) -> None:
        self.room = room
        self._changed.set()


class Kai(GangScheduler):
    """A PodGroup is ready when every leaf has its minimum of pods without gates; a pod must name a leaf."""

    name, kind = kai.NAME, kai.POD_GROUP

    def gangs(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[list[Pod]]:
        for name, group in sorted(groups.items()):
            mine = [pod for pod in pods if pod.metadata.annotations.get("pod-group-name") == name]
            leaves = {one["name"]: one["minMember"] for one in group["spec"]["subGroups"] if "minMember" in one}
            for pod in mine:
                if _leaf(pod) not in leaves and not pod.is_gated:
                    self.stumbles.append(f"{pod.metadata.name} is in no subgroup of {name}")
                if pod.metadata.annotations.get("kai.scheduler/skip-podgrouper") != "true":
                    self.stumbles.append(f"{pod.metadata.name} would be grouped twice")
            free = [pod for pod in mine if not pod.is_gated]
            counts = {leaf: sum(_leaf(pod) == leaf for pod in free) for leaf in leaves}
            if leaves and all(counts[leaf] >= need for leaf, need in leaves.items()):
                yield free


def _leaf(pod: Pod) -> str:
    return pod.metadata.labels.get("kai.scheduler/subgroup-name", "")


class Volcano(GangScheduler):
    """A PodGroup is ready when it has its members and every subgroup its size."""

    name, kind = volcano.NAME, volcano.POD_GROUP

    def gangs(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[list[Pod]]:
        for name, group in sorted(groups.items()):
            mine = [pod for pod in pods if pod.metadata.annotations.get("scheduling.volcano.sh/group-name") == name]
            free = [pod for pod in mine if not pod.is_gated]
            policies = group["spec"]["subGroupPolicy"]
            enough = all(
                sum(
                    all(pod.metadata.labels.get(k) == v for k, v in one["labelSelector"]["matchLabels"].items())
                    for pod in free
                )
                >= one["subGroupSize"]
                for one in policies
            )
            if len(free) >= group["spec"]["minMember"] and enough:
                yield free


class Koordinator(GangScheduler):
    """A gang group is tried once all its PodGroups exist and have their children, gated ones counted, all at once."""

    name, kind = koord.NAME, koord.POD_GROUP

    def __init__(self, client: Client, namespace: str, room: int = 1000) -> None:
        super().__init__(client, namespace, room)
        self._first: dict[str, str] = {}

    def gangs(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[list[Pod]]:
        yield from ([pod] for pod in pods if koord.GANG not in pod.metadata.labels and not pod.is_gated)
        seen: set[str] = set()
        for group in groups.values():
            together: str = group["metadata"]["annotations"][koord.GROUPS]
            if self._first.setdefault(group["metadata"]["uid"], together) != together:
                self.stumbles.append(
                    f"{group['metadata']['name']} names other groups than at first, which is not heard"
                )
            if together in seen:
                continue
            seen.add(together)
            names = [one.partition("/")[2] for one in json.loads(together)]
            children = {name: [pod for pod in pods if pod.metadata.labels.get(koord.GANG) == name] for name in names}
            if not all(name in groups for name in names):
                continue
            if all(len(children[name]) >= groups[name]["spec"]["minMember"] for name in names):
                pending = [pod for name in names for pod in children[name] if not pod.is_bound]
                stands = all(
                    sum(pod.is_bound for pod in children[name]) >= groups[name]["spec"]["minMember"] for name in names
                )
                if stands:  # a late one is retried until its gate is off
                    yield from ([pod] for pod in pending if not pod.is_gated)
                else:
                    yield pending


class Kube(GangScheduler):
    """kube-scheduler 1.36: a PodGroup is ready when as many members without gates are there; others go singly."""

    name, kind = "default-scheduler", kube_api.pod_group(kube_api.V1ALPHA2)

    def gangs(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[list[Pod]]:
        free = [pod for pod in pods if not pod.is_gated]
        yield from ([pod] for pod in free if pod.spec.scheduling_group is None)
        for name, group in sorted(groups.items()):
            mine = [pod for pod in free if (pod.spec.scheduling_group or {}).get("podGroupName") == name]
            if len(mine) >= group["spec"]["schedulingPolicy"]["gang"]["minCount"]:
                yield mine
        known = {(pod.spec.scheduling_group or {}).get("podGroupName") for pod in free} - set(groups) - {None}
        self.stumbles += (f"pods were let go before their group {name} was made" for name in sorted(map(str, known)))


class KubeTree(Kube):
    """kube-scheduler 1.37: PodGroups under one CompositePodGroup are ready together or not at all."""

    kind = kube_api.pod_group(kube_api.V1BETA1)

    def gangs(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[list[Pod]]:
        ready = {name: list(found) for name, found in self._ready(groups, pods)}
        yield from ([pod] for pod in pods if pod.spec.scheduling_group is None and not pod.is_gated)
        trees: dict[str, list[str]] = {}
        for name, group in sorted(groups.items()):
            trees.setdefault(group["spec"]["workloadRef"]["workloadName"], []).append(name)
        for members in trees.values():
            if all(name in ready for name in members):
                yield [pod for name in members for pod in ready[name]]

    def _ready(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[tuple[str, list[Pod]]]:
        for name, group in groups.items():
            mine = [pod for pod in pods if (pod.spec.scheduling_group or {}).get("podGroupName") == name]
            free = [pod for pod in mine if not pod.is_gated]
            if len(free) >= group["spec"]["schedulingPolicy"]["gang"]["minCount"]:
                yield name, free


# Clusters for them


@asynccontextmanager
async def cluster(schema: str, *schedulers: type[GangScheduler]) -> AsyncIterator[SimCluster]:
    """A simulated cluster with a namespace `ns`, one scheduler's kinds, and these schedulers at work."""
    found = (*own_crds(), *definitions(schema))
    async with SimCluster(nodes=Topology(racks=2, nodes=4), definitions=found) as sim:
        await sim.client().create(Namespace, {"metadata": {"name": "ns"}})
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(kind(sim.client(user=kind.name), "ns").run()) for kind in schedulers]
        try:
            yield sim
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def operator(sim: SimCluster, config: str) -> AsyncIterator[Operator]:
    made = Operator(
        sim.client(user="grove-operator"), load_configuration(config), clock=sim.clock, rng=random.Random(1),
        startup_image="x",
    )  # fmt: skip
    async with made.running():
        yield made


async def eventually(look: Any, timeout_s: float = 120) -> Any:
    async with asyncio.timeout(timeout_s):
        while not (found := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        return found
