"""A minimum is repaired before surplus is added: pods of a base gang are replaced while an instance waits for a node.

`samples/disaggregated.yaml` on the 64 nodes of `grove up`: a block of 16 nodes takes six instances of prefill beside
decode. The seventh waits, and one node of the block stays free. Ten repetitions on the simulator and in `make soak`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.gangs import Wrong
from tests.support.manifests import clique, group, pcs
from tests.support.operating import TOPOLOGY, World, operating
from tests.support.running import beside
from tests.support.workloads import change, updated

from grove.api import labels
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.reasons import sentence
from grove.plan.world import binding
from grove.scheduler.loop.live import Scheduler
from grove.sim.topology import Topology

SAMPLE = Path(__file__).parents[2] / "samples" / "disaggregated.yaml"
GPU = {"containers": [{"name": "main", "image": "example/engine:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
TIMES = 10
PATIENCE_S = 600.0


@pytest.fixture
async def start(cluster: Any) -> AsyncIterator[Callable[[Topology], Awaitable[World]]]:
    """Starts the operator and grove-scheduler, with its default settings, on nodes of this topology."""
    worlds = []

    async def started(nodes: Topology) -> World:
        running = operating(cluster, config=TOPOLOGY, nodes=nodes)
        world = await running.__aenter__()
        world.binder.allow(0)
        scheduler = beside(Scheduler(world.client, clock=world.cluster.clock, say=sentence).run())
        await scheduler.__aenter__()
        worlds.append((running, scheduler))
        return world

    yield started
    for running, scheduler in worlds:
        await scheduler.__aexit__(None, None, None)
        await running.__aexit__(None, None, None)


async def reaches(world: World, base: str, pods_of_base: int, scaled: list[int]) -> None:
    """Returns when the base gang has this number of ready pods, and scaled gangs have these numbers of them, and no
    others.

    Which of the scaled gangs run is open: the API server may create any of them first.
    """

    async def is_so() -> Any:
        pods = [pod for pod in await world.pods() if pod.spec.node_name]
        found = Counter(pod.metadata.labels[labels.POD_GANG] for pod in pods)
        ready = sum(pod.is_ready for pod in pods)
        others = sorted(count for gang, count in found.items() if gang != base)
        return (found[base] == pods_of_base and others == scaled and ready == len(pods)) or Wrong(
            f"{dict(found)}, {ready} ready"
        )

    await world.eventually(is_so, PATIENCE_S)


async def replace(world: World, pods: list[Pod], how: str) -> None:
    """Kills these pods, or drains their nodes and opens them again."""
    for pod in pods:
        if how == "drain":
            await world.nodes.cordon(pod.spec.node_name)
        await world.delete(Pod, pod.metadata.name, **({"grace_period_s": 0} if how == "kill" else {}))
    if how == "drain":
        await asyncio.sleep(3)
        for pod in pods:
            await world.nodes.cordon(pod.spec.node_name, unschedulable=False)


async def of_gang(world: World, gang: str) -> list[Pod]:
    return [pod for pod in await world.pods() if pod.metadata.labels[labels.POD_GANG] == gang and pod.spec.node_name]


def sample(topology: str) -> Json:
    found: Json = yaml.safe_load(SAMPLE.read_text())
    found["spec"]["template"]["topologyConstraint"]["topologyName"] = topology
    return found


async def updates_kills_and_drains(world: World, times: int) -> None:
    topology = f"{world.namespace}-levels"
    await world.client.create(ClusterTopologyBinding, binding(name=topology))
    await world.apply(sample(topology))
    await world.available("chat", timeout_s=PATIENCE_S)
    await world.scale(PodCliqueScalingGroup, "chat-0-prefill", 7)
    stands = partial(reaches, world, "chat-0", 7, [2] * 5)
    await stands()
    for turn in range(times):
        for image in ("first", "second"):
            await change(world, "chat", "prefill-leader", "prefill-worker", "decode-leader", to=f"{image}-{turn}")
            await asyncio.sleep(5)
        await updated(world, "chat", PATIENCE_S)
        await stands()
        for how in ("kill", "drain"):
            pods = [pod for pod in await of_gang(world, "chat-0") if "router" not in pod.metadata.name]
            await replace(world, pods[turn % len(pods) :][:2], how)
            await world.cluster.settle(3)
            await stands()
        await world.available("chat", timeout_s=PATIENCE_S)
    await world.client.delete(ClusterTopologyBinding, topology)


NODES = Topology(zones=2, blocks=2, racks=4, nodes=4)


@pytest.mark.real_in("soak")
async def test_ten_rounds_of_updates_kills_and_drains_beside_an_instance_that_waits(
    start: Callable[[Topology], Awaitable[World]],
) -> None:
    await updates_kills_and_drains(await start(NODES), TIMES)


@pytest.mark.real_in("soak")
async def test_a_round_of_updates_a_kill_and_a_drain_beside_an_instance_that_waits(
    start: Callable[[Topology], Awaitable[World]],
) -> None:
    await updates_kills_and_drains(await start(NODES), 1)


@pytest.mark.real_in("soak")
@pytest.mark.parametrize("how", ["delete", "kill", "drain"])
async def test_a_deleted_pod_of_the_minimum_gets_its_node_before_units_that_wait(
    start: Callable[[Topology], Awaitable[World]], how: str
) -> None:
    """Three nodes, and five units of one pod with `minAvailable: 2`: three run, two wait."""
    world = await start(Topology(nodes=3))
    units = group("units", "work", replicas=5, min_available=2)
    await world.apply(pcs("five", clique("work", **GPU), groups=[units]))
    stands = partial(reaches, world, "five-0", 2, [1])
    await stands()
    for turn in range(TIMES):
        await replace(world, (await of_gang(world, "five-0"))[turn % 2 :][:1], how)
        await world.cluster.settle(3)
        await stands()
