"""Print the directory that holds the Kubernetes programs of a version, building them first if need be.

Used as `python tools/kube/kube_bin.py 1.36.3`. Only the directory goes to stdout; progress goes to stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from grove.local.binaries import DEFAULT_VERSION, BinariesError, find_or_build


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print("usage: kube_bin.py [VERSION]", file=sys.stderr)
        return 2
    try:
        print(find_or_build(arguments[0] if arguments else DEFAULT_VERSION))
    except BinariesError as problem:
        print(f"kube_bin: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
