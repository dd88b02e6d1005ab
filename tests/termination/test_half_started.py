"""A gang of which only a part starts: none of its pods keeps its GPUs longer than the delay."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import uids

from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.sim.topology import Topology

pytestmark = pytest.mark.simulated

DELAY_S = 4 * 3600.0
"""The default of `terminationDelay`."""
GPU = "nvidia.com/gpu"
MINUTE_S = 60.0

OPERATING = Operating(nodes=Topology(nodes=1, gpus=8), scheduled=True)


def engine(name: str) -> Json:
    """A leader and a worker with four GPUs each: all that the node has."""
    resources = {"requests": {GPU: "4"}, "limits": {GPU: "4"}}
    containers = [{"name": "main", "image": "engine:1", "resources": resources}]
    return pcs(name, clique("leader", containers=containers), clique("worker", containers=containers))


async def on_nodes(world: World, name: str) -> list[Pod]:
    return [pod for pod in await world.pods() if pod.is_bound and pod.spec.hostname.startswith(name)]


async def test_no_pod_of_a_gang_whose_worker_never_starts_outlives_the_delay(world: World) -> None:
    """The restarted gang is placed again, since it is older than any gang that came meanwhile, and ends likewise."""
    world.nodes.hold = lambda pod: "worker" in pod.metadata.name
    await world.apply(engine("broken"))
    for restarts in range(1, 4):

        async def placed() -> bool:
            return len(await on_nodes(world, "broken")) == 2

        await world.eventually(placed)
        pods = await on_nodes(world, "broken")
        worker = next(pod for pod in pods if "worker" in pod.metadata.name)
        await world.nodes.crash_pod(world.namespace, worker.metadata.name, restart_s=10 * DELAY_S)
        first = await uids(world)
        await asyncio.sleep(DELAY_S - 10 * MINUTE_S)
        assert await uids(world) == first, "not before the delay has passed"
        await asyncio.sleep(20 * MINUTE_S)
        assert not set((await uids(world)).values()) & set(first.values())
        assert (await world.get(PodCliqueSet, "broken")).status.gang_restarts == restarts
