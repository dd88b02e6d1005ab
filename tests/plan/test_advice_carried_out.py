"""Every advice is carried out on a copy of the cluster: it makes the gang fit, or it is marked as needing a new set."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from grove.answers.explain import explain_answer
from grove.answers.plan import plan_answer
from grove.answers.restart import asked_for, restart_answer
from grove.answers.scale import scale_answer
from grove.api import labels
from grove.api.core import Node
from grove.api.meta import Json, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.advice import Advice
from grove.diagnosis.gang_answer import Verdict
from grove.kube.errors import Invalid
from grove.plan.copying import copy_cluster
from grove.plan.world import World, binding, shaped
from grove.scheduler.model import answers as kinds
from grove.sim.loop import run
from grove.sim.patch import copy_json, json_patch

LEVELS = ("", "rack", "block")
SEEDS = range(24)


def random_set(rng: random.Random, name: str = "want") -> Json:
    """One that may or may not fit: a few cliques, a level here and there, sometimes a scaling group."""
    cliques = []
    for clique in ("a", "b")[: rng.randint(1, 2)]:
        gpus, pods = rng.choice([1, 2, 4, 8, 8]), rng.randint(1, 5)
        container = {"name": "c", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        spec = {"roleName": clique, "replicas": pods, "minAvailable": pods, "podSpec": {"containers": [container]}}
        cliques.append({"name": clique, "spec": spec})
    template: Json = {"cliques": cliques}
    if level := rng.choice(LEVELS):
        template["topologyConstraint"] = {"topologyName": "fake-nodes", "pack": {"required": level}}
    if rng.random() < 0.3:
        template["podCliqueScalingGroups"] = [
            {"name": "g", "cliqueNames": ["a"], "replicas": rng.randint(1, 2), "minAvailable": 1}
        ]
    return {"metadata": {"name": name}, "spec": {"replicas": 1, "template": template}}


async def filled(world: World, rng: random.Random) -> None:
    """Others run here, and no unit waits that would take the capacity first; some nodes are cordoned or tainted."""
    for number in range(rng.randint(0, 3)):
        await world.apply(random_set(rng, f"other{number}"))
        await asyncio.sleep(20)
        mine = [gang for gang in world.all(PodGang) if gang.metadata.labels[labels.PART_OF] == f"other{number}"]
        if not mine or not all(is_true(gang.status.conditions, "Ready") for gang in mine):
            await world.client.delete(PodCliqueSet, f"other{number}", "default")
            await asyncio.sleep(60)
    for name in rng.sample(world.cluster.nodes.names, rng.randint(0, 2)):
        if rng.random() < 0.5:
            await world.cluster.nodes.cordon(name)
        else:
            taint = {"key": "repair", "effect": "NoSchedule"}
            await world.client.patch(Node, name, {"spec": {"taints": [taint]}})


async def waiting(world: World, manifest: Json) -> list[Verdict]:
    await world.apply(manifest)
    await asyncio.sleep(20)
    found = await explain_answer(world.client, "default", "want", now=world.cluster.clock.now())
    return [one for one in found.data["gangs"] if one.state in ("waiting", "broken")]


async def follow(world: World, manifest: Json, advice: Advice) -> None:
    """Does what the advice says, by what its command does."""
    client, words = world.client, advice.command.split()
    if advice.patch:
        if advice.in_place:
            raw: Json = await client.get(PodCliqueSet.RESOURCE, "want", "default")
            changed = json_patch(copy_json(raw), advice.patch)
            await client.patch(PodCliqueSet, "want", {"spec": changed["spec"]}, "default")
            return
        raw = await client.get(PodCliqueSet.RESOURCE, "want", "default")
        changed = json_patch(copy_json(raw), advice.patch)
        with pytest.raises(Invalid):
            await client.patch(PodCliqueSet, "want", {"spec": changed["spec"]}, "default")
        await client.delete(PodCliqueSet, "want", "default")
        await world.until(lambda: world.find(PodCliqueSet, "want") is None)
        raw["metadata"] = {"name": "want", "namespace": "default"}
        raw.pop("status", None)
        await client.create(PodCliqueSet.RESOURCE, json_patch(raw, advice.patch))
        return
    match advice.kind:
        case kinds.UNCORDON:
            for name in words[2:]:
                await world.cluster.nodes.cordon(name, unschedulable=False)
        case kinds.UNTAINT:
            for name in [one for one in words[3:] if not one.endswith("-")]:
                await client.patch(Node, name, {"spec": {"taints": None, "unschedulable": False}})
        case kinds.ADD_NODES:
            like = advice.text.split(" like ")[1].split(" in ")[0]
            raw = await client.get(Node.RESOURCE, like)
            for number in range(int(advice.text.split()[1])):
                name = f"{like}-new-{number}"
                labels_ = {**raw["metadata"]["labels"], "kubernetes.io/hostname": name}
                node = {"metadata": {"name": name, "labels": labels_}, "spec": {}, "status": raw["status"]}
                await world.cluster.nodes.add([node])
        case kinds.END_OTHER:
            target, count = words[5], int(words[6])
            replica = int(words[8]) if len(words) > 8 else None
            await scale_answer(client, "default", target, count, replica)
        case kinds.RESTART:
            assert words[:5] == ["kubectl", "grove", "-n", "default", "restart"]
            await restart_answer(client, await asked_for(client, "default", words[5]))


def placed(world: World, gang: str) -> bool:
    found = world.find(PodGang, gang)
    return found is not None and is_true(found.status.conditions, "Scheduled")


def story(seed: int, number: int) -> tuple[int, str]:
    """Follows the `number`-th advice of the seed's first waiting gang: how many there are, and what came of it."""

    async def play() -> tuple[int, str]:
        rng = random.Random(seed)
        async with World(shaped(8), seed=1, objects=[(ClusterTopologyBinding, binding())]) as world:
            await filled(world, rng)
            manifest = random_set(rng)
            stuck = await waiting(world, manifest)
            if not stuck or not stuck[0].advice:
                return 0, ""
            [one, *_] = stuck
            if number >= len(one.advice):
                return len(one.advice), ""
            advice = one.advice[number]
            await follow(world, manifest, advice)
            if await world.until(lambda: placed(world, one.gang), 600.0):
                return len(one.advice), ""
            why: Any = await explain_answer(world.client, "default", "want", now=world.cluster.clock.now())
            return len(one.advice), f"seed {seed}, {one.gang}: {advice} did not help: {why.data['reason']}"

    return run(play(), seed=seed)


def test_every_piece_of_advice_helps_when_it_is_followed() -> None:
    """Seeds are printed with what failed; `story(seed, number)` plays one again."""
    wrong, followed = [], 0
    for seed in SEEDS:
        count, said = story(seed, 0)
        for number in range(count):
            if number:
                _, said = story(seed, number)
            followed += 1
            if said:
                wrong.append(said)
    assert wrong == []
    assert followed > 12


def test_a_plan_says_what_to_scale_down_as_explain_does() -> None:
    """A plan's copy of the cluster has the other gangs too. A gang is in the way, not a pod of its name."""

    def whole(name: str) -> Json:
        container = {"name": "c", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        spec = {"roleName": "a", "replicas": 2, "minAvailable": 2, "podSpec": {"containers": [container]}}
        return {
            "apiVersion": "grove.io/v1alpha1",
            "kind": "PodCliqueSet",
            "metadata": {"name": name},
            "spec": {"replicas": 1, "template": {"cliques": [{"name": "a", "spec": spec}]}},
        }

    async def play() -> tuple[str, ...]:
        async with World(shaped(2)) as world:
            await world.apply(whole("first"))
            await asyncio.sleep(20)
            copy = await copy_cluster(world.client, None)
            answer = await plan_answer(copy, "default", [whole("second")])
            [gang] = [one for one in answer.data.gangs if one.name == "second-0"]
            helps: tuple[str, ...] = gang.helps
            return helps

    assert "free capacity: scale default/first-0 away (2 pods)" in run(play())
