"""An explanation as text: the set in one line, then each trouble once, with its evidence, the next step and advice."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from grove.diagnosis.advice import Advice
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.states import RUNNING, STYLES
from grove.diagnosis.verdict import Judgement
from grove.diagnosis.words import alike, listed, unnumbered
from grove.show.columns import indented

MOST_NAMED = 4


def explanation(
    head: Judgement | None, verdicts: Sequence[Verdict], note: str, width: int, headroom: Sequence[str] = ()
) -> RenderableType:
    """`head` is the set as a whole, where that was asked about or matters most; `headroom` has a line for a gang."""
    parts: list[RenderableType] = []
    troubles = [verdict_group for verdict_group in _together(verdicts) if verdict_group[0].state != RUNNING]
    known = {trouble[0].next for trouble in troubles}
    alone = head is not None and not head.unattended and [trouble[0].state for trouble in troubles] == [head.state]
    if head is not None and alone and head.next in known:
        head = None  # its one trouble says it all
    if head is not None:
        parts.append(headline(head))
        if head.next not in known:
            parts += [line for sentence in head.evidence for line in indented(sentence, width, style="dim")]
            if head.next:
                parts += [*indented(f"next: {head.next}", width), *pasted(head.command, 6)]
    for together in troubles or (() if head is not None else _together(verdicts)):
        parts += _cause_lines(together, width)
    parts += [line for sentence in headroom for line in indented(sentence, width, 0)]
    if note:
        parts.append(Text(note, style="yellow"))
    return Group(*parts) if parts else Text("no gangs")


def _together(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Gangs with the same trouble together, and of those that run the ones that say the same."""
    return alike(
        verdicts,
        lambda verdict: (
            verdict.state,
            verdict.level,
            verdict.reason if verdict.state == RUNNING else unnumbered(verdict.reason),
        ),
    )


def headline(judgement: Judgement) -> Text:
    """A set in one line."""
    return headline_of(judgement.name, judgement.state, judgement.level, judgement.reason)


def headline_of(name: str, state: str, level: str, reason: str) -> Text:
    head = Text().append(f"{name}: ", style="bold")
    head.append(state, style=STYLES[state])
    if reason:
        head.append(f" · {level}: {reason}" if level else f" · {reason}")
    return head


def _cause_lines(together: Sequence[Verdict], width: int) -> list[RenderableType]:
    verdict = together[0]
    names = listed([each.gang for each in together], MOST_NAMED)
    parts: list[RenderableType] = [headline_of(names, verdict.state, verdict.level, verdict.reason)]
    for line in verdict.evidence:
        if line != verdict.reason:
            parts += indented(line, width, style="dim")
    if verdict.fate:
        parts += indented(f"operator: {verdict.fate}", width, style="dim")
    if verdict.next:
        parts += indented(f"next: {verdict.next}", width)
    rest = [each for each in verdict.advice if each.sentence != verdict.next]
    parts += _how(verdict.advice[0], 6) if len(rest) < len(verdict.advice) else pasted(verdict.command, 6)
    if rest:
        parts += indented("or, each tried out on a copy of the cluster:", width)
    for each in rest:
        parts += [*indented(f"- {each.sentence}", width, 6), *_how(each, 8)]
    return parts


def _how(advice: Advice, indent: int) -> list[RenderableType]:
    """Where it stands in the manifest, and a command to paste: whole, however long."""
    lead = " " * indent
    lines: list[RenderableType] = []
    if advice.path:
        lines.append(Text(f"{lead}at {advice.path}", style="dim", overflow="fold"))
    return [*lines, *pasted(advice.command, indent)]


def pasted(command: str, indent: int) -> list[RenderableType]:
    """A command on lines of its own, whole however long it is; nothing if there is none."""
    return [Text(f"{' ' * indent}{command}", style="cyan", overflow="fold")] if command else []
