"""One real node: the commands and configuration files of its containerd, kubelet and kube-proxy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from grove.local.blueprint import Blueprint
from grove.local.nodes.layout import DNS_ADDRESS, DNS_DOMAIN, HUB, PAUSE, PLUGINS, Place
from grove.local.nodes.leftovers import cgroup
from grove.local.nodes.preflight import HIDDEN

# A node has its own /run, /var/lib and /var/log: containerd and the kubelet have paths there that no option changes.
_HOLD = " && ".join([*(f"mount -t tmpfs tmpfs {folder}" for folder in HIDDEN), 'touch "$1"', "exec sleep infinity"])


def holder(place: Place) -> list[str]:
    """The process that keeps the node's namespaces. It makes the file `held_file` when they are ready."""
    return ["unshare", "--net", "--mount", "sh", "-c", _HOLD, "sh", str(held_file(place))]


def held_file(place: Place) -> Path:
    return place.folder / "namespaces"


def containerd(place: Place) -> list[str]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": place.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(place.folder / "addresses"),
    }
    network = {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipam": addresses}, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }
    networks = place.folder / "cni"
    networks.mkdir(parents=True, exist_ok=True)
    (networks / "pods.conflist").write_text(json.dumps(network))
    # Without restrict_oom_score_adj runc fails where a container may not lower that value.
    config = f"""
version = 2
root = "{place.folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "{place.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{networks}"
"""
    file = place.folder / "containerd.toml"
    file.write_text(config)
    return ["containerd", "--config", str(file)]


def kubelet(place: Place, program: Path, plane: Blueprint, shared_by: int) -> list[str]:
    """`shared_by`: how many nodes share this machine's memory, so that no two promise the same bytes."""
    reserved = {"memory": f"{_memory_kib() * (shared_by - 1) // shared_by}Ki"} if shared_by > 1 else {}
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{place.socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(plane.authority_file)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup(place.directory)}/{place.name}",
        "failSwapOn": False,
        "systemReserved": reserved,
        # Images cannot be pulled again, so the kubelet may not remove any.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "podLogsDir": str(place.pod_logs),
        "volumePluginDir": str(place.folder / "plugins"),
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": DNS_DOMAIN,
        "resolvConf": "",
    }
    file = place.folder / "kubelet.json"
    file.write_text(json.dumps(config, indent=2))
    access = plane.client_kubeconfig(f"system:node:{place.name}", ["system:masters"], at=HUB)
    flags = {
        "config": file,
        "kubeconfig": access,
        "hostname-override": place.name,
        "node-ip": place.address,
        "root-dir": place.folder / "kubelet",
        "cert-dir": place.folder / "kubelet-pki",
        "v": 2,
    }
    return [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]


def proxy(place: Place, program: Path, plane: Blueprint, folder: Path) -> list[str]:
    """kube-proxy with the node's name. The control plane's namespace has one too: the API server calls webhooks."""
    access = plane.client_kubeconfig("system:kube-proxy", ["system:node-proxier"], at=HUB)
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(access)},
        "hostnameOverride": place.name,
        "clusterCIDR": "10.244.0.0/16",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
    file = folder / "kube-proxy.json"
    file.write_text(json.dumps(config, indent=2))
    return [str(program), f"--config={file}", "--v=2"]


def ctr(place: Place, *command: str) -> subprocess.CompletedProcess[str]:
    """containerd's own command line. Its socket is a file, so it works from outside of the namespaces too."""
    whole = ["ctr", "--address", str(place.socket), "--namespace", "k8s.io", *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False)


def _memory_kib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
