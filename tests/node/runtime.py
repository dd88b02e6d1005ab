"""A real node in the namespaces that `python -m tests.node` made: containerd, a bridge for pods, kubelet, kube-proxy.

Nothing here cleans up but processes: interfaces, mounts and what is written under /var end with the namespaces, and
the cgroups and kernel settings are put right by whoever made them.
"""

from __future__ import annotations

import contextlib
import json
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
from grove.local.blueprint import SERVICE_RANGE
from grove.local.controlplane import ControlPlane
from grove.local.process import Child, spawn
from tests.node.images import program_image

VERSION = "1.36.3"
NODE = "worker"
BRIDGE, NODE_ADDRESS, POD_RANGE = "cni0", "10.22.0.1", "10.22.0.0/24"
API_ADDRESS = "10.0.0.1"
"""The Service `kubernetes`: the first address of the control plane's service range."""
CGROUP = "grove-node"
"""All cgroups of the node are below this one, so that they can be found again and removed."""
PAUSE = "docker.io/library/grove-pause:test"
SERVE = "docker.io/library/grove-serve:test"
"""The server that stands for engines, see serve.go."""
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

    def start(self, *archives: Path) -> None:
        """Brings the node up with these images beside the tests' own; nothing else can be pulled."""
        self._containerd()
        for archive in (
            program_image("pause.go", PAUSE, self.directory),
            program_image("serve.go", SERVE, self.directory),
            *archives,
        ):
            self.ctr("images", "import", str(archive))
        kubelet = gobuild.build_also("kubelet", VERSION, cache_root(), say=to_stderr)
        self._spawn("kubelet", [str(kubelet), *self._kubelet_flags()])

    def start_proxy(self) -> None:
        """kube-proxy: Services are reached at their cluster addresses, from pods and from the API server."""
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": str(self._plane.kubeconfig)}, "hostnameOverride": NODE,
            "clusterCIDR": POD_RANGE, "iptables": {"masqueradeAll": True},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
        }  # fmt: skip
        file = self.directory / "kube-proxy.json"
        file.write_text(json.dumps(config, indent=2))
        program = gobuild.build_also("kube-proxy", VERSION, cache_root(), say=to_stderr)
        self._spawn("kube-proxy", [str(program), f"--config={file}", "--v=2"])

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

    def ctr(self, *command: str) -> str:
        """What containerd's own command line says."""
        done = self._ctr(*command)
        assert done.returncode == 0, f"ctr {' '.join(command)}: {done.stderr}"
        return done.stdout

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
    _ip(f"link add {BRIDGE} type bridge")
    _ip(f"address add {NODE_ADDRESS}/24 dev {BRIDGE}")
    _ip(f"link set {BRIDGE} up")


def route_services() -> None:
    """A way for packets to cluster addresses, on which kube-proxy turns them to pods."""
    _ip(f"route add {SERVICE_RANGE} dev {BRIDGE}")


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def _await(look: Callable[[], bool], why: Callable[[], str]) -> None:
    end = time.monotonic() + START_S
    while not look():
        assert time.monotonic() < end, why()
        time.sleep(0.1)


@contextmanager
def api_service(port: int) -> Iterator[None]:
    """Without kube-proxy: connections to the Service `kubernetes` are passed on to the API server."""
    _ip(f"address add {API_ADDRESS}/32 dev lo")

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
