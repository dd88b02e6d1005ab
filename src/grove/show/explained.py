"""An explanation as text: the set in one line, then each trouble once, with its evidence, the next step and advice."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from grove.show.advice import Advice
from grove.show.columns import indented
from grove.show.gangs import FAILING, NO_FIT, RUNNING, STARTING, Verdict
from grove.show.verdict import UNATTENDED, Judgement
from grove.show.words import alike, listed, unnumbered

STYLES = {RUNNING: "green", "scaled to zero": "dim", STARTING: "yellow", NO_FIT: "bold red", FAILING: "red",
          UNATTENDED: "bold red", "updating": "cyan", "paused": "cyan", "deleting": "dim"}  # fmt: skip
MOST_NAMED = 4


def explanation(head: Judgement | None, verdicts: Sequence[Verdict], note: str, width: int) -> RenderableType:
    """`head` is the set as a whole, where that was asked about or matters most."""
    parts: list[RenderableType] = []
    troubles = [one for one in _together(verdicts) if one[0].state != RUNNING]
    if len(troubles) == 1 and head is not None and head.state == troubles[0][0].state:
        head = None  # its one trouble says it all
    if head is not None:
        parts.append(headline(head))
        alone = not verdicts or all(one.state == RUNNING for one in verdicts)
        if alone or head.state == UNATTENDED:
            parts += [line for one in head.evidence for line in indented(one, width, style="dim")]
            if head.next:
                parts += indented(f"next: {head.next}", width)
    for together in troubles or (() if head is not None else _together(verdicts)):
        parts += _told(together, width)
    if note:
        parts.append(Text(note, style="yellow"))
    return Group(*parts) if parts else Text("no gangs")


def _together(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Gangs with the same trouble together, and of those that run the ones that say the same."""
    return alike(
        verdicts, lambda one: (one.state, one.level, one.reason if one.state == RUNNING else unnumbered(one.reason))
    )


def headline(one: Judgement) -> Text:
    """A set in one line."""
    return headline_of(one.name, one.state, one.level, one.reason)


def headline_of(name: str, state: str, level: str, reason: str) -> Text:
    head = Text().append(f"{name}: ", style="bold")
    head.append(state, style=STYLES.get(state, "yellow"))
    if reason:
        head.append(f" · {level}: {reason}" if level else f" · {reason}")
    return head


def _told(together: Sequence[Verdict], width: int) -> list[RenderableType]:
    one = together[0]
    names = listed([each.gang for each in together], MOST_NAMED)
    parts: list[RenderableType] = [headline_of(names, one.state, one.level, one.reason)]
    for line in one.evidence:
        if line != one.reason:
            parts += indented(line, width, style="dim")
    if one.next:
        parts += indented(f"next: {one.next}", width)
    rest = [each for each in one.advice if each.sentence != one.next]
    if len(rest) < len(one.advice):
        parts += _how(one.advice[0], 6)
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
    if advice.command:
        lines.append(Text(f"{lead}{advice.command}", style="cyan", overflow="fold"))
    return lines
