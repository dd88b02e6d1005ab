"""Sets the version of the whole project: `python tools/version.py 0.3.0`. Without an argument it prints the version.

`src/grove/__init__.py` is the place of the version. The files in COPIES repeat it because their formats cannot read it.
A unit test checks that all copies are equal. Run `make charts` afterwards: the rendered charts contain the version too.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/grove/__init__.py"
NUMBER = r"\d+\.\d+\.\d+(?:[a-z0-9.]+)?"
COPIES = {
    "charts/grove/Chart.yaml": rf"(?m)^(?:version|appVersion): ({NUMBER})$",
    "charts/inference/Chart.yaml": rf'(?m)^appVersion: "({NUMBER})"$',
    "Dockerfile": rf"(?:version=|grove:|grove-initc:)({NUMBER})",
    "docs/install.md": rf"(?:grove|grove-initc):({NUMBER})",
    "docs/quickstart.md": rf"(?:grove|grove-initc):({NUMBER})",
}
"""File and pattern; the group of the pattern is the version."""


def current(root: Path = ROOT) -> str:
    match = re.search(rf'__version__ = "({NUMBER})"', (root / SOURCE).read_text())
    assert match, f"{SOURCE} has no version"
    return match.group(1)


def copies(root: Path = ROOT) -> dict[str, set[str]]:
    """The versions that each file of COPIES names."""
    return {name: set(re.findall(pattern, (root / name).read_text())) for name, pattern in COPIES.items()}


def write(version: str, root: Path = ROOT) -> None:
    def put(match: re.Match[str]) -> str:
        start, end = (place - match.start() for place in match.span(1))
        return match.group()[:start] + version + match.group()[end:]

    for name, pattern in {SOURCE: rf'__version__ = "({NUMBER})"', **COPIES}.items():
        path = root / name
        path.write_text(re.sub(pattern, put, path.read_text()))


def main(arguments: list[str]) -> int:
    if not arguments:
        print(current())
        return 0
    if len(arguments) != 1 or not re.fullmatch(NUMBER, arguments[0]):
        print("usage: python tools/version.py [X.Y.Z]", file=sys.stderr)
        return 2
    write(arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
