"""The law of progress: a unit is placed in a time that does not depend on how many units are behind it.

If the pods ahead of a unit in the order end in finite time, and a placement exists for it without them, it is placed.
Each seed is a small fleet with the default configuration: one or two racks, nodes with one, two or four GPUs. Jobs of
random priorities, sizes, run times, grace periods, minima, queues and disruption budgets are there before the unit. A
stream of units behind it, which never ends, comes after it. The unit is a gang, which may need one rack, or a group of
Reservations.

In fleets with limits, pods of jobs and of the unit may have a host port, or keep apart from pods of their kind.
"""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from tests.support.days import NAMESPACE, PRIORITIES, Day
from tests.support.fleet import QUOTA, elastic, install, reservation
from tests.support.gangs import gang, group, pod_json

from grove.api.core import Pod
from grove.api.koordinator import MIN_AVAILABLE, POD_GROUP, ElasticQuota, Reservation
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.kube.errors import NotFound
from grove.plan.world import binding
from grove.sim.loop import run
from grove.sim.topology import HOST, RACK, Topology

SEEDS, SOAK_SEEDS, AT_ONCE = 50, 1000, 5
LIMITED_SEEDS, LIMITED_SOAK_SEEDS = 6, 501
LONGEST_S, GRACE_S = 1800.0, 60
HOLD_S = 120.0
PORT: Json = {"containerPort": 8000, "hostPort": 8000}
APART: Json = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "engine"}}}


class Limit(msgspec.Struct, frozen=True):
    """What keeps a pod off nodes although the amounts are free there."""

    spec: Json = {}
    labels: dict[str, str] = {}
    is_one_per_node: bool = False

    @classmethod
    def random(cls, rng: random.Random, gpus: int) -> Limit:
        """A host port, or a kind of pods that some keep apart from, or both, or nothing."""
        spec: Json = {}
        labels = {"app": "engine"} if rng.random() < 0.9 else {}
        if rng.random() < 0.5:
            container = pod_json("", "", gpus=gpus)["spec"]["containers"][0]
            spec["containers"] = [{**container, "ports": [PORT]}]
        if labels and rng.random() < 0.6:
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}}
        return cls(spec, labels, is_one_per_node=bool(spec))


class Fleet(msgspec.Struct, frozen=True):
    """Some racks of nodes that are alike."""

    racks: int
    nodes: int
    """In each rack."""
    gpus: int
    has_limits: bool = False

    @classmethod
    def random(cls, rng: random.Random, *, has_limits: bool) -> Fleet:
        racks = rng.randint(1, 2)
        nodes = rng.randint(2, 5) if racks == 1 else rng.randint(1, 3)
        return cls(racks, nodes, rng.choice([1, 1, 2, 4]), has_limits)

    def some_pods(self, rng: random.Random, racks: int | None = None) -> tuple[int, int, Limit]:
        """How many pods, GPUs of each, and their limit, that fit the empty racks."""
        gpus = rng.choice([gpus for gpus in (1, 2, 4) if gpus <= self.gpus])
        limit = Limit.random(rng, gpus) if self.has_limits else Limit()
        on_each = 1 if limit.is_one_per_node else self.gpus // gpus
        return rng.randint(1, (racks or self.racks) * self.nodes * on_each), gpus, limit

    @property
    def all_gpus(self) -> int:
        return self.racks * self.nodes * self.gpus


class Jobs:
    """Gangs that end by themselves."""

    def __init__(self, day: Day, rng: random.Random, fleet: Fleet) -> None:
        self._day, self._rng, self._fleet, self._count = day, rng, fleet, 0
        self._ends: list[asyncio.Task[None]] = []

    async def start(self, most_priority: str, labels: dict[str, str]) -> None:
        """One more, of no higher priority."""
        rng, self._count = self._rng, self._count + 1
        allowed = [name for name, value in PRIORITIES.items() if value <= PRIORITIES[most_priority]]
        size, gpus, limit = self._fleet.some_pods(rng)
        if self._fleet.has_limits and rng.random() < 0.8:
            size = 1  # such jobs find a place again and again while the unit waits
        minimum = size if rng.random() < 0.7 else rng.randint(1, size)
        spec = {"terminationGracePeriodSeconds": rng.choice([0, 5, GRACE_S]), **limit.spec}
        name = f"job-{self._count}"
        wanted = group("w", size, minimum, gpus=gpus, spec=spec)
        labels = {**labels, **limit.labels}
        await self._day.apply(gang(name, wanted, priority_class=rng.choice(allowed), labels=labels))
        if rng.random() < 0.3:
            await self._day.protect(name, {"grove.io/podgang": name}, rng.randint(0, size))
        self._ends.append(asyncio.ensure_future(self._end(name, size, minimum, rng.uniform(60, LONGEST_S))))

    async def _end(self, name: str, size: int, minimum: int, after_s: float) -> None:
        """Ends it this long after its minimum was bound. If it was evicted or never placed, after the longest time."""
        for _ in range(int(4 * LONGEST_S / 60)):
            if await self._day.bound(f"{name}-") >= minimum:
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


class AskedGang:
    """The unit, as a gang of the law; half of the gangs on two racks need one rack."""

    def __init__(self, day: Day, rng: random.Random, fleet: Fleet, priority: str, labels: dict[str, str]) -> None:
        needs_rack = fleet.racks > 1 and rng.random() < 0.5
        self._day, (self._pods, gpus, limit) = day, fleet.some_pods(rng, racks=1 if needs_rack else None)
        required = {"required": RACK} if needs_rack else {}
        wanted, labels = group("w", self._pods, gpus=gpus, spec=limit.spec), {**labels, **limit.labels}
        self._gang = gang("unit", wanted, priority_class=priority, labels=labels, **required)

    async def create(self) -> None:
        await self._day.apply(self._gang)

    async def is_placed(self) -> bool:
        """Also if it was placed on quota that another queue called back since: its pods are not made again here."""
        placed = [event for event in await self._day.events("GangScheduled") if event.involved_object.name == "unit"]
        return bool(placed) or await self._day.bound("unit-") >= self._pods


class AskedReservations:
    """The unit, as Reservations of one group."""

    def __init__(self, day: Day, rng: random.Random, fleet: Fleet, priority: str) -> None:
        self._day, self._priority = day, priority
        self._count, self._gpus, self._limit = fleet.some_pods(rng)

    async def create(self) -> None:
        template = {"schedulerName": "grove-scheduler", "priorityClassName": self._priority, **self._limit.spec}
        note = {MIN_AVAILABLE: str(self._count)}
        for number in range(self._count):
            body = reservation(
                f"unit-{number}",
                gpus=self._gpus,
                template=template,
                ttl="400h",
                labels={POD_GROUP: "unit"},
                annotations=note,
            )
            await self._day.client.create(Reservation, body)

    async def is_placed(self) -> bool:
        found = (await self._day.client.list(Reservation)).items
        return all(one.status.phase == "Available" for one in found)


async def story(seed: int, *, has_limits: bool = False) -> tuple[float, float]:
    """How long the unit waited, and how long it may have to."""
    rng = random.Random(seed)
    fleet = Fleet.random(rng, has_limits=has_limits)
    is_reservation, queues = rng.random() < 0.25, rng.choice([0, 0, 1, 2])
    topology = Topology(racks=fleet.racks, nodes=fleet.nodes, gpus=fleet.gpus)
    async with Day(nodes=0, topology=topology, stop_s=lambda _: rng.uniform(0, 5)) as day:
        await day.client.create(ClusterTopologyBinding, binding())
        kinds = ["Reservation"] if is_reservation else ["ElasticQuota"] if queues else []
        if kinds:
            await install(day, *kinds)
            await asyncio.sleep(60)
        labels = [{}] if is_reservation or not queues else [{QUOTA: f"queue-{number}"} for number in range(queues)]
        for one in labels:
            for name in one.values():
                own = elastic(name, NAMESPACE, fleet.all_gpus // queues, fleet.all_gpus)
                await day.client.create(ElasticQuota, own)
        jobs = Jobs(day, rng, fleet)
        ahead = rng.randint(0, 2 * fleet.racks * fleet.nodes)
        for _ in range(ahead):
            await jobs.start("urgent", rng.choice(labels))
            await asyncio.sleep(rng.uniform(0, 60))
        priority = rng.choice(list(PRIORITIES))
        unit: AskedGang | AskedReservations = (
            AskedReservations(day, rng, fleet, priority)
            if is_reservation
            else AskedGang(day, rng, fleet, priority, labels[0])
        )
        await unit.create()

        async def stream() -> None:
            while True:
                await asyncio.sleep(rng.uniform(5, 120))
                await jobs.start(priority, labels[0])

        behind = asyncio.ensure_future(stream())
        most_s = HOLD_S + (ahead + 2) * (LONGEST_S + GRACE_S + 60)
        now = asyncio.get_running_loop().time
        began_s = now()
        while now() - began_s < most_s:
            if await unit.is_placed():
                break
            await asyncio.sleep(10)
        behind.cancel()
        jobs.stop()
        return min(now() - began_s, most_s), most_s


def check(seeds: range, *, has_limits: bool = False) -> None:
    late = {}
    for seed in seeds:
        waited_s, most_s = run(story(seed, has_limits=has_limits), seed=seed, limit_s=1e9)
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


def test_a_unit_is_placed_where_pods_have_host_ports_and_keep_apart() -> None:
    check(range(LIMITED_SEEDS), has_limits=True)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(LIMITED_SEEDS, LIMITED_SOAK_SEEDS, AT_ONCE))
def test_a_unit_is_placed_where_pods_have_host_ports_and_keep_apart_hundreds_of_times(first: int) -> None:
    check(range(first, first + AT_ONCE), has_limits=True)
