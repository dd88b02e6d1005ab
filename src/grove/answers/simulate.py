"""The result of `grove simulate` as an answer: what became of each set, and what the others wait for."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from grove.answers.answer import FAULT, NO_FIT, RUNNING, WAITING, Answer
from grove.answers.tree import tree_data
from grove.demo.simulation import Ground, Outcome
from grove.demo.summary import summary_line, summary_table
from grove.plan.world import shaped
from grove.show.columns import indented, warning_lines
from grove.show.paint import tree_table


def _usual() -> Ground:
    return Ground(tuple(shaped(64)))


def outcome_answer(outcome: Outcome, *, timeline: bool = True) -> Answer:
    waiting = [note for note in outcome.timeline if note.kind == "waiting"]
    stuck = {gang.name for gang in outcome.summary.gangs if gang.placed_s is None and gang.phase != "Running"}
    cannot = any(note.about in stuck for note in waiting)
    code = FAULT if outcome.failed else RUNNING if outcome.is_whole else NO_FIT if cannot else WAITING
    data = {
        "sets": [tree_data(tree) for tree in outcome.sets],
        "timeline": outcome.timeline,
        "placement": outcome.placement,
        "summary": outcome.summary,
        "failed": outcome.failed,
        "faults": outcome.faults,
        "note": outcome.note,
        "warnings": outcome.warnings,
        "explained": outcome.explained,
    }
    return Answer(data, lambda width: _paint(outcome, width, timeline), code)


def _paint(outcome: Outcome, width: int, timeline: bool) -> RenderableType:
    parts: list[RenderableType] = []
    if timeline:
        for note in outcome.timeline:
            parts += [Text(line.plain) for line in indented(f"{note.at_s:8.1f} s  {note.text}", width, 0)]
        parts.append(Text(""))
    for tree in outcome.sets:
        parts += [tree_table(tree, width), Text("")]
    parts += [summary_table(outcome.summary, width), Text(""), *indented(summary_line(outcome.summary), width, 0)]
    for line in outcome.explained:
        parts += indented(line, width, 0)
    parts += warning_lines(outcome.warnings, width)
    if outcome.note:
        parts += indented(outcome.note, width, 0, "yellow")
    if outcome.failed:
        parts += indented(f"it ended early: {outcome.failed}", width, 0, "bold red")
        parts += [line for fault in outcome.faults for line in indented(f"- {fault}", width, 2, "red")]
    return Group(*parts)
