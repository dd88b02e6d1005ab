"""API writes a pod of operator and scheduler, counted on the simulator: the same number on any machine at any load.

One set is made, halved, filled again, updated and deleted; many small ones are made; one of scaling groups is made,
updated and deleted. A delete of a collection counts as one write, as the operator sees it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support.manifests import clique, group, pcs
from tests.support.running import beside

from bench.figures import Figure
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.config import load_configuration
from grove.diagnosis.reasons import sentence
from grove.kube.logs import configure_logs
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.loop import run as run_virtual
from grove.sim.topology import Topology

REPLICAS, SETS, GROUPS = 100, 60, 10
QUIET_S = 40.0
"""A status of progress waits half a minute at most."""
ACCOUNT = "system:serviceaccount:grove-system"
READS = ("get", "list", "watch", "serves", "discover")
Act = Callable[[], Awaitable[Any]]


def changed(name: str, pods: int = 1) -> Json:
    """The clique from another template."""
    container = {"name": "main", "image": "registry.example/engine:2"}
    return clique(name, pods, containers=[container])


class Stories:
    def __init__(self, cluster: SimCluster, results: dict[str, Figure]) -> None:
        self.cluster, self._results, self.user = cluster, results, cluster.client()
        self.writers = {name: cluster.client(user=f"{ACCOUNT}:grove-{name}") for name in ("operator", "scheduler")}

    async def tell(self, name: str, pods: int, act: Act) -> None:
        """Does something, waits until no program writes any more, and notes the writes for each of `pods` pods."""
        before = self._writes()
        await act()
        await self._quiet()
        for writer, count in self._writes().items():
            self._results[f"writes a pod, {writer}: {name}"] = Figure((count - before[writer]) / pods, "")

    async def patch(self, name: str, patch: Json, subresource: str = "") -> None:
        await self.user.patch(PodCliqueSet, name, patch, "default", subresource=subresource)

    def _writes(self) -> dict[str, int]:
        return {
            name: sum(count for (verb, _), count in client.calls.items() if verb not in READS)
            for name, client in self.writers.items()
        }

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        before, since = self._writes(), loop.time()
        while loop.time() - since < QUIET_S:
            await asyncio.sleep(0.5)
            if (now := self._writes()) != before:
                before, since = now, loop.time()


@asynccontextmanager
async def working(cluster: SimCluster, writers: Mapping[str, SimClient]) -> AsyncIterator[None]:
    """With operator and scheduler, each writing by a client of its own."""
    operator = Operator(
        writers["operator"], load_configuration(""), clock=cluster.clock, rng=random.Random(7), startup_image="none:1"
    )
    scheduler = Scheduler(writers["scheduler"], SchedulerConfiguration(), cluster.clock, say=sentence)
    async with scheduler.following(), beside(scheduler.schedule()), operator.running():
        yield


async def measure(results: dict[str, Figure]) -> None:
    async with SimCluster(seed=1, start_s=0.2, stop_s=0.2) as cluster:
        await cluster.nodes.add(Topology(racks=4, nodes=16))
        stories = Stories(cluster, results)
        async with working(cluster, stories.writers):
            await tell_all(stories)


async def tell_all(stories: Stories) -> None:
    create, delete, half = stories.user.create, stories.user.delete, REPLICAS // 2
    pair, shape = pcs("big", clique("w", 2), replicas=REPLICAS), f"{REPLICAS} x 2 pods"
    await stories.tell(f"{shape} made", 2 * REPLICAS, lambda: create(PodCliqueSet, pair))
    for replicas in (half, REPLICAS):
        patch: Json = {"spec": {"replicas": replicas}}
        await stories.tell(f"scaled to {replicas} x 2", REPLICAS, lambda: stories.patch("big", patch, "scale"))  # noqa: B023
    update: Json = {"spec": {"template": {"cliques": [changed("w", 2)]}}}
    await stories.tell(f"{shape} updated", 2 * REPLICAS, lambda: stories.patch("big", update))
    await stories.tell(f"{shape} deleted", 2 * REPLICAS, lambda: delete(PodCliqueSet, "big", "default"))

    async def many() -> None:
        await asyncio.gather(*(create(PodCliqueSet, pcs(f"m{n}", clique("w", 3))) for n in range(SETS)))

    await stories.tell(f"{SETS} sets x 3 pods made", 3 * SETS, many)
    parts = [clique("r"), clique("l"), clique("v", 2)]
    grouped = pcs("grp", *parts, groups=[group("g", "l", "v", replicas=2, min_available=1)], replicas=GROUPS)
    shape = f"{GROUPS} x (router, 2 x (leader, 2 workers))"
    await stories.tell(f"{shape} made", 7 * GROUPS, lambda: create(PodCliqueSet, grouped))
    update = {"spec": {"template": {"cliques": [parts[0], changed("l"), changed("v", 2)]}}}
    await stories.tell("… leaders and workers updated", 6 * GROUPS, lambda: stories.patch("grp", update))
    await stories.tell("… deleted", 7 * GROUPS, lambda: delete(PodCliqueSet, "grp", "default"))


def run(results: dict[str, Figure]) -> None:
    configure_logs("error", "text")
    run_virtual(measure(results))
