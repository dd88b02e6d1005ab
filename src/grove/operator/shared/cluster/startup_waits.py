"""Pods that wait for more of a parent than it was scaled to after they were made: nothing will ever let them start.

What a pod waits for stands in the arguments of its start-order container. They are not kept for the pods of a whole
cluster; the few pods that still wait while a parent is below its minimum are asked one by one, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
        self._parents: dict[str, dict[str, dict[str, int]]] = {}

    async def in_vain(self, clique_uid: str, pods: Iterable[Pod], short: Mapping[str, int]) -> set[str]:
        """UIDs of the pods that wait for more than there are replicas of one of the parents in `short`."""
        waiting = [pod for pod in pods if is_waiting(pod)] if short else []
        if not waiting:
            self.forget(clique_uid)
            return set()
        known = self._parents.get(clique_uid, {})
        self._parents[clique_uid] = {
            pod.metadata.uid: known.get(pod.metadata.uid) or await self._read(pod) for pod in waiting
        }
        return {
            uid
            for uid, parents in self._parents[clique_uid].items()
            if any(parents.get(name, 0) > count for name, count in short.items())
        }

    def forget(self, clique_uid: str) -> None:
        self._parents.pop(clique_uid, None)

    async def _read(self, pod: Pod) -> dict[str, int]:
        try:
            raw: Json = await self._client.get(Pod.RESOURCE, pod.metadata.name, pod.metadata.namespace)
        except NotFound:
            return {}
        containers = raw["spec"].get("initContainers") or ()
        return {
            parent: count
            for container in containers
            if container["name"] == key.STARTUP_CONTAINER
            for parent, count in waited_for(container.get("args") or ())
        }
