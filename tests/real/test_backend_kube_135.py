"""kube-scheduler 1.35 with gangs: groups inside a Workload, held at the scheduler's Permit; on a real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.kube_gangs import PER_CLIQUE, bound, gang_plane, gang_said, gang_world, hungry, is_bound, objects, occupy
from tests.manifests import pcs

from grove.api.core import Pod
from grove.api.podgang import PodGang
from grove.backends.kube_api import V1ALPHA1, workload
from grove.local.controlplane import ControlPlane

pytestmark = pytest.mark.real
WORKLOAD = workload(V1ALPHA1)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with gang_plane(tmp_path_factory.mktemp("gangs-1.35"), "1.35.4") as plane:
        yield plane


async def test_a_gang_that_fits_is_bound_whole_and_its_workload_is_exact(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.available("d")

        gang = await world.get(PodGang, "d-0")
        assert gang.metadata.annotations["grove.io/gang-mapping"] == "v1alpha1/Merged"
        assert await gang_said(world, "d-0", "SchedulerObjectsReady") == ("True", "Told")
        (told,) = (await objects(world, WORKLOAD)).values()
        assert told["metadata"]["name"] == "d-0"
        assert told["spec"] == {
            "controllerRef": {"apiGroup": "grove.io", "kind": "PodCliqueSet", "name": "d"},
            "podGroups": [{"name": "core", "policy": {"gang": {"minCount": 12}}}],
        }
        owners = [(one["kind"], one["name"], one.get("controller")) for one in told["metadata"]["ownerReferences"]]
        assert owners == [("PodGang", "d-0", True)]
        for pod in await world.pods():
            assert pod.spec.workload_ref == {"name": "d-0", "podGroup": "core"}


async def test_eleven_places_for_twelve_pods_bind_none(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await occupy(world, "filler", 1)
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.eventually(lambda: _released(world))

        for _ in range(10):
            assert await bound(world) == 0
            await asyncio.sleep(0.5)

        await world.client.delete(Pod, "filler", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), 60)


async def _released(world: object) -> bool:
    pods = await world.pods()  # type: ignore[attr-defined]
    return len(pods) == 13 and not any(pod.is_gated for pod in pods)


async def test_nine_cliques_are_merged_because_a_workload_holds_eight(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name, config=PER_CLIQUE) as world:
        await world.apply(pcs("d", *(hungry(f"c{n}", 1) for n in range(9))))
        await world.available("d")

        (told,) = (await objects(world, WORKLOAD)).values()
        assert told["spec"]["podGroups"] == [{"name": "core", "policy": {"gang": {"minCount": 9}}}]


async def test_surplus_follows_the_gang(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await world.apply(pcs("d", hungry("a", 4, min_available=1), hungry("b", 4)))
        await world.available("d")
        await world.eventually(lambda: is_bound(world, 8))

        alone = [pod.spec.hostname for pod in await world.pods() if pod.spec.workload_ref is None]
        assert sorted(alone) == ["d-0-a-1", "d-0-a-2", "d-0-a-3"]
