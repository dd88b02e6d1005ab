"""What `plan` promises happens: random clusters with random tenants, a random new set, planned and then applied."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
from tests.support.manifests import gpu_clique

from grove.answers.plan import plan_answer
from grove.api import conditions as words
from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.meta import Json, find_condition
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.plan.copying import Copy, copy_cluster
from grove.plan.whatif import Plan
from grove.plan.world import World, binding
from grove.sim.loop import run
from grove.sim.topology import Topology

CASES = 200
BATCH = 10
QUICK = 3
"""Batches in `make test`; the others run in `make soak`."""


def random_clique(rng: random.Random, name: str) -> Json:
    gpus, replicas = rng.choice([1, 2, 4, 8]), rng.randint(1, 5)
    template = gpu_clique(name, replicas, gpus)
    template["spec"]["minAvailable"] = rng.randint(1, replicas)
    return template


def system(rng: random.Random, name: str) -> Json:
    parts = [random_clique(rng, f"c{i}") for i in range(rng.randint(1, 3))]
    template: Json = {"cliques": parts}
    if rng.random() < 0.7:
        pack = {"required": rng.choice(["zone", "block", "rack", "host"])}
        template["topologyConstraint"] = {"topologyName": "fake-nodes", "pack": pack}
    if len(parts) > 1 and rng.random() < 0.5:
        group = {"name": "g", "cliqueNames": [parts[-1]["name"]], "replicas": rng.randint(1, 3), "minAvailable": 1}
        template["podCliqueScalingGroups"] = [group]
    return {"metadata": {"name": name}, "spec": {"replicas": rng.randint(1, 2), "template": template}}


Answers = dict[str, tuple[bool, frozenset[tuple[str, int]]]]


def answers(world: World, name: str) -> Answers:
    """By gang: whether it is placed, and how many of its pods stand on which node."""
    found: Answers = {}
    for gang in world.all(PodGang):
        if gang.metadata.labels.get(labels.PART_OF) == name:
            said = find_condition(gang.status.conditions, words.SCHEDULED)
            nodes = [pod.spec.node_name for pod in world.pods_of(gang.metadata.name) if pod.is_bound]
            counted = frozenset((node, nodes.count(node)) for node in nodes)
            found[gang.metadata.name] = (said is not None and said.status == words.TRUE, counted)
    return found


@asynccontextmanager
async def cluster(seed: int) -> AsyncIterator[tuple[World, Json]]:
    """A cluster with tenants at some moment of their lives, and the set that comes next; the same for a seed."""
    rng = random.Random(seed)
    shape = Topology(rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 4), gpus=8)
    async with World(shape.objects(), seed=seed, objects=[(ClusterTopologyBinding, binding())]) as world:
        for number in range(rng.randint(0, 3)):
            await world.apply(system(rng, f"tenant{number}"))
            await asyncio.sleep(rng.choice([0.0, 15.0]))
        # Long enough for pods above a minimum to have stopped standing back, or for waiting gangs to have holds.
        await asyncio.sleep(rng.choice([60.0, 300.0]))
        if rng.random() < 0.3:
            await world.cluster.nodes.cordon(rng.choice(world.all(Node)).metadata.name)
            await asyncio.sleep(1.0)
        yield world, system(rng, "new")


async def copied(seed: int) -> tuple[Copy, Json, datetime]:
    async with cluster(seed) as (world, manifest):
        return await copy_cluster(world.client, None), manifest, world.cluster.clock.now()


async def planned(copy: Copy, manifest: Json, now: datetime) -> Plan:
    plan: Plan = (await plan_answer(copy, "default", [manifest], now=now)).data
    return plan


async def done(seed: int, manifest: Json) -> tuple[Answers, bool]:
    """The result for the set on the same cluster, and whether another gang was evicted for it."""
    async with cluster(seed) as (world, _):
        before = {pod.metadata.uid for pod in world.all(Pod) if pod.is_bound}
        await world.apply(manifest)
        await asyncio.sleep(130.0)
        kept = {pod.metadata.uid for pod in world.all(Pod) if not pod.metadata.is_deleting}
        return answers(world, "new"), bool(before - kept)


def kinds(found: Answers) -> tuple[Answers, list[str]]:
    """Base gangs by name, scaled gangs by their result.

    Scaled gangs are alike, and no order among them is promised when they are complete within a millisecond.
    """
    base = {name: what for name, what in found.items() if name.count("-") == 1}
    return base, sorted(f"{placed} {sorted(nodes)}" for name, (placed, nodes) in found.items() if name not in base)


def difference(seed: int) -> str:
    """Plans and then does; what was different, or nothing."""
    copy, manifest, now = run(copied(seed), seed=seed)
    plan = run(planned(copy, manifest, now), seed=seed)
    promised = {
        gang.name: (gang.answer == "fits", frozenset((one.node, nodes.count(one.node)) for one in gang.pods))
        for gang in plan.gangs
        for nodes in [[one.node for one in gang.pods]]
    }
    came, somebody_left = run(done(seed, manifest), seed=seed)
    if kinds(promised) != kinds(came) or bool(plan.preempted) != somebody_left:
        return f"seed {seed}: promised {promised}, evicting {plan.preempted}; came {came}, evicted {somebody_left}"
    return ""


BATCHES = [pytest.param(n, marks=[] if n < QUICK else pytest.mark.soak) for n in range(CASES // BATCH)]


@pytest.mark.parametrize("batch", BATCHES)
def test_what_plan_promises_happens(batch: int) -> None:
    different = [found for seed in range(batch * BATCH, (batch + 1) * BATCH) if (found := difference(seed))]
    assert different == []
