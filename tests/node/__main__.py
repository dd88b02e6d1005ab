"""`make test-node`: install what real nodes need, run `tests/node` on them, and leave nothing behind.

Each file of tests has a cluster of its own, in namespaces of its own; `grove.local.nodes` says how.
"""

from __future__ import annotations

import os
import shutil
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
WORDS = """\
Every file of tests/node on a cluster of its own with two real nodes, one after another; about 25 minutes on two cores.
It installs Debian's packages where they are missing; they stay.
"""


def main(arguments: list[str]) -> int:
    print(preflight.words(2), WORDS, sep="", flush=True)
    _install_missing()
    try:
        preflight.check(Path.cwd())
        gobuild.build_helm(cache_root())
    except preflight.CannotRun as problem:
        print(f"test-node is skipped: {problem}")
        return 0
    except BinariesError as problem:
        print(f"test-node: {problem}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _stop)
    named = [one for one in arguments if ".py" in one] or [str(Path(__file__).parent)]
    rest = [one for one in arguments if ".py" not in one]
    tests = [sys.executable, "-m", "pytest", "-x", *named, *rest]
    try:
        return subprocess.run(tests, cwd=ROOT, env={**os.environ, "GROVE_NODE": "1"}, check=False).returncode
    finally:
        clean_dead(to_stderr)  # nothing to do, unless the tests were killed


def _install_missing() -> None:
    if preflight.missing_programs() and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {', '.join(preflight.PACKAGES)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["install", "--quiet", "--yes", "--no-install-recommends", *preflight.PACKAGES]
        for step in (["update", "--quiet"], install):
            subprocess.run(["apt-get", *step], stdout=subprocess.DEVNULL, env=environment, check=False)


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # an exception, so that everything is put right on the way out


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
