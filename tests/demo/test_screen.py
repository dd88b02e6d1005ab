"""The demo on a terminal, 80 and 160 columns wide: nothing runs over the edge, and the last picture and table stay."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

import grove.demo
from grove.demo.pace import run_paced
from grove.demo.performance import perform
from grove.demo.scenario import load_scenario
from grove.demo.stage import Screen

TOUR = load_scenario(Path(grove.demo.__file__).parent / "tour.yaml")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def screen(width: int) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        height=40,
        force_terminal=True,
        color_system="standard",
        highlight=False,
        _environ={"TERM": "xterm-256color"},  # whatever terminal runs the tests, if any
    )
    stage = Screen(console, 0.0)
    try:
        run_paced(perform(TOUR, stage, console, seed=1), seed=1, frame=stage.frame)
    finally:
        stage.fall()
    return out.getvalue()


@pytest.fixture(scope="module", params=[80, 160], ids=["80 columns", "160 columns"])
def shown(request: pytest.FixtureRequest) -> tuple[int, str]:
    width: int = request.param
    return width, screen(width)


def test_no_line_is_longer_than_the_terminal_is_wide(shown: tuple[int, str]) -> None:
    width, text = shown
    lines = [line for part in ESCAPE.sub("", text).splitlines() for line in part.split("\r")]
    assert max(map(cell_len, lines)) <= width


def test_the_last_picture_and_the_summary_are_left_on_the_screen(shown: tuple[int, str]) -> None:
    width, text = shown
    end = ESCAPE.sub("", text)[-4000:]
    assert "chat  13 of 13 pods ready" in end
    assert "GPUs       ████░░░░░░░░░░░░░░░░░░░░ 88 of 504 in use" in end
    assert re.search(r"^chat-0-prefill-2 +Running +z0-b0-r2 +2 .*1\.00", end, re.MULTILINE)
    assert ("NODES" in end) == (width == 160)


def test_the_cursor_is_given_back(shown: tuple[int, str]) -> None:
    _, text = shown
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
