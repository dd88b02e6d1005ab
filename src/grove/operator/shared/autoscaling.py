"""Metrics of a set's autoscalers: the described object `self`, put into the name of a live object.

A set's template is unfolded into replicas, so it cannot name the PodClique or scaling group that an Object metric is
about. It says `self`: the object that is scaled, or with `kind: PodCliqueSet` the set that it is part of.
"""

from __future__ import annotations

from typing import Any

from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet

SELF = "self"


def described(metric: Json, pcs: PodCliqueSet, target: Json) -> Json:
    """The metric with `self` replaced; `target` is the scaleTargetRef of the autoscaler it stands in."""
    source = metric.get("object")
    about: Any = source.get("describedObject") if isinstance(source, dict) else None
    if source is None or not isinstance(about, dict) or about.get("name") != SELF:
        return metric
    if about.get("kind") == PodCliqueSet.RESOURCE.kind:
        resource = PodCliqueSet.RESOURCE
        named: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "name": pcs.metadata.name}
    else:
        named = dict(target)
    return {**metric, "object": {**source, "describedObject": named}}
