"""After any sequence of edits, pauses, undos, scalings and faults a set is as if it had just been applied."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, lose, pause, take_back, updated, versions

from grove.answers.answer import Unanswered
from grove.answers.rollout import restart_answer, undo_answer
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
LONGEST_DRAIN_S = 60
TIMERS_S = 300.0
"""After this time nothing waits for a timer any more: lost nodes, surge units, or statuses that may be late."""
BUDGETS = (
    {"maxSurge": 0},
    {"maxSurge": 1},
    {"maxSurge": 2},
    {"maxUnavailable": 2},
    {"maxUnavailable": 1, "maxSurge": 1},
)
Step = Callable[[], Awaitable[None]]
Found = dict[str, tuple[str, str]]
"""Host name to template hash and revision."""

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

    def known(self) -> list[Step]:
        edits = [self.edit, self.edit, self.pause, self.undo, self.scale, self.scale, self.partition]
        return [*edits, self.lose, self.delete, self.restart, self.wait]

    async def next(self) -> None:
        step = self.rng.choice(self.known())
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


S = TypeVar("S", bound=Steps)


class MoreSteps(Steps):
    """The same, and people change strategy and budgets and restart everything, pods drain or never start, and the
    cluster has no capacity.
    """

    def known(self) -> list[Step]:
        more = (self.image, self.strategy, self.budget, self.group_partition, self.places, self.remove_node, self.hold)
        return [*super().known(), self.wait, *more, self.drain, self.restart_all]

    async def image(self) -> None:
        found, to = await self.template(), self.rng.choice(("two", "three"))
        for clique_ in self.rng.sample(found["cliques"], self.rng.randint(1, 3)):
            clique_["spec"]["podSpec"]["containers"][0]["image"] = f"registry.k8s.io/pause:{to}"
        await self.patch({"template": {"cliques": found["cliques"]}})

    async def strategy(self) -> None:
        kind = self.rng.choice(("RollingRecreate", "Coherent", "OnDelete"))
        in_place, most, first = (self.rng.choice(of) for of in (("Never", "IfPossible"), (1, 2), (0, 0, 1)))
        own = {"inPlace": in_place, "rollingUpdate": {"maxUnavailable": most, "partition": first}}
        self.done[-1] += f" {kind}"
        await self.patch({"updateStrategy": {"type": kind, **(dict.fromkeys(own) if kind == "OnDelete" else own)}})

    async def budget(self) -> None:
        found, own = await self.template(), self.rng.choice(BUDGETS)
        found["cliques"][0]["rollingUpdate"] = own
        if self.rng.random() < 0.5:
            found["podCliqueScalingGroups"][0]["rollingUpdate"] = own
        self.done[-1] += f" {own}"
        await self.patch({"template": found})

    async def group_partition(self) -> None:
        await self.part_group(self.rng.choice((0, 1, 2)))

    async def part_group(self, units: int) -> None:
        found = await self.template()
        (group_,) = found["podCliqueScalingGroups"]
        group_["rollingUpdate"] = {**(group_.get("rollingUpdate") or {}), "partition": units}
        await self.patch({"template": found})

    async def drain(self) -> None:
        """From now on pods drain for this time before the operator removes them."""
        seconds = self.rng.choice((None, "5", str(LONGEST_DRAIN_S)))
        self.done[-1] += f" {seconds}"
        patch = {"metadata": {"annotations": {key.DRAIN_SECONDS: seconds}}}
        await self.world.client.patch(PodCliqueSet, "wl", patch, self.world.namespace)

    async def restart_all(self) -> None:
        await restart_answer(self.world.client, self.world.namespace, "wl", self.world.cluster.clock.now())

    async def places(self) -> None:
        """From now on no pod has a place beside those that are there, one more has, or all have."""
        there = len(await self.world.pods())
        count = self.rng.choice((None, there - 1, there, there + 1))
        self.done[-1] += f" {count} of {there}"
        self.world.binder.has_places(count)
        self.world.binder.allow(None)

    async def remove_node(self) -> None:
        if len(self.world.nodes.names) > 2:
            await self.world.nodes.remove_node(self.rng.choice(sorted(self.world.nodes.names)))

    async def hold(self) -> None:
        """Pods of one version never start, or all that did not start do."""
        version = self.rng.choice(("two", "three", None))
        self.done[-1] += f" {version}"
        self.world.nodes.hold = lambda pod: bool(version) and pod.metadata.labels.get("version") == version
        if version is None:
            await self.start_pods()

    async def start_pods(self) -> None:
        for pod in await self.world.pods():
            if pod.is_bound and not pod.is_ready:
                with suppress(NotFound):
                    await self.world.nodes.set_ready(self.world.namespace, pod.metadata.name, True)

    async def release(self) -> None:
        """Nothing holds an update back any more."""
        self.world.nodes.hold = lambda pod: False
        self.world.binder.has_places(None)
        self.world.binder.allow(None)
        await self.start_pods()
        await self.part_group(0)
        found: Json = await self.world.client.get(PodCliqueSet.RESOURCE, "wl", self.world.namespace)
        if found["spec"]["updateStrategy"]["type"] == "OnDelete":
            await self.patch({"updateStrategy": {"type": "RollingRecreate"}})
        await asyncio.sleep(TIMERS_S)

    async def template(self) -> Json:
        found: Json = await self.world.client.get(PodCliqueSet.RESOURCE, "wl", self.world.namespace)
        template: Json = found["spec"]["template"]
        return template


async def expected(world: World) -> Found:
    """The pods that a set of these templates and this scale has."""
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


def by_clique(found: Found, *, with_revision: bool) -> Counter[tuple[str, ...]]:
    """Without the indexes of pods: scaling in may leave others than the lowest."""
    return Counter(
        (host.rsplit("-", 1)[0], template, *([revision] if with_revision else []))
        for host, (template, revision) in found.items()
    )


def also_in_soak(*seeds: int) -> tuple[Any, ...]:
    return (*seeds, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 200)))


@pytest.mark.parametrize("seed", also_in_soak(0, 1, 2, 13, 27))
async def test_the_end_is_that_of_a_fresh_apply(world: World, seed: int) -> None:
    steps = await taken(Steps, world, seed)

    found = await ended(steps)

    assert found == await expected(world), steps.done


@pytest.mark.parametrize("seed", also_in_soak(*range(8)))
async def test_the_end_is_the_same_if_the_strategy_and_budgets_change_too(world: World, seed: int) -> None:
    steps = await taken(MoreSteps, world, seed)

    await steps.release()
    found = await ended(steps)

    strategy = (await world.get(PodCliqueSet, "wl")).spec.update_strategy
    is_coherent = strategy is not None and strategy.type == "Coherent"  # else a pod of the right template stays
    want = by_clique(await expected(world), with_revision=is_coherent)
    assert by_clique(found, with_revision=is_coherent) == want, steps.done
    assert all(pod.is_ready for pod in await world.pods()), steps.done


async def taken(kind: type[S], world: World, seed: int) -> S:
    rng = random.Random(seed)
    await world.apply(example(rng))
    await world.available("wl")
    await world.quiet(for_s=3)
    steps = kind(world, rng)
    for _ in range(STEPS):
        await steps.next()
    return steps


async def ended(steps: Steps) -> Found:
    """What there is after the set was resumed, promoted and edited for the last time."""
    world, rng = steps.world, steps.rng
    await pause(world, False)
    await steps.patch({"updateStrategy": {"rollingUpdate": {"partition": 0}}})
    await world.quiet()
    if rng.random() < 0.5:
        await change(world, "wl", "a", "b", "c", to="last")
    else:
        await take_back_all(world)
    await updated(world, "wl", timeout_s=1800)
    await asyncio.sleep(LONGEST_DRAIN_S)  # also surge pods drain
    await world.quiet(for_s=5)

    assert len(set((await versions(world)).values())) == 1, steps.done
    before = world.writes()
    await world.quiet(for_s=30)
    assert world.writes() == before, "a set at rest costs nothing"
    return {
        pod.spec.hostname: (pod.metadata.labels[key.POD_TEMPLATE_HASH], pod.metadata.labels[key.REVISION])
        for pod in await world.pods()
    }


async def take_back_all(world: World) -> None:
    for name in ("a", "b", "c"):
        await change(world, "wl", name)  # so that there is something to take back
    await take_back(world, "wl", "a", "b", "c")
