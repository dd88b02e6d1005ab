"""The live screen of `top`: reads keys as they are pressed, and draws from watches."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from grove.answers.answer import RUNNING
from grove.answers.events import events_answer
from grove.answers.explain import explanation_of
from grove.answers.following import Source
from grove.answers.logs import latest_lines
from grove.answers.subjects import subject
from grove.answers.top_figures import FigureWatcher
from grove.api import labels
from grove.api.meta import Key
from grove.cli.access import formatted
from grove.cli.terminal import terminal
from grove.diagnosis.seen import Seen
from grove.kube.errors import KubeError
from grove.show import top as views
from grove.show.layout import layout_of
from grove.show.overview import rows_of
from grove.show.top import Gang, Model, Screen, Wanted, draw, press, shown

BURST_S, IDLE_S = 0.25, 10.0
LOG_LINES, MOST_PODS = 40, 8
KEYS = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "pgup",
    "\x1b[6~": "pgdn",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "esc",
    "\x03": "ctrl-c",
    "\x1b[Z": "left",
    "\x1b[H": "g",
    "\x1b[F": "G",
}


class Top:
    def __init__(self, source: Source, prometheus: str = "") -> None:
        self._source = source
        self._watcher = FigureWatcher(source, prometheus)
        self._model, self._screen = Model(), Screen()
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._drawn: list[str] = []

    async def run(self) -> int:
        console = terminal()
        with raw_keys(self._keys), _other_screen():
            loop = asyncio.get_running_loop()
            tasks = {loop.create_task(self._follow(console)), loop.create_task(self._listen(console))}
            tasks.add(loop.create_task(self._watcher.read_engines()))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                return RUNNING
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, console: Any) -> None:
        while await self._press(await self._keys.get(), console):
            self._draw(console)

    async def _follow(self, console: Any) -> None:
        """Looks again when something changed, and once in a while for the ages."""
        while True:
            self._source.changed.clear()
            try:
                self._model = self._watcher.added(await model_of(self._source))
            except KubeError as error:  # the next look may succeed; what was seen last stays on the screen
                self._model = replace(self._model, note=f"cannot look just now: {error}")
                self._source.changed.set()
                await asyncio.sleep(1.0)
            self._draw(console)
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._source.changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(BURST_S)

    async def _press(self, key: str, console: Any) -> bool:
        """False when it is time to end."""
        if key == "resize":
            self._drawn = []
            return True
        self._screen, wanted = press(self._screen, key, self._model, console.size.height)
        if wanted is None:
            return True
        if wanted.ends:
            return False
        lines = await page(self._source, wanted, console.size.width)
        self._screen = shown(_titled(self._screen, wanted), lines)
        return True

    def _draw(self, console: Any) -> None:
        """Only lines that changed are written: at rest nothing is."""
        width, height = console.size
        lines = []
        for line in draw(self._screen, self._model, width, height):
            with console.capture() as captured:
                console.print(line, end="", no_wrap=True, overflow="ellipsis", crop=True)
            lines.append(captured.get())
        out = [
            f"\x1b[{row};1H{line}\x1b[K"
            for row, line in enumerate(lines, 1)
            if row > len(self._drawn) or self._drawn[row - 1] != line
        ]
        self._drawn = lines
        if out:
            sys.stdout.write("".join(out))
            sys.stdout.flush()


def _titled(screen: Screen, wanted: Wanted) -> Screen:
    return replace(screen, title=f"{wanted.what} {wanted.namespace}/{wanted.name}")


async def model_of(source: Source) -> Model:
    seen = source.seen()
    judged = await source.judged(seen)
    layout = layout_of(source.seen(everything=True)) if seen.nodes else None
    return Model(
        rows_of(judged.sets, seen), gangs_of(seen, judged.sets), layout, judged.processes, source.now(), judged.note
    )


def gangs_of(seen: Seen, sets: Any) -> list[Any]:
    gangs, levels = [], seen.levels()
    for pcs in sets:
        for verdict in pcs.gangs:
            gang = seen.gang_of.get(Key(pcs.namespace, verdict.gang))
            if gang is None:
                continue
            pods = seen.pods_of_gang.get(gang.metadata.key, [])
            paths = (seen.path(pod.spec.node_name, levels) for pod in pods)
            racks = sorted({path[-1] for path in paths if path and path[-1]})
            place = ", ".join(racks[:2]) + (f" +{len(racks) - 2}" if len(racks) > 2 else "")
            gangs.append(Gang(pcs.namespace, verdict, place, gang.status.placement_score, len(pods)))
    return gangs


async def page(source: Source, wanted: Wanted, width: int) -> list[str]:
    """The lines of what a key asked for; what cannot be had says why."""
    client, namespace, name = source.client, wanted.namespace, wanted.name
    try:
        if wanted.what == views.EXPLAIN:
            asked = await subject(client, namespace, name)
            judged = await source.judged(asked.seen, advice=True, only=asked.gangs)
            return _lines(explanation_of(asked, judged).paint(width), width)
        if wanted.what == views.DESCRIBE:
            return _lines((await events_answer(client, namespace, name)).paint(width), width)
        if wanted.what == views.YAML:
            asked = await subject(client, namespace, name)
            kind = type(asked.seen.sets[0] if asked.is_set else asked.gangs[0]).RESOURCE
            raw = await client.get(kind, name, namespace)
            raw["metadata"].pop("managedFields", None)
            return formatted(raw, "yaml", as_is=True).splitlines()
        return await _logs(source, namespace, name)
    except (KubeError, click.ClickException) as error:
        return [str(getattr(error, "message", "") or error)]


async def _logs(source: Source, namespace: str, name: str) -> list[str]:
    """The last lines of some pods of a set or gang."""
    pods = [
        pod
        for pod in source.seen().pods
        if pod.metadata.namespace == namespace
        and name in (pod.metadata.labels.get(labels.PART_OF), pod.metadata.labels.get(labels.POD_GANG))
    ]
    pods = sorted(pods, key=lambda pod: pod.metadata.name)[:MOST_PODS]
    lines_of = await latest_lines(source.client, pods, LOG_LINES)
    return [line for pod, lines in lines_of.items() for line in (f"── {pod}", *lines)] or ["no pods"]


def _lines(picture: Any, width: int) -> list[str]:
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(picture)
    return [line.rstrip() for line in captured.get().splitlines()]


@contextmanager
def raw_keys(keys: asyncio.Queue[str]) -> Iterator[None]:
    """Keys as they are pressed, and `resize` when the terminal changed its size."""
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def read() -> None:
        for key in split_keys(os.read(fd, 1024).decode(errors="ignore")):
            keys.put_nowait(key)

    tty.setcbreak(fd)
    settings = termios.tcgetattr(fd)
    settings[3] &= ~termios.ISIG  # Ctrl-C is a key like any other: the screen is put back before we end
    termios.tcsetattr(fd, termios.TCSANOW, settings)
    loop.add_reader(fd, read)
    loop.add_signal_handler(signal.SIGWINCH, lambda: keys.put_nowait("resize"))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def split_keys(text: str) -> Iterator[str]:
    """The input of a terminal, key by key; unknown sequences are dropped."""
    while text:
        known = next((code for code in sorted(KEYS, key=len, reverse=True) if text.startswith(code)), "")
        if known == "\x1b" and len(text) > 1 and text[1] in "[O":
            end = next((i for i, letter in enumerate(text[2:], 2) if letter.isalpha() or letter == "~"), len(text) - 1)
            text = text[end + 1 :]
            continue
        if known:
            yield KEYS[known]
            text = text[len(known) :]
        else:
            yield text[0]
            text = text[1:]


@contextmanager
def _other_screen() -> Iterator[None]:
    sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[2J")
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
