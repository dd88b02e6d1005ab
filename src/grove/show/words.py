"""Small texts: level keys as people call the levels, counts, ages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime


def by_name(text: str, levels: Sequence[tuple[str, str]]) -> str:
    """The text with node label keys replaced by the names the topology gives them."""
    for name, key in sorted(levels, key=lambda level: -len(level[1])):
        text = text.replace(f"no domain of {key} has", f"no {name} has").replace(key, name)
    return text


def many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


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
