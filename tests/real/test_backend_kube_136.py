"""kube-scheduler 1.36 with gangs: Workload and PodGroups, proven on a real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.kube_gangs import PER_CLIQUE, bound, gang_plane, gang_said, gang_world, hungry, is_bound, objects, occupy
from tests.manifests import group, pcs

from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang
from grove.backends.kube_api import V1ALPHA2, pod_group, workload
from grove.local.controlplane import ControlPlane

pytestmark = pytest.mark.real
WORKLOAD, POD_GROUP = workload(V1ALPHA2), pod_group(V1ALPHA2)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with gang_plane(tmp_path_factory.mktemp("gangs-1.36"), "1.36.3") as plane:
        yield plane


async def test_a_gang_that_fits_is_bound_whole_and_its_objects_are_exact(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.available("d")

        gang = await world.get(PodGang, "d-0")
        assert gang.metadata.annotations["grove.io/gang-mapping"] == "v1alpha2/Merged"
        assert await gang_said(world, "d-0", "SchedulerObjectsReady") == ("True", "Told")
        (told,) = (await objects(world, WORKLOAD)).values()
        assert told["metadata"]["name"] == "d-0"
        assert told["spec"] == {
            "controllerRef": {"apiGroup": "grove.io", "kind": "PodCliqueSet", "name": "d"},
            "podGroupTemplates": [{"name": "core", "schedulingPolicy": {"gang": {"minCount": 12}}}],
        }
        (made,) = (await objects(world, POD_GROUP)).values()
        assert made["metadata"]["name"] == "d-0"
        assert made["spec"] == {
            "podGroupTemplateRef": {"workload": {"workloadName": "d-0", "podGroupTemplateName": "core"}},
            "schedulingPolicy": {"gang": {"minCount": 12}},
            "disruptionMode": "Pod",  # the server's default
        }
        owners = [(one["kind"], one["name"], one.get("controller")) for one in made["metadata"]["ownerReferences"]]
        assert owners == [("PodGang", "d-0", True), ("Workload", "d-0", None)]
        for pod in await world.pods():
            assert pod.spec.scheduling_group == {"podGroupName": "d-0"}
        (condition,) = [c for c in made["status"]["conditions"] if c["type"] == "PodGroupScheduled"]
        assert condition["status"] == "True"


async def test_eleven_places_for_twelve_pods_bind_none_and_one_more_binds_all(
    plane: ControlPlane, fresh_name: str
) -> None:
    async with gang_world(plane, fresh_name) as world:
        await occupy(world, "filler", 1)
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))

        async def refused() -> bool:
            found = (await objects(world, POD_GROUP)).get("d-0", {})
            said = {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
            return said.get("PodGroupScheduled", {}).get("reason") == "Unschedulable"

        await world.eventually(refused)
        for _ in range(10):
            assert await bound(world) == 0
            await asyncio.sleep(0.5)
        assert await gang_said(world, "d-0", "Scheduled") == ("False", "MinimumNotPlaced")

        await world.client.delete(Pod, "filler", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), 30)


async def test_with_a_group_a_clique_each_stands_for_itself(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name, config=PER_CLIQUE) as world:
        await occupy(world, "filler", 1)
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))

        await world.eventually(lambda: _one_of_two(world), 60)
        await asyncio.sleep(3)
        assert await _one_of_two(world)

        found = await objects(world, POD_GROUP)
        assert {name: one["spec"]["schedulingPolicy"]["gang"]["minCount"] for name, one in found.items()} == {
            "d-0-d-0-prefill": 4,
            "d-0-d-0-decode": 8,
        }
        assert await gang_said(world, "d-0", "Scheduled") == ("False", "MinimumNotPlaced")


async def _one_of_two(world: object) -> bool:
    counts = [await bound(world, name) for name in ("d-0-prefill", "d-0-decode")]  # type: ignore[arg-type]
    return counts in ([4, 0], [0, 8])


async def test_two_gangs_and_room_for_one_run_one(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        for name in ("a", "b"):
            await world.apply(pcs(name, hungry("x", 4), hungry("y", 8)))

        await world.eventually(lambda: is_bound(world, 12), 60)

        await asyncio.sleep(3)
        counts = sorted([await bound(world, "a-0-x", "a-0-y"), await bound(world, "b-0-x", "b-0-y")])
        assert counts == [0, 12]


async def test_surplus_waits_for_the_gang_and_follows_it(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await occupy(world, "filler", 4)
        await world.apply(pcs("d", hungry("a", 4, min_available=1), hungry("b", 8)))
        await world.eventually(lambda: _gated(world, 3))
        assert await bound(world) == 0

        await world.client.delete(Pod, "filler", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), 30)

        alone = [pod.spec.hostname for pod in await world.pods() if pod.spec.scheduling_group is None]
        assert sorted(alone) == ["d-0-a-1", "d-0-a-2", "d-0-a-3"]


async def _gated(world: object, count: int) -> bool:
    pods = await world.pods()  # type: ignore[attr-defined]
    return len(pods) == 13 and sum(pod.is_gated for pod in pods) == count


async def test_scaling_out_and_in_changes_no_object_of_the_gang(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await world.apply(pcs("d", hungry("a", 2), hungry("b", 2)))
        await world.available("d")
        before = {name: one["metadata"]["resourceVersion"] for name, one in (await objects(world, POD_GROUP)).items()}

        await world.scale(PodClique, "d-0-a", 5)
        await world.eventually(lambda: is_bound(world, 7))
        await world.scale(PodClique, "d-0-a", 2)
        await world.eventually(lambda: _has(world, 4))
        await world.quiet()

        assert await world.hostnames("d-0-a") == ["d-0-a-0", "d-0-a-1"]
        after = {name: one["metadata"]["resourceVersion"] for name, one in (await objects(world, POD_GROUP)).items()}
        assert after == before


async def _has(world: object, count: int) -> bool:
    return len(await world.pods()) == count  # type: ignore[attr-defined]


async def test_replacements_come_back_together_or_not_at_all(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name) as world:
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.available("d")
        victims = (await world.pods("d-0-decode"))[:2]
        for pod in victims:
            await world.client.delete(Pod, pod.metadata.name, fresh_name, grace_period_s=0)
        await occupy(world, "thief", 1)

        await world.eventually(lambda: _has(world, 12 + 1))
        await asyncio.sleep(4)
        assert await bound(world) == 10

        await world.client.delete(Pod, "thief", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), 30)


async def test_a_copy_above_the_minimum_is_a_gang_of_its_own_and_comes_after(
    plane: ControlPlane, fresh_name: str
) -> None:
    async with gang_world(plane, fresh_name) as world:
        copies = group("g", "lead", "work", replicas=3)
        await world.apply(pcs("d", hungry("lead", 1), hungry("work", 3), groups=[copies]))
        await world.available("d")

        found = await objects(world, POD_GROUP)
        assert {name: one["spec"]["schedulingPolicy"]["gang"]["minCount"] for name, one in found.items()} == {
            "d-0": 4,
            "d-0-g-0": 4,
            "d-0-g-1": 4,
        }


async def test_deleted_objects_come_back_and_a_foreign_one_keeps_the_gates(
    plane: ControlPlane, fresh_name: str
) -> None:
    async with gang_world(plane, fresh_name) as world:
        foreign = {"metadata": {"name": "d-0", "namespace": fresh_name}}
        template = {"name": "x", "schedulingPolicy": {"gang": {"minCount": 1}}}
        await world.client.create(WORKLOAD, {**foreign, "spec": {"podGroupTemplates": [template]}})
        await world.apply(pcs("d", hungry("a", 2), hungry("b", 2)))

        await world.eventually(lambda: _said(world, "d-0", ("False", "NameConflict")))
        await asyncio.sleep(1)
        assert [pod.is_gated for pod in await world.pods()] == [True] * 4

        await world.client.delete(WORKLOAD, "d-0", fresh_name)
        await world.eventually(lambda: is_bound(world, 4), 60)
        await world.client.delete(WORKLOAD, "d-0", fresh_name)
        await world.eventually(lambda: _there(world))


async def _said(world: object, gang: str, want: tuple[str, str]) -> bool:
    return await gang_said(world, gang, "SchedulerObjectsReady") == want  # type: ignore[arg-type]


async def _there(world: object) -> bool:
    return "d-0" in await objects(world, WORKLOAD)  # type: ignore[arg-type]


async def test_nine_cliques_are_standalone_groups(plane: ControlPlane, fresh_name: str) -> None:
    async with gang_world(plane, fresh_name, config=PER_CLIQUE) as world:
        await world.apply(pcs("d", *(hungry(f"c{n}", 1) for n in range(9))))
        await world.available("d")

        assert await objects(world, WORKLOAD) == {}
        found = await objects(world, POD_GROUP)
        assert len(found) == 9
        assert all("podGroupTemplateRef" not in one["spec"] for one in found.values())


async def test_a_group_that_somebody_deletes_serves_until_its_pods_are_gone(
    plane: ControlPlane, fresh_name: str
) -> None:
    async with gang_world(plane, fresh_name) as world:
        await occupy(world, "filler", 4)
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.eventually(lambda: _released(world))

        await world.client.delete(POD_GROUP, "d-0", fresh_name)
        (left,) = (await objects(world, POD_GROUP)).values()
        assert left["metadata"]["deletionTimestamp"]
        assert left["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]

        await world.client.delete(Pod, "filler", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), 30)


async def _released(world: object) -> bool:
    pods = await world.pods()  # type: ignore[attr-defined]
    return len(pods) == 13 and not any(pod.is_gated for pod in pods)
