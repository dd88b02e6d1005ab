"""The same rules without a server, for a cluster inside the process: one hook per webhook, as plain callables.

A hook takes the `request` of an AdmissionReview and returns its `response`, both in the wire's own form.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from grove.admission.rules.dialects import RESOURCES as DIALECTS
from grove.admission.rules.request import Request
from grove.admission.rules.review import (
    AUTHORIZE,
    DEFAULT_SET,
    VALIDATE_BINDING,
    VALIDATE_DIALECT,
    VALIDATE_SET,
    Admission,
)
from grove.admission.serving.reader import ClusterReader
from grove.admission.serving.registration import GUARDED, WEBHOOK_NAMES
from grove.api.fields import mapping
from grove.api.labels import MANAGED_BY, OPERATOR
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding

Handler = Callable[[Json], Awaitable[Json]]
_WRITTEN = ("CREATE", "UPDATE")


@dataclass(frozen=True, slots=True)
class InProcessHook:
    """One webhook: its name, which requests it sees, and what answers them. Mutating ones run first."""

    name: str
    mutating: bool
    resources: tuple[Resource, ...]
    operations: tuple[str, ...]
    handler: Handler


def sim_hooks(admission: Admission, reader: ClusterReader) -> Sequence[InProcessHook]:
    """In the order to run them. `reader` is over the simulated cluster's own client."""

    def handler(path: str) -> Handler:
        async def answer(request: Json) -> Json:
            if path == AUTHORIZE and not _is_managed(request):
                return {"uid": request["uid"], "allowed": True}
            review = Request.of({"request": request})
            known = await reader.fetch(admission.needs(path, review))
            response: Json = admission.review(path, review, known)["response"]
            return response

        return answer

    sets, bindings = (PodCliqueSet.RESOURCE,), (ClusterTopologyBinding.RESOURCE,)
    hooks = [
        InProcessHook(WEBHOOK_NAMES[DEFAULT_SET], True, sets, _WRITTEN, handler(DEFAULT_SET)),
        InProcessHook(WEBHOOK_NAMES[VALIDATE_SET], False, sets, _WRITTEN, handler(VALIDATE_SET)),
        InProcessHook(WEBHOOK_NAMES[VALIDATE_BINDING], False, bindings, _WRITTEN, handler(VALIDATE_BINDING)),
    ]
    if admission.dialects:
        name = WEBHOOK_NAMES[VALIDATE_DIALECT]
        hooks.append(InProcessHook(name, False, DIALECTS, _WRITTEN, handler(VALIDATE_DIALECT)))
    if admission.authorizer is not None:
        guard, name = handler(AUTHORIZE), WEBHOOK_NAMES[AUTHORIZE]
        hooks += [InProcessHook(name, False, (resource,), operations, guard) for resource, operations in GUARDED]
    return hooks


def _is_managed(request: Json) -> bool:
    """True if the new or the stored object has the label that the webhook's object selector requires."""
    objects = (mapping(request.get("object")), mapping(request.get("oldObject")))
    return any(mapping(mapping(obj.get("metadata")).get("labels")).get(MANAGED_BY) == OPERATOR for obj in objects)
