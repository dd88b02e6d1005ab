"""Reads the figures of engines as they are now, from `grove metrics`.

It answers through the API server, so everybody reads what their own rights allow. One request has one figure of all
sets of a namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

from grove.api.meta import Resource
from grove.api.quantity import exact
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import Forbidden, KubeError, NotFound
from grove.show.figures import ENGINE_FIGURES
from grove.show.past import Past

METRICS = Resource("custom.metrics.k8s.io", "v1beta2", "MetricValueList", "podcliquesets.grove.io/*", namespaced=True)

ENGINES_S = 15.0
"""How often the figures of engines are read: gauges have no watch."""
NO_ENGINES_S = 120.0
"""How often it is asked whether there is something to read them from."""

log = structlog.get_logger(__name__)


class EngineReader:
    """Reads the figures of engines into a past, as often as its caller asks. `found` has those of the last time."""

    def __init__(self, client: Client, past: Past) -> None:
        self._client, self._past = client, past
        self.found: dict[str, dict[str, float]] = {}

    async def read(self, namespaces: Iterable[str], clock: Clock = SYSTEM) -> float:
        """Reads once; the seconds until the next time."""
        answer = await read_engines(self._client, namespaces)
        before, self.found = self.found, answer or {}
        at = clock.now().timestamp()
        for key in {**before, **self.found}:
            unknown: dict[str, float | None] = dict.fromkeys(before.get(key, {}))
            self._past.record(key, {**unknown, **self.found.get(key, {})}, at)
        return ENGINES_S if answer is not None else NO_ENGINES_S


async def read_engines(client: Client, namespaces: Iterable[str]) -> dict[str, dict[str, float]] | None:
    """The figures of every set that has some, by `namespace/name`; None if `grove metrics` does not answer."""
    wanted = [(namespace, figure.name) for namespace in sorted(set(namespaces)) for figure in ENGINE_FIGURES]
    answers = await asyncio.gather(*(_values(client, *question) for question in wanted))
    if wanted and all(answer is None for answer in answers):
        return None
    figures: dict[str, dict[str, float]] = {}
    for (namespace, metric), answer in zip(wanted, answers, strict=True):
        for name, value in answer or ():
            figures.setdefault(f"{namespace}/{name}", {})[metric] = value
    return figures


async def _values(client: Client, namespace: str, metric: str) -> list[tuple[str, float]] | None:
    try:
        answer = await client.get(METRICS, metric, namespace)
    except (NotFound, Forbidden):
        return None
    except KubeError as error:
        log.info("figures of engines cannot be read", namespace=namespace, metric=metric, error=str(error))
        return None
    return [(item["describedObject"]["name"], _rounded(item["value"])) for item in answer.get("items") or ()]


def _rounded(quantity: Any) -> float:
    """Three digits: more would be noise, and each noise a change that every page gets."""
    return float(f"{float(exact(str(quantity))):.3g}")
