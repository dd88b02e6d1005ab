"""Cluster DNS: CoreDNS beside the control plane, behind the Service `kube-dns` that every pod asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grove.local.blueprint import Blueprint
from grove.local.nodes.layout import DNS_ADDRESS, DNS_DOMAIN, HUB

_NAME, _NAMESPACE = "kube-dns", "kube-system"
_PORTS = (("dns", "UDP"), ("dns-tcp", "TCP"))


def coredns(program: Path, plane: Blueprint, folder: Path) -> list[str]:
    access = plane.client_kubeconfig("grove-dns", ["system:masters"])
    # Nothing is forwarded: the nodes have no way out of their network.
    corefile = f"""\
.:53 {{
    bind {HUB}
    errors
    kubernetes {DNS_DOMAIN} in-addr.arpa {{
        kubeconfig {access}
        pods insecure
        ttl 5
    }}
    cache 5
}}
"""
    file = folder / "Corefile"
    file.write_text(corefile)
    return [str(program), "-conf", str(file)]


def objects() -> list[tuple[str, dict[str, Any]]]:
    """The Service and where it leads, each with the path of its kind."""
    ports = [{"name": name, "port": 53, "protocol": protocol} for name, protocol in _PORTS]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME, "labels": {"k8s-app": _NAME}},
        "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
    }
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": "IPv4",
        "ports": ports,
        "metadata": {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}},
        "endpoints": [{"addresses": [HUB], "conditions": {"ready": True}}],
    }
    return [
        (f"/api/v1/namespaces/{_NAMESPACE}/services", service),
        (f"/apis/discovery.k8s.io/v1/namespaces/{_NAMESPACE}/endpointslices", slice_),
    ]
