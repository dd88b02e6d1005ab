"""Other schedulers' kinds, made from the facts in tests/data/backends: to validate objects, or to be installed."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from grove.api.meta import Json

_FACTS = Path(__file__).parents[1] / "data" / "backends" / "schemas.yaml"
_WORDS: dict[str, Json] = {
    "string": {"type": "string"},
    "text": {"type": "string", "minLength": 1},
    "bool": {"type": "boolean"},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "label": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
    "dns": {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
}


@cache
def _facts() -> tuple[Json, ...]:
    return tuple(yaml.safe_load(_FACTS.read_text()))


def definitions(name: str) -> list[Json]:
    """CustomResourceDefinitions of one scheduler."""
    return [definition(one) for one in _facts() if one["name"] == name]


def definition(fact: Json) -> Json:
    """The CustomResourceDefinition that one fact describes."""
    spec = {"type": "object", "properties": {"spec": _schema(fact["spec"]), "status": _ANYTHING}}
    version: Json = {"name": fact["version"], "served": True, "storage": True, "schema": {"openAPIV3Schema": spec}}
    if fact.get("status"):
        version["subresources"] = {"status": {}}
    kind = fact["kind"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{fact['plural']}.{fact['group']}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        },
        "spec": {
            "group": fact["group"],
            "names": {"plural": fact["plural"], "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "scope": "Cluster" if fact.get("cluster") else "Namespaced",
            "versions": [version],
        },
    }


_ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _schema(fact: Any) -> Json:
    if isinstance(fact, list):
        return {"type": "array", "items": _schema(fact[0])}
    if isinstance(fact, dict):
        required = [name[:-1] for name in fact if name.endswith("!")]
        found: Json = {"type": "object", "properties": {name.rstrip("!"): _schema(one) for name, one in fact.items()}}
        return found | ({"required": required} if required else {})
    if bounded := re.fullmatch(r"int>=(-?\d+)", fact):
        return {"type": "integer", "minimum": int(bounded[1])}
    return {"type": "string", "enum": fact.split("|")} if "|" in fact else _WORDS[fact]


def faults(name: str, obj: Json) -> list[str]:
    """What a scheduler's definition has against an object: wrong values, and fields it does not know."""
    for fact in _facts():
        if fact["name"] == name and fact["kind"] == obj["kind"]:
            assert obj["apiVersion"] == f"{fact['group']}/{fact['version']}"
            return list(_check(_schema(fact["spec"]), obj["spec"], "spec"))
    return [f"{name} has no kind {obj['kind']}"]


def _check(schema: Json, value: Any, path: str) -> Any:
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if not isinstance(value, types[schema["type"]]):
        yield f"{path}: not {schema['type']}: {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value} is less than {schema['minimum']}"
    if len(value) < schema.get("minLength", 0) if isinstance(value, str) else False:
        yield f"{path}: is empty"
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield f"{path}: longer than {schema['maxLength']}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{path}: {value!r} is not like {schema['pattern']}"
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from _check(schema["items"], one, f"{path}[{at}]")
    if isinstance(value, dict):
        yield from (f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value)
        for name, one in value.items():
            inner = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if inner is None:
                yield f"{path}.{name}: unknown field"
            else:
                yield from _check(inner, one, f"{path}.{name}")
