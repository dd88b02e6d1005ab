"""The tests on real nodes can be collected, though `make test` does not run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_file_of_the_node_tier_can_be_collected() -> None:
    command = [sys.executable, "-m", "pytest", "tests/node", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "GROVE_NODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "tests/node/test_engines_on_nodes.py::" in done.stdout
