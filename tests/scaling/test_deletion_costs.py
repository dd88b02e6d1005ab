"""`grove.io/deletion-cost` on a pod names the unit that scale-in removes first, at every level."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World
from tests.support.workloads import change, uids, updated

from grove.api import labels as key
from grove.api.core import Pod
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
