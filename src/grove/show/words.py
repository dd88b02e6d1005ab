"""Small texts: level keys as people call the levels, counts, ages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

_TOTAL = re.compile(r"^wants [^;]* free in the cluster; (?=.*\b0/\d+ nodes can take)")


def by_name(text: str, levels: Sequence[tuple[str, str]]) -> str:
    """The text as people read it: levels by the names the topology gives them instead of node label keys, and nothing
    about what is free in total where no node can take a single pod."""
    text = _TOTAL.sub("", text).replace(" (no reason by itself)", "")
    for name, key in sorted(levels, key=lambda level: -len(level[1])):
        if f"the label {key}" not in text:  # there it is the key that matters
            text = text.replace(f"no domain of {key} has", f"no {name} has").replace(key, name)
    return text


def refusal(text: str) -> str:
    """What the API server says about an object it does not take, without the object's name: it shall fit a column."""
    return re.sub(r'^\S+ "[^"]*" is forbidden: ', "", text)


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
