"""`make answer` and `make test-node` say what they need and install what is missing before they build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tools import real_nodes

from grove.local.nodes import preflight

MAKEFILE = (Path(__file__).parents[3] / "Makefile").read_text()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run. Of the nodes' programs runc is missing, of the others cmake."""
    done: list[list[str]] = []

    def run(command: list[str], **options: Any) -> None:
        done.append(command)

    monkeypatch.setattr(real_nodes.subprocess, "run", run)
    monkeypatch.setattr(real_nodes.os, "geteuid", lambda: 0)
    monkeypatch.setattr(real_nodes.shutil, "which", lambda name: None if name == "cmake" else f"/usr/bin/{name}")
    monkeypatch.setattr(preflight, "missing_programs", lambda: ["runc"])
    monkeypatch.setattr(preflight, "check", lambda directory: None)
    return done


def test_packages_of_missing_programs_are_installed_and_what_is_still_missing_is_named(
    commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert real_nodes.main() == 1
    _, install = commands
    assert install[-1] == "cmake"
    assert set(preflight.PACKAGES) < set(install)
    assert "ninja-build" not in install
    assert all("DPkg::Lock::Timeout=600" in command for command in commands), "another apt-get may run on a new machine"
    said = capsys.readouterr()
    assert said.out.index("needs     root") < said.out.index("installing")
    assert said.err == "not installed: cmake. On Debian and Ubuntu: apt-get install cmake\n"


def test_nothing_is_installed_if_nothing_is_missing(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "missing_programs", list)
    monkeypatch.setattr(real_nodes.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert real_nodes.main() == 0
    assert commands == []


def test_without_root_nothing_is_installed_and_the_command_ends_with_every_reason(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(directory: Path) -> None:
        raise preflight.CannotRun("a kubelet needs root")

    monkeypatch.setattr(real_nodes.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(preflight, "check", refuse)
    assert real_nodes.main() == 1
    assert commands == []
    assert capsys.readouterr().err.splitlines()[0] == "a kubelet needs root"


@pytest.mark.parametrize("target", ["answer", "test-node"])
def test_a_command_that_needs_real_nodes_asks_before_it_builds(target: str) -> None:
    (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    said, asks, builds = recipe.index("echo"), recipe.index("tools.real_nodes"), recipe.index("$(MAKE)")
    assert said < asks < builds
