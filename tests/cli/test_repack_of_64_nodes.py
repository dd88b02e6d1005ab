"""A fragmented cluster of 64 nodes: a gang waits, `repack --apply` moves others, and the gang is placed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.asking import asking, server

from grove.answers.answer import RUNNING
from grove.answers.repack import repack_answer
from grove.answers.repack_apply import apply_answer
from grove.api.core import Pod
from grove.api.labels import DISRUPTION, PART_OF
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet


def small(namespace: str, name: str, replicas: int, pods: int, gpus: int) -> Json:
    part = server("w", pods, gpus)
    part["spec"]["podSpec"]["nodeSelector"] = {"test": namespace}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": {DISRUPTION: "allow"}},
        "spec": {
            "replicas": replicas,
            "template": {"cliques": [part], "cliqueStartupType": "CliqueStartupTypeAnyOrder"},
        },
    }


@pytest.mark.real_in("soak")
async def test_a_waiting_gang_gets_in(cluster: Any) -> None:
    async with asking(cluster, racks=16) as world:

        async def bound(name: str) -> list[Pod]:
            found = (await world.client.list(Pod, world.namespace, labels=f"{PART_OF}={name}")).items
            return [pod for pod in found if pod.is_ready and not pod.metadata.is_deleting]

        def all_run(name: str, pods: int = 64) -> Callable[[], Awaitable[bool]]:
            async def is_so() -> bool:
                return len(await bound(name)) == pods

            return is_so

        for name, gpus in (("first", 5), ("second", 3)):
            await world.apply(small(world.namespace, name, 64, 1, gpus))
            await cluster.eventually(all_run(name), 300)
        await world.client.delete(PodCliqueSet, "first", world.namespace)
        await cluster.eventually(all_run("first", 0), 120)
        assert len({pod.spec.node_name for pod in await bound("second")}) == 64, "5 of 8 GPUs are free on each node"
        await world.apply(small(world.namespace, "chat", 1, 2, 8))
        await world.refused("chat-0")

        plan = (await repack_answer(world.client, world.namespace, "chat")).data
        assert len(plan.moves) == plan.restarts == 2, plan
        answer = await apply_answer(world.client, world.namespace, "chat", plan, clock=cluster.clock)
        assert answer.code == RUNNING, answer.data
        assert answer.data.restarts == 2

        await cluster.eventually(all_run("chat", 2), 120)
        await cluster.eventually(all_run("second"), 120)
