"""Teams that come, go and ask for more than there is: in the end each has its exact fair share, but for one gang.

A gang is indivisible, so a team may stay below its share by less than one gang. Other teams have what all of them
leave.

A run makes a tree of queues of its own, lets gangs of all sizes arrive and leave in any order, and makes evicted pods
again as the operator would. A witness counts every write against the limits of all levels. When the run is quiet, a
referee works out the exact shares in fractions. A run is a function of its seed; a failing one names it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from tests.support.fleet import GPU, QUOTA, definitions, elastic
from tests.support.gangs import Gang, gang, gang_json, group, member_json
from tests.support.running import without_logs

from grove.api.core import Pod
from grove.api.koordinator import ElasticQuota
from grove.api.meta import Resource
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.errors import AlreadyExists
from grove.scheduler.loop.live import Scheduler
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.loop import run
from grove.sim.store import Change
from grove.sim.topology import Topology

NAMESPACE = "default"
NODES, CARDS = 4, 8
STEPS = 40
WEIGHT = "quota.scheduling.koordinator.sh/shared-weight"


@dataclass(frozen=True)
class Team:
    name: str
    parent: str
    own: int
    most: int
    weight: int


def teams_of(rng: random.Random) -> list[Team]:
    """Two departments with two or three teams each; what is guaranteed below is no more than above."""
    found = []
    total = NODES * CARDS
    for department in ("a", "b"):
        own = rng.randint(0, total // 2)
        found.append(Team(department, "", own, rng.choice((total, total, own + rng.randint(0, 12))), rng.randint(1, 4)))
        for number in range(rng.randint(2, 3)):
            below = rng.randint(0, own // 3)
            limit = rng.choice((total, total, below + rng.randint(2, 10)))
            found.append(Team(f"{department}{number}", department, below, limit, rng.randint(1, 4)))
    return found


def level(amount: Fraction, rooms: list[Fraction], weights: list[int]) -> list[Fraction]:
    """Water at one level: `amount` poured into vessels as high as their capacities and as wide as their weights."""
    found = [Fraction(0)] * len(rooms)
    open_ = [i for i, room in enumerate(rooms) if room > 0]
    while open_ and amount > 0:
        rise = min(min((rooms[i] - found[i]) / weights[i] for i in open_), amount / sum(weights[i] for i in open_))
        for i in open_:
            found[i] += rise * weights[i]
        amount -= rise * sum(weights[i] for i in open_)
        open_ = [i for i in open_ if found[i] < rooms[i]]
    return found


def exact_shares(teams: list[Team], demand: Mapping[str, int], total: int) -> dict[str, Fraction]:
    """The referee: guarantees as far as they are asked for, then the rest by weight, department by department."""
    children = {team.name: [one for one in teams if one.parent == team.name] for team in teams}

    def asks(team: Team) -> int:
        below = children[team.name]
        return min(team.most, sum(map(asks, below)) if below else demand.get(team.name, 0))

    found: dict[str, Fraction] = {}

    def divide(whole: Fraction, among: list[Team]) -> None:
        first = [Fraction(min(team.own, asks(team))) for team in among]
        assert sum(first) <= whole, "the runs guarantee no more than there is"
        rooms = [asks(team) - got for team, got in zip(among, first, strict=True)]
        more = level(whole - sum(first), rooms, [team.weight for team in among])
        for team, got, extra in zip(among, first, more, strict=True):
            found[team.name] = got + extra
            if children[team.name]:
                divide(got + extra, children[team.name])

    divide(Fraction(total), [team for team in teams if not team.parent])
    return found


class Witness:
    """Counts pods on nodes by queue, at every level, after every write."""

    def __init__(self, sim: SimCluster, teams: list[Team]) -> None:
        self.broken: list[str] = []
        self._teams = {team.name: team for team in teams}
        self._pods: dict[str, str] = {}
        sim.server.store.listeners.append(self.see)

    def see(self, resource: Resource, change: Change) -> None:
        if resource != Pod.RESOURCE:
            return
        pod = change.version.json
        self._pods.pop(pod["metadata"]["uid"], None)
        if change.type != "DELETED" and pod["spec"].get("nodeName"):
            self._pods[pod["metadata"]["uid"]] = pod["metadata"]["labels"][QUOTA]
        for name, used in self.used().items():
            if used > self._teams[name].most:
                self.broken.append(f"{name} uses {used} of {self._teams[name].most}")

    def used(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for name in self._pods.values():
            found[name] += 1
            if parent := self._teams[name].parent:
                found[parent] += 1
        return found


async def season(seed: int) -> None:
    rng = random.Random(seed)
    teams = teams_of(rng)
    leaves = [team for team in teams if team.parent]
    async with AsyncExitStack() as stack:
        sim = await stack.enter_async_context(
            SimCluster(
                nodes=Topology(nodes=NODES, gpus=CARDS),
                seed=seed,
                start_s=0.2,
                stop_s=0.3,
                definitions=[*own_crds(), *definitions("ElasticQuota")],
            )
        )
        client = sim.client()
        witness = Witness(sim, teams)
        for team in teams:
            notes = {WEIGHT: json.dumps({GPU: team.weight})}
            body = elastic(team.name, NAMESPACE, team.own, team.most, parent=team.parent, annotations=notes)
            await client.create(ElasticQuota, body)
        live: dict[str, Gang] = {}
        tasks = [
            asyncio.ensure_future(Scheduler(sim.client(user="grove-scheduler"), clock=sim.clock, say=sentence).run()),
            asyncio.ensure_future(keep_pods(client, live)),
        ]
        for number in range(STEPS):
            await asyncio.sleep(rng.uniform(0.2, 4.0))
            if live and rng.random() < 0.25:
                await remove(client, live, rng.choice(sorted(live)))
                continue
            pods = rng.randint(1, 4)
            made = gang(f"g{number}", group("w", pods), labels={QUOTA: rng.choice(leaves).name})
            await client.create(PodGang, gang_json(made, NAMESPACE))
            live[made.name] = made
        await asyncio.sleep(120)
        used, gangs = witness.used(), await whole_gangs(client)
        await asyncio.sleep(60)
        is_quiet = gangs == await whole_gangs(client)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    demand: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for made in live.values():
        name, pods = made.labels[QUOTA], made.groups[0].pods
        demand[name] += pods
        largest[name] = max(largest[name], pods)
    exact = exact_shares(teams, demand, NODES * CARDS)
    one_gang = max(largest.values(), default=0)
    lacks = {team.name: exact[team.name] - used[team.name] for team in leaves}
    short = {name: float(lack) for name, lack in lacks.items() if lack > one_gang}
    left = sum(lack for lack in lacks.values() if lack > 0)
    above = {name: float(-lack) for name, lack in lacks.items() if -lack > max(left, one_gang)}
    assert witness.broken == [], f"seed {seed}"
    assert is_quiet, f"seed {seed}: gangs come and go although nothing happens"
    assert short == {}, f"seed {seed}: more than a gang of {one_gang} below the exact share of {exact}"
    assert above == {}, f"seed {seed}: more above the exact share of {exact} than others leave"


async def keep_pods(client: Any, live: Mapping[str, Gang]) -> None:
    """Makes pods that are missing, as the operator would."""
    while True:
        there = {pod.metadata.name for pod in (await client.list(Pod, NAMESPACE)).items}
        for made in list(live.values()):
            for number in range(made.groups[0].pods):
                body = member_json(made, made.groups[0], number, NAMESPACE)
                if body["metadata"]["name"] not in there:
                    with suppress(AlreadyExists):
                        await client.create(Pod, body)
        await asyncio.sleep(0.5)


async def remove(client: Any, live: dict[str, Gang], name: str) -> None:
    del live[name]
    await client.delete(PodGang, name, NAMESPACE)
    for pod in (await client.list(Pod, NAMESPACE)).items:
        if pod.metadata.name.startswith(f"{name}-"):
            await client.delete(Pod, pod.metadata.name, NAMESPACE, grace_period_s=0)


async def whole_gangs(client: Any) -> set[str]:
    return {pod.metadata.uid for pod in (await client.list(Pod, NAMESPACE)).items if pod.spec.node_name}


def are_fair(seeds: Iterable[int]) -> None:
    with without_logs():
        for seed in seeds:
            run(season(seed), seed=seed)


@pytest.mark.simulated
def test_final_shares_are_within_one_gang_of_the_exact_fair_split() -> None:
    are_fair(range(12))


@pytest.mark.soak
@pytest.mark.simulated
@pytest.mark.parametrize("part", range(20))
def test_shares_are_fair_in_five_hundred_seasons(part: int) -> None:
    are_fair(range(100 + part * 25, 125 + part * 25))
