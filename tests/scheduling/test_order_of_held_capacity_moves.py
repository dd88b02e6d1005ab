"""The order of units moves with the shares of their queues: a hold then closes its nodes to other units than before.

With the default configuration; a simulated day passes after the last event.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.support.days import NAMESPACE, Day
from tests.support.fleet import QUOTA, elastic, install, reservation
from tests.support.gangs import gang, gang_json, group, member_json

from grove.api.core import Pod
from grove.api.koordinator import ElasticQuota, Reservation
from grove.api.podgang import PodGang
from grove.sim.loop import run

pytestmark = pytest.mark.simulated
RED, BLUE = {QUOTA: "red"}, {QUOTA: "blue"}


def test_a_unit_that_comes_before_the_owner_of_a_hold_now_takes_the_held_node() -> None:
    """Two pods of the red queue end on closed nodes. So no capacity becomes free, but the red queue is next."""

    async def story() -> tuple[int, float, int]:
        async with Day(nodes=4) as day:
            await install(day, "ElasticQuota")
            await asyncio.sleep(60)
            for name in ("red", "blue"):
                await day.client.create(ElasticQuota, elastic(name, NAMESPACE, 2, 4))
            for name, labels in (("red-0", RED), ("red-1", RED), ("blue-0", BLUE)):
                await day.apply(gang(name, group("w", 1), labels=labels))
                await asyncio.sleep(10)
            await day.apply(gang("large", group("w", 2), labels=BLUE))
            await asyncio.sleep(300)
            await day.apply(gang("small", group("w", 1), labels=RED))
            await asyncio.sleep(600)
            before = await day.bound("small-")
            for name in ("red-0-w-0", "red-1-w-0"):
                await day.sim.nodes.cordon((await day.pod(name)).spec.node_name, unschedulable=True)
            await asyncio.sleep(60)
            for name in ("red-0-w-0", "red-1-w-0"):
                await day.end(name)
            return before, await day.waited_and_stayed("small-", 1), await day.bound("large-")

    before, waited_s, large = run(story())
    assert (before, large) == (0, 0)
    assert waited_s < 60


def test_a_reservation_that_finds_no_place_beside_headroom_is_refused_and_says_so() -> None:
    async def story() -> str:
        async with Day(nodes=1) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            body = gang_json(gang("serving", group("w", 1)), NAMESPACE)
            body["spec"]["headroom"] = [{"name": "x", "podGroupNames": [], "units": 1}]
            await day.client.create(PodGang, body)
            await day.client.create(Pod, member_json(gang("serving", group("w", 1)), group("w", 1), 0, NAMESPACE))
            await asyncio.sleep(60)
            template = {"schedulerName": "grove-scheduler"}
            await day.client.create(Reservation, reservation("waits", gpus=1, ttl="0s", template=template))
            await asyncio.sleep(60)
            (found,) = (await day.client.list(Reservation)).items
            return " ".join(one.message for one in found.status.conditions)

    assert "insufficient nvidia.com/gpu" in run(story())
