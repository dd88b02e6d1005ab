"""The version stands in one place; the files that must repeat it are equal to it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

import grove

ROOT = Path(__file__).parents[3]


@pytest.fixture
def version() -> ModuleType:
    spec = importlib.util.spec_from_file_location("version", ROOT / "tools" / "version.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_copy_is_equal_to_the_version_of_the_package(version: ModuleType) -> None:
    assert version.current() == grove.__version__
    assert version.copies() == {key: {grove.__version__} for key in version.COPIES}


def test_the_changelog_has_an_entry_for_the_version() -> None:
    assert f"## {grove.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_new_version_is_written_to_every_copy(version: ModuleType, tmp_path: Path) -> None:
    for name in (version.SOURCE, *version.COPIES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version.write("12.3.4", tmp_path)
    assert version.current(tmp_path) == "12.3.4"
    assert version.copies(tmp_path) == {key: {"12.3.4"} for key in version.COPIES}


@pytest.mark.parametrize("arguments", [["1"], ["v1.2.3"], ["1.2.3", "1.2.4"]])
def test_what_is_no_version_is_refused(version: ModuleType, arguments: list[str]) -> None:
    assert version.main(arguments) == 2
