"""The terminal of the node tests: a command that is cut off ends, and its pipes close before the event loop does."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.node.seeing import Terminal


class Slow(Terminal):
    """Its command never ends by itself. `process` is there once it runs."""

    process: asyncio.subprocess.Process

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        nowhere = SimpleNamespace(kubeconfig=Path("none"), kubectl_program=Path("none"))
        super().__init__(nowhere, "team")  # type: ignore[arg-type]

    async def start(self, command: str, *words: str) -> asyncio.subprocess.Process:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        program = "import time; time.sleep(600)"
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, **pipes)
        self.begun.set()
        return self.process


async def cut_off(terminal: Slow) -> None:
    running = asyncio.create_task(terminal.run("tree web"))
    await terminal.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_command_that_is_cut_off_ends_before_its_loop() -> None:
    terminal = Slow()
    asyncio.run(cut_off(terminal))
    assert terminal.process.returncode is not None
    del terminal
    gc.collect()  # an open transport would raise "Event loop is closed" here, which pytest makes an error
