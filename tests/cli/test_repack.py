"""`kubectl grove repack`: a gang waits although enough GPUs are free, and others can be moved for it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence

import pytest
from rich.console import Console
from tests.support.manifests import clique, pcs

from grove.api.core import Pod
from grove.api.labels import DISRUPTION, POD_GANG
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.cli.access import NO_FIT, RUNNING, Answer
from grove.cli.repack import repack_answer
from grove.plan.world import World, shaped
from grove.sim.loop import run

GPU = "nvidia.com/gpu"


def gpus(number: int) -> list[Json]:
    return [{"name": "main", "image": "x", "resources": {"limits": {GPU: str(number)}}}]


def serving(name: str, pods: int, gpu: int, disruption: str = "allow", **more: str) -> Json:
    found = pcs(name, clique("w", pods, containers=gpus(gpu)), namespace="default")
    found["metadata"]["annotations"] = {DISRUPTION: disruption} if disruption else {}
    return found


async def fragmented(world: World, nodes: int, disruption: Sequence[str] = ()) -> None:
    """One gang of one pod with 4 of the 8 GPUs on each node; set `a0` is on the first node by name, and so on."""
    for i in range(2 * nodes):
        await world.apply(serving(f"s{i}", 1, 4, "allow"))
    assert await world.until(lambda: sum(pod.is_bound for pod in world.all(Pod)) == 2 * nodes)
    kept: dict[str, str] = {}
    for pod in world.all(Pod):
        gang = pod.metadata.labels[POD_GANG].removesuffix("-0")
        if kept.setdefault(pod.spec.node_name, gang) != gang:
            await world.client.delete(PodCliqueSet, gang, "default")
    assert await world.until(lambda: len(world.all(Pod)) == nodes)
    assert len(kept) == nodes
    for said, name in zip(disruption, [kept[node] for node in sorted(kept)], strict=False):
        patch = {"metadata": {"annotations": {DISRUPTION: said or None}}}
        await world.client.patch(PodCliqueSet, name, patch, "default")
    await asyncio.sleep(5)


def text_of(answer: Answer) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(answer.paint(100))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.simulated
def test_the_plan_names_the_gang_to_move_its_new_place_and_where_the_waiting_gang_fits() -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            before = {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)}
            answer = await repack_answer(world.client, "default", "chat")
            assert answer.code == RUNNING
            [move] = answer.data.moves
            last = max(node for node in before.values() if node)
            assert move.source == (last,)
            [target] = [node for nodes in move.target.values() for node in nodes]
            assert target != last
            assert answer.data.restarts == 1
            said = text_of(answer)
            assert f"{move.gang}     1  {last}" in said
            assert f"then default/chat-0 fits in {last}; 1 pod in all would restart" in said
            assert {pod.metadata.uid: pod.spec.node_name for pod in world.all(Pod)} == before, "nothing is written"

    run(story())


@pytest.mark.simulated
@pytest.mark.parametrize("said", ["never", ""], ids=["refused", "nothing is said: the default is never"])
def test_sets_that_do_not_allow_it_stay(said: str) -> None:
    async def story() -> None:
        async with World(shaped(2), steady=True) as world:
            await fragmented(world, 2, [said, said])
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(10)
            answer = await repack_answer(world.client, "default", "chat")
            assert answer.code == NO_FIT
            assert "no running gang may be moved" in answer.data.why

    run(story())


@pytest.mark.simulated
def test_a_gang_that_runs_needs_no_moves() -> None:
    async def story() -> None:
        async with World(shaped(1), steady=True) as world:
            await world.apply(serving("chat", 1, 8))
            assert await world.until(lambda: world.is_settled("chat"))
            answer = await repack_answer(world.client, "default", "chat")
            assert answer.code == RUNNING
            assert text_of(answer) == "no gang of chat waits for a place\n"

    run(story())
