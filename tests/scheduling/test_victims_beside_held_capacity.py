"""A unit that evicts others also uses what is held for itself, and for units behind it.

With the default configuration; a simulated day passes after the last event.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.days import Day
from tests.support.gangs import gang, group

from grove.sim.loop import run

pytestmark = pytest.mark.simulated


async def nodes_of(day: Day, prefix: str) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in await day.pods() if pod.metadata.name.startswith(prefix)}


async def lose_two(day: Day, made: Any) -> None:
    """Of three pods of a gang the first is deleted. The second is deleted too, and its node is closed."""
    second = (await nodes_of(day, made.name))[f"{made.name}-w-1"]
    await day.sim.nodes.cordon(second, unschedulable=True)
    await asyncio.gather(day.end(f"{made.name}-w-0"), day.end(f"{made.name}-w-1"))
    await asyncio.sleep(2)
    await asyncio.gather(day.make_again(made, 0), day.make_again(made, 1))


def test_a_repair_that_evicts_others_uses_the_node_that_is_held_for_it() -> None:
    async def story() -> tuple[float, int]:
        async with Day(nodes=4) as day:
            high = gang("high", group("w", 3), priority_class="high")
            await day.apply(high)
            await asyncio.sleep(60)
            await day.apply(gang("low", group("w", 1), priority_class="low"))
            await asyncio.sleep(60)
            await lose_two(day, high)
            return await day.waited_and_stayed("high-", 3), await day.bound("low-")

    waited_s, left = run(story())
    assert waited_s < 60
    assert left == 0


def test_a_unit_that_evicts_others_takes_what_is_held_for_a_unit_behind_it() -> None:
    """A node is held for a pod of the lower gang that nobody makes again. A budget protects the other pod."""

    async def story() -> tuple[float, int]:
        async with Day(nodes=3) as day:
            await day.protect("keep", {"app": "low"}, 0)
            await day.apply(gang("low", group("w", 2), priority_class="low", labels={"app": "low"}))
            await asyncio.sleep(60)
            await day.apply(gang("job", group("w", 1), priority_class="low"))
            await asyncio.sleep(60)
            await day.end("low-w-0")
            await asyncio.sleep(5)
            await day.apply(gang("high", group("w", 2), priority_class="high"))
            return await day.waited_and_stayed("high-", 2), await day.bound("low-")

    waited_s, left = run(story())
    assert waited_s < 60
    assert left == 1
