"""Gangs with equal requests: a free slot costs two searches, however many of them wait, and none is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.days import NAMESPACE, Day
from tests.support.gangs import gang, group, scheduling

from grove.api.core import Node, Pod
from grove.api.podgang import PodGang
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.loop.holds import long_wait_holds
from grove.scheduler.loop.holds.long_wait_holds import LongWaitHolds
from grove.scheduler.policy.relief import Relief
from grove.sim.loop import run

MANY = 60


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the gangs that were searched a place for."""
    found: list[str] = []
    place = Decider.place

    async def counting(self: Decider, wanted: Any, *args: Any, **options: Any) -> Any:
        found.append(wanted.name)
        return await place(self, wanted, *args, **options)

    monkeypatch.setattr(Decider, "place", counting)
    return found


@pytest.mark.simulated
async def test_one_free_slot_among_many_equal_gangs_costs_two_searches(cluster: Any, searches: list[str]) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2, gpus=2)
        for number in range(MANY):
            await bench.apply(gang(f"g{number:02}", group("w", 1)))
        await cluster.settle(30)
        for round_ in range(12):
            pods = sorted((pod for pod in await bench.pods() if pod.spec.node_name), key=lambda pod: pod.metadata.name)
            gone = pods[0].metadata
            searches.clear()
            await cluster.client.delete(PodGang, gone.name.removesuffix("-w-0"), bench.namespace)
            await cluster.client.delete(Pod, gone.name, bench.namespace, grace_period_s=0)
            await cluster.settle(5 if round_ < 6 else 60)
            assert sum(bool(pod.spec.node_name) for pod in await bench.pods()) == 4
            assert len(searches) <= 3, searches  # also in later rounds: nodes are held for gangs that waited long


@pytest.mark.simulated
async def test_all_are_placed_in_order_when_capacity_for_all_comes_at_once(cluster: Any, searches: list[str]) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=MANY)
        await cluster.client.patch(Node, node, {"spec": {"unschedulable": True}})
        await cluster.settle(1)
        for number in range(MANY):
            await bench.apply(gang(f"g{number:02}", group("w", 1)))
        await cluster.settle(30)
        assert len(searches) < MANY // 2, "those that came in one turn were refused together"
        searches.clear()
        await cluster.client.patch(Node, node, {"spec": {"unschedulable": False}})
        await cluster.settle(30)
        assert sum(bool(pod.spec.node_name) for pod in await bench.pods()) == MANY
        assert len(searches) <= MANY + 2
        assert searches[:MANY] == sorted(searches[:MANY])


@pytest.mark.simulated
async def test_the_next_one_is_tried_when_the_first_is_deleted_before_its_turn(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1, gpus=1)
        for number in range(4):
            await bench.apply(gang(f"g{number}", group("w", 1)))
        await cluster.settle(10)
        for number in range(3):
            await cluster.client.delete(PodGang, f"g{number}", bench.namespace)
            await cluster.client.delete(Pod, f"g{number}-w-0", bench.namespace, grace_period_s=0)
        await cluster.settle(30)
        assert {pod.metadata.name for pod in await bench.pods() if pod.spec.node_name} == {"g3-w-0"}


OWN = {"matchLabels": {"app": "serving"}}
APART = {"topologyKey": "kubernetes.io/hostname", "labelSelector": OWN}
EVEN = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
NEAR = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": OWN}


def required(kind: str, term: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        pytest.param({}, 18, id="pods that look at no other pod"),
        pytest.param(required("podAntiAffinity", APART), 18, id="pods apart from each other"),
        pytest.param(required("podAffinity", NEAR), 120, id="pods near each other"),
        pytest.param({"topologySpreadConstraints": [EVEN | {"labelSelector": OWN}]}, 120, id="pods spread over hosts"),
        pytest.param(
            {"topologySpreadConstraints": [EVEN | {"labelSelector": {"matchLabels": {"app": "other"}}}]},
            18,
            id="pods that look at others which do not move",
        ),
    ],
)
def test_the_cost_of_a_free_slot_does_not_grow_with_the_gangs_that_wait(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], most: int
) -> None:
    """After two minutes nodes are held. Counts units that the scheduler looks at, and searches of every kind.

    Of pods that look at each other, each that comes or leaves may help every gang that has nodes held: four here.
    """
    looks: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        known = getattr(owner, name)

        def counting(*args: Any, **options: Any) -> Any:
            looks[name] += 1
            return known(*args, **options)

        monkeypatch.setattr(owner, name, counting)

    count(Relief, "_needed")
    count(LongWaitHolds, "_failing")
    count(LongWaitHolds, "_is_hopeless")
    count(Decider, "search")

    async def story(many: int) -> dict[str, int]:
        async with Day(nodes=4) as day:
            wanted, labels = group("w", 1, spec=spec), {"app": "serving"}
            await day.apply(*(gang(f"g{number:03}", wanted, labels=labels) for number in range(many)))
            await asyncio.sleep(300)
            looks.clear()
            for number in range(6):
                await day.client.delete(PodGang, f"g{number:03}", NAMESPACE)
                await day.end(f"g{number:03}-w-0")
                await asyncio.sleep(30)
            assert await day.bound("g") == 4
            return dict(looks)

    few, many = run(story(20)), run(story(120))
    assert few == many
    assert many["search"] <= most


def test_timers_of_many_gangs_that_end_together_do_not_keep_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 gangs become old enough for a hold in one moment, and pass their timeout in another one."""
    looks, longest = [0], 0

    def count(name: str) -> None:
        known = getattr(LongWaitHolds, name)

        def counting(*args: Any) -> None:
            nonlocal longest
            looks[-1] += 1
            longest = max(longest, looks[-1])
            known(*args)

        monkeypatch.setattr(LongWaitHolds, name, counting)

    async def others_go_on(_: float) -> None:
        looks.append(0)
        await asyncio.sleep(0)

    count("_note_long_wait")
    monkeypatch.setattr(long_wait_holds, "asyncio", SimpleNamespace(sleep=others_go_on))

    async def story() -> int:
        async with Day(nodes=1) as day:
            await day.apply(*(gang(f"g{number:04}", group("w", 1)) for number in range(2000)))
            await asyncio.sleep(900)
            return len(await day.events("GangTimeout"))

    warned = run(story())
    assert warned > 0
    assert sum(looks) >= 2 * 1999
    assert longest < 2 * long_wait_holds.UNITS_A_SLICE, "the end of one turn and the first part of the next one"
