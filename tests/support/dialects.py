"""Objects of the two dialects: builders for what a test is about, strategies for laws that hold for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from grove.api.meta import Json

SEEDS = Path(__file__).parents[2] / "samples" / "seeds"
IMAGE = "registry.k8s.io/pause:3.10"


def seed(name: str) -> Json:
    """A manifest of samples/seeds, by file name."""
    found: Json = yaml.safe_load((SEEDS / f"{name}.yaml").read_text())
    found["metadata"].setdefault("namespace", "default")
    return found


def pod_template(**spec: Any) -> Json:
    return {"spec": {"containers": [{"name": "main", "image": IMAGE}], **spec}}


def gang_set(
    name: str = "gang", replicas: int | None = 2, *, labels: dict[str, str] | None = None, **spec: Any
) -> Json:
    """A PodGangSet; `labels` are those of its pods, `spec` goes beside the template."""
    template = pod_template() | ({"metadata": {"labels": labels}} if labels else {})
    found = {"template": template, **({} if replicas is None else {"replicas": replicas}), **spec}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "grove.dynamo.ai/v1", "kind": "PodGangSet", "metadata": metadata, "spec": found}


def rule(name: str = "near", *, about: dict[str, str] | None = None, **topology: Any) -> Json:
    """A PodClique of grove.dynamo.ai: `about` are labels of the pods it selects."""
    return {
        "apiVersion": "grove.dynamo.ai/v1",
        "kind": "PodClique",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": about or {"app": "worker"}}, "topology": topology},
    }


def wish(key: str, weight: int = 100, **labels: str) -> Json:
    """A preferred term: near pods with these labels (none: the gang's own) within a value of the node label `key`."""
    selector = {"labelSelector": {"matchLabels": labels}} if labels else {}
    return {"weight": weight, "podAffinityTerm": {**selector, "topologyKey": key}}


def nested(name: str, replicas: int = 1, order: int | None = None, **fields: Any) -> Json:
    """A clique of grove.ai."""
    found = {"name": name, "replicas": replicas, "template": pod_template(), **fields}
    return found | ({} if order is None else {"startOrder": order})


def koord_set(name: str = "llama", *, groups: dict[str, list[Json]] | None = None, **fields: Any) -> Json:
    """A PodCliqueSet of grove.ai with these groups; `podCliques` and other template fields go beside them."""
    replicas = fields.pop("replicas", 1)
    annotations = fields.pop("annotations", None)
    listed = [{"name": group, "podCliques": cliques} for group, cliques in (groups or {}).items()]
    metadata: Json = {"name": name, "namespace": "default"} | ({"annotations": annotations} if annotations else {})
    template = ({"podCliqueScalingGroups": listed} if listed else {}) | fields
    spec = {"replicas": replicas, "template": template}
    return {"apiVersion": "grove.ai/v1alpha1", "kind": "PodCliqueSet", "metadata": metadata, "spec": spec}


# For all objects

_NAMES = st.sampled_from(["a", "b", "c", "lead", "work"])
_COUNTS = st.integers(min_value=1, max_value=5)
_LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2)


@st.composite
def gang_sets(draw: st.DrawFn) -> Json:
    replicas = draw(_COUNTS)
    fields: Json = {}
    if draw(st.booleans()):
        fields["minAvailable"] = draw(st.integers(min_value=1, max_value=replicas))
    scheduling: Json = {}
    if draw(st.booleans()):
        scheduling["nodeSelector"] = draw(_LABELS)
    if draw(st.booleans()):
        terms = [{"matchExpressions": [{"key": draw(_NAMES), "operator": "Exists"}]} for _ in range(draw(_COUNTS))]
        required = {"nodeSelectorTerms": terms}
        scheduling["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    if draw(st.booleans()):
        scheduling["priorityClassName"] = "high"
    if scheduling:
        fields["scheduling"] = scheduling
    return gang_set(draw(_NAMES), replicas, labels=draw(_LABELS), **fields)


@st.composite
def koord_sets(draw: st.DrawFn) -> Json:
    def cliques() -> list[Json]:
        names = draw(st.lists(_NAMES, min_size=1, max_size=3, unique=True))
        found = []
        for name in names:
            replicas = draw(_COUNTS)
            order = draw(st.none() | st.integers(min_value=0, max_value=3))
            fields: Json = {"minAvailable": draw(st.integers(1, replicas))} if draw(st.booleans()) else {}
            found.append(nested(name, replicas, order, **fields))
        return found

    groups = {name: cliques() for name in draw(st.lists(st.sampled_from(["g", "h", "k"]), max_size=3, unique=True))}
    outside = cliques() if not groups or draw(st.booleans()) else []
    taken = {one["name"] for members in groups.values() for one in members}
    outside = [one for one in outside if one["name"] not in taken]
    fields: Json = {"podCliques": outside} if outside else {}
    if not groups and not outside:
        fields["podCliques"] = cliques()
    return koord_set(draw(_NAMES), groups=groups, replicas=draw(_COUNTS), **fields)
