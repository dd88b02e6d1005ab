"""A gang that would not fit on an empty cluster, whatever else runs: `explain` says so, and what to ask for."""

from __future__ import annotations

import pytest
from tests.support.asking import World, server
from tests.support.broken import apply
from tests.support.situations import Act

from grove.answers.explain import explain_answer
from grove.api import labels
from grove.api.core import Node
from grove.api.meta import Json

pytestmark = pytest.mark.simulated


async def pod_of_16(world: World) -> None:
    await apply(world, gpus=16)


async def five_nodes_in_one_rack(world: World) -> None:
    await world.apply(world.system("chat", cliques=[server("worker", 5, 8)]))


async def nine_nodes_anywhere(world: World) -> None:
    manifest = world.system("chat", cliques=[server("worker", 9, 8)])
    del manifest["spec"]["template"]["topologyConstraint"]
    await world.apply(manifest)


async def one_node(world: World) -> None:
    await apply(world, gpus=8)


NODE = "node: a pod asks for 16 nvidia.com/gpu, and no node has more than 8"
ALL = "gang: its minimum needs 72 nvidia.com/gpu, and all nodes together have 64"
RACK = "gang: its minimum needs 40 nvidia.com/gpu in one rack, and no rack has more than 32"


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize(
    ("act", "want"),
    [
        pytest.param(pod_of_16, NODE, id="a pod that is larger than every node"),
        pytest.param(nine_nodes_anywhere, ALL, id="a minimum that is larger than the cluster"),
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


async def test_cliques_on_different_nodes_are_not_added_up_against_the_nodes_of_one(world: World) -> None:
    """Each pool has 32 GPUs, and the gang asks for 24 in each; one pool is in use."""
    pools = {name: "a" if number < 4 else "b" for number, name in enumerate(world.nodes.names)}
    for name, pool in pools.items():
        await world.client.patch(Node, name, {"metadata": {"labels": {"pool": pool}}})

    def in_pool(clique: Json, pool: str) -> Json:
        clique["spec"]["podSpec"]["nodeSelector"] |= {"pool": pool}
        return clique

    full = world.system("full", required="zone", cliques=[server("worker", 4, 8)])
    in_pool(full["spec"]["template"]["cliques"][0], "a")
    await world.apply(full)
    await world.available("full")
    manifest = world.system("chat", required="zone", cliques=[server("prefill", 3, 8), server("decode", 3, 8)])
    for clique, pool in zip(manifest["spec"]["template"]["cliques"], "ab", strict=True):
        in_pool(clique, pool)
    await world.apply(manifest)
    await world.refused("chat-0")
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    assert not [line for line in explain.data["gangs"][0].evidence if "its minimum needs" in line]


def asking_for(resources: Json) -> Act:
    """One pod with these requests."""

    async def act(world: World) -> None:
        manifest = world.system("chat", cliques=[server("worker", 1, 8)])
        container = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
        container["resources"] = {"limits": resources, "requests": resources}
        await world.apply(manifest)

    return act


@pytest.mark.parametrize(
    ("resources", "evidence", "step"),
    [
        pytest.param(
            {"cpu": "400"},
            "node: a pod asks for 400 cpu, and no node has more than 128",
            "ask for at most 128 cpu in each pod, or add larger nodes",
            id="more CPU than any node has",
        ),
        pytest.param(
            {"amd.com/gpu": "8"},
            "node: a pod asks for 8 amd.com/gpu, and no node has amd.com/gpu",
            "correct the name of the resource, or install the device plugin that gives nodes amd.com/gpu",
            id="a resource that no node has",
        ),
    ],
)
async def test_the_step_names_the_resource_that_no_node_has_enough_of(
    world: World, resources: Json, evidence: str, step: str
) -> None:
    await asking_for(resources)(world)
    await world.refused("chat-0")
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    assert explain.data["gangs"][0].evidence[0] == evidence
    assert explain.data["next"] == step


async def test_pods_that_may_not_share_a_node_are_named(world: World) -> None:
    """64 GPUs are free, five are needed, and a rack has four nodes."""
    manifest = world.system("chat", cliques=[server("worker", 5, 1)])
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {labels.PART_OF: "chat"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["affinity"] = rule
    await world.apply(manifest)
    await world.refused("chat-0")
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    want = "node: pods of chat-0-worker may not share one kubernetes.io/hostname (podAntiAffinity)"
    assert want in explain.data["gangs"][0].evidence
