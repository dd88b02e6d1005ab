"""What an answer is, for programs and for people, and the error of a question that has no answer.

The command line prints answers, and the console sends their values. This module loads fast: every command imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

RUNNING, FAULT, WAITING, NO_FIT = 0, 2, 3, 4
"""Exit codes: all is well; the question could not be answered; something is waiting; something cannot be placed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`data` is what `-o json` prints: Structs, dataclasses and plain JSON. `paint` makes the text for a width."""

    data: Any
    paint: Callable[[int], RenderableType]
    code: int = RUNNING


class Unanswered(click.ClickException):
    """The question has no answer, for a reason that the user can act on; `faults` are printed one per line."""

    exit_code = FAULT

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


SET_KINDS = (
    "pcs",
    "podcliqueset",
    "podcliquesets",
    "podgangset",
    "dynamopodgangset",
    "dynamopodgangsets",
    "koordpodcliqueset",
    "koordpodcliquesets",
)
"""Kinds that are a set, or are kept as one."""


def object_name(text: str) -> str:
    """A name as kubectl takes it: `chat`, `pcs/chat`, `podcliqueset.grove.io/chat`, `podgangset/chat`."""
    kind, slash, name = text.partition("/")
    return name if slash and kind.split(".")[0].lower() in SET_KINDS else text
