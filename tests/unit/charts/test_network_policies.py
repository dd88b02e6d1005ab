"""The chart's NetworkPolicies against every connection that its pods make and are made to.

Judged here as a network that enforces them would: a pod that a policy selects gets what some rule of it names. Where
connections go is read from the rendered chart (Services, probes, monitors), so a port that moves moves here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

OBJECTS = [one for one in yaml.safe_load_all(Path(__file__).with_name("every-option.rendered.yaml").read_text()) if one]
NAMESPACE = "grove-system"
API_SERVER, ELSEWHERE = "192.0.2.10", "203.0.113.7"
"""Where the values of the rendering say that the API server is, and a host of the internet."""


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: an address, and for a pod its namespace's labels and its own."""

    address: str
    namespace: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def pod_of(namespace: str, **labels: str) -> Peer:
    return Peer("10.244.3.4", {"kubernetes.io/metadata.name": namespace}, labels)


SERVER, INTERNET, DNS = Peer(API_SERVER), Peer(ELSEWHERE), pod_of("kube-system", app="dns")
PROMETHEUS, INGRESS, TENANT = pod_of("monitoring"), pod_of("ingress"), pod_of("team")


def policies_of(component: str) -> list[dict[str, Any]]:
    labels = template_of(component)["metadata"]["labels"]
    return [
        one["spec"]
        for one in OBJECTS
        if one["kind"] == "NetworkPolicy"
        and one["metadata"]["namespace"] == NAMESPACE
        and one["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    ]


def template_of(component: str) -> dict[str, Any]:
    (found,) = (
        one["spec"]["template"]
        for one in OBJECTS
        if one["kind"] in ("Deployment", "Job") and one["metadata"]["name"] == f"grove-{component}"
    )
    return dict(found)


def is_allowed(component: str, direction: str, peer: Peer, port: int, protocol: str = "TCP") -> bool:
    """Whether the network lets it through; `direction` is Ingress or Egress, seen from the component's pod."""
    judging = [one for one in policies_of(component) if direction in one["policyTypes"]]
    rules = [rule for one in judging for rule in one.get(direction.lower()) or ()]
    return not judging or any(_is_named(rule, direction, peer, port, protocol) for rule in rules)


def _is_named(rule: Mapping[str, Any], direction: str, peer: Peer, port: int, protocol: str) -> bool:
    ports, peers = rule.get("ports"), rule.get("from" if direction == "Ingress" else "to")
    fits = not ports or any((one.get("protocol", "TCP"), one["port"]) == (protocol, port) for one in ports)
    return fits and (not peers or any(_is_peer(one, peer) for one in peers))


def _is_peer(one: Mapping[str, Any], peer: Peer) -> bool:
    if "ipBlock" in one:
        return ip_address(peer.address) in ip_network(one["ipBlock"]["cidr"])
    if not peer.namespace:
        return False  # selectors select pods, and this is none
    wanted = one.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}})
    return (
        wanted.get("matchLabels", {}).items() <= peer.namespace.items()
        and one.get("podSelector", {}).get("matchLabels", {}).items() <= peer.labels.items()
    )


def behind(service: str, port: str) -> tuple[str, int]:
    """Component and container port that a Service leads to: policies see a connection after that."""
    (spec,) = (one["spec"] for one in OBJECTS if one["kind"] == "Service" and one["metadata"]["name"] == service)
    (target,) = (one["targetPort"] for one in spec["ports"] if one["name"] == port)
    component = spec["selector"]["app.kubernetes.io/component"]
    (container,) = template_of(component)["spec"]["containers"]
    (found,) = (one["containerPort"] for one in container["ports"] if one["name"] == target)
    return component, found


COMPONENTS = ("operator", "scheduler", "metrics", "console")


@pytest.mark.parametrize("component", COMPONENTS)
def test_it_reaches_the_api_server_and_names(component: str) -> None:
    assert is_allowed(component, "Egress", SERVER, 6443)
    assert is_allowed(component, "Egress", DNS, 53, "UDP")
    assert is_allowed(component, "Egress", DNS, 53)


@pytest.mark.parametrize("component", ["operator", "scheduler", "console"])
def test_it_reaches_no_other_pod(component: str) -> None:
    assert not is_allowed(component, "Egress", INTERNET, 443)
    assert not is_allowed(component, "Egress", INTERNET, 6443), "the API server's port, and not its address"
    assert not is_allowed(component, "Egress", TENANT, 8000)


def test_engine_metrics_reach_the_pages_of_engines_wherever_they_are() -> None:
    assert is_allowed("metrics", "Egress", TENANT, 8000)
    assert is_allowed("metrics", "Egress", pod_of("gpu-operator"), 9400)


@pytest.mark.parametrize(
    ("service", "port", "who"),
    [
        pytest.param("grove-operator", "webhooks", SERVER, id="the API server reaches admission"),
        pytest.param("grove-metrics", "https", SERVER, id="the aggregator reaches the metrics API"),
        pytest.param("grove-operator", "metrics", PROMETHEUS, id="Prometheus reads the operator"),
        pytest.param("grove-scheduler-metrics", "metrics", PROMETHEUS, id="Prometheus reads the scheduler"),
        pytest.param("grove-metrics", "metrics", PROMETHEUS, id="Prometheus reads engine metrics"),
        pytest.param("grove-console", "http", INGRESS, id="people reach the console by their ingress"),
    ],
)
def test_who_is_let_in(service: str, port: str, who: Peer) -> None:
    component, container_port = behind(service, port)
    assert is_allowed(component, "Ingress", who, container_port)


@pytest.mark.parametrize(
    ("service", "port"),
    [
        ("grove-operator", "metrics"),
        ("grove-scheduler-metrics", "metrics"),
        ("grove-metrics", "metrics"),
        ("grove-console", "http"),
    ],
)
def test_a_tenants_pod_is_not_let_in(service: str, port: str) -> None:
    component, container_port = behind(service, port)
    assert not is_allowed(component, "Ingress", TENANT, container_port)


def test_monitors_look_at_ports_that_are_judged_above() -> None:
    """A monitor that begins to read another port needs a line in the table of those who are let in."""
    (monitor,) = (one for one in OBJECTS if one["kind"] == "ServiceMonitor")
    assert {one["port"] for one in monitor["spec"]["endpoints"]} == {"metrics"}


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_port_no_one_serves_is_closed_to_everybody(component: str) -> None:
    assert [one for one in (SERVER, PROMETHEUS, TENANT, INTERNET) if is_allowed(component, "Ingress", one, 22)] == []


def test_the_hook_of_an_uninstall_is_bound_by_no_policy() -> None:
    """Policies are deleted with the release while the hook still runs; it must not depend on their order."""
    assert policies_of("uninstall") == []
