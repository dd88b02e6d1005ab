"""Clusters that do not offer gangs, in three ways: nothing crashes, and what is missing is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kube_gangs import (
    GATES,
    bound,
    gang_plane,
    gang_said,
    gang_world,
    hungry,
    is_bound,
    objects,
    says,
)
from tests.support.manifests import pcs
from tests.support.operating import World, condition

from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends.kube import KubeBackend
from grove.backends.kube_api import V1ALPHA2, pod_group

pytestmark = pytest.mark.real
REQUIRED = "scheduler: {profiles: [{name: default-scheduler, config: {gang: Required}}]}\n"


@pytest.mark.parametrize(
    ("gates", "served"),
    [
        pytest.param({}, False, id="the API is not served"),
        pytest.param({}, True, id="the version is switched on and its feature gate is not", marks=pytest.mark.soak),
    ],
)
async def test_without_the_api_pods_are_placed_singly_and_the_gang_says_so(
    tmp_path: Path, fresh_name: str, gates: dict[str, bool], served: bool
) -> None:
    with gang_plane(tmp_path, "1.36.3", gates, served=served) as plane:
        async with gang_world(plane, fresh_name) as world:
            await world.apply(pcs("d", hungry("a", 2), hungry("b", 2)))
            await world.available("d")

            gang = await world.get(PodGang, "d-0")
            assert gang.metadata.annotations["grove.io/gang-mapping"] == "None"
            assert await gang_said(world, "d-0", "SchedulerObjectsReady") == ("False", "GangsNotOffered")
            assert all(pod.spec.scheduling_group is None for pod in await world.pods())
            await world.event("d", "GangsNotOffered")
            found = (await world.get(PodCliqueSet, "d")).status.conditions
            assert condition(found, "SchedulerObjectsReady") == ("False", "GangsNotOffered")
        async with gang_world(plane, f"{fresh_name}-r", config=REQUIRED) as world:
            await world.apply(pcs("d", hungry("a", 2), hungry("b", 2)))
            await world.eventually(lambda: _refused(world))
            assert await world.pods() == []


async def _refused(world: World) -> bool:
    clique = await world.get(PodClique, "d-0-a")
    return any("does not offer gangs" in one.description for one in clique.status.last_errors)


@pytest.mark.soak
async def test_without_its_gate_the_controller_manager_keeps_groups_and_the_gang_goes_all_the_same(
    tmp_path: Path, fresh_name: str
) -> None:
    off = ("--feature-gates=GenericWorkload=false,GangScheduling=false",)
    with gang_plane(tmp_path, "1.36.3", GATES, controller_manager_args=off) as plane:
        async with gang_world(plane, fresh_name) as world:
            await world.apply(pcs("d", hungry("a", 2), hungry("b", 2)))
            await world.available("d")

            await world.client.delete(PodCliqueSet, "d", fresh_name)
            await world.eventually(lambda: _is_gone(world))

            (left,) = (await objects(world, pod_group(V1ALPHA2))).values()
            assert left["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
            drop = {"metadata": {"finalizers": None}}
            await world.client.patch(pod_group(V1ALPHA2), "d-0", drop, fresh_name)


async def _is_gone(world: World) -> bool:
    return await world.list(PodGang) == [] and await world.pods() == []


async def test_a_scheduler_that_ignores_gangs_places_what_fits_and_is_found_out(
    tmp_path: Path, fresh_name: str
) -> None:
    off = ("--feature-gates=GenericWorkload=false,GangScheduling=false",)
    with gang_plane(tmp_path, "1.36.3", GATES, scheduler_args=off) as plane:
        async with gang_world(plane, fresh_name, gpus=8) as world:
            backend = world.operator.backends.find("default-scheduler")
            assert isinstance(backend, KubeBackend)
            backend.grace_s = 3.0
            await world.apply(pcs("d", hungry("a", 4), hungry("b", 8)))
            await world.eventually(lambda: is_bound(world, 8))

            assert await bound(world) == 8
            await world.eventually(lambda: says(world, "d-0", "True", "GangNotEnforced"), 90)
            await world.event("d", "GangNotEnforced")
