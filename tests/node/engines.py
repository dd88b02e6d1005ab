"""What tests do with samples/engines on real nodes: apply one, ask it, keep it busy, count."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grove.local.nodes.cluster import RealCluster

SAMPLES = Path(__file__).parents[2] / "samples" / "engines"
PATIENCE_S = 600.0
Objects = list[dict[str, Any]]


def manifest(name: str, change: Callable[[dict[str, Any]], None] = lambda system: None) -> Objects:
    """The objects of a sample, its set changed."""
    objects: Objects = [one for one in yaml.safe_load_all((SAMPLES / name / "manifest.yaml").read_text()) if one]
    for one in objects:
        if one["kind"] == "PodCliqueSet":
            change(one)
    return objects


def clique_spec(system: dict[str, Any], name: str) -> dict[str, Any]:
    """The spec of a clique in the manifest of a set."""
    (found,) = (one for one in system["spec"]["template"]["cliques"] if one["name"] == name)
    spec: dict[str, Any] = found["spec"]
    return spec


@dataclass
class Counts:
    """What became of requests; filled in when the load ends."""

    sent: int = 0
    answered: int = 0
    failed: int = 0
    reasons: dict[str, int] | None = None

    def __str__(self) -> str:
        why = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return f"{self.sent} sent, {self.answered} answered, {self.failed} failed{why}"


@dataclass(frozen=True)
class Stage:
    """One namespace of a cluster. Everything runs in the control plane's network, where pods and Services answer."""

    cluster: RealCluster
    namespace: str

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=check)

    def apply(self, objects: Objects) -> None:
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.until("the objects are applied", lambda: self.kubectl("apply", "-f", "-", stdin=listed))

    def pods(self, role: str = "") -> Objects:
        """Pods that are not being deleted, of one clique by its name in the template, or all."""
        chosen = ["-l", f"grove.io/clique-name={role}"] if role else []
        found: Objects = json.loads(self.kubectl("get", "pods", *chosen, "-o", "json"))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, role: str = "") -> Objects:
        return [pod for pod in self.pods(role) if is_ready(pod)]

    def until(self, what: str, look: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """The first truthy answer of `look`. An error of kubectl counts as not yet: a busy machine is slow."""
        end, last = time.monotonic() + patience_s, ""
        while True:
            try:
                if seen := look():
                    return seen
            except RuntimeError as problem:
                last = str(problem)
            if time.monotonic() > end:
                raise AssertionError(f"not in {patience_s:.0f} s: {what}\n{last}\n{self.picture()}")
            time.sleep(0.5)

    def picture(self) -> str:
        """What a person would look at first."""
        looks = ("pods -o wide", "pcs,pcsg,pclq,hpa", "events --sort-by=.lastTimestamp")
        return "\n".join(self.kubectl("get", *look.split(), check=False)[-3500:] for look in looks)

    def url(self, service: str) -> str:
        """A Service at its cluster address."""
        found = json.loads(self.kubectl("get", "service", service, "-o", "json"))
        return f"http://{found['spec']['clusterIP']}:{found['spec']['ports'][0]['port']}"

    def ask(self, url: str, model: str, *options: str) -> tuple[bool, str]:
        """Whether a question was answered, and what ask.py printed."""
        done = self._script("ask.py", url, "--model", model, *options)
        said, wrong = done.communicate()
        return done.returncode == 0, said + wrong

    def answers(self, url: str, model: str, *options: str) -> str:
        """The answer to a question, asked until there is one."""
        return str(self.until(f"{model} answers at {url}", lambda: self._answer(url, model, *options)))

    def _answer(self, url: str, model: str, *options: str) -> str:
        answered, said = self.ask(url, model, *options)
        return said.split("answered  ")[1].rsplit(" in ", 1)[0] if answered else ""

    def check(self, sample: str, url: str) -> None:
        """Runs the check script of a sample against an address."""
        command = [*self.cluster.inside, str(SAMPLES / sample / "check.sh"), url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def load(self, url: str, *options: str) -> Iterator[Counts]:
        """Clients that ask all the time during a block; the counts are there after it."""
        counts, running = Counts(), self._script("load.py", url, *options)
        try:
            yield counts
        finally:
            running.send_signal(signal.SIGTERM)
            said, wrong = running.communicate(timeout=120)
            found = json.loads(said) if said else {"reasons": {wrong: 1}}
            for field in ("sent", "answered", "failed", "reasons"):
                setattr(counts, field, found.get(field, 0))

    def _script(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        command = [*self.cluster.inside, sys.executable, str(SAMPLES / name), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def restarts(pod: dict[str, Any]) -> int:
    """How often the containers of a pod ended and were started again."""
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
