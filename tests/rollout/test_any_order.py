"""After any sequence of edits, pauses, undos, scalings and faults a set is as if it had just been applied."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, lose, pause, take_back, updated, versions

from grove.answers.answer import Unanswered
from grove.answers.rollout import undo_answer
from grove.api import labels as key
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import NotFound
from grove.operator.shared.children import template_hashes
from grove.operator.shared.layout import unit_of

pytestmark = pytest.mark.simulated

STEPS = 14

OPERATING = Operating(start_s=1.0)


def example(rng: random.Random) -> Json:
    kind = rng.choice(("RollingRecreate", "Coherent"))
    surge = rng.choice((0, 1))
    config = group("g", "b", "c", replicas=2, min_available=1, rollingUpdate={"maxSurge": surge})
    strategy = {"type": kind, "rollingUpdate": {"partition": rng.choice((0, 1))}}
    manifest = pcs("wl", clique("a", 3, min_available=1), clique("b"), clique("c"), groups=[config], replicas=2)
    manifest["spec"]["updateStrategy"] = strategy
    manifest["spec"]["template"]["cliques"][0]["rollingUpdate"] = {"maxSurge": surge}
    return manifest


class Steps:
    """What people, autoscalers and faults do to the set."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng, self.done = world, rng, list[str]()

    async def next(self) -> None:
        known = (self.edit, self.edit, self.pause, self.undo, self.scale, self.scale, self.partition, self.lose)
        step = self.rng.choice((*known, self.delete, self.restart, self.wait))
        self.done.append(step.__name__)
        try:
            await step()
        except NotFound:
            self.done[-1] += " (the object is being deleted)"

    async def edit(self) -> None:
        parts = self.rng.choice((("a",), ("a", "b"), ("b", "c"), ("a", "b", "c")))
        await change(self.world, "wl", *parts, to=self.rng.choice(("two", "three")))

    async def pause(self) -> None:
        await pause(self.world, self.rng.random() < 0.5)

    async def undo(self) -> None:
        try:
            await undo_answer(self.world.client, self.world.namespace, "wl")
        except Unanswered:
            self.done[-1] += " (there is no earlier template)"

    async def scale(self) -> None:
        kind: Any
        kind, name, counts = self.rng.choice(
            (
                (PodCliqueSet, "wl", (1, 2, 3)),
                (PodClique, "wl-0-a", (2, 3, 4)),
                (PodCliqueScalingGroup, "wl-0-g", (1, 2, 3)),
            )
        )
        await self.world.scale(kind, name, self.rng.choice(counts))

    async def partition(self) -> None:
        await self.patch({"updateStrategy": {"rollingUpdate": {"partition": self.rng.choice((0, 1, 2))}}})

    async def lose(self) -> None:
        hosts = sorted(await versions(self.world))
        if hosts:
            await lose(self.world, self.rng.choice(hosts))

    async def delete(self) -> None:
        name = self.rng.choice([one.metadata.name for one in await self.cliques()])
        await self.world.delete(PodClique, name)

    async def restart(self) -> None:
        await self.world.restart()

    async def wait(self) -> None:
        await asyncio.sleep(self.rng.choice((0.5, 3.0, 20.0)))

    async def cliques(self) -> list[PodClique]:
        found = (await self.world.client.list(PodClique, self.world.namespace)).items
        return sorted(found, key=lambda one: one.metadata.name)

    async def patch(self, spec: Json) -> None:
        await self.world.client.patch(PodCliqueSet, "wl", {"spec": spec}, self.world.namespace)


async def expected(world: World) -> dict[str, tuple[str, str]]:
    """Host name to template hash and revision, as a set of these templates and this scale has them."""
    found = await world.get(PodCliqueSet, "wl")
    hashes, want = template_hashes(found), dict[str, tuple[str, str]]()
    for one in (await world.client.list(PodClique, world.namespace)).items:
        unit = unit_of(found, one)
        assert unit is not None, one.metadata.name
        revision = found.status.revisions.get(unit.part) or found.status.current_generation_hash
        for index in range(one.spec.replicas):
            want[f"{one.metadata.name}-{index}"] = hashes[unit.template.name], revision
    groups = {one.metadata.name: one for one in (await world.client.list(PodCliqueScalingGroup, world.namespace)).items}
    names = {f"wl-{replica}-a" for replica in range(found.spec.replicas)}
    for replica in range(found.spec.replicas):
        for index in range(groups[f"wl-{replica}-g"].spec.replicas):
            names |= {f"wl-{replica}-g-{index}-b", f"wl-{replica}-g-{index}-c"}
    assert {host.rsplit("-", 1)[0] for host in want} == names
    return want


SEEDS = (0, 1, 2, 13, 27, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 200)))


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_end_is_that_of_a_fresh_apply(world: World, seed: int) -> None:
    rng = random.Random(seed)
    await world.apply(example(rng))
    await world.available("wl")
    await world.quiet(for_s=3)
    steps = Steps(world, rng)
    for _ in range(STEPS):
        await steps.next()

    await pause(world, False)
    await steps.patch({"updateStrategy": {"rollingUpdate": {"partition": 0}}})
    await world.quiet()
    if rng.random() < 0.5:
        await change(world, "wl", "a", "b", "c", to="last")
    else:
        await take_back_all(world)
    await updated(world, "wl", timeout_s=600)
    await world.quiet(for_s=5)

    found = {
        pod.spec.hostname: (pod.metadata.labels[key.POD_TEMPLATE_HASH], pod.metadata.labels[key.REVISION])
        for pod in await world.pods()
    }
    assert found == await expected(world), steps.done
    assert len(set((await versions(world)).values())) == 1, steps.done
    before = world.writes()
    await world.quiet(for_s=30)
    assert world.writes() == before, "a set at rest costs nothing"


async def take_back_all(world: World) -> None:
    for name in ("a", "b", "c"):
        await change(world, "wl", name)  # so that there is something to take back
    await take_back(world, "wl", "a", "b", "c")
