"""A gang that would not fit on an empty cluster: `explain` says so, also while other gangs use every node."""

from __future__ import annotations

import pytest
from tests.support.asking import World, server
from tests.support.broken import apply
from tests.support.situations import Act

from grove.answers.explain import explain_answer

pytestmark = pytest.mark.simulated


async def pod_of_16(world: World) -> None:
    await apply(world, gpus=16)


async def five_nodes_in_one_rack(world: World) -> None:
    await world.apply(world.system("chat", cliques=[server("worker", 5, 8)]))


async def one_node(world: World) -> None:
    await apply(world, gpus=8)


NODE = "node: a pod asks for 16 nvidia.com/gpu, and no node has more than 8"
RACK = "gang: its minimum needs 40 nvidia.com/gpu in one rack, and no rack has more than 32"


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize(
    ("act", "want"),
    [
        pytest.param(pod_of_16, NODE, id="a pod that is larger than every node"),
        pytest.param(five_nodes_in_one_rack, RACK, id="a minimum that is larger than every rack"),
    ],
)
async def test_a_gang_that_never_fits_is_called_so(world: World, act: Act, want: str, is_full: bool) -> None:
    if is_full:
        await world.apply(world.system("full", required="zone", cliques=[server("worker", 8, 8)]))
        await world.available("full")
    await act(world)
    await world.refused("chat-0")
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    assert explain.data["gangs"][0].evidence[0] == want


async def test_a_gang_that_fits_on_an_empty_cluster_is_not_called_too_large(world: World) -> None:
    await world.apply(world.system("full", required="zone", cliques=[server("worker", 8, 8)]))
    await world.available("full")
    await one_node(world)
    await world.refused("chat-0")
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    assert not [line for line in explain.data["gangs"][0].evidence if "has more than" in line]
