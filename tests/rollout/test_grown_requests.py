"""Coherent updates whose new pods request more: the operator asks the scheduler first.

It counts the nodes of the slice as free. A slice that could not be placed whole is not taken down.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import counting, ready_pods, uids, updated

from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet, UpdateSlice
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache
from grove.sim.topology import Topology

OPERATING = Operating(nodes=Topology(racks=2, nodes=4, cpu="8"), start_s=0.5, scheduled=True)


@pytest.fixture
async def world(world: World) -> World:
    """Four nodes of 8 CPUs, and four more that are cordoned."""
    for node in world.nodes.names[4:]:
        await world.nodes.cordon(node)
    return world


def containers(cpu: int) -> list[Json]:
    return [{"name": "main", "image": "registry.example/engine:1", "resources": {"requests": {"cpu": str(cpu)}}}]


def manifest(frontend: int = 2, instances: int = 2, cpu: int = 4, **more: Any) -> Json:
    """A frontend, and a group of a leader and a worker; one replica of the group is a scaled gang."""
    return pcs(
        "wl",
        clique("f", frontend, min_available=1, containers=containers(cpu)),
        clique("l", containers=containers(cpu)),
        clique("w", containers=containers(cpu)),
        groups=[group("g", "l", "w", replicas=instances, min_available=1)],
        strategy={"type": "Coherent"},
        **more,
    )


async def ask_for(world: World, cpu: int, *cliques: str, **spec: Any) -> None:
    found: Json = await world.client.get(PodCliqueSet.RESOURCE, "wl", world.namespace)
    templates = found["spec"]["template"]["cliques"]
    for template in templates:
        if template["name"] in cliques:
            template["spec"]["podSpec"] |= {"containers": containers(cpu), **spec}
    await world.client.patch(PodCliqueSet, "wl", {"spec": {"template": {"cliques": templates}}}, world.namespace)


async def open_nodes(world: World) -> None:
    for node in world.nodes.names:
        await world.nodes.cordon(node, unschedulable=False)


async def slice_of(world: World) -> UpdateSlice | None:
    progress = (await world.get(PodCliqueSet, "wl")).status.update_progress
    return next((one.slice for one in progress.currently_updating), None) if progress is not None else None


async def refused(world: World) -> UpdateSlice:
    """The slice, once the scheduler has no place for it."""

    async def is_refused() -> bool:
        found = await slice_of(world)
        return found is not None and bool(found.not_placed)

    await world.eventually(is_refused)
    found = await slice_of(world)
    assert found is not None
    return found


async def begun(world: World, obj: Json, pods: int) -> dict[str, str]:
    await world.apply(obj)
    await world.available("wl")
    await world.ready(pods)
    return await uids(world)


async def test_a_slice_that_has_no_place_is_not_taken_down(world: World) -> None:
    """Two frontends and four pods of instances, 4 CPUs each, on 32 CPUs. With 7 CPUs each, one node has one pod."""
    before = await begun(world, manifest(), 6)

    async with counting(world) as seen:
        await ask_for(world, 7, "f", "l", "w")
        found = await refused(world)
        await asyncio.sleep(60 if world.cluster.is_sim else 5)
        assert not seen.deleted, "three pods with 7 CPUs and three with 4 have no place"
        assert len(await ready_pods(world)) == 6
        assert "cpu" in found.not_placed
        assert found.waits_for_place is True
        assert await uids(world) == before
        assert "not taken down" in await world.event("wl", "SliceNotPlaced")

        await world.scale(PodCliqueScalingGroup, "wl-0-g", 1)  # so 4 pods are left, of which a slice takes 3
        await updated(world, "wl")

    assert {one.spec.containers[0].resources.requests["cpu"] for one in await world.pods() if one.is_active} == {"7"}
    gang = await world.get(PodGang, "wl-0")
    assert gang.spec.replacement is None


@pytest.mark.simulated
async def test_a_slice_that_fits_only_where_its_own_pods_are_is_taken_at_once(world: World) -> None:
    """Every node has one pod of each set, and 1 CPU left. 6 CPUs instead of 5 fit only where the old pods are."""
    await begun(world, manifest(2, 1, cpu=5), 4)
    await world.apply(pcs("other", clique("x", 4, containers=containers(2))))
    await world.available("other")

    await ask_for(world, 6, "f", "l", "w")
    await updated(world, "wl")

    assert len(await ready_pods(world)) == 8


@pytest.mark.simulated
@pytest.mark.parametrize(("cpu", "is_asked"), [(3, False), (4, False), (5, True)])
async def test_only_what_asks_for_more_is_asked_about(world: World, cpu: int, is_asked: bool) -> None:
    await begun(world, manifest(2, 1), 4)
    asked = list[str]()
    cache = Cache(world.client)
    cache.add(PodGang, namespace=world.namespace)
    cache.on_event(PodGang, lambda _, new: asked.append(new.metadata.name) if new and new.spec.replacement else None)

    async with cache:
        await cache.wait_synced()
        await ask_for(world, cpu, "f", "l", "w", terminationGracePeriodSeconds=1)
        await updated(world, "wl")

    assert bool(asked) is is_asked


@pytest.mark.simulated
@pytest.mark.parametrize("change", ["nodes", "undo", "less"])
async def test_a_slice_that_waits_goes_on_when_it_can(world: World, change: str) -> None:
    before = await begun(world, manifest(), 6)
    await ask_for(world, 7, "f", "l", "w")
    await refused(world)

    if change == "nodes":
        await open_nodes(world)
    elif change == "undo":
        await ask_for(world, 4, "f", "l", "w")
    else:
        await ask_for(world, 3, "f", "l", "w")
    await updated(world, "wl")

    after = await uids(world)
    assert len(after) == 6
    assert (after == before) is (change == "undo"), "nothing was taken down, so nothing has to come back"


@pytest.mark.simulated
async def test_a_slice_that_needs_a_node_that_no_pod_has_is_not_taken_down(world: World) -> None:
    before = await begun(world, manifest(), 6)

    await ask_for(world, 4, "f", nodeSelector={"no": "such"})
    await refused(world)
    await asyncio.sleep(30)

    assert await uids(world) == before


@pytest.mark.simulated
async def test_the_question_outlives_the_operator_and_the_scheduler(world: World) -> None:
    await begun(world, manifest(), 6)
    await ask_for(world, 7, "f", "l", "w")
    await refused(world)

    await world.restart()
    await asyncio.sleep(10)
    assert (await slice_of(world) or UpdateSlice()).waits_for_place
    lost = next(pod for pod in await world.pods() if pod.spec.hostname == "wl-0-g-1-w-0")
    await world.delete(Pod, lost.metadata.name, grace_period_s=0)
    await asyncio.sleep(10)
    await open_nodes(world)
    await updated(world, "wl")

    assert len(await ready_pods(world)) == 6


@pytest.mark.simulated
async def test_a_gang_that_waits_gets_what_smaller_requests_leave_free(world: World) -> None:
    await world.apply(pcs("wl", clique("f", 4, min_available=1, containers=containers(6))))
    await world.available("wl")
    await world.ready(4)
    await world.apply(pcs("other", clique("o", 4, containers=containers(4))))
    await world.quiet()
    assert not any(pod.is_bound for pod in await world.pods("other-0-o"))

    await ask_for(world, 4, "f")
    await updated(world, "wl")

    await world.available("other")
