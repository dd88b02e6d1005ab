"""`top` in a real pseudo-terminal, on a real API server: its screen at 80 and at 200 columns, and its keys."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from tests.support.asking import World, server
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
HEIGHT = 30


class Terminal:
    """A terminal that understands what `top` writes: go to a line, clear to its end, colours."""

    def __init__(self, width: int, *args: str) -> None:
        self.width, self.lines = width, [""] * HEIGHT
        self.whole = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
            del os.environ["COLUMNS"], os.environ["LINES"]
            os.execv(sys.executable, [sys.executable, "-m", "grove.cli.kubectl", "top", *args])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
        os.set_blocking(self.fd, False)

    def read(self) -> str:
        try:
            while chunk := os.read(self.fd, 65536):
                self.whole += chunk.decode(errors="ignore")
        except (BlockingIOError, OSError):
            pass
        for row, text in re.findall(r"\x1b\[(\d+);1H(.*?)\x1b\[K", self.whole, re.DOTALL):
            if int(row) <= HEIGHT:
                self.lines[int(row) - 1] = re.sub(r"\x1b\[[0-9;]*m", "", text)
        return "\n".join(self.lines)

    def press(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    async def until(self, *words: str, limit_s: float = HANGS_S) -> str:
        deadline = asyncio.get_running_loop().time() + limit_s
        for _ in range(int(limit_s * 10) + 1):
            screen = self.read()
            if all(word in screen for word in words):
                return screen
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.1)
        raise AssertionError(f"no {words} on the screen:\n{self.read()}")

    async def ended(self) -> int:
        for _ in range(int(HANGS_S / 0.05)):
            self.read()
            pid, status = self.poll()
            if pid:
                return os.waitstatus_to_exitcode(status)
            await asyncio.sleep(0.05)
        raise AssertionError("it does not end")

    def poll(self) -> tuple[int, int]:
        return os.waitpid(self.pid, os.WNOHANG)

    def close(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.fd)


@pytest.mark.parametrize("width", [80, 200])
async def test_the_screen_and_its_keys(world: World, real_plane: Any, width: int) -> None:
    if real_plane is None:
        pytest.skip("a process of its own needs a server that answers over HTTP")
    await world.apply(world.system("chat"))
    await world.available("chat")
    await world.apply(world.system("wide", cliques=[server("worker", 5, 8)]))
    await world.refused("wide-0")
    terminal = Terminal(width, "-n", world.namespace, "--kubeconfig", str(real_plane.kubeconfig))
    try:
        screen = await terminal.until("/wide", "waiting", "/chat", "running")
        assert max(map(len, screen.splitlines())) <= width
        assert "2 sets" in screen
        terminal.press("\r")
        await terminal.until("explain", "wide-0: waiting", "esc back")
        terminal.press("\x1b")
        await terminal.until("enter explain")
        terminal.press("2")
        await terminal.until("/chat-0", "1.00", "/wide-0")
        terminal.press("3")
        await terminal.until("fragmented")
        terminal.press("1/chat\r")
        await asyncio.sleep(0.5)
        terminal.press("y")
        await terminal.until("kind: PodCliqueSet", "name: chat")
        terminal.press("\x1b")
        await terminal.until("/chat   ")
        terminal.press("?")
        await terminal.until("these keys")
        terminal.press("\x1b")
        await terminal.until("/chat   ")
        await world.apply(world.system("late", cliques=[server("one", 1, 1)]))
        terminal.press("\x1b")
        await terminal.until("/late")
        terminal.press("q")
        assert await terminal.ended() == 0
        assert "\x1b[?1049l" in terminal.whole
        assert "\x1b[?25h" in terminal.whole
    finally:
        terminal.close()
