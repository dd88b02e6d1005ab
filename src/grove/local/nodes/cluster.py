"""A cluster of real nodes from outside: start it, reach it, disturb it, end it. See the package for its use."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from grove.local import gobuild
from grove.local.binaries import DEFAULT_VERSION, Say, cache_root, find_or_build, release, to_stderr
from grove.local.controlplane import ControlPlaneError
from grove.local.nodes import leftovers, network, node, preflight
from grove.local.nodes.inside import PLAN, START_S, Plan
from grove.local.nodes.layout import HOLDS, READY, Place, places
from grove.local.ports import LOOPBACK, free_ports
from grove.local.process import Child, birth_mark, spawn
from grove.local.state import GRACE_S, REAL_NODES

STOP_S = 30.0
"""From the end of the first process to that of the last one."""
NODE_MONITOR_GRACE_S = 40
"""Kubernetes' default: a node that does not report for this long is NotReady."""


class Refused(Exception):
    """The API server refuses a request for what it says; asking again does not help."""


@dataclass
class RealCluster:
    """A running cluster. Its files are in `directory`; `first` is its first process.

    `outer` is the process that began it, if that was this one. It ends after `first`.
    """

    directory: Path
    version: str
    first: Child
    places: list[Place]
    outer: Child | None = None

    @property
    def kubeconfig(self) -> Path:
        """Works from this machine and, unchanged, from inside the cluster's network."""
        return self.directory / "kubeconfig"

    @property
    def server(self) -> str:
        """The API server's address on this machine."""
        return f"https://{LOOPBACK}:{Plan.load(self.directory / PLAN).port}"

    @property
    def nodes(self) -> list[str]:
        return [place.name for place in self.places]

    @property
    def inside(self) -> list[str]:
        """The beginning of a command that runs in the control plane's network, from where pods and Services answer."""
        return ["nsenter", f"--net=/proc/{self.first.pid}/ns/net", "--"]

    @cached_property
    def kubectl_program(self) -> Path:
        # Looked for once: the search runs the API server for its version.
        return find_or_build(self.version) / "kubectl"

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """The output of kubectl. Raises Refused or RuntimeError if it fails, unless `check` is off."""
        command = [str(self.kubectl_program), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if check and done.returncode:
            is_refused = any(word in done.stderr for word in ("denied the request", "is invalid", "(BadRequest)"))
            raise (Refused if is_refused else RuntimeError)(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """The object or the list that `kubectl get …` finds, as JSON."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def enter(self) -> None:
        """Moves this thread, and the threads and children it starts from now on, into the control plane's network.

        Pods answer at their addresses there, and Services at their cluster addresses. Host names of the cluster are
        resolved in pods only. Threads that exist already stay where they are.
        """
        network.enter(self.first.pid)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """`enter` for the time of a block."""
        with network.entered(self.first.pid):
            yield

    def import_image(self, archive: Path, nodes: Iterable[str] = ()) -> None:
        """Imports an OCI archive into the named nodes, or into all. Its pods need `imagePullPolicy: IfNotPresent`."""
        wanted = set(nodes) or set(self.nodes)
        for place in self.places:
            if place.name in wanted:
                done = node.ctr(place, "images", "import", str(archive))
                if done.returncode:
                    raise RuntimeError(f"{archive} cannot be imported into {place.name}: {done.stderr.strip()}")

    def images(self, name: str) -> list[str]:
        """The names of the images that a node has."""
        return node.ctr(self._place(name), "images", "ls", "-q").stdout.split()

    def tag(self, image: str, other: str) -> None:
        """Gives an image a second name in every node."""
        for place in self.places:
            node.ctr(place, "images", "tag", "--force", image, other)

    def hold(self, program: str) -> None:
        """Kills a program, such as `node-2-kubelet` or `coredns`, and keeps it down."""
        (self.directory / HOLDS / program).touch()

    def unhold(self, program: str) -> None:
        (self.directory / HOLDS / program).unlink(missing_ok=True)

    def cut(self, name: str) -> None:
        """Pulls a node's network cable."""
        self._link(name, "down")

    def join(self, name: str) -> None:
        """Plugs the cable in again."""
        self._link(name, "up")

    def log_of(self, pod: str, container: str) -> str:
        """The log of a container, from the files of its node. No two pods may have the name `pod`."""
        files = [file for place in self.places for file in place.pod_logs.glob(f"*_{pod}_*/{container}/*.log")]
        return "".join(file.read_text() for file in sorted(files))

    def why(self) -> str:
        """The ends of the logs of every program, for a failure's message."""
        files = sorted((self.directory / "logs").glob("*.log"))
        return "\n".join(f"--- {file.name}\n{Child(file.stem, 0, '', file).log_tail(8)}" for file in files)

    def stop(self, say: Say = to_stderr) -> None:
        """Ends it in order and removes what it leaves."""
        self.first.stop(GRACE_S[REAL_NODES])
        if self.outer is not None:
            self.outer.stop(5)
        clean(self.directory, say)

    def _link(self, name: str, state: str) -> None:
        subprocess.run([*self.inside, "ip", "link", "set", self._place(name).link, state], check=True)

    def _place(self, name: str) -> Place:
        return next(place for place in self.places if place.name == name)


def start(
    directory: Path,
    count: int,
    *,
    version: str = DEFAULT_VERSION,
    images: Sequence[Path] = (),
    detached: bool = False,
    say: Say = to_stderr,
    began: Callable[[RealCluster], object] = lambda cluster: None,
    node_monitor_grace_s: int = NODE_MONITOR_GRACE_S,
    **options: object,
) -> RealCluster:
    """Starts a cluster and returns when every node is Ready. Raises CannotRun or ControlPlaneError.

    `detached` clusters outlive this process. `options` are those of `ControlPlane`. `began` is called before anything
    is ready.
    """
    directory = directory.absolute()
    preflight.check(directory)
    find_or_build(version, say=say)
    root, full = cache_root(), release(version)
    programs = {name: gobuild.build_also(name, full, root, say=say) for name in ("kubelet", "kube-proxy")}
    programs |= {"coredns": gobuild.build_coredns(root, say=say), "pause": gobuild.build_pause(root, say=say)}
    leftovers.clean_dead(say)
    with leftovers.claimed(directory) as claim:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        leftovers.remove_files(directory)
        claim.write(directory)
        cluster = _begin(directory, count, full, detached, claim, programs, node_monitor_grace_s, options)
        try:
            began(cluster)
            _await_ready(cluster)
            for archive in images:
                cluster.import_image(archive)
            return cluster
        except BaseException:
            cluster.first.stop(0)  # and with it everything inside
            claim.clean(say)
            raise


def _begin(
    directory: Path,
    count: int,
    version: str,
    detached: bool,
    claim: leftovers.Claim,
    programs: dict[str, Path],
    node_monitor_grace_s: int,
    options: dict[str, object],
) -> RealCluster:
    with socket.create_server((LOOPBACK, free_ports(1)[0]), backlog=128) as listener:
        plan = Plan(
            str(directory),
            count,
            version,
            listener.getsockname()[1],
            listener.fileno(),
            node_monitor_grace_s,
            options,
            *(str(programs[name]) for name in ("kubelet", "kube-proxy", "coredns", "pause")),
        )
        plan.save(directory / PLAN)
        command = ["unshare", *preflight.NAMESPACES, sys.executable, "-m", "grove.local.nodes.inside"]
        log = directory / "logs" / f"{REAL_NODES}.log"
        log.parent.mkdir(exist_ok=True)
        log.unlink(missing_ok=True)
        inherited = (listener.fileno(), claim.descriptor)
        outer = spawn(REAL_NODES, [*command, str(directory / PLAN)], log, detached=detached, pass_fds=inherited)
    return RealCluster(directory, version, _first_process(outer), places(count, directory), outer)


def clean(directory: Path, say: Say) -> bool:
    """Removes what a cluster in that directory left; False if there is nothing. Raises CannotRun while it runs."""
    with leftovers.claimed(directory, wait_s=STOP_S) as claim:
        return claim.clean(say)


@contextmanager
def real_nodes(
    count: int = 2,
    *,
    images: Sequence[Path] = (),
    directory: Path | None = None,
    say: Say = to_stderr,
    **options: Any,
) -> Iterator[RealCluster]:
    """A cluster for the time of a `with` block; it dies with this process."""
    own = Path(tempfile.mkdtemp(prefix="grove-nodes-")) if directory is None else directory
    try:
        cluster = start(own, count, images=images, say=say, **options)
        try:
            yield cluster
        finally:
            cluster.stop(say)
    finally:
        if directory is None:
            shutil.rmtree(own, ignore_errors=True)


def _first_process(outer: Child) -> Child:
    """The process that `unshare` started: the first of the namespaces, by its number outside of them."""
    end = time.monotonic() + START_S
    while outer.alive() and time.monotonic() < end:
        numbers = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        if numbers and (birth := birth_mark(int(numbers[0]))):
            return Child(REAL_NODES, int(numbers[0]), birth, outer.log)
        time.sleep(0.01)
    raise ControlPlaneError(f"the namespaces of the real nodes did not come up:\n{outer.log_tail()}")


def _await_ready(cluster: RealCluster) -> None:
    end = time.monotonic() + 2 * START_S
    while not (cluster.directory / READY).exists():
        if not cluster.first.alive() or time.monotonic() > end:
            raise ControlPlaneError(f"the real nodes did not come up:\n{cluster.first.log_tail(40)}")
        time.sleep(0.1)
