"""Small texts: counts, ages, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

T = TypeVar("T")


def refusal(text: str) -> str:
    """The API server's refusal of an object, without the object's name, so that it fits a column."""
    return re.sub(r'^\S+ "[^"]*" is (forbidden|invalid): ', "", text)


def unnumbered(text: str) -> str:
    """A text by which those that differ in numbers alone are the same."""
    return re.sub(r"\d+", "#", text)


def alike(items: Iterable[T], words: Callable[[T], tuple[str, ...]]) -> list[list[T]]:
    """Those with the same words together, in order of the first of each."""
    together: dict[tuple[str, ...], list[T]] = {}
    for item in items:
        together.setdefault(words(item), []).append(item)
    return list(together.values())


def listed(names: Sequence[str], most: int) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(name: str) -> tuple[str | int, ...]:
    """A key by which `chat-2` comes before `chat-10`."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def age(since: datetime | None, now: datetime) -> str:
    """How long ago, in the largest unit that says enough, as kubectl has it."""
    if since is None:
        return ""
    seconds = max(0, int((now - since).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def camel(value: Any) -> Any:
    """Field names as Kubernetes spells them, all the way down; values are plain JSON."""
    if isinstance(value, dict):
        return {_camel_name(key): camel(item) for key, item in value.items()}
    return [camel(item) for item in value] if isinstance(value, list | tuple) else value


def _camel_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
