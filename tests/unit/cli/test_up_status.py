"""`grove up status`: what runs of the local cluster, and what has ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from grove.cli.local import up
from grove.local.process import Child
from grove.local.state import State


def test_nothing_is_up(tmp_path: Path) -> None:
    found = CliRunner().invoke(up, ["status", "--dir", str(tmp_path)])
    assert (found.exit_code, "nothing is up" in found.output) == (1, True)


@pytest.mark.parametrize(("alive", "code"), [(True, 0), (False, 1)])
def test_each_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool, code: int) -> None:
    children = [
        Child("etcd", os.getpid(), "x", tmp_path / "e.log"),
        Child("grove-operator", 1, "y", tmp_path / "o.log"),
    ]
    State("1.36.3", "https://127.0.0.1:1", tmp_path / "kc", children, ready=True).save(tmp_path)
    monkeypatch.setattr(Child, "alive", lambda self: alive or self.name == "etcd")
    found = CliRunner().invoke(up, ["status", "--dir", str(tmp_path)])
    assert found.exit_code == code
    assert f"etcd            runs (pid {os.getpid()})" in found.output
    assert ("has ended" in found.output) != alive
