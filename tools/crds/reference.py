"""Writes docs/api-reference.md from the same types the CRDs are made from; part of `make docs`.

A kind is a chapter with its columns and scale paths; every Struct it is made of is a table of fields. What is
Kubernetes' own (a pod spec, a metric) is named, not repeated.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from tools.crds.definitions import DEFINITIONS, Definition

from grove.api.meta import Json, Struct, is_required

FILE = Path(__file__).parents[2] / "docs" / "api-reference.md"
HEAD = """# API reference

*For people who write manifests or programs. Afterwards you can find every field, its default and its meaning.*

Made by `make docs` from the types in `src/grove/api`; do not edit. You write PodCliqueSets and, once a cluster, a
ClusterTopologyBinding; Grove makes the other kinds. `kubectl explain pcs.spec.template` says the same on a cluster.
Defaults in this page are those of the schema; what admission fills in besides is in [admission](admission.md).
"""
_SCALARS: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number", datetime: "time"}
_EMBEDDED = {
    "podSpec": "Kubernetes PodSpec",
    "metrics": "list of Kubernetes MetricSpec",
    "resourceClaimTemplate": "Kubernetes ResourceClaimTemplateSpec",
}


def rendered() -> str:
    contents = [f"- {_link(d.kind.__name__)}: {_summary(d.kind)}\n" for d in DEFINITIONS]
    kinds: set[type[Struct]] = set()
    chapters = ["\n" + "\n".join(_chapter(definition, kinds)) for definition in DEFINITIONS]
    return "".join([HEAD, "\n", *contents, *chapters])


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _chapter(definition: Definition, described: set[type[Struct]]) -> Iterator[str]:
    kind, resource = definition.kind, definition.kind.RESOURCE
    where = "in a namespace" if resource.namespaced else "for the whole cluster"
    yield f"## {kind.__name__}\n"
    yield f"{_summary(kind)}\n"
    yield f"`apiVersion: {resource.api_version}`, {where}; short name `{definition.short_name}`."
    if definition.scale_selector:
        yield f"`kubectl scale` and autoscalers can scale it. The selector is `{definition.scale_selector}`."
    columns = ", ".join(f"{column.name} (`{column.path}`)" for column in definition.columns if column.type != "date")
    yield f"\n`kubectl get` shows: {columns}.\n"
    hints = get_type_hints(kind, include_extras=True)
    for part in ("spec", "status"):
        yield f"**{part}**: {_type(hints[part])}. {_described(hints[part])}\n"
    for part in ("spec", "status"):
        for struct in _structs(hints[part]):
            if struct not in described:
                described.add(struct)
                yield from _table(struct)


def _table(struct: type[Struct]) -> Iterator[str]:
    yield f"### {struct.__name__}\n"
    yield "| Field | Type | |\n|---|---|---|"
    hints = get_type_hints(struct, include_extras=True)
    for field in sorted(msgspec.structs.fields(struct), key=lambda field_info: field_info.encode_name):
        hint = hints[field.name]
        must = " **(required)**" if is_required(hint) and "default" not in _facts(hint) else ""
        yield f"| `{field.encode_name}` | {_type(hint)} | {' '.join(_sentences(hint))}{must} |"
    yield ""


def _sentences(hint: Any) -> Iterator[str]:
    facts = _facts(hint)
    yield _described(hint)
    if "enum" in facts:
        yield f"One of {', '.join(f'`{choice}`' for choice in facts['enum'])}."
    if "default" in facts:
        yield f"Default `{_plain(facts['default'])}`."
    if "minimum" in facts:
        yield f"At least {facts['minimum']}."
    if "minItems" in facts:
        yield f"At least {facts['minItems']}."


def _plain(value: Any) -> str:
    return msgspec.json.encode(value).decode() if not isinstance(value, str) else value


def _described(hint: Any) -> str:
    described = [meta.description for meta in get_args(hint)[1:] if meta.description] if _is_annotated(hint) else []
    return str(described[-1]) if described else ""


def _facts(hint: Any) -> Json:
    facts: Json = {}
    if _is_annotated(hint):
        for meta in get_args(hint)[1:]:
            facts |= meta.extra_json_schema or {}
    return facts


def _type(hint: Any) -> str:
    if (embedded := _facts(hint).get("embed")) is not None:
        return _EMBEDDED[embedded]
    hint = _bare(hint)
    if get_origin(hint) is tuple:
        return f"list of {_type(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        value = get_args(hint)[1]
        return "object" if value is Any else f"map of string to {_type(value)}"
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _link(hint.__name__)
    return _SCALARS[hint]


def _structs(hint: Any) -> Iterator[type[Struct]]:
    """The Structs a type is made of, itself first, then field by field."""
    hint = _bare(hint)
    if get_origin(hint) in (tuple, dict):
        for inner in get_args(hint):
            yield from _structs(inner)
    elif isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
        for inner in get_type_hints(hint, include_extras=True).values():
            yield from _structs(inner)


def _bare(hint: Any) -> Any:
    """Without annotations and without None."""
    while True:
        if _is_annotated(hint):
            hint = get_args(hint)[0]
        elif get_origin(hint) in (Union, types.UnionType):
            (hint,) = (arg for arg in get_args(hint) if arg is not type(None))
        else:
            return hint


def _is_annotated(hint: Any) -> bool:
    return get_origin(hint) is Annotated


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def main() -> None:
    FILE.write_text(rendered())
    print(f"{FILE.name}: {len(rendered().splitlines())} lines")


if __name__ == "__main__":
    main()
