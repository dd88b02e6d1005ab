"""Resource quotas on the number of pods: refused at the door when used up, accounted in the quota's status."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from grove.api.meta import Json, Resource
from grove.sim import refusals
from grove.sim.kinds import POD, QUOTA, StoredObjects
from grove.sim.store import Change

if TYPE_CHECKING:
    from grove.sim.server import SimServer

_COUNTED = ("pods", "count/pods")


def charge(pod: Json, stored: StoredObjects) -> None:
    """Refuses a new pod that would pass a quota of its namespace. Finished pods do not count."""
    namespace = pod["metadata"]["namespace"]
    for quota in stored.all(QUOTA, namespace):
        hard = (quota.get("spec") or {}).get("hard") or {}
        for name in _COUNTED:
            if name not in hard:
                continue
            used = pods_used(stored, namespace)
            if used + 1 > int(hard[name]):
                amounts = f"requested: {name}=1, used: {name}={used}, limited: {name}={hard[name]}"
                why = f"exceeded quota: {quota['metadata']['name']}, {amounts}"
                raise refusals.forbidden(POD, pod["metadata"]["name"], why)


def pods_used(stored: StoredObjects, namespace: str) -> int:
    return sum(pod["status"].get("phase") not in ("Succeeded", "Failed") for pod in stored.all(POD, namespace))


class QuotaController:
    """Writes what is used into the status of quotas, a moment after pods or quotas changed."""

    def __init__(self, server: SimServer, *, delay_s: float = 0.01) -> None:
        self._server, self._delay_s = server, delay_s
        self._dirty: dict[str, None] = {}
        server.store.listeners.append(self._note)

    def _note(self, resource: Resource, change: Change) -> None:
        if resource not in (POD, QUOTA):
            return
        namespace = change.version.key.namespace
        if namespace in self._dirty or not self._server.all(QUOTA, namespace):
            return
        self._dirty[namespace] = None
        asyncio.get_running_loop().call_later(self._delay_s, self._account, namespace)

    def _account(self, namespace: str) -> None:
        self._dirty.pop(namespace, None)
        for quota in self._server.all(QUOTA, namespace):
            hard = (quota.get("spec") or {}).get("hard") or {}
            used = str(pods_used(self._server, namespace))
            status = {"hard": hard, "used": {name: used for name in _COUNTED if name in hard}}
            if status != quota.get("status"):
                self._server.store.put(QUOTA, {**quota, "status": status})
