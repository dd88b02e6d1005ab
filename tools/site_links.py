"""A hook of mkdocs: adds pages outside docs/ to the site, and makes links between pages work in both places.

The pages of the site are the files that people read in the repository. A link to another file of the repository
that is no page becomes the name of that file. A link to a file that does not exist fails the strict build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "GOVERNANCE.md", "CODE_OF_CONDUCT.md", "tests/README.md")
FOLDER = "repository"
"""Where pages from outside docs/ are in the site."""
LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def outside() -> list[Path]:
    return [ROOT / name for name in OUTSIDE] + sorted((ROOT / "samples").glob("**/README.md"))


def place(path: Path) -> str:
    """The address of a page in the site, from its root; empty if the file is no page."""
    if path.suffix == ".md" and path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{FOLDER}/{path.relative_to(ROOT).as_posix()}" if path in outside() else ""


def relinked(markdown: str, source: Path) -> str:
    """The text of a page with its links as they must be in the site."""

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if "://" in target or target.startswith("mailto:"):
            return match.group()
        path = Path(os.path.normpath(source.parent / target))
        if path.is_dir():
            path /= "README.md"
        if to := place(path):
            return f"[{text}]({os.path.relpath(to, Path(place(source)).parent)}{anchor})"
        if path.exists() and not path.is_relative_to(DOCS):
            return f"{text} (`{path.relative_to(ROOT).as_posix()}`)"
        return match.group()

    return LINK.sub(link, markdown)


def on_files(files: Files, config: Any) -> Files:
    for path in outside():
        files.append(File.generated(config, place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return relinked(markdown, Path(page.file.abs_src_path))
