"""A CRD's schema as one function from a value to its faults, so that a pod template is held against what is published.

An API server applies the same schema before it asks us; the command line, and a server with an older CRD, do not. The
schema is compiled once into closures that return None when all is well, so a sound object costs no path strings.
CEL rules are not evaluated: `rules_topology.shape_faults` says what they say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

from grove import crds
from grove.admission.rules.faults import Fault, FaultType, duplicate, invalid, not_supported, required
from grove.api.meta import Json

Check = Callable[[Any], list[Fault] | None]
"""Faults with paths relative to the value (`.name`, `[0].name`), or None."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float), "object": (dict,),
    "array": (list,),
}  # fmt: skip
_BITS = {"int32": 31, "int64": 63}
_LIMITS: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minLength": ((str,), lambda v, n: len(v) < n, "should be at least {} chars long"),
    "maxLength": ((str,), lambda v, n: len(v) > n, "should be at most {} chars long"),
    "minItems": ((list,), lambda v, n: len(v) < n, "should have at least {} items"),
    "maxItems": ((list,), lambda v, n: len(v) > n, "should have at most {} items"),
    "minProperties": ((dict,), lambda v, n: len(v) < n, "should have at least {} properties"),
    "maxProperties": ((dict,), lambda v, n: len(v) > n, "should have at most {} properties"),
    "minimum": ((int, float), lambda v, n: v < n, "should be greater than or equal to {}"),
    "maximum": ((int, float), lambda v, n: v > n, "should be less than or equal to {}"),
}


def schema_faults(check: Check, obj: Json) -> list[Fault]:
    return [_rooted(fault) for fault in check(obj) or ()]


@cache
def published_check(crd: str) -> Check:
    """The compiled schema of one of our CRDs, by the CRD's name (`podcliquesets.grove.io`), without its status.

    A status cannot be changed by the requests we are asked about; one written by an older version must not stand in the
    way of a change of the spec.
    """
    schema = _published()[crd]
    properties = {name: one for name, one in schema["properties"].items() if name != "status"}
    return compile_schema({**schema, "properties": properties})


@cache
def _published() -> dict[str, Json]:
    return {one["metadata"]["name"]: one["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for one in crds.load()}


def compile_schema(schema: Json) -> Check:
    nullable = bool(schema.get("nullable"))
    of_right_type, type_name = _type_test(schema)
    parts = [part for part in (_object(schema), _list(schema), _scalar(schema)) if part is not None]

    def check(value: Any) -> list[Fault] | None:
        if not of_right_type(value):
            if value is None and nullable:
                return None
            return [Fault("", FaultType.TYPE, value, f"must be of type {type_name}, not {_name_of(value)}")]
        found: list[Fault] | None = None
        for part in parts:
            if faults := part(value):
                found = faults if found is None else [*found, *faults]
        return found

    usual, only = _USUAL.get(type_name), parts[0] if len(parts) == 1 else None
    if usual is None or only is None:
        return check

    def check_usual(value: Any) -> list[Fault] | None:
        # One call less for each object and list: half the time of a review is spent here.
        return only(value) if type(value) is usual else check(value)

    return check_usual


_USUAL: dict[str, type] = {"object": dict, "array": list, "string": str}


def _type_test(schema: Json) -> tuple[Callable[[Any], bool], str]:
    if schema.get("x-kubernetes-int-or-string"):
        return (lambda v: isinstance(v, (int, str)) and not isinstance(v, bool)), "integer or string"
    name = str(schema.get("type", ""))
    if name in ("integer", "number"):

        def is_number(value: Any) -> bool:
            if type(value) is int:
                return True
            return isinstance(value, float) and (name == "number" or value.is_integer())

        return is_number, name
    allowed = _TYPES.get(name)
    if allowed is None:
        return (lambda v: True), name
    return (lambda v: isinstance(v, allowed)), name


_PLAIN = {"string": str, "boolean": bool}


def _child(schema: Json) -> tuple[type | None, Check]:
    """A check, and the type whose values need none: most of a pod template is plain strings."""
    plain = _PLAIN.get(str(schema.get("type")))
    is_bare = plain is not None and _scalar(schema) is None and not schema.get("x-kubernetes-int-or-string")
    return (plain if is_bare else None), compile_schema(schema)


def _object(schema: Json) -> Check | None:
    properties = {name: _child(one) for name, one in (schema.get("properties") or {}).items()}
    extra = schema.get("additionalProperties")
    additional = _child(extra) if isinstance(extra, dict) else None
    needed: list[str] = schema.get("required") or []
    needed_keys = frozenset(needed)
    if not properties and additional is None and not needed:
        return None

    def check(value: Any) -> list[Fault] | None:
        if not isinstance(value, dict):
            return None
        found: list[Fault] = []
        if not needed_keys <= value.keys():
            found += [required(f".{name}") for name in needed if name not in value]
        for name, item in value.items():
            known = properties.get(name, additional)
            if known is None or type(item) is known[0]:
                continue
            is_property = name in properties
            if item is None and is_property:
                # The API server drops nulls before it validates.
                if name in needed_keys:
                    found.append(required(f".{name}"))
            elif faults := known[1](item):
                where = f".{name}" if is_property else f"[{name}]"
                found += [_under(where, fault) for fault in faults]
        return found or None

    return check


def _list(schema: Json) -> Check | None:
    items = schema.get("items")
    if not isinstance(items, dict):
        return None
    plain, each = _child(items)
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []

    def check(value: Any) -> list[Fault] | None:
        if not isinstance(value, list):
            return None
        found: list[Fault] = []
        seen: set[tuple[str, ...]] = set()
        for index, item in enumerate(value):
            if type(item) is plain:
                continue
            if faults := each(item):
                found += [_under(f"[{index}]", fault) for fault in faults]
            if keys and isinstance(item, dict):
                identity = tuple([str(item.get(key)) for key in keys])
                if identity in seen:
                    found.append(duplicate(f"[{index}]", {key: item.get(key) for key in keys}))
                seen.add(identity)
        return found or None

    return check


def _scalar(schema: Json) -> Check | None:
    enum: list[Any] | None = schema.get("enum")
    pattern = re.compile(schema["pattern"]) if "pattern" in schema else None
    limits = [(_LIMITS[name], schema[name]) for name in _LIMITS if name in schema]
    bits = _BITS.get(str(schema.get("format", "")))
    is_time = schema.get("format") == "date-time"
    if enum is None and pattern is None and not limits and bits is None and not is_time:
        return None

    def check(value: Any) -> list[Fault] | None:
        found: list[Fault] = []
        if enum is not None and value not in enum:
            found.append(not_supported("", value, map(str, enum)))
        for (types, is_over, words), limit in limits:
            if isinstance(value, types) and not isinstance(value, bool) and is_over(value, limit):
                found.append(invalid("", value, words.format(limit)))
        if isinstance(value, str):
            if pattern is not None and not pattern.search(value):
                found.append(invalid("", value, f"should match '{pattern.pattern}'"))
            if is_time and not _is_time(value):
                found.append(invalid("", value, "must be a time such as 2026-01-31T12:00:00Z"))
        if bits is not None and isinstance(value, (int, float)) and not -(1 << bits) <= value < 1 << bits:
            found.append(invalid("", value, f"must fit into {schema['format']}"))
        return found or None

    return check


def _under(prefix: str, fault: Fault) -> Fault:
    return Fault(prefix + fault.path, fault.type, fault.value, fault.detail)


def _rooted(fault: Fault) -> Fault:
    return Fault(fault.path.removeprefix("."), fault.type, fault.value, fault.detail)


def _name_of(value: Any) -> str:
    if value is None:
        return "null"
    return next((name for name, types in _TYPES.items() if type(value) in types), type(value).__name__)


def _is_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return False
    return "T" in value
