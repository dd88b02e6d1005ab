"""What the page gets: amounts of queues as people write them, and the order of states of the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from grove.answers.answer import Answer
from grove.console import questions
from grove.diagnosis.states import WORST_FIRST
from grove.scheduler.explain.explanation import QueueRow

STATIC = Path(questions.__file__).parent / "static"


async def test_amounts_of_queues_are_written_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    amounts = {"cpu": 42_223, "memory": 8 << 30, "gpu": 8_000, "nvidia.com/gpu": 8}
    row = QueueRow("Queue", "red", "", 0, tuple(amounts), amounts, amounts, amounts, {}, {"cpu": 2_000})

    async def answered(_client: Any) -> Answer:
        return Answer([row], lambda width: Text(""))

    monkeypatch.setattr(questions, "queues_answer", answered)
    client: Any = None
    [queue] = await questions.questions()["queues"](client, "", {})
    written = {"cpu": "42223m", "memory": "8Gi", "gpu": "8", "nvidia.com/gpu": "8"}
    assert queue["shown"] == {
        "guaranteed": written,
        "used": written,
        "fair_share": written,
        "limit": {},
        "waiting": {"cpu": "2"},
    }


def test_the_page_lists_sets_in_the_order_of_the_command_line() -> None:
    [listed] = re.findall(r"const WORST = \[(.*)\]", (STATIC / "sets.js").read_text())
    assert tuple(re.findall(r'"(\w+)"', listed)) == WORST_FIRST
