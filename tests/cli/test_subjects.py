"""Commands take a set, a part of it by the names in the manifest, or an object by kind and name."""

from __future__ import annotations

import pytest
from tests.support.asking import World, server, text_of
from tests.support.broken import no_account

from grove.answers.answer import Answer, Unanswered
from grove.answers.events import events_answer
from grove.answers.explain import explain_answer
from grove.answers.following import following
from grove.answers.logs import chosen
from grove.answers.plan import plan_answer
from grove.answers.rollout import pause_answer, status_picture
from grove.answers.rollout import status_answer as rollout_answer
from grove.answers.scale import scale_answer
from grove.answers.subjects import pods_in, subject_names
from grove.answers.tree import status_answer, tree_answer, tree_picture
from grove.api.core import Pod
from grove.diagnosis.seen import read
from grove.plan.copying import copy_cluster

pytestmark = pytest.mark.simulated


async def chat(world: World) -> str:
    """A set with a router and two instances of a pair; the name of a pod of the second one."""
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 2, "minAvailable": 1}]
    cliques = [server("front", 1, 1), server("leader", 2, 8)]
    await world.apply(world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=groups))
    await world.available("chat")
    pods = (await world.client.list(Pod, world.namespace)).items
    return next(one.metadata.name for one in pods if one.metadata.name.startswith("chat-0-pair-1-leader"))


async def test_every_command_takes_every_subject(world: World) -> None:
    pod = await chat(world)
    for name, pods in (
        ("chat/pair", 4),
        ("chat/pair/1", 2),
        ("chat/front", 1),
        ("chat/front/0", 1),
        ("pg/chat-0", 3),
        ("pclq/chat-0-pair-1-leader", 2),
        ("pcsg/chat-0-pair", 4),
        (f"pod/{pod}", 1),
        ("pcs/chat", 5),
    ):
        tree = await tree_answer(world.client, world.namespace, name, now=world.now)
        assert text_of(tree, 200, world).count("●") == pods, name
        status = await status_answer(world.client, world.namespace, name, world.now)
        assert [row.name for row in status.data] == ["chat"], name
        assert (await explain_answer(world.client, world.namespace, name, now=world.now)).code == 0, name
        events = (await events_answer(world.client, world.namespace, name)).data
        assert events, name
        rollout = await rollout_answer(world.client, world.namespace, name, world.now)
        assert rollout.code == 0, name
        assert rollout.data.roles, name
        assert len(await chosen(world.client, world.namespace, name)) == pods, name
        seen = await read(world.client, world.namespace, only_set="chat")
        assert len(pods_in(seen, name)) == pods, name
    parts = (await rollout_answer(world.client, world.namespace, "chat/front", world.now)).data.roles
    assert [role.clique for role in parts] == ["front"]
    for ask in (tree_answer, rollout_answer):
        with pytest.raises(Unanswered, match="nosuch"):
            await ask(world.client, world.namespace, "chat/nosuch", now=world.now)
    with pytest.raises(Unanswered, match="chat/front is a part of a set; this command takes the whole set: chat"):
        await pause_answer(world.client, world.namespace, "chat/front", paused=True)


@pytest.mark.parametrize("name", ["chat/worker", "chat/worker/0", "pclq/chat-0-worker", "pg/chat-0"])
async def test_a_part_whose_pods_cannot_be_created_is_explained(world: World, name: str) -> None:
    await no_account(world)
    explain = await explain_answer(world.client, world.namespace, name, now=world.now)
    assert explain.code == 4
    assert "there is no ServiceAccount model-reader" in explain.data["gangs"][0].reason
    tree = await tree_answer(world.client, world.namespace, name, now=world.now)
    assert "worker" in text_of(tree, 200, world)
    assert "there is no ServiceAccount model-reader" in text_of(tree, 200, world)
    status = await status_answer(world.client, world.namespace, name, world.now)
    assert [row.state for row in status.data] == ["waiting"]
    rollout = await rollout_answer(world.client, world.namespace, name, world.now)
    assert [role.clique for role in rollout.data.roles] == ["worker"]
    assert (await events_answer(world.client, world.namespace, name)).data


@pytest.mark.parametrize("name", ["chat/nosuch", "chat/worker/7"])
async def test_a_part_that_the_set_does_not_have_is_refused_while_its_pods_cannot_be_created(
    world: World, name: str
) -> None:
    await no_account(world)
    with pytest.raises(Unanswered, match="it has worker"):
        await explain_answer(world.client, world.namespace, name, now=world.now)


async def test_a_part_that_is_watched_stays_a_part(world: World) -> None:
    await chat(world)
    async with following(world.client, world.namespace) as source:
        drawn = await tree_picture("chat", "chat/pair/1")(source)
        assert drawn is not None
        assert text_of(drawn, 200, world).count("●") == 2
        ended: list[Answer] = []
        assert await status_picture("chat", ended, "chat/front")(source) is None
        assert [role.clique for role in ended[0].data.roles] == ["front"]


async def test_the_shell_completes_sets_parts_numbers_and_kinds(world: World) -> None:
    pod = await chat(world)

    async def names(incomplete: str) -> list[str]:
        return await subject_names(world.client, world.namespace, incomplete)

    assert await names("ch") == ["chat"]
    assert await names("chat/") == ["chat/front", "chat/leader", "chat/pair"]
    assert await names("chat/pair/") == ["chat/pair/0", "chat/pair/1"]
    assert await names("chat/front/") == ["chat/front/0"]
    assert await names("pg/") == ["pg/chat-0", "pg/chat-0-pair-0"]
    assert f"pod/{pod}" in await names("pod/")
    assert await names("nosuch/") == []


@pytest.mark.parametrize(
    ("target", "name"),
    [
        pytest.param("pcsg/chat-0-pair", "chat-0-pair", id="a scaling group"),
        pytest.param("pclq/chat-0-front", "chat-0-front", id="a clique"),
        pytest.param("pcs/chat", "chat", id="a set"),
    ],
)
async def test_scale_and_plan_take_objects_by_kind_and_name(world: World, target: str, name: str) -> None:
    await chat(world)
    answer = await scale_answer(world.client, world.namespace, target, 2, dry_run=True)
    assert [change.name for change in answer.data["changes"]] == [name]
    copy = await copy_cluster(world.client, None)
    plan = await plan_answer(copy, world.namespace, scales=[f"{target}=2"], now=world.now)
    assert {gang.name.split("-")[0] for gang in plan.data.gangs} == {"chat"}


@pytest.mark.parametrize(
    ("target", "says"),
    [
        pytest.param(
            "pclq/chat-0-pair-0-leader", "is scaled with it: scale pcsg/chat-0-pair", id="a clique of a group"
        ),
        pytest.param("pg/chat-0", "a PodGang has no replicas to scale", id="a gang"),
        pytest.param("pcsg/nosuch", "there is no PodCliqueScalingGroup nosuch", id="a name that does not exist"),
    ],
)
async def test_what_cannot_be_scaled_is_said(world: World, target: str, says: str) -> None:
    await chat(world)
    with pytest.raises(Unanswered, match=says):
        await scale_answer(world.client, world.namespace, target, 2)


async def test_a_drained_node_may_be_named_with_its_kind(world: World) -> None:
    await chat(world)
    node = world.nodes.names[0]
    copy = await copy_cluster(world.client, None)
    plans = [await plan_answer(copy, world.namespace, drains=[name], now=world.now) for name in (node, f"node/{node}")]
    assert plans[0].data.gangs == plans[1].data.gangs
