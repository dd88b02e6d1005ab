"""The table that `make answer` ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One chapter: how many requests were sent, answered and failed, and whether its promise held."""

    chapter: str
    sent: int
    answered: int
    failed: int
    first_s: float | None
    """Seconds from the change (apply, kill) to the first answer after it."""
    seen: str
    held: bool = True


_HEAD = ("chapter", "first answer", "sent", "answered", "failed", "seen")


def as_markdown(rows: Sequence[Row]) -> str:
    cells = [
        (
            row.chapter,
            "" if row.first_s is None else f"{row.first_s:.0f} s",
            str(row.sent),
            str(row.answered),
            str(row.failed),
            row.seen if row.held else f"FAILED: {row.seen}",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [_HEAD, *cells]) for column in range(len(_HEAD))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        for line in [_HEAD, *cells]
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
