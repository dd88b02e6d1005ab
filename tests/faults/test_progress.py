"""The law of progress: a unit is placed in a time that does not depend on how many units are behind it.

If the pods ahead of a unit in the order end in finite time, and a placement exists for it without them, it is placed.
Each seed is a small fleet with the default configuration. Jobs of random priorities, sizes, run times, grace periods
and disruption budgets are there before the unit. A stream of units behind it, which never ends, comes after it.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.support.days import NAMESPACE, PRIORITIES, Day
from tests.support.fleet import QUOTA, elastic, install
from tests.support.gangs import gang, group

from grove.api.core import Pod
from grove.api.koordinator import ElasticQuota
from grove.api.podgang import PodGang
from grove.kube.errors import NotFound
from grove.sim.loop import run

SEEDS, SOAK_SEEDS, AT_ONCE = 50, 1000, 5
LONGEST_S, GRACE_S = 1800.0, 60
HOLD_S = 120.0


class Jobs:
    """Gangs that end by themselves."""

    def __init__(self, day: Day, rng: random.Random, labels: dict[str, str]) -> None:
        self._day, self._rng, self._labels, self._count = day, rng, labels, 0
        self._ends: list[asyncio.Task[None]] = []

    async def start(self, most_priority: str, most_pods: int) -> None:
        """One more, of no higher priority and no more pods than that."""
        rng, self._count = self._rng, self._count + 1
        allowed = [name for name, value in PRIORITIES.items() if value <= PRIORITIES[most_priority]]
        size = rng.randint(1, most_pods)
        spec = {"terminationGracePeriodSeconds": rng.choice([0, 5, GRACE_S])}
        name = f"job-{self._count}"
        made = gang(name, group("w", size, spec=spec), priority_class=rng.choice(allowed), labels=self._labels)
        await self._day.apply(made)
        if rng.random() < 0.3:
            await self._day.protect(name, {"grove.io/podgang": name}, rng.randint(0, size))
        self._ends.append(asyncio.ensure_future(self._end(name, size, rng.uniform(60, LONGEST_S))))

    async def _end(self, name: str, size: int, after_s: float) -> None:
        """It ends so long after its last pod was bound, or (evicted, never placed) after the longest time there is."""
        for _ in range(int(4 * LONGEST_S / 60)):
            if await self._day.bound(f"{name}-") == size:
                break
            await asyncio.sleep(60)
        await asyncio.sleep(after_s)
        await self._day.client.delete(PodGang, name, NAMESPACE)
        for number in range(size):
            try:
                await self._day.client.delete(Pod, f"{name}-w-{number}", NAMESPACE)
            except NotFound:
                continue

    def stop(self) -> None:
        for one in self._ends:
            one.cancel()


async def story(seed: int) -> tuple[float, float]:
    """How long the unit waited, and how long it may have to."""
    rng = random.Random(seed)
    nodes, has_queue = rng.randint(2, 5), rng.random() < 0.3
    labels = {QUOTA: "all"} if has_queue else {}
    async with Day(nodes=nodes, stop_s=lambda _: rng.uniform(0, 5)) as day:
        if has_queue:
            await install(day, "ElasticQuota")
            await asyncio.sleep(60)
            await day.client.create(ElasticQuota, elastic("all", NAMESPACE, nodes, nodes))
        jobs = Jobs(day, rng, labels)
        ahead = rng.randint(0, 2 * nodes)
        for _ in range(ahead):
            await jobs.start("urgent", nodes)
            await asyncio.sleep(rng.uniform(0, 60))
        priority = rng.choice(list(PRIORITIES))
        await day.apply(gang("unit", group("w", rng.randint(1, nodes)), priority_class=priority, labels=labels))
        wanted = len([pod for pod in await day.pods() if pod.metadata.name.startswith("unit")])

        async def stream() -> None:
            while True:
                await asyncio.sleep(rng.uniform(5, 120))
                await jobs.start(priority, nodes)

        behind = asyncio.ensure_future(stream())
        most_s = HOLD_S + (ahead + 2) * (LONGEST_S + GRACE_S + 60)
        waited_s = await day.waited_for("unit-", wanted, most_s)
        behind.cancel()
        jobs.stop()
        return waited_s, most_s


def check(seeds: range) -> None:
    late = {}
    for seed in seeds:
        waited_s, most_s = run(story(seed), seed=seed, limit_s=1e9)
        if waited_s >= most_s:
            late[seed] = waited_s
    assert not late, f"seeds whose unit was not placed in time: {late}"


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_a_unit_is_placed_however_many_units_are_behind_it(first: int) -> None:
    check(range(first, first + AT_ONCE))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SEEDS, SOAK_SEEDS, AT_ONCE))
def test_a_unit_is_placed_however_many_units_are_behind_it_a_thousand_times(first: int) -> None:
    check(range(first, first + AT_ONCE))
