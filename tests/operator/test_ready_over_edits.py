"""A set says Ready of its generation only while that is true, in any order of edits, scalings and lost pods."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json, find_condition, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

OPERATING = Operating(start_s=3.0)
"""Pods become ready later than the operator writes its next status."""

KINDS: tuple[type[Any], ...] = (PodCliqueSet, PodCliqueScalingGroup, PodClique)
STRATEGIES: tuple[Json | None, ...] = (
    None,
    {"type": "RollingRecreate", "inPlace": "IfPossible"},
    {"type": "Coherent"},
)
SETTLED_S = 3600.0
PAUSES_S = (0.0, 0.01, 0.1, 0.5, 1, 2, 5, 20, 60)


def says_ready(found: Any) -> bool:
    """True if `kubectl wait` takes the object for ready. kstatus also compares the generation of the status."""
    ready = find_condition(found.status.conditions, "Ready")
    return ready is not None and (ready.status, ready.observed_generation) == ("True", found.metadata.generation)


async def untruths(world: World, pcs: PodCliqueSet) -> list[str]:
    """Why a set is not ready at its generation, from its pods."""
    pods: dict[str, list[Pod]] = {}
    for pod in await world.pods():
        pods.setdefault(pod.metadata.labels[key.POD_CLIQUE], []).append(pod)
    cliques = {found.metadata.name: found for found in await world.list(PodClique)}
    groups = {found.metadata.name: found for found in await world.list(PodCliqueScalingGroup)}
    images = {found.name: found.spec.pod_spec["containers"][0]["image"] for found in pcs.spec.template.cliques}

    def wrong(name: str, template: str) -> Iterator[str]:
        if name not in cliques:
            yield f"{name} is missing"
            return
        spec, there = cliques[name].spec, pods.get(name, [])
        if sum(pod.is_ready for pod in there) < min(spec.replicas, spec.minimum):
            yield f"{name} has too few ready pods"
        if any(pod.spec.containers[0].image != images[template] for pod in there):
            yield f"{name} has an old pod"

    found = list[str]()
    for replica in pcs.indexes:
        for template in ("front", "back"):
            found += wrong(f"wl-{replica}-{template}", template)
        instances = groups.get(f"wl-{replica}-g")
        if instances is None:
            found.append(f"wl-{replica}-g is missing")
            continue
        broken = [list(wrong(f"wl-{replica}-g-{index}-work", "work")) for index in instances.indexes]
        if sum(not faults for faults in broken) < min(instances.spec.replicas, instances.spec.min_available):
            found += [fault for faults in broken for fault in faults]
    return found


class Edits:
    """Random edits of one set, as people, autoscalers and nodes make them."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng, self._version = world, rng, 1

    def cliques(self) -> list[Json]:
        found = [clique("front", 2, min_available=1), clique("work", 2), clique("back", 3, min_available=2)]
        for part in found:
            part["spec"]["podSpec"]["containers"][0]["image"] = f"engine:{self._version}"
        return found

    async def make_one(self) -> str:
        edits: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self.update, self.undo, self.update_one_clique),
            *(self.scale_set, self.scale_clique, self.scale_group),
            *(self.lose_a_pod, self.pause, self.resume),
        )
        edit = self._rng.choice(edits)
        await edit()
        return edit.__name__

    async def _patch(self, patch: Json) -> None:
        await self._world.client.patch(PodCliqueSet, "wl", patch, self._world.namespace)

    async def update(self) -> None:
        self._version += 1
        await self._patch({"spec": {"template": {"cliques": self.cliques()}}})

    async def undo(self) -> None:
        self._version = max(1, self._version - 1)
        await self._patch({"spec": {"template": {"cliques": self.cliques()}}})

    async def update_one_clique(self) -> None:
        cliques = self.cliques()
        chosen = self._rng.choice(cliques)
        chosen["spec"]["podSpec"]["containers"][0]["image"] = f"engine:hotfix-{self._rng.randrange(100)}"
        await self._patch({"spec": {"template": {"cliques": cliques}}})

    async def scale_set(self) -> None:
        await self._world.scale(PodCliqueSet, "wl", self._rng.choice([1, 2, 3]))

    async def scale_clique(self) -> None:
        standalone = [name for name in await self._world.names(PodClique) if "-g-" not in name]
        if standalone:
            await self._world.scale(PodClique, self._rng.choice(standalone), self._rng.choice([1, 2, 3, 4]))

    async def scale_group(self) -> None:
        if groups := await self._world.names(PodCliqueScalingGroup):
            await self._world.scale(PodCliqueScalingGroup, self._rng.choice(groups), self._rng.choice([0, 1, 2, 3]))

    async def lose_a_pod(self) -> None:
        if pods := await self._world.pods():
            await self._world.delete(Pod, self._rng.choice(pods).metadata.name)

    async def pause(self) -> None:
        await self._patch({"metadata": {"annotations": {key.ROLLOUT_PAUSED: "true"}}})

    async def resume(self) -> None:
        await self._patch({"metadata": {"annotations": {key.ROLLOUT_PAUSED: None}}})


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 60))]


@pytest.mark.simulated
@pytest.mark.parametrize("seed", SEEDS)
async def test_ready_is_never_early(world: World, seed: int) -> None:
    edits, early, done = Edits(world, random.Random(seed)), list[str](), list[str]()
    rng, patch = random.Random(seed), world.operator_client.patch

    async def judged(kind: Any, name: str, body: Json, *args: Any, **more: Any) -> Any:
        answer = await patch(kind, name, body, *args, **more)
        if kind in KINDS and more.get("subresource") == "status":
            found = await world.get(kind, name)
            true = [type_ for type_ in ("Ready", "Reconciling", "Stalled") if is_true(found.status.conditions, type_)]
            if len(true) != 1:
                early.append(f"after {done[-1:]} {name} says {true}")
            if kind is PodCliqueSet and says_ready(found):
                early.extend(f"Ready after {done[-1:]}, but {fault}" for fault in await untruths(world, found))
        return answer

    world.operator_client.patch = judged
    drains = {"annotations": {key.DRAIN_SECONDS: "15"}} if seed % 2 else {}
    groups = [group("g", "work", replicas=2)]
    strategy = STRATEGIES[seed % len(STRATEGIES)]
    await world.apply(pcs("wl", *edits.cliques(), replicas=2, groups=groups, strategy=strategy, metadata=drains))
    for _ in range(10):
        await asyncio.sleep(rng.choice(PAUSES_S))
        done.append(await edits.make_one())
    await edits.resume()

    async def is_ready() -> bool:
        return says_ready(await world.get(PodCliqueSet, "wl"))

    await world.eventually(is_ready, SETTLED_S)
    await asyncio.sleep(100)
    assert await is_ready()
    assert not early, "\n".join([*early, str(done)])
