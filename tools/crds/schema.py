"""OpenAPI schemas from Structs: the shape comes from the types, the facts from what `doc` put beside a field.

Parts that are Kubernetes' own (a pod spec, a metric, a claim template) come from `kubernetes.json`: schemas of
Kubernetes 1.35 without descriptions, plus what 1.36 added to pods. Repeated shapes are named once, under `$defs`.
"""

from __future__ import annotations

import json
import types
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from grove.api.meta import Json, Object, Struct, is_required

Rules = dict[type[Struct], list[Json]]
"""CEL rules by the Struct they sit on."""

_SCALARS: dict[Any, Json] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int32"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
}
_OPEN = "x-kubernetes-preserve-unknown-fields"
_WIRE_FACTS = {
    "list_type": "x-kubernetes-list-type",
    "list_map_keys": "x-kubernetes-list-map-keys",
    "open": _OPEN,
}
"""`open`: fields that the schema does not know stay, for admission to name them."""


def kind_schema(kind: type[Object], rules: Rules) -> Json:
    """The schema of a whole object; `spec` is always required, metadata is the API server's business."""
    hints = get_type_hints(kind, include_extras=True)
    properties = {
        "apiVersion": {"type": "string", "description": "Version of the API."},
        "kind": {"type": "string", "description": "Kind of the object."},
        "metadata": {"type": "object"},
        **{part: _annotated(hints[part], rules) for part in ("spec", "status")},
    }
    schema: Json = {"type": "object", "description": _summary(kind), "required": ["spec"], "properties": properties}
    return schema | _validations(kind, rules)


def _struct(kind: type[Struct], rules: Rules) -> Json:
    hints = get_type_hints(kind, include_extras=True)
    fields = {f.encode_name: hints[f.name] for f in msgspec.structs.fields(kind)}
    schema: Json = {"type": "object"}
    required = sorted(name for name, hint in fields.items() if is_required(hint))
    if required:
        schema["required"] = required
    schema["properties"] = {name: _annotated(hint, rules) for name, hint in sorted(fields.items())}
    return schema | _validations(kind, rules)


def _annotated(hint: Any, rules: Rules) -> Json:
    """The schema of a type together with what stands beside it; the outermost word wins."""
    if get_origin(hint) is not Annotated:
        return _plain(hint, rules)
    bare, *beside = get_args(hint)
    facts: Json = {}
    for meta in beside:
        facts |= {"description": meta.description} if meta.description else {}
        facts |= meta.extra_json_schema or {}
    embedded, shape = facts.pop("embed", None), facts.pop("shape", None)
    if shape is not None:  # read as plain JSON, described by a Struct
        schema = _struct(shape, rules)
    else:
        schema = _annotated(bare, rules) if embedded is None else _embedded_in(bare, embedded)
    if facts.pop("open_items", False):
        schema = schema | {"items": schema["items"] | {_OPEN: True}}
    return schema | {_WIRE_FACTS.get(name, name): fact for name, fact in facts.items()}


def _plain(hint: Any, rules: Rules) -> Json:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (only,) = (a for a in arguments if a is not type(None))
        return _annotated(only, rules)
    if origin is tuple:
        return {"type": "array", "items": _annotated(arguments[0], rules)}
    if origin is dict and arguments[1] is Any:
        return {"type": "object"}
    if origin is dict:
        return {"type": "object", "additionalProperties": _annotated(arguments[1], rules)}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _struct(hint, rules)
    return dict(_SCALARS[hint])


def _embedded_in(bare: Any, name: str) -> Json:
    schema = embedded(name)
    if get_origin(bare) is tuple and schema.get("type") != "array":
        return {"type": "array", "items": schema}
    return schema


def embedded(path: str) -> Json:
    """A schema of Kubernetes, or a field of one (`podSpec.tolerations`), all references resolved."""
    name, *fields = path.split(".")
    known = _kubernetes()
    schema: Json = _resolved(known[name] if name in known else known["$defs"][name])
    for field in fields:
        schema = schema["properties"][field]
    return _with_words(schema, METRIC_WORDS) if name == "metrics" else schema


def _with_words(schema: Json, words: dict[str, str]) -> Json:
    """The schema with a description for every field, by the name of the field."""
    worded = dict(schema)
    if "items" in worded:
        worded["items"] = _with_words(worded["items"], words)
    if "properties" in worded:
        worded["properties"] = {
            name: {"description": words[name], **_with_words(field_schema, words)}
            for name, field_schema in worded["properties"].items()
        }
    return worded


METRIC_WORDS = {
    "apiVersion": "API version of the object.",
    "averageUtilization": "Wanted average use, in percent of what the pods request.",
    "averageValue": "Wanted average of the metric over the pods.",
    "container": "Name of the container.",
    "containerResource": "Use of a resource by one container of each pod.",
    "describedObject": "Object that the metric is about; the name `self` stands for the scaled object.",
    "external": "Metric that belongs to no object of the cluster.",
    "key": "Key of the label.",
    "kind": "Kind of the object.",
    "matchExpressions": "Conditions on labels; all must hold.",
    "matchLabels": "Labels that must have these values.",
    "metric": "Metric to read.",
    "name": "Name of the resource, the metric or the object.",
    "object": "Metric of one object of the cluster.",
    "operator": "In, NotIn, Exists or DoesNotExist.",
    "pods": "Metric that each pod has; the average counts.",
    "resource": "Use of a resource by the pods.",
    "selector": "Labels of the series that count.",
    "target": "Value that the autoscaler aims at.",
    "type": "Source of the metric, or how the target is given: Utilization, Value or AverageValue.",
    "value": "Wanted value of the metric.",
    "values": "Values of the label.",
}
"""Descriptions of Kubernetes' metric schema, which has none here; the schema of pods stays without."""


def _resolved(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _resolved(_kubernetes()["$defs"][node["$ref"]])
    return {key: _resolved(value) for key, value in node.items()}


@cache
def _kubernetes() -> Json:
    schema: Json = json.loads(Path(__file__).with_name("kubernetes.json").read_text())
    return schema


def _validations(kind: type[Struct], rules: Rules) -> Json:
    return {"x-kubernetes-validations": rules[kind]} if kind in rules else {}


def _summary(kind: type[Object]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]
