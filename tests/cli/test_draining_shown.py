"""Draining in the answers: `tree`, `status`, `explain` and `rollout status` say how long it still takes."""

from __future__ import annotations

import re

import pytest
from tests.support.asking import World, server, text_of

from grove.answers import restart, rollout
from grove.answers.explain import explain_answer
from grove.answers.tree import status_answer, tree_answer
from grove.api.core import Pod
from grove.api.labels import DRAIN_SECONDS, DRAINING
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.simulated
GROUPS = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 2, "minAvailable": 1}]
LEFT = re.compile(r"draining, (\d+) s left")


async def serve(world: World) -> None:
    cliques = [server("front", 1, 1), server("leader", 1, 8)]
    manifest = world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=GROUPS)
    manifest["metadata"]["annotations"] = {DRAIN_SECONDS: "300"}
    await world.apply(manifest)
    await world.available("chat")


async def drains(world: World, pods: int) -> None:
    async def marked() -> bool:
        found = (await world.client.list(Pod, world.namespace)).items
        return sum(DRAINING in pod.metadata.annotations and not pod.is_ready for pod in found) == pods

    await world.cluster.eventually(marked, 60)


async def test_a_scale_in_is_shown_with_the_seconds_that_are_left(world: World) -> None:
    await serve(world)
    patch = {"spec": {"replicas": 1}}
    await world.client.patch(PodCliqueScalingGroup, "chat-0-pair", patch, world.namespace, subresource="scale")
    await drains(world, 1)

    answers = [
        await tree_answer(world.client, world.namespace, "chat", now=world.now),
        await explain_answer(world.client, world.namespace, "chat-0-pair-0", now=world.now),
        await rollout.status_answer(world.client, world.namespace, "chat", world.now),
    ]
    for answer in answers:
        found = LEFT.search(text_of(answer, 120, world))
        assert found is not None, text_of(answer, 120, world)
        assert 0 < int(found[1]) <= 300
    status = await status_answer(world.client, world.namespace, "chat", world.now)
    assert (status.data[0].state, status.code) == ("running", 0), "what is left serves"
    assert LEFT.search(text_of(status, 120, world)), text_of(status, 120, world)


async def test_a_restart_asks_the_operator_to_drain_first(world: World) -> None:
    await serve(world)
    asked = await restart.asked_for(world.client, world.namespace, "chat/pair/1")
    done = await restart.restart_answer(world.client, asked)
    assert "drain first" in text_of(done, 120, world)
    await drains(world, 1)
    [pod] = asked.pods

    async def replaced() -> bool:
        pods = (await world.client.list(Pod, world.namespace)).items
        return (
            len(pods) == 3
            and all(one.is_ready for one in pods)
            and pod.metadata.uid not in {p.metadata.uid for p in pods}
        )

    await world.cluster.eventually(replaced, 600)


@pytest.mark.parametrize("drain_s", [pytest.param("30", id="it drains first"), pytest.param("0", id="at once")])
async def test_a_restarted_instance_leaves_a_rack_with_a_cordoned_node(world: World, drain_s: str) -> None:
    """The steps of the page for a node that is drained. The instance fills its rack; the other rack is free."""
    manifest = world.system("chat", cliques=[server("leader", 1, 8), server("worker", 3, 8)])
    manifest["spec"]["template"]["podCliqueScalingGroups"] = [{"name": "engine", "cliqueNames": ["leader", "worker"]}]
    manifest["metadata"]["annotations"] = {DRAIN_SECONDS: drain_s}
    await world.apply(manifest)
    await world.available("chat")
    former = {pod.spec.node_name for pod in (await world.client.list(Pod, world.namespace)).items}
    await world.nodes.cordon(min(former))
    asked = await restart.asked_for(world.client, world.namespace, "chat/engine/0")
    await restart.restart_answer(world.client, asked)

    async def moved() -> bool:
        pods = (await world.client.list(Pod, world.namespace)).items
        return len(pods) == 4 and all(pod.is_ready and pod.spec.node_name not in former for pod in pods)

    await world.cluster.eventually(moved, 600)
