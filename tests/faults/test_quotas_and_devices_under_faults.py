"""Quotas, reservations and devices under random faults: no write passes a limit or gives a device twice.

A run makes gangs of several teams, deletes some, and kills the scheduler in the middle of its work. In mixed weather it
also does so right after single writes, while calls are refused, lost and delayed. A witness sees every write to the
cluster and counts again from the pods alone. Then the faults end, and no unit may wait that could run. A run is a
function of its seed; a failing one names it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from tests.support.fleet import GPU, QUOTA, definitions, device, elastic, reservation
from tests.support.gangs import Gang, gang, gang_json, group, member_json
from tests.support.running import without_logs

from grove.api.core import Node, Pod, PriorityClass
from grove.api.koordinator import Device, ElasticQuota, Reservation
from grove.api.meta import Json, Resource
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.live import Scheduler
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.crash import Process
from grove.sim.faults import ROUGH, Faults
from grove.sim.loop import run
from grove.sim.store import Change
from grove.sim.topology import Topology

NAMESPACE = "default"
LIMITS = {"all": 14, "red": 8, "blue": 8, "tiny": 2}
PARENTS = {"red": "all", "blue": "all", "tiny": "all"}
MOST_CARDS = 4
STEPS = 12
DEADLY = 0.02
"""Of writes after which the scheduler dies, in mixed weather."""
HIGH = "high"
CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
MINORS, ALLOCATED = "scheduling.koordinator.sh/device-allocated", "scheduling.koordinator.sh/reservation-allocated"


class Witness:
    """Recounts limits, cards and reservations from the pods on nodes, after every write."""

    def __init__(self, sim: SimCluster, with_devices: Iterable[str]) -> None:
        self.broken: list[str] = []
        self._pods: dict[str, Json] = {}
        self._with_devices = set(with_devices)
        sim.server.store.listeners.append(self.see)

    def see(self, resource: Resource, change: Change) -> None:
        if resource != Pod.RESOURCE:
            return
        pod = change.version.json
        over = change.type == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed")
        if over or not pod["spec"].get("nodeName"):
            self._pods.pop(pod["metadata"]["uid"], None)
            return
        self._pods[pod["metadata"]["uid"]] = pod
        self._judge()

    def _judge(self) -> None:
        used: Counter[str] = Counter()
        cards: Counter[tuple[str, int]] = Counter()
        owners: dict[str, str] = {}
        load: Counter[str] = Counter()
        for pod in self._pods.values():
            meta, node = pod["metadata"], pod["spec"]["nodeName"]
            asked = pod["spec"]["containers"][0]["resources"]["requests"]
            gpus, core = int(asked.get(GPU, 0)), int(asked.get(CORE, 100))
            load[node] += gpus
            team = meta.get("labels", {}).get(QUOTA, "")
            while team:
                used[team] += gpus
                team = PARENTS.get(team, "")
            notes = meta.get("annotations") or {}
            said = json.loads(notes[MINORS])["gpu"] if MINORS in notes else []
            if node in self._with_devices and len(said) != (gpus or 1):
                self.broken.append(f"{meta['name']} on {node} has cards {said} for {gpus}")
            for one in said:
                cards[node, one["minor"]] += core
                if cards[node, one["minor"]] > 100:
                    self.broken.append(f"card {one['minor']} of {node} is given beyond its core, to {meta['name']} too")
            if ALLOCATED in notes:
                name = json.loads(notes[ALLOCATED])["name"]
                other = owners.setdefault(name, meta["name"])
                if other != meta["name"]:
                    self.broken.append(f"reservation {name} is {other}'s and {meta['name']}'s")
        self.broken += (f"queue {name} uses {n} of {LIMITS[name]}" for name, n in used.items() if n > LIMITS[name])
        self.broken += (f"node {name} has {n} of {MOST_CARDS}" for name, n in load.items() if n > MOST_CARDS)


class Fateful:
    """A client whose user dies right after some of its writes."""

    def __init__(self, inner: Any, rng: random.Random, kill: Callable[[], None]) -> None:
        self._inner, self._rng, self._kill = inner, rng, kill

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("create", "patch", "bind", "evict", "delete"):
            return found

        async def call(*args: Any, **kw: Any) -> Any:
            answer = await found(*args, **kw)
            if self._strikes(name):
                self._kill()
            return answer

        return call

    def _strikes(self, name: str) -> bool:
        return self._rng.random() < DEADLY


async def storm(seed: int, *, mixed: bool = False) -> None:
    """In `mixed` weather there are shares of cards, gangs that put others out, and deaths between two writes."""
    rng = random.Random(seed)
    faults = Faults(ROUGH, seed=seed)
    async with AsyncExitStack() as stack:
        sim = await stack.enter_async_context(
            SimCluster(
                nodes=Topology(racks=2, nodes=2, gpus=MOST_CARDS),
                seed=seed,
                start_s=0.2,
                stop_s=0.3,
                definitions=[*own_crds(), *definitions()],
            )
        )
        client = sim.client()
        nodes = sorted(node.metadata.name for node in (await client.list(Node)).items)
        witness = Witness(sim, nodes[:2])
        for name in nodes[:2]:
            await client.create(Device, device(name, MOST_CARDS))
        for name, limit in LIMITS.items():
            body = elastic(name, NAMESPACE, 2 if name != "all" else 14, limit, parent=PARENTS.get(name, ""))
            await client.create(ElasticQuota, body)
        for number in range(2):
            body = reservation(f"r{number}", ttl="0s")
            await client.create(Reservation, body)
            status = {"phase": "Available", "nodeName": nodes[number + 1], "allocatable": {GPU: "1"}}
            await client.patch(Reservation, f"r{number}", {"status": status}, subresource="status")
        if mixed:
            await client.create(PriorityClass, {"metadata": {"name": HIGH}, "value": 100})
        fate = random.Random(seed + 1)

        def connect() -> Any:
            inner = faults.client(sim.client(user="grove-scheduler"))
            return Fateful(inner, fate, lambda: process.kill() if faults.rates is ROUGH else None) if mixed else inner

        process = Process(
            lambda one: Scheduler(one, clock=sim.clock, say=sentence).run(),
            connect,
            rng=random.Random(seed),
            mean_life_s=8.0,
        )
        running = asyncio.ensure_future(process.run())
        live: list[Gang] = []
        for number in range(STEPS):
            await asyncio.sleep(rng.uniform(0.2, 3.0))
            if live and rng.random() < 0.3:
                await remove(client, live.pop(rng.randrange(len(live))))
                continue
            team = rng.choice(("red", "blue", "tiny", ""))
            labels = {QUOTA: team} if team else {}
            if rng.random() < 0.4:
                labels["team"] = "red"
            pods = rng.randint(1, 4)
            made = gang(f"g{number}", group("w", pods, rng.randint(1, pods), gpus=rng.choice((1, 1, 2))), labels=labels)
            core = 0
            if mixed:
                core = rng.choice((0, 0, 50))
                made = replace(made, priority_class=rng.choice(("", "", HIGH)))
            live.append(made)
            await create(client, made, core)
        faults.stop()
        process.spare()
        process.kill()
        await asyncio.sleep(60)
        before = await bound(client)
        process.kill()
        await asyncio.sleep(30)
        late = sorted((await bound(client)) - before)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert witness.broken == [], f"seed {seed}"
        assert process.failures == [], f"seed {seed}"
        assert late == [], f"seed {seed}: waited, and a fresh scheduler placed them"


async def create(client: Any, made: Gang, core: int = 0) -> None:
    """With `core` its pods ask for that much of a card each, instead of whole ones."""
    await client.create(PodGang, gang_json(made, NAMESPACE))
    for part in made.groups:
        for number in range(part.pods):
            body = member_json(made, part, number, NAMESPACE)
            if core:
                share = {CORE: str(core), RATIO: str(core)}
                body["spec"]["containers"][0]["resources"] = {"requests": share, "limits": share}
            await client.create(Pod, body)


async def remove(client: Any, made: Gang) -> None:
    await client.delete(PodGang, made.name, NAMESPACE)
    for pod in (await client.list(Pod, NAMESPACE)).items:
        if pod.metadata.name.startswith(f"{made.name}-"):
            await client.delete(Pod, pod.metadata.name, NAMESPACE, grace_period_s=0)


async def bound(client: Any) -> set[str]:
    return {pod.metadata.uid for pod in (await client.list(Pod, NAMESPACE)).items if pod.spec.node_name}


class Countdown(Fateful):
    """A client whose user dies after this number of writes, counted over all its lives."""

    def __init__(self, inner: Any, writes: list[str], last: int, kill: Callable[[], None]) -> None:
        super().__init__(inner, random.Random(0), kill)
        self._writes, self._last = writes, last

    def _strikes(self, name: str) -> bool:
        self._writes.append(name)
        return len(self._writes) == self._last


async def story(last: int) -> tuple[list[str], dict[str, int], list[str]]:
    """Gangs with a quota, a reservation, cards and shares, and one that puts others out; the scheduler dies after that
    many writes. Gives the writes, the pods of each gang that stand in the end, and what was broken."""
    writes: list[str] = []
    async with SimCluster(
        nodes=Topology(nodes=2, gpus=MOST_CARDS), start_s=0.2, stop_s=0.3, definitions=[*own_crds(), *definitions()]
    ) as sim:
        client = sim.client()
        nodes = sorted(node.metadata.name for node in (await client.list(Node)).items)
        witness = Witness(sim, nodes)
        for name in nodes:
            await client.create(Device, device(name, MOST_CARDS))
        for name, limit in LIMITS.items():
            await client.create(ElasticQuota, elastic(name, NAMESPACE, 2, limit, parent=PARENTS.get(name, "")))
        await client.create(PriorityClass, {"metadata": {"name": HIGH}, "value": 100})
        await client.create(Reservation, reservation("r0", ttl="0s"))
        status = {"phase": "Available", "nodeName": nodes[0], "allocatable": {GPU: "1"}}
        await client.patch(Reservation, "r0", {"status": status}, subresource="status")
        process = Process(
            lambda one: Scheduler(one, clock=sim.clock, say=sentence).run(),
            lambda: Countdown(sim.client(user="grove-scheduler"), writes, last, process.kill),  # type: ignore[arg-type]
        )
        running = asyncio.ensure_future(process.run())
        red = {QUOTA: "red", "team": "red"}
        for made, core in (
            (gang("owner", group("w", 1), labels=red), 0),
            (gang("shares", group("w", 2)), 50),
            (gang("low", group("w", 3), labels={QUOTA: "blue"}), 0),
            (gang("high", group("w", 4), labels={QUOTA: "blue"}, priority_class=HIGH), 0),
        ):
            await create(client, made, core)
            await asyncio.sleep(4)
        await asyncio.sleep(30)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        pods = (await client.list(Pod, NAMESPACE)).items
        standing = dict(Counter(pod.metadata.labels["grove.io/podgang"] for pod in pods if pod.is_bound))
        return writes, standing, [*witness.broken, *map(repr, process.failures)]


@pytest.mark.simulated
def test_a_scheduler_that_dies_between_any_two_writes_breaks_nothing_and_leaves_gangs_whole() -> None:
    with without_logs():
        writes, standing, broken = run(story(0))
        assert broken == []
        assert standing == {"owner": 1, "low": 3, "high": 4}, "two shares of a card are the fewest pods that could go"
        assert {"bind", "evict", "patch"} <= set(writes)
        for last in range(1, len(writes) + 1):
            _, found, broken = run(story(last))
            at = f"dead after write {last}, {writes[last - 1]}"
            assert broken == [], at
            assert {"owner", "high"} <= found.keys(), at
            # One that continues an eviction has no record of its gang, and may find another victim.
            assert found.items() <= standing.items(), at


def survives(seeds: Iterable[int], *, mixed: bool = False) -> None:
    with without_logs():
        for seed in seeds:
            run(storm(seed, mixed=mixed), seed=seed)


@pytest.mark.simulated
@pytest.mark.parametrize("part", range(2))
def test_no_limit_is_passed_and_nothing_is_given_twice_in_bad_weather(part: int) -> None:
    survives(range(part * 20, part * 20 + 20), mixed=part == 1)


@pytest.mark.simulated
def test_a_reservation_written_on_a_pod_that_is_placed_again_without_it_is_taken_off() -> None:
    survives([236])


@pytest.mark.simulated
def test_a_reservation_that_ends_under_a_pod_on_its_way_leaves_it_its_capacity() -> None:
    survives([784])


@pytest.mark.soak
@pytest.mark.simulated
@pytest.mark.parametrize("part", range(40))
def test_nothing_is_given_twice_in_a_thousand_storms(part: int) -> None:
    survives(range(100 + part * 25, 125 + part * 25), mixed=part % 2 == 1)
