"""Print the directory with the Kubernetes programs of a version, or where helm is, building them first if need be.

Used as `python tools/kube/kube_bin.py 1.36.3` or `… helm`. Only the path goes to stdout; progress goes to stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from grove.local.binaries import DEFAULT_VERSION, BinariesError, cache_root, find_or_build
from grove.local.gobuild import build_helm


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print("usage: kube_bin.py [VERSION | helm]", file=sys.stderr)
        return 2
    try:
        wanted = arguments[0] if arguments else DEFAULT_VERSION
        print(build_helm(cache_root()) if wanted == "helm" else find_or_build(wanted))
    except BinariesError as problem:
        print(f"kube_bin: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
