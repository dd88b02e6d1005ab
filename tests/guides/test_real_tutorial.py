"""The tutorial, carried out step by step on the cluster that its first step starts."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from tests.support.guides import Block, blocks_of

from grove.local.binaries import cache_root

pytestmark = [pytest.mark.real, pytest.mark.soak]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
STEP_S = 600
CHANGES = re.compile(r"apply|scale talk/decode 4|delete|undo|sed|grove up|grove down")
"""A step that changes something runs once. A step that only looks runs again until it shows what the page shows."""


class Reader:
    """A person at a shell in an empty folder, with the tutorial in hand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        home = folder / "home"
        home.mkdir()
        self._environment = os.environ | {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(cache_root().parent.parent),
            "KUBECONFIG": str(home / ".grove" / "local" / "kubeconfig"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "200",
        }

    async def run(self, commands: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-e",
            "-c",
            commands,
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), STEP_S)
        return process.returncode or 0, output.decode()

    async def follow(self, commands: str, seen: list[str]) -> None:
        """Runs a block. Each line of `seen` must be in one line of the output, word by word and in this order."""
        deadline = asyncio.get_running_loop().time() + STEP_S
        while True:
            code, output = await self.run(commands)
            missing = [line for line in seen if not shows(output, line)]
            if CHANGES.search(commands):
                assert code == 0, f"{commands}\n{output}"
            if not missing and (code == 0 or seen):
                return
            assert not CHANGES.search(commands), f"{commands}\ndoes not show {missing}:\n{output}"
            assert asyncio.get_running_loop().time() < deadline, f"{commands}\nnever shows {missing}:\n{output}"
            await asyncio.sleep(1)


VARIES = ((re.compile(r"\d+s"), r"\d+[smh]"), (re.compile(r"z\d-b\d(-[rn]\d)*,?"), r"z\d-b\d(-[rn]\d)*,?"))
"""Ages, and the names of domains and nodes: another run may have others."""


def shows(output: str, words: str) -> bool:
    """True if one line has these words in this order."""
    patterns = [
        next((any_ for form, any_ in VARIES if form.fullmatch(word)), re.escape(word)) for word in words.split()
    ]
    pattern = re.compile(".*".join(patterns))
    return any(pattern.search(line) for line in output.splitlines())


def _pattern(word: str) -> str:
    return next((value for form, value in VARIES if form.fullmatch(word)), re.escape(word))


def steps(found: list[Block]) -> list[tuple[str, list[str]]]:
    """Commands with the lines that they show."""
    found_steps: list[tuple[str, list[str]]] = []
    for block in found:
        if block.language == "sh":
            found_steps.append((block.text, []))
        elif block.language == "text":
            found_steps[-1][1].extend(line for line in block.text.splitlines() if line.strip())
    return found_steps


async def test_every_step_of_the_tutorial_does_what_the_page_shows(tmp_path: Path) -> None:
    found = blocks_of(PAGE.read_text())
    (manifest,) = (block for block in found if block.word == "tutorial.yaml")
    (tmp_path / "tutorial.yaml").write_text(manifest.text)
    reader = Reader(tmp_path)
    try:
        for commands, seen in steps(found):
            # The environment of this test is the one that the first block makes.
            lines = [line for line in commands.splitlines() if not line.startswith(("make ", "export "))]
            await reader.follow("\n".join(lines), seen)
    finally:
        await reader.run("grove down || true")
