"""A test file can be found by its name alone, and it can be changed without a look at other test files."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
BUILDER = re.compile(r"^(?:async )?def (pod|clique|gang|node)\(", re.MULTILINE)
"""A builder with one of these names is in `tests/support`. In a test file, a name says what is special: `bound_pod`."""
IMPORT = re.compile(r"^(?:from|import) (tests\.(?:\w+\.)*test_\w+)", re.MULTILINE)


def test_no_two_test_files_share_a_name() -> None:
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("from tests.cli.test_top import shown\n", ["tests.cli.test_top"], id="another test file"),
        pytest.param("from tests.support.waiting import eventually\n", [], id="a module for all tests"),
    ],
)
def test_imports_of_test_files_are_found(source: str, expected: list[str]) -> None:
    assert IMPORT.findall(source) == expected


def test_no_file_imports_a_test_file() -> None:
    imports = {str(path.relative_to(TESTS)): IMPORT.findall(path.read_text()) for path in TESTS.rglob("*.py")}
    assert {name: found for name, found in imports.items() if found} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("def pod(name: str) -> Pod:\n", ["pod"], id="a builder of pods"),
        pytest.param("def bound_pod(name: str) -> Pod:\n", [], id="a name that says more"),
        pytest.param("class Bench:\n    def pod(self) -> Pod:\n", [], id="a method"),
    ],
)
def test_builders_are_found(source: str, expected: list[str]) -> None:
    assert BUILDER.findall(source) == expected


def test_builders_of_pods_cliques_gangs_and_nodes_are_in_support() -> None:
    found = {str(path.relative_to(TESTS)): BUILDER.findall(path.read_text()) for path in TESTS.rglob("test_*.py")}
    assert {name: builders for name, builders in found.items() if builders} == {}
