"""Names inside the scheduler are unique, so that a file or a class can be found by its name alone."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import grove.scheduler

FILES = sorted(path for path in Path(grove.scheduler.__file__).parent.rglob("*.py") if path.name != "__init__.py")


def repeated(names: list[str]) -> list[str]:
    return sorted(name for name, times in Counter(names).items() if times > 1)


def classes_of(source: str) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["a", "b"], [], id="unique"),
        pytest.param(["b", "a", "b", "a", "c"], ["a", "b"], id="two names are repeated"),
    ],
)
def test_repeated_names_are_found(names: list[str], expected: list[str]) -> None:
    assert repeated(names) == expected


def test_no_two_files_of_the_scheduler_have_the_same_name() -> None:
    assert FILES
    assert repeated([path.name for path in FILES]) == []


def test_no_two_classes_of_the_scheduler_have_the_same_name() -> None:
    found = [name for path in FILES for name in classes_of(path.read_text())]
    assert found
    assert repeated(found) == []
