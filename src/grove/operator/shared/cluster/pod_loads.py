"""How much each pod of a clique has to do, as its engine says: asked when there is a choice whom a scale-in takes.

Comes from the metrics API that `grove metrics` serves. Where there is none, or it does not answer at once, nobody
knows, and the choice is made without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from grove.api import quantity
from grove.api.meta import Json, Resource
from grove.api.podclique import PodClique
from grove.kube.client import Client
from grove.kube.errors import KubeError

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
        for one in (one for items in lists for one in items):
            try:
                pod, value = str(one["describedObject"]["name"]), float(quantity.exact(one["value"]))
            except (KeyError, TypeError, quantity.InvalidQuantity):
                continue
            loads[pod] = loads.get(pod, 0.0) + value
        return loads

    async def _ask(self, clique: PodClique, metric: str) -> list[Json]:
        asked = Resource("custom.metrics.k8s.io", "v1beta2", "MetricValueList", f"pods/*/{metric}")
        page = await self._client.list(asked, clique.metadata.namespace, labels=clique.status.hpa_pod_selector)
        return list(page.items)
