"""What the scheduler remembers about a unit ends with the unit, also for pods that arrive before their PodGang."""

from __future__ import annotations

import asyncio

from tests.support.running import without_logs

from grove.api.core import PriorityClass
from grove.api.podcliqueset import PodCliqueSet
from grove.fleet.file import Team
from grove.fleet.manifests import batch_set, priority_name
from grove.plan.world import NAMESPACE, World, shaped
from grove.sim.loop import run

PRIORITY = (PriorityClass, {"metadata": {"name": priority_name(0)}, "value": 0})


def test_no_record_remains_after_every_set_is_deleted():
    left: list[str] = []

    async def play() -> None:
        async with World(shaped(2), objects=[PRIORITY]) as world:
            for number in range(3):
                body = batch_set(f"job-{number}", Team("x"), pods=1, gpus=8, priority=None, pack="")
                await world.client.create(PodCliqueSet.RESOURCE, body)
            await asyncio.sleep(700)
            assert len(list(world.scheduler.view.units)) >= 3
            for number in range(3):
                await world.client.delete(PodCliqueSet, f"job-{number}", NAMESPACE)
            await asyncio.sleep(700)
            left.extend(record.name for record in world.scheduler.view.units)

    with without_logs():
        run(play(), seed=1, limit_s=86400.0)
    assert left == []
