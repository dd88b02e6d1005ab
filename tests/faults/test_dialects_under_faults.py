"""The dialects under random faults: in the end each object has its set, and no set is left over.

A run makes, scales, edits and deletes objects, deletes and edits their sets by hand, while calls fail and the operator
is killed in the middle of its work. A run is a function of its seed; a failing one names it.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.support.dialects import gang_set, koord_set, nested
from tests.support.operating import Binder
from tests.support.running import beside, without_logs

from grove.api.dynamo import PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.api.labels import TRANSLATED_NAME
from grove.api.meta import Json, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.config import load_configuration
from grove.crds.install import install
from grove.dialects import dynamo, koord
from grove.dialects.record import merged
from grove.kube.client import Client
from grove.kube.errors import KubeError
from grove.operator.wiring import Operator
from grove.sim.cluster import SimCluster
from grove.sim.crash import Process
from grove.sim.faults import ROUGH, Faults
from grove.sim.loop import run
from grove.sim.topology import Topology

NAMESPACE, STEPS = "default", 25
KINDS: dict[str, type[Any]] = {"PodGangSet": PodGangSet, "PodCliqueSet": KoordPodCliqueSet}


class Story:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.wanted: dict[str, Json] = {}

    async def act(self, client: Client) -> None:
        acts = (self.make, self.make, self.change, self.change, self.delete, self.delete_set, self.edit_set)
        try:
            await self.rng.choice(acts)(client)
        except KubeError:
            pass  # not possible now; the story goes on without it

    def drawn(self, name: str) -> Json:
        """An object whose name decides its kind and its cliques, so that it can change into any other of its name."""
        rng = self.rng
        if name.startswith("gang"):
            obj = gang_set(name, rng.randint(1, 4), minAvailable=1)
            obj["spec"]["template"]["spec"]["containers"][0]["image"] = rng.choice(("one", "two"))
            return obj
        members = [nested("lead", 1, 0, minAvailable=1), nested("work", rng.randint(1, 3), 1, minAvailable=1)]
        return koord_set(name, groups={"g": members}, replicas=rng.randint(0, 2))

    async def make(self, client: Client) -> None:
        name = self.rng.choice(("gang-a", "gang-b", "nested-a", "nested-b"))
        if name not in self.wanted:
            obj = self.drawn(name)
            await client.create(KINDS[obj["kind"]], obj)
            self.wanted[name] = obj

    async def change(self, client: Client) -> None:
        if name := self.any():
            obj = self.drawn(name)
            await client.patch(KINDS[obj["kind"]], name, {"spec": obj["spec"]}, NAMESPACE)
            self.wanted[name] = obj

    async def delete(self, client: Client) -> None:
        if name := self.any():
            await client.delete(KINDS[self.wanted[name]["kind"]], name, NAMESPACE)
            del self.wanted[name]

    async def delete_set(self, client: Client) -> None:
        if name := self.any():
            await client.delete(PodCliqueSet, name, NAMESPACE)

    async def edit_set(self, client: Client) -> None:
        if name := self.any():
            await client.patch(PodCliqueSet, name, {"spec": {"template": {"terminationDelay": "2h0m0s"}}}, NAMESPACE)

    def any(self) -> str:
        return self.rng.choice(sorted(self.wanted) or [""])


async def told(seed: int) -> list[str]:
    """Runs a story; what is wrong when the weather has calmed down."""
    story = Story(seed)
    async with SimCluster(nodes=Topology(racks=2, nodes=5), seed=seed) as sim, AsyncExitStack() as stack:
        await install(sim.client(), lambda line: None, dialects=True)
        faults = Faults(ROUGH, seed=seed)
        config = load_configuration("dialects: {enabled: true}")

        async def operate(client: Client) -> None:
            await Operator(client, config, clock=sim.clock, rng=random.Random(seed), startup_image="x").run()

        process = Process(
            operate, lambda: faults.client(sim.client(user="operator")), rng=random.Random(seed), mean_life_s=20.0
        )
        binder = Binder(sim.client(user="scheduler"), NAMESPACE, "", plays_kube=True)
        for work in (process.run(), binder.run()):
            await stack.enter_async_context(beside(work))
        user = sim.client(user="user")
        for _ in range(STEPS):
            await story.act(user)
            await asyncio.sleep(story.rng.choice((0.0, 0.1, 1.0, 5.0, 30.0)))
        faults.stop()
        process.spare()
        async with asyncio.timeout(7200):
            while wrong := [*map(repr, process.failures), *await _wrong(user, story)]:
                if asyncio.get_running_loop().time() > 5400:
                    return wrong
                await asyncio.sleep(60)
        return []


async def _wrong(client: Client, story: Story) -> list[str]:
    found: list[str] = []
    sets = {one["metadata"]["name"]: one for one in (await client.list(PodCliqueSet.RESOURCE, NAMESPACE)).items}
    cliques = (await client.list(PodClique, NAMESPACE)).items
    found += [f"a set without an object: {name}" for name in sets.keys() - story.wanted.keys()]
    for name, obj in story.wanted.items():
        source = await client.get(KINDS[obj["kind"]], name, NAMESPACE)
        translated = find_condition(source.status.conditions, "Translated")
        if translated is None or translated.status != "True":
            found.append(f"{name}: {translated}")
        if source.status.observed_generation != source.metadata.generation:
            found.append(f"{name}: its status is of an older generation")
        wanted = (dynamo if obj["kind"] == "PodGangSet" else koord).to_set(obj).manifest["spec"]
        live = sets.get(name)
        if live is None or live["metadata"]["annotations"].get(TRANSLATED_NAME) != name:
            found.append(f"{name} has no set")
            continue
        if merged(live["spec"], wanted, {}) != live["spec"]:
            found.append(f"{name}: its set says something else")
        sizes = {one["name"]: one["spec"]["replicas"] for one in wanted["template"]["cliques"]}
        found += [
            f"{one.metadata.name} has {one.spec.replicas} replicas, not {sizes[one.spec.role_name]}"
            for one in cliques
            if one.metadata.labels.get("app.kubernetes.io/part-of") == name
            and one.spec.replicas != sizes[one.spec.role_name]
        ]
    return found


def check(seed: int) -> None:
    with without_logs():
        assert run(told(seed), seed=seed) == [], f"seed {seed}"


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(5, 8))])
def test_after_the_storm_every_object_has_its_set(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(2000, 2200, 25), ids=lambda first: f"seeds from {first}")
def test_after_many_storms(first: int) -> None:
    for seed in range(first, first + 25):
        check(seed)
