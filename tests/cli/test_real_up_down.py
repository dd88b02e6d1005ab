"""`grove up` and `grove down`: a whole cluster for a person, from nothing to a running system and back to nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.waiting import HANGS_S

from grove.local.binaries import find_or_build
from grove.local.process import birth_mark

SAMPLES = Path(__file__).parent.parent.parent / "samples"


def grove(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grove", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.real
def test_up_runs_a_sample_and_down_leaves_no_process(tmp_path: Path):
    directory = tmp_path / "local"
    devices = ("--device-class", "gpu.nvidia.com", "--device-class", "nic.example.com")
    up = grove("up", "--nodes", "16", *devices, "--dir", directory)
    try:
        assert up.returncode == 0, up.stderr
        kubeconfig = Path(up.stdout.strip())
        assert kubeconfig.is_file()
        processes = {one["name"]: one["pid"] for one in json.loads((directory / "state.json").read_text())["processes"]}
        beside = {"grove-nodes", "grove-operator", "grove-scheduler", "grove-metrics"}
        assert {"etcd", "kube-apiserver", *beside} <= set(processes)

        again = grove("up", "--nodes", "16", "--dir", directory)
        assert again.returncode == 0
        assert "already up" in again.stderr
        assert "`grove down` first" in grove("up", *devices, "--dir", directory).stderr

        kubectl = [find_or_build("1.36.3") / "kubectl", "--kubeconfig", kubeconfig]
        files = ["-f", SAMPLES / "small.yaml", "-f", SAMPLES / "shared-devices.yaml"]
        applied = subprocess.run(  # at once: `up` returns when admission is there
            [*kubectl, "apply", *files], capture_output=True, text=True, check=False
        )
        assert applied.returncode == 0, applied.stderr
        available = "--for=jsonpath={.status.availableReplicas}=1"
        waited = subprocess.run(
            [*kubectl, "wait", "pcs/small", "pcs/sharing", available, "--timeout=300s"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert waited.returncode == 0, waited.stderr
    finally:
        down = grove("down", "--dir", directory)
    assert down.returncode == 0, down.stderr
    for word in ("ended: etcd, ", "removed: everything that was stored", f"left in {directory}: "):
        assert word in down.stderr
    assert not [name for name, pid in processes.items() if birth_mark(pid)]
    assert grove("down", "--dir", directory).returncode == 1


def processes_in(directory: Path) -> dict[str, int]:
    return {one["name"]: one["pid"] for one in json.loads((directory / "state.json").read_text())["processes"]}


@pytest.mark.real
def test_in_the_foreground_a_killed_operator_comes_back_and_leads_and_the_end_leaves_no_process(tmp_path: Path) -> None:
    directory, log = tmp_path / "local", tmp_path / "said"
    with log.open("wb") as said:
        command = [sys.executable, "-m", "grove", "up", "--foreground", "--nodes", "2", "--dir", str(directory)]
        up = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    try:
        _await(lambda: "it runs until Ctrl-C" in log.read_text(), up, log)
        assert "grove-operator, with admission; it leads" in log.read_text()
        before = processes_in(directory)
        status = grove("up", "status", "--dir", directory)
        assert status.returncode == 0, status.stdout
        assert status.stdout.count(", leads") == 2

        os.kill(before["grove-operator"], signal.SIGKILL)
        _await(lambda: "grove-operator ended" in log.read_text(), up, log)
        assert processes_in(directory)["grove-operator"] != before["grove-operator"]
        # The lease of the dead one speaks for it until it expires; `up` waits for the new one.
        again = grove("up", "--nodes", "2", "--dir", directory)
        assert again.returncode == 0, again.stderr
        assert grove("up", "status", "--dir", directory).returncode == 0
        everything = {*before.values(), *processes_in(directory).values()}
        up.send_signal(signal.SIGINT)
        assert up.wait(HANGS_S) == 0, log.read_text()
    finally:
        up.kill()
        grove("down", "--dir", directory)
    assert not [pid for pid in everything if birth_mark(pid)]
    assert "ended: etcd, " in log.read_text()


def _await(happened: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while not happened():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
