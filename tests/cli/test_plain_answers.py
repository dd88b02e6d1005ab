"""Answers of several commands about sets that wait: one reason for each gang, and verbs that stand once."""

from __future__ import annotations

import re

import pytest
from tests.support.asking import World, planned, server, text_of

from grove.answers.explain import explain_answer
from grove.answers.tree import tree_answer
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.plan.copying import copy_cluster

pytestmark = pytest.mark.simulated


def pairs(world: World) -> Json:
    """A set of a router and instances of two pods with eight GPUs each; five of its instances fit."""
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 2, "minAvailable": 1}]
    cliques = [server("front", 1, 1), server("leader", 2, 8)]
    return world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=groups)


async def test_a_plan_says_of_each_gang_what_it_waits_for(world: World) -> None:
    await world.apply(pairs(world))
    await world.available("chat")
    copy = await copy_cluster(world.client, None)
    answer = await planned(world, copy, world.namespace, scales=["chat=9"], now=world.now)
    text = " ".join(text_of(answer, 200, world).split())
    assert answer.code == 4
    assert not re.search(r"nothing was decided|waits: waits|did not take it up", text)
    assert "chat-2-pair-0, chat-3-pair-0, chat-4-pair-0, chat-5-pair-0 and 3 more wait for its base PodGang" in text
    assert "chat-2, chat-3, chat-4, chat-5 and 3 more cannot fit: needs 17 nvidia.com/gpu, 14 free" in text


async def test_a_tree_has_one_reason_for_each_gang_and_names_no_closest_domain(world: World) -> None:
    await world.apply(pairs(world))
    await world.available("chat")
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 3}}, world.namespace)
    await world.refused("chat-2")
    tree = await tree_answer(world.client, world.namespace, "chat", now=world.now)
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    told = {one.gang: one.reason for one in explain.data["gangs"]}

    def pods(entry: Json) -> list[Json]:
        return [entry] if entry["kind"] == "Pod" else [pod for child in entry["children"] for pod in pods(child)]

    waiting = [one for one in pods(tree.data) if one["state"] == "pending"]
    assert len(waiting) == 7
    assert [one["why"] for one in waiting] == [told[one["gang"]] for one in waiting]
    assert "closest" not in text_of(tree, 200, world)
