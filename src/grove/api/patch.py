"""JSON merge patches (RFC 7386): what to send so that an object becomes another, and what sending it does."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from grove.api.meta import Json, Struct, is_required, rfc3339


def merge_patch(before: Json, after: Json) -> Json:
    """The smallest merge patch that turns `before` into `after`; empty if they are equal.

    Keys that vanish become null, lists are replaced whole.
    """
    patch: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            inner = merge_patch(old, value)
            if inner:
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """The object that a server makes of `target` and a merge patch. The arguments stay as they are."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


def struct_patch(before: Struct, after: Struct) -> Json:
    """The merge patch between two readings of the same part, such as a status that was and one that shall be.

    Only the fields that differ are written as JSON. A set of a thousand replicas has a long status, and little of it
    changes at a time.
    """
    fields = _wire_fields(type(after))
    changed = [field for field in fields if getattr(before, field.attribute) != getattr(after, field.attribute)]
    return merge_patch(_in_json(before, changed), _in_json(after, changed))


def to_json(struct: Struct) -> Json:
    """A Struct as it stands on the wire: defaults left out unless the schema requires the field, times in seconds."""
    return _in_json(struct, _wire_fields(type(struct)))


def _in_json(struct: Struct, fields: Iterable[_WireField]) -> Json:
    body: Json = {}
    for field in fields:
        value = getattr(struct, field.attribute)
        if value is not None and (field.required or value != field.default):
            body[field.name] = _plain(value)
    return body


class _WireField(NamedTuple):
    attribute: str
    name: str
    default: Any
    required: bool


@cache
def _wire_fields(kind: type[Struct]) -> tuple[_WireField, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _WireField(field.name, field.encode_name, _default(field), is_required(hints[field.name]))
        for field in struct_fields(kind)
    )


def _default(field: FieldInfo) -> Any:
    """Without a default the marker stands for one: no value equals it, so the field is always written."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_json(value)
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
