"""The API server's refusals, in its own words: one function a Status, so that messages and codes are written once."""

from __future__ import annotations

from collections.abc import Sequence

from grove.api.faults import Fault, invalid_status
from grove.api.meta import Resource
from grove.kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound, TooManyRequests


def invalid(resource: Resource, name: str, faults: Sequence[Fault]) -> Invalid:
    status = invalid_status(resource.kind, resource.group, name, faults)
    return Invalid(status["message"], code=422, reason="Invalid", details=status["details"])


def not_found(resource: Resource, name: str) -> NotFound:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return NotFound(f'{resource} "{name}" not found', code=404, reason="NotFound", details=details)


def unknown_kind() -> NotFound:
    return NotFound("the server could not find the requested resource", code=404, reason="NotFound")


def already_exists(resource: Resource, name: str) -> AlreadyExists:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return AlreadyExists(f'{resource} "{name}" already exists', code=409, reason="AlreadyExists", details=details)


def conflict(resource: Resource, name: str, why: str) -> Conflict:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return Conflict(message, code=409, reason="Conflict", details=details)


def modified(resource: Resource, name: str) -> Conflict:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: Resource, name: str, why: str) -> Forbidden:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return Forbidden(f'{resource} "{name}" is forbidden: {why}', code=403, reason="Forbidden", details=details)


def bad_request(why: str) -> BadRequest:
    return BadRequest(why, code=400, reason="BadRequest")


def disruption_refused(budget: str, why: str) -> TooManyRequests:
    cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {budget} {why}"}
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details = {"causes": [cause]}
    return TooManyRequests(message, retry_after_s=10.0, code=429, reason="TooManyRequests", details=details)
