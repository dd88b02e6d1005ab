"""Scaling a set, a group and a clique by their scale subresource: out, in, below the minimum, to zero and back."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.operating import World, condition

from grove.api.core import HorizontalPodAutoscaler, Pod, ResourceClaim, Service
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]

DEVICES: Json = {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "fake.example.com"}}]}}


async def test_a_set_scaled_out_gets_a_whole_new_replica(world: World) -> None:
    await world.apply(worked_example(replicas=1))
    await world.available("demo")
    before = {pod.metadata.uid for pod in await world.pods()}

    await world.scale(PodCliqueSet, "demo", 2)
    await world.available("demo", 2)

    assert await world.names(Service) == ["demo-0", "demo-1"]
    assert await world.names(PodGang) == [
        "demo-0",
        "demo-0-grp-0",
        "demo-0-grp-1",
        "demo-1",
        "demo-1-grp-0",
        "demo-1-grp-1",
    ]
    pods = await world.pods()
    assert len(pods) == 22
    assert before < {pod.metadata.uid for pod in pods}


async def test_a_set_scaled_in_loses_its_last_replica_with_everything_in_it(world: World) -> None:
    await world.apply(worked_example(replicas=2))
    await world.available("demo")
    kept = {pod.metadata.uid for pod in await world.pods() if pod.metadata.name.startswith("demo-0-")}

    await world.scale(PodCliqueSet, "demo", 1)

    async def gone() -> bool:
        return len(await world.pods()) == 11 and len(await world.names(PodGang)) == 3

    await world.eventually(gone)
    await world.quiet()
    assert await world.names(Service) == ["demo-0"]
    assert await world.names(PodCliqueScalingGroup) == ["demo-0-grp"]
    assert all(name.startswith("demo-0-") for name in await world.names(PodClique))
    assert await world.names(PodGang) == ["demo-0", "demo-0-grp-0", "demo-0-grp-1"]
    assert {pod.metadata.uid for pod in await world.pods()} == kept


@pytest.mark.real_in("test")
async def test_a_set_goes_to_zero_and_back(world: World) -> None:
    await world.apply(worked_example(replicas=1))
    await world.available("demo")

    await world.scale(PodCliqueSet, "demo", 0)

    async def empty() -> bool:
        return not await world.pods() and not await world.names(PodClique) and not await world.names(PodGang)

    await world.eventually(empty)
    pcs_ = await world.available("demo", 0)
    assert pcs_.status.replicas == 0
    assert pcs_.status.pod_gang_statuses == ()

    await world.scale(PodCliqueSet, "demo", 1)
    await world.available("demo", 1)
    assert len(await world.pods()) == 11


@pytest.mark.real_in("test")
async def test_a_group_scales_by_whole_replicas_each_a_gang_of_its_own(world: World) -> None:
    await world.apply(worked_example(replicas=1))
    await world.available("demo")

    await world.scale(PodCliqueScalingGroup, "demo-0-grp", 4)

    async def grown() -> bool:
        scaled = await world.get(PodCliqueScalingGroup, "demo-0-grp")
        return scaled.status.available_replicas == 4 and scaled.status.replicas == 4

    await world.eventually(grown)
    assert await world.names(PodGang) == ["demo-0", "demo-0-grp-0", "demo-0-grp-1", "demo-0-grp-2"]
    assert len(await world.pods()) == 14
    (lead,) = await world.pods("demo-0-grp-3-lead")
    assert lead.metadata.labels["grove.io/podgang"] == "demo-0-grp-2"

    await world.scale(PodCliqueScalingGroup, "demo-0-grp", 1)

    async def shrunk() -> bool:
        copies = [name for name in await world.names(PodClique) if "-grp-" in name]
        return (
            copies == ["demo-0-grp-0-lead", "demo-0-grp-0-work"]
            and await world.names(PodGang) == ["demo-0"]
            and len(await world.pods()) == 5
        )

    await world.eventually(shrunk)


async def test_a_group_goes_to_zero_and_back(world: World) -> None:
    await world.apply(worked_example(replicas=1))
    await world.available("demo")

    await world.scale(PodCliqueScalingGroup, "demo-0-grp", 0)

    async def only_routers() -> bool:
        return await world.hostnames() == ["demo-0-router-0", "demo-0-router-1"]

    await world.eventually(only_routers)
    await world.quiet()
    assert await world.names(PodGang) == ["demo-0"]
    (base,) = await world.list(PodGang)
    assert [one.name for one in base.spec.podgroups] == ["demo-0-router"]
    assert (await world.get(PodCliqueSet, "demo")).status.available_replicas == 1

    await world.scale(PodCliqueScalingGroup, "demo-0-grp", 3)
    await world.eventually(lambda: world.has_pods(11))
    await world.available("demo")
    assert await world.names(PodGang) == ["demo-0", "demo-0-grp-0", "demo-0-grp-1"]


@pytest.mark.simulated  # waits longer than a termination delay
async def test_a_group_below_its_minimum_has_what_was_asked_for_and_says_so(world: World) -> None:
    two = group("g", "w", replicas=3, min_available=2)
    await world.apply(pcs("low", clique("w", 1), groups=[two], termination_delay="1m"))
    await world.available("low")

    await world.scale(PodCliqueScalingGroup, "low-0-g", 1)

    async def limited() -> bool:
        found = await world.get(PodCliqueScalingGroup, "low-0-g")
        said = condition(found.status.conditions, "BelowMinAvailable")
        return said == ("True", "ReplicasBelowMinAvailable") and len(await world.pods()) == 1

    await world.eventually(limited)
    found = await world.get(PodCliqueScalingGroup, "low-0-g")
    assert condition(found.status.conditions, "MinAvailableBreached") == (
        "False",
        "SufficientAvailablePodCliqueScalingGroupReplicas",
    )
    await world.eventually(lambda: _says(world, "low-0-g", "ReplicasBelowMinAvailable"))
    pcs_ = await world.available("low")
    assert pcs_.status.gang_restarts == 0
    (gang,) = await world.list(PodGang)
    assert [one.name for one in gang.spec.podgroups] == ["low-0-g-0-w"]

    await asyncio.sleep(2 * 60)
    assert (await world.get(PodCliqueSet, "low")).status.gang_restarts == 0, "that is no breach"


async def test_a_parent_in_a_group_at_zero_is_not_waited_for(world: World) -> None:
    first = group("g", "first", replicas=1)
    order = "CliqueStartupTypeInOrder"
    await world.apply(pcs("o", clique("first"), clique("then", 2, min_available=1), groups=[first], startup=order))
    await world.available("o")
    before = await world.pods("o-0-then")
    assert [await _waits_for(world, pod) for pod in before] == [["--podcliques=o-0-g-0-first:1"]] * 2

    await world.scale(PodCliqueScalingGroup, "o-0-g", 0)
    await world.eventually(lambda: world.has_pods(2))
    await world.scale(PodClique, "o-0-then", 3)

    await world.eventually(lambda: _ready(world, "o-0-then", 3))
    old = {pod.metadata.uid for pod in before}
    (new,) = [pod for pod in await world.pods("o-0-then") if pod.metadata.uid not in old]
    assert await _waits_for(world, new) == []


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        pytest.param(PodClique, "o-0-first", id="the parent"),
        pytest.param(PodCliqueScalingGroup, "o-0-g", id="the parent's group"),
    ],
)
async def test_pods_that_wait_for_a_parent_start_when_it_goes_to_zero(
    world: World, kind: type[Object], parent: str
) -> None:
    first = [group("g", "first")] if kind is PodCliqueScalingGroup else []
    order = "CliqueStartupTypeInOrder"
    world.binder.allow(0)  # no pod becomes ready
    await world.apply(pcs("o", clique("first"), clique("then", 2), groups=first, startup=order))
    await world.eventually(lambda: world.has_pods(3))
    before = {pod.metadata.uid for pod in await world.pods()}

    await world.scale(kind, parent, 0)

    async def made_anew() -> bool:
        pods = await world.pods()
        return len(pods) == 2 and not before & {pod.metadata.uid for pod in pods}

    await world.eventually(made_anew)
    assert [await _waits_for(world, pod) for pod in await world.pods()] == [[], []]
    world.binder.allow(None)
    await world.available("o")


@pytest.mark.real_in("test")
async def test_a_clique_scales_and_its_gang_follows(world: World) -> None:
    await world.apply(pcs("one", clique("w", 2, min_available=1)))
    await world.available("one")

    await world.scale(PodClique, "one-0-w", 4)
    await world.eventually(lambda: _ready(world, "one-0-w", 4))
    await world.quiet()

    assert await world.hostnames() == ["one-0-w-0", "one-0-w-1", "one-0-w-2", "one-0-w-3"]
    (gang,) = await world.list(PodGang)
    assert gang.spec.podgroups[0].min_replicas == 1
    listed = {ref.name for ref in gang.spec.podgroups[0].pod_references}
    assert listed == {pod.metadata.name for pod in await world.pods()}

    await world.scale(PodClique, "one-0-w", 1)
    await world.eventually(lambda: _ready(world, "one-0-w", 1))
    await world.quiet()
    (gang,) = await world.list(PodGang)
    assert len(gang.spec.podgroups[0].pod_references) == 1


@pytest.mark.simulated  # waits longer than a termination delay
async def test_a_clique_below_its_minimum_has_what_was_asked_for_and_says_so(world: World) -> None:
    templates = [{"name": "gpu", "templateSpec": {"spec": DEVICES}}]
    shared = {"name": "gpu", "scope": "PerReplica"}
    workers = clique("w", 3, min_available=2, sharing=[shared])
    await world.apply(pcs("one", workers, resourceClaimTemplates=templates, termination_delay="1m"))
    await world.available("one")
    assert len(await world.names(ResourceClaim)) == 3

    await world.scale(PodClique, "one-0-w", 1)

    async def limited() -> bool:
        found = await world.get(PodClique, "one-0-w")
        said = condition(found.status.conditions, "BelowMinAvailable")
        return said == ("True", "ReplicasBelowMinAvailable") and len(await world.pods()) == 1

    await world.eventually(limited)
    found = await world.get(PodClique, "one-0-w")
    assert condition(found.status.conditions, "MinAvailableBreached") == ("False", "SufficientReadyPods")
    await world.eventually(lambda: _says(world, "one-0-w", "ReplicasBelowMinAvailable"))
    await world.available("one")
    assert len(await world.names(ResourceClaim)) == 1, "claims go with their pods"
    assert (await world.get(PodGang, "one-0")).spec.podgroups[0].min_replicas == 1

    await asyncio.sleep(2 * 60)
    assert (await world.get(PodCliqueSet, "one")).status.gang_restarts == 0, "that is no breach"

    await world.scale(PodClique, "one-0-w", 3)

    async def lifted() -> bool:
        now = await world.get(PodClique, "one-0-w")
        return condition(now.status.conditions, "BelowMinAvailable") is None and len(await world.pods()) == 3

    await world.eventually(lifted)


async def test_a_clique_goes_to_zero_and_back(world: World) -> None:
    await world.apply(pcs("two", clique("a", 1), clique("b", 2)))
    await world.available("two")

    await world.scale(PodClique, "two-0-b", 0)
    await world.eventually(lambda: _ready(world, "two-0-b", 0))
    await world.quiet()
    (gang,) = await world.list(PodGang)
    assert [one.name for one in gang.spec.podgroups] == ["two-0-a"]
    assert (await world.get(PodCliqueSet, "two")).status.available_replicas == 1

    await world.scale(PodClique, "two-0-b", 2)
    await world.eventually(lambda: _ready(world, "two-0-b", 2))
    await world.quiet()
    (gang,) = await world.list(PodGang)
    assert [one.name for one in gang.spec.podgroups] == ["two-0-a", "two-0-b"]


async def test_what_was_scaled_stays_scaled_when_the_set_changes(world: World) -> None:
    await world.apply(worked_example(replicas=1))
    await world.available("demo")
    await world.scale(PodCliqueScalingGroup, "demo-0-grp", 2)
    await world.scale(PodClique, "demo-0-router", 3)
    await world.eventually(lambda: world.has_pods(3 + 2 * 3))

    patch = {"spec": {"template": {"terminationDelay": "1h0m0s"}}}
    await world.client.patch(PodCliqueSet, "demo", patch, world.namespace)
    await world.available("demo")

    assert (await world.get(PodCliqueScalingGroup, "demo-0-grp")).spec.replicas == 2
    assert (await world.get(PodClique, "demo-0-router")).spec.replicas == 3
    assert len(await world.pods()) == 9


@pytest.mark.simulated
async def test_a_scale_that_the_watch_slept_through_is_not_hidden_by_a_status_of_ours(world: World) -> None:
    """The list that follows shows one version that holds both, and it is our own."""
    await world.apply(pcs("web", clique("w", 4, min_available=1)))
    await world.available("web")
    world.nodes.hold = lambda pod: True
    lost = (await world.pods())[0]
    await world.delete(Pod, lost.metadata.name, grace_period_s=0)  # progress, which is reported within a second
    await asyncio.sleep(0.3)
    before = world.writes()
    await world.operator.cache.stop()
    await world.scale(PodClique, "web-0-w", 6)
    await asyncio.sleep(2.0)
    assert (world.writes() - before)["patch", "podcliques/status"], "else nothing could hide the scale"
    await world.operator.cache.relist()

    async def scaled() -> bool:
        return len(await world.pods()) == 6

    await world.eventually(scaled, 10)


@pytest.mark.real_in("test")
async def test_autoscalers_are_made_for_what_has_a_scale_config(world: World) -> None:
    bounds = {"minReplicas": 2, "maxReplicas": 5}
    scaled = group("g", "m", replicas=2, scale={"minReplicas": 1, "maxReplicas": 4})
    await world.apply(pcs("auto", clique("w", 2, scale=bounds), clique("m"), groups=[scaled]))
    await world.available("auto")

    found = {
        one.metadata.name: (one.spec.scale_target_ref.kind, one.spec.min_replicas, one.spec.max_replicas)
        for one in await world.list(HorizontalPodAutoscaler)
    }
    assert found == {"auto-0-w": ("PodClique", 2, 5), "auto-0-g": ("PodCliqueScalingGroup", 1, 4)}
    scale = await world.client.get(PodClique.RESOURCE, "auto-0-w", world.namespace)
    assert scale["status"]["hpaPodSelector"] == (
        "app.kubernetes.io/managed-by=grove-operator,app.kubernetes.io/part-of=auto,grove.io/podclique=auto-0-w"
    )


async def _waits_for(world: World, pod: Pod) -> list[str]:
    raw = await world.client.get(Pod.RESOURCE, pod.metadata.name, world.namespace)
    return [arg for one in raw["spec"].get("initContainers") or () for arg in one["args"]]


async def _ready(world: World, clique_name: str, count: int) -> bool:
    found = await world.get(PodClique, clique_name)
    return found.status.ready_replicas == found.status.replicas == count == len(await world.pods(clique_name))


async def _says(world: World, about: str, reason: str) -> bool:
    return reason in await world.event_reasons(about)
