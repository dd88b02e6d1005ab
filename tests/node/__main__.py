"""`make test-node`: runs `tests/node` on real nodes, and leaves nothing behind.

Each file of tests has a cluster of its own, in namespaces of its own; `grove.local.nodes` says how.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from grove.local import gobuild
from grove.local.binaries import BinariesError, cache_root, to_stderr
from grove.local.nodes import preflight
from grove.local.nodes.leftovers import clean_dead

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    try:
        preflight.check(Path.cwd())
        gobuild.build_helm(cache_root())
    except (preflight.CannotRun, BinariesError) as problem:
        print(f"test-node: {problem}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _stop)
    named = [one for one in arguments if ".py" in one] or [str(Path(__file__).parent)]
    rest = [one for one in arguments if ".py" not in one]
    tests = [sys.executable, "-m", "pytest", *named, *rest]
    try:
        return subprocess.run(tests, cwd=ROOT, env={**os.environ, "GROVE_NODE": "1"}, check=False).returncode
    finally:
        clean_dead(to_stderr)  # nothing to do, unless the tests were killed


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # an exception, so that everything is cleaned up on the way out


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
