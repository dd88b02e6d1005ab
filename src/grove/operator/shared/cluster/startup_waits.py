"""Pods that wait for a parent which was scaled to zero after they were made: nothing will ever let them start.

What a pod waits for stands in the arguments of its start-order container. They are not kept for the pods of a whole
cluster; the few pods that still wait while a parent is at zero are asked one by one, once.
"""

from __future__ import annotations

from collections.abc import Iterable

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json
from grove.kube.client import Client
from grove.kube.errors import NotFound
from grove.operator.pod.plan import is_waiting
from grove.operator.shared.startup import waited_for


class Waits:
    """Finds them. `forget` drops what is known about the pods of a clique."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._parents: dict[str, dict[str, frozenset[str]]] = {}

    async def in_vain(self, clique_uid: str, pods: Iterable[Pod], at_zero: frozenset[str]) -> set[str]:
        """UIDs of the pods that wait for one of `at_zero`."""
        waiting = [pod for pod in pods if is_waiting(pod)] if at_zero else []
        if not waiting:
            self.forget(clique_uid)
            return set()
        known = self._parents.get(clique_uid, {})
        self._parents[clique_uid] = {
            pod.metadata.uid: known.get(pod.metadata.uid) or await self._read(pod) for pod in waiting
        }
        return {uid for uid, parents in self._parents[clique_uid].items() if parents & at_zero}

    def forget(self, clique_uid: str) -> None:
        self._parents.pop(clique_uid, None)

    async def _read(self, pod: Pod) -> frozenset[str]:
        try:
            raw: Json = await self._client.get(Pod.RESOURCE, pod.metadata.name, pod.metadata.namespace)
        except NotFound:
            return frozenset()
        containers = raw["spec"].get("initContainers") or ()
        return frozenset(
            parent
            for container in containers
            if container["name"] == key.STARTUP_CONTAINER
            for parent in waited_for(container.get("args") or ())
        )
