"""Where a pod's page of metrics is: by its annotations, a port named `metrics`, or the port its engine is known to use.

The address is always the pod's own. Addresses that lead elsewhere (this machine, the cloud's metadata service) are
never read, whatever a pod's status says.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import ClassVar

from msgspec import field

from grove.api.core import Pod
from grove.api.fields import natural
from grove.api.meta import Object, Resource, Struct

SCRAPE, PORT, PATH, SCHEME = (f"prometheus.io/{name}" for name in ("scrape", "port", "path", "scheme"))
PORT_NAME = "metrics"
SYSTEM_PORT = "DYN_SYSTEM_PORT"
KNOWN_PORTS = (("vllm", 8000), ("sglang", 30000), ("dynamo", 8081))
"""By a word in the image's name; used when the container declares no other port for its metrics."""
DCGM_PORT = 9400


class EnvVar(Struct):
    name: str = ""
    value: str = ""


class Port(Struct):
    name: str = ""
    container_port: int = 0


class EngineContainer(Struct):
    image: str = ""
    ports: tuple[Port, ...] = ()
    env: tuple[EnvVar, ...] = ()


class EnginePodSpec(Struct):
    containers: tuple[EngineContainer, ...] = ()


class EnginePodStatus(Struct):
    phase: str = ""
    pod_ip: str = field(name="podIP", default="")
    conditions: tuple[dict[str, object], ...] = ()


class EnginePod(Object):
    """A pod as far as its metrics are concerned; thousands of them are held."""

    RESOURCE: ClassVar[Resource] = Pod.RESOURCE

    spec: EnginePodSpec = EnginePodSpec()
    status: EnginePodStatus = EnginePodStatus()

    @property
    def is_ready(self) -> bool:
        return any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in self.status.conditions
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A page to read, and whose it is."""

    namespace: str
    pod: str
    address: str
    port: int
    path: str = "/metrics"
    scheme: str = "http"


def find_target(pod: EnginePod, *, default_port: int = 0) -> Target | None:
    """The page of a running pod; None if it has none."""
    annotations = pod.metadata.annotations
    if pod.status.phase != "Running" or pod.metadata.is_deleting or annotations.get(SCRAPE) == "false":
        return None
    if not _is_pod_address(pod.status.pod_ip):
        return None
    port = _port(annotations.get(PORT, "")) or _declared_port(pod) or _known_port(pod) or default_port
    scheme, path = annotations.get(SCHEME, "http"), annotations.get(PATH, "/metrics")
    if not port or scheme not in ("http", "https") or not path.startswith("/"):
        return None
    return Target(pod.metadata.namespace, pod.metadata.name, pod.status.pod_ip, port, path, scheme)


def _is_pod_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    elsewhere = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    return not elsewhere


def _declared_port(pod: EnginePod) -> int:
    ports = (port for container in pod.spec.containers for port in container.ports)
    return next((port.container_port for port in ports if port.name == PORT_NAME), 0)


def _known_port(pod: EnginePod) -> int:
    for container in pod.spec.containers:
        if system_port := next((_port(env_var.value) for env_var in container.env if env_var.name == SYSTEM_PORT), 0):
            return system_port
        for engine, port in KNOWN_PORTS:
            if engine in container.image:
                return port
        declared = {container_port.container_port for container_port in container.ports}
        if known := next((port for _, port in KNOWN_PORTS if port in declared), 0):
            return known
    return 0


def _port(text: str) -> int:
    port = natural(text) or 0
    return port if port < 65536 else 0
