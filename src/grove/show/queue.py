"""A waiting gang as a line of the queue: its numbers, and in words what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from grove.api.words import many
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.states import STYLES
from grove.diagnosis.verdict import Judgement
from grove.diagnosis.words import age
from grove.scheduler.model.reasons import Reason
from grove.show.columns import indented, table

if TYPE_CHECKING:  # it brings the solver along, which most questions do not need
    from grove.scheduler.explain.explanation import InLine

MOST_NAMED = 5


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


def line_of(in_line: InLine, verdict: Verdict) -> Line:
    return Line(
        in_line.namespace,
        in_line.name,
        verdict.state,
        in_line.priority,
        in_line.pods,
        in_line.created,
        in_line.can_start,
        verdict.brief,
        verdict.why,
    )


def queue_table(lines: Sequence[Line], width: int, now: datetime, *, everywhere: bool) -> RenderableType:
    if not lines:
        return Text("no gang waits")
    rows = [
        (
            str(number),
            line.namespace,
            line.name,
            Text(line.state, style=STYLES[line.state]),
            str(line.priority),
            str(line.pods),
            age(line.created, now),
            line.waits_for,
        )
        for number, line in enumerate(lines, 1)
    ]
    titles = ("#", "NAMESPACE", "GANG", "STATE", "PRIORITY", "PODS", "AGE", "WAITS FOR")
    may_go = ("PRIORITY", "AGE", "STATE") if everywhere else ("NAMESPACE", "PRIORITY", "AGE", "STATE")
    return table(titles, rows, width, may_go=may_go)


def not_waiting(sets: Sequence[Judgement], width: int) -> list[Text]:
    """Sets that do not run, though none of their gangs waits for a place: a line each."""
    lines = [f"{pcs.name} is {pcs.state}: {pcs.brief}" for pcs in sets[:MOST_NAMED]]
    if len(sets) > MOST_NAMED:
        lines.append(
            f"{many(len(sets) - MOST_NAMED, 'more set does', 'more sets do')} not run; kubectl grove status has them"
        )
    return [text for line in lines for text in indented(line, width, 0, "yellow")]
