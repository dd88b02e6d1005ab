"""The bodies of the two metrics APIs that the HPA controller reads, and the errors between them.

`custom.metrics.k8s.io` is about objects: pods, and their owners by name. `external.metrics.k8s.io` is about a
selection: here the labels select pods, and the value is that of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from grove.api.meta import Json, rfc3339
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.metrics.engines import Kind, find_meaning
from grove.metrics.history import WINDOW_S

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
VERSIONS = {CUSTOM: ("v1beta2", "v1beta1"), EXTERNAL: ("v1beta1",)}
GROVE_KINDS = {
    f"{kind.RESOURCE.plural}.{kind.RESOURCE.group}": kind.RESOURCE
    for kind in (PodClique, PodCliqueScalingGroup, PodCliqueSet)
}
RESOURCES = {"pods": "Pod", **{name: resource.kind for name, resource in GROVE_KINDS.items()}}
"""Kinds by the name that a URL has for them."""
LARGEST = 2**63 - 1
"""What a quantity holds; Kubernetes reads more as this, too."""
_API_VERSIONS = {"Pod": "/v1", **{resource.kind: resource.api_version for resource in GROVE_KINDS.values()}}


OPENAPI: Mapping[str, Json] = {
    "/openapi/v2": {"swagger": "2.0", "info": {"title": "grove-metrics", "version": "v1beta2"}, "paths": {}},
    "/openapi/v3": {"paths": {}},
}
"""Metrics need no schema, but the aggregator asks for one again and again until it gets it."""


class Item(NamedTuple):
    """A value of one object."""

    kind: str
    namespace: str
    name: str
    number: float
    read_at: datetime


def metric_values(version: str, metric: str, items: list[Item]) -> Json:
    """A MetricValueList of `custom.metrics.k8s.io`."""
    return {
        "kind": "MetricValueList",
        "apiVersion": f"{CUSTOM}/{version}",
        "metadata": {},
        "items": [_metric_value(version, metric, item) for item in items],
    }


def _metric_value(version: str, metric: str, item: Item) -> Json:
    about = {
        "kind": item.kind,
        "namespace": item.namespace,
        "name": item.name,
        "apiVersion": _API_VERSIONS[item.kind],
    }
    named: Json = {"metricName": metric} if version == "v1beta1" else {"metric": {"name": metric, "selector": None}}
    value: Json = {"describedObject": about, **named, "timestamp": rfc3339(item.read_at)}
    if (window_s := window_of(metric)) is not None:
        value["windowSeconds" if version == "v1beta2" else "window"] = window_s
    return {**value, "value": quantity(item.number)}


def external_values(metric: str, number: float, read_at: datetime) -> Json:
    """An ExternalMetricValueList with the one value of a selection."""
    value: Json = {"metricName": metric, "metricLabels": {}, "timestamp": rfc3339(read_at)}
    if (window_s := window_of(metric)) is not None:
        value["window"] = window_s
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": f"{EXTERNAL}/v1beta1",
        "metadata": {},
        "items": [{**value, "value": quantity(number)}],
    }


def window_of(metric: str) -> int | None:
    """The seconds a value looks back; None for one of a moment."""
    meaning = find_meaning(metric)
    return int(WINDOW_S) if meaning is not None and meaning.kind is Kind.LATENCY else None


def quantity(number: float) -> str:
    """A number as a quantity: whole, in thousandths, or in millionths where it is small; never more than one holds."""
    number = max(-LARGEST, min(number, LARGEST))
    micro = round(number * 1_000_000)
    if micro % 1_000_000 == 0:
        return str(micro // 1_000_000)
    return f"{micro // 1000}m" if micro % 1000 == 0 or micro > 1_000_000_000 else f"{micro}u"


def groups() -> Json:
    """The APIGroupList at `/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in VERSIONS]}


def group(name: str) -> Json:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def _group(name: str) -> Json:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in VERSIONS[name]]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resources(api: str, version: str, metrics: list[str]) -> Json:
    """The discovery list of one version: `resource/metric` for every kind, or metrics alone."""
    if api == CUSTOM:
        names, kind = [f"{resource}/{metric}" for metric in metrics for resource in RESOURCES], "MetricValueList"
    else:
        names, kind = metrics, "ExternalMetricValueList"
    listed = [{"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]} for name in names]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{api}/{version}", "resources": listed}


def failure(code: int, reason: str, message: str) -> Json:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**body, "message": message, "reason": reason, "code": code}
