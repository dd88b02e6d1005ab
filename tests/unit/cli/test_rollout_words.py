"""`rollout status`: each replica that is down is told once, in the sentence or in a line of its own."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from rich.console import Console

from grove.show.processes import Process
from grove.show.rollouts import UPDATING, Down, Rollout, painted

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_replica_that_is_down_is_told_once() -> None:
    down = tuple(Down(f"chat-{i}", NOW, "its engines") for i in range(3))
    sentence = "updating: chat-0 is down, waits for its engines; chat-1 is down, waits for its engines"
    console = Console(width=120, file=io.StringIO())
    console.print(painted("chat", Rollout(UPDATING, "", NOW, None, (), down, sentence=sentence), Process("o"), 120))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert [said.count(one.name + " is down") for one in down] == [1, 1, 1]
