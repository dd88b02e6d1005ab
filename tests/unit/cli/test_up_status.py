"""`grove up status`: what runs of the local cluster, and what has ended."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from grove.cli.local import up
from grove.diagnosis.processes import RUNS, Process, Processes
from grove.local.process import Child
from grove.local.state import State

KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
"""


def test_nothing_is_up(tmp_path: Path) -> None:
    found = CliRunner().invoke(up, ["status", "--dir", str(tmp_path)])
    assert (found.exit_code, "nothing is up" in found.output) == (1, True)


@pytest.mark.parametrize(
    ("alive", "leads", "code", "want"),
    [
        pytest.param(True, True, 0, "grove-operator  runs (pid 1), leads", id="it leads"),
        pytest.param(True, False, 1, "grove-operator  runs (pid 1), does not lead yet", id="the lease is another's"),
        pytest.param(
            True,
            None,
            1,
            "grove-operator  runs (pid 1)\nwho leads is not known: the API server does not answer",
            id="the API server does not answer",
        ),
        pytest.param(False, False, 1, "grove-operator  has ended; ", id="it has ended"),
        pytest.param(False, True, 1, "grove-operator  has ended; ", id="it has ended, and its lease lives on"),
    ],
)
def test_each_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool, leads: bool | None, code: int, want: str
) -> None:
    children = [
        Child("etcd", os.getpid(), "x", tmp_path / "e.log"),
        Child("grove-operator", 1, "y", tmp_path / "o.log"),
    ]
    (tmp_path / "kc").write_text(KUBECONFIG)
    State("1.36.3", "https://127.0.0.1:1", tmp_path / "kc", children, ready=True).save(tmp_path)
    monkeypatch.setattr(Child, "alive", lambda self: alive or self.name == "etcd")

    async def read_processes(client: object, now: datetime) -> Processes:
        if leads is None:
            raise TimeoutError
        return Processes(Process("grove-operator", RUNS, f"my_host_{1 if leads else 2}_a1b2 leads"))

    monkeypatch.setattr("grove.cli.local_ready.read_processes", read_processes)
    monkeypatch.setattr("grove.local.state.State.running", lambda self: True)
    found = CliRunner().invoke(up, ["status", "--dir", str(tmp_path)])
    assert found.exit_code == code
    assert want in found.output
    assert f"etcd            runs (pid {os.getpid()})" in found.output
