"""Tables for terminals: every column as wide as it needs, the last one gets what is left.

When that is too little to read, columns that may go are left out, least needed first; nothing else is ever cut.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.text import Text

GAP = 2
READABLE = 28
"""Cells below which a column of sentences is no use."""

Cell = Text | str


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    width: int,
    *,
    may_go: Sequence[str] = (),
    right: Sequence[str] = (),
) -> Group:
    """Rows under their titles. The last column is cut to the width; `may_go` names columns that may be left out."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    kept = list(range(len(titles)))
    wide = [max([len(title), *(row[i].cell_len for row in cells)]) for i, title in enumerate(titles)]
    for name in may_go:
        if _left(kept, wide, width) >= min(READABLE, wide[-1]):
            break
        kept = [i for i in kept if titles[i] != name]
    space = max(_left(kept, wide, width), 8)
    lines = [_line([Text(title, style="bold") for title in titles], kept, wide, space, titles, right)]
    lines += [_line(row, kept, wide, space, titles, right) for row in cells]
    return Group(*lines)


def _left(kept: Sequence[int], wide: Sequence[int], width: int) -> int:
    return width - sum(wide[i] + GAP for i in kept[:-1])


def _line(
    row: Sequence[Text],
    kept: Sequence[int],
    wide: Sequence[int],
    space: int,
    titles: Sequence[str],
    right: Sequence[str],
) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis", end="")
    for i in kept[:-1]:
        pad = " " * (wide[i] - row[i].cell_len)
        if titles[i] in right:
            line.append(pad)
            line.append_text(row[i])
        else:
            line.append_text(row[i])
            line.append(pad)
        line.append(" " * GAP)
    last = row[kept[-1]].copy()
    if titles[kept[-1]] in right:
        line.append(" " * (wide[kept[-1]] - last.cell_len))
    last.truncate(space, overflow="ellipsis")
    line.append_text(last)
    line.rstrip()
    line.end = "\n"
    return line


def indented(text: str, width: int, indent: int = 4, style: str = "") -> list[Text]:
    """A sentence as lines that fit, all of them set in by as much."""
    lead = " " * indent
    lines = textwrap.wrap(text, max(width, indent + 20), initial_indent=lead, subsequent_indent=f"{lead}  ")
    return [Text(line, style=style) for line in lines]


def warning_lines(warnings: Iterable[str], width: int) -> list[Text]:
    """Warnings of admission, each as kubectl prints it."""
    return [line for warning in warnings for line in indented(f"Warning: {warning}", width, 0, "yellow")]
