"""What an API server answers to a manifest: unknown fields, the faults that admission finds, and its warnings.

A server that is not asked to be strict drops a misspelt field, and `replcas: 1` would then "fit". kubectl asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from grove.admission.rules.sets import notes, replica_notes
from grove.admission.rules.view import SetView
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.crds import load
from grove.kube.errors import ApiError

METADATA = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


def faults_of(error: ApiError) -> tuple[str, ...]:
    """The faults of a manifest that admission or the schema found, each with its path."""
    causes = [cause for cause in error.details.get("causes") or () if cause.get("message")]
    return tuple(
        f"{cause['field']}: {cause['message']}" if cause.get("field") else cause["message"] for cause in causes
    )


def warnings_of(pcs: Json, stored: Json | None = None) -> tuple[str, ...]:
    """What admission warns of in an admitted PodCliqueSet, each with the name of the set.

    Only warnings that depend on the manifest and on the set that is `stored`. A copy of a cluster lacks what the others
    look at.
    """
    new, old = SetView(pcs), SetView(stored) if stored else None
    warnings = (*(replica_notes(new, old) if old else ()), *notes(new, old))
    return tuple(f"{pcs['metadata']['name']}: {warning}" for warning in warnings)


def unknown_fields(manifest: Json) -> list[str]:
    """A sentence for each field of a PodCliqueSet that its schema does not have, with the nearest that it has."""
    known = ("apiVersion", "kind", "metadata")
    faults = list(_unknown(_schema(), {k: v for k, v in manifest.items() if k not in known}, ""))
    faults += [_fault(f"metadata.{name}", METADATA) for name in manifest.get("metadata") or {} if name not in METADATA]
    return faults


@lru_cache(maxsize=1)
def _schema() -> Json:
    crd = next(definition for definition in load() if definition["spec"]["names"]["kind"] == PodCliqueSet.RESOURCE.kind)
    version = next(version for version in crd["spec"]["versions"] if version["name"] == PodCliqueSet.RESOURCE.version)
    schema: Json = version["schema"]["openAPIV3Schema"]
    return schema


def _unknown(schema: Json, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(schema.get("items") or {}, item, f"{path}[{index}]")
    elif isinstance(value, dict):
        known, more = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, inner in value.items():
            at = f"{path}.{name}" if path else name
            below = known.get(name) or (more if isinstance(more, dict) else None)
            if below is not None:
                yield from _unknown(below, inner, at)
            elif known and more is not True and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield _fault(at, known)


def _fault(path: str, known: Any) -> str:
    near = get_close_matches(path.rpartition(".")[2], list(known), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f'unknown field "{path}"{hint}'
