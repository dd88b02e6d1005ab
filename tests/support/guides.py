"""Guides as a reader follows them: the code blocks of a page, in order, with what each is for."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "guides"
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?: (?P<word>[\w.-]+))?\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """`sh` is run; `sh helm` needs Helm; `yaml have` is what the reader is thought to have; others are named files."""

    language: str
    word: str
    text: str


def blocks(page: str) -> list[Block]:
    return blocks_of((PAGES / f"{page}.md").read_text())


def blocks_of(text: str) -> list[Block]:
    found = _BLOCK.finditer(text)
    return [Block(one["language"], one["word"] or "", textwrap.dedent(one["text"])) for one in found]


def file_in(page: str, name: str) -> str:
    """The text of a file that a page shows."""
    (found,) = (one.text for one in blocks(page) if one.word == name)
    return found
