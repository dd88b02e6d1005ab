"""Grove installed as its users do it: a cluster with two real nodes, helm and kubectl, and both images from a registry.

Nothing can be pulled here, so the registry is a name only: images are imported and tagged with it, and every node has
them already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from grove import __version__
from grove.local import gobuild
from grove.local.binaries import cache_root
from grove.local.nodes.cluster import RealCluster
from tests.node.images import SERVE

ROOT = Path(__file__).parents[2]
SYSTEM, TEAM = "grove-system", "team"
REGISTRY, PREVIOUS_REGISTRY = "registry.test/now", "registry.test/previous"
PATIENCE_S = 600.0
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
LEVELS = {"zone": "topology.kubernetes.io/zone", "block": "grove.io/block", "rack": "grove.io/rack"}


@dataclass
class Installation:
    """One cluster, and the commands of the person who runs it."""

    nodes: RealCluster
    directory: Path
    helm_program: Path = field(default_factory=lambda: gobuild.build_helm(cache_root()))

    def kubectl(self, *arguments: str, stdin: str = "", fails: bool | None = False) -> str:
        """What it says; `fails` is whether it must end with an error (then also what it complains of), None: may."""
        return self._run([str(self.nodes.kubectl_program), *arguments], stdin, fails)

    def helm(self, *arguments: str) -> str:
        return self._run([str(self.helm_program), *arguments])

    def grove(self, *arguments: str) -> str:
        return self._run(["grove", *arguments])

    def _run(self, command: list[str], stdin: str = "", fails: bool | None = False) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        homes = {f"HELM_{kind}_HOME": f"{self.directory}/helm" for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **homes, "PATH": path, "KUBECONFIG": str(self.nodes.kubeconfig)}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environment)
        said = done.stdout + done.stderr
        assert fails in (None, done.returncode != 0), f"{' '.join(command)}\n{said}\n{self.troubles()}"
        return said if fails else done.stdout

    def found(self, *arguments: str) -> list[dict[str, Any]]:
        """Objects that `kubectl get …` finds."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return items

    def rolled_out(self, *deployments: str) -> None:
        for name in deployments:
            self.kubectl("-n", SYSTEM, "rollout", "status", f"deployment/{name}", f"--timeout={PATIENCE_S:.0f}s")

    def until(self, what: str, look: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE_S
        while not (seen := look()):
            assert time.monotonic() < end, f"not in {PATIENCE_S:.0f} s: {what}\n{self.troubles()}"
            time.sleep(0.5)
        return seen

    def troubles(self) -> str:
        """What a person would look at first when something does not come up."""
        looks = (
            ["get", "pods", "-A", "-o", "wide"],
            ["get", "events", "-A", "--field-selector=type=Warning,reason!=MissingClusterDNS"],
            ["get", "podcliquesets,podgangs", "-A"],
        )
        told = [self.nodes.kubectl(*look, check=False)[-4000:] for look in looks]
        logs = [log for place in self.nodes.places for log in sorted(place.pod_logs.glob(f"{SYSTEM}_*/*/*.log"))]
        return "\n".join([*told, *(f"--- {log}\n{log.read_text()[-1500:]}" for log in logs), self.nodes.why()])


def previous_commit() -> str:
    """The commit of the version that is upgraded from: GROVE_PREVIOUS, or the newest tag, or some commits ago."""
    if named := os.environ.get("GROVE_PREVIOUS"):
        return _git("rev-parse", f"{named}^{{commit}}")
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "HEAD^"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return _git("rev-parse", tag.stdout.strip() if tag.returncode == 0 else "HEAD~12")


def checked_out(commit: str, directory: Path) -> Path:
    """The files of a commit, with both images built from them."""
    archive = directory / "previous.tar"
    _git("archive", "--output", str(archive), commit)
    target = directory / "previous"
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    archive.unlink()
    # The image has the files that git tracks, so the copy becomes a checkout again.
    for command in (["init", "-q"], ["add", "src"]):
        subprocess.run(["git", *command], cwd=target, check=True)
    subprocess.run([sys.executable, str(target / "tools/image"), "--target", str(target / "dist")], check=True)
    return target


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def prepare(nodes: RealCluster, directory: Path, previous: Path, images: Path) -> Installation:
    """Gives the nodes the images of two versions, GPUs by name, and places in the topology."""
    for archives, registry in ((previous / "dist", PREVIOUS_REGISTRY), (images, REGISTRY)):
        for name in ("grove", "grove-initc"):
            nodes.import_image(archives / f"{name}.tar")
            short = f"{name}:{__version__}"
            there = nodes.images(nodes.nodes[0])
            source = next(one for one in (short, f"docker.io/library/{short}") if one in there)
            nodes.tag(source, f"{registry}/{short}")
    found = Installation(nodes, directory)
    capacity = {"status": {"capacity": {"nvidia.com/gpu": "64"}, "allocatable": {"nvidia.com/gpu": "64"}}}
    for name in nodes.nodes:
        found.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(capacity))
        found.kubectl("label", "node", name, *(f"{key}=one" for key in LEVELS.values()))
    return found


def workload(file: str) -> dict[str, Any]:
    """A sample, its engines replaced by the tests' server, small enough for this machine and fit for `restricted`."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "samples" / file).read_text())
    for clique in found["spec"]["template"]["cliques"]:
        pod = clique["spec"]["podSpec"]
        pod.pop("volumes", None)
        pod["securityContext"] = RESTRICTED
        pod["terminationGracePeriodSeconds"] = 1
        for container in pod["containers"]:
            probe = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}
            limits = {"nvidia.com/gpu": 1} if "limits" in container["resources"] else {}
            name = container["name"]
            container.clear()
            container |= {
                "name": name,
                "image": SERVE,
                "securityContext": CONFINED,
                "readinessProbe": probe,
                "env": [{"name": "READY_AFTER", "value": "1s"}],
                "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": limits},
            }
    return found


def touched(on: Installation) -> dict[str, Any]:
    """What changes of every pod of a set if a client touches it: identity, containers, spec, labels."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            pod["metadata"]["labels"],
            pod["spec"],
            sorted(
                (one["name"], one.get("containerID", ""), one["restartCount"])
                for kind in ("containerStatuses", "initContainerStatuses")
                for one in pod["status"].get(kind, ())
            ),
        )
        for pod in on.found("pods", "-n", TEAM)
    }


KEPT_BY_KUBERNETES = {
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "componentstatuses",
    "pods",
    "replicasets.apps",
    "podmetrics.metrics.k8s.io",
}
"""Kinds whose objects come and go by themselves; leases of Grove are asked for by name."""


def everything(on: Installation) -> set[str]:
    """Every object of the cluster as `kind namespace/name`, but for kinds that Kubernetes writes by itself."""
    kinds = on.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    asked = ",".join(sorted(set(kinds) - KEPT_BY_KUBERNETES))
    listed = on.found(asked, "-A")
    there = {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in listed}
    leases = {f"Lease {one['metadata']['namespace']}/{one['metadata']['name']}" for one in on.found("leases", "-A")}
    return there | {one for one in leases if "grove" in one}
