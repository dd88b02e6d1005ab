"""A waiting gang as a line of the queue: its numbers, and in words what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.scheduler.explain.diagnosis import InLine
from grove.scheduler.model.reasons import Reason
from grove.show.reasons import sentence
from grove.show.words import refusal


@dataclass(frozen=True, slots=True)
class Line:
    """`can_start` is False while something else has to happen before the gang is considered at all."""

    namespace: str
    name: str
    priority: int
    pods: int
    created: datetime | None
    can_start: bool
    waits_for: str
    why: Reason | None = None


def line_of(one: InLine, gang: PodGang, refused: Mapping[Key, str] = {}) -> Line:
    """`refused` has cliques whose pods cannot be made, and why."""
    own = (Key(one.namespace, group.name) for group in gang.spec.podgroups)
    stuck = next((refusal(refused[key]) for key in own if key in refused), "")
    if one.can_start:
        waits_for = one.said or "its turn"
    else:
        waits_for = stuck or (sentence(one.why) if one.why is not None else "its pods")
    return Line(one.namespace, one.name, one.priority, one.pods, one.created, one.can_start, waits_for, one.why)
