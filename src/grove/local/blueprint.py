"""What a control plane consists of on disk and on the command line: certificates, kubeconfigs, arguments.

Everything here is decided before the first process starts; `grove.local.controlplane` brings it to life.
All servers listen on 127.0.0.1 only and speak TLS, etcd included, so that RBAC cannot be walked around.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from grove.local.loopback import Loopback
from grove.local.pki import SERVER_NAMES, Authority, Pair, service_account_keys, write_private
from grove.local.ports import LOOPBACK

SERVICE_RANGE = "10.0.0.0/24"
ADMIN_USER, ADMIN_GROUP = "grove-admin", "system:masters"
FRONT_PROXY = "front-proxy-client"
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - of a network namespace that holds nothing but the cluster
QPS, BURST = 500, 1000  # the defaults (20 to 50) would throttle the controllers under a test's load


class Options(TypedDict, total=False):
    """The keyword arguments of `ControlPlane` and `up`; `Settings` says what each means."""

    feature_gates: Mapping[str, bool]
    runtime_config: Mapping[str, bool]
    scheduler: bool
    controller_manager: bool
    aggregator_routing: bool
    node_monitor_grace_s: int
    reachable_at: str
    apiserver_port: int
    hpa_sync_period_s: float
    hpa_downscale_stabilization_s: float
    scheduler_config: Mapping[str, object]
    extra_etcd_args: Sequence[str]
    extra_apiserver_args: Sequence[str]
    extra_controller_manager_args: Sequence[str]
    extra_scheduler_args: Sequence[str]


@dataclass(frozen=True)
class Settings:
    """How a control plane differs from the plain one. Extra arguments come last and so win over ours."""

    feature_gates: Mapping[str, bool] = field(default_factory=dict)  # for API server, controllers and scheduler
    # Adds groups or versions, e.g. {"scheduling.k8s.io/v1alpha2": True}. Switching all but a few groups off is fatal
    # to the API server: its own start-up hooks need most of them.
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    scheduler: bool = False
    controller_manager: bool = False
    # True: a Service behind an APIService or webhook is reached at its endpoints, which may not be loopback addresses.
    # False: at its cluster address, or, for type ExternalName, at that name (`localhost` works).
    aggregator_routing: bool = True
    # Nodes in tests have no kubelet and send no heartbeats; with the default they would turn NotReady after 50 s.
    node_monitor_grace_s: int = 24 * 3600
    # An address of this machine at which kubelets and pods reach the API server; without one only loopback is served.
    reachable_at: str = ""
    apiserver_port: int = 0  # 0: any that is free
    hpa_sync_period_s: float = 15.0
    hpa_downscale_stabilization_s: float = 300.0
    scheduler_config: Mapping[str, object] = field(default_factory=dict)  # fields of KubeSchedulerConfiguration
    extra_etcd_args: Sequence[str] = ()
    extra_apiserver_args: Sequence[str] = ()
    extra_controller_manager_args: Sequence[str] = ()
    extra_scheduler_args: Sequence[str] = ()


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


class Blueprint:
    """The files and command lines of one control plane in one directory."""

    def __init__(self, directory: Path, binaries: Path, ports: Ports, settings: Settings) -> None:
        self.directory = directory
        self.binaries = binaries
        self.ports = ports
        self.settings = settings
        self.logs = directory / "logs"
        self.kubeconfig = directory / "kubeconfig"
        self.etcd_data = directory / "etcd"
        self._pki = directory / "pki"
        self._users = directory / "users"
        # Three authorities: a certificate for the API server must not be valid for etcd, nor for the front proxy, which
        # may act for any user.
        self._authority = Authority("grove-kubernetes")
        self._etcd_authority = Authority("grove-etcd")
        self._front_proxy_authority = Authority("grove-front-proxy")

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.ports.apiserver}"

    @property
    def authority_file(self) -> Path:
        return self._pki / "ca.crt"

    def prepare(self) -> None:
        """Write certificates, keys and kubeconfigs."""
        for directory in (self.directory, self.logs, self._pki, self._users):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        pairs = {
            "ca": self._authority.pair,
            "etcd-ca": self._etcd_authority.pair,
            "front-proxy-ca": self._front_proxy_authority.pair,
            "apiserver": self._authority.server("kube-apiserver", self._server_names()),
            "controller-manager": self._authority.server("kube-controller-manager"),
            "scheduler": self._authority.server("kube-scheduler"),
            "admin": self._authority.client(ADMIN_USER, [ADMIN_GROUP]),
            "etcd": self._etcd_authority.server("etcd"),
            "etcd-client": self._etcd_authority.client("kube-apiserver"),
            "front-proxy": self._front_proxy_authority.client(FRONT_PROXY),
        }
        for name, pair in pairs.items():
            pair.write(self._pki, name)
        private, public = service_account_keys()
        write_private(self._pki / "service-accounts.key", private)
        (self._pki / "service-accounts.pub").write_bytes(public)
        self._write_kubeconfig(self.kubeconfig, ADMIN_USER, pairs["admin"])

    def client_kubeconfig(self, user: str, groups: Sequence[str] = (), *, at: str = LOOPBACK) -> Path:
        """A kubeconfig file for any user; what the user may do is up to RBAC. `at`: the API server's address."""
        mark = hashlib.sha256("\0".join([user, at, *groups]).encode()).hexdigest()[:8]
        path = self._users / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', user)}-{mark}.kubeconfig"
        self._write_kubeconfig(path, user, self._authority.client(user, groups), at)
        return path

    def _server_names(self) -> list[str]:
        return [*SERVER_NAMES, *([self.settings.reachable_at] if self.settings.reachable_at else [])]

    def apiserver_client(self) -> Loopback:
        return Loopback(self.ports.apiserver, self.authority_file, self._pki / "admin.crt", self._pki / "admin.key")

    def etcd_client(self) -> Loopback:
        pki = self._pki
        return Loopback(self.ports.etcd, pki / "etcd-ca.crt", pki / "etcd-client.crt", pki / "etcd-client.key")

    def etcd(self) -> list[str]:
        client, peer = f"https://{LOOPBACK}:{self.ports.etcd}", f"https://{LOOPBACK}:{self.ports.etcd_peer}"
        pki = self._pki
        flags = {
            "name": "grove",
            "data-dir": self.etcd_data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"grove={peer}",
            "unsafe-no-fsync": "true",  # this data need not survive a power cut
            "log-level": "warn",
        }
        for prefix in ("", "peer-"):
            flags[f"{prefix}cert-file"] = pki / "etcd.crt"
            flags[f"{prefix}key-file"] = pki / "etcd.key"
            flags[f"{prefix}trusted-ca-file"] = pki / "etcd-ca.crt"
            flags[f"{prefix}client-cert-auth"] = "true"
        return self._command("etcd", flags, self.settings.extra_etcd_args)

    def apiserver(self) -> list[str]:
        pki, settings = self._pki, self.settings
        flags: dict[str, object] = {
            "bind-address": EVERY_ADDRESS if settings.reachable_at else LOOPBACK,
            "advertise-address": settings.reachable_at or LOOPBACK,
            # The endpoints of the `kubernetes` Service may not be a loopback address, so no component may write them.
            "endpoint-reconciler-type": "lease" if settings.reachable_at else "none",
            "secure-port": self.ports.apiserver,
            "etcd-servers": f"https://{LOOPBACK}:{self.ports.etcd}",
            "etcd-cafile": pki / "etcd-ca.crt",
            "etcd-certfile": pki / "etcd-client.crt",
            "etcd-keyfile": pki / "etcd-client.key",
            "tls-cert-file": pki / "apiserver.crt",
            "tls-private-key-file": pki / "apiserver.key",
            "client-ca-file": self.authority_file,
            # User and address for logs of a kubelet, where there is one; names of nodes do not resolve here.
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": pki / "admin.crt",
            "kubelet-client-key": pki / "admin.key",
            "authorization-mode": "RBAC",
            # Without it a single open watch holds up the server's end for a minute.
            "shutdown-watch-termination-grace-period": "1s",
            "allow-privileged": "true",
            "service-cluster-ip-range": SERVICE_RANGE,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": pki / "service-accounts.pub",
            "service-account-signing-key-file": pki / "service-accounts.key",
            "requestheader-client-ca-file": pki / "front-proxy-ca.crt",
            "requestheader-allowed-names": FRONT_PROXY,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": pki / "front-proxy.crt",
            "proxy-client-key-file": pki / "front-proxy.key",
            "enable-aggregator-routing": _word(settings.aggregator_routing),
        }
        if settings.runtime_config:
            flags["runtime-config"] = _switches(settings.runtime_config)
        if not settings.controller_manager:
            # No controller would create the `default` service account, and no pod could be created without it.
            flags["disable-admission-plugins"] = "ServiceAccount"
        return self._command("kube-apiserver", flags | self._gates(), settings.extra_apiserver_args)

    def controller_manager(self) -> list[str]:
        pki, settings = self._pki, self.settings
        kubeconfig = self.client_kubeconfig("system:kube-controller-manager")
        flags: dict[str, object] = {
            **self._serving("controller-manager", self.ports.controller_manager, kubeconfig),
            "kubeconfig": kubeconfig,
            "leader-elect": "false",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": pki / "service-accounts.key",
            "root-ca-file": self.authority_file,
            "cluster-signing-cert-file": self.authority_file,
            "cluster-signing-key-file": pki / "ca.key",
            "node-monitor-grace-period": f"{settings.node_monitor_grace_s}s",
            "node-startup-grace-period": f"{settings.node_monitor_grace_s}s",
            "horizontal-pod-autoscaler-sync-period": f"{settings.hpa_sync_period_s:g}s",
            "horizontal-pod-autoscaler-downscale-stabilization": f"{settings.hpa_downscale_stabilization_s:g}s",
            "kube-api-qps": QPS,
            "kube-api-burst": BURST,
        }
        return self._command("kube-controller-manager", flags | self._gates(), settings.extra_controller_manager_args)

    def scheduler(self) -> list[str]:
        kubeconfig = self.client_kubeconfig("system:kube-scheduler")
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": QPS, "burst": BURST},
            "leaderElection": {"leaderElect": False},
            **self.settings.scheduler_config,
        }
        file = self.directory / "scheduler.json"
        file.write_text(json.dumps(config, indent=2))
        flags = {**self._serving("scheduler", self.ports.scheduler, kubeconfig), "config": file}
        return self._command("kube-scheduler", flags | self._gates(), self.settings.extra_scheduler_args)

    def _serving(self, name: str, port: int, kubeconfig: Path) -> dict[str, object]:
        return {
            "bind-address": LOOPBACK,
            "secure-port": port,
            "tls-cert-file": self._pki / f"{name}.crt",
            "tls-private-key-file": self._pki / f"{name}.key",
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
        }

    def _gates(self) -> dict[str, object]:
        gates = self.settings.feature_gates
        return {"feature-gates": _switches(gates)} if gates else {}

    def _command(self, program: str, flags: Mapping[str, object], extra: Sequence[str]) -> list[str]:
        return [str(self.binaries / program), *(f"--{flag}={value}" for flag, value in flags.items()), *extra]

    def _write_kubeconfig(self, path: Path, user: str, pair: Pair, at: str = LOOPBACK) -> None:
        server = f"https://{at}:{self.ports.apiserver}"
        cluster = {"server": server, "certificate-authority-data": _base64(self._authority.pair.certificate)}
        secret = {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "grove",
            "clusters": [{"name": "grove", "cluster": cluster}],
            "users": [{"name": user, "user": secret}],
            "contexts": [{"name": "grove", "context": {"cluster": "grove", "user": user}}],
        }
        write_private(path, json.dumps(content, indent=2).encode())  # JSON is YAML too


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _word(switch: bool) -> str:
    return "true" if switch else "false"


def _switches(switches: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={_word(value)}" for name, value in switches.items())
