"""Volcano Job (`batch.volcano.sh/v1alpha1`): its tasks become the cliques of one gang, their order a start order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grove.api.fields import integer, mapping, sequence, text, texts
from grove.api.labels import VOLCANO_QUEUE, VOLCANO_SCHEDULER
from grove.api.meta import Json
from grove.dialects.moving.moved import Moved, clique, has_no_counterpart, moved_set

GROUP, KIND = "batch.volcano.sh", "Job"
_KNOWN = ("tasks", "minAvailable", "schedulerName", "queue", "priorityClassName", "plugins")
_WHY = {
    "policies": "a gang that stays broken is restarted whole after terminationDelay",
    "maxRetry": "annotation grove.io/max-gang-restarts on the set bounds restarts of a gang",
    "ttlSecondsAfterFinished": "a set serves until it is deleted",
    "minSuccess": "a set serves until it is deleted",
    "volumes": "put them into the pod templates",
    "networkTopology": "spec.template.topologyConstraint with a level of a ClusterTopologyBinding does it",
    "runningEstimate": "nothing reads it",
    "dependsOn": "",
}
_PLUGINS = {
    "svc": "every replica has a headless Service, and pods find each other as <set>-0-<task>-<index>.<set>-0",
    "env": "VK_TASK_INDEX and VC_TASK_INDEX are GROVE_PCLQ_POD_INDEX",
}


def to_set(obj: Json) -> Moved:
    spec = mapping(obj.get("spec"))
    tasks = [mapping(task) for task in sequence(spec.get("tasks"))]
    scheduler = text(spec.get("schedulerName"))
    names = [_name(task, index) for index, task in enumerate(tasks)]
    cliques = [_clique(task, name, spec, scheduler) for task, name in zip(tasks, names, strict=True)]
    queue = text(spec.get("queue"))
    annotations = {VOLCANO_QUEUE: queue} if queue and scheduler == VOLCANO_SCHEDULER else {}
    priority = text(spec.get("priorityClassName"))
    name = text(mapping(obj.get("metadata")).get("name"))
    manifest, cut = moved_set(
        obj, name, cliques, annotations=annotations, template={"priorityClassName": priority} if priority else {}
    )
    return Moved(manifest, (*cut, *_chosen(spec, tasks)), tuple(_lost(spec, tasks, names)))


def _name(task: Json, index: int) -> str:
    return text(task.get("name")) or f"task-{index}"


def _replicas(task: Json) -> int:
    replicas = integer(task.get("replicas"))
    return 1 if replicas is None else replicas


def _clique(task: Json, name: str, spec: Json, scheduler: str) -> Json:
    template = mapping(task.get("template"))
    if scheduler:
        template = {**template, "spec": {**mapping(template.get("spec")), "schedulerName": scheduler}}
    replicas = _replicas(task)
    minimum = integer(task.get("minAvailable"))
    if minimum is None:
        tasks = sequence(spec.get("tasks"))
        whole = integer(spec.get("minAvailable"))
        minimum = whole if len(tasks) == 1 and whole is not None else replicas
    after = texts(mapping(task.get("dependsOn")).get("name"))
    return clique(name, template, replicas, max(1, min(minimum, replicas or minimum)), after)


def _chosen(spec: Json, tasks: Sequence[Json]) -> Iterator[str]:
    whole, total = integer(spec.get("minAvailable")), sum(map(_replicas, tasks))
    if len(tasks) > 1 and whole is not None and whole != total and not any("minAvailable" in task for task in tasks):
        yield f"minAvailable {whole} of {total} pods is not said of any task, so all pods of every task are needed"
    if text(spec.get("schedulerName")) == VOLCANO_SCHEDULER:
        yield "Volcano goes on placing the pods; without schedulerName the operator's default scheduler does"
    if any(mapping(task.get("dependsOn")) for task in tasks):
        yield "dependsOn: all pods are placed together, but containers wait until all pods before them are ready"
    for name in mapping(spec.get("plugins")):
        if name in _PLUGINS:
            yield f"plugin {name}: {_PLUGINS[name]}"


def _lost(spec: Json, tasks: Sequence[Json], names: Sequence[str]) -> Iterator[str]:
    yield "a Job ends when its pods are done; a set keeps its pods running until it is deleted"
    yield from has_no_counterpart(spec, "spec", _KNOWN, _WHY)
    yield from (f"plugin {name}" for name in mapping(spec.get("plugins")) if name not in _PLUGINS)
    if text(spec.get("queue")) and text(spec.get("schedulerName")) != VOLCANO_SCHEDULER:
        yield f"spec.queue {text(spec.get('queue'))}: only for schedulerName {VOLCANO_SCHEDULER}"
    known = ("name", "replicas", "minAvailable", "template", "dependsOn")
    for task, name in zip(tasks, names, strict=True):
        yield from has_no_counterpart(task, f"task {name}", known, _WHY)
