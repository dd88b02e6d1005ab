"""A whole Grove inside the process: the simulated cluster, the operator, admission and the scheduler, in virtual time.

    async with World(shaped(64), seed=7) as world:
        await world.apply(manifest)
        await world.until(lambda: world.is_settled("default", "chat"))

What runs in here is what runs on a real cluster; only the API server and the kubelets are played.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Self, TypeVar

from grove.admission.serving.hooks import sim_hooks
from grove.admission.serving.reader import ClusterReader
from grove.admission.serving.wiring import admission_of
from grove.api import labels
from grove.api.core import Event, Namespace, Node, Pod, ServiceAccount
from grove.api.meta import Json, Key, Object, rfc3339
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.backends import build_backends
from grove.config import OperatorConfiguration, load_configuration
from grove.crds import load as own_crds
from grove.diagnosis.reasons import sentence
from grove.diagnosis.seen import Seen
from grove.operator.wiring import Operator
from grove.plan.copying import Copy, is_restless
from grove.plan.cpu_meter import CpuMeter
from grove.plan.devices import ClaimMaker, classes_in, furnish
from grove.plan.guests import definitions as guests
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.sim.admission import Hook
from grove.sim.cluster import SimCluster
from grove.sim.kubelet import RunPod
from grove.sim.loop import LoopClock
from grove.sim.topology import LEVELS, Topology

T = TypeVar("T", bound=Object)

NAMESPACE = "default"
TOPOLOGY = "fake-nodes"
"""The ClusterTopologyBinding of made-up clusters; the samples name it."""
PER_RACK, RACKS_PER_BLOCK, BLOCKS_PER_ZONE = 4, 4, 2
START_S, STOP_S = (2.0, 6.0), (0.5, 2.0)
"""A model server takes its time; how long exactly, the seed says."""
PATIENCE_S = 3600.0
"""Virtual time after which the story stops to wait for what does not come."""
_CONFIG = "topologyAwareScheduling: {enabled: true}\nnetwork: {autoMNNVLEnabled: true}\n"
_OPERATOR = "system:serviceaccount:grove-system:grove-operator"
_SCHEDULER = "system:serviceaccount:grove-system:grove-scheduler"


def shaped(nodes: int, gpus: int = 8) -> list[Json]:
    """`count` equal nodes in racks of up to four, divided evenly: no block is much smaller than another."""
    racks = -(-nodes // PER_RACK)
    blocks = max(1, racks // RACKS_PER_BLOCK)
    zones = max(1, blocks // BLOCKS_PER_ZONE)
    shape = Topology(zones, -(-blocks // zones), -(-racks // blocks), PER_RACK, gpus)
    by_name = {node["metadata"]["name"]: node for node in shape.objects()}
    in_block, in_rack = iter(_shares(racks, blocks)), iter(_shares(nodes, racks))
    names: list[str] = []
    for z, count in enumerate(_shares(blocks, zones)):
        for b in range(count):
            for r in range(next(in_block)):
                names += (f"z{z}-b{b}-r{r}-n{n}" for n in range(next(in_rack)))
    return [by_name[name] for name in names]


def _shares(total: int, parts: int) -> list[int]:
    """A whole number divided as evenly as it goes."""
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def binding(levels: Sequence[tuple[str, str]] = LEVELS, name: str = TOPOLOGY) -> Json:
    return {
        "apiVersion": ClusterTopologyBinding.RESOURCE.api_version,
        "kind": "ClusterTopologyBinding",
        "metadata": {"name": name},
        "spec": {"levels": [{"domain": domain, "key": key} for domain, key in levels]},
    }


class World:
    """`nodes`, `objects` (bindings, priority classes) and a `copy` of another cluster exist before Grove starts.

    Use it inside the simulator's virtual-time loop. `seed` decides how long pods take and their names. In a `steady`
    world all pods take the same time; that is enough for a question about their places.
    """

    def __init__(
        self,
        nodes: Iterable[Json],
        *,
        seed: int = 0,
        objects: Iterable[tuple[type[Object], Json]] = (),
        namespace: str = NAMESPACE,
        copy: Copy = Copy(),
        now: datetime | None = None,
        settings: SchedulerConfiguration = SchedulerConfiguration(),
        steady: bool = False,
        config: OperatorConfiguration | None = None,
    ) -> None:
        self._nodes, self._objects, self.namespace = list(nodes), list(objects), namespace
        self._copy = copy
        self.rng = random.Random(seed)
        pace = random.Random(self.rng.getrandbits(64))
        self.cluster = SimCluster(
            seed=self.rng.getrandbits(64),
            report_init=True,
            start_s=START_S[0] if steady else _between(pace, START_S),
            stop_s=STOP_S[0] if steady else _between(pace, STOP_S),
            clock=LoopClock(now) if now is not None else None,
            definitions=[*own_crds(), *guests()],
        )
        self.client = self.cluster.client()
        self.config = load_configuration(_CONFIG) if config is None else config
        self.operator_client = self.cluster.client(user=_OPERATOR)
        self.operator = Operator(
            self.operator_client,
            self.config,
            clock=self.cluster.clock,
            rng=random.Random(self.rng.getrandbits(64)),
            startup_image="grove/startup:simulated",
        )
        self.scheduler_client = self.cluster.client(user=_SCHEDULER)
        self.scheduler = Scheduler(self.scheduler_client, settings, self.cluster.clock, say=sentence)
        self.deciding = CpuMeter()
        """CPU time of the scheduler's turns."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        stack = self._stack
        await stack.enter_async_context(self.cluster)
        ClaimMaker(self.cluster.server.store, rfc3339(self.cluster.clock.now()))
        self._load()
        self._adopt()
        self._admit()
        await self.cluster.nodes.add(self._nodes)
        for kind, obj in self._objects:
            await self.client.create(kind, obj)
        await stack.enter_async_context(self.scheduler.following())
        await stack.enter_async_context(_beside(self.deciding.measured(self.scheduler.schedule()), "scheduler"))
        await stack.enter_async_context(self.operator.running())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def _load(self) -> None:
        """Puts a copied cluster in place as it is: what was admitted once is not asked about again."""
        store = self.cluster.server.store
        resting: list[Json] = []
        for resource, obj in self._copy.objects:
            if resource == Pod.RESOURCE and not is_restless(obj):
                resting.append(obj)
            else:
                store.put(resource, obj)
        store.fill(Pod.RESOURCE, resting)
        accounts = store.collection(ServiceAccount.RESOURCE).objects
        for key in store.collection(Namespace.RESOURCE).objects:
            if Key(key.name, "default") not in accounts:
                # A namespace gets it from a controller we do not play, and without it no pod may be made.
                meta = {"name": "default", "namespace": key.name, "uid": f"account-{key.name}"}
                store.put(ServiceAccount.RESOURCE, {"metadata": meta})

    def _adopt(self) -> None:
        """Gives the copied nodes kubelets, which look after the copied pods that are not simply up."""
        store = self.cluster.server.store
        pods = store.collection(Pod.RESOURCE).objects.values()
        restless = [pod for pod in pods if pod.json["spec"].get("nodeName") and is_restless(pod.json)]
        names = [node["metadata"]["name"] for node in self._copy.of(Node.RESOURCE)]
        self.cluster.nodes.adopt(names, [version.view(RunPod) for version in restless], since=str(store.revision))

    def _admit(self) -> None:
        """Puts Grove's rules in front of the cluster, as webhooks do."""
        backends = build_backends(self.config.scheduler)
        rules = admission_of(self.config, backends, namespace="grove-system", operator_users=[_OPERATOR])
        hooks = self.cluster.server.admission
        for hook in sim_hooks(rules, ClusterReader(self.client)):
            where = hooks.mutating if hook.mutating else hooks.validating
            where.append(Hook(hook.name, hook.handler, hook.resources, hook.operations))  # type: ignore[arg-type]

    # Looking

    @property
    def time_s(self) -> float:
        return asyncio.get_running_loop().time()

    def all(self, kind: type[T]) -> list[T]:
        """Every object of a kind as it is now, by name."""
        stored = self.cluster.server.store.collection(kind.RESOURCE).objects
        return [stored[key].view(kind) for key in sorted(stored)]

    def find(self, kind: type[T], name: str, namespace: str | None = None) -> T | None:
        where = (self.namespace if namespace is None else namespace) if kind.RESOURCE.namespaced else ""
        version = self.cluster.server.store.collection(kind.RESOURCE).objects.get(Key(where, name))
        return version.view(kind) if version is not None else None

    def pods_of(self, gang: str) -> list[Pod]:
        """The pods of a gang that are there to stay."""
        stored = self.cluster.server.store.collection(Pod.RESOURCE).objects
        # Read off the JSON first: a plan asks at every change, among ten thousand pods of others.
        mine = [
            key
            for key, version in stored.items()
            if (version.json["metadata"].get("labels") or {}).get(labels.POD_GANG) == gang
        ]
        pods = [stored[key].view(Pod) for key in sorted(mine)]
        return [pod for pod in pods if not pod.metadata.is_deleting]

    def seen(self) -> Seen:
        gangs = self.all(PodGang)
        return Seen(
            sets=self.all(PodCliqueSet),
            groups=self.all(PodCliqueScalingGroup),
            cliques=self.all(PodClique),
            gangs=gangs,
            others=gangs,
            pods=self.all(Pod),
            nodes=self.all(Node),
            bindings=self.all(ClusterTopologyBinding),
            events=self.all(Event),
            now=self.cluster.clock.now(),
        )

    def is_settled(self, name: str, namespace: str | None = None) -> bool:
        """True if a set is complete: its replicas are available, every pod is ready, and no update is open."""
        pcs = self.find(PodCliqueSet, name, namespace)
        if pcs is None or pcs.status.observed_generation != pcs.metadata.generation:
            return False
        progress = pcs.status.update_progress
        if pcs.status.available_replicas < pcs.spec.replicas or (progress and progress.update_ended_at is None):
            return False
        mine = [clique for clique in self.all(PodClique) if clique.metadata.labels.get(labels.PART_OF) == name]
        groups = [
            group for group in self.all(PodCliqueScalingGroup) if group.metadata.labels.get(labels.PART_OF) == name
        ]
        return all(
            clique.status.ready_replicas >= clique.spec.replicas
            and clique.status.updated_replicas >= clique.spec.replicas
            and clique.status.observed_generation == clique.metadata.generation
            for clique in mine
        ) and all(group.status.available_replicas >= group.spec.replicas for group in groups)

    # Acting

    async def apply(self, manifest: Json) -> Json:
        """Creates an object as a user's `kubectl apply` would; raises what admission says."""
        meta = {"namespace": self.namespace, **(manifest.get("metadata") or {})}
        self.furnish(manifest)
        created: Json = await self.client.create(PodCliqueSet.RESOURCE, {**manifest, "metadata": meta})
        return created

    def furnish(self, manifest: Json) -> None:
        """Gives made-up nodes the devices that a manifest asks for; a copied cluster has the devices it has."""
        if not self._copy.objects:
            now = rfc3339(self.cluster.clock.now())
            furnish(self.cluster.server.store, self.cluster.nodes.names, classes_in(manifest), now)

    async def until(self, holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Waits in virtual time until something holds; False when it does not in time."""
        try:
            await self.cluster.eventually(holds, patience_s)
        except TimeoutError:
            return False
        return True


def _between(rng: random.Random, limits: tuple[float, float]) -> Callable[[RunPod], float]:
    """A delay a pod, drawn when it is first asked for; rounded, so that it reads well in a story."""
    drawn: dict[str, float] = {}

    def delay(pod: RunPod) -> float:
        return drawn.setdefault(pod.metadata.uid, round(rng.uniform(*limits), 1))

    return delay


class _beside:
    """Runs a coroutine beside a block and ends it with the block; a failure of it ends the story."""

    def __init__(self, work: Any, name: str) -> None:
        self._work, self._name = work, name

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work, name=self._name)

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
