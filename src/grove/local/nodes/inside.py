"""The first process of a cluster of real nodes, in namespaces of its own: starts everything, keeps it, ends it.

A program that ends is started again. It stays down while a file of its name is in the folder `held`. So a test can stop
a kubelet or the DNS from outside. The names are `node-1-kubelet`, `node-1-containerd`, `node-1-kube-proxy` and so on,
`hub-kube-proxy` and `coredns`.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from grove.local.binaries import to_stderr
from grove.local.controlplane import ControlPlane, ControlPlaneError
from grove.local.loopback import Loopback, RequestFailed
from grove.local.nodes import dns, network, node
from grove.local.nodes.layout import HOLDS, HUB, PAUSE, READY, Place, places
from grove.local.nodes.leftovers import cgroup_roots
from grove.local.oci import Tree, write_archive
from grove.local.process import Child, spawn
from grove.local.relay import relay

PLAN = "plan.json"
START_S = 180.0
"""A part that is not up by then is stuck; on a quiet machine all of it takes 15 s."""
LOOK_S = 0.2
PODS_GONE_S = 15.0
RESTART_S = 1.0


@dataclass(frozen=True)
class Plan:
    """The settings that `cluster` passes to `inside` in a file, its only argument."""

    directory: str
    count: int
    version: str
    port: int
    listener: int
    node_monitor_grace_s: int
    options: dict[str, object]
    kubelet: str
    kube_proxy: str
    coredns: str
    pause: str

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, file: Path) -> Plan:
        return cls(**json.loads(file.read_text()))


@dataclass
class Program:
    """One program that is kept running."""

    name: str
    command: Sequence[str]
    log: Path
    child: Child | None = None
    since: float = field(default=float("-inf"))

    def keep(self, *, down: bool) -> None:
        """Starts it if it is not running, kills it if it shall be down."""
        alive = self.child is not None and self.child.alive()
        if down and alive and self.child is not None:
            self.child.signal(signal.SIGKILL)
        elif not down and not alive and time.monotonic() - self.since > RESTART_S:
            self.child, self.since = spawn(self.name, self.command, self.log), time.monotonic()


class Nodes:
    """The nodes of one control plane, and DNS for their pods."""

    def __init__(self, plan: Plan, plane: ControlPlane) -> None:
        self._plan, self._plane = plan, plane
        self._directory = Path(plan.directory)
        self.places = places(plan.count, self._directory)
        self._holders: list[Child] = []
        self.programs: list[Program] = []

    def start(self) -> None:
        for root in cgroup_roots(self._directory):
            for place in self.places:
                (root / place.name).mkdir(parents=True, exist_ok=True)
        archive = self._pause_image()
        for place in self.places:
            self._prepare(place)
        for place in self.places:
            _await(f"containerd of {place.name}", partial(_answers, place), self.why)
            done = node.ctr(place, "images", "import", str(archive))
            if done.returncode:
                raise ControlPlaneError(f"the pause image cannot be imported: {done.stderr}")
        blueprint = self._plane.blueprint
        for place in self.places:
            kubelet = node.kubelet(place, Path(self._plan.kubelet), blueprint, len(self.places))
            self._run(f"{place.name}-kubelet", [*self._inside(place), *kubelet])
            proxy = node.proxy(place, Path(self._plan.kube_proxy), blueprint, place.folder)
            self._run(f"{place.name}-kube-proxy", [*self._inside(place), *proxy])
        hub_proxy = node.proxy(self.places[0], Path(self._plan.kube_proxy), blueprint, self._directory)
        self._run("hub-kube-proxy", hub_proxy)
        self._run("coredns", dns.coredns(Path(self._plan.coredns), blueprint, self._directory))
        client = blueprint.apiserver_client()
        for path, content in dns.objects():
            client.call("POST", path, content)
        for place in self.places:
            _await(f"{place.name} to be Ready", partial(_is_ready, client, place.name), self.why)

    def keep(self) -> None:
        """One look at every program."""
        for program in self.programs:
            program.keep(down=(self._directory / HOLDS / program.name).exists())
        _reap({child.pid for child in self._children()})

    def stop(self) -> None:
        """Pods first, so that their volumes and addresses are given back; then kubelets, then containerd."""
        client = self._plane.blueprint.apiserver_client()
        with contextlib.suppress(RequestFailed):
            for pod in _pods(client):
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=1"
                client.call("DELETE", path)
            end = time.monotonic() + PODS_GONE_S
            while _pods(client) and time.monotonic() < end:
                time.sleep(LOOK_S)
        for program in reversed(self.programs):
            if program.child is not None:
                program.child.stop(3)

    def why(self) -> str:
        """The ends of the logs, for a failure's message."""
        return "\n".join(f"--- {child.name}\n{child.log_tail(8)}" for child in self._children())

    def _children(self) -> Iterator[Child]:
        yield from self._holders
        yield from self._plane.children
        yield from (program.child for program in self.programs if program.child is not None)

    def _prepare(self, place: Place) -> None:
        place.folder.mkdir(parents=True)
        child = spawn(f"{place.name}-namespaces", node.holder(place), self._plane.logs_dir / f"{place.name}.log")
        self._holders.append(child)
        _await(f"the namespaces of {place.name}", node.held_file(place).exists, self.why)
        network.plug_in(place, child.pid, [other for other in self.places if other != place])
        self._run(f"{place.name}-containerd", [*self._inside(place), *node.containerd(place)])

    def _inside(self, place: Place) -> list[str]:
        return network.inside_of(self._holders[place.number - 1].pid)

    def _run(self, name: str, command: Sequence[str]) -> None:
        program = Program(name, command, self._plane.logs_dir / f"{name}.log")
        program.keep(down=False)
        self.programs.append(program)

    def _pause_image(self) -> Path:
        tree = Tree()
        tree.add("pause", Path(self._plan.pause).read_bytes(), 0o755)
        archive = self._directory / "pause.tar"
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        write_archive(archive, PAUSE, [tree.layer()], {"Entrypoint": ["/pause"], "User": "65535:65535"}, arch)
        return archive


def main(arguments: Sequence[str]) -> int:
    plan = Plan.load(Path(arguments[0]))
    directory = Path(plan.directory)
    signal.signal(signal.SIGTERM, _stop)
    shutil.rmtree(directory / HOLDS, ignore_errors=True)
    (directory / HOLDS).mkdir(parents=True)
    network.lay_hub()
    relay(socket.socket(fileno=plan.listener), plan.port)
    plane = ControlPlane(
        directory,
        plan.version,
        controller_manager=True,
        aggregator_routing=False,
        reachable_at=HUB,
        apiserver_port=plan.port,
        node_monitor_grace_s=plan.node_monitor_grace_s,
        say=to_stderr,
        **{"scheduler": True, **plan.options},  # type: ignore[arg-type]
    )
    with plane:
        nodes = Nodes(plan, plane)
        try:
            nodes.start()
            names = [place.name for place in nodes.places]
            _write(directory / READY, {"server": plane.server, "kubeconfig": str(plane.kubeconfig), "nodes": names})
            while all(child.alive() for child in plane.children):
                nodes.keep()
                time.sleep(LOOK_S)
            ended = next(child for child in plane.children if not child.alive())
            raise ControlPlaneError(f"{ended.name} ended; {ended.log} says:\n{ended.log_tail()}")
        except SystemExit:
            return 0
        finally:
            nodes.stop()


def _write(file: Path, content: object) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    fresh.rename(file)


def _is_ready(client: Loopback, name: str) -> bool:
    try:
        answer = client.call_json("GET", f"/api/v1/nodes/{name}")
    except RequestFailed:
        return False
    conditions = answer.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _answers(place: Place) -> bool:
    return node.ctr(place, "version").returncode == 0


def _pods(client: Loopback) -> list[dict[str, dict[str, str]]]:
    pods: list[dict[str, dict[str, str]]] = client.call_json("GET", "/api/v1/pods")["items"]
    return pods


def _await(what: str, look: Callable[[], bool], why: Callable[[], str]) -> None:
    end = time.monotonic() + START_S
    while not look():
        if time.monotonic() > end:
            raise ControlPlaneError(f"waited {START_S:.0f} s for {what}\n{why()}")
        time.sleep(LOOK_S)


def _reap(ours: set[int]) -> None:
    """Collects processes whose parents ended: they become children of the first process of a namespace."""
    while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and seen.si_pid not in ours:
        os.waitpid(seen.si_pid, os.WNOHANG)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)  # an exception, so that everything ends in order on the way out


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
