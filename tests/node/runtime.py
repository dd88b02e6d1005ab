"""A real node inside the namespaces that `python -m tests.node` made: containerd, a bridge for pods, and a kubelet.

Nothing here cleans up but processes: interfaces, mounts and what is written under /var end with the namespaces, and
the cgroups and kernel settings are put right by whoever made them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from grove.local import gobuild
from grove.local.binaries import cache_root, to_stderr
from grove.local.controlplane import ControlPlane
from grove.local.process import Child, spawn
from tests.node.images import HERE, pause_image, python_image

VERSION = "1.36.3"
NODE = "worker"
BRIDGE, NODE_ADDRESS, POD_RANGE = "cni0", "10.22.0.1", "10.22.0.0/24"
API_ADDRESS = "10.0.0.1"
"""The Service `kubernetes`: the first address of the control plane's service range."""
CGROUP = "grove-node"
"""All cgroups of the node are below this one, so that they can be found again and removed."""
PAUSE = "docker.io/library/grove-pause:test"
PLUGINS = Path("/usr/lib/cni")
START_S = 60.0


def startup_image() -> tuple[str, str]:
    """The image of the init container as the operator is told it, and in full."""
    from grove import __version__

    return "grove-initc", f"docker.io/library/grove-initc:{__version__}"


class RealNode:
    """One kubelet with its container runtime, for a control plane in the same network namespace."""

    def __init__(self, directory: Path, plane: ControlPlane) -> None:
        self.directory, self._plane = directory, plane
        self.pod_logs = directory / "pod-logs"
        self._socket = directory / "containerd.sock"
        self._children: list[Child] = []

    def start(self) -> None:
        self._containerd()
        self._images()
        kubelet = gobuild.build_also("kubelet", VERSION, cache_root(), say=to_stderr)
        self._spawn("kubelet", [str(kubelet), *self._kubelet_flags()])

    def stop(self) -> None:
        for child in reversed(self._children):
            child.stop(10)

    def log_of(self, pod: str, container: str) -> str:
        """What a container has said so far; `pod` is its name, which no two pods share."""
        files = sorted(self.pod_logs.glob(f"*_{pod}_*/{container}/*.log"))
        return "".join(file.read_text() for file in files)

    def why(self) -> str:
        """The ends of the logs, for a failure's message."""
        return "\n".join(f"--- {child.name}\n{child.log_tail(15)}" for child in self._children)

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        self._children.append(spawn(name, command, self.directory / f"{name}.log"))

    def _containerd(self) -> None:
        network = {
            "cniVersion": "1.0.0", "name": "pods",
            "plugins": [
                {
                    "type": "bridge", "bridge": BRIDGE, "isGateway": True,
                    "ipam": {
                        "type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(self.directory / "addresses"),
                    },
                }
            ],
        }  # fmt: skip
        plugins = self.directory / "cni"
        plugins.mkdir()
        (plugins / "pods.conflist").write_text(json.dumps(network))
        config = f"""
version = 2
root = "{self.directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{plugins}"
"""
        file = self.directory / "containerd.toml"
        file.write_text(config)
        self._spawn("containerd", ["containerd", "--config", str(file)])
        _await(lambda: self._ctr("version").returncode == 0, self.why)

    def _images(self) -> None:
        pause = self.directory / "pause"
        go = gobuild.find_go(cache_root(), to_stderr)
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
        command = [str(go), "build", "-trimpath", "-ldflags=-s -w", "-o", str(pause), str(HERE / "pause.go")]
        subprocess.run(command, env=environment, cwd=HERE, check=True)
        for archive, write in (
            (self.directory / "pause.tar", lambda at: pause_image(PAUSE, pause, at)),
            (self.directory / "python.tar", lambda at: python_image(startup_image()[1], at)),
        ):
            write(archive)
            imported = self._ctr("images", "import", str(archive))
            assert imported.returncode == 0, imported.stderr
            archive.unlink()

    def _ctr(self, *command: str) -> subprocess.CompletedProcess[str]:
        whole = ["ctr", "--address", str(self._socket), "--namespace", "k8s.io", *command]
        return subprocess.run(whole, capture_output=True, text=True, check=False)

    def _kubelet_flags(self) -> list[str]:
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                               "x509": {"clientCAFile": str(self._plane.blueprint.authority_file)}},
            "authorization": {"mode": "AlwaysAllow"},
            "failCgroupV1": False, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{CGROUP}", "failSwapOn": False,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
            "podLogsDir": str(self.pod_logs), "resolvConf": "", "volumePluginDir": str(self.directory / "plugins"),
        }  # fmt: skip
        file = self.directory / "kubelet.json"
        file.write_text(json.dumps(config, indent=2))
        access = self._plane.client_kubeconfig(f"system:node:{NODE}", ["system:masters"])
        flags = {
            "config": file, "kubeconfig": access, "hostname-override": NODE, "node-ip": NODE_ADDRESS,
            "root-dir": self.directory / "kubelet", "cert-dir": self.directory / "kubelet-pki", "v": 2,
        }  # fmt: skip
        return [f"--{flag}={value}" for flag, value in flags.items()]


def lay_network() -> None:
    """The bridge pods are plugged into; its address is the node's, since a kubelet refuses to be at 127.0.0.1."""
    for command in (
        f"link add {BRIDGE} type bridge",
        f"address add {NODE_ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"address add {API_ADDRESS}/32 dev lo",
    ):
        subprocess.run(["ip", *command.split()], check=True)


def _await(look: Callable[[], bool], why: Callable[[], str]) -> None:
    end = time.monotonic() + START_S
    while not look():
        assert time.monotonic() < end, why()
        time.sleep(0.1)


@contextmanager
def api_service(port: int) -> Iterator[None]:
    """kube-proxy's part: connections to the Service `kubernetes` are passed on to the API server."""

    class PassedOn(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as there:
                back = threading.Thread(target=_pump, args=(there, self.request), daemon=True)
                back.start()
                _pump(self.request, there)
                back.join()

    with socketserver.ThreadingTCPServer((API_ADDRESS, 443), PassedOn) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, name="kubernetes-service", daemon=True).start()
        yield
        server.shutdown()


def _pump(here: socket.socket, there: socket.socket) -> None:
    with contextlib.suppress(OSError):  # one side went away; the shutdown tells the other
        while chunk := here.recv(65536):
            there.sendall(chunk)
    with contextlib.suppress(OSError):
        there.shutdown(socket.SHUT_RDWR)


def grove(name: str, directory: Path, *arguments: str, **variables: str) -> Child:
    """A program of ours, as its own process."""
    command = ["env", *(f"{key}={value}" for key, value in variables.items()), sys.executable, "-m", "grove"]
    return spawn(f"grove-{name}", [*command, name, *arguments], directory / f"grove-{name}.log")
