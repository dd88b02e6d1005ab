"""What happens to pods when their node is unwell: the node lifecycle and pod garbage collection controllers.

A node that is not Ready is tainted, and pods that do not tolerate that any longer are deleted (by default after five
minutes). Pods of a node that no longer exists are removed without their kubelet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from grove.api.meta import Json, Key, Resource
from grove.sim.kinds import NODE, POD
from grove.sim.store import Change

if TYPE_CHECKING:
    from grove.sim.server import SimServer

_TAINTS = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}
ORPHAN_S = 40.0
"""How long a pod may name a node that does not exist before it is removed."""


class NodeLifecycle:
    def __init__(self, server: SimServer, *, delay_s: float = 0.01) -> None:
        self._server, self._delay_s = server, delay_s
        server.store.listeners.append(self._note)

    def _note(self, resource: Resource, change: Change) -> None:
        if resource == POD and change.type != "DELETED":
            node = change.version.json["spec"].get("nodeName")
            was = change.previous.json["spec"].get("nodeName") if change.previous else None
            if node and not was and self._server.find(NODE, node) is None:
                self._later(ORPHAN_S, self._remove_orphans, node)
            return
        if resource != NODE:
            return
        name = change.version.key.name
        if change.type == "DELETED":
            self._later(ORPHAN_S, self._remove_orphans, name)
        elif _health(change.version.json) != (_health(change.previous.json) if change.previous else "True"):
            self._later(self._delay_s, self._react, name)

    def _later(self, delay_s: float, act: Callable[..., None], *args: str) -> None:
        asyncio.get_running_loop().call_later(delay_s, act, *args)

    def _react(self, name: str) -> None:
        node = self._server.find(NODE, name)
        if node is None:
            return
        health = _health(node)
        spec = node.get("spec") or {}
        kept = [taint for taint in spec.get("taints") or () if taint["key"] not in _TAINTS.values()]
        if health in _TAINTS:
            now = self._server.stamp()
            kept += [
                {"key": _TAINTS[health], "effect": "NoSchedule", "timeAdded": now},
                {"key": _TAINTS[health], "effect": "NoExecute", "timeAdded": now},
            ]
        tainted = {k: v for k, v in spec.items() if k != "taints"} | ({"taints": kept} if kept else {})
        self._server.store.put(NODE, {**node, "spec": tainted})
        if health in _TAINTS:
            for pod in self._pods_on(name):
                self._plan_eviction(pod, _TAINTS[health])

    def _pods_on(self, node: str) -> list[Json]:
        return [pod for pod in self._server.all(POD) if pod["spec"].get("nodeName") == node]

    def _plan_eviction(self, pod: Json, taint: str) -> None:
        bearing = [t for t in pod["spec"].get("tolerations") or () if _bears(t, taint)]
        limits = [t["tolerationSeconds"] for t in bearing if t.get("tolerationSeconds") is not None]
        if bearing and not limits:
            return  # tolerates it for ever
        meta = pod["metadata"]
        delay_s = float(min(limits)) if limits else 0.0
        self._later(delay_s, self._evict, meta["namespace"], meta["name"], meta["uid"], taint)

    def _evict(self, namespace: str, name: str, uid: str, taint: str) -> None:
        version = self._server.store.collection(POD).objects.get(Key(namespace, name))
        if version is None or version.uid != uid:
            return
        node = self._server.find(NODE, version.json["spec"]["nodeName"])
        taints = ((node or {}).get("spec") or {}).get("taints") or ()
        if any(t["key"] == taint and t["effect"] == "NoExecute" for t in taints):
            self._server.start_deletion(POD, version, "Background")

    def _remove_orphans(self, node: str) -> None:
        if self._server.find(NODE, node) is not None:
            return
        for pod in self._pods_on(node):
            key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
            version = self._server.store.collection(POD).objects[key]
            self._server.start_deletion(POD, version, "Background", 0)


def _health(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "True")


def _bears(toleration: Json, taint: str) -> bool:
    effect = toleration.get("effect") in (None, "", "NoExecute")
    return effect and toleration.get("key") in (None, "", taint)
