"""Fields of JSON that a user wrote, read as the type they should have.

A value of another type reads as absent. The check of the schema reports it, so other code need not check types.
"""

from __future__ import annotations

import json
from typing import Any

from grove.api.meta import Json

MOST_DIGITS = 18
"""Digits that surely fit into 64 bits."""


def mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in sequence(value) if isinstance(item, str))


def parsed(text: str) -> Any:
    """The JSON in a text that others wrote; raises ValueError, for one that is nested without end too."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def natural(value: str) -> int | None:
    """The number that these digits write, None for other text.

    Also None for more digits than any real number has: an annotation can hold thousands, and Python refuses to convert
    those.
    """
    return int(value) if value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS else None


def integer(value: Any) -> int | None:
    """A whole number; `2.0` is one for the API server too, `true` is not."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None
