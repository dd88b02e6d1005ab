"""Shows a story: on a terminal with a picture below the sentences, or as plain lines.

Plain lines depend on the seed alone: no wall time, no width of a terminal, no colours.
"""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from grove.demo.chronicle import Note
from grove.demo.pace import PacedLoop
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.seen import Seen
from grove.diagnosis.tree import tree_of
from grove.plan.world import World
from grove.show.layout import layout_of
from grove.show.paint import LEGEND, bar, growth, racks

PLAIN_WIDTH = 100
Levels = Sequence[tuple[str, str]]
READ_S = 0.016
"""Seconds a reader takes for a character, more or less."""

_STYLES = {
    "placed": "bold green",
    "running": "green",
    "ready": "green",
    "available": "bold green",
    "waiting": "magenta",
    "below": "red",
    "node": "red",
    "draining": "yellow",
    "leaving": "yellow",
    "updated": "bold green",
    "preempted": "red",
    "failed": "red",
}


def picture(seen: Seen, width: int) -> Iterator[Text]:
    """The sets with a mark for every pod, then the racks with a mark for every node."""
    for pcs in seen.sets:
        yield from growth(tree_of(seen, pcs), width)
    layout = layout_of(seen)
    yield Text("")
    yield from racks(layout, width)
    used = Text(f"{'GPUs':<10} ")
    used.append_text(bar(layout.root.used, layout.root.total, 24))
    used.append(f" {layout.root.used} of {layout.root.total} in use")
    yield used


class Plain:
    """Lines for a file, a pipe or a test."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.is_over = False

    def _line(self, text: str = "") -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def chapter(self, title: str, text: str) -> None:
        self._line()
        self._line(f"== {title}")
        for line in textwrap.wrap(text, PLAIN_WIDTH):
            self._line(line)
        self._line()

    def tell(self, note: Note) -> None:
        self._line(f"[{note.at_s:8.1f} s] {note.text}")

    def explain(self, verdict: Verdict) -> None:
        for line in verdict_lines(verdict):
            self._line(" " * 13 + line)

    def picture(self, world: World) -> None:
        self._line()
        for line in picture(world.seen(), PLAIN_WIDTH):
            self._line("    " + line.plain.rstrip())
        self._line()

    def frame(self) -> None:
        return None

    def close(self) -> None:
        return None

    def fall(self) -> None:
        return None


class Screen:
    """A terminal: sentences scroll, the picture stays below them. `speed` 2 gives half the time to read."""

    def __init__(self, console: Console, speed: float) -> None:
        self._console, self._speed = console, speed
        self.is_over = False
        self._world: World | None = None
        self._revision = -1
        self._drawn_s = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def watch(self, world: World) -> None:
        self._world = world
        self._live.start()

    def chapter(self, title: str, text: str) -> None:
        self._console.print()
        self._console.print(Rule(f"[bold]{title}", align="left"))
        self._console.print(Text(text, style="italic"))
        self._console.print()
        self._draw()
        self._rest(READ_S * len(text) + 0.8)

    def tell(self, note: Note) -> None:
        lead = f"{note.at_s:8.1f} s  "
        for part in textwrap.wrap(note.text, max(20, self._console.width - len(lead) - 1)):
            line = Text().append(lead, style="dim")
            line.append(part, style=_STYLES.get(note.kind, ""))
            self._console.print(line)
            lead = " " * len(lead)
        self._rest(0.08)

    def explain(self, verdict: Verdict) -> None:
        lines = verdict_lines(verdict)
        for line in lines:
            for part in textwrap.wrap(line, self._console.width - 16, subsequent_indent="    "):
                self._console.print(Text(" " * 12 + part, style="magenta"))
        self._draw()
        self._rest(READ_S * sum(map(len, lines)))

    def picture(self, world: World) -> None:
        self._draw()
        self._rest(1.0)

    def frame(self) -> None:
        if self._world is None or time.monotonic() - self._drawn_s < 0.06:
            return
        self._draw()

    def close(self) -> None:
        """Leaves the terminal as it was, with the last picture on it; while the world still runs."""
        self.fall()
        if self._world is not None:
            self._console.print(self._picture())

    def fall(self) -> None:
        """Leaves the terminal as it was, whatever happened."""
        if self._live.is_started:
            self._live.stop()

    def _draw(self) -> None:
        if self._world is None:
            return
        revision = self._world.cluster.server.store.revision
        if revision != self._revision:
            self._revision = revision
            self._live.update(self._picture())
        self._drawn_s = time.monotonic()
        self._live.refresh()

    def _picture(self) -> RenderableType:
        assert self._world is not None
        lines = list(picture(self._world.seen(), self._console.width))
        space = max(8, self._console.height - 8)
        if len(lines) > space:
            sets = lines[: -_racks_height(lines)]
            lines = [*sets[: space - _racks_height(lines) - 1], Text("…"), *lines[-_racks_height(lines) :]]
        for line in lines:
            line.truncate(self._console.width, overflow="ellipsis")
        clock = f"{self._world.time_s:.0f} s"
        return Group(Rule(style="dim"), *lines, Text(f"{LEGEND}   {clock}", style="dim", no_wrap=True))

    def _rest(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._speed and isinstance(loop, PacedLoop):
            loop.rest(seconds / self._speed)


def _racks_height(lines: list[Text]) -> int:
    blank = next((i for i, line in enumerate(lines) if not line.plain), 0)
    return len(lines) - blank


def verdict_lines(verdict: Verdict) -> list[str]:
    """Why it waits, from the outside in, and what would help; every change was tried out."""
    lines = list(verdict.evidence)
    if verdict.advice:
        lines.append("any one of these would make it fit:")
        lines += [f"- {advice.text}" for advice in verdict.advice]
    return lines
