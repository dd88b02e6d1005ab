"""A CRD's schema as one function from a value to its faults, in the API server's words.

The API server applies the same schema before any other program sees an object. This module serves two callers. One is
the simulator, which acts as an API server. The other is admission, for the command line and for a server with an older
CRD.

A schema is compiled once into closures that return None for a valid value, so a valid object costs no path strings. A
value that is stored unchanged counts as valid, because an older schema admitted it. Items of a list are compared by
their keys. In a list without keys they are compared by position, where an API server compares only the whole list. The
caller checks CEL rules (`Rules`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

from grove import crds
from grove.api.faults import Fault, FaultType, duplicate, invalid, not_supported, required
from grove.api.meta import Json

Part: TypeAlias = Callable[[Any, Any], list[Fault] | None]
"""Faults of a value, given the stored one or None; their paths are relative to the value (`.name`, `[0].name`)."""
Rules: TypeAlias = Callable[[Json], Part | None]
"""Further checks that a schema asks for, run only where its structure is sound: they rely on types."""

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
_USUAL: dict[str, type] = {"object": dict, "array": list, "string": str}
_PLAIN = {"string": str, "boolean": bool}
_BITS = {"int32": 31, "int64": 63}
_IN_BODY = " in body "
"""The API server repeats the path before some of its sentences; it is known at the root only."""
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


def no_rules(_schema: Json) -> Part | None:
    return None


class Check:
    """A compiled schema."""

    def __init__(self, schema: Json, rules: Rules = no_rules) -> None:
        self._check = _compiled(schema, rules)

    def faults(self, value: Any, old: Any = None) -> list[Fault]:
        """Everything wrong with the value, in document order, but what is stored just so."""
        return [_rooted(fault) for fault in self._check(value, old) or ()]


@cache
def published_check(crd: str) -> Check:
    """The schema of one of our CRDs, by the CRD's name (`podcliquesets.grove.io`), without its status and its rules.

    Requests to admission cannot change a status. A status from an older version must not prevent a change of the spec.
    Admission itself checks the rules, and its paths have the index of each item.
    """
    definition = next(candidate for candidate in crds.load(dialects=True) if candidate["metadata"]["name"] == crd)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    properties = {name: property_schema for name, property_schema in schema["properties"].items() if name != "status"}
    return Check({**schema, "properties": properties})


def type_name(value: Any) -> str:
    """The type of a value, as the API server names it."""
    if value is None:
        return "null"
    return next((name for name, types in _TYPES.items() if type(value) in types), type(value).__name__)


def _news(faults: list[Fault], value: Any, old: Any) -> list[Fault] | None:
    """Faults of a value, or None if it is stored just so."""
    return None if old is not None and _is_same(value, old) else faults


def _is_same(value: Any, old: Any) -> bool:
    """True if two values are the same JSON. In Python `1`, `1.0` and `True` are equal; in a schema they are not."""
    if type(value) is not type(old):
        return False
    if isinstance(value, dict):
        return value.keys() == old.keys() and all(_is_same(item, old[key]) for key, item in value.items())
    if isinstance(value, list):
        return len(value) == len(old) and all(map(_is_same, value, old))
    return bool(value == old)


def _compiled(schema: Json, rules_of: Rules) -> Part:
    nullable = bool(schema.get("nullable"))
    of_right_type, wanted = _type_test(schema)
    built = (_object(schema, rules_of), _list(schema, rules_of), _scalar(schema))
    parts = [part for part in built if part is not None]
    rules = rules_of(schema)

    def check(value: Any, old: Any) -> list[Fault] | None:
        if value is old and value is not None:
            return None
        if not of_right_type(value):
            if value is None and nullable:
                return None
            name = type_name(value)
            return _news([Fault("", FaultType.TYPE, name, f'must be of type {wanted}: "{name}"')], value, old)
        faults_here: list[Fault] = []
        for part in parts:
            if faults := part(value, old):
                faults_here += faults
        return faults_here or (rules(value, old) if rules is not None else None)

    usual, only = _USUAL.get(wanted), parts[0] if len(parts) == 1 else None
    if usual is None or only is None or rules is not None:
        return check

    def check_usual(value: Any, old: Any) -> list[Fault] | None:
        # One call less for each object and list: half the time of a review is spent here.
        return only(value, old) if type(value) is usual and value is not old else check(value, old)

    return check_usual


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


def _child(schema: Json, rules_of: Rules) -> tuple[type | None, Part]:
    """A check, and the type whose values need none: most of a pod template is plain strings."""
    plain = _PLAIN.get(str(schema.get("type")))
    has_more = _scalar(schema) is not None or schema.get("x-kubernetes-int-or-string") or rules_of(schema) is not None
    return (None if has_more else plain), _compiled(schema, rules_of)


def _object(schema: Json, rules_of: Rules) -> Part | None:
    properties = {
        name: _child(property_schema, rules_of) for name, property_schema in (schema.get("properties") or {}).items()
    }
    extra = schema.get("additionalProperties")
    additional = _child(extra, rules_of) if isinstance(extra, dict) else None
    needed: list[str] = schema.get("required") or []
    needed_keys = frozenset(needed)
    if not properties and additional is None and not needed:
        return None

    def check(value: Any, old: Any) -> list[Fault] | None:
        if not isinstance(value, dict):
            return None
        before = old if isinstance(old, dict) else None
        faults_here: list[Fault] = []
        if not needed_keys <= value.keys():
            faults_here += [required(f".{name}") for name in needed if name not in value]
        for name, item in value.items():
            known = properties.get(name, additional)
            if known is None or type(item) is known[0]:
                continue
            is_property = name in properties
            if item is None and is_property:
                # The API server drops nulls before it validates.
                if name in needed_keys:
                    faults_here.append(required(f".{name}"))
            elif faults := known[1](item, before.get(name) if before is not None else None):
                where = f".{name}" if is_property else f"[{name}]"
                faults_here += [_under(where, fault) for fault in faults]
        return _news(faults_here, value, old) if faults_here else None

    return check


def _list(schema: Json, rules_of: Rules) -> Part | None:
    items = schema.get("items")
    if not isinstance(items, dict):
        return None
    plain, each = _child(items, rules_of)
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    is_set = schema.get("x-kubernetes-list-type") == "set"

    only = keys[0] if len(keys) == 1 else None

    def identity(item: Any) -> Any:
        if not isinstance(item, dict):
            return repr(item), None
        if only is None:
            return tuple([str(item.get(key)) for key in keys])
        name = item.get(only)
        return name if type(name) is str else str(name)

    def stored(old: Any) -> Callable[[int, Any], Any]:
        """Which item of the stored list one of the new list is compared with."""
        if not isinstance(old, list):
            return lambda index, item: None
        if not keys:
            return lambda index, item: old[index] if index < len(old) else None
        by_key = {identity(item): item for item in old}
        return lambda index, item: by_key.get(identity(item))

    def check(value: Any, old: Any) -> list[Fault] | None:
        if not isinstance(value, list):
            return None
        faults_here: list[Fault] = []
        before = stored(old) if old is not None else None
        seen: set[Any] = set()
        for index, item in enumerate(value):
            if type(item) is not plain and (faults := each(item, before(index, item) if before is not None else None)):
                faults_here += [_under(f"[{index}]", fault) for fault in faults]
            if keys or is_set:
                same = identity(item)
                if same in seen:
                    shown = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
                    faults_here.append(duplicate(f"[{index}]", shown))
                seen.add(same)
        return _news(faults_here, value, old) if faults_here else None

    return check


def _scalar(schema: Json) -> Part | None:
    enum: list[Any] | None = schema.get("enum")
    pattern = re.compile(schema["pattern"]) if "pattern" in schema else None
    limits = [(_LIMITS[name], schema[name]) for name in _LIMITS if name in schema]
    bits = _BITS.get(str(schema.get("format", "")))
    is_time = schema.get("format") == "date-time"
    if enum is None and pattern is None and not limits and bits is None and not is_time:
        return None

    def check(value: Any, old: Any) -> list[Fault] | None:
        faults: list[Fault] = []
        if enum is not None and value not in enum:
            faults.append(not_supported("", value, map(str, enum)))
        for (types, is_over, words), limit in limits:
            if isinstance(value, types) and not isinstance(value, bool) and is_over(value, limit):
                faults.append(invalid("", value, _IN_BODY + words.format(limit)))
        if isinstance(value, str):
            if pattern is not None and not pattern.search(value):
                faults.append(invalid("", value, f"{_IN_BODY}should match '{pattern.pattern}'"))
            if is_time and not _is_time(value):
                faults.append(invalid("", value, f'{_IN_BODY}must be of type date-time: "{value}"'))
        if bits is not None and isinstance(value, (int, float)) and not -(1 << bits) <= value < 1 << bits:
            detail = f"Checked value must be of type {schema.get('type')} with format {schema['format']}"
            faults.append(invalid("", value, detail))
        return _news(faults, value, old) if faults else None

    return check


def _under(prefix: str, fault: Fault) -> Fault:
    return Fault(prefix + fault.path, fault.type, fault.value, fault.detail)


def _rooted(fault: Fault) -> Fault:
    path = fault.path.removeprefix(".")
    detail = path + fault.detail if fault.detail.startswith(_IN_BODY) else fault.detail
    return Fault(path, fault.type, fault.value, detail)


def _is_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return False
    return "T" in value
