"""What a check of `doctor` answers, and how it looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from grove.show.columns import indented

OK, WARN, FAIL, SKIP = "ok", "warning", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer. `fix` is a command or a step that corrects it; empty when there is nothing to correct."""

    check: str
    state: str
    text: str
    fix: str = ""


def painted(findings: Iterable[Finding], width: int) -> RenderableType:
    styles = {OK: ("✔", "green"), WARN: ("!", "yellow"), FAIL: ("✖", "bold red"), SKIP: ("-", "dim")}
    parts: list[RenderableType] = []
    for finding in findings:
        mark, style = styles[finding.state]
        lines = indented(f"{mark} {finding.check}: {finding.text}", width, 0)
        lines[0].stylize(style, 0, len(mark))
        lines[0].stylize("bold", len(mark) + 1, len(mark) + 2 + len(finding.check))
        parts += lines
        step, *to_paste = finding.fix.split("\n")
        if step:
            parts += indented(f"→ {step}", width)
        parts += (Text(f"    {line}") for line in to_paste)  # neither wrapped nor indented again
    return Group(*parts) if parts else Text("")
