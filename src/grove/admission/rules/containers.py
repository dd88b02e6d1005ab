"""One container of a pod template: image, variables, ports, mounts, probes and the arithmetic of its resources."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from grove.admission.rules.syntax import enum_faults, env_name_fault, port_name_fault, qualified_name_fault
from grove.api.faults import Fault, duplicate, invalid, not_found, required
from grove.api.fields import integer, mapping, sequence, text
from grove.api.meta import Json
from grove.api.podrequest import HUGE_PAGES, is_native, may_overcommit
from grove.api.quantity import exact

_PULL = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_STANDARD = ("cpu", "memory", "ephemeral-storage")


def container_faults(
    path: str, container: Json, volumes: Collection[str], claims: Collection[str], *, is_init: bool
) -> Iterator[Fault]:
    image = text(container.get("image"))
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from enum_faults(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    yield from _env_faults(f"{path}.env", sequence(container.get("env")))
    yield from _port_faults(f"{path}.ports", sequence(container.get("ports")))
    yield from _mount_faults(f"{path}.volumeMounts", sequence(container.get("volumeMounts")), volumes)
    yield from _resource_faults(f"{path}.resources", mapping(container.get("resources")), claims)
    is_sidecar = is_init and container.get("restartPolicy") == "Always"
    for field in _PROBES:
        probe = container.get(field)
        if isinstance(probe, dict):
            if is_init and not is_sidecar:
                yield invalid(
                    f"{path}.{field}", field, "must not be set for init containers without restartPolicy=Always"
                )
            yield from _probe_faults(f"{path}.{field}", field, probe)
    for hook in ("postStart", "preStop"):
        handler = mapping(container.get("lifecycle")).get(hook)
        if isinstance(handler, dict):
            yield from _handler_faults(f"{path}.lifecycle.{hook}", handler)


def _env_faults(path: str, env: list[Any]) -> Iterator[Fault]:
    for index, item in enumerate(env):  # the longest list of most templates
        variable = item if isinstance(item, dict) else {}
        name = text(variable.get("name"))
        if not name:
            yield required(f"{path}[{index}].name")
        elif wrong := env_name_fault(name):
            yield invalid(f"{path}[{index}].name", name, wrong)
        source = variable.get("valueFrom")
        if isinstance(source, dict):
            if variable.get("value"):
                yield invalid(f"{path}[{index}].valueFrom", "", "may not be specified when `value` is not empty")
            given = [key for key, value in source.items() if value is not None]
            if len(given) != 1:
                yield invalid(f"{path}[{index}].valueFrom", given, "must have exactly one source")


def _port_faults(path: str, ports: list[Any]) -> Iterator[Fault]:
    names: set[str] = set()
    for index, item in enumerate(ports):
        where, port = f"{path}[{index}]", mapping(item)
        name = text(port.get("name"))
        if name and (wrong := port_name_fault(name)):
            yield invalid(f"{where}.name", name, wrong)
        if name and name in names:
            yield duplicate(f"{where}.name", name)
        names.add(name)
        number = integer(port.get("containerPort"))
        if number is None or number == 0:
            yield required(f"{where}.containerPort")
        elif not 1 <= number <= 65535:
            yield invalid(f"{where}.containerPort", number, "must be between 1 and 65535, inclusive")
        host = integer(port.get("hostPort"))
        if host and not 1 <= host <= 65535:
            yield invalid(f"{where}.hostPort", host, "must be between 1 and 65535, inclusive")
        yield from enum_faults(f"{where}.protocol", port.get("protocol"), _PROTOCOLS)


def _mount_faults(path: str, mounts: list[Any], volumes: Collection[str]) -> Iterator[Fault]:
    for index, item in enumerate(mounts):
        where, mount = f"{path}[{index}]", mapping(item)
        name, at = text(mount.get("name")), text(mount.get("mountPath"))
        if not name:
            yield required(f"{where}.name")
        elif name not in volumes:
            yield not_found(f"{where}.name", name, "no such volume in the template")
        if not at:
            yield required(f"{where}.mountPath")


def _resource_faults(path: str, resources: Json, claims: Collection[str]) -> Iterator[Fault]:
    limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
    for field, amounts in (("limits", limits), ("requests", requests)):
        for resource, quantity in amounts.items():
            yield from _quantity_faults(f"{path}.{field}[{resource}]", resource, quantity)
    for resource, quantity in requests.items():
        where, asked = f"{path}.requests", _number(quantity)
        if asked is None:
            continue
        limit = _number(limits.get(resource))
        if limit is None:
            if not may_overcommit(resource) and resource not in limits:
                detail = f"limit must be set for {resource}, which cannot be overcommitted"
                yield required(f"{path}.limits", detail)
        elif not may_overcommit(resource) and asked != limit:
            yield invalid(where, quantity, f"must be equal to {resource} limit of {limits[resource]}")
        elif asked > limit:
            yield invalid(where, quantity, f"must be less than or equal to {resource} limit of {limits[resource]}")
    for index, claim in enumerate(sequence(resources.get("claims"))):
        name = text(mapping(claim).get("name"))
        if name not in claims:
            yield not_found(f"{path}.claims[{index}].name", name, "no such claim in the template's resourceClaims")


def _quantity_faults(path: str, resource: str, quantity: Any) -> Iterator[Fault]:
    if resource not in _STANDARD and not resource.startswith(HUGE_PAGES):
        if "/" not in resource:
            yield invalid(path, resource, "must be a standard resource type or fully qualified, such as nvidia.com/gpu")
        elif wrong := qualified_name_fault(resource):
            yield invalid(path, resource, wrong)
    number = _number(quantity)
    if number is None:
        yield invalid(path, quantity, "must be a quantity such as 500m, 2 or 16Gi")
    elif number < 0:
        yield invalid(path, quantity, "must be greater than or equal to 0")
    elif not is_native(resource) and number % 1:
        yield invalid(path, quantity, "must be an integer")


def _number(quantity: Any) -> Any:
    if isinstance(quantity, bool) or not isinstance(quantity, (str, int, float)):
        return None
    try:
        return exact(quantity)
    except ValueError:
        return None


def _probe_faults(path: str, field: str, probe: Json) -> Iterator[Fault]:
    yield from _handler_faults(path, probe)
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        value = integer(probe.get(name))
        if value is not None and value < 0:
            yield invalid(f"{path}.{name}", value, "must be greater than or equal to 0")
    successes = integer(probe.get("successThreshold"))
    if field != "readinessProbe" and successes is not None and successes > 1:
        yield invalid(f"{path}.successThreshold", successes, "must be 1")


def _handler_faults(path: str, handler: Json) -> Iterator[Fault]:
    given = [name for name in _HANDLERS if handler.get(name) is not None]
    if not given:
        yield required(path, "must specify a handler type")
    elif len(given) > 1:
        yield invalid(path, given, "may not specify more than 1 handler type")
