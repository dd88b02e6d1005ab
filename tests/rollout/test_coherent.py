"""Coherent updates: changed parts are replaced together in slices, and no pair has two versions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, counting, take_back, uids, updated, versions

from grove.api import labels as key
from grove.api.core import Pod, Service
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache

pytestmark = pytest.mark.real_in("soak")

SAMPLES = Path(__file__).parents[2] / "samples"
COHERENT = {"type": "Coherent"}

OPERATING = Operating(start_s=0.2)


def disaggregated(
    frontend: tuple[int, int] = (4, 1), prefill: tuple[int, int] = (4, 1), decode: tuple[int, int] = (8, 1), **more: Any
) -> Json:
    """A standalone frontend, and groups of one pod each for prefill and decode; (replicas, minAvailable)."""
    return pcs(
        "wl",
        clique("frontend", frontend[0], min_available=frontend[1]),
        clique("p"),
        clique("d"),
        groups=[
            group("prefill", "p", replicas=prefill[0], min_available=prefill[1]),
            group("decode", "d", replicas=decode[0], min_available=decode[1]),
        ],
        **{"strategy": COHERENT, **more},
    )


class Slices:
    """Watches pods and the set: how many new pods of each part were ready, and what each slice took."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.taken: list[dict[str, int]] = []
        self.least: Counter[str] = Counter()
        self.deleted: Counter[str] = Counter()
        self._number = (0, 0)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None:
            self.pods.pop(pod.metadata.uid, None)
        else:
            self.pods[pod.metadata.uid] = new
        if old is not None and not old.metadata.is_deleting and (new is None or new.metadata.is_deleting):
            self.deleted[pod.spec.hostname] += 1
        for part, count in self.ready().items():
            self.least[part] = min(self.least.get(part, count), count)

    def ready(self) -> Counter[str]:
        found: Counter[str] = Counter({"frontend": 0, "p": 0, "d": 0})
        for pod in self.pods.values():
            found[pod.metadata.labels[key.CLIQUE_NAME]] += pod.is_ready and not pod.metadata.is_deleting
        return found

    def on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        progress = new.status.update_progress if new is not None else None
        for entry in progress.currently_updating if progress is not None else ():
            if entry.slice is not None and (entry.replica_index, entry.slice.number) != self._number:
                self._number = (entry.replica_index, entry.slice.number)
                self.taken.append({one.name: one.units for one in entry.slice.parts})


async def pause(world: World, value: str | None) -> None:
    patch = {"metadata": {"annotations": {key.ROLLOUT_PAUSED: value}}}
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)


@asynccontextmanager
async def slicing(world: World) -> AsyncIterator[Slices]:
    seen, cache = Slices(), Cache(world.client)
    cache.add(Pod, namespace=world.namespace)
    cache.add(PodCliqueSet, namespace=world.namespace)
    cache.on_event(PodCliqueSet, seen.on_set)
    async with cache:
        await cache.wait_synced()
        seen.pods = {pod.metadata.uid: pod for pod in cache.list(Pod)}
        cache.on_event(Pod, seen.on_pod)
        yield seen


@pytest.mark.real_in("test")
async def test_changed_parts_move_together_in_slices_that_keep_their_ratio(world: World) -> None:
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await updated(world, "wl")

    assert seen.taken == [{"frontend": 1, "prefill": 1, "decode": 2}] * 4
    assert set(seen.deleted.values()) == {1}, "no unit is taken twice"
    assert sum(seen.deleted.values()) == 16
    assert (seen.least["frontend"], seen.least["p"], seen.least["d"]) == (3, 3, 7), "default budget: minAvailable"
    assert set((await versions(world)).values()) == {"two"}
    revisions = {pod.metadata.labels[key.REVISION] for pod in await world.pods()}
    assert len(revisions) == 1


@pytest.mark.simulated
async def test_the_worked_example(world: World) -> None:
    await world.apply(disaggregated((10, 2), (10, 3), (20, 3)))
    await world.available("wl")
    await world.ready(40)

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await updated(world, "wl")

    whole, rest = {"frontend": 3, "prefill": 3, "decode": 6}, {"frontend": 1, "prefill": 1, "decode": 2}
    assert seen.taken == [whole] * 3 + [rest]
    assert seen.least["frontend"] >= 8
    assert seen.least["p"] >= 7
    assert seen.least["d"] >= 17
    assert sum(seen.deleted.values()) == 40


@pytest.mark.simulated
async def test_parts_that_did_not_change_are_not_touched(world: World) -> None:
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)
    before = await uids(world)
    old = {pod.metadata.labels[key.REVISION] for pod in await world.pods()}

    async with slicing(world) as seen:
        await change(world, "wl", "p", "d")
        found = await updated(world, "wl")

    assert seen.taken == [{"prefill": 1, "decode": 2}] * 4
    after = await uids(world)
    assert {host for host in before if before[host] == after[host]} == {f"wl-0-frontend-{at}" for at in range(4)}
    progress = found.status.update_progress
    assert progress is not None
    assert progress.updated_standalone_pod_cliques == ()
    assert progress.updated_pod_clique_scaling_groups == ("prefill", "decode")
    by_part = {pod.metadata.labels[key.CLIQUE_NAME]: pod.metadata.labels[key.REVISION] for pod in await world.pods()}
    assert by_part["p"] == by_part["d"]
    assert {by_part["frontend"]} == old != {by_part["p"]}


@pytest.mark.simulated
async def test_a_slice_waits_until_the_one_before_is_ready(world: World) -> None:
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels and pod.metadata.labels[key.CLIQUE_NAME] == "p"

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await asyncio.sleep(120)
        assert len(seen.taken) == 1
        found = Counter((await versions(world)).values())
        assert found["two"] == 4
        world.nodes.hold = lambda pod: False
        await change(world, "wl", "frontend", "p", "d", to="three")
        await updated(world, "wl")

    assert set((await versions(world)).values()) == {"three"}


@pytest.mark.simulated
async def test_a_change_in_the_middle_merges_what_is_in_scope(world: World) -> None:
    world.nodes.start_s = 1.0
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)

    async with slicing(world) as seen:
        await change(world, "wl", "p", "d")
        await asyncio.sleep(3)
        assert seen.taken
        await change(world, "wl", "frontend", to="three")
        found = await updated(world, "wl")

    progress = found.status.update_progress
    assert progress is not None
    assert progress.updated_standalone_pod_cliques == ("frontend",)
    assert progress.updated_pod_clique_scaling_groups == ("prefill", "decode")
    assert len({pod.metadata.labels[key.REVISION] for pod in await world.pods()}) == 1, "all of them pair"
    assert max(seen.deleted.values()) <= 2, "once for each edit"


@pytest.mark.simulated
async def test_undo_replaces_what_the_change_made_and_nothing_else(world: World) -> None:
    world.nodes.start_s = 1.0
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)
    before = await uids(world)

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await asyncio.sleep(3)
        new = {host for host, version in (await versions(world)).items() if version}
        assert 0 < len(new) < 16
        await take_back(world, "wl", "frontend", "p", "d")
        await updated(world, "wl")

    after = await uids(world)
    assert {host for host in before if before[host] != after[host]} <= set(seen.deleted)
    assert len([host for host in before if before[host] == after[host]]) >= 16 - len(new) - 4
    assert set((await versions(world)).values()) == {""}
    assert len({pod.metadata.labels[key.REVISION] for pod in await world.pods()}) == 1


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [None, 0.5, 2.5], ids=["in a pause", "soon", "later"])
async def test_undo_gives_every_part_the_revision_that_it_had(world: World, after_s: float | None) -> None:
    """The frontend has kept its first revision, because the update before did not change it."""
    world.nodes.start_s = 1.0
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)
    first = {pod.metadata.labels[key.REVISION] for pod in await world.pods()}
    await change(world, "wl", "p", "d")
    await updated(world, "wl")
    before, revisions = await uids(world), await revisions_of(world)
    kept: Json = await world.client.get(PodCliqueSet.RESOURCE, "wl", world.namespace)

    await pause(world, "true" if after_s is None else None)
    await change(world, "wl", "frontend", "p", "d", to="three")
    await asyncio.sleep(10 if after_s is None else after_s)
    new = {host for host, version in (await versions(world)).items() if version == "three"}
    taken = {host for host, uid in (await uids(world)).items() if before[host] != uid}
    cliques = kept["spec"]["template"]["cliques"]
    await world.client.patch(PodCliqueSet, "wl", {"spec": {"template": {"cliques": cliques}}}, world.namespace)
    await pause(world, None)
    found = await updated(world, "wl")

    assert {revisions["frontend"]} == first != {revisions["p"]}
    assert await revisions_of(world) == revisions
    assert found.status.revisions == {"frontend": min(first), "prefill": revisions["p"], "decode": revisions["d"]}
    after = await uids(world)
    replaced = {host for host in before if before[host] != after[host]}
    assert new <= taken <= replaced
    assert len(replaced - taken) <= 4, "at most the slice that was going"


async def revisions_of(world: World) -> dict[str, str]:
    """The revision of each role, which all its pods have."""
    found = {(pod.metadata.labels[key.CLIQUE_NAME], pod.metadata.labels[key.REVISION]) for pod in await world.pods()}
    assert len(found) == 3, found
    return dict(found)


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("kind", "name", "replicas"),
    [
        (PodCliqueScalingGroup, "wl-0-decode", 14),
        (PodCliqueScalingGroup, "wl-0-prefill", 2),
        (PodClique, "wl-0-frontend", 8),
        (PodCliqueSet, "wl", 2),
    ],
)
@pytest.mark.parametrize("after_s", [0.5, 2.0, 5.0])
async def test_scaling_in_the_middle(world: World, kind: Any, name: str, replicas: int, after_s: float) -> None:
    world.nodes.start_s = 1.0
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await asyncio.sleep(after_s)
        await world.scale(kind, name, replicas)
        await updated(world, "wl")

    found = await versions(world)
    assert set(found.values()) == {"two"}
    assert {count for host, count in seen.deleted.items() if host in found} == {1}, "no unit is taken twice"


@pytest.mark.simulated
async def test_a_pause_stops_between_slices_and_an_operator_that_dies_goes_on_where_it_was(world: World) -> None:
    world.nodes.start_s = 1.0
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await asyncio.sleep(2)
        await pause(world, "true")
        await asyncio.sleep(30)
        slices = len(seen.taken)
        found = Counter((await versions(world)).values())
        assert found["two"] == 4 * slices, "what is down comes back, whole"
        await asyncio.sleep(60)
        assert len(seen.taken) == slices
        await pause(world, None)
        for _ in range(5):
            await asyncio.sleep(1.3)
            await world.restart()
        await updated(world, "wl")

    assert sum(seen.deleted.values()) == 16
    assert seen.taken == [{"frontend": 1, "prefill": 1, "decode": 2}] * 4


@pytest.mark.simulated
async def test_budgets_of_parts_bound_what_is_down_within_a_slice(world: World) -> None:
    manifest = disaggregated((10, 2), (4, 2), (8, 2))
    manifest["spec"]["template"]["podCliqueScalingGroups"][1]["rollingUpdate"] = {"maxUnavailable": 4}
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(22)

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await updated(world, "wl")

    assert seen.taken == [{"frontend": 5, "prefill": 2, "decode": 4}] * 2
    assert (seen.least["frontend"], seen.least["p"], seen.least["d"]) == (8, 2, 4)


@pytest.mark.simulated
async def test_replicas_of_a_set_are_updated_one_after_the_other(world: World) -> None:
    await world.apply(disaggregated((2, 1), (2, 1), (2, 1), replicas=2))
    await world.available("wl")
    await world.ready(12)

    async with slicing(world) as seen:
        await change(world, "wl", "frontend", "p", "d")
        await updated(world, "wl")

    assert seen.taken == [{"frontend": 1, "prefill": 1, "decode": 1}] * 4
    assert sum(seen.deleted.values()) == 12


@pytest.mark.simulated
async def test_a_part_that_kept_its_revision_does_not_hold_up_the_others(world: World) -> None:
    """An undo in a pause finds the frontend as it was: it has no update of its own, and nothing to replace."""
    await world.apply(disaggregated())
    await world.available("wl")
    await world.ready(16)
    before = await uids(world)

    await pause(world, "true")
    await change(world, "wl", "frontend", "p", "d")
    await world.scale(PodCliqueScalingGroup, "wl-0-prefill", 5)
    await asyncio.sleep(10)
    await take_back(world, "wl", "frontend", "p", "d")
    await pause(world, None)
    await updated(world, "wl")

    assert set((await versions(world)).values()) == {""}
    after = await uids(world)
    assert {host for host in before if before[host] != after[host]} == set()


@pytest.mark.simulated
async def test_the_sample_takes_the_slices_that_it_describes(world: World) -> None:
    (manifest,) = [one for one in yaml.safe_load_all((SAMPLES / "coherent.yaml").read_text()) if one]
    await world.apply({**manifest, "metadata": {**manifest["metadata"], "namespace": world.namespace}})
    await world.available("paired")
    await world.ready(26)
    slices = dict[int, dict[str, int]]()

    def on_set(old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        progress = new.status.update_progress if new is not None else None
        for one in progress.currently_updating if progress is not None else ():
            if one.slice is not None:
                slices[one.slice.number] = {part.name: part.units for part in one.slice.parts}

    world.operator.cache.on_event(PodCliqueSet, on_set)
    async with counting(world) as seen:
        await change(world, "paired", "prefill", "decode")
        await updated(world, "paired")

    assert slices == {number: {"prefill": 2, "decode": 4} for number in (1, 2, 3, 4)}
    assert (seen.least["prefill"], seen.most["prefill"]) == (8, 10), "new prefill pods come before old ones end"
    assert seen.least["decode"] == 12, "a slice of decode goes down at once"
    assert "paired-0-router-0" not in seen.deleted
    parts = [await world.get(PodClique, f"paired-0-{name}") for name in ("router", "prefill", "decode")]
    revisions = {part.metadata.labels[key.REVISION] for part in parts}
    assert len(revisions) == 2, "prefill and decode have one revision, the router keeps its own"
    assert len(await world.names(Service)) == 1 + len(revisions), "one of the replica, and one of each revision"
