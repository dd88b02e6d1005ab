"""The worked examples for contributors show code that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^ *```python\n *# (\S+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
EXAMPLES = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_the_page_has_code_for_each_step() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize(("path", "code"), EXAMPLES, ids=[f"{path}" for path, _ in EXAMPLES])
def test_every_line_is_in_the_file_in_this_order(path: str, code: str) -> None:
    following = iter(lines_of((ROOT / path).read_text()))
    assert [line for line in lines_of(code) if line not in following] == []
