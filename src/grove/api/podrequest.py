"""What a pod asks of a node, from its plain JSON: for those who judge a template before there is a pod.

Nothing is assumed about what a user wrote: what cannot be read counts as nothing, other rules name it.
"""

from __future__ import annotations

from collections.abc import Mapping

from grove.api.fields import mapping, sequence
from grove.api.meta import Json
from grove.api.quantity import amount

Amounts = Mapping[str, int]
PODS = "pods"
HUGE_PAGES = "hugepages-"


def is_native(resource: str) -> bool:
    """True for a resource of Kubernetes itself. Every other resource is a device, and its amounts are whole numbers."""
    return "/" not in resource or "kubernetes.io/" in resource


def may_overcommit(resource: str) -> bool:
    """True if the API server lets a container request less than its limit of this resource."""
    return is_native(resource) and not resource.startswith(HUGE_PAGES)


def pod_request(spec: Json) -> dict[str, int]:
    """The amounts that a pod reserves on its node: all containers and sidecars, or the largest init container."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for item in sequence(spec.get("initContainers")):
        container = mapping(item)
        need = _amounts(mapping(container.get("resources")))
        if container.get("restartPolicy") == "Always":
            add_amounts(running, need)
            _raise_to(peak, running)
        else:
            step = dict(running)
            add_amounts(step, need)
            _raise_to(peak, step)
    for item in sequence(spec.get("containers")):
        add_amounts(running, _amounts(mapping(mapping(item).get("resources"))))
    _raise_to(running, peak)
    whole_pod = mapping(spec.get("resources"))
    if whole_pod:  # pod-level resources stand above the sum of the containers
        running |= _amounts(whole_pod)
    add_amounts(running, parsed_amounts(mapping(spec.get("overhead"))))
    running[PODS] = 1
    return running


def _amounts(resources: Json) -> dict[str, int]:
    """Requests; a limit without a request counts as one."""
    return {**parsed_amounts(mapping(resources.get("limits"))), **parsed_amounts(mapping(resources.get("requests")))}


def parsed_amounts(amounts: Json) -> dict[str, int]:
    parsed: dict[str, int] = {}
    for name, quantity in amounts.items():
        if isinstance(quantity, (str, int, float)) and not isinstance(quantity, bool):
            try:
                parsed[name] = amount(name, quantity)
            except ValueError:
                continue  # the rules have said so
    return parsed


def add_amounts(into: dict[str, int], more: Amounts) -> None:
    for name, value in more.items():
        into[name] = into.get(name, 0) + value


def _raise_to(into: dict[str, int], least: Amounts) -> None:
    for name, value in least.items():
        into[name] = max(into.get(name, 0), value)
