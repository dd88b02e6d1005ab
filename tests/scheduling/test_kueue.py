"""Sets in a queue of Kueue, with the stand-in of `tests.support.kueue`.

`make test-kueue` tells the stories of `tests.support.kueue_stories` with the program of Kueue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support import kueue as stand_in
from tests.support import kueue_stories as told
from tests.support.kueue import Kueue
from tests.support.kueue_stories import HOUR, OPERATING, explained, no_restart, queued, quota, waiting
from tests.support.manifests import clique
from tests.support.operating import World
from tests.support.running import beside

from grove.api import kueue
from grove.api.core import Pod
from grove.api.podcliqueset import PodCliqueSet
from grove.sim.topology import HOST

__all__ = ["OPERATING"]
SIMULATED = [*told.STORIES[1:], told.an_evicted_gang_waits_for_days_without_a_restart_and_without_a_write]
"""Those that run on the simulator only; the first one runs on a real API server too."""


@pytest.fixture
async def queue(world: World) -> AsyncIterator[Kueue]:
    await stand_in.install(world.client)
    await world.eventually(lambda: _served(world))
    found = Kueue(world.client, world.namespace)
    async with beside(found.run()):
        yield found
        await world.clear()
    await stand_in.uninstall(world.client)


async def _served(world: World) -> bool:
    await world.client.list(stand_in.CLUSTER_QUEUE)
    return True


async def test_a_gang_is_admitted_evicted_and_deleted_whole(world: World, queue: Kueue) -> None:
    await told.a_gang_is_admitted_evicted_and_deleted_whole(world, queue)


@pytest.mark.simulated
@pytest.mark.parametrize("story", SIMULATED, ids=lambda story: story.__name__)
async def test_a_set_in_a_queue(world: World, queue: Kueue, story: told.Story) -> None:
    await story(world, queue)


@pytest.mark.simulated
async def test_the_nodes_of_the_flavor_are_used(world: World, queue: Kueue) -> None:
    node = sorted(world.nodes.names)[3]
    queue.node_labels = {HOST: node}
    await quota(world, 2)
    await world.apply(queued(clique("decode", 2)))
    await world.available("chat")
    assert {pod.spec.node_name for pod in await world.pods()} == {node}


@pytest.mark.simulated
async def test_a_set_waits_until_kueue_is_installed(world: World) -> None:
    await world.apply(queued(clique("decode", 2)))
    await waiting(world, 2)
    await world.cluster.settle(HOUR)
    assert len(await waiting(world, 2)) == 2
    await explained(world, "waits for Kueue, and this cluster does not have it: the kind Workload is not installed")
    await stand_in.install(world.client)
    await quota(world, 2)
    async with beside(Kueue(world.client, world.namespace).run()):
        await world.available("chat")
    await no_restart(world)


@pytest.mark.simulated
async def test_pods_run_and_can_be_deleted_after_kueue_is_removed(world: World) -> None:
    await stand_in.install(world.client)
    await quota(world, 2)
    found = Kueue(world.client, world.namespace)
    async with beside(found.run()):
        await world.apply(queued(clique("decode", 2)))
        await world.available("chat")
    await stand_in.uninstall(world.client)
    await world.cluster.settle(HOUR)
    assert all(pod.is_ready for pod in await world.pods())
    await world.delete(PodCliqueSet, "chat")

    async def gone() -> bool:
        return not await world.list(Pod)

    await world.eventually(gone)


@pytest.mark.simulated
async def test_a_set_that_leaves_the_queue_runs_without_kueue(world: World) -> None:
    await world.apply(queued(clique("decode", 2)))
    await waiting(world, 2)
    await world.client.patch(PodCliqueSet, "chat", {"metadata": {"labels": {kueue.QUEUE: None}}}, world.namespace)
    await world.available("chat")
    assert not any(kueue.is_managed(pod) for pod in await world.pods())
