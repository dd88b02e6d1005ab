"""A CRD's structural schema at work: drop what it does not know, fill its defaults, and say what is wrong.

`shape` and `faults` take the old object too: where old and new share a subtree (patches share what they do not
touch) it was shaped and checked before, so a status patch never walks a pod template again.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, NamedTuple

from grove.api.meta import Json
from grove.sim.cel import ABSENT, CelError, Expr, Optional, compile_rule
from grove.sim.patch import copy_json
from grove.sim.refusals import Fault, required, wrong

_MISSING: Any = object()
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float), "object": (dict,),
    "array": (list,),
}  # fmt: skip
_INTEGER_BITS = {"int32": 31, "int64": 63}


class Rule(NamedTuple):
    """One x-kubernetes-validations entry."""

    holds: Expr
    text: str
    message: str
    reason: str
    field_path: str
    sees_old: bool
    """Uses oldSelf."""
    optional_old: bool
    """Runs on creation too, with an absent oldSelf."""


class Structure:
    """One schema node, compiled."""

    __slots__ = (
        "additional", "default", "enum", "format", "int_or_string", "items", "limits", "list_keys", "list_type",
        "nullable", "pattern", "preserve", "properties", "required", "rules", "type",
    )  # fmt: skip

    def __init__(self, schema: Json) -> None:
        self.type: str = schema.get("type", "")
        self.properties = {name: Structure(child) for name, child in (schema.get("properties") or {}).items()}
        additional = schema.get("additionalProperties")
        self.additional = Structure(additional) if isinstance(additional, dict) else None
        self.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
        self.items = Structure(schema["items"]) if "items" in schema else None
        self.default = schema.get("default", _MISSING)
        self.required: list[str] = schema.get("required") or []
        self.nullable = bool(schema.get("nullable"))
        self.int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
        self.enum: list[Any] | None = schema.get("enum")
        self.format: str = schema.get("format", "")
        self.pattern = re.compile(schema["pattern"]) if "pattern" in schema else None
        names = (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minimum",
            "maximum",
            "minProperties",
            "maxProperties",
        )
        self.limits = {name: schema[name] for name in names if name in schema}
        self.list_type: str = schema.get("x-kubernetes-list-type", "")
        self.list_keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
        self.rules = [_rule(rule) for rule in schema.get("x-kubernetes-validations") or ()]

    def shape(self, value: Any, old: Any = None) -> Any:
        """The value pruned and defaulted; the very same object when nothing had to change."""
        if value is old and value is not None:
            return value
        if isinstance(value, dict):
            return self._shape_object(value, old if isinstance(old, dict) else {})
        if isinstance(value, list) and self.items is not None:
            olds = old if isinstance(old, list) else []
            shaped = [self.items.shape(item, olds[at] if at < len(olds) else None) for at, item in enumerate(value)]
            return value if all(a is b for a, b in zip(shaped, value, strict=True)) else shaped
        return value

    def _shape_object(self, value: Json, old: Json) -> Json:
        shaped: Json = {}
        for name, item in value.items():
            child = self.properties.get(name) or self.additional
            if child is None:
                if self.preserve:
                    shaped[name] = item
                continue
            if item is None and not child.nullable:
                continue  # a null where none is allowed counts as absent; a default may follow
            shaped[name] = child.shape(item, old.get(name))
        for name, child in self.properties.items():
            if name not in shaped and child.default is not _MISSING:
                shaped[name] = child.shape(copy_json(child.default))
        return value if len(shaped) == len(value) and all(shaped[k] is value.get(k) for k in shaped) else shaped

    def faults(self, value: Any, path: str = "", old: Any = None) -> list[Fault]:
        """Everything wrong with the value, in document order; what it shares with `old` is taken as right."""
        found: list[Fault] = []
        self._collect(value, path, old, found)
        return found

    def _collect(self, value: Any, path: str, old: Any, found: list[Fault]) -> None:
        if value is old and value is not None:
            return
        if not self._has_right_type(value):
            if not (value is None and self.nullable):
                kind = "integer or string" if self.int_or_string else self.type
                said = f'Invalid value: "{_type_name(value)}": must be of type {kind}: "{_type_name(value)}"'
                found.append(Fault(path, "FieldValueTypeInvalid", said))
            return
        before = len(found)
        if isinstance(value, dict):
            self._collect_object(value, path, old if isinstance(old, dict) else {}, found)
        elif isinstance(value, list):
            self._collect_list(value, path, old if isinstance(old, list) else [], found)
        self._check_scalars(value, path, found)
        # As on a server, rules run only where the structure is sound: they may rely on types and required fields.
        if self.rules and len(found) == before:
            self._check_rules(value, path, old, found)

    def _has_right_type(self, value: Any) -> bool:
        if self.int_or_string:
            return isinstance(value, (int, str)) and not isinstance(value, bool)
        allowed = _TYPES.get(self.type)
        if allowed is None:
            return True
        if isinstance(value, bool):
            return self.type == "boolean"
        if self.type == "integer" and isinstance(value, float):
            return value.is_integer()
        return isinstance(value, allowed)

    def _collect_object(self, value: Json, path: str, old: Json, found: list[Fault]) -> None:
        found.extend(required(f"{path}.{name}" if path else name) for name in self.required if name not in value)
        for name, item in value.items():
            child = self.properties.get(name)
            if child is not None:
                child._collect(item, f"{path}.{name}" if path else name, old.get(name), found)
            elif self.additional is not None:
                self.additional._collect(item, f"{path}[{name}]" if path else name, old.get(name), found)

    def _collect_list(self, value: list[Any], path: str, old: list[Any], found: list[Fault]) -> None:
        if self.items is None:
            return
        olds = {self._identity(item): item for item in old} if self.list_keys else {}
        seen: set[Any] = set()
        for at, item in enumerate(value):
            where = f"{path}[{at}]"
            before = olds.get(self._identity(item)) if self.list_keys else (old[at] if at < len(old) else None)
            self.items._collect(item, where, before, found)
            if self.list_type in ("map", "set"):
                identity = self._identity(item)
                if identity in seen:
                    shown = dict(zip(self.list_keys, identity, strict=True)) if self.list_keys else item
                    found.append(Fault(where, "FieldValueDuplicate", f"Duplicate value: {shown}"))
                seen.add(identity)

    def _identity(self, item: Any) -> Any:
        if self.list_keys and isinstance(item, dict):
            return tuple(item.get(key) for key in self.list_keys)
        return repr(item)

    def _check_scalars(self, value: Any, path: str, found: list[Fault]) -> None:
        if self.enum is not None and value not in self.enum:
            supported = ", ".join(f'"{choice}"' for choice in self.enum)
            said = f'Unsupported value: "{value}": supported values: {supported}'
            found.append(Fault(path, "FieldValueNotSupported", said))
        for name, limit in self.limits.items():
            if complaint := _over_limit(name, limit, value):
                found.append(wrong(path, value, f"{path} in body {complaint}"))
        if isinstance(value, str):
            if self.pattern is not None and not self.pattern.search(value):
                found.append(wrong(path, value, f"{path} in body should match '{self.pattern.pattern}'"))
            if self.format == "date-time" and not _is_date_time(value):
                found.append(wrong(path, value, f"{path} in body must be of type date-time: {value!r}"))
        bits = _INTEGER_BITS.get(self.format)
        if bits and isinstance(value, int) and not -(1 << bits) <= value < 1 << bits:
            found.append(wrong(path, value, f"Checked value must be of type {self.type} with format {self.format}"))

    def _check_rules(self, value: Any, path: str, old: Any, found: list[Fault]) -> None:
        for rule in self.rules:
            if rule.optional_old:
                scope = {"self": value, "oldSelf": ABSENT if old is None else Optional(old, True)}
            elif rule.sees_old:
                if old is None:
                    continue  # a transition rule has nothing to say about a new value
                scope = {"self": value, "oldSelf": old}
            else:
                scope = {"self": value}
            try:
                holds = bool(rule.holds(scope))
            except CelError:
                holds = False
            if not holds:
                found.append(_broken(rule, value, f"{path}{rule.field_path}".lstrip(".")))


def _rule(rule: Json) -> Rule:
    text = rule["rule"]
    optional_old = bool(rule.get("optionalOldSelf"))
    message = rule.get("message") or f"failed rule: {text}"
    reason = rule.get("reason") or "FieldValueInvalid"
    sees_old = re.search(r"\boldSelf\b", text) is not None
    return Rule(compile_rule(text), text, message, reason, rule.get("fieldPath", ""), sees_old, optional_old)


def _broken(rule: Rule, value: Any, path: str) -> Fault:
    if rule.reason == "FieldValueRequired":
        return required(path, rule.message)
    if rule.reason == "FieldValueForbidden":
        return Fault(path, rule.reason, f"Forbidden: {rule.message}")
    return wrong(path, _type_name(value), rule.message)


def _over_limit(name: str, limit: Any, value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match name:
        case "minLength" if isinstance(value, str) and len(value) < limit:
            return f"should be at least {limit} chars long"
        case "maxLength" if isinstance(value, str) and len(value) > limit:
            return f"should be at most {limit} chars long"
        case "minItems" if isinstance(value, list) and len(value) < limit:
            return f"should have at least {limit} items"
        case "maxItems" if isinstance(value, list) and len(value) > limit:
            return f"should have at most {limit} items"
        case "minProperties" if isinstance(value, dict) and len(value) < limit:
            return f"should have at least {limit} properties"
        case "maxProperties" if isinstance(value, dict) and len(value) > limit:
            return f"should have at most {limit} properties"
        case "minimum" if is_number and value < limit:
            return f"should be greater than or equal to {limit}"
        case "maximum" if is_number and value > limit:
            return f"should be less than or equal to {limit}"
    return ""


def _type_name(value: Any) -> str:
    for name, types in _TYPES.items():
        if type(value) in types:
            return name
    return "null" if value is None else "number"


def _is_date_time(value: str) -> bool:
    try:
        datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return False
    return "T" in value
