"""What a page shows, as tables of rows, and what changed since any recent revision of them.

A viewer keeps the revision it has seen and asks for later changes. However slow it is, it gets one merged change and
never a queue of them. The history is bounded: a viewer that is too far behind gets all rows again, with a mark that
says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Any
"""Plain JSON. Rows are compared, never changed in place."""
Tables = Mapping[str, Mapping[str, Row]]

HISTORY = 256


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to put, by table and key, and keys that are gone. `whole` replaces everything the viewer has."""

    revision: int
    put: dict[str, dict[str, Row]] = field(default_factory=dict)
    gone: dict[str, list[str]] = field(default_factory=dict)
    whole: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.whole or self.put or self.gone)


class Ledger:
    """Tables with a revision. Written by one task, read by any number on the same event loop."""

    def __init__(self) -> None:
        self.revision = 0
        self._tables: dict[str, dict[str, Row]] = {}
        self._history: deque[Change] = deque(maxlen=HISTORY)
        self._moved = asyncio.Event()

    def table(self, name: str) -> Mapping[str, Row]:
        return self._tables.get(name, {})

    def replace(self, tables: Tables) -> bool:
        """Makes these tables be as given, leaving others alone; whether anything changed."""
        put: dict[str, dict[str, Row]] = {}
        gone: dict[str, list[str]] = {}
        for name, rows in tables.items():
            old = self._tables.setdefault(name, {})
            if changed := {key: row for key, row in rows.items() if key not in old or old[key] != row}:
                put[name] = changed
            if lost := [key for key in old if key not in rows]:
                gone[name] = lost
        return self.record(put, gone)

    def record(self, put: Mapping[str, Mapping[str, Row]], gone: Mapping[str, list[str]]) -> bool:
        """Puts and removes single rows; what is already so is no change, and what shall be gone is not put."""
        news: dict[str, dict[str, Row]] = {}
        lost: dict[str, list[str]] = {}
        for name, rows in put.items():
            old, leaving = self._tables.get(name, {}), gone.get(name, ())
            if fresh := {key: row for key, row in rows.items() if key not in leaving and old.get(key, _NONE) != row}:
                news[name] = fresh
        for name, keys in gone.items():
            if known := [key for key in dict.fromkeys(keys) if key in self._tables.get(name, {})]:
                lost[name] = known
        if not news and not lost:
            return False
        for name, rows in news.items():
            self._tables.setdefault(name, {}).update(rows)
        for name, keys in lost.items():
            for key in keys:
                del self._tables[name][key]
        self.revision += 1
        self._history.append(Change(self.revision, news, lost))
        self._moved.set()
        self._moved = asyncio.Event()
        return True

    async def moved(self, since: int) -> None:
        """Returns when the revision is past `since`."""
        while self.revision <= since:
            await self._moved.wait()

    def since(self, revision: int) -> Change:
        """All that happened after a revision, as one change; everything if the history does not reach back that far."""
        if revision == self.revision:
            return Change(revision)
        oldest = self._history[0].revision if self._history else self.revision + 1
        if revision < oldest - 1 or revision > self.revision:
            tables = {name: dict(rows) for name, rows in self._tables.items()}
            return Change(self.revision, tables, {}, whole=True)
        put: dict[str, dict[str, Row]] = {}
        gone: dict[str, dict[str, None]] = {}
        for change in self._history:
            if change.revision <= revision:
                continue
            for name, rows in change.put.items():
                put.setdefault(name, {}).update(rows)
                for key in rows:
                    gone.get(name, {}).pop(key, None)
            for name, keys in change.gone.items():
                for key in keys:
                    put.get(name, {}).pop(key, None)
                    gone.setdefault(name, {})[key] = None
        return Change(
            self.revision,
            {name: rows for name, rows in put.items() if rows},
            {name: list(keys) for name, keys in gone.items() if keys},
        )


_NONE = object()
