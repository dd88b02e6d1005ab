"""Checks of the autoscaling settings of a set: the metrics it names, the pods they measure, and surprising values.

A fault is a name that means nothing. A warning is for a legal value that surprises. Three examples: a metric that
measures one pod of a unit, a metric that this cluster does not serve, and a minimum of zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from grove.admission.rules.lookups import Known, LookupFailed
from grove.admission.rules.view import GroupView, Scaling, SetView
from grove.api.faults import Fault, invalid
from grove.api.fields import mapping, sequence, text
from grove.api.labels import METRICS_CLIQUE
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

SELF = "self"
OWN_PREFIX = "grove_"
CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"
OUR_SERVER = {CUSTOM: "pods/grove_requests_waiting", EXTERNAL: "grove_requests_waiting"}
"""Metrics that grove-metrics lists. It reads any other engine metric on request, so it can also serve names that are
not listed.
"""
KEDA = "externalmetrics"
"""All that KEDA lists, whatever it serves."""
_COUNT_PODS = ("Resource", "ContainerResource", "Pods")


class Asked(NamedTuple):
    """A name that discovery of a metrics API may list."""

    api: str
    name: str


class _Target(NamedTuple):
    scaling: Scaling
    raw: Json
    kind: str
    group: GroupView | None = None


def autoscaling_faults(new: SetView) -> Iterator[Fault]:
    named = text(new.annotations.get(METRICS_CLIQUE))
    if METRICS_CLIQUE in new.annotations and named not in {clique.name for clique in new.cliques}:
        yield invalid(f"metadata.annotations[{METRICS_CLIQUE}]", named, "must name a clique of the set")
    for group in new.groups:
        named = text(group.annotations.get(METRICS_CLIQUE))
        if METRICS_CLIQUE in group.annotations and named not in group.clique_names:
            yield invalid(f"{group.path}.annotations[{METRICS_CLIQUE}]", named, "must name a clique of the group")
    for target in _targets(new):
        for path, metric in _metrics(target):
            about = mapping(mapping(metric.get("object")).get("describedObject"))
            kind = text(about.get("kind"))
            if about.get("name") == SELF and kind not in (target.kind, PodCliqueSet.RESOURCE.kind):
                detail = f"self is the {target.kind} that is scaled, or with kind PodCliqueSet the set"
                yield invalid(f"{path}.object.describedObject.kind", kind, detail)


def autoscaling_notes(new: SetView, lookups: Known) -> Iterator[str]:
    for target in _targets(new):
        if target.scaling.min_replicas == 0:
            yield (
                f"{target.scaling.path}.minReplicas: 0 needs the feature gate HPAScaleToZero and an Object or External "
                "metric, or KEDA; otherwise Kubernetes refuses the autoscaler"
            )
        for path, metric in _metrics(target):
            if target.group is not None and metric.get("type") in _COUNT_PODS:
                yield from _unit_notes(path, new, target.group)
            asked = _asked(metric)
            if asked is not None and not _is_served(asked, lookups):
                yield f"{path}: no metrics API of this cluster serves {asked.name.rpartition('/')[2]}"


def metric_questions(new: SetView) -> frozenset[tuple[str, str]]:
    """The metrics to look up before `autoscaling_notes`, by API and name."""
    questions: set[tuple[str, str]] = set()
    for target in _targets(new):
        for _, metric in _metrics(target):
            asked = _asked(metric)
            if asked is not None:
                questions |= {(asked.api, name) for name in _names(asked)}
    return frozenset(questions)


def _targets(new: SetView) -> Iterator[_Target]:
    for clique in new.cliques:
        if clique.scaling is not None:
            raw = mapping(mapping(clique.raw.get("spec")).get("autoScalingConfig"))
            yield _Target(clique.scaling, raw, PodClique.RESOURCE.kind)
    for group in new.groups:
        if group.scaling is not None:
            raw = mapping(group.raw.get("scaleConfig"))
            yield _Target(group.scaling, raw, PodCliqueScalingGroup.RESOURCE.kind, group)


def _metrics(target: _Target) -> Iterator[tuple[str, Json]]:
    for index, metric in enumerate(sequence(target.raw.get("metrics"))):
        if isinstance(metric, dict):
            yield f"{target.scaling.path}.metrics[{index}]", metric


def _unit_notes(path: str, new: SetView, group: GroupView) -> Iterator[str]:
    pods = {clique.name: clique.replicas or 0 for clique in new.cliques if clique.name in group.clique_names}
    measured = text(group.annotations.get(METRICS_CLIQUE)) or next(iter(pods), "")
    if sum(pods.values()) > 1:
        yield (
            f"{path}: of the {sum(pods.values())} pods of a replica only pod 0 of clique {measured} is measured; "
            f"the annotation {METRICS_CLIQUE} of the group names another, an Object metric about self sums up all"
        )


def _asked(metric: Json) -> Asked | None:
    """The name that an autoscaler will ask for; None if the metric does not define it."""
    match metric.get("type"):
        case "Resource" | "ContainerResource":
            return Asked(RESOURCE, "pods")
        case "Pods":
            name = text(mapping(mapping(metric.get("pods")).get("metric")).get("name"))
            return Asked(CUSTOM, f"pods/{name}") if name else None
        case "External":
            name = text(mapping(mapping(metric.get("external")).get("metric")).get("name"))
            return Asked(EXTERNAL, name) if name else None
        case "Object":
            source = mapping(metric.get("object"))
            name = text(mapping(source.get("metric")).get("name"))
            about = text(mapping(source.get("describedObject")).get("kind"))
            resources = {kind.RESOURCE.kind: kind.RESOURCE for kind in (PodClique, PodCliqueScalingGroup, PodCliqueSet)}
            resource = resources.get(about)
            return (
                Asked(CUSTOM, f"{resource.plural}.{resource.group}/{name}") if resource is not None and name else None
            )
    return None


def _names(asked: Asked) -> Iterator[str]:
    yield asked.name
    is_ours = asked.name.rpartition("/")[2].startswith(OWN_PREFIX)
    if asked.api in OUR_SERVER and not is_ours:
        yield OUR_SERVER[asked.api]
    if asked.api == EXTERNAL:
        yield KEDA


def _is_served(asked: Asked, lookups: Known) -> bool:
    try:
        return any(lookups.is_listed(asked.api, name) for name in _names(asked))
    except LookupFailed:
        return True  # unknown: no warning without a reason
