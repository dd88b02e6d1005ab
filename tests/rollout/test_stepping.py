"""What an update waits for and what it does not: places, pauses, turns; and what is published meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World, condition
from tests.support.workloads import change, lose, pause, take_back, updated, versions, watching, wl1

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import Forbidden

pytestmark = pytest.mark.simulated

OPERATING = Operating(start_s=0.2)

Part = PodClique | PodCliqueScalingGroup


async def test_a_replica_that_never_fits_does_not_hold_up_the_others(world: World) -> None:
    world.binder.refuses = lambda pod: pod.metadata.labels[key.REPLICA_INDEX] == "0"
    await world.apply(pcs("wl", clique("a"), replicas=3))
    await world.available("wl", 2)

    async with watching(world) as witness:
        await change(world, "wl", "a")

        async def over() -> bool:
            progress = (await world.get(PodCliqueSet, "wl")).status.update_progress
            return progress is not None and progress.update_ended_at is not None

        await world.eventually(over)

    assert set((await versions(world)).values()) == {"two"}
    assert witness.worst["replicas"] == 1
    assert (await world.get(PodCliqueSet, "wl")).status.available_replicas == 2


@pytest.mark.parametrize("kind", ["clique", "group"])
async def test_an_instance_that_never_had_a_place_holds_up_nothing(world: World, kind: str) -> None:
    """Two places for three instances. The third gets the place of the first that is replaced."""
    whole = pcs("wl", clique("a", 3, min_available=1))
    if kind == "group":
        whole = pcs("wl", clique("a"), groups=[group("g", "a", replicas=3, min_available=1)])
    world.binder.has_places(2)
    await world.apply(whole)
    await world.available("wl")

    await change(world, "wl", "a")
    pcs_ = await updated(world, "wl")

    assert set((await versions(world)).values()) == {"two"}
    assert pcs_.status.available_replicas == 1


@pytest.mark.parametrize("lost", ["wl-0-pc-a-0", "wl-1-pc-a-0"])
async def test_a_pod_that_is_lost_during_a_pause_comes_back_as_it_was(world: World, lost: str) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")
    await pause(world, True)
    await change(world, "wl", "pc-a", "pc-b")
    await world.quiet()

    await lose(world, lost)
    await lose(world, "wl-0-sg-x-0-pc-b-0")

    assert set((await versions(world)).values()) == {""}
    await pause(world, False)
    await updated(world, "wl")
    assert set((await versions(world, "wl-0-pc-a")).values()) == {"two"}


async def test_a_pod_that_is_lost_before_its_turn_comes_back_as_it_was(world: World) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    await change(world, "wl", "pc-a")
    await world.quiet()

    await lose(world, "wl-1-pc-a-0")

    assert set((await versions(world, "wl-1-pc-a")).values()) == {""}


async def test_the_time_of_a_pause_does_not_count_towards_the_deadline(world: World) -> None:
    strategy = {"type": "RollingRecreate", "progressDeadline": "1m"}
    await world.apply(wl1(replicas=2, strategy=strategy))
    await world.available("wl")
    world.nodes.hold = lambda pod: "version" in pod.metadata.labels
    await change(world, "wl", "pc-a")
    await asyncio.sleep(10)
    await pause(world, True)
    await asyncio.sleep(300)

    await pause(world, False)

    status = (await world.get(PodCliqueSet, "wl")).status
    assert condition(status.conditions, words.UPDATE_STALLED) is None
    await asyncio.sleep(70)
    status = (await world.get(PodCliqueSet, "wl")).status
    assert condition(status.conditions, words.UPDATE_STALLED) == ("True", words.PROGRESS_DEADLINE_EXCEEDED)


async def test_a_generation_is_published_when_its_update_has_been_carried_out(world: World) -> None:
    """A client that reads "observedGeneration equals generation, and every part is ready" must not see that early."""
    await world.apply(wl1(replicas=2))
    before = await world.available("wl")
    seen: list[tuple[int | None, int, bool]] = []
    generation = before.metadata.generation + 1

    def on_set(old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        if new is not None and new.metadata.generation == generation:
            progress = new.status.update_progress
            is_over = progress is not None and progress.update_ended_at is not None
            seen.append((new.status.observed_generation, new.status.updated_replicas, is_over))

    world.operator.deps.cache.on_event(PodCliqueSet, on_set)
    await change(world, "wl", "pc-a", "pc-b")
    await updated(world, "wl")

    early = [one for one in seen if one[0] == generation and not (one[1] == 2 and one[2])]
    assert early == []
    assert seen[-1] == (generation, 2, True)


@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
async def test_no_part_says_that_it_is_updated_before_all_its_pods_are_new(world: World, kind: str) -> None:
    """A client reads `currentPodCliqueSetGenerationHash`. Every status that is written counts by the new templates."""
    await world.apply(wl1(replicas=2, strategy={"type": kind}))
    generation = (await world.available("wl")).status.current_generation_hash
    await world.quiet()
    cache, early, said = world.operator.deps.cache, list[str](), set[str]()

    def on_part(old: Part | None, new: Part | None) -> None:
        (pcs_,) = cache.list(PodCliqueSet)
        accepted = pcs_.status.current_generation_hash
        if old is None or new is None or accepted == generation or old.status == new.status:
            return
        label = key.POD_CLIQUE if isinstance(new, PodClique) else key.SCALING_GROUP
        pods = [pod for pod in cache.list(Pod) if pod.metadata.labels.get(label) == new.metadata.name]
        is_new = all(pod.metadata.labels.get("version") == "two" for pod in pods if not pod.metadata.is_deleting)
        status = new.status
        is_done = status.current_pod_clique_set_generation_hash == accepted
        if is_done:
            said.add(new.metadata.name)
        if not is_new and (is_done or status.updated_replicas == status.replicas > 0):
            early.append(f"{new.metadata.name}: {status.updated_replicas} of {status.replicas}, done: {is_done}")

    cache.on_event(PodClique, on_part)
    cache.on_event(PodCliqueScalingGroup, on_part)
    await change(world, "wl", "pc-a", "pc-b", "pc-c")
    await lose(world, "wl-1-pc-a-0")
    await updated(world, "wl")

    assert early == []
    assert {"wl-0-pc-a", "wl-1-pc-a", "wl-0-sg-x", "wl-1-sg-x", "wl-1-sg-x-1-pc-c"} <= said


async def test_a_clique_counts_by_the_template_that_the_set_has_now(world: World) -> None:
    await world.apply(wl1())
    await world.available("wl")
    await pause(world, True)

    await change(world, "wl", "pc-a", "pc-b")
    await world.quiet()

    for name in ("wl-0-pc-a", "wl-0-sg-x-0-pc-b", "wl-0-sg-x-1-pc-b"):
        status = (await world.get(PodClique, name)).status
        assert (status.updated_replicas, status.replicas > 0) == (0, True), name
    await take_back(world, "wl", "pc-a", "pc-b")
    await world.quiet()
    assert (await world.get(PodClique, "wl-0-pc-a")).status.updated_replicas == 2


async def test_a_template_that_a_webhook_refuses_is_reported_once(world: World) -> None:
    await world.apply(pcs("wl", clique("w")))
    await world.available("wl")
    await world.quiet()
    patch, refuses = world.operator_client.patch, True

    async def deny(kind: Any, *args: Any, **options: Any) -> Any:
        if refuses and kind is PodClique and "subresource" not in options:
            await asyncio.sleep(0.01)
            raise Forbidden("denied by a webhook")
        return await patch(kind, *args, **options)

    world.operator_client.patch = deny
    await change(world, "wl", "w")
    await asyncio.sleep(30)
    before = world.writes()["patch", "podcliques/status"]
    await asyncio.sleep(600)
    found = await world.get(PodClique, "wl-0-w")
    assert [one.code for one in found.status.last_errors] == ["ERR_CREATE_OR_UPDATE_PODCLIQUE"]
    assert world.writes()["patch", "podcliques/status"] == before
    refuses = False
    await updated(world, "wl", timeout_s=1200)
