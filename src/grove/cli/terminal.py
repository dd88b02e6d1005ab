"""Where answers are printed: a terminal with its width and colours, or plain text for a pipe."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console

PIPE_CLOSED = 141
"""What a shell reports of a program that SIGPIPE ended: the reader of the output closed it (`| head`)."""
UNLIMITED = 100_000
"""The width of a pipe: nothing that goes into one is cut."""


class Terminal(Console):
    """A console that ends quietly when its reader closes the pipe."""

    def on_broken_pipe(self) -> None:
        pipe_closed()


def pipe_closed() -> None:
    # Python would complain once more while it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise click.exceptions.Exit(PIPE_CLOSED)


def terminal(*, plain: bool = False, width: int = UNLIMITED) -> Terminal:
    """The terminal; `width` is that of plain text, which has no colours and no width of its own."""
    console = Terminal(highlight=False)
    if console.is_terminal and not plain:
        return console
    return Terminal(highlight=False, width=width, color_system=None, force_terminal=False)


def printed(text: str) -> None:
    """Prints text as it is."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        pipe_closed()


PATIENCE_S = 1.0
"""How long a person looks at nothing without wondering."""
WORD = "working on it; Ctrl-C stops it"


@contextmanager
def a_word_when_it_takes_long(patience_s: float = PATIENCE_S) -> Iterator[None]:
    """On a terminal, says that work goes on when it takes longer than a moment, and takes that back when it is done.

    A thread says it, for the work is often one long calculation that lets nothing else run in its loop. It goes to
    stderr, so that what is printed is the answer alone.
    """
    if not sys.stderr.isatty():
        yield
        return
    was_stopped = threading.Event()

    def tell() -> None:
        was_stopped.set()
        sys.stderr.write(WORD)
        sys.stderr.flush()

    timer = threading.Timer(patience_s, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if was_stopped.is_set():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
