"""The index of tests in tests/README.md names existing files, with what each of them tests."""

from __future__ import annotations

import pytest
from tests import index

MOST_BEHIND = 12
"""Rows that may be missing or old, because changes that are merged at the same time cannot know of each other."""


def test_the_index_has_what_every_file_says() -> None:
    page, files = index.listed(index.PAGE.read_text()), index.rows()
    behind = sorted(name for name in page.keys() | files.keys() if page.get(name) != files.get(name))
    assert len(behind) <= MOST_BEHIND, f"run python -m tests.index --write: {behind}"


def test_every_test_file_says_what_it_tests() -> None:
    assert [name for name, text in index.files() if not text] == []


def test_the_page_is_read_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"cli/test_a.py": "One | two.", "rollout/test_b.py": "`three`: four."}
    monkeypatch.setattr(index, "rows", lambda: rows)
    assert index.listed(f"# Tests\n{index.BEGIN}{index.index()}{index.END}") == rows
