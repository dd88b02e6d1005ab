"""Deployments and StatefulSets whose pods name a PodGroup (Koordinator, coscheduling): all of one PodGroup are one set.

Each of them is a clique; the PodGroup's minimum is that of the clique where there is only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grove.api.fields import integer, mapping, natural, text
from grove.api.labels import GANG_TIMEOUT, KOORDINATOR_SCHEDULER
from grove.api.meta import Json
from grove.dialects.moving.moved import Moved, clique, has_no_counterpart, moved_set, without_keys

WORKLOADS = ("Deployment", "StatefulSet")
POD_GROUP = ("scheduling.sigs.k8s.io", "PodGroup")
_LABELS = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name")
_KOORD = "gang.scheduling.koordinator.sh/"
_NAME, _MINIMUM, _WAITING = f"{_KOORD}name", f"{_KOORD}min-available", f"{_KOORD}waiting-time"
_WHY = {
    "strategy": "spec.updateStrategy of the set says how changes reach pods",
    "updateStrategy": "spec.updateStrategy of the set says how changes reach pods",
    "volumeClaimTemplates": "pods name claims that exist",
    "serviceName": "every replica has a headless Service",
    "podManagementPolicy": "pods of a clique start together",
}


class Gang(NamedTuple):
    """A PodGroup by name, the workloads whose pods name it, and the PodGroup object if it is there."""

    name: str
    workloads: tuple[Json, ...]
    pod_group: Json | None


def gang_name(obj: Json) -> str:
    """The PodGroup that a workload's pods name; empty if none."""
    metadata = mapping(mapping(mapping(obj.get("spec")).get("template")).get("metadata"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    named = next((text(labels.get(key)) for key in _LABELS if labels.get(key)), "")
    return named or text(annotations.get(_NAME))


def to_set(gang: Gang) -> Moved:
    cliques = [_clique(workload, gang) for workload in gang.workloads]
    timeout = _timeout(gang)
    annotations = {GANG_TIMEOUT: timeout} if timeout else {}
    first = gang.workloads[0]
    manifest, cut = moved_set(first, gang.name, cliques, annotations=annotations)
    return Moved(manifest, (*cut, *_chosen(gang)), tuple(_lost(gang)))


def _replicas(obj: Json) -> int:
    replicas = integer(mapping(obj.get("spec")).get("replicas"))
    return 1 if replicas is None else replicas


def _clique(obj: Json, gang: Gang) -> Json:
    template = mapping(mapping(obj.get("spec")).get("template"))
    spec = dict(mapping(template.get("spec")))
    if text(spec.get("schedulerName")) != KOORDINATOR_SCHEDULER:
        spec.pop("schedulerName", None)
    name = text(mapping(obj.get("metadata")).get("name"))
    bare = without_keys({**template, "spec": spec}, [*_LABELS, _KOORD])
    replicas = _replicas(obj)
    minimum = _minimum(gang) if len(gang.workloads) == 1 else None
    return clique(name, bare, replicas, max(1, min(minimum or replicas, replicas or 1)))


def _annotations(gang: Gang) -> Json:
    of_pods: Json = {}
    for workload in gang.workloads:
        metadata = mapping(mapping(mapping(workload.get("spec")).get("template")).get("metadata"))
        of_pods |= mapping(metadata.get("annotations"))
    return of_pods


def _minimum(gang: Gang) -> int | None:
    minimum = text(_annotations(gang).get(_MINIMUM))
    spec = mapping((gang.pod_group or {}).get("spec"))
    return integer(spec.get("minMember")) or natural(minimum)


def _timeout(gang: Gang) -> str:
    seconds = integer(mapping((gang.pod_group or {}).get("spec")).get("scheduleTimeoutSeconds"))
    return f"{seconds}s" if seconds else text(_annotations(gang).get(_WAITING))


def _chosen(gang: Gang) -> Iterator[str]:
    names = ", ".join(_title(workload) for workload in gang.workloads)
    yield f"PodGroup {gang.name} with {names} is one set: one gang, a clique each"
    total, least = sum(map(_replicas, gang.workloads)), _minimum(gang)
    if len(gang.workloads) > 1 and least is not None and least != total:
        yield f"its minimum of {least} of {total} pods is of no one clique, so all pods of every clique are needed"
    if least is None:
        yield "its minimum is not in this file, so all pods are needed"
    for workload in gang.workloads:
        scheduler = text(
            mapping(mapping(mapping(workload.get("spec")).get("template")).get("spec")).get("schedulerName")
        )
        if scheduler == KOORDINATOR_SCHEDULER:
            yield f"{_title(workload)}: Koordinator goes on placing the pods, as schedulerName says"
        elif scheduler:
            yield f"{_title(workload)}: schedulerName {scheduler} is left out: the operator's default places the gang"
    yield "labels of the pods stay, so Services find them; delete the old workloads when the set is available"


def _lost(gang: Gang) -> Iterator[str]:
    known = ("replicas", "selector", "template")
    for workload in gang.workloads:
        yield from (
            f"{_title(workload)} {problem}"
            for problem in has_no_counterpart(mapping(workload.get("spec")), "spec", known, _WHY)
        )
    spec = mapping((gang.pod_group or {}).get("spec"))
    yield from has_no_counterpart(spec, f"PodGroup {gang.name} spec", ("minMember", "scheduleTimeoutSeconds"), {})
    read = (_NAME, _MINIMUM, _WAITING)
    yield from (f"annotation {key}" for key in _annotations(gang) if key.startswith(_KOORD) and key not in read)


def _title(obj: Json) -> str:
    return f"{text(obj.get('kind'))} {text(mapping(obj.get('metadata')).get('name'))}"


def gangs_in(documents: Sequence[Json]) -> list[Gang]:
    """The PodGroups that workloads of a file name, in the order of the file."""
    named: dict[tuple[str, str], list[Json]] = {}
    for document in documents:
        if text(document.get("kind")) in WORKLOADS and (name := gang_name(document)):
            named.setdefault((_namespace(document), name), []).append(document)
    groups = {(_namespace(document), _name(document)): document for document in documents if is_pod_group(document)}
    return [Gang(key[1], tuple(workloads), groups.get(key)) for key, workloads in named.items()]


def is_pod_group(obj: Json) -> bool:
    return (text(obj.get("apiVersion")).partition("/")[0], text(obj.get("kind"))) == POD_GROUP


def _namespace(obj: Json) -> str:
    return text(mapping(obj.get("metadata")).get("namespace"))


def _name(obj: Json) -> str:
    return text(mapping(obj.get("metadata")).get("name"))
