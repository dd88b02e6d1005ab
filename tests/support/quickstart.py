"""The commands of docs/quickstart.md: which a test runs on two real nodes, and which need something else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
BLOCK = re.compile(r"^```sh(?: needs=(\w+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Commands that stand together; `needs` names what this machine does not have."""

    needs: str
    commands: tuple[str, ...]


def blocks() -> list[Block]:
    return [Block(needs, tuple(body.strip().splitlines())) for needs, body in BLOCK.findall(PAGE.read_text())]


def built() -> list[str]:
    """Commands that build; `make test-node` does the same before its tests."""
    return [one for block in blocks() if not block.needs for one in block.commands if one.startswith("make ")]


def run_here() -> list[str]:
    """Commands that a test runs on the two-node cluster, in their order."""
    return [one for block in blocks() if not block.needs for one in block.commands if not one.startswith("make ")]
