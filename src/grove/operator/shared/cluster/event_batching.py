"""Events about many children as one: what happened to them within a second is told in one sentence.

Five hundred gangs made for one set are one Event with the count and the first names, not five hundred writes.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from grove.api.meta import Object
from grove.kube.events import Recorder

GATHER_S = 1.0
SHOWN = 3


class _Subject(NamedTuple):
    uid: str
    reason: str
    verb: str


class EventBatches:
    """Gathers names for events that are sent a moment later."""

    def __init__(self, events: Recorder) -> None:
        self._events = events
        self._names: dict[_Subject, tuple[Object, list[str]]] = {}

    def add(self, about: Object, reason: str, verb: str, *names: str) -> None:
        """Tells about `about`, soon: `verb` (such as "created PodGang") and the names of what it was done to."""
        if not names:
            return
        subject = _Subject(about.metadata.uid, reason, verb)
        if subject not in self._names:
            self._names[subject] = (about, [])
            asyncio.get_running_loop().call_later(GATHER_S, self._tell, subject)
        self._names[subject][1].extend(names)

    def _tell(self, subject: _Subject) -> None:
        about, names = self._names.pop(subject)
        shown = ", ".join(sorted(names)[:SHOWN])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        self._events.normal(about, subject.reason, f"{subject.verb} {shown}{more}")
