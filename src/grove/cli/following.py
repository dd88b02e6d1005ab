"""Draws an answer again whenever the cluster changes: for `-w`, in a terminal or into a pipe."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

from rich.live import Live

from grove.answers.answer import FAULT, Answer
from grove.answers.following import BURST_S, IDLE_S, Picture, Source, _real_name, following
from grove.cli.access import Options, asked_once, formatted, resolve
from grove.cli.terminal import UNLIMITED, printed, terminal
from grove.kube.http import HttpClient
from grove.kube.logs import configure_logs


def watch(options: Options, picture: Picture, *, events: bool = False, in_place: bool = True) -> int:
    """Draws the picture again whenever something changes, until there is nothing left to draw or Ctrl-C.

    Not `in_place`, each picture is what is new, and goes below the one before.
    """
    return follow(options, lambda source: drawing(source, picture, options.output, in_place=in_place), events=events)


def watch_set(options: Options, subject: str, picture: Callable[[str, str], Picture]) -> int:
    """Draws the picture of the set of a subject by the name that the set has, and of the subject.

    A subject that does not exist is a fault, as without watching.
    """
    name = asked_once(options, lambda client, namespace: _real_name(client, namespace, subject)) if subject else ""
    return watch(options, picture(name, subject))


def follow(options: Options, work: Callable[[Source], Coroutine[Any, Any, int]], *, events: bool = False) -> int:
    """Does the work over the cluster of these options, for as long as it takes; its exit code."""
    configure_logs("error", "text")
    gc.enable()  # this one may run for hours

    async def run() -> int:
        config, namespace = resolve(options)
        async with (
            HttpClient(config, user_agent="kubectl-grove", timeout_s=options.timeout_s) as client,
            following(client, namespace, options.timeout_s, events=events) as source,
        ):
            return await work(source)

    return asyncio.run(run())


async def drawing(source: Source, picture: Picture, output: str = "", *, in_place: bool = True) -> int:
    """On a terminal one picture in place; into a pipe one after the other, each that differs from the one before.

    The exit code is that of the last picture; if there was nothing to draw at all, the question had no answer.
    """
    console, code, before = terminal(), FAULT, ""
    in_rows, in_place = not in_place and not output, in_place and console.is_terminal and not output
    with Live(console=console, auto_refresh=False, screen=True) if in_place else nullcontext() as live:
        while True:
            source.changed.clear()
            reply = await picture(source)
            if reply is None:
                return code
            code = reply.code
            if live is not None:
                live.update(reply.paint(console.width), refresh=True)
            elif in_rows:
                console.print(reply.paint(console.width), end="")
            else:
                text = formatted(reply.data, output) if output else _plain(reply)
                if text != before:
                    printed(text)
                before = text
            try:
                async with asyncio.timeout(IDLE_S):
                    await source.changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(BURST_S)


def _plain(reply: Answer) -> str:
    console = terminal(plain=True)
    with console.capture() as captured:
        console.print(reply.paint(UNLIMITED))
    return captured.get() + "\n"
