"""On a cluster of `grove up` the autoscaling sample moves: engines are played, their load is an annotation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import wait_until

from grove.local.binaries import find_or_build
from grove.sim.pages import LOAD

SAMPLE = Path(__file__).parents[2] / "samples/autoscaling.yaml"

pytestmark = pytest.mark.soak


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def readers() -> set[str]:
    """Processes that read pages."""
    lines = (path.joinpath("cmdline") for path in Path("/proc").iterdir() if path.name.isdigit())
    found = set()
    for line in lines:
        try:
            if b"grove.metrics.reader" in line.read_bytes():
                found.add(line.parent.name)
        except OSError:
            continue
    return found


def test_the_sample_grows_with_its_load(tmp_path: Path) -> None:
    directory, before = tmp_path / "local", readers()
    grove = (sys.executable, "-m", "grove")
    try:
        kubeconfig = run(*grove, "up", "--nodes", "64", "--dir", directory).strip()
        kubectl = (find_or_build("1.36.3") / "kubectl", "--kubeconfig", kubeconfig)
        run(*kubectl, "apply", "-f", SAMPLE)
        run(*kubectl, "annotate", "pcs", "elastic", f"{LOAD}=40")

        def replicas(group: str) -> int:
            found: int = json.loads(run(*kubectl, "get", "pcsg", group, "-o", "json"))["spec"]["replicas"]
            return found

        wait_until(lambda: replicas("elastic-0-prefill") > 2, 300, "prefill does not grow with its queue")
        wait_until(lambda: replicas("elastic-0-decode") > 2, 300, "decode does not grow with its cache")
        status = (sys.executable, "-m", "grove.cli.kubectl", "status", "--kubeconfig", kubeconfig, "-o", "json")
        # Its exit code may be that of something that starts just now.
        (elastic,) = json.loads(subprocess.run(status, capture_output=True, text=True, check=False).stdout)
        measured = {one["name"]: one["metrics"][0] for one in elastic["autoscalers"]}
        assert measured["elastic-0-prefill"].startswith("grove_requests_waiting ")
        assert measured["elastic-0-decode"].startswith("grove_kv_cache_usage ")
        assert measured["elastic"].startswith("grove_e2e_p95_seconds ")
        assert not any("?" in one for one in measured.values()), measured
        assert "MetricsUnreadable" not in run(*kubectl, "get", "events", "-o", "json")
        assert "grove-metrics" in run(*grove, "up", "status", "--dir", directory)
    finally:
        subprocess.run([*grove, "down", "--dir", str(directory)], capture_output=True, check=False)
    wait_until(lambda: readers() <= before, 300, "a reader outlives `down`")
