"""A scheduler starts while victims of the one before it still terminate: their place stays that of the preemptor."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.days import PRIORITIES, Day
from tests.support.gangs import gang, group

from grove.sim.loop import run

STOP_S = 120.0


@pytest.mark.parametrize("priority", [name for name in PRIORITIES if name != "urgent"])
def test_a_restart_leaves_the_place_of_a_preemptor_to_it(priority: str) -> None:
    """Two nodes, one of them free; the victim on the other takes two minutes to stop."""

    async def story() -> tuple[list[str], int, int, int]:
        async with Day(nodes=2, stop_s=STOP_S) as day:
            victim = gang("victim", group("w", 1, spec={"terminationGracePeriodSeconds": 600}), priority_class="low")
            await day.apply(victim)
            await asyncio.sleep(5)
            await day.apply(gang("urgent", group("w", 2), priority_class="urgent"))
            await asyncio.sleep(5)
            before = (await day.podgang("urgent")).status.capacity_holds
            written = [hold.reason for hold in before]
            await day.stop()
            await day.apply(gang("late", group("w", 1), priority_class=priority))
            await day.start()
            await asyncio.sleep(30)
            early = await day.bound("late")
            assert (await day.podgang("urgent")).status.capacity_holds == before, "held since the same moment"
            await day.pass_a_day()
            return written, early, await day.bound("urgent"), await day.bound("late")

    assert run(story()) == (["Nominated"], 0, 2, 0)
