"""A serving set of a fleet: requests by the hour, the autoscaler's arithmetic, releases good and bad, crashes.

Requests are a fluid. An instance of a part serves `requestsPerSecond`; what it cannot serve waits, and what has waited
longer than the load's patience is lost. What one part has served is the load of the next. The model is enough to move
autoscalers as real load does. It does not predict the latency of any engine.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from grove.api import labels
from grove.api.core import HorizontalPodAutoscaler, Pod, PodDisruptionBudget
from grove.api.hpa import metric_name
from grove.api.meta import Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.demo.scaling import Recommender, proposal
from grove.fleet.amounts import stream
from grove.fleet.file import Load, Part, Serving, Team
from grove.fleet.manifests import BAD, CACHE, GOOD, WAITING, budget, released, serving_set
from grove.kube.errors import ApiError
from grove.plan.world import NAMESPACE, World

TICK_S = 60.0
"""How often load arrives and the autoscaler looks. Kubernetes looks every 15 s; a minute costs a quarter."""
RESTART_S = 30.0


def requests_per_second(load: Load, at: datetime) -> float:
    """The mean load at a moment: a cosine over the day between `low` and `peak`."""
    hour = at.hour + at.minute / 60 + at.second / 3600
    share = (1 + math.cos((hour - load.peak_hour) / 24 * 2 * math.pi)) / 2
    weekend = load.weekend if at.weekday() >= 5 else 1.0
    return (load.low + (load.peak - load.low) * share) * weekend


@dataclass(slots=True)
class Stage:
    """The requests in front of one part. Invariant: arrived = served + lost + waiting."""

    part: Part
    arrived: float = 0.0
    served: float = 0.0
    lost: float = 0.0
    waiting: float = 0.0
    usage: float = 0.0

    def advance(self, seconds: float, requests: float, instances: int, patience_s: float) -> float:
        """Lets time pass; returns the requests that were served in it."""
        speed = instances * self.part.requests_per_second
        self.arrived += requests
        ahead = self.waiting + requests
        served = min(ahead, speed * seconds)
        kept = min(ahead - served, speed * patience_s)
        self.lost += ahead - served - kept
        self.served += served
        self.waiting = kept
        self.usage = min(1.0, ahead / (speed * seconds)) if speed else (1.0 if ahead else 0.0)
        return served


@dataclass(slots=True)
class Service:
    """One serving set in a running fleet."""

    world: World
    spec: Serving
    team: Team
    seed: int
    began: datetime
    hit: Callable[[str, float], None]
    """Takes the uid of a pod whose engine crashes now, and the time."""
    note: Callable[[str, str], None]
    """Takes a kind of happening and what it happened to."""
    stages: dict[str, Stage] = field(default_factory=dict)
    releases: int = 1
    undone: int = 0
    scaled: int = 0
    requests: float = 0.0
    _undo: str = ""
    """The image to return to while a bad release is out."""
    _memory: dict[Key, Recommender] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stages = {part.name: Stage(part) for part in self.spec.parts}

    async def run(self) -> None:
        """Applies the set, then plays its load, releases and crashes until cancelled."""
        await self.world.client.create(PodCliqueSet.RESOURCE, serving_set(self.spec, self.team))
        if self.spec.pods_available is not None:
            await self.world.client.create(PodDisruptionBudget, budget(self.spec.name, self.spec.pods_available))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._play_load())
            if self.spec.releases is not None:
                group.create_task(self._play_releases())
            for part in self.spec.parts:
                if part.crash_every is not None:
                    group.create_task(self._play_crashes(part))

    # Load and autoscaling

    async def _play_load(self) -> None:
        rng = stream(self.seed, f"load-{self.spec.name}")
        while True:
            await asyncio.sleep(TICK_S)
            at = self.began + timedelta(seconds=self.world.time_s)
            noise = max(0.0, rng.gauss(1.0, self.spec.load.noise))
            self._serve(requests_per_second(self.spec.load, at) * noise * TICK_S)
            await self._autoscale()

    def _serve(self, requests: float) -> None:
        self.requests += requests
        for name, stage in self.stages.items():
            requests = stage.advance(TICK_S, requests, self._instances(name), self.spec.load.patience.s)

    def _instances(self, part: str) -> int:
        """Instances of a part that serve now, in all replicas of the set."""
        names = (f"{self.spec.name}-{index}-{part}" for index in range(self.spec.replicas))
        groups = (self.world.find(PodCliqueScalingGroup, name) for name in names)
        return sum(group.status.available_replicas for group in groups if group is not None)

    async def _autoscale(self) -> None:
        for name, stage in self.stages.items():
            for index in range(self.spec.replicas):
                fqn = f"{self.spec.name}-{index}-{name}"
                scaler = self.world.find(HorizontalPodAutoscaler, fqn)
                group = self.world.find(PodCliqueScalingGroup, fqn)
                if scaler is not None and group is not None:
                    await self._look(scaler, group, stage)

    async def _look(self, scaler: HorizontalPodAutoscaler, group: PodCliqueScalingGroup, stage: Stage) -> None:
        values = {WAITING: stage.waiting / self.spec.replicas, CACHE: stage.usage}
        replicas, metrics = group.spec.replicas, scaler.spec.metrics or ()
        proposals = [proposal(metric, replicas, values.get(metric_name(metric) or "")) for metric in metrics]
        memory = self._memory.setdefault(scaler.metadata.key, Recommender())
        least = 1 if scaler.spec.min_replicas is None else scaler.spec.min_replicas
        wanted, _ = memory.decide(proposals, replicas, least, scaler.spec.max_replicas, self.world.time_s)
        if wanted != replicas:
            self.scaled += 1
            patch = {"spec": {"replicas": wanted}}
            name = group.metadata.name
            await self.world.client.patch(PodCliqueScalingGroup, name, patch, NAMESPACE, subresource="scale")

    # Releases

    async def _play_releases(self) -> None:
        plan = self.spec.releases
        assert plan is not None
        rng = stream(self.seed, f"releases-{self.spec.name}")
        await asyncio.sleep(plan.first.s)
        while True:
            is_bad = rng.random() < plan.bad
            good = f"{GOOD}{self.releases}"
            self.releases += 1
            self._undo = good if is_bad else ""
            await self._release(f"{BAD if is_bad else GOOD}{self.releases}")
            if is_bad:
                await asyncio.sleep(plan.undo.s)
                await self.undo()
            await asyncio.sleep(max(0.0, plan.every.s - (plan.undo.s if is_bad else 0.0)))

    async def undo(self) -> None:
        """Returns to the release before a bad one, if a bad one is out."""
        if self._undo:
            good, self._undo = self._undo, ""
            self.undone += 1
            self.releases -= 1
            await self._release(good)

    async def _release(self, image: str) -> None:
        raw = await self.world.client.get(PodCliqueSet.RESOURCE, self.spec.name, NAMESPACE)
        cliques = released(raw["spec"]["template"]["cliques"], image)
        patch = {"spec": {"template": {"cliques": cliques}}}
        await self.world.client.patch(PodCliqueSet, self.spec.name, patch, NAMESPACE)

    # Crashes

    async def _play_crashes(self, part: Part) -> None:
        """One process for all pods of the part; a candidate crash may find no ready pod."""
        assert part.crash_every is not None
        rng = stream(self.seed, f"crashes-{self.spec.name}-{part.name}")
        most = max(part.replicas, part.max_replicas) * part.pods * self.spec.replicas
        while True:
            await asyncio.sleep(rng.expovariate(most / part.crash_every.s))
            pods = self._ready_pods(part)
            number = rng.randrange(most)
            if number < len(pods):
                await self._crash(pods[number])

    def _ready_pods(self, part: Part) -> list[Pod]:
        names = {f"{self.spec.name}-{index}-{part.name}" for index in range(self.spec.replicas)}
        pods = [pod for pod in self.world.all(Pod) if pod.metadata.labels.get(labels.SCALING_GROUP) in names]
        return [pod for pod in pods if pod.is_ready and not pod.metadata.is_deleting]

    async def _crash(self, pod: Pod) -> None:
        self.hit(pod.metadata.uid, self.world.time_s)
        try:
            await self.world.cluster.nodes.crash_pod(NAMESPACE, pod.metadata.name, restart_s=RESTART_S)
        except ApiError:
            return  # the pod is gone meanwhile
        self.note("crash", pod.metadata.name)
