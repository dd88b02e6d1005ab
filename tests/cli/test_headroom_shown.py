"""Headroom as the commands show it, and `reserve --standing`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rich.console import Console

from grove.answers.answer import Answer, Unanswered
from grove.answers.explain import explain_answer, queue_answer
from grove.answers.plan import plan_answer
from grove.answers.reserve import standing_answer
from grove.answers.topology import topology_answer
from grove.answers.tree import tree_answer
from grove.api import labels
from grove.api.conditions import HEADROOM_HELD
from grove.api.meta import Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.console.rows import node_rows
from grove.plan.copying import copy_cluster
from grove.plan.world import World, binding
from grove.show.layout import layout_of
from grove.sim.loop import run
from grove.sim.topology import Topology

GPU = "nvidia.com/gpu"


def serving(**more: Any) -> Json:
    container = {"name": "main", "image": "example/serve:1", "resources": {"limits": {GPU: "8"}}}
    spec = {"roleName": "work", "replicas": 1, "podSpec": {"containers": [container]}}
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": "chat", "namespace": "default"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "work", "spec": spec}], **more}},
    }


def painted(found: Answer, width: int = 200) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as caught:
        console.print(found.paint(width))
    return caught.get()


def held(here: World) -> bool:
    gang = here.find(PodGang, "chat-0")
    found = find_condition(gang.status.conditions, HEADROOM_HELD) if gang is not None else None
    return found is not None and found.status == "True"


@pytest.mark.simulated
def test_headroom_is_shown_by_every_command_and_in_the_console() -> None:
    async def story() -> None:
        nodes = Topology(zones=1, racks=1, nodes=3).objects()
        async with World(nodes, seed=2, objects=[(ClusterTopologyBinding, binding())]) as here:
            await here.apply(serving())
            assert await here.until(lambda: here.is_settled("chat"))
            said = painted(await standing_answer(here.client, here.namespace, "chat", 1))
            assert "headroom for 1 further replica of chat" in said
            assert await here.until(lambda: held(here))
            line = "chat-0: headroom for 1 further replica is held on 1 node"
            tree = await tree_answer(here.client, here.namespace, "chat")
            assert line in painted(tree)
            assert tree.data["headroom"] == [line]
            now = here.cluster.clock.now()
            assert line in painted(await explain_answer(here.client, here.namespace, "chat", now=now))
            assert line in painted(await queue_answer(here.client, here.namespace, now))
            assert "8 held as headroom of default/chat" in painted(await topology_answer(here.client))
            rows = node_rows(layout_of(here.seen()))
            assert [row[6] for row in rows.values() if len(row) > 6] == [[["headroom of default/chat", 8]]]
            copy = await copy_cluster(here.client, None)
            plan = await plan_answer(copy, here.namespace, scales=["chat=3"], now=now)
            short = "chat-0: headroom for 0 of 1 replica is held on 0 nodes"
            assert short in painted(plan), "the third replica takes what was held"
            assert plan.data.headroom[0].startswith(short)
            before = here.find(PodCliqueSet, "chat")
            assert before is not None
            assert before.metadata.annotations[labels.HEADROOM] == "1"
            await standing_answer(here.client, here.namespace, "chat", 0)
            assert await here.until(lambda: not held(here))
            await asyncio.sleep(1)
            assert "headroom" not in painted(await tree_answer(here.client, here.namespace, "chat"))

    run(story())


@pytest.mark.simulated
def test_standing_headroom_of_a_group_is_written_into_its_annotations_and_restarts_no_pod() -> None:
    async def story() -> None:
        async with World(Topology(zones=1, racks=1, nodes=3).objects(), seed=2) as here:
            await here.apply(serving(podCliqueScalingGroups=[{"name": "decode", "cliqueNames": ["work"]}]))
            assert await here.until(lambda: here.is_settled("chat"))
            uids = {pod.metadata.uid for pod in here.seen().pods}
            await standing_answer(here.client, here.namespace, "chat/decode", 1)
            assert await here.until(lambda: held(here))
            await asyncio.sleep(600)
            assert {pod.metadata.uid for pod in here.seen().pods} == uids
            with pytest.raises(Unanswered, match="it has: decode"):
                await standing_answer(here.client, here.namespace, "chat/prefill", 1)

    run(story())
