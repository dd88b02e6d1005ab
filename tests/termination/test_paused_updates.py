"""Minimums while an update is paused: judged for every unit that the update is not replacing at the moment."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, condition
from tests.support.workloads import change, pause, uids, updated, versions

from grove.api import conditions as words
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.simulated

DELAY_S, LONG_S = 30.0, 120.0
UNJUDGED = ("Unknown", words.UPDATE_IN_PROGRESS)


async def lose(world: World, *hostnames: str) -> None:
    """The pods die, and their replacements find no free capacity."""
    world.binder.allow(0)
    for pod in await world.pods():
        if pod.spec.hostname in hostnames:
            await world.delete(Pod, pod.metadata.name, grace_period_s=0)
    await world.quiet()


async def paused_with_one_new(world: World, *, is_back: bool) -> str:
    """Pauses an update of clique `a` after its first pod was replaced, and returns the host name of this pod.

    The new pod is ready if `is_back`, else it has no node.
    """
    if is_back:
        world.nodes.start_s = 5.0
    else:
        world.binder.allow(0)
    await change(world, "wl", "a")

    async def is_begun() -> bool:
        return "two" in (await versions(world)).values()

    await world.eventually(is_begun)
    await pause(world, True)
    if is_back:
        await world.ready(len(await world.pods()))
    await world.quiet()
    (new,) = (host for host, version in (await versions(world)).items() if version == "two")
    return new


async def breach_of_clique(world: World) -> tuple[str, str] | None:
    return condition((await world.get(PodClique, "wl-0-a")).status.conditions, words.MIN_AVAILABLE_BREACHED)


async def breach_of_group(world: World) -> tuple[str, str] | None:
    found = await world.get(PodCliqueScalingGroup, "wl-0-g")
    return condition(found.status.conditions, words.MIN_AVAILABLE_BREACHED)


async def restarts(world: World) -> int:
    return (await world.get(PodCliqueSet, "wl")).status.gang_restarts


async def with_clique(world: World, min_available: int) -> None:
    manifest = pcs("wl", clique("a", 3, min_available=min_available), termination_delay=f"{DELAY_S:g}s")
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(3)


async def test_a_clique_below_its_minimum_in_a_pause_is_restarted_after_the_delay(world: World) -> None:
    await with_clique(world, 2)
    new = await paused_with_one_new(world, is_back=True)
    assert await breach_of_clique(world) == ("False", words.SUFFICIENT_READY_PODS)
    before = await uids(world)

    await lose(world, *before.keys() - {new})

    assert await breach_of_clique(world) == ("True", words.SCHEDULED_REPLICAS_BELOW_MIN_AVAILABLE)
    assert await restarts(world) == 0
    await asyncio.sleep(DELAY_S)
    assert await restarts(world) == 1
    assert (await uids(world))[new] != before[new], "the whole gang is restarted"
    world.binder.allow(None)
    await world.ready(3)
    await pause(world, False)
    await updated(world, "wl")


async def test_a_clique_that_only_waits_for_the_pod_of_the_update_is_not_judged(world: World) -> None:
    await with_clique(world, 3)
    new = await paused_with_one_new(world, is_back=False)

    assert await breach_of_clique(world) == UNJUDGED
    await asyncio.sleep(LONG_S)
    assert await restarts(world) == 0

    other = next(host for host in await uids(world) if host != new)
    await lose(world, other)
    assert await breach_of_clique(world) == ("True", words.SCHEDULED_REPLICAS_BELOW_MIN_AVAILABLE)


async def test_a_pod_that_the_update_replaced_counts_when_it_is_lost_later(world: World) -> None:
    await with_clique(world, 3)
    new = await paused_with_one_new(world, is_back=True)

    await lose(world, new)

    assert await breach_of_clique(world) == ("True", words.SCHEDULED_REPLICAS_BELOW_MIN_AVAILABLE)


async def test_an_update_that_goes_on_is_not_judged(world: World) -> None:
    await with_clique(world, 3)
    await paused_with_one_new(world, is_back=False)
    others = [host for host, version in (await versions(world)).items() if not version]
    await lose(world, others[0])
    assert await breach_of_clique(world) == ("True", words.SCHEDULED_REPLICAS_BELOW_MIN_AVAILABLE)

    await pause(world, False)
    assert await breach_of_clique(world) == UNJUDGED


async def with_group(world: World, min_available: int) -> None:
    config = group("g", "a", "b", replicas=3, min_available=min_available)
    manifest = pcs("wl", clique("a"), clique("b"), groups=[config], termination_delay=f"{DELAY_S:g}s")
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(6)


async def test_a_group_below_its_minimum_in_a_pause_restarts_the_whole_replica(world: World) -> None:
    await with_group(world, 3)
    new = await paused_with_one_new(world, is_back=True)
    assert await breach_of_group(world) == ("False", words.SUFFICIENT_AVAILABLE_GROUP_REPLICAS)

    await lose(world, new)  # also the last replica that the update replaced

    assert await breach_of_group(world) == ("True", words.INSUFFICIENT_AVAILABLE_GROUP_REPLICAS)
    await asyncio.sleep(DELAY_S)
    assert await restarts(world) == 1


async def test_a_group_that_only_waits_for_the_replica_of_the_update_is_not_judged(world: World) -> None:
    await with_group(world, 3)
    await paused_with_one_new(world, is_back=False)

    assert await breach_of_group(world) == UNJUDGED
    await asyncio.sleep(LONG_S)
    assert await restarts(world) == 0
    assert (await world.get(PodCliqueScalingGroup, "wl-0-g")).status.gang_restarts == 0


async def test_a_replica_of_a_group_is_restarted_alone_in_a_pause_and_that_of_the_update_is_not(world: World) -> None:
    await with_group(world, 1)
    new = await paused_with_one_new(world, is_back=False)
    before = await uids(world)
    lost = next(host for host, version in (await versions(world)).items() if not version and "-a-" in host)

    await lose(world, lost)
    assert await breach_of_group(world) == ("False", words.SUFFICIENT_AVAILABLE_GROUP_REPLICAS)
    await asyncio.sleep(LONG_S)

    found = await world.get(PodCliqueScalingGroup, "wl-0-g")
    assert found.status.gang_restarts >= 1
    after, replica = await uids(world), lost.removesuffix("-a-0")
    assert {host for host in before if after.get(host) != before[host]} == {f"{replica}-a-0", f"{replica}-b-0"}
    assert new in after
