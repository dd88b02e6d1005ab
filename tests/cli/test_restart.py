"""`restart`: which pods a name means, that exactly these are replaced, and that nothing happens without consent."""

from __future__ import annotations

import asyncio
import io
import sys
from contextlib import nullcontext

import click
import pytest
from tests.support.asking import World, server, text_of

from grove.answers.answer import Unanswered
from grove.answers.following import following
from grove.answers.restart import asked_for, restart_answer, until_ready
from grove.answers.subjects import Subject
from grove.api.core import Pod
from grove.cli.restart import _confirm

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


async def lines_until_ready(world: World, asked: Subject) -> list[str]:
    """What the command prints below its answer, each line once, until it ends by itself."""
    draw, said = until_ready(asked), []
    async with following(world.client, world.namespace) as source:

        async def is_over() -> bool:
            found = await draw(source)
            if found is not None:
                said.extend(line for line in text_of(found, 100, world).splitlines() if line)
            return found is None

        await world.cluster.eventually(is_over, 120)
    return said


async def test_the_command_follows_the_new_pods_until_all_gangs_concerned_run(world: World) -> None:
    await serve(world)
    asked = await asked_for(world.client, world.namespace, "chat/pair/1")
    await restart_answer(world.client, asked)
    said = await lines_until_ready(world, asked)
    assert said[-1] == "chat: running · 3 of 3 pods ready"
    assert all("old pod left" in line or line.startswith("chat: ") for line in said)
    assert len(said) == len(set(said)), "a line is printed when something changed"
    assert any("2 of 3 pods ready" in line for line in said)


async def test_following_goes_on_while_a_pod_of_the_gang_is_not_ready(world: World) -> None:
    await serve(world)
    world.nodes.hold = lambda pod: True
    asked = await asked_for(world.client, world.namespace, "chat/pair/1")
    await restart_answer(world.client, asked)
    draw = until_ready(asked)
    async with following(world.client, world.namespace) as source:
        await asyncio.sleep(120)
        assert [await draw(source) is not None for _ in range(3)] == [True] * 3


async def test_without_a_terminal_a_restart_needs_yes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await serve(world)
    asked = await asked_for(world.client, world.namespace, "chat/pair")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(Unanswered) as refused:
        _confirm(asked)
    assert str(refused.value) == "restart of chat/pair deletes 2 pods, 2 of them ready; --yes does it without asking"


@pytest.mark.parametrize(("typed", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
async def test_a_terminal_is_asked_and_only_yes_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, goes_on: bool
) -> None:
    await serve(world)
    asked = await asked_for(world.client, world.namespace, "chat/front")
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    with nullcontext() if goes_on else pytest.raises(click.Abort):
        _confirm(asked)
    assert "restart of chat/front deletes 1 pod, 1 of them ready" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
