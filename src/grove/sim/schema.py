"""A CRD's structural schema in use: drops unknown fields, fills defaults, and names faults.

`shape` and `faults` take the old object too. If old and new share a subtree, it was shaped and checked before. Patches
share what they do not touch, so a status patch never walks a pod template again. Admission uses the same check of the
structure (`grove.crds.check`). CEL rules are evaluated here only.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from grove.api.faults import Fault, forbidden, invalid, required
from grove.api.meta import Json
from grove.crds.check import Check, Part, type_name
from grove.sim.cel import ABSENT, CelError, Expr, Optional, compile_rule
from grove.sim.patch import copy_json

_MISSING: Any = object()


class Structure:
    """The schema of a kind, compiled."""

    def __init__(self, schema: Json) -> None:
        self._shape, self._check = _Shape(schema), Check(schema, _rules_of)

    def shape(self, value: Any, old: Any = None) -> Any:
        """The value pruned and defaulted; the very same object when nothing had to change."""
        return self._shape.of(value, old)

    def faults(self, value: Any, old: Any = None) -> list[Fault]:
        """Everything wrong with the value, in document order; what it shares with `old` is taken as right."""
        return self._check.faults(value, old)


class _Shape:
    """One node of a schema: the fields that it keeps, and its defaults."""

    __slots__ = ("additional", "default", "items", "nullable", "preserve", "properties")

    def __init__(self, schema: Json) -> None:
        self.properties = {name: _Shape(child) for name, child in (schema.get("properties") or {}).items()}
        additional = schema.get("additionalProperties")
        self.additional = _Shape(additional) if isinstance(additional, dict) else None
        self.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
        self.items = _Shape(schema["items"]) if "items" in schema else None
        self.default = schema.get("default", _MISSING)
        self.nullable = bool(schema.get("nullable"))

    def of(self, value: Any, old: Any) -> Any:
        if value is old and value is not None:
            return value
        if isinstance(value, dict):
            return self._object(value, old if isinstance(old, dict) else {})
        if isinstance(value, list) and self.items is not None:
            olds = old if isinstance(old, list) else []
            shaped = [self.items.of(item, olds[at] if at < len(olds) else None) for at, item in enumerate(value)]
            return value if all(a is b for a, b in zip(shaped, value, strict=True)) else shaped
        return value

    def _object(self, value: Json, old: Json) -> Json:
        shaped: Json = {}
        for name, item in value.items():
            child = self.properties.get(name) or self.additional
            if child is None:
                if self.preserve:
                    shaped[name] = item
                continue
            if item is None and not child.nullable:
                continue  # a null where none is allowed counts as absent; a default may follow
            shaped[name] = child.of(item, old.get(name))
        for name, child in self.properties.items():
            if name not in shaped and child.default is not _MISSING:
                shaped[name] = child.of(copy_json(child.default), None)
        return value if len(shaped) == len(value) and all(shaped[k] is value.get(k) for k in shaped) else shaped


class _Rule(NamedTuple):
    """One x-kubernetes-validations entry."""

    holds: Expr
    message: str
    reason: str
    field_path: str
    sees_old: bool
    """Uses oldSelf."""
    optional_old: bool
    """Runs on creation too, with an absent oldSelf."""


def _rules_of(schema: Json) -> Part | None:
    rules = [_rule(rule) for rule in schema.get("x-kubernetes-validations") or ()]
    if not rules:
        return None

    def check(value: Any, old: Any) -> list[Fault] | None:
        return [_broken(rule, value) for rule in rules if not _holds(rule, value, old)] or None

    return check


def _rule(rule: Json) -> _Rule:
    text = rule["rule"]
    message = rule.get("message") or f"failed rule: {text}"
    reason = rule.get("reason") or "FieldValueInvalid"
    sees_old, optional_old = re.search(r"\boldSelf\b", text) is not None, bool(rule.get("optionalOldSelf"))
    return _Rule(compile_rule(text), message, reason, rule.get("fieldPath", ""), sees_old, optional_old)


def _holds(rule: _Rule, value: Any, old: Any) -> bool:
    scope = {"self": value}
    if rule.optional_old:
        scope["oldSelf"] = ABSENT if old is None else Optional(old, True)
    elif rule.sees_old:
        if old is None:
            return True  # a transition rule has nothing to say about a new value
        scope["oldSelf"] = old
    try:
        return bool(rule.holds(scope))
    except CelError:
        return False


def _broken(rule: _Rule, value: Any) -> Fault:
    if rule.reason == "FieldValueRequired":
        return required(rule.field_path, rule.message)
    if rule.reason == "FieldValueForbidden":
        return forbidden(rule.field_path, rule.message)
    return invalid(rule.field_path, type_name(value), rule.message)
