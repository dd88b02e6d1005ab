"""What queues cost a decision: 200 queues in a tree of three levels, 1,000 sets that run, 10,000 nodes.

CPU time of one core, medians; with and without queues in the same process, so that the difference is theirs. Then what
it costs to call back 100 GPUs.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from grove.api.koordinator import QUOTA
from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.evict.preempt import Victims, preempt
from grove.scheduler.evict.victims import Running
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.seams import Applicant
from grove.scheduler.policy.queues import Queue, QueueTree
from grove.scheduler.policy.quota import FixedUse, Quota
from grove.scheduler.policy.quota_objects import ELASTIC, QueueObjects
from grove.scheduler.solve.place import place
from tests.bench.figures import Figure
from tests.bench.scheduler_bench import GPU, TOPOLOGY, nodes, shape

NODES, SETS, TEAMS, DEPARTMENTS = 10_000, 1_000, 180, 19
ROUNDS = 15


def queues() -> QueueObjects:
    """One root, 19 departments, 180 teams."""
    found = [Queue(f"{ELASTIC}/root", "", {GPU: 80_000}, {GPU: 80_000})]
    found += (
        Queue(f"{ELASTIC}/d{n}", f"{ELASTIC}/root", {GPU: 4_000}, {GPU: 80_000}, {GPU: 1}) for n in range(DEPARTMENTS)
    )
    found += (
        Queue(f"{ELASTIC}/t{n}", f"{ELASTIC}/d{n % DEPARTMENTS}", {GPU: 400}, {GPU: 8_000}, {GPU: 1})
        for n in range(TEAMS)
    )
    return QueueObjects(QueueTree(found), kinds=frozenset({ELASTIC}))


def pod(name: str, team: int, gang: str, gpus: int = 8, node: str = "") -> PodFacts:
    return PodFacts(
        name, "bench", name, shape(gpus), {QUOTA: f"t{team}"}, node=node, gang=gang, group="w", created_s=float(team)
    )


def filled(fleet: Snapshot, sets: int, size: int) -> list[Running]:
    """So many gangs of whole nodes, spread over the teams."""
    found, at = [], 0
    names = sorted(fleet.nodes.row_of)
    for number in range(sets):
        name = f"bench/set-{number}"
        members = [pod(f"set-{number}-{i}", number % TEAMS, name, node=names[at + i]) for i in range(size)]
        at += size
        for one in members:
            fleet.add_pod(one)
        found.append(Running(name, 0, tuple(members), {"w": size}))
    return found


def wanted(name: str, team: int, pods: int) -> Gang:
    members = tuple(pod(f"{name}-{i}", team, f"bench/{name}") for i in range(pods))
    return Gang(f"bench/{name}", Branch(name, (PodGroup("w", pods, members),)), 0)


def cpu_ms(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times)


def run(results: dict[str, Figure]) -> None:
    fleet = cluster(nodes(NODES), topologies=TOPOLOGY)
    filled(fleet, SETS, 8)
    gang = wanted("new", 3, 12)
    assert isinstance(place(fleet, gang), Placement)
    without = cpu_ms(lambda: place(fleet, gang))
    quota = Quota(queues())
    quota.ask({f"{ELASTIC}/t{n}": {GPU: 16} for n in range(TEAMS)})
    fleet.use(fleet.seams.with_policies([quota, FixedUse(quota), *fleet.seams.policies]))
    who = Applicant("bench/new", 0, {QUOTA: "t3"})
    assert isinstance(place(fleet, gang), Placement)

    def decision() -> None:
        fleet.usage.state = object()  # somebody came or went since the last one
        fleet.seams.rank(fleet, who)
        place(fleet, gang)

    quota.shares(fleet)
    with_queues = cpu_ms(decision)
    results["decision with 200 queues, 1,000 sets, 10,000 nodes: what queues add"] = Figure(
        with_queues - without, "ms", "<= 2"
    )
    results["the same decision without queues"] = Figure(without, "ms")

    def turn() -> None:
        quota.ask({f"{ELASTIC}/t{n}": {GPU: 16} for n in range(TEAMS)})
        quota.shares(fleet)

    results["fair shares of 200 queues, once a turn"] = Figure(cpu_ms(turn), "ms")
    results["calling back 100 GPUs from 1,000 sets"] = Figure(_reclaim(), "ms", "<= 300")


def _reclaim() -> float:
    fleet = cluster(nodes(SETS * 2), topologies=TOPOLOGY)
    objects = QueueObjects(
        QueueTree([
            Queue(f"{ELASTIC}/root", "", {GPU: 16_000}, {GPU: 16_000}),
            Queue(f"{ELASTIC}/t0", f"{ELASTIC}/root", {GPU: 8_000}, {GPU: 16_000}, {GPU: 1}),
            Queue(f"{ELASTIC}/t1", f"{ELASTIC}/root", {GPU: 8_000}, {GPU: 16_000}, {GPU: 1}),
        ]),
        kinds=frozenset({ELASTIC}),
    )  # fmt: skip
    quota = Quota(objects)
    fleet.use(fleet.seams.with_policies([quota, FixedUse(quota), *fleet.seams.policies]))
    names = sorted(fleet.nodes.row_of)
    running = []
    for number in range(SETS):
        gang = f"bench/set-{number}"
        members = [pod(f"set-{number}-{i}", 0, gang, node=names[2 * number + i]) for i in range(2)]
        for one in members:
            fleet.add_pod(msgspec.structs.replace(one, created_s=float(number)))
        running.append(Running(gang, 0, tuple(members), {"w": 2}))
    owner = wanted("owner", 1, 13)
    quota.ask({f"{ELASTIC}/t1": {GPU: 104}})
    quota.shares(fleet)
    found = preempt(fleet, owner, running)
    assert isinstance(found, Victims), found
    assert found.reclaimed
    return cpu_ms(lambda: preempt(fleet, owner, running))
