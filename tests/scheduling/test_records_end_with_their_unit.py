"""What the scheduler remembers about a unit ends with the unit, also for pods that arrive before their PodGang."""

from __future__ import annotations

import asyncio
import gc
import random

from tests.support.days import HOUR_S, PRIORITIES, Day
from tests.support.gangs import gang, group
from tests.support.running import without_logs

from grove.api.core import Node, Pod, PriorityClass
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.fleet.file import Team
from grove.fleet.manifests import batch_set, priority_name
from grove.plan.world import NAMESPACE, World, shaped
from grove.scheduler.policy.gang_state import GangState
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


def test_no_record_remains_after_hours_in_which_gangs_overtake_others_that_wait():
    """Random sizes and priorities: gangs wait, are overtaken, have nodes held, are evicted, and are deleted."""
    rng = random.Random(1)

    async def job(day: Day, name: str) -> None:
        size = rng.randint(1, 6)
        await day.apply(gang(name, group("w", size), priority_class=rng.choice(list(PRIORITIES))))
        await asyncio.sleep(rng.uniform(0.1, 2) * HOUR_S)
        await day.client.delete(PodGang, name, "default")
        for pod in await day.pods():
            if pod.metadata.name.startswith(f"{name}-"):
                await day.end(pod.metadata.name)

    async def play() -> list[str]:
        async with Day(nodes=8) as day:
            jobs = []
            for number in range(50):
                jobs.append(asyncio.ensure_future(job(day, f"job-{number}")))
                await asyncio.sleep(540)
            await asyncio.gather(*jobs)
            await asyncio.sleep(HOUR_S)
            return [record.name for record in day.scheduler.view.units]

    with without_logs():
        assert run(play(), seed=1, limit_s=1e9) == []


def test_reasons_of_refused_gangs_are_forgotten_when_no_unit_waits():
    async def play() -> tuple[int, int]:
        async with Day(nodes=1) as day:
            refuser = day.scheduler._cycle._refuser
            for number in range(5):
                elsewhere = {"nodeSelector": {"pool": f"pool-{number}"}}
                await day.apply(gang(f"large-{number}", group("w", 1, spec=elsewhere)))
            await asyncio.sleep(60)
            before = len(refuser._said_alike)
            for number in range(5):
                await day.client.delete(PodGang, f"large-{number}", "default")
                await day.end(f"large-{number}-w-0")
            await asyncio.sleep(60)
            return before, len(refuser._said_alike)

    with without_logs():
        assert run(play(), seed=1, limit_s=1e9) == (5, 0)


def test_a_gang_is_forgotten_whose_pods_terminated_on_a_node_that_was_deleted() -> None:
    name = "gone-with-its-node"

    async def play() -> None:
        async with Day(nodes=1, stop_s=30) as day:
            await day.apply(gang(name, group("w", 1)))
            await asyncio.sleep(10)
            await day.client.delete(Pod, f"{name}-w-0", "default")
            await asyncio.sleep(1)
            [node] = await day.nodes()
            await day.client.delete(Node, node)
            await asyncio.sleep(600)
            await day.client.delete(PodGang, name, "default")
            await asyncio.sleep(600)
            gc.collect()
            left = [kept for kept in gc.get_objects() if isinstance(kept, GangState) and kept.name == f"default/{name}"]
            assert left == []

    run(play())
