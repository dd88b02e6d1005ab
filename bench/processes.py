"""Processes that benchmarks run beside the API server: those of Grove, fake nodes, and the bare client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figures import cpu_s


class Process:
    """One of the processes around the API server; `ask` is for the operator, which answers with its own counts."""

    def __init__(self, name: str, *command: str, piped: bool = False, checkout: str = "") -> None:
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        self.name = name
        env = {**os.environ, "PYTHONPATH": f"{checkout}/src"} if checkout else None
        self.child = subprocess.Popen(
            [sys.executable, *command],
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
            cwd=checkout or None,
        )

    def read_line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline()

    def say(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def expect(self, word: str) -> None:
        line = self.read_line()
        assert line == f"{word}\n", f"{self.name} said {line!r}"

    def ask(self) -> dict[str, Any]:
        self.say("")
        answer: dict[str, Any] = json.loads(self.read_line())
        return answer

    @property
    def cpu_s(self) -> float:
        return cpu_s(self.child.pid)

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait()


@contextmanager
def bare_process(kubeconfig: Path) -> Iterator[Process]:
    """A bare client that takes its orders as lines (see `baseline`)."""
    bare = Process("bare client", "-m", "bench.baseline", str(kubeconfig), piped=True)
    try:
        bare.expect("ready")
        yield bare
    finally:
        bare.stop()
