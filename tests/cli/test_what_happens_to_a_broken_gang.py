"""A broken set says what the operator will do: restart it whole at a time, or leave it as it is."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.support.asking import World, text_of
from tests.support.broken import pod_hangs

from grove.answers.explain import explain_answer
from grove.answers.tree import status_answer
from grove.api.conditions import GANG_RESTARTS_EXHAUSTED
from grove.api.core import Pod
from grove.api.meta import rfc3339
from grove.api.podcliqueset import PodCliqueSet

pytestmark = pytest.mark.simulated


async def test_a_broken_set_says_when_it_is_restarted_whole_and_then_is(world: World) -> None:
    await pod_hangs(world)
    due = world.now + timedelta(hours=4)
    [row] = (await status_answer(world.client, world.namespace, "chat", world.now)).data
    assert row.state == "broken"
    assert row.why.endswith(f"; will be restarted whole at {due:%H:%M}")
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    assert explain.data["gangs"][0].fate == f"will be restarted whole at {due:%H:%M} UTC"
    assert f"operator: will be restarted whole at {due:%H:%M} UTC" in text_of(explain, 200, world)

    before = {pod.metadata.uid for pod in (await world.client.list(Pod, world.namespace)).items}
    await asyncio.sleep(4 * 3600 + 300)
    [row] = (await status_answer(world.client, world.namespace, "chat", world.now)).data
    assert row.state == "running"
    assert before.isdisjoint(pod.metadata.uid for pod in (await world.client.list(Pod, world.namespace)).items)


async def test_a_broken_set_whose_restarts_are_exhausted_says_so(world: World) -> None:
    await pod_hangs(world)
    await world.stop("operator")
    raw = await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace)
    said = {"type": GANG_RESTARTS_EXHAUSTED, "status": "True", "reason": "Limit", "message": "3 restarts"}
    conditions = [*raw["status"].get("conditions", []), {**said, "lastTransitionTime": rfc3339(world.now)}]
    patch = {"status": {"conditions": conditions}}
    await world.client.patch(PodCliqueSet, "chat", patch, world.namespace, subresource="status")
    [row] = (await status_answer(world.client, world.namespace, "chat", world.now)).data
    assert row.state == "broken"
    assert row.why.endswith("; left as it is: restarts exhausted")
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    assert "operator: left as it is: restarts exhausted" in text_of(explain, 200, world)
