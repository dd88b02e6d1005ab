"""Gangs of pods that ask for cards in different ways: whole gangs get them exactly when some way of giving them exists.

Small fleets made by a seed, with the scheduler at work; a referee tries every node and every set of cards for each pod.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

import pytest
from tests.support.fleet import definitions, device
from tests.support.gangs import gang, gang_json, group, member_json
from tests.support.judging import judged

from grove.api.core import Node, Pod
from grove.api.koordinator import Device
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.live import Scheduler
from grove.sim.cluster import SimCluster, own_crds
from grove.sim.topology import Topology

CORE, RATIO, GPU = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "nvidia.com/gpu"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
KINDS: dict[str, tuple[int, int, bool]] = {
    "whole": (1, 100, False),
    "pair": (2, 100, False),
    "near": (2, 100, True),
    "half": (1, 50, False),
    "third": (1, 30, False),
}
"""Cards, core of each, and whether they must be at one place."""
Free = dict[tuple[str, int], int]


def requests_of(kind: str) -> dict[str, str]:
    cards, core, _ = KINDS[kind]
    return {GPU: str(cards)} if core == 100 else {CORE: str(core), RATIO: str(core)}


def ways(kind: str, free: Free) -> Iterator[list[tuple[str, int]]]:
    cards, core, near = KINDS[kind]
    for node in sorted({node for node, _ in free}):
        fits = [minor for (at, minor), left in sorted(free.items()) if at == node and left >= core]
        for chosen in combinations(fits, cards):
            if not near or len({minor // 2 for minor in chosen}) == 1:
                yield [(node, minor) for minor in chosen]


def can_be(kinds: tuple[str, ...], free: Free) -> bool:
    """The referee: whether all pods can have what they ask for at once."""
    if not kinds:
        return True
    core = KINDS[kinds[0]][1]
    for chosen in ways(kinds[0], free):
        if can_be(kinds[1:], {**free, **{card: free[card] - core for card in chosen}}):
            return True
    return False


async def verdicts(seed: int) -> list[str]:
    """Gangs that come one after the other, and what was wrong about what became of each."""
    rng = random.Random(seed)
    cards, wrong = rng.choice((2, 3, 4)), []
    async with SimCluster(
        nodes=Topology(nodes=rng.choice((1, 2)), gpus=cards), definitions=[*own_crds(), *definitions("Device")]
    ) as sim:
        client = sim.client()
        nodes = sorted(node.metadata.name for node in (await client.list(Node)).items)
        for node in nodes:
            await client.create(Device, device(node, cards, pcie=2))
        running = asyncio.ensure_future(
            Scheduler(sim.client(user="grove-scheduler"), clock=sim.clock, say=sentence).run()
        )
        for number in range(4):
            kinds = tuple(rng.choice(sorted(KINDS)) for _ in range(rng.randint(1, 3)))
            before = left_of(nodes, cards, (await client.list(Pod, "default")).items)
            made = gang(f"g{number}", *(group(f"w{i}", 1, gpus=0) for i in range(len(kinds))))
            await client.create(PodGang, gang_json(made, "default"))
            for part, kind in zip(made.groups, kinds, strict=True):
                body = member_json(made, part, 0, "default")
                asked = requests_of(kind)
                body["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
                if KINDS[kind][2]:
                    body["metadata"]["annotations"] = {HINT: '{"gpu":{"requiredTopologyScope":"PCIe"}}'}
                await client.create(Pod, body)
            await asyncio.sleep(5)
            pods = (await client.list(Pod, "default")).items
            placed = [pod for pod in pods if pod.metadata.name.startswith(f"g{number}-") and pod.is_bound]
            if min(left_of(nodes, cards, pods).values()) < 0:
                wrong.append(f"a card is given twice for {kinds}")
            if len(placed) not in (0, len(kinds)):
                wrong.append(f"a part of {kinds} is placed")
            if bool(placed) != can_be(kinds, before):
                wrong.append(f"{kinds} on {before}: {'placed' if placed else 'not placed'}")
            if not placed:
                await client.delete(PodGang, made.name, "default")
                for part in made.groups:
                    await client.delete(Pod, f"{made.name}-{part.name}-0", "default", grace_period_s=0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return wrong


def left_of(nodes: Iterable[str], cards: int, pods: Iterable[Any]) -> Free:
    free = {(node, minor): 100 for node in nodes for minor in range(cards)}
    for pod in pods:
        if pod.is_bound:
            notes: Mapping[str, str] = pod.metadata.annotations
            for one in json.loads(notes[ALLOCATED])["gpu"]:
                free[pod.spec.node_name, one["minor"]] -= int(one["resources"][CORE])
    return free


@pytest.mark.simulated
def test_a_gang_gets_its_cards_exactly_when_some_way_of_giving_them_exists() -> None:
    assert judged(verdicts, range(40)) == {}


@pytest.mark.soak
@pytest.mark.simulated
@pytest.mark.parametrize("part", range(10))
def test_the_same_of_a_thousand_fleets(part: int) -> None:
    assert judged(verdicts, range(100 + part * 100, 200 + part * 100)) == {}
