"""Checks the language of pages and docstrings: long sentences, words that docs/development/style.md excludes, and pages
with many passive sentences.

`make lint` runs it. A finding names file, line, rule and text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LONGEST_SENTENCE = 40
"""Words. Most sentences should have 20 or fewer; above this number a reader loses the start."""

BANNED = {
    word: rule
    for rule, words in {
        "personification": "told nobody somebody whom knows wants welcome",
        "metaphor": "toll doorman houses",
    }.items()
    for word in words.split()
}

BANNED_ON_PAGES = dict.fromkeys(["room", "rooms", "seat", "seats", "house", "heard", "liking"], "metaphor")
"""Words that pages must not have; docstrings still may."""

PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)\s+(?:(?:not|never|only|then|also|already|always|still)\s+)?"
    r"(?:\w+ed|made|held|kept|given|taken|told|written|read|said|known|put|found|shown|seen|lost|bound|built|left|chosen|"
    r"drawn|begun|done|sent)\b"
)
MOST_PASSIVE = 0.25
"""Share of the sentences of a page. Above it a reader often asks who does what."""
FEWEST_SENTENCES = 10
"""A shorter page is not judged by its share."""


class Finding(NamedTuple):
    path: Path
    line: int
    rule: str
    text: str


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each sentence of prose with the number of newlines before it."""
    for match in re.finditer(r"(?:[^.!?:\n]|[.!?:](?!\s)|\n(?!\s*\n|\s*[-*|#\d]))+", text):
        start = match.start() + len(match.group()) - len(match.group().lstrip())
        yield text[:start].count("\n"), match.group()


def prose(text: str) -> str:
    """The text without code, tables, aligned columns, drawn trees and links; line numbers stay the same."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    text = re.sub(r"^ *(`{3,}).*?^ *\1", blank, text, flags=re.M | re.S)
    text = re.sub(r"^\s*[|├│└].*$", blank, text, flags=re.M)
    text = re.sub(r"^.*\S {3,}\S.*$", blank, text, flags=re.M)
    text = re.sub(r"`[^`\n]*`", blank, text)
    return re.sub(r"\]\([^)]*\)", blank, text)


def check(path: Path, text: str, first_line: int = 1) -> Iterator[Finding]:
    for offset, sentence in sentences(prose(text)):
        words = re.findall(r"[A-Za-z'’-]+", sentence)
        short = " ".join(sentence.split())[:90]
        if len(words) > LONGEST_SENTENCE:
            yield Finding(path, first_line + offset, f"{len(words)} words", short)
        for word in words:
            if word.lower() in BANNED:
                yield Finding(path, first_line + offset, f"'{word}' ({BANNED[word.lower()]})", short)


def check_page(path: Path, text: str) -> Iterator[Finding]:
    """What `check` finds, words for pages only, and the share of passive sentences."""
    yield from check(path, text)
    count = passive = 0
    for offset, sentence in sentences(prose(text)):
        words = re.findall(r"[A-Za-z'’-]+", sentence)
        for word in words:
            if word.lower() in BANNED_ON_PAGES:
                short = " ".join(sentence.split())[:90]
                yield Finding(path, 1 + offset, f"'{word}' ({BANNED_ON_PAGES[word.lower()]})", short)
        if len(words) > 3:
            count += 1
            passive += PASSIVE.search(sentence) is not None
    if count >= FEWEST_SENTENCES and passive > MOST_PASSIVE * count:
        yield Finding(path, 1, "passive", f"{passive} of {count} sentences")


def docstrings(path: Path) -> Iterator[Finding]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from check(path, node.value.value, node.lineno)


def findings() -> Iterator[Finding]:
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("samples/**/*.md")]):
        yield from check_page(path, path.read_text())
    for path in sorted(ROOT.glob("src/**/*.py")):
        yield from docstrings(path)


def main() -> int:
    count = 0
    for found in findings():
        count += 1
        print(f"{found.path.relative_to(ROOT)}:{found.line}: {found.rule}: {found.text}")
    print(f"{count} findings", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
