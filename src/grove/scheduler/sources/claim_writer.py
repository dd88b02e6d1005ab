"""Writes allocations into claims before their pods are bound.

Each claim gets its allocation, if it has none, and the pod's name among its users. Both are written under the version
that was read, because other clients write to shared claims too. If several pods of ours share a claim, one write has
them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from grove.api.core import Pod, ResourceClaim
from grove.api.meta import Json, Key
from grove.kube.client import Client
from grove.kube.errors import Conflict, ConnectionLost, KubeError, NotLeader, TooManyRequests, Unavailable
from grove.scheduler.devices.device_inventory import allocation
from grove.scheduler.sources.device_claims import DeviceClaims, claim_names

FINALIZER = "resource.kubernetes.io/delete-protection"
MOST_USERS = 256
RETRY_S, MAX_RETRY_S = 0.05, 2.0


class ClaimLost(Exception):
    """The promised devices are not free any more; the text says why."""


class ClaimWriter:
    """Its requests are among the `turns` that binds share."""

    def __init__(self, client: Client, turns: asyncio.Semaphore) -> None:
        self._client, self._turns = client, turns
        self._asking: dict[Key, dict[str, Pod]] = {}
        """Pods by uid that wait to be written among a claim's users."""
        self._locks: dict[Key, asyncio.Lock] = {}

    async def write(self, claims: DeviceClaims, pod: Pod, deadline_s: float) -> str:
        """Gives a pod the devices that its claims were promised; what went wrong, if anything."""
        try:
            for name, _ in claim_names(pod):
                key = Key(pod.metadata.namespace, name)
                await claims.until_free(key, deadline_s)
                if not claims.is_free(key):
                    raise ClaimLost(f'the devices of resourceclaim "{name}" were not given back in time')
                await self._reserve(claims, key, pod, deadline_s)
        except NotLeader:
            raise  # no pod is at fault: the whole attempt ends
        except KubeError as err:
            return f"a resource claim could not be given to the pod: {err}"
        except ClaimLost as err:
            return str(err)
        return ""

    async def _reserve(self, claims: DeviceClaims, key: Key, pod: Pod, deadline_s: float) -> None:
        """The first call writes for all calls that wait at that moment; the others find their part written."""
        asking = self._asking.setdefault(key, {})
        asking[pod.metadata.uid] = pod
        lock = self._locks.setdefault(key, asyncio.Lock())
        pause_s = RETRY_S
        try:
            while pod.metadata.uid in asking:
                async with lock:
                    if pod.metadata.uid not in asking:
                        return
                    try:
                        async with self._turns:
                            written = await self._write_users(claims, key, list(asking.values()))
                        if pod.metadata.uid not in written:
                            raise ClaimLost(f'resourceclaim "{key.name}" has {MOST_USERS} users already')
                        for uid in written:
                            asking.pop(uid, None)
                        return
                    except (Conflict, ConnectionLost, TooManyRequests, Unavailable) as err:
                        # Another client wrote to it in between, or the server is busy: it is read again after a while.
                        if asyncio.get_running_loop().time() + pause_s > deadline_s:
                            raise
                        pause_s = max(pause_s, getattr(err, "retry_after_s", None) or 0.0)
                await asyncio.sleep(pause_s)
                pause_s = min(MAX_RETRY_S, pause_s * 2)
        finally:
            asking.pop(pod.metadata.uid, None)
            if not asking:
                self._asking.pop(key, None)
                self._locks.pop(key, None)

    async def _write_users(self, claims: DeviceClaims, key: Key, pods: Sequence[Pod]) -> set[str]:
        """Allocates a claim if need be and reserves it for as many of these pods as it takes: their uids."""
        claim = await self._client.get(ResourceClaim, key.name, key.namespace)
        users = claim.status.reserved_for
        known = {user.uid for user in users}
        new = [pod.metadata for pod in pods if pod.metadata.uid not in known][: max(0, MOST_USERS - len(users))]
        if not new:
            return known
        added = [{"resource": "pods", "name": meta.name, "uid": meta.uid} for meta in new]
        status: Json = {"reservedFor": [*(msgspec.to_builtins(user) for user in users), *added]}
        if claim.status.allocation is None:
            promise = claims.find_promise(key)
            if promise is None or promise.claim != claim.metadata.uid:
                raise ClaimLost(f'resourceclaim "{key.name}" lost its devices before the pod was bound')
            status["allocation"] = allocation(promise.chosen, claim.spec, claims.classes)
            if FINALIZER not in claim.metadata.finalizers:
                meta = {
                    "resourceVersion": claim.metadata.resource_version,
                    "finalizers": [*claim.metadata.finalizers, FINALIZER],
                }
                claim = await self._client.patch(ResourceClaim, key.name, {"metadata": meta}, key.namespace)
        patch = {"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status}
        await self._client.patch(ResourceClaim, key.name, patch, key.namespace, subresource="status")
        return known.union(meta.uid for meta in new)
