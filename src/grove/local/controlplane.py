"""Start, disturb and stop a real Kubernetes control plane on this machine.

`ControlPlane` is for tests: it dies with the process that made it. `up` and `down` leave one running detached, found
again through `state.json` in its directory. A control plane lives from start to stop; its data does not outlive it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from grove.local.binaries import DEFAULT_VERSION, Say, cache_root, find_or_build, release, to_stderr
from grove.local.blueprint import Blueprint, Options, Ports, Settings
from grove.local.loopback import Loopback, RequestFailed
from grove.local.ports import free_ports
from grove.local.process import Child, spawn
from grove.local.state import GRACE_S, State, stop_in_order

READY_TIMEOUT_S = 120.0  # ten times the usual, for machines that are busy with something else
_POLL_S = 0.05
_TRIES = 3


class ControlPlaneError(RuntimeError):
    """A part of the control plane did not come up; the message ends with the tail of its log."""


class PortTaken(ControlPlaneError):
    """Another process took a port between the check and the start."""


class ControlPlane:
    """etcd and an API server, with controllers and a scheduler if asked for. Options: see `blueprint.Settings`."""

    def __init__(
        self,
        directory: Path | str,
        version: str = DEFAULT_VERSION,
        *,
        detached: bool = False,
        say: Say = to_stderr,
        **options: Unpack[Options],
    ) -> None:
        self.directory = Path(directory).absolute()
        self.version = version
        self.settings = Settings(**options)
        self._detached = detached
        self._say = say
        self._blueprint: Blueprint | None = None
        self._children: dict[str, Child] = {}
        self._on_change: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def blueprint(self) -> Blueprint:
        if self._blueprint is None:
            raise ControlPlaneError("the control plane was not started")
        return self._blueprint

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.blueprint.kubeconfig

    @property
    def server(self) -> str:
        """The API server's address, the same over restarts."""
        return self.blueprint.server

    @property
    def kubectl(self) -> Path:
        return self.blueprint.binaries / "kubectl"

    @property
    def logs_dir(self) -> Path:
        return self.blueprint.logs

    @property
    def children(self) -> list[Child]:
        return list(self._children.values())

    def client_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig file for another user in the given groups."""
        return self.blueprint.client_kubeconfig(user, groups)

    def start(self) -> None:
        """Start everything and return when it answers. If a part fails, what did start is stopped again."""
        if self._children:
            raise ControlPlaneError(f"the control plane in {self.directory} is already started")
        binaries = find_or_build(self.version, say=self._say)
        for _ in range(_TRIES - 1):
            with contextlib.suppress(PortTaken):
                return self._start(binaries)
        return self._start(binaries)

    def _start(self, binaries: Path) -> None:
        ports = Ports(*free_ports(5))
        if self.settings.apiserver_port:
            ports = replace(ports, apiserver=self.settings.apiserver_port)
        self._blueprint = Blueprint(self.directory, binaries, ports, self.settings)
        self._blueprint.prepare()
        shutil.rmtree(self._blueprint.etcd_data, ignore_errors=True)
        try:
            self._spawn("etcd", self._blueprint.etcd())
            self._await("etcd", self._blueprint.etcd_client(), ["/readyz"])
            self.start_apiserver()
            self._start_controllers()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything that runs; harmless if nothing does. The directory stays, for its logs."""
        stop_in_order(self.children)
        self._children.clear()
        self._on_change()
        if self._blueprint is not None:
            shutil.rmtree(self._blueprint.etcd_data, ignore_errors=True)

    def start_apiserver(self) -> None:
        """Start the API server, on the port it had before if it was stopped."""
        self._spawn("kube-apiserver", self.blueprint.apiserver())
        # /readyz can be ahead of the loop that makes the first namespaces, and nothing can be made without one.
        self._await("kube-apiserver", self.blueprint.apiserver_client(), ["/readyz", "/api/v1/namespaces/default"])

    def stop_apiserver(self) -> None:
        """Stop only the API server: clients see refused connections."""
        self._children.pop("kube-apiserver").stop(GRACE_S["kube-apiserver"])
        self._on_change()

    def restart_apiserver(self) -> None:
        """Stop and start the API server on the same port. Its watch cache starts again from what etcd still has."""
        self.stop_apiserver()
        self.start_apiserver()

    def pause_apiserver(self) -> None:
        """Freeze the API server: connections stay open and nothing is answered."""
        self._children["kube-apiserver"].signal(signal.SIGSTOP)

    def resume_apiserver(self) -> None:
        self._children["kube-apiserver"].signal(signal.SIGCONT)

    def compact_etcd(self) -> int:
        """Drop etcd's history up to now and return the revision.

        A running API server still serves recent watches from its own cache; `restart_apiserver` afterwards makes
        old resource versions expire for good (410 Gone).
        """
        etcd = self.blueprint.etcd_client()
        some_key = base64.b64encode(b"/registry").decode()
        answer = etcd.call_json("POST", "/v3/kv/range", {"key": some_key, "count_only": True})
        revision = int(answer["header"]["revision"])
        etcd.call("POST", "/v3/kv/compaction", {"revision": str(revision), "physical": True}, timeout_s=30)
        return revision

    def _start_controllers(self) -> None:
        blueprint, ports = self.blueprint, self.blueprint.ports
        admin = blueprint.apiserver_client()
        if self.settings.controller_manager:
            self._spawn("kube-controller-manager", blueprint.controller_manager())
        if self.settings.scheduler:
            self._spawn("kube-scheduler", blueprint.scheduler())
            scheduler = Loopback(ports.scheduler, admin.authority, admin.certificate, admin.key)
            self._await("kube-scheduler", scheduler, ["/readyz"])
        if self.settings.controller_manager:
            # Its own health check says nothing about its controllers; the first service account does.
            self._await("kube-controller-manager", admin, ["/api/v1/namespaces/default/serviceaccounts/default"])

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        if name in self._children:
            raise ControlPlaneError(f"{name} is already running")
        self._children[name] = spawn(name, command, self.logs_dir / f"{name}.log", detached=self._detached)
        self._on_change()

    def _await(self, name: str, client: Loopback, paths: Sequence[str]) -> None:
        child, deadline = self._children[name], time.monotonic() + READY_TIMEOUT_S
        for path in paths:
            while True:
                try:
                    client.call("GET", path)
                    break
                except RequestFailed as problem:
                    if not child.alive():
                        tail = child.log_tail()
                        error = PortTaken if "address already in use" in tail else ControlPlaneError
                        raise error(f"{name} ended; {child.log} says:\n{tail}") from None
                    if time.monotonic() > deadline:
                        raise ControlPlaneError(
                            f"{name} was not ready after {READY_TIMEOUT_S:.0f} s ({problem}); "
                            f"{child.log} says:\n{child.log_tail()}"
                        ) from None
                time.sleep(_POLL_S)


def up(
    directory: Path | str,
    version: str = DEFAULT_VERSION,
    *,
    say: Say = to_stderr,
    **options: Unpack[Options],
) -> State:
    """Start a control plane that outlives this process; if one is up in that directory, say so and leave it alone.

    Scheduler and controllers run unless switched off. What a crash or an interrupted `up` left behind is ended first.
    """
    options.setdefault("scheduler", True)
    options.setdefault("controller_manager", True)
    directory = Path(directory).absolute()
    with only_one(directory):
        before = State.load(directory)
        if before is not None and before.running():
            say(f"already up: Kubernetes {before.version} at {before.server}, kubeconfig {before.kubeconfig}")
            return before
        if before is not None:
            stop_in_order(before.children)
            State.forget(directory)
        plane = ControlPlane(directory, version, detached=True, say=say, **options)
        plane._on_change = lambda: _remember(plane)
        plane.start()
        state = _remember(plane, ready=True)
        say(f"up: Kubernetes {state.version} at {state.server}, kubeconfig {state.kubeconfig}")
        return state


def down(directory: Path | str, *, say: Say = to_stderr) -> bool:
    """Stop the control plane that `up` left in that directory and say what goes and what stays; False if none is up."""
    directory = Path(directory).absolute()
    with only_one(directory) if directory.is_dir() else contextlib.nullcontext():
        state = State.load(directory)
        if state is None:
            say(f"nothing is up in {directory}")
            return False
        stop_in_order(state.children)
        State.forget(directory)
        shutil.rmtree(directory / "etcd", ignore_errors=True)
        say(f"down: Kubernetes {state.version} at {state.server}")
        say(f"ended: {', '.join(child.name for child in state.children)}")
        say(f"removed: everything that was stored in the cluster ({directory / 'etcd'})")
        left = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
        say(f"left in {directory}: {', '.join(left)}; and the programs that were built, in {cache_root()}")
        return True


def accompany(directory: Path | str, name: str, command: Sequence[str]) -> Child:
    """Run a program beside the control plane that is up in that directory; `down` ends it too.

    If it runs already it is left alone, so that a second `grove up` only starts what died.
    """
    directory = Path(directory).absolute()
    with only_one(directory):
        state = State.load(directory)
        if state is None or not state.running():
            raise ControlPlaneError(f"nothing is up in {directory}")
        there = next((child for child in state.children if child.name == name), None)
        if there is not None and there.alive():
            return there
        child = spawn(name, command, directory / "logs" / f"{name}.log", detached=True)
        state.children = [other for other in state.children if other.name != name] + [child]
        state.save(directory)
        return child


def status(directory: Path | str) -> State | None:
    """The control plane that is up in that directory with all its parts, or None."""
    state = State.load(Path(directory).absolute())
    return state if state is not None and state.running() else None


def _remember(plane: ControlPlane, *, ready: bool = False) -> State:
    # Written after every single start: an `up` that is killed halfway must not leave processes without a record.
    state = State(release(plane.version), plane.server, plane.kubeconfig, plane.children, ready)
    if state.children:
        state.save(plane.directory)
    else:
        State.forget(plane.directory)
    return state


@contextlib.contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Keeps every other process out that would start or end something in that directory."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
