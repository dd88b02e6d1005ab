"""`grove.io/deletion-cost` on a pod names the unit that scale-in removes first, at every level."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World
from tests.support.workloads import change, uids, updated

from grove.api import labels as key
from grove.api.core import Pod, Service
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

simulated = pytest.mark.simulated


async def instances(world: World, count: int = 4, minimum: int = 1, seconds: int = 0) -> None:
    """A group whose instances have two pods each."""
    groups = [group("g", "lead", "work", replicas=count, min_available=minimum)]
    manifest = pcs("wl", clique("lead"), clique("work"), groups=groups)
    if seconds:
        manifest["metadata"]["annotations"] = {key.DRAIN_SECONDS: str(seconds)}
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(2 * count)
    await world.quiet()


async def cost(world: World, host: str, cost: str | None) -> None:
    [pod] = [pod for pod in await world.pods() if pod.spec.hostname == host]
    patch = {"metadata": {"annotations": {key.DELETION_COST: cost}}}
    await world.client.patch(Pod, pod.metadata.name, patch, world.namespace)


async def left(world: World, *indexes: int) -> None:
    """Waits until exactly these instances are there, ready, with a gang for each beyond the first."""
    hosts = {f"wl-0-g-{index}-{role}-0" for index in indexes for role in ("lead", "work")}

    async def there() -> bool:
        pods = await world.pods()
        return {pod.spec.hostname for pod in pods} == hosts and all(pod.is_ready for pod in pods)

    await world.eventually(there, 120)
    await world.quiet()
    assert sorted(await world.names(PodGang)) == ["wl-0", *(f"wl-0-g-{index - 1}" for index in indexes if index)]
    found = await world.get(PodCliqueScalingGroup, "wl-0-g")
    assert (found.status.replicas, found.status.available_replicas) == (len(indexes), len(indexes))
    assert tuple(found.indexes) == indexes


@pytest.mark.parametrize("role", ["lead", pytest.param("work", marks=simulated)])
async def test_any_pod_of_an_instance_names_it(world: World, role: str) -> None:
    await instances(world)
    before = await uids(world)
    await cost(world, f"wl-0-g-2-{role}-0", "-10")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 3)
    await left(world, 0, 1, 3)
    assert (await uids(world)).items() <= before.items(), "no other instance was touched"


@simulated
async def test_a_high_cost_keeps_the_last_instance(world: World) -> None:
    await instances(world, 3)
    await cost(world, "wl-0-g-2-work-0", "5")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
    await left(world, 0, 2)


@simulated
async def test_instances_of_the_base_gang_stay(world: World) -> None:
    await instances(world, 3)
    await cost(world, "wl-0-g-0-lead-0", "-10")
    await cost(world, "wl-0-g-1-lead-0", "7")
    await cost(world, "wl-0-g-2-lead-0", "8")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
    await left(world, 0, 2)


@simulated
async def test_scaling_out_fills_the_gaps_and_scaling_in_goes_on(world: World) -> None:
    await instances(world, 5)
    await cost(world, "wl-0-g-1-lead-0", "-2")
    await cost(world, "wl-0-g-3-work-0", "-1")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 3)
    await left(world, 0, 2, 4)
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
    await left(world, 0, 2)
    before = await uids(world)
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 4)
    await left(world, 0, 1, 2, 3)
    assert before.items() <= (await uids(world)).items()
    assert (await world.get(PodCliqueScalingGroup, "wl-0-g")).status.replica_indexes == ()


@simulated
async def test_what_is_not_a_number_costs_nothing(world: World) -> None:
    await instances(world, 3)
    await cost(world, "wl-0-g-1-lead-0", "cheap")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
    await left(world, 0, 1)


@simulated
async def test_the_instance_drains_and_may_come_back(world: World) -> None:
    await instances(world, 3, seconds=30)
    before = await uids(world)
    await cost(world, "wl-0-g-1-lead-0", "-1")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)

    async def marked() -> bool:
        pods = await world.pods()
        return {pod.spec.hostname for pod in pods if key.DRAINING in pod.metadata.annotations} == {
            "wl-0-g-1-lead-0",
            "wl-0-g-1-work-0",
        }

    await world.eventually(marked)
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 3)
    await left(world, 0, 1, 2)
    assert await uids(world) == before
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
    await left(world, 0, 2)


@simulated
async def test_a_gap_outlives_the_operator_and_an_update(world: World) -> None:
    await instances(world)
    await cost(world, "wl-0-g-2-lead-0", "-1")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 3)
    await left(world, 0, 1, 3)
    before = await uids(world)
    await world.restart()
    await world.cluster.settle(30)
    assert await uids(world) == before
    await change(world, "wl", "lead", "work")
    await updated(world, "wl")
    await left(world, 0, 1, 3)
    assert not before.items() & (await uids(world)).items()


@simulated
async def test_an_update_makes_a_further_instance_beside_a_gap(world: World) -> None:
    groups = [group("g", "lead", "work", replicas=3, min_available=1)]
    groups[0]["rollingUpdate"] = {"maxSurge": 1}
    await world.apply(pcs("wl", clique("lead"), clique("work"), groups=groups))
    await world.available("wl")
    await world.quiet()
    await cost(world, "wl-0-g-1-lead-0", "-1")
    await world.scale(PodCliqueScalingGroup, "wl-0-g", 2)
    await left(world, 0, 2)
    await change(world, "wl", "lead", "work")
    await updated(world, "wl")
    await left(world, 0, 2)


async def replicas(world: World, count: int = 4, seconds: int = 0) -> None:
    """A set whose replicas have two pods each: a router, and one engine in a scaling group."""
    manifest = pcs("wl", clique("router"), clique("work"), groups=[group("g", "work", replicas=1)])
    manifest["spec"]["replicas"] = count
    if seconds:
        manifest["metadata"]["annotations"] = {key.DRAIN_SECONDS: str(seconds)}
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(2 * count)
    await world.quiet()


async def replicas_left(world: World, *indexes: int) -> None:
    """Waits until exactly these replicas of the set are there, ready, each with its gang and its Service."""
    hosts = {f"wl-{index}-{host}" for index in indexes for host in ("router-0", "g-0-work-0")}

    async def there() -> bool:
        pods = await world.pods()
        return {pod.spec.hostname for pod in pods} == hosts and all(pod.is_ready for pod in pods)

    await world.eventually(there, 120)
    await world.quiet()
    assert sorted(await world.names(PodGang)) == [f"wl-{index}" for index in indexes]
    assert sorted(await world.names(PodCliqueScalingGroup)) == [f"wl-{index}-g" for index in indexes]
    assert sorted(await world.names(PodClique)) == sorted(
        f"wl-{index}-{part}" for index in indexes for part in ("router", "g-0-work")
    )
    found = await world.get(PodCliqueSet, "wl")
    assert (found.status.replicas, found.status.available_replicas) == (len(indexes), len(indexes))
    assert tuple(found.indexes) == indexes
    assert len([one for one in await world.names(Service) if one.startswith("wl")]) == len(indexes)


async def test_a_pod_of_a_replica_of_a_set_names_it(world: World) -> None:
    await replicas(world)
    before = await uids(world)
    await cost(world, "wl-1-router-0", "-10")
    await world.scale(PodCliqueSet, "wl", 3)
    await replicas_left(world, 0, 2, 3)
    assert (await uids(world)).items() <= before.items(), "no other replica was touched"


@simulated
async def test_a_set_fills_its_gaps_and_has_none_without_costs(world: World) -> None:
    await replicas(world, 5)
    await cost(world, "wl-0-router-0", "-2")
    await cost(world, "wl-3-g-0-work-0", "-1")
    await world.scale(PodCliqueSet, "wl", 3)
    await replicas_left(world, 1, 2, 4)
    await world.scale(PodCliqueSet, "wl", 2)
    await replicas_left(world, 1, 2)
    before = await uids(world)
    await world.scale(PodCliqueSet, "wl", 4)
    await replicas_left(world, 0, 1, 2, 3)
    assert before.items() <= (await uids(world)).items()
    assert (await world.get(PodCliqueSet, "wl")).status.replica_indexes == ()
    await world.scale(PodCliqueSet, "wl", 1)
    await replicas_left(world, 0)


@simulated
async def test_a_replica_of_a_set_drains_and_may_come_back(world: World) -> None:
    await replicas(world, 3, seconds=30)
    before = await uids(world)
    await cost(world, "wl-0-router-0", "-1")
    await world.scale(PodCliqueSet, "wl", 2)

    async def marked() -> bool:
        pods = await world.pods()
        return {pod.spec.hostname for pod in pods if key.DRAINING in pod.metadata.annotations} == {
            "wl-0-router-0",
            "wl-0-g-0-work-0",
        }

    await world.eventually(marked)
    await world.scale(PodCliqueSet, "wl", 3)
    await replicas_left(world, 0, 1, 2)
    assert await uids(world) == before
    await world.scale(PodCliqueSet, "wl", 2)
    await replicas_left(world, 1, 2)
    assert (await uids(world)).items() <= before.items()


@simulated
async def test_a_gap_of_a_set_outlives_the_operator_an_update_and_a_restart_of_a_gang(world: World) -> None:
    await replicas(world, 3)
    await cost(world, "wl-1-router-0", "-1")
    await world.scale(PodCliqueSet, "wl", 2)
    await replicas_left(world, 0, 2)
    before = await uids(world)
    await world.restart()
    await world.cluster.settle(30)
    assert await uids(world) == before
    await change(world, "wl", "router", "work")
    await updated(world, "wl")
    await replicas_left(world, 0, 2)
    assert not before.items() & (await uids(world)).items()
    await world.delete(PodCliqueSet, "wl")

    async def gone() -> bool:
        return not await world.list(Pod) and not await world.list(PodGang)

    await world.eventually(gone, 120)


@simulated
async def test_an_operator_that_stops_before_the_choice_is_recorded_touches_nothing(world: World) -> None:
    """The choice is in the status before the first deletion, so a new operator goes on with the same replica."""
    await replicas(world, 3)
    await cost(world, "wl-1-router-0", "-1")
    await world.stop()
    await world.scale(PodCliqueSet, "wl", 2)
    await world.cluster.settle(30)
    assert len(await world.pods()) == 6
    await world.start()
    await replicas_left(world, 0, 2)
