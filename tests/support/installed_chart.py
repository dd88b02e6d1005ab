"""Grove installed by its chart on a real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grove.local.controlplane import ControlPlane
from tests.support.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "charts/install.yaml"
SYSTEM_NAMESPACE = "grove-system"
OPERATOR, SCHEDULER, UNINSTALL = (
    f"system:serviceaccount:{SYSTEM_NAMESPACE}:{name}"
    for name in ("grove-operator", "grove-scheduler", "grove-uninstall")
)


def documents(file: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def found(kind: str, name: str) -> dict[str, Any]:
    """The one object of the plain rendering whose name begins so."""
    (one,) = (d for d in documents(INSTALL) if d["kind"] == kind and d["metadata"]["name"].startswith(name))
    return one


@dataclass(frozen=True)
class Installed:
    """A cluster in which an administrator applied install.yaml, and nothing else happened."""

    plane: ControlPlane
    directory: Path

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [self.plane.kubectl, "--kubeconfig", self.plane.kubeconfig, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def access_of(self, user: str) -> list[str]:
        """Command line arguments with which a process is this ServiceAccount, in its namespace."""
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}"]
        config = yaml.safe_load(self.plane.client_kubeconfig(user, groups).read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = SYSTEM_NAMESPACE
        path = self.directory / f"{user.rpartition(':')[2]}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return ["--kubeconfig", str(path)]

    def may(self, user: str, verb: str, what: str, namespace: str = "", name: str = "") -> bool:
        """The server's answer: its authorizer receives a role a moment after it exists."""
        group, _, resource = what.partition("/")
        resource, _, subresource = resource.partition("/")
        asked = {
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "verb": verb,
            "namespace": namespace,
            "name": name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": asked},
        }
        answer = json.loads(self.kubectl("create", "-o", "json", "--filename=-", stdin=json.dumps(review)))
        return bool(answer["status"]["allowed"])

    def refused_requests(self) -> dict[str, float]:
        """How often the API server answered 403, by what was asked for."""
        lines = self.kubectl("get", "--raw", "/metrics").splitlines()
        counted = (line.rpartition(" ") for line in lines if line.startswith("apiserver_request_total"))
        return {what: float(number) for what, _, number in counted if 'code="403"' in what}


class Process:
    """One of Grove's processes, with its log. It is started again when it lost its lease, as a Deployment does it.

    A machine that stands still for some seconds takes the lease from every process on it.
    """

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        self._is_stopping = threading.Event()
        self._popen = self._start()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    @property
    def said(self) -> str:
        return self._log.read_text()

    def stop(self) -> int:
        self._is_stopping.set()
        self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            raise

    def end(self) -> None:
        self._is_stopping.set()
        self._keeper.join(20)
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait(20)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as out:
            return subprocess.Popen(self._command, stdout=out, stderr=subprocess.STDOUT, env=self._environment)

    def _keep(self) -> None:
        while not self._is_stopping.wait(0.2):
            if self._popen.poll() is None:
                continue
            if "leadership lost" not in self.said[-2000:]:
                return  # it failed for another reason, and the test shall see that
            self._popen = self._start()


@contextmanager
def process(installed: Installed, name: str, *arguments: str, **environment: str) -> Iterator[Process]:
    log = installed.directory / f"{name}.log"
    log.unlink(missing_ok=True)
    running = Process([sys.executable, "-m", "grove", *arguments], {**os.environ, **environment}, log)
    try:
        yield running
    finally:
        running.end()
