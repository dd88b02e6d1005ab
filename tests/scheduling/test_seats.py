"""Seats that are kept while a whole system lives: pods deleted, nodes lost, the set updated, in any simulated world."""

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
GANG = "deepseek-0"


def sample() -> Json:
    """Twelve pods of two GPUs within a block, in one rack if possible; one replica of it."""
    found: Json = yaml.safe_load(SAMPLE.read_text())
    found["spec"]["replicas"] = 1
    return found


def world(seed: int) -> World:
    """Racks of four nodes with eight GPUs: three nodes hold the sample, and one of its rack stays empty."""
    shape = Topology(blocks=2, racks=3, nodes=4)
    return World(shape.objects(), seed=seed, objects=[(ClusterTopologyBinding, binding())])


def racks(here: World) -> set[str]:
    nodes = {node.metadata.name: node.metadata.labels[RACK] for node in here.all(Node)}
    return {nodes[pod.spec.node_name] for pod in here.pods_of(GANG) if pod.spec.node_name}


def stands(here: World, gone: set[str] = frozenset()) -> bool:
    pods = [pod for pod in here.pods_of(GANG) if pod.spec.node_name and pod.metadata.uid not in gone]
    return len(pods) == 12 and here.is_settled("deepseek")


def score(here: World) -> float | None:
    podgang = here.find(PodGang, GANG)
    return podgang.status.placement_score if podgang is not None else None


def decode(here: World) -> Pod:
    mine = [pod for pod in here.pods_of(GANG) if pod.metadata.labels[labels.POD_CLIQUE].endswith("decode")]
    return here.rng.choice(mine)


@pytest.mark.parametrize("at_once", [True, False], ids=["gone at once", "while the old pod still terminates there"])
@pytest.mark.parametrize("seed", range(5))
def test_a_deleted_pod_comes_back_to_its_node_or_at_least_to_its_rack(seed: int, at_once: bool) -> None:
    async def story() -> None:
        async with world(seed) as here:
            await here.apply(sample())
            assert await here.until(lambda: stands(here))
            home = racks(here)
            assert len(home) == 1
            for _ in range(3):
                lost = decode(here)
                gone, before = {lost.metadata.uid}, sorted(pod.spec.node_name for pod in here.pods_of(GANG))
                await here.client.delete(Pod, lost.metadata.name, here.namespace, grace_period_s=0 if at_once else None)
                assert await here.until(lambda gone=gone: stands(here, gone))
                assert (racks(here), score(here)) == (home, 1.0)
                if at_once:
                    assert sorted(pod.spec.node_name for pod in here.pods_of(GANG)) == before

    run(story())


@pytest.mark.parametrize("seed", range(3))
def test_an_update_of_the_whole_replica_keeps_its_rack(seed: int) -> None:
    async def story() -> None:
        async with world(seed) as here:
            await here.apply(sample())
            assert await here.until(lambda: stands(here))
            home, old = racks(here), {pod.metadata.uid for pod in here.pods_of(GANG)}
            changed = sample()
            for clique in changed["spec"]["template"]["cliques"]:
                clique["spec"]["podSpec"]["containers"][0]["image"] = "example/next:2"
            patch = {"spec": {"template": {"cliques": changed["spec"]["template"]["cliques"]}}}
            await here.client.patch(PodCliqueSet, "deepseek", patch, here.namespace)
            assert await here.until(
                lambda: stands(here) and not old & {pod.metadata.uid for pod in here.pods_of(GANG)}, 7200.0
            )
            assert (racks(here), score(here)) == (home, 1.0)

    run(story())


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_died_is_replaced_alone(seed: int) -> None:
    async def story() -> None:
        async with world(seed) as here:
            await here.apply(sample())
            assert await here.until(lambda: stands(here))
            home, dead = racks(here), decode(here).spec.node_name
            stay = {pod.metadata.uid for pod in here.pods_of(GANG) if pod.spec.node_name != dead}
            lost = {pod.metadata.uid for pod in here.pods_of(GANG)} - stay
            await here.client.delete(Node, dead)
            for pod in here.pods_of(GANG):
                if pod.metadata.uid in lost:
                    await here.client.delete(Pod, pod.metadata.name, here.namespace, grace_period_s=0)
            assert await here.until(lambda: stands(here, lost))
            assert stay <= {pod.metadata.uid for pod in here.pods_of(GANG)}, "the others went on running"
            assert (racks(here), score(here)) == (home, 1.0)

    run(story())
