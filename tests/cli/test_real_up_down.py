"""`grove up` and `grove down`: a whole cluster for a person, from nothing to a running system and back to nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grove.local.binaries import find_or_build
from grove.local.process import birth_mark

SAMPLES = Path(__file__).parent.parent.parent / "samples"


def grove(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grove", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


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
        assert {"etcd", "kube-apiserver", "grove-nodes", "grove-operator", "grove-scheduler"} <= set(processes)

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
            [*kubectl, "wait", "pcs/small", "pcs/sharing", available, "--timeout=60s"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert waited.returncode == 0, waited.stderr
    finally:
        down = grove("down", "--dir", directory)
    assert down.returncode == 0, down.stderr
    assert not [name for name, pid in processes.items() if birth_mark(pid)]
    assert grove("down", "--dir", directory).returncode == 1
