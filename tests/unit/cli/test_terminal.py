"""What a terminal shows while a question takes long: a word on stderr, which is gone when the answer comes."""

from __future__ import annotations

import io
import sys
import time

import pytest

from grove.cli.terminal import WORD, a_word_when_it_takes_long


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "patience_s", "want"),
    [
        pytest.param(True, 0.0, f"{WORD}\r\x1b[K", id="told, and taken back"),
        pytest.param(True, 60.0, "", id="nothing when it is quick"),
        pytest.param(False, 0.0, "", id="nothing into a pipe"),
    ],
)
def test_a_word_when_it_takes_long(
    is_terminal: bool, patience_s: float, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    with a_word_when_it_takes_long(patience_s):
        until = time.monotonic() + 60.0
        while len(screen.getvalue()) < len(want) - len("\r\x1b[K") and time.monotonic() < until:
            time.sleep(0.001)
    assert screen.getvalue() == want
