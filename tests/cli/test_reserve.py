"""`kubectl grove reserve` holds capacity for a whole set before it exists, gives it to its pods, and releases it."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.support.manifests import clique, group, pcs

from grove.answers.reserve import reserve_answer
from grove.api.core import Pod
from grove.api.koordinator import Reservation
from grove.api.meta import Json
from grove.plan.world import World, shaped
from grove.sim.loop import run

GPU = "nvidia.com/gpu"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


def gpus(number: int) -> list[Json]:
    return [{"name": "main", "image": "x", "resources": {"limits": {GPU: str(number)}}}]


def chat(name: str = "chat") -> Json:
    cliques = [
        clique("router", containers=gpus(1)),
        clique("lead", containers=gpus(4)),
        clique("work", 2, containers=gpus(8)),
    ]
    found = pcs(name, *cliques, groups=[group("grp", "lead", "work", replicas=2)])
    found["metadata"]["namespace"] = "default"
    return found


@pytest.mark.simulated
def test_capacity_is_reserved_gang_by_gang_used_by_the_sets_pods_and_released() -> None:
    async def story() -> None:
        async with World(shaped(6), steady=True) as world:
            answer = await reserve_answer(world.client, "default", [chat()], "2h", False)
            assert answer.data == [{"namespace": "default", "set": "chat", "made": 7, "released": 0}]
            assert str(answer.paint(80)) == (
                "default/chat: 7 reservations made, for 2h\nsee them with: kubectl get reservations"
            )
            twice = await reserve_answer(world.client, "default", [chat()], "2h", False)
            assert twice.data[0]["made"] == 0

            assert await world.until(lambda: {one.status.phase for one in world.all(Reservation)} == {"Available"})
            groups = {one.metadata.labels["pod-group.scheduling.sigs.k8s.io"] for one in world.all(Reservation)}
            assert groups == {"default-chat-0", "default-chat-0-grp-0"}

            other = pcs("other", clique("w", 3, containers=gpus(8)), namespace="default")
            await world.apply(other)
            await asyncio.sleep(30)
            assert not [pod for pod in await pods(world, "other") if pod.is_bound]

            await world.apply(chat())
            assert await world.until(lambda: world.is_settled("chat"))
            placed = await pods(world, "chat")
            used = {json.loads(pod.metadata.annotations[ALLOCATED])["name"] for pod in placed}
            assert len(used) == len(placed) == 7

            again = await reserve_answer(world.client, "default", [chat()], "2h", True)
            assert again.data[0]["released"] == 7
            assert not (await world.client.list(Reservation)).items
            assert all(pod.is_bound for pod in await pods(world, "chat"))

    run(story())


async def pods(world: World, name: str) -> list[Pod]:
    found = (await world.client.list(Pod, "default", labels=f"app.kubernetes.io/part-of={name}")).items
    return [pod for pod in found if not pod.metadata.is_deleting]
