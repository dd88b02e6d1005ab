"""`restart`: which pods a name means, that exactly these are replaced, and that nothing happens without consent."""

from __future__ import annotations

import pytest
from tests.support.asking import World, server, text_of

from grove.answers.answer import Unanswered
from grove.answers.restart import asked_for, restart_answer
from grove.api.core import Pod

pytestmark = pytest.mark.simulated
GROUPS = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 2, "minAvailable": 1}]


async def uids(world: World) -> dict[str, str]:
    """Pods by the part they play."""
    pods = (await world.client.list(Pod, world.namespace)).items
    return {pod.metadata.name.rpartition("-")[0]: pod.metadata.uid for pod in pods if pod.is_ready}


async def serve(world: World) -> dict[str, str]:
    cliques = [server("front", 1, 1), server("leader", 1, 8)]
    await world.apply(world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=GROUPS))
    await world.available("chat")
    return await uids(world)


@pytest.mark.parametrize(
    ("target", "want"),
    [
        pytest.param("chat/pair/1", {"chat-0-pair-1-leader"}, id="one instance of a group"),
        pytest.param("chat/pair", {"chat-0-pair-0-leader", "chat-0-pair-1-leader"}, id="a group"),
        pytest.param("chat/front", {"chat-0-front"}, id="a clique"),
        pytest.param("chat/front/0", {"chat-0-front"}, id="one pod of a clique"),
        pytest.param("pg/chat-0", {"chat-0-front", "chat-0-pair-0-leader"}, id="a gang"),
        pytest.param("pcsg/chat-0-pair", {"chat-0-pair-0-leader", "chat-0-pair-1-leader"}, id="a group object"),
        pytest.param("pcs/chat", {"chat-0-front", "chat-0-pair-0-leader", "chat-0-pair-1-leader"}, id="a whole set"),
    ],
)
async def test_exactly_the_pods_that_were_meant_are_new(world: World, target: str, want: set[str]) -> None:
    before = await serve(world)
    asked = await asked_for(world.client, world.namespace, target)
    tried = await restart_answer(world.client, asked, dry_run=True)
    assert await uids(world) == before
    assert len(tried.data.pods) == len(want)
    assert "would be deleted (dry run)" in text_of(tried, 100, world)
    await restart_answer(world.client, asked)

    async def all_are_new() -> bool:
        after = await uids(world)
        return after.keys() == before.keys() and all(after[name] != before[name] for name in want)

    await world.cluster.eventually(all_are_new, 120)
    after = await uids(world)
    assert {name for name in before if after[name] != before[name]} == want


@pytest.mark.parametrize(
    ("target", "says"),
    [
        pytest.param(
            "chat/nosuch", "chat has no group or clique nosuch; it has front, leader, pair", id="no such part"
        ),
        pytest.param("chat/pair/x", "the replica is a number, as in chat/pair/0", id="not a number"),
        pytest.param("chat/pair/7", "no pod of chat is there for that", id="no such instance"),
        pytest.param("nosuch", "there is no PodCliqueSet, PodGang, group, clique or pod nosuch", id="no such set"),
    ],
)
async def test_what_is_not_there_is_named(world: World, target: str, says: str) -> None:
    await serve(world)
    with pytest.raises(Unanswered, match=says):
        await asked_for(world.client, world.namespace, target)
