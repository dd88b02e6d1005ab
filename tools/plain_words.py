"""Checks the language of pages, docstrings, comments, messages and names by the rules of docs/development/style.md.

It finds long sentences, words that the rules exclude, variables without a noun, and pages and packages with many
passive sentences. Of messages in several lines, and of the comments of charts, samples and workflows, it checks
the words only. `make lint` runs it. A finding names file, line, rule and text.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LONGEST_SENTENCE = 25
"""Words of a sentence. Most should have 20 or fewer; above this number a reader loses the start. A colon ends none."""
LONGEST_MESSAGE = 30
"""Some messages are those of Kubernetes, word for word."""

BANNED = {
    word: rule
    for rule, words in {
        "personification": "told, nobody, somebody, anybody, whom, whoever, knows, wants, welcome, heard, hears",
        "metaphor": "toll, doorman, house, houses, room, rooms, seat, seats, liking, floor, floors",
        "riddle": "anew, so many, put right",
    }.items()
    for word in words.split(", ")
}
BANNED_WORDS = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
PARTS_OF_NAMES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""`CapacityWithout` and `MOST_SHOWN` have two parts each."""

NO_NOUN = {"one", "found", "said"}
"""Names of variables that do not name their value."""

EXAMPLES = ROOT / "docs/development/style.md"
"""Its table shows the words that the rules exclude."""

PAGES = ("*.md", "docs/**/*.md", "samples/**/*.md", "tests/*.md", ".github/**/*.md")
WITH_COMMENTS = (".github/**/*.yaml", "charts/**/*.*", "samples/**/*.yaml", "src/grove/**/*.js")

COMMENTS = re.compile(r"(?:^|\s|\{)(?:#|//|/\*)\s(.*)")
"""In files that are neither Python nor pages: the rest of a line after the mark of a comment."""

PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)\s+(?:(?:not|never|only|then|also|already|always|still)\s+)?"
    r"(?:\w+ed|made|held|kept|given|taken|told|written|read|said|known|put|found|shown|seen|lost|bound|built|left|chosen|"
    r"drawn|begun|done|sent)\b"
)
MOST_PASSIVE = 0.25
"""Share of the sentences of a page. Above it a reader often asks who does what."""
MOST_PASSIVE_IN_CODE = 1 / 3
"""Share in the docstrings and comments of a package. There a sentence often describes a value, not an act."""
WORD = re.compile(r"[A-Za-z'’-]+")
FEWEST_SENTENCES = 10
"""A shorter page or package is not judged by its share."""


class Finding(NamedTuple):
    path: Path
    line: int
    rule: str
    text: str


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each sentence of prose with the number of newlines before it. A colon ends none.

    An item of a list begins a sentence. A line that begins with a number only does so if it is such an item.
    """
    for match in re.finditer(r"(?:[^.!?\n]|[.!?](?!\s)|\n(?!\s*\n|\s*(?:[-*|#]|\d+\.\s)))+", text):
        start = match.start() + len(match.group()) - len(match.group().lstrip())
        yield text[:start].count("\n"), match.group()


def cells(text: str) -> Iterator[tuple[int, str]]:
    """Each cell of the tables outside blocks of code, with its line."""
    text = re.sub(r"^ *(`{3,}).*?^ *\1", lambda match: "\n" * match.group().count("\n"), text, flags=re.M | re.S)
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line))


def prose(text: str) -> str:
    """The text without code, tables, aligned columns, drawn trees and links; line numbers stay the same."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    text = re.sub(r"^ *(`{3,}).*?^ *\1", blank, text, flags=re.M | re.S)
    text = re.sub(r"^\s*[|├│└].*$", blank, text, flags=re.M)
    text = re.sub(r"^.*\S {3,}\S.*$", blank, text, flags=re.M)
    text = re.sub(r"`[^`\n]*`", blank, text)
    return re.sub(r"\]\([^)]*\)", blank, text)


def words_in(path: Path, text: str, first_line: int = 1) -> Iterator[Finding]:
    """Words that the rules exclude, in a text of any kind; code between backquotes does not count."""
    for number, line in enumerate(re.sub(r"`[^`\n]*`", "", text).split("\n"), first_line):
        for match in BANNED_WORDS.finditer(line):
            rule = BANNED[match.group().lower()]
            yield Finding(path, number, f"'{match.group()}' ({rule})", " ".join(line.split())[:90])


def check(path: Path, text: str, first_line: int = 1, longest: int = LONGEST_SENTENCE) -> Iterator[Finding]:
    """Long sentences and excluded words in prose."""
    text = prose(text)
    for offset, sentence in sentences(text):
        if (count := len(WORD.findall(sentence))) > longest:
            yield Finding(path, first_line + offset, f"{count} words", " ".join(sentence.split())[:90])
    yield from words_in(path, text, first_line)


def check_page(path: Path, text: str) -> Iterator[Finding]:
    """What `check` finds, the same in cells of tables, and the share of passive sentences."""
    yield from check(path, text)
    if path != EXAMPLES:
        for number, cell in cells(text):
            yield from check(path, cell, number)
    yield from passive_in(path, [text], MOST_PASSIVE)


def passive_in(path: Path, texts: Iterable[str], most: float) -> Iterator[Finding]:
    """At most one finding: the share of passive sentences in all texts is above `most`."""
    read = [sentence for text in texts for _, sentence in sentences(prose(text)) if len(WORD.findall(sentence)) > 3]
    passive = sum(PASSIVE.search(sentence) is not None for sentence in read)
    if len(read) >= FEWEST_SENTENCES and passive > most * len(read):
        yield Finding(path, 1, "passive", f"{passive} of {len(read)} sentences")


def check_voice(paths: Iterable[Path]) -> Iterator[Finding]:
    """Packages with many passive sentences in their docstrings and comments."""
    texts: dict[Path, list[str]] = {}
    for path in paths:
        text = path.read_text()
        package = texts.setdefault(path.parent, [])
        package += [without_blocks(docstring) for docstring in docstrings_in(ast.parse(text))]
        package += [comment for _, comment in comments(text)]
    for package, package_texts in texts.items():
        yield from passive_in(package, package_texts, MOST_PASSIVE_IN_CODE)


def docstrings_in(tree: ast.AST) -> Iterator[str]:
    """The strings that stand alone: docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def check_code(path: Path) -> Iterator[Finding]:
    """Docstrings and comments as prose, messages, and names. A message is a string with a space in it.

    The length counts only in messages of one line: in others, lines are often rows of a table.
    """
    text = path.read_text()
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                yield from check(path, without_blocks(node.value), node.lineno)
            elif "\n" in node.value:
                yield from words_in(path, node.value, node.lineno)
            elif " " in node.value:
                yield from check(path, node.value, node.lineno, LONGEST_MESSAGE)
    for line, comment in comments(text):
        yield from check(path, comment, line)
    yield from names_in(path, tree)
    yield from variables_without_a_noun(path, tree)


def check_tests(path: Path) -> Iterator[Finding]:
    """Words in docstrings, comments and names of tests. The strings of a test file are often data."""
    text = path.read_text()
    tree = ast.parse(text)
    yield from (finding for finding in names_in(path, tree) if " test_" in finding.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from words_in(path, without_blocks(node.value.value), node.lineno)
    for line, comment in comments(text):
        yield from words_in(path, comment, line)


def names_in(path: Path, tree: ast.AST) -> Iterator[Finding]:
    """Names that the module defines with an excluded word in them, and its own name."""
    defined = [(1, path.stem)]
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.append((node.lineno, name))
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                defined.append((node.lineno, name))
    for line, name in sorted(set(defined)):
        for part in PARTS_OF_NAMES.findall(name):
            if (rule := BANNED.get(part.lower())) is not None:
                yield Finding(path, line, f"'{part}' ({rule})", f"in the name {name}")


def variables_without_a_noun(path: Path, tree: ast.AST) -> Iterator[Finding]:
    """Variables and arguments whose name is no noun. A field of a class is an attribute, which callers may use."""
    statements = [part for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for part in node.body]
    fields = {id(part.target) for part in statements if isinstance(part, ast.AnnAssign)}
    fields |= {id(target) for part in statements if isinstance(part, ast.Assign) for target in part.targets}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in fields:
                pass
            case ast.arg(arg=name):
                pass
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case ast.MatchMapping(rest=str(name)):
                pass
            case _:
                continue
        if name in NO_NOUN:
            yield Finding(path, node.lineno, f"'{name}' (no noun)", f"the variable {name} does not name its value")


def without_blocks(docstring: str) -> str:
    """The docstring without its blocks of code: indented lines after a blank line."""
    blank, inside, read = True, False, []
    for line in inspect.cleandoc(docstring).split("\n"):
        inside = (line.startswith("    ") and (blank or inside)) or (inside and not line)
        blank = not line
        read.append("" if inside else line)
    return "\n".join(read)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Each comment with its first line. Comments on lines of their own, one below the other, are one text."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        is_alone = token.line.lstrip().startswith("#")
        if lines and (not is_alone or token.start[0] != first + len(lines)):
            yield first, "\n".join(lines)
            lines = []
        if not lines:
            first = token.start[0]
        lines.append(token.string.removeprefix("#").removeprefix(" "))
        if not is_alone:
            yield first, "\n".join(lines)
            lines = []
    if lines:
        yield first, "\n".join(lines)


def check_comments(path: Path) -> Iterator[Finding]:
    for number, line in enumerate(path.read_text().split("\n"), 1):
        for comment in COMMENTS.findall(line):
            yield from words_in(path, comment, number)


def findings() -> Iterator[Finding]:
    for path in sorted(page for pattern in PAGES for page in ROOT.glob(pattern)):
        yield from check_page(path, path.read_text())
    modules = [path for folder in ("src", "tools", "bench", "chaos") for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]
    modules.remove(Path(__file__).resolve())
    for path in modules:
        yield from check_code(path)
    yield from check_voice(modules)
    for path in sorted(ROOT.glob("tests/**/*.py")):
        yield from check_tests(path)
    others = [path for pattern in WITH_COMMENTS for path in ROOT.glob(pattern)]
    for path in sorted([*others, ROOT / "Makefile", ROOT / ".importlinter"]):
        if path.is_file():
            yield from check_comments(path)


def main() -> int:
    count = 0
    for finding in findings():
        count += 1
        print(f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.rule}: {finding.text}")
    print(f"{count} findings", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
