"""`make answer` that gets SIGTERM, from `timeout` for instance, stops its cluster and prints the chapters so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PLAYED = """
import contextlib, os, signal, sys, time
from tools.answer import __main__ as answer
from tools.answer.table import Row

@contextlib.contextmanager
def cluster(directory):
    try:
        yield None
    finally:
        print("the cluster is stopped")

class Story:
    def __init__(self, cluster, samples, write):
        self.write = write

def first(story):
    story.write(Row("first", 1, 1, 0, 1.0, "answered", True))

def second(story):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

answer.preflight.check = lambda directory: None
answer.IMAGES, answer._cluster, answer.Story = (), cluster, Story
answer.CHAPTERS = {"first": first, "second": second}
sys.exit(answer.main(["--dir", sys.argv[1]]))
"""


def test_a_run_that_gets_sigterm_stops_its_cluster_and_prints_its_table(tmp_path: Path) -> None:
    path = f"{ROOT}:{ROOT / 'src'}"
    command = [sys.executable, "-c", PLAYED, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "the cluster is stopped" in done.stdout
    assert "| first " in done.stdout
    assert "| first " in (tmp_path / "table.md").read_text()
