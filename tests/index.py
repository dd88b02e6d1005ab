"""Which file tests which behaviour: `python -m tests.index [WORD…]` prints the files that name all words.

`python -m tests.index --write` writes the index in tests/README.md. Its text is the first paragraph of each file's
docstring. Unit tests are not in the page: they are tables of one package each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

TESTS = Path(__file__).parent
DOCSTRING = re.compile(r'r?"""(.*?)"""', re.DOTALL)
PAGE = TESTS / "README.md"
BEGIN, END = "<!-- index: written by python -m tests.index --write -->\n", "<!-- end of index -->\n"


def behaviour(path: Path) -> str:
    """The first paragraph of a file's docstring, on one line."""
    match = DOCSTRING.match(path.read_text())
    return " ".join(match[1].partition("\n\n")[0].split()) if match is not None else ""


def files() -> Iterator[tuple[str, str]]:
    """Path in `tests` and behaviour of every test file, by path."""
    for path in sorted(TESTS.rglob("test_*.py")):
        yield path.relative_to(TESTS).as_posix(), behaviour(path)


def rows() -> dict[str, str]:
    """What the page lists."""
    return {name: text for name, text in files() if not name.startswith("unit/")}


def index() -> str:
    lines: list[str] = []
    for folder, group in groupby(rows().items(), key=lambda row: row[0].rpartition("/")[0]):
        lines += [f"### {folder}", "", "| Behaviour | File |", "|---|---|"]
        for name, text in group:
            cell = text.replace("|", "\\|")
            lines.append(f"| {cell} | `{name.rpartition('/')[2]}` |")
        lines.append("")
    return "\n".join(lines)


def listed(page: str) -> dict[str, str]:
    """The rows of the index in a page: path in `tests` and behaviour."""
    found: dict[str, str] = {}
    folder = ""
    for line in page.partition(BEGIN)[2].partition(END)[0].splitlines():
        if line.startswith("### "):
            folder = line.removeprefix("### ")
        elif line.endswith(".py` |"):
            text, _, name = line.strip("| ").rpartition(" | ")
            found[f"{folder}/{name.strip('`')}"] = text.replace("\\|", "|")
    return found


def write() -> None:
    page = PAGE.read_text()
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{index()}{END}{after}")


def main(words: list[str]) -> None:
    if words == ["--write"]:
        write()
        return
    for name, text in files():
        if all(word.lower() in f"{name} {text}".lower() for word in words):
            print(f"tests/{name}\n    {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
