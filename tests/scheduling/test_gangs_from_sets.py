"""The gang scenarios once more with the operator making the gangs: from a PodCliqueSet to pods on nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.support.operating import Operating, World
from tests.support.workloads import wl1, wl2

from grove.api import labels as key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.sim.topology import HOST, Topology

pytestmark = pytest.mark.real_in("soak")

OPERATING = Operating(nodes=Topology(nodes=1, pods=0), scheduled=True)


async def add_room(world: World, pods: int) -> None:
    """Further nodes, each with capacity for one pod."""
    shape = next(Topology(pods=1).objects())
    first = len(world.nodes.names)
    nodes = []
    for number in range(first, first + pods):
        node = msgspec.json.decode(msgspec.json.encode(shape))
        node["metadata"]["name"] = node["metadata"]["labels"][HOST] = f"{world.cluster.prefix}{number}"
        nodes.append(node)
    await world.nodes.add(nodes)


async def expect(world: World, **cliques: int) -> None:
    """Waits until exactly these numbers of pods are bound by clique (dashes as underscores, without the set's name)."""
    wanted = {f"wl-{name.replace('_', '-')}": count for name, count in cliques.items()}

    async def bound() -> Counter[str]:
        return Counter(pod.metadata.labels[key.POD_CLIQUE] for pod in await world.pods() if pod.is_bound)

    async def reached() -> Any:
        found = dict(await bound())
        return found == wanted or None

    await world.eventually(reached)
    await world.cluster.settle(4 if world.cluster.is_sim else 0.5)
    assert dict(await bound()) == wanted


@pytest.mark.real_in("test")
async def test_gs1_a_set_waits_for_its_last_node(world: World) -> None:
    await add_room(world, 9)
    await world.apply(wl1())
    await expect(world)
    await add_room(world, 1)
    await world.available("wl")


async def test_gs5_and_gs6_minima_first_then_copies_then_surplus(world: World) -> None:
    await add_room(world, 2)
    await world.apply(wl2())
    await expect(world)
    await add_room(world, 1)
    await expect(world, **{"0_pc_a": 1, "0_sg_x_0_pc_b": 1, "0_sg_x_0_pc_c": 1})
    await add_room(world, 2)
    floors = {"0_pc_a": 1, "0_sg_x_0_pc_b": 1, "0_sg_x_0_pc_c": 1, "0_sg_x_1_pc_b": 1, "0_sg_x_1_pc_c": 1}
    await expect(world, **floors)
    await add_room(world, 5)
    full = {"0_pc_a": 2, "0_sg_x_0_pc_b": 1, "0_sg_x_0_pc_c": 3, "0_sg_x_1_pc_b": 1, "0_sg_x_1_pc_c": 3}
    await expect(world, **full)
    await world.scale(PodCliqueScalingGroup, "wl-0-sg-x", 3)
    await add_room(world, 2)
    await expect(world, **full, **{"0_sg_x_2_pc_b": 1, "0_sg_x_2_pc_c": 1})
    await add_room(world, 2)
    await expect(world, **full, **{"0_sg_x_2_pc_b": 1, "0_sg_x_2_pc_c": 3})


async def test_gs10_minima_of_all_replicas_first(world: World) -> None:
    await world.apply(wl2())
    await world.scale(PodCliqueSet, "wl", 2)
    await world.eventually(lambda: world.has_pods(20))
    await add_room(world, 6)
    base = {f"{r}_{name}": 1 for r in (0, 1) for name in ("pc_a", "sg_x_0_pc_b", "sg_x_0_pc_c")}
    await expect(world, **base)
    await add_room(world, 4)
    scaled = {f"{r}_{name}": 1 for r in (0, 1) for name in ("sg_x_1_pc_b", "sg_x_1_pc_c")}
    await expect(world, **base, **scaled)
    await add_room(world, 10)
    await world.available("wl", 2)
