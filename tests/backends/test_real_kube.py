"""kube-scheduler with gangs, proven on real control planes: 1.35 (groups inside a Workload) and 1.36 (PodGroups)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.support.kube_gangs import (
    NEWEST_FIRST,
    PER_CLIQUE,
    GangPlane,
    bindings_within,
    bound,
    gang_said,
    gang_world,
    group_said,
    hungry,
    is_bound,
    objects,
    occupy,
    released,
    says,
)
from tests.support.manifests import group, pcs
from tests.support.operating import World

from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang
from grove.backends.kube_api import V1ALPHA1, V1ALPHA2, pod_group, workload

pytestmark = pytest.mark.real


class Facts(NamedTuple):
    """What differs between the versions."""

    api: str
    field: str
    delay_s: float
    """How long a gang may wait once there is capacity.

    1.36 tries again after ten seconds at most, 1.35 holds places for up to five minutes.
    """


FACTS = {"1.35.4": Facts(V1ALPHA1, "workloadRef", 300.0), "1.36.3": Facts(V1ALPHA2, "schedulingGroup", 12.0)}
WATCHED = [pytest.param(3.0, id="for a moment"), pytest.param(60.0, id="for a minute", marks=pytest.mark.soak)]


@pytest.fixture
def facts(gangs: GangPlane) -> Facts:
    return FACTS[gangs.version]


def references(pods: list[Pod]) -> list[Json | None]:
    return [pod.spec.scheduling_group or pod.spec.workload_ref for pod in pods]


async def minima(world: World, facts: Facts) -> dict[str, int]:
    """The minimum of each group in the scheduler's objects, by its name."""
    if facts.api == V1ALPHA2:
        found = await objects(world, pod_group(V1ALPHA2))
        return {name: one["spec"]["schedulingPolicy"]["gang"]["minCount"] for name, one in found.items()}
    told = (await objects(world, workload(V1ALPHA1))).items()
    return {
        f"{name}/{one['name']}": one["policy"]["gang"]["minCount"]
        for name, whole in told
        for one in whole["spec"]["podGroups"]
    }


def owners(obj: Json) -> list[tuple[Any, ...]]:
    found = obj["metadata"]["ownerReferences"]
    return [(one["kind"], one["name"], one.get("controller"), one.get("blockOwnerDeletion")) for one in found]


async def test_a_gang_that_fits_is_bound_whole_and_its_objects_are_exact(
    gangs: GangPlane, facts: Facts, fresh_name: str
) -> None:
    async with gang_world(gangs, fresh_name) as world:
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.available("d")

        gang = await world.get(PodGang, "d-0")
        assert gang.metadata.annotations["grove.io/gang-mapping"] == f"{facts.api}/Merged"
        assert await gang_said(world, "d-0", "SchedulerObjectsReady") == ("True", "Told")
        ((name, told),) = (await objects(world, workload(facts.api))).items()
        controller = {"apiGroup": "grove.io", "kind": "PodCliqueSet", "name": "d"}
        assert (name, told["spec"].pop("controllerRef")) == ("d-0", controller)
        assert owners(told) == [("PodGang", "d-0", True, False)]
        member: Json = {"name": "d-0", "podGroup": "core"}
        if facts.api == V1ALPHA1:
            assert told["spec"] == {"podGroups": [{"name": "core", "policy": {"gang": {"minCount": 12}}}]}
        else:
            member = {"podGroupName": "d-0"}
            template = {"name": "core", "schedulingPolicy": {"gang": {"minCount": 12}}}
            assert told["spec"] == {"podGroupTemplates": [template]}
            ((name, made),) = (await objects(world, pod_group(V1ALPHA2))).items()
            assert name == "d-0"
            assert made["spec"] == {
                "podGroupTemplateRef": {"workload": {"workloadName": "d-0", "podGroupTemplateName": "core"}},
                "schedulingPolicy": {"gang": {"minCount": 12}},
                "disruptionMode": "Pod",  # the server's default
            }
            assert owners(made) == [("PodGang", "d-0", True, False), ("Workload", "d-0", None, None)]
            await world.eventually(lambda: group_said(world, "d-0", "True"))
        assert references(await world.pods()) == [member] * 12


@pytest.mark.parametrize("watched_s", WATCHED)
async def test_eleven_places_for_twelve_pods_bind_none_and_one_more_binds_all(
    gangs: GangPlane, facts: Facts, fresh_name: str, watched_s: float
) -> None:
    async with gang_world(gangs, fresh_name) as world:
        await occupy(world, "filler", 1)
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.eventually(lambda: released(world, "d-0-prefill", "d-0-decode", count=12))

        assert await bindings_within(world, watched_s) == []
        assert await bound(world) == 0
        await world.eventually(lambda: says(world, "d-0", "False", "MinimumNotPlaced", "Scheduled"))
        if facts.api == V1ALPHA2:
            assert await world.eventually(lambda: group_said(world, "d-0", "False")) == "Unschedulable"

        await world.client.delete(Pod, "filler", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), facts.delay_s)  # measured: under a second on both


@NEWEST_FIRST
async def test_with_a_group_a_clique_each_stands_for_itself(gangs: GangPlane, facts: Facts, fresh_name: str) -> None:
    async with gang_world(gangs, fresh_name, config=PER_CLIQUE) as world:
        await occupy(world, "filler", 1)
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))

        async def one_of_two() -> bool:
            return [await bound(world, name) for name in ("d-0-prefill", "d-0-decode")] in ([4, 0], [0, 8])

        await world.eventually(one_of_two)
        assert await bindings_within(world, 3) == []
        told = await minima(world, facts)
        separator = "/" if facts.api == V1ALPHA1 else "-"
        assert told == {f"d-0{separator}d-0-prefill": 4, f"d-0{separator}d-0-decode": 8}
        await world.eventually(lambda: says(world, "d-0", "False", "MinimumNotPlaced", "Scheduled"))


@NEWEST_FIRST
async def test_surplus_waits_for_the_gang_and_follows_it(gangs: GangPlane, fresh_name: str) -> None:
    async with gang_world(gangs, fresh_name) as world:
        await occupy(world, "filler", 4)
        await world.apply(pcs("d", hungry("a", 4, min_available=1), hungry("b", 8)))

        async def three_are_held() -> bool:
            pods = await world.pods("d-0-a") + await world.pods("d-0-b")
            return len(pods) == 12 and sum(pod.is_gated for pod in pods) == 3

        await world.eventually(three_are_held)
        assert await bound(world) == 0

        await world.client.delete(Pod, "filler", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), 60)
        pods = await world.pods("d-0-a")
        alone = [pod.spec.hostname for pod in pods if references([pod]) == [None]]
        assert sorted(alone) == ["d-0-a-1", "d-0-a-2", "d-0-a-3"]


@NEWEST_FIRST
async def test_scaling_out_and_in_changes_no_object_of_the_gang(
    gangs: GangPlane, facts: Facts, fresh_name: str
) -> None:
    async def versions() -> dict[str, str]:
        kinds = (workload(facts.api),) if facts.api == V1ALPHA1 else (workload(facts.api), pod_group(facts.api))
        return {
            f"{kind.kind} {name}": one["metadata"]["resourceVersion"]
            for kind in kinds
            for name, one in (await objects(world, kind)).items()
        }

    async with gang_world(gangs, fresh_name) as world:
        await world.apply(pcs("d", hungry("a", 2), hungry("b", 2)))
        await world.available("d")
        if facts.api == V1ALPHA2:
            await world.eventually(lambda: group_said(world, "d-0", "True"))
        before = await versions()

        await world.scale(PodClique, "d-0-a", 5)
        await world.eventually(lambda: is_bound(world, 7))
        await world.scale(PodClique, "d-0-a", 2)
        await world.eventually(lambda: is_bound(world, 4))
        await world.quiet()

        assert await world.hostnames("d-0-a") == ["d-0-a-0", "d-0-a-1"]
        assert await versions() == before


@pytest.mark.parametrize("watched_s", WATCHED)
async def test_replacements_come_back_together_or_not_at_all(
    gangs: GangPlane, facts: Facts, fresh_name: str, watched_s: float
) -> None:
    async with gang_world(gangs, fresh_name) as world:
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.available("d")
        victims = (await world.pods("d-0-decode"))[:2]
        await world.stop()  # or the two might be back before the thief is there
        for pod in victims:
            await world.client.delete(Pod, pod.metadata.name, fresh_name, grace_period_s=0)
        await occupy(world, "thief", 1)
        await world.start()

        await world.eventually(lambda: released(world, "d-0-prefill", "d-0-decode", count=12))
        assert await bindings_within(world, watched_s) == []
        assert await bound(world) == 10

        await world.client.delete(Pod, "thief", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12), facts.delay_s)


@NEWEST_FIRST
async def test_a_copy_above_the_minimum_is_a_gang_of_its_own_and_comes_after(
    gangs: GangPlane, facts: Facts, fresh_name: str
) -> None:
    async with gang_world(gangs, fresh_name) as world:
        copies = group("g", "lead", "work", replicas=3)
        await world.apply(pcs("d", hungry("lead", 1), hungry("work", 3), groups=[copies]))
        await world.ready(12)

        core = "/core" if facts.api == V1ALPHA1 else ""
        assert await minima(world, facts) == {f"d-0{core}": 4, f"d-0-g-0{core}": 4, f"d-0-g-1{core}": 4}


async def test_nine_cliques_are_more_than_a_workload_holds(gangs: GangPlane, facts: Facts, fresh_name: str) -> None:
    async with gang_world(gangs, fresh_name, config=PER_CLIQUE) as world:
        await world.apply(pcs("d", *(hungry(f"c{n}", 1) for n in range(9))))
        await world.available("d")

        if facts.api == V1ALPHA1:  # one group for all of them
            assert await minima(world, facts) == {"d-0/core": 9}
            return
        assert await objects(world, workload(V1ALPHA2)) == {}
        found = await objects(world, pod_group(V1ALPHA2))
        assert sorted(found) == [f"d-0-d-0-c{n}" for n in range(9)]
        assert all("podGroupTemplateRef" not in one["spec"] for one in found.values())


async def test_a_foreign_object_keeps_the_gates_and_a_deleted_one_comes_back(
    gangs: GangPlane, facts: Facts, fresh_name: str
) -> None:
    async with gang_world(gangs, fresh_name) as world:
        kind = workload(facts.api)
        foreign: Json = {"metadata": {"name": "d-0", "namespace": fresh_name}}
        gang = {"gang": {"minCount": 1}}
        groups = {
            V1ALPHA1: {"podGroups": [{"name": "x", "policy": gang}]},
            V1ALPHA2: {"podGroupTemplates": [{"name": "x", "schedulingPolicy": gang}]},
        }
        await world.client.create(kind, {**foreign, "spec": groups[facts.api]})
        await world.apply(pcs("d", hungry("a", 2), hungry("b", 2)))

        await world.eventually(lambda: says(world, "d-0", "False", "NameConflict"))
        await world.event("d", "NameConflict")

        async def four_are_held() -> bool:
            return [pod.is_gated for pod in await world.pods()] == [True] * 4

        await world.eventually(four_are_held)

        await world.client.delete(kind, "d-0", fresh_name)
        await world.eventually(lambda: is_bound(world, 4))
        await world.client.delete(kind, "d-0", fresh_name)

        async def there() -> bool:
            found = (await objects(world, kind)).get("d-0")
            return found is not None and owners(found) == [("PodGang", "d-0", True, False)]

        await world.eventually(there)
