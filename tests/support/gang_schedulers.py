"""Stand-ins for other gang schedulers, as strict as the real ones about the order and time of writes.

Each looks at the pods of its name, groups them as its PodGroups say, and binds a gang whole or not at all. `stumbles`
records what the real one could not handle: a gang tried while pods of it were still gated, or a pod in a group where it
cannot be. Each keeps a required topology where tests saw that the real one keeps it, and forgets or ignores it in the
other cases. Its docstring has the observations.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import yaml

from grove.api.core import ConfigMap, Namespace, Node, Pod
from grove.api.meta import Json, Resource
from grove.backends import kai, koord, kube_api, volcano, volcano_config
from grove.backends.koord_topology import NETWORK_TOPOLOGY
from grove.backends.volcano_config import CONFIG_MAP
from grove.config import load_configuration
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import Conflict, KubeError, NotFound
from grove.operator.wiring import Operator
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.topology import Topology
from tests.support.backend_schemas import definitions


class GangScheduler:
    """Binds what `gangs` finds ready, to nodes that are open. `room` is how many more pods the cluster takes.

    Nodes are taken in turn, each from another rack than the one before, so that a topology that is not kept shows.
    """

    name = ""
    kind: Resource
    keeps_topology = True

    def __init__(self, client: Client, namespace: str, room: int = 1000) -> None:
        self._client, self._namespace, self.room = client, namespace, room
        self.stumbles: list[str] = []
        self._cache = Cache(client)
        self._cache.add(Pod, namespace=namespace)
        self._cache.add(Node)
        self._changed = asyncio.Event()
        self._cache.on_event(Pod, lambda old, new: self._changed.set())
        self._cache.on_event(Node, lambda old, new: self._changed.set())
        self._groups: dict[str, Json] = {}

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
            groups = self._groups = {one["metadata"]["name"]: one for one in found}
            await self._look()
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

    async def _look(self) -> None:
        """Reads what else it decides by."""

    def domains(self, pods: list[Pod], nodes: list[Node]) -> list[list[Node]] | None:
        """The domains of which one must hold all these pods, best first; None if they may stand anywhere."""
        return None

    def _in_domains(self, key: str, pods: list[Pod], nodes: list[Node]) -> list[list[Node]]:
        """Nodes by the value of a label; only the domain of a pod of the gang that is bound, if there is one."""
        found: dict[str, list[Node]] = {}
        for node in nodes:
            found.setdefault(node.metadata.labels.get(key, ""), []).append(node)
        taken = {pod.spec.node_name for pod in self._members(pods[0]) if pod.is_bound}
        held = [value for value, of in found.items() if taken & {node.metadata.name for node in of}]
        return [found[value] for value in (held or sorted(found)) if value]

    def group_of(self, pod: Pod) -> str:
        """The name of the PodGroup of a pod; empty for a pod in none."""
        return ""

    def _members(self, pod: Pod) -> list[Pod]:
        mine = self.group_of(pod)
        return [one for one in self._cache.list(Pod) if mine and self.group_of(one) == mine]

    async def _bind(self, pods: list[Pod]) -> None:
        waiting = [pod for pod in pods if not pod.is_bound]
        if not waiting or len(waiting) > self.room:
            return
        if gated := [pod.metadata.name for pod in waiting if pod.is_gated]:
            self.stumbles.append(f"tried to bind gated pods {sorted(gated)}")
            return
        nodes = self._nodes_for(waiting)
        if not nodes:
            return
        for at, pod in enumerate(sorted(waiting, key=lambda one: one.metadata.name)):
            try:
                await self._client.bind(self._namespace, pod.metadata.name, nodes[at % len(nodes)])
                self.room -= 1
            except (Conflict, NotFound):
                continue

    def _nodes_for(self, pods: list[Pod]) -> list[str]:
        """The open nodes that these pods may use, in turn; none if no domain has one for them."""
        every = sorted(self._cache.list(Node), key=lambda node: node.metadata.name.rpartition("-")[::-1])
        domains = self.domains(pods, every) if self.keeps_topology else None
        for domain in [every] if domains is None else domains:
            fitting = [node for node in domain if not node.spec.unschedulable and all(_admits(node, p) for p in pods)]
            if fitting:
                return [node.metadata.name for node in fitting]
        return []

    def allow(self, room: int) -> None:
        self.room = room
        self._changed.set()


def _admits(node: Node, pod: Pod) -> bool:
    """Whether the pod's own node affinity lets it stand there; only `In` is asked."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return True
    return any(
        all(node.metadata.labels.get(one.key) in one.values for one in term.match_expressions)
        for term in affinity.node_affinity.required.node_selector_terms
    )


class Kai(GangScheduler):
    """A PodGroup is ready when every leaf has its minimum of pods without gates; a pod must name a leaf.

    Seen with KAI 0.15.2: a required level of the PodGroup holds for the first pods and for replacements.
    """

    name, kind = kai.NAME, kai.POD_GROUP

    def group_of(self, pod: Pod) -> str:
        return pod.metadata.annotations.get("pod-group-name", "")

    def domains(self, pods: list[Pod], nodes: list[Node]) -> list[list[Node]] | None:
        group = self._groups.get(self.group_of(pods[0]), {"spec": {}})
        key = (group["spec"].get("topologyConstraint") or {}).get("requiredTopologyLevel")
        return self._in_domains(key, pods, nodes) if key else None

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
    """A PodGroup is ready when it has its members and every subgroup its size.

    Seen with Volcano 1.15.1:
    - Without the plugin `network-topology-aware`, which its chart does not switch on, `networkTopology` is ignored: a
      gang that requires one rack of four nodes got five pods over three racks. Nothing is said about it.
    - A tier that no HyperNode has is ignored in the same way.
    - With the plugin, the HyperNode of a gang is kept in memory. After a restart it is found again only by subgroups
      that have a `networkTopology` of their own: without one, a replacement goes to another rack.
    """

    name, kind = volcano.NAME, volcano.POD_GROUP

    def __init__(self, client: Client, namespace: str, room: int = 1000) -> None:
        super().__init__(client, namespace, room)
        self._has_plugin = False
        self._tiers: dict[str, list[Json]] = {}
        self._chosen: dict[str, str] = {}

    def restart(self) -> None:
        """As if the process was started again: what it had in memory is gone."""
        self._chosen.clear()

    async def _look(self) -> None:
        namespace, _, name = CONFIG_MAP.rpartition("/")
        try:
            config = await self._client.get(ConfigMap, name, namespace)
            tiers = yaml.safe_load(config.data[volcano_config.FILE])["tiers"]
            self._has_plugin = any(one["name"] == "network-topology-aware" for tier in tiers for one in tier["plugins"])
        except NotFound:
            self._has_plugin = False
        self._tiers = {}
        for one in (await self._client.list(volcano.HYPER_NODE)).items:
            self._tiers.setdefault(one["spec"].get("tierName", ""), []).append(one)

    def group_of(self, pod: Pod) -> str:
        return pod.metadata.annotations.get("scheduling.volcano.sh/group-name", "")

    def domains(self, pods: list[Pod], nodes: list[Node]) -> list[list[Node]] | None:
        name = self.group_of(pods[0])
        spec: Json = self._groups.get(name, {"spec": {}})["spec"]
        wanted = spec.get("networkTopology") or {}
        found = {one["metadata"]["name"]: one for one in self._tiers.get(wanted.get("highestTierName", ""), ())}
        if not self._has_plugin or wanted.get("mode") != "hard" or not found:
            return None
        if name not in self._chosen:
            self._chosen |= self._recovered(name, spec, found, nodes)
        taken = {pod.spec.node_name for pod in self._members(pods[0]) if pod.is_bound}
        if name not in self._chosen:
            # The gang counts as new: the emptiest HyperNode is taken, which is not the one that its pods stand in.
            order = sorted(found, key=lambda one: (len(taken & _names(found[one], nodes)), one))
            self._chosen[name] = order[0]
        return [[node for node in nodes if node.metadata.name in _names(found[self._chosen[name]], nodes)]]

    def _recovered(self, name: str, spec: Json, found: dict[str, Json], nodes: list[Node]) -> dict[str, str]:
        for policy in spec["subGroupPolicy"]:
            labels = policy["labelSelector"]["matchLabels"].items() if "networkTopology" in policy else ()
            for pod in self._cache.list(Pod):
                if labels and pod.is_bound and labels <= pod.metadata.labels.items():
                    for one, hyper_node in found.items():
                        if pod.spec.node_name in _names(hyper_node, nodes):
                            return {name: one}
        return {}

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


def _names(hyper_node: Json, nodes: list[Node]) -> set[str]:
    """Names of the nodes that are members of a HyperNode, by label; other selectors are not used here."""
    wanted = [one["selector"]["labelMatch"]["matchLabels"].items() for one in hyper_node["spec"].get("members") or ()]
    return {node.metadata.name for node in nodes if any(one <= node.metadata.labels.items() for one in wanted)}


class Koordinator(GangScheduler):
    """A gang group is tried once all its PodGroups exist and have their children, gated ones counted, all at once.

    Seen with koord-scheduler 1.8.0:
    - The first placement of a gang of equal pods keeps the required domain. Replacements may stand anywhere.
    - A gang that waits as a whole is tried all the time. One replacement in a gang with topology is tried once: its
      plugin Coscheduling registers no events, so neither a node that opens nor a pod that ends brings it back. It is
      tried again after FLUSH_S, by the queue's own flush, or when it is created again.
    """

    name, kind = koord.NAME, koord.POD_GROUP
    FLUSH_S = 300.0

    def __init__(self, client: Client, namespace: str, room: int = 1000) -> None:
        super().__init__(client, namespace, room)
        self._first: dict[str, str] = {}
        self._tried: dict[str, float] = {}

    def group_of(self, pod: Pod) -> str:
        own = self._groups.get(pod.metadata.labels.get(koord.GANG, ""))
        return str(own["metadata"]["annotations"][koord.GROUPS]) if own is not None else ""

    def _layer(self, pod: Pod) -> str:
        """The layer in which the gang group of a pod must be gathered; empty without one."""
        own: Json = self._groups.get(pod.metadata.labels.get(koord.GANG, ""), {"metadata": {"annotations": {}}})
        asked = json.loads(own["metadata"]["annotations"].get(koord.TOPOLOGY_SPEC) or '{"gatherStrategy": []}')
        must = [one["layer"] for one in asked["gatherStrategy"] if one["strategy"] == "MustGather"]
        return str(must[0]) if must else ""

    async def _look(self) -> None:
        try:
            topology = await self._client.get(NETWORK_TOPOLOGY, "default")
            layers = topology["spec"]["networkTopologySpec"]
            self._keys = {one["topologyLayer"]: one["labelKey"][0] for one in layers if one.get("labelKey")}
        except NotFound:
            self._keys = {}

    def domains(self, pods: list[Pod], nodes: list[Node]) -> list[list[Node]] | None:
        layer = self._layer(pods[0])
        if not layer or any(pod.is_bound for pod in self._members(pods[0])):
            return None
        return self._in_domains(self._keys[layer], pods, nodes)

    async def _bind(self, pods: list[Pod]) -> None:
        now, late = asyncio.get_running_loop().time(), pods[0] if len(pods) == 1 else None
        if late is not None and not late.is_bound and self._layer(late):
            if late.is_gated:
                return  # it is tried when its gate comes off
            if now - self._tried.get(late.metadata.uid, -self.FLUSH_S) < self.FLUSH_S:
                return
            self._tried[late.metadata.uid] = now
            asyncio.get_running_loop().call_later(self.FLUSH_S, self._changed.set)
        await super()._bind(pods)

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

    def group_of(self, pod: Pod) -> str:
        return str((pod.spec.scheduling_group or {}).get("podGroupName") or "")

    def domains(self, pods: list[Pod], nodes: list[Node]) -> list[list[Node]] | None:
        group = self._groups.get(self.group_of(pods[0]), {"spec": {}})
        asked = (group["spec"].get("schedulingConstraints") or {}).get("topology") or ()
        return self._in_domains(asked[0]["key"], pods, nodes) if asked else None

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
        sim.client(user="grove-operator"),
        load_configuration(config),
        clock=sim.clock,
        rng=random.Random(1),
        startup_image="x",
    )
    async with made.running():
        yield made


async def eventually(look: Any, timeout_s: float = 120) -> Any:
    async with asyncio.timeout(timeout_s):
        while not (found := await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        return found
