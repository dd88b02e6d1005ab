"""The file that a run with a broken promise leaves: the whole fleet, the promise, and the writes of the last hour.

A run depends only on its fleet and seed. `grove fleet --replay FILE` shows the last hour and plays the fleet again, so
that a repair is seen at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from grove.api.core import Lease
from grove.api.meta import Json
from grove.fleet.file import Fleet, decode
from grove.fleet.promises import Broken
from grove.fleet.run import Run
from grove.sim.store import Change

SHOWN = 6
"""Changed fields that a row shows at most."""
_UNSAID = ("managedFields", "resourceVersion", "generation")

Row = tuple[float, str, str, str, str]
"""Seconds since the beginning, kind of write, kind of object, its name, and what changed."""


class Replay(msgspec.Struct, rename="camel"):
    fleet: Fleet
    broken: list[Broken]
    last_hour: list[Row]


class NotReplay(ValueError):
    """The file was not written by a run with a broken promise."""


def replay_file(run: Run) -> Json:
    rows: list[Row] = [
        (round(at_s, 3), change.type, resource.kind, change.version.key.name, "; ".join(_changes(change)))
        for at_s, resource, change in run.past
        if resource != Lease.RESOURCE
    ]
    body: Json = msgspec.to_builtins(Replay(run.fleet, run.broken, rows), enc_hook=str)
    return body


def read_replay(text: bytes) -> Replay:
    try:
        return decode(msgspec.json.decode(text), Replay)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise NotReplay(str(error)) from error


def is_same(before: Broken, again: list[Broken]) -> bool:
    """True if the same promise broke in the same way at the same moment."""
    return any(
        (broken.promise, broken.text, round(broken.at_s, 3)) == (before.promise, before.text, round(before.at_s, 3))
        for broken in again
    )


def _changes(change: Change) -> Iterator[str]:
    """The fields that a write changed, with their new values."""
    if change.previous is None or change.type != "MODIFIED":
        return
    for number, (path, value) in enumerate(_differences(change.previous.json, change.version.json, "")):
        if number == SHOWN:
            yield "…"
            return
        yield f"{path}: {value}"


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(old, dict | None) and isinstance(new, dict | None) and old != new:
        old, new = old or {}, new or {}
        for name in sorted(old.keys() | new.keys()):
            if name not in _UNSAID:
                yield from _differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, now, f"{path}[{index}]")
    elif old != new:
        yield path, new
