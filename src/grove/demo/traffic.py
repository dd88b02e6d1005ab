"""Requests arrive in a story: engines get pages of metrics, and autoscalers that read them act, in virtual time.

The code that reads real pages reads these too (`grove.metrics`), so the numbers are those that `grove metrics` would
serve. Only the engines (`load`) and the HPA controller (`scaling`) are simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from grove.api import labels, selector
from grove.api.core import HorizontalPodAutoscaler, Pod
from grove.api.hpa import metric_name, metric_source
from grove.api.meta import Json, Key, rfc3339
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.demo.scaling import SYNC_S, Proposal, Recommender, proposal
from grove.metrics.numbers import numbers_of, wanted_names
from grove.metrics.page import scan
from grove.metrics.readings import POD, Readings, Subject
from grove.plan.world import World
from grove.sim.engines import EnginePages
from grove.sim.load import Engine

TICK_S = 5.0
"""How often pages are made and read; three ticks make a look of the autoscalers."""
Say = Callable[[str, str, str], None]
Scaled = PodClique | PodCliqueScalingGroup | PodCliqueSet
SCALED: dict[str, type[PodClique] | type[PodCliqueScalingGroup] | type[PodCliqueSet]] = {
    kind.RESOURCE.kind: kind for kind in (PodClique, PodCliqueScalingGroup, PodCliqueSet)
}


class Traffic:
    """The load on all sets of a world. `run` is started with the first load and ends with the story."""

    def __init__(self, world: World, say: Say) -> None:
        self._world, self._say = world, say
        self._pages = EnginePages()
        self._readings = Readings(TICK_S)
        self._recommenders: dict[Key, Recommender] = {}
        self._known: set[tuple[str, str]] = set()

    def set_load(self, set_name: str, requests_per_second: float, engine: Engine | None) -> None:
        """Raises KeyError if there is no such set."""
        pcs = self._world.find(PodCliqueSet, set_name)
        if pcs is None:
            raise KeyError(set_name)
        self._pages.set_load(pcs, requests_per_second, engine)

    async def run(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            self._tick()
            ticks += 1
            if ticks % round(SYNC_S / TICK_S) == 0:
                for scaler in self._world.all(HorizontalPodAutoscaler):
                    await self._look(scaler)

    # Engines

    def _tick(self) -> None:
        pods = [pod for pod in self._world.all(Pod) if labels.PART_OF in pod.metadata.labels]
        self._follow(pods)
        for pod, page in self._pages.advance(TICK_S, self._world.all(PodCliqueSet), pods).items():
            numbers = numbers_of(scan(page, wanted_names(())))
            self._readings.observe(pod.namespace, pod.name, numbers, self._world.time_s)

    def _follow(self, pods: list[Pod]) -> None:
        """Adds the pods that exist to the readings."""
        here = {(pod.metadata.namespace, pod.metadata.name) for pod in pods}
        for where in self._known - here:
            self._readings.remove_pod(*where)
        for pod in pods:
            if (pod.metadata.namespace, pod.metadata.name) not in self._known:
                self._readings.add_pod(pod.metadata.namespace, pod.metadata.name, pod.metadata.labels)
        self._known = here

    # Autoscalers

    async def _look(self, scaler: HorizontalPodAutoscaler) -> None:
        target, namespace = scaler.spec.scale_target_ref, scaler.metadata.namespace
        kind = SCALED.get(target.kind)
        scaled = self._world.find(kind, target.name, namespace) if kind is not None else None
        if kind is None or scaled is None:
            return
        if Key(namespace, scaled.metadata.labels.get(labels.PART_OF, target.name)) not in self._pages:
            return
        least = 1 if scaler.spec.min_replicas is None else scaler.spec.min_replicas
        now, replicas = self._world.time_s, scaled.spec.replicas
        metrics = scaler.spec.metrics or ()
        proposals = [proposal(metric, replicas, self._value(metric, scaled, namespace)) for metric in metrics]
        memory = self._recommenders.setdefault(scaler.metadata.key, Recommender())
        wanted, by = memory.decide(proposals, replicas, least, scaler.spec.max_replicas, now)
        if wanted != replicas and by is not None:
            cause = f"{by.metric} is {by.value:.3g}, the target {by.target:.3g}"
            self._say("autoscaled", target.name, f"{target.name} is scaled from {replicas} to {wanted}: {cause}")
            patch = {"spec": {"replicas": wanted}}
            await self._world.client.patch(kind, target.name, patch, namespace, subresource="scale")
        status = _status(metrics, proposals, replicas, wanted, rfc3339(self._world.cluster.clock.now()))
        await self._world.client.patch(
            HorizontalPodAutoscaler, scaler.metadata.name, {"status": status}, namespace, subresource="status"
        )

    def _value(self, metric: Json, scaled: Scaled, ns: str) -> float | None:
        source, name, now = metric_source(metric), metric_name(metric), self._world.time_s
        match metric.get("type"):
            case "Object":
                about = source["describedObject"]
                selected = self._readings.find(Subject(ns, about["kind"], about["name"]), name, now)
            case "External":
                wanted = selector.of_labels(((source["metric"].get("selector") or {}).get("matchLabels")) or {})
                selected = self._readings.find_selected(ns, wanted, name, now)
            case "Pods":
                text = (
                    scaled.status.selector
                    if isinstance(scaled, PodCliqueScalingGroup)
                    else scaled.status.hpa_pod_selector
                )
                counted = selector.parse(text)
                pods = self._readings.selected(ns, counted)
                values = [value for pod in pods if (value := self._readings.find(Subject(ns, POD, pod), name, now))]
                return sum(value.number for value in values) / len(values) if values else None
            case _:
                return None
        return selected.number if selected is not None else None


def _status(metrics: tuple[Json, ...], proposals: list[Proposal], before: int, after: int, now: str) -> Json:
    """The status that the HPA controller would write."""
    missing = next((candidate.metric for candidate in proposals if candidate.replicas is None), "")
    active = {
        "type": "ScalingActive",
        "status": "False" if missing else "True",
        "lastTransitionTime": now,
        "reason": "FailedGetMetric" if missing else "ValidMetricFound",
        "message": f"no pod reports {missing}" if missing else "",
    }
    status: Json = {"currentReplicas": before, "desiredReplicas": after, "conditions": [active]}
    status["currentMetrics"] = [
        _current(metric, candidate) for metric, candidate in zip(metrics, proposals, strict=True)
    ]
    return status


def _current(metric: Json, candidate: Proposal) -> Json:
    kind = str(metric["type"])
    field = kind[:1].lower() + kind[1:]
    number = f"{round((candidate.value or 0.0) * 1000)}m"
    average = "averageValue" in (metric_source(metric).get("target") or {})
    current = {} if candidate.value is None else {"averageValue" if average else "value": number}
    return {"type": kind, field: {"metric": {"name": candidate.metric}, "current": current}}
