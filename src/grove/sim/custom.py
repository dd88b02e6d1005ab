"""Custom kinds as their definitions say: the `Kind` a CRD makes, and the scale subresource it may declare."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from grove.api.faults import invalid
from grove.api.meta import Json, Key, Resource
from grove.kube.client import Patch
from grove.sim import refusals
from grove.sim.kinds import CRD, Kind, ScalePaths
from grove.sim.patch import apply_patch
from grove.sim.schema import Structure
from grove.sim.store import Version

if TYPE_CHECKING:
    from grove.sim.server import SimServer


def kind_of_crd(crd: Json) -> Kind:
    """The kind that a CustomResourceDefinition describes: its stored version, schema and subresources."""
    names, group = crd["spec"]["names"], crd["spec"]["group"]
    if crd["metadata"]["name"] != f"{names['plural']}.{group}":
        fault = invalid("metadata.name", crd["metadata"]["name"], 'must be spec.names.plural+"."+spec.group')
        raise refusals.invalid(CRD, crd["metadata"]["name"], [fault])
    return _compiled(msgspec.json.encode(crd["spec"]))


@lru_cache(maxsize=64)
def _compiled(spec_text: bytes) -> Kind:
    # By its text, since the same few definitions go into every cluster and compiling one takes milliseconds.
    spec = msgspec.json.decode(spec_text)
    version = next(v for v in spec["versions"] if v.get("storage"))
    names, group = spec["names"], spec["group"]
    resource = Resource(group, version["name"], names["kind"], names["plural"], spec["scope"] == "Namespaced")
    subresources = version.get("subresources") or {}
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    # Identity and metadata have rules of their own; the schema is about the rest.
    own = {k: v for k, v in (schema.get("properties") or {}).items() if k not in ("apiVersion", "kind", "metadata")}
    structure = Structure({**schema, "properties": own})
    paths = None
    if declared := subresources.get("scale"):
        paths = ScalePaths(
            declared["specReplicasPath"].lstrip("."),
            declared["statusReplicasPath"].lstrip("."),
            declared.get("labelSelectorPath", "").lstrip("."),
        )
    fields = tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ())
    return Kind(resource, "status" in subresources, True, fields, scale=paths, structure=structure)


def established(crd: Json, kind: Kind, now: str) -> Json:
    """The definition with the status of one that is served; one that was already keeps its conditions."""
    rows = (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
    conditions = [
        {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for type_, reason, message in rows
    ]
    status = {
        "acceptedNames": crd["spec"]["names"],
        "conditions": (crd.get("status") or {}).get("conditions") or conditions,
        "storedVersions": [kind.resource.version],
    }
    return {**crd, "status": status}


def scale_of(kind: Kind, obj: Json) -> Json:
    """The autoscaling/v1 Scale of an object."""
    if kind.scale is None:
        raise refusals.unknown_kind()
    meta = obj["metadata"]
    status: Json = {"replicas": _value(obj, kind.scale.status) or 0}
    if kind.scale.selector and (selector := _value(obj, kind.scale.selector)):
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": _value(obj, kind.scale.spec) or 0},
        "status": status,
    }


async def patch_scale(server: SimServer, kind: Kind, key: Key, patch: Patch, *, user: str, dry_run: bool) -> Version:
    """Changes the replicas through the Scale; everything else of the object stays."""
    if kind.scale is None:
        raise refusals.unknown_kind()
    path = kind.scale.spec.split(".")

    def change(obj: Json) -> Json:
        scale = apply_patch(scale_of(kind, obj), patch)
        replicas = scale.get("spec", {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            fault = invalid("spec.replicas", replicas, "should be a non-negative integer")
            raise refusals.invalid(kind.resource, key.name, [fault])
        meta = {**obj["metadata"], "resourceVersion": scale["metadata"].get("resourceVersion")}
        return {**_with_value(obj, path, replicas), "metadata": meta}

    changed = await server.update(kind, key, change, "", user, dry_run)
    return Version(scale_of(kind, changed.json), changed.revision)


def _value(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _with_value(obj: Json, path: list[str], value: Any) -> Json:
    if len(path) == 1:
        return {**obj, path[0]: value}
    return {**obj, path[0]: _with_value(obj.get(path[0]) or {}, path[1:], value)}
