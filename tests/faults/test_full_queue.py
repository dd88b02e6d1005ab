"""The quota of a full queue is held for a unit that has waited long; units behind it in the same queue wait."""

from __future__ import annotations

import asyncio

from tests.support.days import NAMESPACE, Day
from tests.support.fleet import QUOTA, elastic, install
from tests.support.gangs import gang, group

from grove.api.core import Pod
from grove.api.koordinator import ElasticQuota
from grove.api.podgang import PodGang
from grove.sim.loop import run

HOUR_S = 3600.0


async def start(day: Day, maxima: dict[str, int]) -> None:
    await install(day, "ElasticQuota")
    await asyncio.sleep(60)
    for name, most in maxima.items():
        await day.client.create(ElasticQuota, elastic(name, NAMESPACE, 0, most))


async def one_job(day: Day, name: str, queue: str) -> None:
    """A gang of one pod that ends after half an hour on its node."""
    await day.apply(gang(name, group("w", 1), labels={QUOTA: queue}))
    for _ in range(10_000):
        if await day.bound(f"{name}-"):
            break
        await asyncio.sleep(60)
    await asyncio.sleep(HOUR_S / 2)
    await day.client.delete(PodGang, name, NAMESPACE)
    await day.client.delete(Pod, f"{name}-w-0", NAMESPACE, grace_period_s=0)


async def jobs(day: Day, queue: str) -> None:
    """One more every fourteen minutes: there is always one that waits, as two run for half an hour each."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(10_000):
            tasks.create_task(one_job(day, f"{queue}-job-{number:04}", queue))
            await asyncio.sleep(840)


def test_small_units_do_not_overtake_a_large_gang_in_a_full_queue_for_ever() -> None:
    async def story() -> tuple[float, int]:
        async with Day(nodes=6) as day:
            await start(day, {"full": 2, "other": 2})
            streams = [asyncio.ensure_future(jobs(day, queue)) for queue in ("full", "other")]
            await asyncio.sleep(2 * HOUR_S)
            await day.apply(gang("large", group("w", 2), labels={QUOTA: "full"}))
            waited_s = await day.waited_for("large-", 2, 24 * HOUR_S)
            others = await day.bound("other-")
            for one in streams:
                one.cancel()
            return waited_s, others

    waited_s, others = run(story(), limit_s=1e9)
    assert waited_s < 2 * HOUR_S, "jobs of half an hour end, and the next ones wait"
    assert others == 2, "another queue goes on"


def test_a_gang_above_the_maximum_of_its_queue_does_not_block_it() -> None:
    async def story() -> int:
        async with Day(nodes=6) as day:
            await start(day, {"full": 2})
            await day.apply(gang("never", group("w", 3), labels={QUOTA: "full"}))
            await asyncio.sleep(HOUR_S)
            stream = asyncio.ensure_future(jobs(day, "full"))
            await asyncio.sleep(8 * HOUR_S)
            stream.cancel()
            return await day.bound("full-job-")

    assert run(story(), limit_s=1e9) == 2
