"""The operator writes objects for other schedulers in the order that they need, also after a crash at any point."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.backend_schemas import definitions
from tests.support.gang_schedulers import GangScheduler, Kai, Koordinator, Kube, KubeTree, Volcano
from tests.support.manifests import clique, group, pcs
from tests.support.mortal import DyingClient

from grove.api.core import Namespace, Pod
from grove.api.meta import Json, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.config import load_configuration
from grove.operator.wiring import Operator
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.topology import Topology

pytestmark = pytest.mark.simulated

SCHEDULERS: dict[str, tuple[str, type[GangScheduler]]] = {
    "kai-scheduler": ("kai", Kai),
    "koord-scheduler": ("koord", Koordinator),
    "volcano": ("volcano", Volcano),
    "kube-scheduler 1.36": ("kube-1.36", Kube),
    "kube-scheduler 1.37": ("kube-1.37", KubeTree),
}


class Place:
    """A simulated cluster with one other scheduler and its kinds."""

    def __init__(self, sim: SimCluster, scheduler: GangScheduler) -> None:
        self.sim, self.scheduler, self.name = sim, scheduler, scheduler.name
        self.client = sim.client()

    @asynccontextmanager
    async def operator(self, lives: int | None = None) -> AsyncIterator[tuple[Operator, DyingClient]]:
        profile = f"scheduler: {{profiles: [{{name: {self.name}}}], defaultProfileName: {self.name}}}"
        client = DyingClient(self.sim.client(user="grove-operator"), lives)
        made = Operator(
            client, load_configuration(profile), clock=self.sim.clock, rng=random.Random(1), startup_image="x"
        )  # type: ignore[arg-type]
        async with made.running():
            yield made, client

    async def pods(self) -> list[Pod]:
        return [one for one in (await self.client.list(Pod, "ns")).items if not one.metadata.is_deleting]

    async def stands(self) -> bool:
        """Everything wanted is bound, and every gang says so."""
        pods = await self.pods()
        gangs = (await self.client.list(PodGang, "ns")).items
        return (
            len(pods) == 11
            and all(pod.is_bound for pod in pods)
            and len(gangs) == 3
            and all(is_true(gang.status.conditions, "Scheduled") for gang in gangs)
        )

    async def until(self, look: Any, timeout_s: float = 300.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not await look():  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def graph(self) -> dict[str, list[Json]]:
        """The scheduler's objects and the gangs, without what differs from run to run."""
        found: dict[str, list[Json]] = {}
        for resource in {self.scheduler.kind, PodGang.RESOURCE}:
            page = await self.client.list(resource, "ns")
            kept = [{"name": one["metadata"]["name"], "spec": _stable(one["spec"])} for one in page.items]
            found[resource.kind + resource.group] = sorted(kept, key=lambda one: str(one["name"]))
        return found


def _stable(spec: Json) -> Json:
    if "podgroups" not in spec:
        return spec
    return {"podgroups": [(one["name"], one["minReplicas"], len(one["podReferences"])) for one in spec["podgroups"]]}


@asynccontextmanager
async def place(name: str) -> AsyncIterator[Place]:
    schema, kind = SCHEDULERS[name]
    nodes = Topology(racks=2, nodes=4)
    async with SimCluster(nodes=nodes, definitions=(*own_crds(), *definitions(schema))) as sim:
        await sim.client().create(Namespace, {"metadata": {"name": "ns"}})
        scheduler = kind(sim.client(user=kind.name), "ns")
        task = asyncio.get_running_loop().create_task(scheduler.run())
        try:
            yield Place(sim, scheduler)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def workload() -> Json:
    """A router of which one is surplus, beside three copies of a leader and two workers: 11 pods in 3 gangs."""
    return pcs(
        "demo",
        clique("router", 2, min_available=1),
        clique("lead", 1),
        clique("work", 2),
        groups=[group("grp", "lead", "work", replicas=3, min_available=1)],
        namespace="ns",
        metadata={"labels": {"kai.scheduler/queue": "research"}},
    )


@pytest.mark.parametrize("name", SCHEDULERS)
async def test_gangs_are_written_in_time_and_bound_whole(name: str) -> None:
    async with place(name) as here, here.operator():
        await here.client.create(PodCliqueSet, workload())

        await here.until(here.stands)

        assert here.scheduler.stumbles == []


@pytest.mark.parametrize("name", SCHEDULERS)
async def test_without_capacity_for_all_of_the_base_gang_nothing_is_bound(name: str) -> None:
    async with place(name) as here, here.operator():
        here.scheduler.allow(3)  # the base gang needs four
        await here.client.create(PodCliqueSet, workload())
        await asyncio.sleep(30)
        assert sum(pod.is_bound for pod in await here.pods()) == 0

        here.scheduler.allow(100)
        await here.until(here.stands)
        assert here.scheduler.stumbles == []


@pytest.mark.parametrize(
    "step", [pytest.param(5, id="every fifth"), pytest.param(1, marks=pytest.mark.soak, id="every")]
)
@pytest.mark.parametrize("name", SCHEDULERS)
async def test_a_crash_after_any_write_ends_in_the_same_state(name: str, step: int) -> None:
    async with place(name) as here, here.operator() as (_, client):
        client.lives = 10_000
        await here.client.create(PodCliqueSet, workload())
        await here.until(here.stands)
        await asyncio.sleep(5)
        whole, total = await here.graph(), client.written
    assert total > 20

    for lives in range(1, total, step):
        async with place(name) as here:
            async with here.operator(lives) as (_, client):
                await here.client.create(PodCliqueSet, workload())
                await asyncio.sleep(20)
                assert client.is_dead
            async with here.operator():
                await here.until(here.stands)
                await asyncio.sleep(5)
            assert here.scheduler.stumbles == [], f"after {lives} writes"
            assert await here.graph() == whole, f"after {lives} writes"


@pytest.mark.parametrize("name", SCHEDULERS)
async def test_a_clique_that_goes_to_zero_and_comes_back_is_part_of_the_gang_again(name: str) -> None:
    async with place(name) as here, here.operator():
        await here.client.create(PodCliqueSet, workload())
        await here.until(here.stands)
        before = await here.graph()

        for replicas in (0, 2):
            patch = {"spec": {"replicas": replicas}}
            await here.client.patch(PodClique, "demo-0-router", patch, "ns", subresource="scale")
            await asyncio.sleep(30)
        await here.until(here.stands)

        assert here.scheduler.stumbles == []
        assert await here.graph() == before


@pytest.mark.parametrize("name", SCHEDULERS)
async def test_pods_that_join_a_gang_are_ungated_after_its_scheduler_has_its_objects_however_long_that_takes(
    name: str,
) -> None:
    async with place(name) as here, here.operator() as (_, client):
        await here.client.create(PodCliqueSet, workload())
        await here.until(here.stands)
        telling_s = 0.0

        def slow(call: Any) -> Any:
            async def told(kind: Any, *args: Any, **options: Any) -> Any:
                await asyncio.sleep(telling_s if kind == here.scheduler.kind else 0.0)
                return await call(kind, *args, **options)

            return told

        client.patch, client.create = slow(client.patch), slow(client.create)
        for replicas in (0, 2):
            telling_s = 5.0 if replicas else 0.0
            patch = {"spec": {"replicas": replicas}}
            await here.client.patch(PodClique, "demo-0-router", patch, "ns", subresource="scale")
            await asyncio.sleep(30)
        await here.until(here.stands)

        assert here.scheduler.stumbles == []
