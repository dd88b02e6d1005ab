"""The console as a process of its own, and the link it prints."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/#link=(\S+)")


@asynccontextmanager
async def started(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "grove",
        *words,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def printed_link(process: asyncio.subprocess.Process) -> tuple[str, str]:
    assert process.stdout is not None
    async with asyncio.timeout(HANGS_S):
        while True:
            line = (await process.stdout.readline()).decode()
            assert line, "it ended"
            if found := LINK.search(line):
                return found[1], found[2]
