"""A whole life of a set on the simulator: operator and scheduler ask for nothing that the chart does not grant."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.live import Scheduler
from tests.rbac.rights import documents, granted
from tests.support.operating import World
from tests.support.workloads import change, updated, wl2

pytestmark = pytest.mark.simulated

NOT_A_RIGHT = ("serves", "discover")
"""Discovery, which everybody may ask."""


def asked_for_more(component: str, calls: Counter[tuple[str, str]]) -> set[tuple[str, str]]:
    have = {(right.verb, right.resource) for right in granted(documents()) if right.component == component}
    return {(verb, what) for verb, what in calls if verb not in NOT_A_RIGHT} - have


async def test_a_set_lives_from_its_creation_to_its_end_on_granted_rights(world: World) -> None:
    theirs = world.cluster.sim.client(user="system:serviceaccount:grove-system:grove-scheduler")
    scheduling = asyncio.ensure_future(Scheduler(theirs, clock=world.cluster.clock, say=sentence).run())
    try:
        await world.apply(wl2(startup="CliqueStartupTypeInOrder"))
        await world.available("wl")
        await world.scale(PodCliqueScalingGroup, "wl-0-sg-x", 3)
        await world.scale(PodCliqueSet, "wl", 2)
        await world.available("wl", 2)
        await change(world, "wl", "pc-a", "pc-b")
        await updated(world, "wl")
        await world.delete(PodCliqueSet, "wl")

        async def is_gone() -> bool:
            return not await world.names(PodCliqueSet)

        await world.eventually(is_gone)
    finally:
        scheduling.cancel()
        await asyncio.gather(scheduling, return_exceptions=True)
    calls = world.operator_client.calls
    assert calls["create", "pods"] > 10
    assert theirs.calls["create", "pods/binding"] > 0
    assert asked_for_more("operator", calls) == set()
    assert asked_for_more("scheduler", theirs.calls) == set()
