"""Writes down which devices a pod's claims get, before the pod is bound.

Each claim gets its allocation, if it has none, and the pod's name among its users; both under the version that was
read, for others write to shared claims too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from grove.api.core import Pod, ResourceClaim
from grove.api.meta import Json, Key
from grove.kube.client import Client
from grove.kube.errors import Conflict, KubeError
from grove.scheduler.devices.devices import allocation
from grove.scheduler.loop.claims import DeviceClaims, claim_names
from grove.scheduler.model.facts import PodFacts

FINALIZER = "resource.kubernetes.io/delete-protection"
MOST_USERS = 256


class Lost(Exception):
    """What was promised is not to be had any more; the text says why."""


class ClaimWriter:
    def __init__(self, client: Client, claims: DeviceClaims, find: Callable[[Key], Pod | None]) -> None:
        self._client, self._claims, self._find = client, claims, find

    def prepare(self, facts: PodFacts, _: float) -> Awaitable[str] | None:
        """What a binder does for a pod's claims before it binds it: nothing (None), or writes that end with trouble."""
        pod = self._find(Key(facts.namespace, facts.name))
        return self._write(pod) if pod is not None and pod.spec.resource_claims else None

    async def _write(self, pod: Pod) -> str:
        try:
            for name, _ in claim_names(pod):
                while not await self._write_one(Key(pod.metadata.namespace, name), pod):
                    pass  # somebody else wrote to it in between; it is read again
        except KubeError as err:
            return f"a resource claim could not be given to the pod: {err}"
        except Lost as err:
            return str(err)
        return ""

    async def _write_one(self, key: Key, pod: Pod) -> bool:
        """Allocates a claim if need be and reserves it for the pod; False when it changed under our hands."""
        claim = await self._client.get(ResourceClaim, key.name, key.namespace)
        users = claim.status.reserved_for
        if any(user.uid == pod.metadata.uid for user in users):
            return True
        if len(users) >= MOST_USERS:
            raise Lost(f'resourceclaim "{key.name}" has {MOST_USERS} users already')
        me = {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
        status: Json = {"reservedFor": [*(msgspec.to_builtins(user) for user in users), me]}
        try:
            if claim.status.allocation is None:
                chosen = self._claims.find_promise(key)
                if chosen is None:
                    raise Lost(f'resourceclaim "{key.name}" lost its devices before the pod was bound')
                status["allocation"] = allocation(chosen, claim.spec, self._claims.classes)
                if FINALIZER not in claim.metadata.finalizers:
                    meta = {
                        "resourceVersion": claim.metadata.resource_version,
                        "finalizers": [*claim.metadata.finalizers, FINALIZER],
                    }
                    claim = await self._client.patch(ResourceClaim, key.name, {"metadata": meta}, key.namespace)
            version = {"resourceVersion": claim.metadata.resource_version}
            patch = {"metadata": version, "status": status}
            await self._client.patch(ResourceClaim, key.name, patch, key.namespace, subresource="status")
        except Conflict:
            return False
        return True
