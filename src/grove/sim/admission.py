"""Admission hooks: what webhooks are to a real server, as callables inside the process.

A hook takes the `request` of an AdmissionReview and returns its `response`. Both are plain JSON in the form of the
wire, so the handlers of the webhook server work unchanged. Hooks may be async. Mutating hooks run first, and each gets
the result of those before it. Then the object is validated, and then the validating hooks run.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from grove.api.meta import Json, Resource
from grove.kube.errors import from_status
from grove.sim.patch import copy_json, json_patch

Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]
Handler: TypeAlias = Callable[[Json], Json | Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Hook:
    """Which requests a handler sees. No resources means all; `subresources` are seen only when named (`"status"`)."""

    name: str
    handler: Handler
    resources: Collection[Resource] = ()
    operations: Collection[Operation] = ("CREATE", "UPDATE")
    subresources: Collection[str] = ("",)

    def matches(self, resource: Resource, operation: Operation, subresource: str) -> bool:
        if operation not in self.operations or subresource not in self.subresources:
            return False
        wanted = {(r.group, r.plural) for r in self.resources}
        return not wanted or (resource.group, resource.plural) in wanted


@dataclass(frozen=True, slots=True)
class Attempt:
    """One write on its way in, as hooks receive it."""

    resource: Resource
    operation: Operation
    namespace: str
    name: str
    user: str
    groups: tuple[str, ...] = ()
    subresource: str = ""
    dry_run: bool = False

    def request(self, uid: str, new: Json | None, old: Json | None) -> Json:
        kind = {"group": self.resource.group, "version": self.resource.version}
        request: Json = {
            "uid": uid,
            "kind": {**kind, "kind": self.resource.kind},
            "resource": {**kind, "resource": self.resource.plural},
            "requestKind": {**kind, "kind": self.resource.kind},
            "requestResource": {**kind, "resource": self.resource.plural},
            "name": self.name,
            "operation": self.operation,
            "userInfo": {"username": self.user, "groups": [*self.groups, "system:authenticated"]},
            "object": copy_json(new),
            "oldObject": copy_json(old),
            "dryRun": self.dry_run,
        }
        if self.namespace:
            request["namespace"] = self.namespace
        if self.subresource:
            request["subResource"] = self.subresource
        return request


class Admission:
    """The hooks of a server, in the order they were added."""

    def __init__(self) -> None:
        self.mutating: list[Hook] = []
        self.validating: list[Hook] = []

    async def mutate(self, attempt: Attempt, uid: str, new: Json, old: Json | None) -> Json:
        for hook in self.mutating:
            if hook.matches(attempt.resource, attempt.operation, attempt.subresource):
                response = await _ask(hook, attempt.request(uid, new, old))
                if response.get("patch"):
                    new = json_patch(new, json.loads(base64.b64decode(response["patch"])))
        return new

    async def validate(self, attempt: Attempt, uid: str, new: Json | None, old: Json | None) -> None:
        for hook in self.validating:
            if hook.matches(attempt.resource, attempt.operation, attempt.subresource):
                await _ask(hook, attempt.request(uid, new, old))

    def concerns(self, attempt: Attempt) -> bool:
        hooks = (*self.mutating, *self.validating)
        return any(hook.matches(attempt.resource, attempt.operation, attempt.subresource) for hook in hooks)


async def _ask(hook: Hook, request: Json) -> Json:
    answer = hook.handler(request)
    response: Json = await answer if inspect.isawaitable(answer) else answer
    if response.get("allowed"):
        return response
    status = dict(response.get("status") or {})
    denied = f'admission webhook "{hook.name}" denied the request'
    explained = status.get("message") or status.get("reason")
    status["message"] = f"{denied}: {explained}" if explained else f"{denied} without explanation"
    # A refusal without a code of its own is a bad request, as the API server has it.
    raise from_status(max(400, int(status.get("code") or 0)), status)
