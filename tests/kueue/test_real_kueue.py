"""The real Kueue with sets in its queues: `make test-kueue`.

`tests.scheduling.test_kueue` tells the same stories with the stand-in. Nodes are fake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from grove.api import kueue
from grove.api.core import Namespace, Pod
from grove.api.node import PriorityClass
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.errors import NotFound
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.topology import HOST
from tests.kueue.build import KUEUE
from tests.kueue.program import RealKueue, kueue_of, kueue_running
from tests.support.cluster import Cluster
from tests.support.kueue import CLUSTER_QUEUE
from tests.support.kueue_stories import OPERATING, STORIES, Story, explained, no_restart, queued, quota
from tests.support.manifests import clique
from tests.support.operating import World
from tests.support.planes import GrovePlane

pytestmark = pytest.mark.soak

__all__ = ["OPERATING"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not KUEUE.is_built:
        pytest.skip(f"Kueue is not in {KUEUE.directory}; `make test-kueue` builds it")
    folder = tmp_path_factory.mktemp("plane")
    with GrovePlane(folder, controller_manager=True, aggregator_routing=False) as found:
        yield found


@pytest.fixture
async def cluster(plane: ControlPlane, fresh_name: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        await stack.enter_async_context(kueue_running(plane, tmp_path))
        found = Cluster(client, SYSTEM, None, stack)
        found.namespace = fresh_name
        await client.create(Namespace, {"metadata": {"name": fresh_name}})
        yield found
        await client.delete(Namespace, fresh_name)


@pytest.fixture
async def queue(world: World) -> AsyncIterator[RealKueue]:
    async with kueue_of(world.client, world.namespace) as found:
        await found.make_flavor()
        yield found
        await world.clear()
    with suppress(NotFound):
        await world.client.delete(CLUSTER_QUEUE, f"{world.cluster.prefix}gpu-a")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_the_same_story_with_the_program(world: World, queue: RealKueue, story: Story) -> None:
    await story(world, queue)


async def test_the_nodes_of_the_flavor_are_used(world: World, queue: RealKueue) -> None:
    node = sorted(world.nodes.names)[3]
    await queue.make_flavor(**{HOST: node})
    await quota(world, 2)
    await world.apply(queued(clique("decode", 2)))
    await world.available("chat")
    assert {pod.spec.node_name for pod in await world.pods()} == {node}


async def test_a_gang_that_kueue_preempts_waits_without_a_restart_and_comes_back(
    world: World, queue: RealKueue
) -> None:
    """Kueue itself chooses the gang: a set of higher priority asks for the quota."""
    await quota(world, 4)
    preemption = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    await world.client.patch(CLUSTER_QUEUE, f"{world.cluster.prefix}gpu-a", preemption)
    name = f"{world.cluster.prefix}urgent"
    await world.client.create(PriorityClass, PriorityClass.RESOURCE.manifest({"name": name}, value=1000))
    await world.apply(queued(clique("prefill", 2), clique("decode", 2), terminationDelay="10s"))
    await world.available("chat")
    before = {pod.metadata.uid for pod in await world.pods()}

    urgent = queued(clique("decode", 3))
    urgent["metadata"]["name"] = "urgent"
    urgent["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["priorityClassName"] = name
    await world.apply(urgent)
    await world.available("urgent")

    async def held() -> list[Pod]:
        chat = [pod for pod in await world.pods() if pod.metadata.labels["app.kubernetes.io/part-of"] == "chat"]
        return chat if len(chat) == 4 and all(map(kueue.waits, chat)) else []

    await world.eventually(held)
    await explained(world, f"waits for Kueue: ClusterQueue {world.cluster.prefix}gpu-a has 1 of 4 GPUs left")
    await world.cluster.settle(20)  # twice the time after which a breach restarts a gang
    assert len(await held()) == 4
    await no_restart(world)

    await world.delete(PodCliqueSet, "urgent")
    await world.available("chat")
    assert not before & {pod.metadata.uid for pod in await world.pods()}
    await no_restart(world)
    assert (queue.excess, queue.refused) == ([], [])


async def test_kueue_stops_and_a_set_waits_until_it_runs_again(
    plane: ControlPlane, fresh_name: str, tmp_path: Path
) -> None:
    """While Kueue is away its webhook refuses every pod, which the set reports."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        found = Cluster(client, SYSTEM, None, stack)
        found.namespace = fresh_name
        await client.create(Namespace, {"metadata": {"name": fresh_name}})
        async with OPERATING.on(found) as world:
            async with kueue_running(plane, tmp_path):
                await RealKueue(client, fresh_name).make_flavor()
                await quota(world, 2)
            await world.apply(queued(clique("decode", 2)))
            await world.cluster.settle(10)
            assert not [pod for pod in await world.pods() if not kueue.waits(pod)]
            async with kueue_running(plane, tmp_path):
                await world.available("chat")
                await no_restart(world)
                await world.clear()
        await client.delete(Namespace, fresh_name)
