"""Facts about pods that the cache does not have: whether their node is gone, which parents they wait for, and their
load.

No kubelet confirms the end of a pod on a node that is gone for good, so the operator deletes it by force. A cache that
lags must not decide that alone. The arguments of the start-order container say what a pod waits for; the cache does
not keep them for a whole cluster. The load comes from the metrics API of `grove metrics`. Without it, scale-in chooses
pods without their load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

from grove.api import labels, quantity
from grove.api.core import Node, Pod
from grove.api.meta import Json, Key, Resource
from grove.api.podclique import PodClique
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import KubeError, NotFound
from grove.operator.podclique.status import VANISHED_NODE_GRACE_S
from grove.operator.shared.cluster.sets import ON_NODE
from grove.operator.shared.startup import is_waiting, waited_for


class VanishedNodes:
    """Answers from the cache. An unknown node counts as missing from the first question on."""

    def __init__(self, cache: Cache, client: Client, clock: Clock) -> None:
        self._cache, self._client, self._clock = cache, client, clock
        self._gone: dict[str, datetime] = {}
        self._confirmed: set[str] = set()
        cache.on_event(Node, self._on_node)

    def gone_since(self, pods: Iterable[Pod]) -> dict[str, datetime]:
        """Since when those nodes of these pods are missing that are, by name, in the order of their names."""
        names = {pod.spec.node_name for pod in pods if pod.is_bound}
        missing = [name for name in names if self._cache.get(Node, Key("", name)) is None]
        return {name: self._gone.setdefault(name, self._clock.now()) for name in sorted(missing)} if missing else {}

    async def confirm(self, pods: Iterable[Pod]) -> None:
        """Asks the cluster about nodes of these pods that have been missing so long that it is about to matter."""
        if not self._gone:
            return
        for name, since in self.gone_since(pods).items():
            if name in self._confirmed or (self._clock.now() - since).total_seconds() < VANISHED_NODE_GRACE_S:
                continue
            try:
                await self._client.get(Node, name)
                self._gone[name] = self._clock.now()  # it is there, only our cache is late
            except NotFound:
                self._confirmed.add(name)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._gone.pop(new.metadata.name, None)
            self._confirmed.discard(new.metadata.name)
            return
        if old is not None:
            self._gone[old.metadata.name] = self._clock.now()
        # What no pod stands on any more is of no interest; so this stays as small as the trouble is.
        self._gone = {name: at for name, at in self._gone.items() if self._cache.by_index(Pod, ON_NODE, name)}
        self._confirmed &= self._gone.keys()


class ParentWaits:
    """For how many pods of each parent pods wait; `forget` drops what is known about the pods of a clique."""

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
            if container["name"] == labels.STARTUP_CONTAINER
            for parent, count in waited_for(container.get("args") or ())
        }


METRICS = ("grove_requests_running", "grove_requests_waiting")
ASK_S = 1.0


class PodLoads:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, clique: PodClique) -> Mapping[str, float]:
        """Requests that run and wait, by pod name; pods of which nothing is known are not in it."""
        try:
            async with asyncio.timeout(ASK_S):
                lists = [await self._ask(clique, metric) for metric in METRICS]
        except (KubeError, TimeoutError):
            return {}
        loads: dict[str, float] = {}
        for measurement in (item for items in lists for item in items):
            try:
                pod, value = str(measurement["describedObject"]["name"]), float(quantity.exact(measurement["value"]))
            except (KeyError, TypeError, quantity.InvalidQuantity):
                continue
            loads[pod] = loads.get(pod, 0.0) + value
        return loads

    async def _ask(self, clique: PodClique, metric: str) -> list[Json]:
        asked = Resource("custom.metrics.k8s.io", "v1beta2", "MetricValueList", f"pods/*/{metric}")
        page = await self._client.list(asked, clique.metadata.namespace, labels=clique.status.hpa_pod_selector)
        return list(page.items)
