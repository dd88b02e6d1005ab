"""The schema that editors read (`schemas/grove.json`): the kinds that people write, as JSON Schema.

A manifest file often holds objects of several kinds. So the schema of a kind applies only to objects of this kind, and
every other object passes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from tools.crds.definitions import DEFINITIONS, Definition
from tools.crds.schema import kind_schema

from grove.api.meta import Json

WRITTEN = ("PodCliqueSet", "ClusterTopologyBinding")
LINE = "# yaml-language-server: $schema="


def editor_schema() -> str:
    kinds = [definition for definition in DEFINITIONS if definition.kind.RESOURCE.kind in WRITTEN]
    draft = "http://json-schema.org/draft-07/schema#"
    whole = {"$schema": draft, "title": "Grove", "allOf": [_if(kind) for kind in kinds]}
    return msgspec.json.encode(whole).decode() + "\n"


def _if(definition: Definition) -> Json:
    resource = definition.kind.RESOURCE
    is_kind = {"kind": {"const": resource.kind}, "apiVersion": {"const": resource.api_version}}
    return {
        "if": {"properties": is_kind, "required": ["kind", "apiVersion"]},
        "then": _closed(kind_schema(definition.kind, definition.rules)),
    }


def _closed(schema: Any, *, is_object: bool = True) -> Any:
    """A schema of the API server for an editor: without its extensions, and with unknown fields marked as wrong."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _closed(kept[key])
    if "properties" in kept:
        fields = kept["properties"].items()
        kept["properties"] = {name: _closed(field, is_object=name != "metadata") for name, field in fields}
        if "x-kubernetes-preserve-unknown-fields" not in schema and is_object:
            kept.setdefault("additionalProperties", False)
    return kept
