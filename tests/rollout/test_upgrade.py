"""A new version of the operator takes over what an earlier one made, and touches no pod."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import clique, pcs
from tests.support.operating import World, operating

from grove.api import hashes
from grove.api.node import PriorityClass
from grove.api.podcliqueset import PodCliqueSet


@pytest.mark.simulated  # what is compared is made in this process, and the same on any cluster
async def test_a_set_whose_cliques_name_a_priority_class_is_not_rolled_out_by_an_upgrade(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions left a clique's own priority class out of the hash; the pods are the same."""
    for value, name in enumerate(("low", "high")):
        await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
    async with operating(cluster) as world:
        with monkeypatch.context() as patched:
            subject = hashes._subject
            patched.setattr(hashes, "_subject", lambda clique, name, own_priority: subject(clique, name, False))
            await world.apply(pcs("chat", clique("a", 2, priorityClassName="high"), clique("b"), replicas=2))
            await world.available("chat")
            await world.stop()
        before = await _pods(world)

        await world.start()
        await world.quiet()

        assert await _pods(world) == before
        status = (await world.get(PodCliqueSet, "chat")).status
        assert status.update_progress is None
        await _edited_later_it_is_rolled_out(world, before)


async def _edited_later_it_is_rolled_out(world: World, before: set[str]) -> None:
    found = (await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace))["spec"]["template"]
    found["cliques"][0]["spec"]["podSpec"]["priorityClassName"] = "low"
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"template": found}}, world.namespace)

    async def updated() -> bool:
        progress = (await world.get(PodCliqueSet, "chat")).status.update_progress
        return progress is not None and progress.update_ended_at is not None

    await world.eventually(updated)
    assert len(await _pods(world) & before) == 2, "clique b has not changed"


async def _pods(world: World) -> set[str]:
    return {pod.metadata.uid for pod in await world.pods()}
