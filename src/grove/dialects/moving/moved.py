"""A PodCliqueSet made from another project's object, with what was chosen on the way and what has no counterpart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from grove.api.fields import mapping, text
from grove.api.labels import LAST_APPLIED
from grove.api.meta import Json
from grove.api.podcliqueset import EXPLICIT, PodCliqueSet
from grove.dialects.translation import set_name, with_device_limits


class Moved(NamedTuple):
    """A set, and sentences for its reader."""

    manifest: Json
    chosen: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def moved_set(
    source: Json,
    name: str,
    cliques: Sequence[Json],
    *,
    replicas: int = 1,
    annotations: Mapping[str, str] | None = None,
    template: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> tuple[Json, list[str]]:
    """The manifest with the metadata of its source, and a word if its name had to be cut."""
    metadata = mapping(source.get("metadata"))
    short = set_name(name, max((len(clique["name"]) for clique in cliques), default=0))
    made: Json = {"name": short}
    if namespace := text(metadata.get("namespace")):
        made["namespace"] = namespace
    if labels := mapping(metadata.get("labels")):
        made["labels"] = dict(labels)
    kept = {key: value for key, value in mapping(metadata.get("annotations")).items() if key != LAST_APPLIED}
    if kept | dict(annotations or {}):
        made["annotations"] = kept | dict(annotations or {})
    whole: Json = {"cliques": list(cliques), **(template or {})}
    if any(clique["spec"].get("startsAfter") for clique in cliques):
        whole["cliqueStartupType"] = EXPLICIT
    resource = PodCliqueSet.RESOURCE
    manifest = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": made,
        "spec": {"replicas": replicas, **(spec or {}), "template": whole},
    }
    remarks = [f"the name is cut to {short}, so that pods' names stay within 63 characters"] if short != name else []
    return manifest, remarks


def clique(name: str, template: Json, replicas: int, min_available: int, after: Sequence[str] = ()) -> Json:
    """A clique template from a pod template."""
    metadata = mapping(template.get("metadata"))
    body: Json = {"name": name}
    for part in ("labels", "annotations"):
        if mapping(metadata.get(part)):
            body[part] = dict(metadata[part])
    spec: Json = {"roleName": name, "replicas": replicas, "minAvailable": min_available}
    if after:
        spec["startsAfter"] = list(after)
    pod_spec = with_device_limits(mapping(template.get("spec")))
    return body | {"spec": spec | {"podSpec": pod_spec}}


def without_keys(template: Json, prefixes: Sequence[str]) -> Json:
    """A pod template without labels and annotations of these prefixes: they were for another controller."""
    metadata = mapping(template.get("metadata"))
    kept = {
        part: {key: value for key, value in mapping(metadata.get(part)).items() if not key.startswith(tuple(prefixes))}
        for part in ("labels", "annotations")
    }
    return {**template, "metadata": {part: values for part, values in kept.items() if values}}


def has_no_counterpart(part: Json, path: str, known: Sequence[str], why: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every field that is not among the known ones."""
    for name in part:
        if name not in known:
            reason = why.get(name, "")
            yield f"{path}.{name}{': ' + reason if reason else ''}"
