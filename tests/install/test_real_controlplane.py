"""The real control plane comes up, survives a restart of its API server on the same port, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import HANGS_S

from grove.local.controlplane import ControlPlane, down, status, up
from grove.local.loopback import RequestFailed
from grove.local.ports import LOOPBACK, free_ports

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane"), "1.36.3") as running:
        yield running


def kubectl(plane: ControlPlane, *arguments: str, kubeconfig: Path | None = None) -> str:
    command = [str(plane.kubectl), "--kubeconfig", str(kubeconfig or plane.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_reports_the_version_asked_for(plane: ControlPlane) -> None:
    told = json.loads(kubectl(plane, "version", "-o", "json"))
    assert told["serverVersion"]["gitVersion"] == told["clientVersion"]["gitVersion"] == "v1.36.3"
    assert (told["serverVersion"]["major"], told["serverVersion"]["minor"]) == ("1", "36")


def test_a_port_that_another_process_takes_first_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as squatter:
        squatter.bind((LOOPBACK, 0))
        squatter.listen()
        taken, others = squatter.getsockname()[1], free_ports(4)
        first = iter([[taken, *others]])
        monkeypatch.setattr("grove.local.controlplane.free_ports", lambda count: next(first, None) or free_ports(count))
        with ControlPlane(tmp_path, "1.36.3") as plane:
            kubectl(plane, "get", "namespace", "default")


def test_objects_and_the_address_survive_a_restart_of_the_api_server(plane: ControlPlane) -> None:
    kubectl(plane, "create", "namespace", "orchard")
    before = plane.server
    plane.stop_apiserver()
    with pytest.raises(RequestFailed):
        plane.blueprint.apiserver_client().call("GET", "/readyz")
    plane.start_apiserver()
    assert plane.server == before
    assert kubectl(plane, "get", "namespace", "orchard", "-o", "name") == "namespace/orchard\n"


def test_another_user_is_known_by_name_and_may_do_nothing_yet(plane: ControlPlane) -> None:
    kubeconfig = plane.client_kubeconfig("joe", ["gardeners"])
    told = json.loads(kubectl(plane, "auth", "whoami", "-o", "json", kubeconfig=kubeconfig))
    assert told["status"]["userInfo"]["username"] == "joe"
    assert "gardeners" in told["status"]["userInfo"]["groups"]
    with pytest.raises(AssertionError, match="forbidden"):
        kubectl(plane, "get", "pods", kubeconfig=kubeconfig)


def test_old_resource_versions_expire_after_compaction_and_restart(plane: ControlPlane) -> None:
    client = plane.blueprint.apiserver_client()
    old = client.call_json("GET", "/api/v1/namespaces/default")["metadata"]["resourceVersion"]
    kubectl(plane, "create", "namespace", "later")
    assert plane.compact_etcd() > int(old)
    plane.restart_apiserver()
    path = f"/api/v1/namespaces?watch=1&resourceVersion={old}&timeoutSeconds=60"
    event = client.call_json("GET", path, timeout_s=HANGS_S)
    assert event["object"]["code"] == 410


def test_up_leaves_it_running_and_down_leaves_no_process(tmp_path: Path) -> None:
    lines: list[str] = []
    state = up(tmp_path, "1.36.3", say=lines.append)
    try:
        assert {child.name for child in state.children} == {
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        }
        assert up(tmp_path, "1.36.3", say=lines.append).children == state.children
        assert lines[-1].startswith("already up")
    finally:
        down(tmp_path, say=lines.append)
    for child in state.children:
        with pytest.raises(ProcessLookupError):  # not even a zombie is left
            os.kill(child.pid, 0)
    assert status(tmp_path) is None
