"""Gangs among reservations of every kind: whole gangs are placed exactly when some way of using them exists.

Small fleets made by a seed, with the scheduler at work; a referee tries every node and every reservation for each pod.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest
from tests.support.fleet import GPU, definitions, reservation
from tests.support.gangs import gang, gang_json, group, member_json
from tests.support.judging import judged

from grove.api.core import Node, Pod
from grove.api.koordinator import Reservation
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.live import Scheduler
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.topology import Topology

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
RED = {"team": "red"}
POOL = {"pool": "p"}


@dataclass(frozen=True)
class Room:
    """What one reservation has left, or a node outside of all of them."""

    node: str
    left: int
    once: bool = False
    restricted: bool = False
    used: bool = False


Fleet = dict[str, Room]
"""Reservations by name, and nodes by theirs."""


def can_be(pods: tuple[int, ...], fleet: Fleet, owners: bool, required: bool) -> bool:
    """The referee: whether all pods, by their cards, find capacity at once if they come in this order."""
    if not pods:
        return True
    wants, rest = pods[0], pods[1:]
    for name, room in fleet.items():
        if name == room.node:
            if not required and room.left >= wants:
                after = {**fleet, name: Room(room.node, room.left - wants)}
                if can_be(rest, after, owners, required):
                    return True
            continue
        if not owners or not room.left or (room.once and room.used):
            continue
        more = max(0, wants - room.left)
        node = fleet[room.node]
        if more > node.left or (more and room.restricted):
            continue
        taken = Room(room.node, 0 if room.once else max(0, room.left - wants), room.once, room.restricted, True)
        after = {**fleet, name: taken, room.node: Room(room.node, node.left - more)}
        if can_be(rest, after, owners, required):
            return True
    return False


WIDE = 10_000
"""Fleets of seeds from here on have larger reservations, of which pods leave remainders, and gangs of more pods."""


async def verdicts(seed: int) -> list[str]:
    rng = random.Random(seed)
    cards, most, largest, wrong = (8, 4, 5, []) if seed >= WIDE else (4, 3, 3, list[str]())
    async with SimCluster(
        nodes=Topology(nodes=rng.choice((1, 2)), gpus=cards), definitions=[*own_crds(), *definitions("Reservation")]
    ) as sim:
        client = sim.client()
        names = sorted(node.metadata.name for node in (await client.list(Node)).items)
        fleet = {name: Room(name, cards) for name in names}
        for number in range(rng.randint(1, 3)):
            node, gpus, once = rng.choice(names), rng.randint(1, cards // 2), rng.random() < 0.5
            if fleet[node].left < gpus:
                continue
            policy = rng.choice(("Aligned", "Restricted"))
            body = reservation(f"r{number}", gpus=gpus, ttl="0s", labels=POOL, allocateOnce=once, allocatePolicy=policy)
            await client.create(Reservation, body)
            status = {"phase": "Available", "nodeName": node, "allocatable": {GPU: str(gpus)}}
            await client.patch(Reservation, f"r{number}", {"status": status}, subresource="status")
            fleet[f"r{number}"] = Room(node, gpus, once, policy == "Restricted")
            fleet[node] = Room(node, fleet[node].left - gpus)
        running = asyncio.ensure_future(
            Scheduler(sim.client(user="grove-scheduler"), clock=sim.clock, say=sentence).run()
        )
        pods = tuple(rng.randint(1, largest) for _ in range(rng.randint(1, most)))
        owners, required = rng.random() < 0.7, rng.random() < 0.3
        made = gang("g", *(group(f"w{i}", 1, gpus=n) for i, n in enumerate(pods)), labels=RED if owners else {})
        await client.create(PodGang, gang_json(made, "default"))
        for part in made.groups:
            body = member_json(made, part, 0, "default")
            if required:
                body["metadata"]["annotations"] = {AFFINITY: json.dumps({"reservationSelector": POOL})}
            await client.create(Pod, body)
        await asyncio.sleep(10)
        found = [pod for pod in (await client.list(Pod, "default")).items if pod.is_bound]
        if len(found) not in (0, len(pods)):
            wrong.append(f"a part of {pods} is placed")
        # What one uses of a reservation the next has to do without, so every order counts.
        if bool(found) != any(can_be(order, fleet, owners, required) for order in sorted(set(permutations(pods)))):
            how = f"owners {owners}, required {required}, {'placed' if found else 'not placed'}"
            wrong.append(f"{pods} on {fleet}: {how}")
        if found and not is_valid(found, fleet):
            wrong.append(f"{pods} on {fleet}: more is used than there is")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return wrong


def is_valid(pods: Iterable[Any], fleet: Fleet) -> bool:
    """Whether nothing is used beyond what nodes and reservations had; the order of use does not show any more."""
    users: dict[str, list[int]] = {}
    left = {name: room.left for name, room in fleet.items() if name == room.node}
    for pod in pods:
        wants = int(pod.spec.containers[0].resources.requests[GPU])
        notes = pod.metadata.annotations
        if ALLOCATED in notes:
            name = json.loads(notes[ALLOCATED])["name"]
            users.setdefault(name, []).append(wants)
            if fleet[name].node != pod.spec.node_name:
                return False
        else:
            left[pod.spec.node_name] -= wants
    for name, wanted in users.items():
        room = fleet[name]
        more = max(0, sum(wanted) - room.left)
        left[room.node] -= more
        if (more and room.restricted) or (room.once and len(wanted) > 1):
            return False
    return min(left.values()) >= 0


@pytest.mark.simulated
def test_a_gang_is_placed_exactly_when_some_way_of_using_reservations_exists() -> None:
    assert judged(verdicts, range(60)) == {}
    assert judged(verdicts, range(WIDE, WIDE + 30)) == {}


@pytest.mark.simulated
@pytest.mark.parametrize("seed", [408, 659])
def test_whichever_pod_has_to_stay_away_from_a_reservation_is_found(seed: int) -> None:
    assert judged(verdicts, [seed]) == {}


@pytest.mark.soak
@pytest.mark.simulated
@pytest.mark.parametrize("part", range(30))
def test_the_same_of_three_thousand_fleets(part: int) -> None:
    first = 100 + part * 100 if part < 15 else WIDE + part * 100
    assert judged(verdicts, range(first, first + 100)) == {}
