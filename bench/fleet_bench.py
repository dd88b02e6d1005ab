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
from tests.support.fleet import device

from bench.figures import Figure
from bench.scheduler_bench import GPU, TOPOLOGY, nodes, shape
from grove.api.koordinator import QUOTA, Device
from grove.scheduler.cluster.snapshot import Snapshot, cluster
from grove.scheduler.devices.gpu_cards import FREE_CORE, PREFIX, Allotment, CardRequest, CardVacancy, UsedCards
from grove.scheduler.devices.koordinator_objects import CORE, read_devices
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.running import Running
from grove.scheduler.evict.victims import Vacancies
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import HOSTNAME, PODS, NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.seams import Applicant
from grove.scheduler.policy.queue_tree import QueueTree, QuotaQueue
from grove.scheduler.policy.quota_objects import ELASTIC, QueueObjects
from grove.scheduler.policy.quota_policy import FixedUse, Quota
from grove.scheduler.solve.place import place

NODES, SETS, TEAMS, DEPARTMENTS = 10_000, 1_000, 180, 19
ROUNDS = 15


def queues() -> QueueObjects:
    """One root, 19 departments, 180 teams."""
    queues = [QuotaQueue(f"{ELASTIC}/root", "", {GPU: 80_000}, {GPU: 80_000})]
    queues += (
        QuotaQueue(f"{ELASTIC}/d{n}", f"{ELASTIC}/root", {GPU: 4_000}, {GPU: 80_000}, {GPU: 1})
        for n in range(DEPARTMENTS)
    )
    queues += (
        QuotaQueue(f"{ELASTIC}/t{n}", f"{ELASTIC}/d{n % DEPARTMENTS}", {GPU: 400}, {GPU: 8_000}, {GPU: 1})
        for n in range(TEAMS)
    )
    return QueueObjects(QueueTree(queues), kinds=frozenset({ELASTIC}))


def pod(name: str, team: int, gang: str, gpus: int = 8, node: str = "") -> PodFacts:
    return PodFacts(
        name, "bench", name, shape(gpus), {QUOTA: f"t{team}"}, node=node, gang=gang, group="w", created_s=float(team)
    )


def filled(fleet: Snapshot, sets: int, size: int, teams: int = TEAMS) -> list[Running]:
    """`count` gangs of whole nodes, spread over the teams."""
    running, at = [], 0
    names = sorted(fleet.nodes.row_of)
    for number in range(sets):
        name = f"bench/set-{number}"
        members = [pod(f"set-{number}-{i}", number % teams, name, node=names[at + i]) for i in range(size)]
        at += size
        for member in members:
            fleet.add_pod(member)
        running.append(Running(name, 0, tuple(members), {"w": size}))
    return running


def wanted(name: str, team: int, pods: int, priority: int = 0) -> Gang:
    members = tuple(pod(f"{name}-{i}", team, f"bench/{name}") for i in range(pods))
    return Gang(f"bench/{name}", Branch(name, (PodGroup("w", pods, members),)), priority)


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
        fleet.usage.state = object()  # a pod came or went since the last one
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
    results["calling back 100 GPUs from 1,000 sets, 200 queues, 10,000 nodes"] = Figure(_reclaim(), "ms", "<= 300")
    results["victims of higher priority on the same fleet: 100 GPUs"] = Figure(_preempted(), "ms", "<= 300")
    results["victims for 100 whole cards among 16,000 halves of cards, 1,000 nodes"] = Figure(_halves(), "ms", "<= 300")


def _full() -> tuple[Snapshot, list[Running], Quota]:
    """Every node is taken by sets of ten whole ones; one team has nothing, the others more than they are guaranteed."""
    fleet = cluster(nodes(NODES), topologies=TOPOLOGY)
    quota = Quota(queues())
    fleet.use(fleet.seams.with_policies([quota, FixedUse(quota), *fleet.seams.policies]))
    return fleet, filled(fleet, SETS, NODES // SETS, teams=TEAMS - 1), quota


def _reclaim() -> float:
    fleet, running, quota = _full()
    owner = wanted("owner", TEAMS - 1, 13)
    quota.ask({f"{ELASTIC}/t{TEAMS - 1}": {GPU: 104}})
    quota.shares(fleet)
    victims = preempt(fleet, owner, running)
    assert isinstance(victims, Victims), victims
    assert victims.reclaimed
    return cpu_ms(lambda: preempt(fleet, owner, running))


def _preempted() -> float:
    fleet, running, _ = _full()
    urgent = wanted("urgent", 0, 13, priority=1000)
    victims = preempt(fleet, urgent, running)
    assert isinstance(victims, Victims), victims
    assert not victims.reclaimed
    return cpu_ms(lambda: preempt(fleet, urgent, running))


def _halves() -> float:
    """Two halves of a card have to go for a whole one: what comes free is worked out card by card."""
    whole_card = CardRequest(1)
    name = f"{PREFIX}{whole_card.words}"
    devices = read_devices(msgspec.convert(device("any", 8), Device))
    half, card = Shape(((CORE, 50), (PODS, 1))), Shape(((CORE, 100), (FREE_CORE, 100), (name, 1), (PODS, 1)))
    names = [f"node-{number:04}" for number in range(1_000)]
    has = {CORE: 800, PODS: 64, name: 0, FREE_CORE: 0}
    fleet = cluster(NodeFacts(node, has, {HOSTNAME: node}) for node in names)
    used: dict[str, UsedCards] = {}
    running = []
    for node in names:
        pods = [PodFacts(f"{node}-{i}", "bench", f"{node}-{i}", half, node=node) for i in range(16)]
        for member in pods:
            fleet.add_pod(member)
            running.append(Running(member.name, 0, (member,), {}))
        memory = devices.cards[0].size // 2
        given = {member.uid: Allotment(((i // 2, 50, memory),)) for i, member in enumerate(pods)}
        used[node] = UsedCards(devices, devices.kind, given)
    members = tuple(PodFacts(f"whole-{i}", "bench", f"whole-{i}", card, group="w") for i in range(100))
    gang = Gang("bench/whole", Branch("whole", (PodGroup("w", 100, members),)), 1000)

    def victims() -> Victims | NoVictims:
        return preempt(fleet, gang, running, vacancies=Vacancies([CardVacancy(used, {name: whole_card})]))

    answer = victims()
    assert isinstance(answer, Victims), answer
    assert len(answer.pods) == 200
    return cpu_ms(victims)
