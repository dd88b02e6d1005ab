"""A waiting gang as a line of the queue: its numbers, and in words what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from grove.api.podgang import PodGang
from grove.scheduler.explain.explanation import Diagnosis, InLine
from grove.scheduler.model.reasons import Reason
from grove.show.columns import table
from grove.show.gangs import NO_FIT, WAITING, gang_verdict
from grove.show.seen import Seen
from grove.show.words import age


@dataclass(frozen=True, slots=True)
class Line:
    """`can_start` is False while something else has to happen before the gang is considered at all."""

    namespace: str
    name: str
    state: str
    priority: int
    pods: int
    created: datetime | None
    can_start: bool
    waits_for: str
    why: Reason | None = None


def line_of(one: InLine, gang: PodGang, found: Diagnosis | None = None, seen: Seen = Seen()) -> Line:
    """`seen` has the cliques, some of which cannot be made, and the topologies' words."""
    verdict = gang_verdict(seen, gang, found)
    state = NO_FIT if verdict.state == NO_FIT and one.can_start else WAITING
    return Line(
        one.namespace, one.name, state, one.priority, one.pods, one.created, one.can_start, verdict.reason, verdict.why
    )  # fmt: skip


def queue_table(lines: Sequence[Line], width: int, now: datetime, *, everywhere: bool) -> RenderableType:
    if not lines:
        return Text("no gang waits")
    rows = [
        (
            str(number), one.namespace, one.name,
            Text(one.state, style="bold red" if one.state == NO_FIT else "yellow"),
            str(one.priority), str(one.pods), age(one.created, now), one.waits_for,
        )
        for number, one in enumerate(lines, 1)
    ]  # fmt: skip
    titles = ("#", "NAMESPACE", "GANG", "STATE", "PRIORITY", "PODS", "AGE", "WAITS FOR")
    may_go = ("PRIORITY", "AGE", "STATE") if everywhere else ("NAMESPACE", "PRIORITY", "AGE", "STATE")
    return table(titles, rows, width, may_go=may_go)
