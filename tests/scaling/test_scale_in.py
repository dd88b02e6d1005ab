"""Which pods a scale-in takes from a clique: those with the least to do, as far as the metrics API says."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, pcs
from tests.support.operating import World

from grove.api.core import Pod
from grove.api.meta import Json, Resource
from grove.api.podclique import PodClique
from grove.kube.errors import NotFound
from grove.operator.podclique.pod_facts import PodLoads

pytestmark = pytest.mark.simulated


class MetricsApi:
    """What a metrics API says of the pods of a clique: running requests by index."""

    def __init__(self, world: World, loads: dict[int, float], *, hangs: bool = False) -> None:
        self._world, self._loads, self._hangs, self.asked = world, loads, hangs, 0

    async def ask(self, clique: PodClique, metric: str) -> list[Json]:
        self.asked += 1
        if self._hangs:
            await asyncio.sleep(3600)
        if metric != "grove_requests_running":
            return []
        selected = clique.status.hpa_pod_selector
        pods = (await self._world.client.list(Pod, clique.metadata.namespace, labels=selected)).items
        return [
            {"describedObject": {"name": pod.metadata.name}, "value": f"{self._loads[index_of(pod)]:g}"} for pod in pods
        ]


def index_of(pod: Pod) -> int:
    return int(pod.spec.hostname.rpartition("-")[2])


async def left_of_six(world: World) -> list[int]:
    """Six pods beside another clique, scaled to three: the indexes of those that stay."""
    await world.apply(pcs("demo", clique("first"), clique("web", 6, min_available=1)))
    await world.available("demo")
    await world.scale(PodClique, "demo-0-web", 3)

    async def shrunk() -> bool:
        return len(await world.pods("demo-0-web")) == 3

    await world.eventually(shrunk)
    await world.quiet()
    return sorted(map(index_of, await world.pods("demo-0-web")))


async def test_the_busy_pods_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    api = MetricsApi(world, {0: 1, 1: 7, 2: 0, 3: 9, 4: 2, 5: 8})
    monkeypatch.setattr(PodLoads, "_ask", lambda self, clique, metric: api.ask(clique, metric))
    assert await left_of_six(world) == [1, 3, 5]
    assert 0 < api.asked <= 4, "asked when there is a choice, not at every look"


async def test_a_metrics_api_that_does_not_answer_holds_nothing_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = MetricsApi(world, {}, hangs=True)
    monkeypatch.setattr(PodLoads, "_ask", lambda self, clique, metric: api.ask(clique, metric))
    assert await left_of_six(world) == [0, 1, 2]
    assert api.asked


async def test_a_cluster_without_metrics_scales_in_as_ever(world: World) -> None:
    with pytest.raises(NotFound):
        await world.client.list(Resource("custom.metrics.k8s.io", "v1beta2", "MetricValueList", "pods/*/x"), "default")
    assert await left_of_six(world) == [0, 1, 2]
