"""The pages that engines of a loaded set would show: which pods serve, in what order requests pass them, and the load.

Stages are what is scaled: groups, and standalone cliques but the front, which requests come in by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from grove.api import labels
from grove.api.core import Pod
from grove.api.meta import Key
from grove.api.podcliqueset import PodCliqueSet
from grove.sim.load import Engine, Latency, Pipeline, Stage, engine_page, front_page


class EnginePages:
    """The load on the sets of a cluster, and what their engines say."""

    def __init__(self) -> None:
        self._pipelines: dict[Key, Pipeline] = {}
        self._own: dict[Key, Latency] = {}
        """By pod."""

    def __contains__(self, key: Key) -> bool:
        """True if a set has a load, even one of 0 requests a second."""
        return key in self._pipelines

    def set_load(self, pcs: PodCliqueSet, requests_per_second: float, engine: Engine | None = None) -> None:
        """From now on requests arrive at this rate; another kind of `engine` starts from zero."""
        line = self._pipelines.get(pcs.metadata.key)
        if line is None or engine is not None:
            served = engine or Engine()
            line = self._pipelines[pcs.metadata.key] = Pipeline({name: Stage(served) for name in stages_of(pcs)})
        line.requests_per_second = requests_per_second

    def advance(self, seconds: float, sets: Iterable[PodCliqueSet], pods: Iterable[Pod]) -> dict[Key, bytes]:
        """Lets time pass; the page of every pod that serves a set with a load. Sets that are gone lose theirs."""
        known = {pcs.metadata.key: pcs for pcs in sets}
        for key in self._pipelines.keys() - known.keys():
            del self._pipelines[key]
        ready: dict[Key, list[Pod]] = {}
        for pod in pods:
            if pod.is_ready and labels.PART_OF in pod.metadata.labels:
                ready.setdefault(Key(pod.metadata.namespace, pod.metadata.labels[labels.PART_OF]), []).append(pod)
        pages = {
            pod: page
            for key, line in self._pipelines.items()
            for pod, page in self._advanced(line, seconds, known[key], ready.get(key, []))
        }
        self._own = {pod: self._own[pod] for pod in pages}
        return pages

    def _advanced(
        self, line: Pipeline, seconds: float, pcs: PodCliqueSet, pods: list[Pod]
    ) -> Iterator[tuple[Key, bytes]]:
        serving = {stage: serving_pods(pcs, stage, pods) for stage in line.stages}
        before = {name: list(stage.latency.counts) for name, stage in line.stages.items()}
        whole = list(line.latency.counts)
        line.advance(seconds, {stage: len(serving_now) for stage, serving_now in serving.items()})
        for name, serving_now in serving.items():
            stage = line.stages[name]
            for pod, own in self._grown(serving_now, before[name], stage.latency):
                yield pod, engine_page(stage, len(serving_now), own)
        fronts = front_pods(pcs, pods)
        for pod, own in self._grown(fronts, whole, line.latency):
            yield pod, front_page(line, len(fronts), own)

    def _grown(self, pods: list[Pod], before: list[float], now: Latency) -> Iterator[tuple[Key, Latency]]:
        """Each pod's own counters with its share of what was new: a pod that comes begins at nothing, as they do."""
        grown = [(count - past) / len(pods) for count, past in zip(now.counts, before, strict=True)] if pods else []
        for pod in pods:
            own = self._own.setdefault(pod.metadata.key, Latency())
            own.add(grown)
            yield pod.metadata.key, own


def stages_of(pcs: PodCliqueSet) -> list[str]:
    """The stages that serve a request, in order: standalone cliques without the front, then groups."""
    template = pcs.spec.template
    groups = [group.name for group in template.pod_clique_scaling_groups]
    alone = [clique.name for clique in template.standalone_cliques]
    if not groups and len(alone) == 1:
        return alone
    return [*(name for name in alone if name != front_of(pcs)), *groups]


def front_of(pcs: PodCliqueSet) -> str:
    """The clique that requests come in by: the first standalone one, if others serve."""
    alone = [clique.name for clique in pcs.spec.template.standalone_cliques]
    others = len(alone) > 1 or pcs.spec.template.pod_clique_scaling_groups
    return alone[0] if alone and others else ""


def front_pods(pcs: PodCliqueSet, pods: list[Pod]) -> list[Pod]:
    front = front_of(pcs)
    return [pod for pod in pods if front and pod.metadata.labels.get(labels.CLIQUE_NAME) == front]


def serving_pods(pcs: PodCliqueSet, stage: str, pods: list[Pod]) -> list[Pod]:
    """The pods that speak for the units of a stage: all of a clique, the measured one of each replica of a group."""
    group = pcs.spec.template.find_group(stage)
    clique = pcs.spec.template.metrics_clique_of(group) if group is not None else stage
    mine = [pod for pod in pods if pod.metadata.labels.get(labels.CLIQUE_NAME) == clique]
    return mine if group is None else [pod for pod in mine if pod.metadata.labels.get(labels.POD_INDEX) == "0"]
