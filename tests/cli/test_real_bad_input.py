"""What goes wrong between a person and a cluster is one clear line and exit code 2; `-v` shows the traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.waiting import HANGS_S

from grove.local.controlplane import ControlPlane
from grove.local.pki import Authority
from grove.local.ports import free_ports


def grove(*arguments: str | Path, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    if kubeconfig is not None:
        env["KUBECONFIG"] = str(kubeconfig)
    command = [sys.executable, "-m", "grove", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, env=env, check=False)


def edited(kubeconfig: Path, tmp_path: Path, **changes: object) -> Path:
    """A copy of a kubeconfig with other values for its only cluster."""
    content = yaml.safe_load(kubeconfig.read_text())
    content["clusters"][0]["cluster"].update(changes)
    path = tmp_path / "edited.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def is_one_clear_line(answer: subprocess.CompletedProcess[str], *words: str) -> None:
    assert answer.returncode == 2, answer.stderr
    lines = answer.stderr.strip().splitlines()
    assert len(lines) == 1, answer.stderr
    for word in words:
        assert word in lines[0]


def test_a_kubeconfig_that_is_not_there(tmp_path: Path):
    missing = tmp_path / "nowhere"
    is_one_clear_line(grove("crds", "--apply", "--kubeconfig", missing), str(missing))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("{this is: not: yaml", id="not YAML"),
        pytest.param("[]", id="not a mapping"),
        pytest.param("apiVersion: v1\nkind: Config\n", id="no context"),
        pytest.param(
            "current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\n", id="a dangling name"
        ),
    ],
)
def test_a_broken_kubeconfig(tmp_path: Path, content: str):
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    is_one_clear_line(grove("crds", "--apply", kubeconfig=path), str(path))


def test_a_server_that_does_not_answer(control_plane: ControlPlane, tmp_path: Path):
    path = edited(control_plane.kubeconfig, tmp_path, server="https://127.0.0.1:1")
    is_one_clear_line(grove("crds", "--apply", "--kubeconfig", path), "127.0.0.1:1")


def test_a_server_that_cannot_be_trusted(control_plane: ControlPlane, tmp_path: Path):
    stranger = Authority("somebody else")
    (tmp_path / "ca.crt").write_bytes(stranger.pair.certificate)
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    content["clusters"][0]["cluster"].pop("certificate-authority-data", None)
    content["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "ca.crt")
    path = tmp_path / "edited.kubeconfig"
    path.write_text(yaml.safe_dump(content))
    is_one_clear_line(grove("crds", "--apply", "--kubeconfig", path), "certificate")


def test_rights_that_are_missing(control_plane: ControlPlane):
    path = control_plane.client_kubeconfig("nobody")
    is_one_clear_line(grove("crds", "--apply", "--kubeconfig", path), "nobody", "customresourcedefinitions")


def test_a_cluster_without_our_crds(tmp_path: Path):
    health, metrics = free_ports(2)
    config = tmp_path / "operator.yaml"
    config.write_text(yaml.safe_dump({"server": {"healthProbes": {"port": health}, "metrics": {"port": metrics}}}))
    with ControlPlane(tmp_path / "plane") as bare:
        for process in (("operator", "--config", config), ("scheduler", "--port", "0")):
            answer = grove(*process, "--kubeconfig", bare.kubeconfig)
            assert answer.returncode == 2, answer.stderr
            last = answer.stderr.strip().splitlines()[-1]
            assert "grove.io" in last
            assert "Traceback" not in answer.stderr


def test_verbose_shows_the_traceback(tmp_path: Path):
    answer = grove("-v", "crds", "--apply", "--kubeconfig", tmp_path / "nowhere")
    assert answer.returncode != 0
    assert "Traceback" in answer.stderr
