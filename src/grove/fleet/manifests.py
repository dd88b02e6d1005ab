"""The objects of a fleet file: PodCliqueSets for serving and batch work, quotas, priority classes, budgets."""

from __future__ import annotations

from collections.abc import Iterator

from grove.api.core import PriorityClass
from grove.api.koordinator import ElasticQuota
from grove.api.meta import Json, Object
from grove.api.podcliqueset import PodCliqueSet
from grove.fleet.file import Fleet, Part, Serving, Team
from grove.plan.world import NAMESPACE, TOPOLOGY

GPU = "nvidia.com/gpu"
QUEUE = "quota.scheduling.koordinator.sh/name"
WAITING, CACHE = "grove_requests_waiting", "grove_kv_cache_usage"
TARGET_WAITING, TARGET_CACHE = "4", "700m"
GOOD, BAD = "engine:v", "engine:bad-v"
"""Names of releases; pods of a bad one never become ready."""
_SELF: Json = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueScalingGroup", "name": "self"}


def priority_name(value: int) -> str:
    return f"priority-{value}" if value >= 0 else f"priority-minus-{-value}"


def standing_objects(fleet: Fleet) -> Iterator[tuple[type[Object], Json]]:
    """The objects that exist before the first work arrives: priority classes and the teams' quotas."""
    for value in sorted(fleet.priorities):
        yield PriorityClass, {"metadata": {"name": priority_name(value)}, "value": value}
    for team in fleet.teams:
        if team.quota is not None or team.limit is not None:
            yield ElasticQuota, _quota(team, fleet.gpus)


def _quota(team: Team, total: int) -> Json:
    limit = total if team.limit is None else team.limit
    spec = {"min": {GPU: team.quota or 0}, "max": {GPU: limit}}
    return {"metadata": {"name": team.name, "namespace": NAMESPACE}, "spec": spec}


def serving_set(serving: Serving, team: Team) -> Json:
    """A set with one scaling group for each part."""
    cliques = [clique for part in serving.parts for clique in _cliques(part, GOOD + "1")]
    template: Json = {
        "cliques": cliques,
        "podCliqueScalingGroups": [_group(part) for part in serving.parts],
        "priorityClassName": priority_name(team.priority),
    }
    if serving.pack:
        template["topologyConstraint"] = _packed(serving.pack)
    return _set(serving.name, team, serving.replicas, template)


def batch_set(name: str, team: Team, *, pods: int, gpus: int, priority: int | None, pack: str) -> Json:
    """A gang of alike pods that runs as a whole. Its pods end by themselves, and their restart policy says so."""
    clique = _clique("worker", pods, gpus, GOOD + "1")
    clique["spec"]["minAvailable"] = pods
    clique["spec"]["podSpec"]["restartPolicy"] = "OnFailure"
    template: Json = {
        "cliques": [clique],
        "priorityClassName": priority_name(team.priority if priority is None else priority),
    }
    if pack:
        template["topologyConstraint"] = _packed(pack)
    return _set(name, team, 1, template)


def budget(name: str, available: int) -> Json:
    """A PodDisruptionBudget over the pods of a set."""
    selector = {"matchLabels": {"app.kubernetes.io/part-of": name}}
    spec = {"minAvailable": available, "selector": selector}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def released(cliques: list[Json], image: str) -> list[Json]:
    """The cliques of a template with another image in every container."""
    return [
        {
            **clique,
            "spec": {
                **clique["spec"],
                "podSpec": {
                    **clique["spec"]["podSpec"],
                    "containers": [{**box, "image": image} for box in clique["spec"]["podSpec"]["containers"]],
                },
            },
        }
        for clique in cliques
    ]


def _set(name: str, team: Team, replicas: int, template: Json) -> Json:
    has_queue = team.quota is not None or team.limit is not None
    labels = {QUEUE: team.name} if has_queue else {}
    if team.termination_delay is not None:
        template = {**template, "terminationDelay": f"{team.termination_delay.s:.0f}s"}
    return {
        "apiVersion": PodCliqueSet.RESOURCE.api_version,
        "kind": "PodCliqueSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicas": replicas, "template": template},
    }


def _cliques(part: Part, image: str) -> list[Json]:
    if part.pods == 1:
        return [_clique(part.name, 1, part.gpus, image)]
    leader = _clique(f"{part.name}-leader", 1, part.gpus, image)
    worker = _clique(f"{part.name}-worker", part.pods - 1, part.gpus, image)
    return [leader, worker]


def _clique(name: str, replicas: int, gpus: int, image: str) -> Json:
    limits = {GPU: gpus} if gpus else {"cpu": "4"}
    container = {"name": "engine", "image": image, "resources": {"limits": limits}}
    spec = {"roleName": name, "replicas": replicas, "podSpec": {"containers": [container]}}
    return {"name": name, "spec": spec}


def _group(part: Part) -> Json:
    group: Json = {
        "name": part.name,
        "cliqueNames": [clique["name"] for clique in _cliques(part, GOOD)],
        "replicas": part.replicas,
        "minAvailable": part.min_available,
    }
    if part.pack:
        group["topologyConstraint"] = _packed(part.pack)
    if part.max_replicas:
        group["scaleConfig"] = {
            "minReplicas": part.min_available,
            "maxReplicas": part.max_replicas,
            "metrics": [
                _metric(WAITING, {"type": "AverageValue", "averageValue": TARGET_WAITING}),
                _metric(CACHE, {"type": "Value", "value": TARGET_CACHE}),
            ],
        }
    return group


def _metric(name: str, target: Json) -> Json:
    return {"type": "Object", "object": {"describedObject": _SELF, "metric": {"name": name}, "target": target}}


def _packed(domain: str) -> Json:
    return {"topologyName": TOPOLOGY, "pack": {"required": domain}}
