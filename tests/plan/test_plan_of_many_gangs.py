"""A plan of many gangs does not read everything again at every write."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs

from grove.answers.plan import plan_answer
from grove.plan.copying import copy_cluster
from grove.plan.whatif import Plan
from grove.plan.world import World
from grove.scheduler.loop.state.view import View
from grove.scheduler.policy.gang_state import GangState, Look
from grove.sim.loop import run
from grove.sim.topology import Topology

GANGS = 40


async def planned(fleet: Topology) -> Plan:
    async with World(fleet.objects(), seed=1) as world:
        copy, now = await copy_cluster(world.client, None), world.cluster.clock.now()
    manifest = pcs("many", clique("lead"), groups=[group("inst", "lead", replicas=GANGS)])
    plan: Plan = (await plan_answer(copy, "default", [manifest], now=now)).data
    return plan


def test_pods_are_looked_up_a_few_times_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    pods_of = World.pods_of

    def counted(self: World, gang: str) -> list[object]:
        nonlocal asked
        asked += 1
        return pods_of(self, gang)  # type: ignore[return-value]

    monkeypatch.setattr(World, "pods_of", counted)

    plan = run(planned(Topology(nodes=4)), seed=1)
    assert [one.answer for one in plan.gangs] == ["fits"] * GANGS
    assert asked <= 2 * GANGS, "each gang is looked up until it stands, and not again"


def test_what_waits_is_gathered_once_and_not_for_each_gang_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = View.look

    def counted(self: View, gang: GangState) -> Look:
        nonlocal looks
        looks += 1
        return look(self, gang)

    monkeypatch.setattr(View, "look", counted)
    plan = run(planned(Topology(nodes=1, pods=2)), seed=1)
    assert [one.answer for one in plan.gangs].count("cannot fit") >= GANGS - 2
    assert looks <= 10 * GANGS, "a look at each at each of its steps, and one more for the diagnosis"
