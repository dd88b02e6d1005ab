"""What placing a gang costs the API server: every write of the scheduler counted, by kind; at most two a pod."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.support.gangs import Gang, gang, gang_json, group, member_json

from grove.api.core import Event, Pod
from grove.api.meta import find_condition
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.live import Scheduler
from grove.sim.cluster import SimCluster
from grove.sim.loop import run
from grove.sim.topology import RACK, Topology

NAMESPACE = "default"
READS = ("get", "list", "watch", "serves")


async def cost(made: Gang, ready_after_s: float) -> tuple[dict[str, int], PodGang, list[str]]:
    """Writes of a scheduler that places the gang on a free cluster, the PodGang's end state, and its events."""
    async with SimCluster(nodes=Topology(racks=2, nodes=4, gpus=8)) as sim:
        sim.nodes.start_s = ready_after_s
        ours, client = sim.client(user="grove-scheduler"), sim.client()
        task = asyncio.ensure_future(Scheduler(ours, clock=sim.clock, say=sentence).run())
        await asyncio.sleep(1)
        before = Counter(ours.calls)
        await client.create(PodGang, gang_json(made, NAMESPACE))
        for part in made.groups:
            for number in range(part.pods):
                await client.create(Pod, member_json(made, part, number, NAMESPACE))
        await asyncio.sleep(ready_after_s + 120)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        spent = Counter(ours.calls) - before
        writes = {f"{verb} {what}": count for (verb, what), count in spent.items() if verb not in READS}
        told = [f"{event.reason}: {event.message}" for event in (await client.list(Event, NAMESPACE)).items]
        return writes, await client.get(PodGang, made.name, NAMESPACE), sorted(told)


BIND, STATUS, EVENT = "create pods/binding", "patch podgangs/status", "create events"


@pytest.mark.parametrize(
    ("made", "ready_after_s", "writes"),
    [
        pytest.param(gang("g", group("a", 1), group("b", 1)), 0.5, {BIND: 2, STATUS: 1, EVENT: 1}, id="two pods"),
        pytest.param(
            gang("g", group("a", 2), required=RACK), 0.5, {BIND: 2, STATUS: 1, EVENT: 1}, id="two pods in one rack"
        ),
        pytest.param(
            gang("g", group("a", 3), required=RACK),
            60.0,
            {BIND: 3, STATUS: 2, EVENT: 1},
            id="three pods in one rack that take a minute to be ready",
        ),
        pytest.param(
            gang("g", group("a", 4), required=RACK),
            60.0,
            {BIND: 4, STATUS: 2, EVENT: 2},
            id="four pods in one rack that take a minute to be ready",
        ),
        pytest.param(
            gang("g", group("a", 12, minimum=4)), 60.0, {BIND: 12, STATUS: 2, EVENT: 1}, id="pods above the minimum"
        ),
    ],
)
def test_a_gang_that_fits_costs_at_most_two_writes_a_pod(
    made: Gang, ready_after_s: float, writes: dict[str, int]
) -> None:
    spent, podgang, told = run(cost(made, ready_after_s))
    assert spent == writes
    assert sum(spent.values()) <= 2 * spent[BIND]
    assert podgang.status.phase == "Running"
    assert podgang.status.placement_score == 1.0
    assert len(told) == writes[EVENT]


def test_a_pair_that_starts_slowly_is_said_to_be_starting_meanwhile() -> None:
    """The one gang that costs more than two a pod: its second status comes when its containers run at last."""

    async def story() -> tuple[Any, ...]:
        async with SimCluster(nodes=Topology(nodes=2)) as sim:
            sim.nodes.start_s = 300.0
            client = sim.client()
            task = asyncio.ensure_future(
                Scheduler(sim.client(user="grove-scheduler"), clock=sim.clock, say=sentence).run()
            )
            await asyncio.sleep(1)
            made = gang("g", group("a", 2))
            await client.create(PodGang, gang_json(made, NAMESPACE))
            for number in range(2):
                await client.create(Pod, member_json(made, made.groups[0], number, NAMESPACE))
            await asyncio.sleep(5)
            status = (await client.get(PodGang, "g", NAMESPACE)).status
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return status.phase, getattr(find_condition(status.conditions, "Scheduled"), "status", None)

    assert run(story()) == ("Starting", "True")


def test_pairs_that_start_in_a_crowd_are_reported_once_each() -> None:
    """The last is ready after six seconds. Others become ready all the time, so the test can wait for its turn."""

    async def story() -> tuple[int, set[str]]:
        async with SimCluster(nodes=Topology(nodes=5, gpus=8)) as sim:
            turns = iter(range(40))
            sim.nodes.start_s = lambda _pod: 0.15 * next(turns)
            ours, client = sim.client(user="grove-scheduler"), sim.client()
            task = asyncio.ensure_future(Scheduler(ours, clock=sim.clock, say=sentence).run())
            await asyncio.sleep(1)
            made = [gang(f"g{n}", group("a", 2)) for n in range(20)]
            for one in made:
                await client.create(PodGang, gang_json(one, NAMESPACE))
            for one in made:
                for number in range(2):
                    await client.create(Pod, member_json(one, one.groups[0], number, NAMESPACE))
            await asyncio.sleep(60)
            phases = {one.status.phase for one in (await client.list(PodGang, NAMESPACE)).items}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return ours.calls["patch", "podgangs/status"], phases

    assert run(story()) == (20, {"Running"})


def test_the_one_event_of_a_small_gang_names_its_domain() -> None:
    _, _, told = run(cost(gang("g", group("a", 2), required=RACK), 0.2))
    assert len(told) == 1
    assert told[0].startswith("GangScheduled: placed 2 pods in ")
    assert RACK in told[0]
