"""Nodes are held for replaced pods: pods deleted, nodes lost, the set updated, in random clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.plan.world import World, binding
from grove.sim.loop import run
from grove.sim.topology import RACK, Topology

SAMPLE = Path(__file__).parents[2] / "samples" / "deepseek-like.yaml"
GANGS = ("deepseek-0", "deepseek-1")


def sample() -> Json:
    """Two systems of twelve pods with two GPUs, each within a block, in one rack if possible."""
    found: Json = yaml.safe_load(SAMPLE.read_text())
    return found


def world(seed: int) -> World:
    """Racks of four nodes with eight GPUs: three nodes hold the sample, and one of its rack stays empty."""
    shape = Topology(blocks=2, racks=3, nodes=4)
    return World(shape.objects(), seed=seed, objects=[(ClusterTopologyBinding, binding())])


def pods(here: World) -> list[Pod]:
    return [pod for gang in GANGS for pod in here.pods_of(gang)]


def racks(here: World) -> dict[str, set[str]]:
    """Racks of each gang."""
    nodes = {node.metadata.name: node.metadata.labels[RACK] for node in here.all(Node)}
    return {
        gang: {nodes[pod.spec.node_name] for pod in here.pods_of(gang) if pod.spec.node_name in nodes} for gang in GANGS
    }


def stands(here: World, gone: set[str] = frozenset()) -> bool:
    there = [pod for pod in pods(here) if pod.spec.node_name and pod.metadata.uid not in gone]
    return len(there) == 24 and here.is_settled("deepseek")


def scores(here: World) -> list[float | None]:
    found = [here.find(PodGang, gang) for gang in GANGS]
    return [one.status.placement_score if one is not None else None for one in found]


def decode(here: World) -> Pod:
    return here.rng.choice([pod for pod in pods(here) if pod.metadata.labels[labels.POD_CLIQUE].endswith("decode")])


def first_nodes(here: World) -> set[str]:
    """The first node by name of every rack."""
    nodes = sorted(here.all(Node), key=lambda node: node.metadata.name, reverse=True)
    return set({node.metadata.labels[RACK]: node.metadata.name for node in nodes}.values())


async def cordon(here: World, names: set[str], closed: bool) -> None:
    for name in names:
        await here.client.patch(Node, name, {"spec": {"unschedulable": closed or None}})


async def tempt(here: World, room: int) -> None:
    """Makes places that packing alone would prefer to the earlier nodes.

    They are a first node in each home with this number of free GPUs, and other racks that are full but for two.
    """
    homes, first = set.union(*racks(here).values()), first_nodes(here)
    await cordon(here, first, closed=False)
    for node in here.all(Node):
        name, is_home = node.metadata.name, node.metadata.labels[RACK] in homes
        taken = (8 - room if is_home else 6) if name in first else (0 if is_home else 8)
        asked = {"limits": {"nvidia.com/gpu": str(taken)}, "requests": {"nvidia.com/gpu": str(taken)}}
        spec = {"nodeName": name, "containers": [{"name": "main", "image": "example/other", "resources": asked}]}
        if taken:
            meta = {"name": f"other-on-{name}", "namespace": here.namespace}
            await here.client.create(Pod, {"metadata": meta, "spec": spec})


@pytest.mark.parametrize("at_once", [True, False], ids=["gone at once", "while the old pod still terminates there"])
@pytest.mark.parametrize("seed", range(5))
def test_a_deleted_pod_comes_back_to_its_node_or_at_least_to_its_rack(seed: int, at_once: bool) -> None:
    async def story() -> None:
        async with world(seed) as here:
            await cordon(here, first_nodes(here), closed=True)
            await here.apply(sample())
            assert await here.until(lambda: stands(here))
            home = racks(here)
            assert [len(one) for one in home.values()] == [1, 1]
            await tempt(here, room=2 if at_once else 4)
            lost = decode(here)
            gone, before = {lost.metadata.uid}, sorted(pod.spec.node_name for pod in pods(here))
            await here.client.delete(Pod, lost.metadata.name, here.namespace, grace_period_s=0 if at_once else None)
            assert await here.until(lambda: stands(here, gone))
            assert (racks(here), scores(here)) == (home, [1.0, 1.0])
            if at_once:
                assert sorted(pod.spec.node_name for pod in pods(here)) == before

    run(story())


def test_the_score_says_so_when_a_replaced_pod_found_no_capacity_in_its_rack() -> None:
    async def story() -> None:
        async with world(seed=1) as here:
            await cordon(here, first_nodes(here), closed=True)
            await here.apply(sample())
            assert await here.until(lambda: stands(here))
            home, lost = racks(here), decode(here)
            await cordon(here, {lost.spec.node_name}, closed=True)
            await here.client.delete(Pod, lost.metadata.name, here.namespace, grace_period_s=0)
            assert await here.until(lambda: stands(here, {lost.metadata.uid}))
            assert sorted(len(one) for one in racks(here).values()) == [1, 2]
            torn = next(i for i, gang in enumerate(GANGS) if racks(here)[gang] != home[gang])
            assert await here.until(lambda: scores(here)[torn] == 0.5 and scores(here)[1 - torn] == 1.0)

    run(story())


@pytest.mark.parametrize("seed", range(3))
def test_an_update_of_the_whole_replica_keeps_its_rack(seed: int) -> None:
    async def story() -> None:
        async with world(seed) as here:
            await here.apply(sample())
            assert await here.until(lambda: stands(here))
            home, old = racks(here), {pod.metadata.uid for pod in pods(here)}
            changed = sample()
            for clique in changed["spec"]["template"]["cliques"]:
                clique["spec"]["podSpec"]["containers"][0]["image"] = "example/next:2"
            patch = {"spec": {"template": {"cliques": changed["spec"]["template"]["cliques"]}}}
            await here.client.patch(PodCliqueSet, "deepseek", patch, here.namespace)
            assert await here.until(lambda: stands(here) and not old & {pod.metadata.uid for pod in pods(here)}, 7200.0)
            assert (racks(here), scores(here)) == (home, [1.0, 1.0])

    run(story())


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_died_is_replaced_alone(seed: int) -> None:
    async def story() -> None:
        async with world(seed) as here:
            await here.apply(sample())
            assert await here.until(lambda: stands(here))
            home, dead = racks(here), decode(here).spec.node_name
            stay = {pod.metadata.uid for pod in pods(here) if pod.spec.node_name != dead}
            lost = {pod.metadata.uid for pod in pods(here)} - stay
            await here.client.delete(Node, dead)
            for pod in pods(here):
                if pod.metadata.uid in lost:
                    await here.client.delete(Pod, pod.metadata.name, here.namespace, grace_period_s=0)
            assert await here.until(lambda: stands(here, lost))
            assert stay <= {pod.metadata.uid for pod in pods(here)}, "the others went on running"
            assert (racks(here), scores(here)) == (home, [1.0, 1.0])

    run(story())
