"""`plan -f` of a set that runs already: the update is played to its end, so its pods are not caught on the way."""

from __future__ import annotations

import asyncio

from tests.support.manifests import clique, group, pcs

from grove.api.meta import Json
from grove.cli.access import Answer
from grove.cli.plan import plan_answer
from grove.plan.copying import copy_cluster
from grove.plan.whatif import Plan
from grove.plan.world import World
from grove.sim.loop import run
from grove.sim.topology import Topology


def chat(image: str) -> Json:
    made = pcs(
        "chat", clique("router", 3, min_available=1), clique("engine", 2), groups=[group("inst", "engine", replicas=2)]
    )
    for one in made["spec"]["template"]["cliques"]:
        one["spec"]["podSpec"]["containers"][0]["image"] = image
    return made


async def updated(image: str) -> Answer:
    async with World(Topology(nodes=4).objects(), seed=1) as world:
        await world.apply(chat("example/engine:1"))
        assert await world.until(lambda: world.is_settled("chat"))
        await asyncio.sleep(5.0)
        copy, now = await copy_cluster(world.client, None), world.cluster.clock.now()
    return await plan_answer(copy, "default", [chat(image)], now=now)


def test_every_pod_of_an_update_is_planned_and_has_its_place() -> None:
    answer = run(updated("example/engine:2"), seed=1)
    plan: Plan = answer.data
    assert answer.code == 0
    assert [(one.name, one.answer, len(one.pods), one.unplaced, one.moved) for one in plan.gangs] == [
        ("chat-0", "fits", 5, 0, 5),
        ("chat-0-inst-0", "fits", 2, 0, 2),
    ]


def test_an_unchanged_manifest_moves_nothing() -> None:
    answer = run(updated("example/engine:1"), seed=1)
    assert (answer.code, [one.moved for one in answer.data.gangs]) == (0, [0, 0])
