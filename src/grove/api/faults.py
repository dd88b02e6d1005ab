"""A fault names a field, its value and the allowed values, in the words of Kubernetes.

`kubectl` prints the causes of a Status of reason Invalid one per line, so a person sees every fault at once. Rules
return faults in the order of the document. A fault does not name the rule that found it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from grove.api.meta import Json

LONGEST_VALUE = 256
"""Longest part of a wrong value, in characters, that a message repeats. A whole pod template would hide the message."""
MOST_FAULTS = 500
"""Causes in one answer. Two hundred cliques with two faults each still fit; the rest is counted."""


class FaultType(StrEnum):
    """The `reason` of a Status cause."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    DUPLICATE = "FieldValueDuplicate"
    NOT_FOUND = "FieldValueNotFound"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TYPE = "FieldValueTypeInvalid"
    INTERNAL = "InternalError"


_PHRASE = {
    FaultType.REQUIRED: "Required value",
    FaultType.INVALID: "Invalid value",
    FaultType.DUPLICATE: "Duplicate value",
    FaultType.NOT_FOUND: "Not found",
    FaultType.NOT_SUPPORTED: "Unsupported value",
    FaultType.FORBIDDEN: "Forbidden",
    FaultType.TYPE: "Invalid value",
    FaultType.INTERNAL: "Internal error",
}
_VALUELESS = frozenset({FaultType.REQUIRED, FaultType.FORBIDDEN, FaultType.INTERNAL})


@dataclass(frozen=True, slots=True)
class Fault:
    path: str
    type: FaultType
    value: Any = None
    detail: str = ""

    @property
    def message(self) -> str:
        """The fault without its path: `Invalid value: -1: must not be negative`."""
        parts = [_PHRASE[self.type]]
        if self.type not in _VALUELESS:
            parts.append(shown(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def required(path: str, detail: str = "") -> Fault:
    return Fault(path, FaultType.REQUIRED, detail=detail)


def invalid(path: str, value: Any, detail: str) -> Fault:
    return Fault(path, FaultType.INVALID, value, detail)


def duplicate(path: str, value: Any, detail: str = "") -> Fault:
    return Fault(path, FaultType.DUPLICATE, value, detail)


def not_found(path: str, value: Any, detail: str = "") -> Fault:
    return Fault(path, FaultType.NOT_FOUND, value, detail)


def not_supported(path: str, value: Any, allowed: Iterable[str]) -> Fault:
    supported = ", ".join(f'"{choice}"' for choice in allowed)
    return Fault(path, FaultType.NOT_SUPPORTED, value, f"supported values: {supported}")


def forbidden(path: str, detail: str) -> Fault:
    return Fault(path, FaultType.FORBIDDEN, detail=detail)


def internal(path: str, detail: str) -> Fault:
    return Fault(path, FaultType.INTERNAL, detail=detail)


def shown(value: Any) -> str:
    """A value as JSON, cut when it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"


def invalid_status(kind: str, group: str, name: str, faults: Sequence[Fault]) -> Json:
    """The Status (422 Invalid) that carries these faults, as the API server itself would word it."""
    shown = faults[:MOST_FAULTS]
    texts = [str(fault) for fault in shown]
    if len(faults) > len(shown):
        texts.append(f"and {len(faults) - len(shown)} more")
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": f'{kind}{group and "." + group} "{name}" is invalid: {listed}',
        "details": {
            "group": group,
            "kind": kind,
            "name": name,
            "causes": [{"reason": str(f.type), "message": f.message, "field": f.path} for f in shown],
        },
    }


def failure_status(code: int, reason: str, message: str) -> Json:
    return {"status": "Failure", "code": code, "reason": reason, "message": message}
