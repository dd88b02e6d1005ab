"""How a field of a Grove kind says what the CRD shall say about it: a sentence and the facts of its schema.

The facts never take part in decoding. The API server enforces them; a Struct must decode whatever is stored.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, get_args

from msgspec import Meta


def doc(text: str, *, required: bool = False, **facts: Any) -> Meta:
    """Describes a field; `facts` are OpenAPI keywords such as `default` or `enum`, written in Python's spelling."""
    return Meta(description=text, extra_json_schema=facts, extra={"required": required})


def is_required(annotation: Any) -> bool:
    """Whether an annotated field must be written even when it holds its default."""
    return any(isinstance(part, Meta) and (part.extra or {}).get("required", False) for part in get_args(annotation))


Int64: TypeAlias = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
"""Whole numbers are int32 in the schema unless they say so."""

DOMAIN_NAME = {"minLength": 1, "maxLength": 63, "pattern": "^[a-z][a-z0-9-]*$"}
"""A topology domain (`rack`, `block`, …): a portable name, not a node label."""
