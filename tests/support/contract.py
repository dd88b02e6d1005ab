"""The wire contract as data: each CRD's schema by path, and what a server without other fields makes of an object.

`tests/data/crd-contract.json` holds, for each CRD, every path of its schema and what stands there (`.spec.replicas`,
`.spec.levels[].key`, `.metadata.labels{}`). Parts that occur in several places (a pod spec, conditions) are written
once, under `parts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grove.api.meta import Json

CONTRACT = json.loads((Path(__file__).parents[1] / "data" / "crd-contract.json").read_text())

Schema = dict[str, dict[str, Any]]
"""What is said of every path."""

_PRESERVED = "x-kubernetes-preserve-unknown-fields"


def contract_schema(name: str) -> Schema:
    """The schema of a CRD (`podcliquesets.grove.io`)."""
    found: Schema = {}
    for path, fact in CONTRACT["crds"][name]["schema"].items():
        part = CONTRACT["parts"].get(fact.get("part"))
        found |= {path: fact} if part is None else {path + rest: inner for rest, inner in part.items()}
    return found


def pruned(schema: Schema, value: Json, path: str = "") -> Json:
    """The object as a server with this schema keeps it: without the fields that it does not name."""
    if isinstance(value, list):
        return [pruned(schema, one, f"{path}[]") for one in value]
    if not isinstance(value, dict) or path in (".metadata", ".kind", ".apiVersion") or _is_open(schema, path):
        return value
    if f"{path}{{}}" in schema:
        return {name: pruned(schema, one, f"{path}{{}}") for name, one in value.items()}
    return {
        name: pruned(schema, one, f"{path}.{name}")
        for name, one in value.items()
        if f"{path}.{name}" in schema or (not path and name in ("apiVersion", "kind", "metadata"))
    }


def _is_open(schema: Schema, path: str) -> bool:
    return bool(schema.get(path, {}).get(_PRESERVED))


def missing(schema: Schema, value: Json, path: str = "") -> Iterator[str]:
    """Paths that the schema requires and the object does not have, and values that are none of those it lists."""
    said = schema.get(path, {})
    if isinstance(value, list):
        for one in value:
            yield from missing(schema, one, f"{path}[]")
    elif isinstance(value, dict):
        yield from (f"{path}.{name}" for name in said.get("required", ()) if name not in value)
        for name, one in value.items():
            yield from missing(schema, one, f"{path}{{}}" if f"{path}{{}}" in schema else f"{path}.{name}")
    elif "enum" in said and value not in said["enum"]:
        yield f"{path} is {value!r}"
