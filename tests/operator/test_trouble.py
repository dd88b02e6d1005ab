"""Refused writes: the operator reports them, tries again with a back-off, and recovers without help."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, condition
from tests.support.workloads import QUOTA, set_quota

from grove.api import labels
from grove.api.core import Pod, Service
from grove.api.meta import Json, find_condition
from grove.api.node import PriorityClass
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import Forbidden, Unavailable
from grove.operator.podclique.status import VANISHED_NODE_GRACE_S

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]


@pytest.mark.real_in("test")
async def test_a_full_quota_is_reported_and_heals(world: World) -> None:
    await set_quota(world, pods="1")
    await world.apply(pcs("big", clique("w", 3)))

    async def told() -> bool:
        found = await world.get(PodClique, "big-0-w")
        said = [(error.code, "exceeded quota" in error.description) for error in found.status.last_errors]
        return said == [("ERR_CREATE_POD", True)]  # "status unknown" is said first by a slow server

    await world.eventually(told)
    found = await world.get(PodClique, "big-0-w")
    assert found.status.last_operation is not None
    assert found.status.last_operation.state == "Error"
    assert condition(found.status.conditions, "MinAvailableBreached") == ("True", "ScheduledReplicasBelowMinAvailable")
    assert condition(found.status.conditions, "ReplicaFailure") == ("True", "FailedCreate")
    await world.event("big-0-w", "PodCreateFailed")
    await world.eventually(lambda: _set_repeats(world, "big", "PodClique big-0-w: "))
    gang = await world.eventually(lambda: _gang(world, "big-0"))
    assert condition(gang.status.conditions, "Initialized") == ("False", "PodGangPodsCreationPending")

    await world.client.patch(QUOTA, "limit", {"spec": {"hard": {"pods": "10"}}}, world.namespace)

    await world.available("big")
    found = await world.get(PodClique, "big-0-w")
    assert found.status.last_errors == ()
    assert found.status.last_operation is not None
    assert found.status.last_operation.state == "Succeeded"
    assert condition(found.status.conditions, "MinAvailableBreached") == ("False", "SufficientReadyPods")
    assert condition(found.status.conditions, "ReplicaFailure") is None
    whole = await world.get(PodCliqueSet, "big")
    assert (whole.status.last_errors, condition(whole.status.conditions, "ReplicaFailure")) == ((), None)
    assert await world.hostnames() == ["big-0-w-0", "big-0-w-1", "big-0-w-2"]


async def test_pods_above_the_minimum_that_are_refused_are_a_condition_too(world: World) -> None:
    await set_quota(world, pods="2")
    await world.apply(pcs("big", clique("w", 3, min_available=1)))

    async def told() -> bool:
        found = await world.get(PodClique, "big-0-w")
        return condition(found.status.conditions, "ReplicaFailure") == ("True", "FailedCreate")

    await world.eventually(told)
    await world.eventually(lambda: world.has_pods(2, "big-0-w"))


@pytest.mark.real_in("test")
async def test_a_priority_class_that_does_not_exist_is_the_reason_of_the_condition(world: World) -> None:
    name = f"{world.namespace}-later"
    await world.apply(pcs("ranked", clique("w"), priorityClassName=name))

    async def told() -> bool:
        parts = (await world.get(PodClique, "ranked-0-w"), await world.get(PodCliqueSet, "ranked"))
        said = [condition(one.status.conditions, "ReplicaFailure") for one in parts]
        return said == [("True", "PriorityClassNotFound")] * 2

    await world.eventually(told)
    await world.client.create(PriorityClass, {"metadata": {"name": name}, "value": 7})
    await world.available("ranked", timeout_s=90)
    found = await world.get(PodClique, "ranked-0-w")
    assert condition(found.status.conditions, "ReplicaFailure") is None


async def test_a_gang_that_lost_a_core_pod_for_now_is_no_longer_whole_and_says_so(world: World) -> None:
    await world.apply(pcs("one", clique("w", 2)))
    await world.available("one")
    (gang,) = await world.list(PodGang)
    assert condition(gang.status.conditions, "Initialized") == ("True", "PodGangPodsCreated")
    await set_quota(world, pods="1")

    await world.delete(Pod, (await world.pods())[0].metadata.name)

    await world.eventually(lambda: _gang_says(world, "one-0", "Initialized", ("False", "PodGangPodsCreationPending")))
    await world.client.patch(QUOTA, "limit", {"spec": {"hard": {"pods": "9"}}}, world.namespace)
    await world.eventually(lambda: _gang_says(world, "one-0", "Initialized", ("True", "PodGangPodsCreated")), 90)
    await world.available("one")


async def test_a_gang_whose_pods_are_refused_is_there_to_be_looked_at(world: World) -> None:
    await set_quota(world, pods="0")
    await world.apply(pcs("none", clique("w", 2)))

    gang = await world.eventually(lambda: _gang(world, "none-0"), 10)

    assert [(one.name, one.min_replicas, one.pod_references) for one in gang.spec.podgroups] == [("none-0-w", 2, ())]


async def test_a_full_quota_costs_one_request_a_try(world: World) -> None:
    await set_quota(world, pods="0")
    await world.apply(pcs("big", clique("w", 40)))
    await world.event("big-0-w", "PodCreateFailed")
    await world.cluster.settle(3.0)
    before, failed = world.writes()["create", "pods"], _failures("podclique-controller")

    await world.cluster.settle(8.0)

    async def asked_again() -> bool:
        return world.writes()["create", "pods"] > before

    await world.eventually(asked_again, 300)  # tries are up to a minute apart
    asked = world.writes()["create", "pods"] - before
    assert asked <= _failures("podclique-controller") - failed + 1, "one try may be under way"
    if world.cluster.is_sim:  # tries are further and further apart, by a clock that no other work holds up
        assert asked <= 4


def _failures(controller: str) -> float:
    """Reconciles that ended with an error, in this process."""
    found = REGISTRY.get_sample_value(
        "controller_runtime_reconcile_total", {"controller": controller, "result": "error"}
    )
    return found or 0.0


@pytest.mark.real_in("test")
async def test_a_template_that_is_refused_stops_only_its_own_clique(world: World) -> None:
    bad = clique("bad")
    bad["spec"]["podSpec"]["containers"][0]["image"] = ""
    await world.apply(pcs("mixed", bad, clique("good", 2)))

    async def told() -> bool:
        found = await world.get(PodClique, "mixed-0-bad")
        return [error.code for error in found.status.last_errors] == ["ERR_CREATE_POD"]

    await world.eventually(told)
    await world.eventually(lambda: world.has_pods(2, "mixed-0-good"))
    assert await world.pods("mixed-0-bad") == []


async def test_a_name_that_another_client_has_is_reported_not_taken_and_stops_nothing_else(world: World) -> None:
    meta = {"name": "theirs-0", "namespace": world.namespace}
    await world.client.create(Service, {"metadata": meta, "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    await world.apply(pcs("theirs", clique("w")))

    async def told() -> bool:
        found = await world.get(PodCliqueSet, "theirs")
        codes = [error.code for error in found.status.last_errors]
        return codes == ["ERR_SYNC_PODCLIQUESET_SERVICE"] and found.status.available_replicas == 1

    await world.eventually(told)
    assert (await world.get(Service, "theirs-0")).spec.selector == {"a": "b"}
    assert (await world.get(PodCliqueSet, "theirs")).status.observed_generation is None

    await world.delete(Service, "theirs-0")

    healed = await world.available("theirs")
    assert healed.status.last_errors == ()
    assert (await world.get(Service, "theirs-0")).spec.selector["app.kubernetes.io/part-of"] == "theirs"


@pytest.mark.simulated
async def test_a_name_that_another_client_has_keeps_no_other_replica_from_its_own(world: World) -> None:
    """Also one that comes when it was refused already."""
    meta = {"name": "theirs-0", "namespace": world.namespace}
    await world.client.create(Service, {"metadata": meta, "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    await world.apply(pcs("theirs", clique("w")))
    await world.cluster.settle(30.0)

    await world.scale(PodCliqueSet, "theirs", 3)

    async def made() -> bool:
        return await world.names(Service) == ["theirs-0", "theirs-1", "theirs-2"]

    await world.eventually(made)


@pytest.mark.simulated
async def test_a_refused_child_keeps_none_beside_it_waiting(world: World) -> None:
    """Nor two: whatever was refused is tried after the rest."""
    refused = {"web-0-w", "web-2-w"}
    create = world.operator_client.create

    async def deny(kind: type[Any], obj: Json, **options: Any) -> Any:
        if kind is PodClique and obj["metadata"]["name"] in refused:
            raise Forbidden("denied by a webhook")
        return await create(kind, obj, **options)

    world.operator_client.create = deny
    await world.apply(pcs("web", clique("w"), replicas=20))

    async def made() -> bool:
        return len(await world.names(PodClique)) == 18

    await world.eventually(made)
    refused.clear()
    await world.available("web", timeout_s=120)


@pytest.mark.simulated
async def test_a_pod_that_may_not_be_deleted_keeps_its_place_and_no_other_pod_from_going(world: World) -> None:
    await world.apply(pcs("web", clique("w", 6), clique("x"), termination_delay="5s"))
    await world.available("web")
    protected, *others = sorted(pod.metadata.name for pod in await world.pods("web-0-w"))
    delete = world.operator_client.delete

    async def deny(kind: type[Any], name: str, *where: Any, **options: Any) -> None:
        if kind is Pod and name == protected:
            raise Forbidden("denied by a webhook")
        await delete(kind, name, *where, **options)

    world.operator_client.delete = deny
    world.binder.allow(0)
    (lost,) = await world.pods("web-0-x")
    await world.delete(Pod, lost.metadata.name, grace_period_s=0)

    async def restarted() -> bool:
        return not {pod.metadata.name for pod in await world.pods("web-0-w")} & set(others)

    await world.eventually(restarted)
    await world.cluster.settle(60.0)
    assert await world.hostnames("web-0-w") == [f"web-0-w-{index}" for index in range(6)]
    assert protected in {pod.metadata.name for pod in await world.pods("web-0-w")}

    world.operator_client.delete = delete
    world.binder.allow(None)
    await world.available("web", timeout_s=120)
    assert protected not in {pod.metadata.name for pod in await world.pods("web-0-w")}


@pytest.mark.simulated
async def test_pods_of_a_vanished_node_are_given_up_in_time_while_another_pod_is_refused(world: World) -> None:
    """It is tried again every minute by now; what stood on the node does not wait for that."""
    await set_quota(world, pods="3")
    await world.apply(pcs("big", clique("w", 4, min_available=1)))
    await world.cluster.settle(400.0)
    lost = (await world.pods())[0].spec.node_name

    await world.nodes.remove_node(lost)
    await world.cluster.settle(VANISHED_NODE_GRACE_S + 1.0)

    assert lost not in {pod.spec.node_name for pod in await world.pods()}


@pytest.mark.simulated
async def test_trouble_that_lasts_is_reported_once_with_the_time_it_began(world: World) -> None:
    """At every level: it is tried again and again, and nothing is written about it."""
    theirs = {"name": "long-0", "namespace": world.namespace}
    await world.client.create(Service, {"metadata": theirs, "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    spec = {"roleName": "m", "replicas": 0, "minAvailable": 1, "podSpec": {"containers": [{"name": "c", "image": "i"}]}}
    await world.client.create(PodClique, {"metadata": {**theirs, "name": "long-0-g-1-m"}, "spec": spec})
    await world.apply(pcs("long", clique("w"), clique("m"), groups=[group("g", "m", replicas=2)]))
    objects: list[tuple[type[Any], str]] = [(PodCliqueSet, "long"), (PodCliqueScalingGroup, "long-0-g")]

    async def failures() -> list[Any]:
        found = [(await world.get(kind, name)).status.conditions for kind, name in objects]
        return [one for conditions in found if (one := find_condition(conditions, "ReplicaFailure")) is not None]

    async def told() -> bool:
        return len(await failures()) == 2

    await world.eventually(told)
    await world.cluster.settle(60.0)
    before, written = await failures(), world.writes()

    await world.cluster.settle(600.0)

    assert await failures() == before
    said = world.writes() - written
    assert not said["patch", "podcliquesets/status"]
    assert not said["patch", "podcliquescalinggroups/status"]


async def test_a_gang_name_that_another_set_has_is_reported(world: World) -> None:
    await world.apply(pcs("a-0-g", clique("w")))  # its base gang is a-0-g-0, as is the first scaled gang of the next
    await world.available("a-0-g")
    await world.apply(pcs("a", clique("m"), groups=[group("g", "m", replicas=2)]))

    async def told() -> bool:
        found = await world.get(PodCliqueSet, "a")
        return [error.code for error in found.status.last_errors] == ["ERR_CREATE_OR_PATCH_PODGANG"]

    await world.eventually(told)
    await world.event("a", "PodGangCreateOrUpdateFailed")
    found = await world.get(PodCliqueSet, "a")
    assert condition(found.status.conditions, "ReplicaFailure") == ("True", "FailedCreate")
    assert found.status.last_errors[0].description == (
        "PodGang a-0-g-0: PodGang a-0-g-0 exists and does not belong to a"
    )

    await world.delete(PodCliqueSet, "a-0-g")
    healed = await world.available("a", timeout_s=120)
    assert healed.status.last_errors == ()
    assert (await world.get(PodGang, "a-0-g-0")).metadata.labels["app.kubernetes.io/part-of"] == "a"


@pytest.mark.parametrize(
    ("theirs", "ours", "name"),
    [
        pytest.param(pcs("a-0", clique("w", 2)), pcs("a", clique("0-w", 2)), "PodClique a-0-0-w", id="a clique"),
        pytest.param(
            pcs("a-0", clique("w", 2), groups=[group("g", "w", replicas=2)]),
            pcs("a", clique("w", 2), groups=[group("0-g", "w", replicas=3)]),
            "PodCliqueScalingGroup a-0-0-g",
            id="a scaling group",
        ),
        pytest.param(
            pcs("a-0", clique("w", 2), groups=[group("g", "w", replicas=2)]),
            pcs("a", clique("0-g-0-w", 2)),
            "PodClique a-0-0-g-0-w",
            id="a clique of a scaling group",
        ),
    ],
)
async def test_names_that_another_set_has_are_reported_and_left_alone(
    world: World, theirs: Json, ours: Json, name: str
) -> None:
    await world.apply(theirs)
    await world.available("a-0")
    stood = {pod.metadata.uid for pod in await world.pods()}

    await world.apply(ours)

    async def told() -> bool:
        found = await world.get(PodCliqueSet, "a")
        described = [error.description for error in found.status.last_errors]
        return any(one.endswith(f"{name} exists and does not belong to a") for one in described)

    await world.eventually(told)
    await world.cluster.settle(60.0 if world.cluster.is_sim else 3.0)
    found = await world.get(PodCliqueSet, "a")
    assert condition(found.status.conditions, "ReplicaFailure") == ("True", "FailedCreate")
    assert found.status.available_replicas == 0
    pods = await world.pods()
    assert {pod.metadata.uid for pod in pods if pod.metadata.labels[labels.PART_OF] == "a-0"} == stood
    mine = {pod.metadata.name for pod in pods if pod.metadata.labels[labels.PART_OF] == "a"}
    gangs = (await world.client.list(PodGang, world.namespace)).items
    for gang in (one for one in gangs if one.metadata.labels[labels.PART_OF] == "a"):
        assert {ref.name for part in gang.spec.podgroups for ref in part.pod_references} <= mine
    assert (await world.get(PodCliqueSet, "a-0")).status.available_replicas == 1

    await world.delete(PodCliqueSet, "a")
    await world.eventually(lambda: _is_gone(world, "a"))
    assert {pod.metadata.uid for pod in await world.pods()} == stood


async def test_a_scheduler_that_is_not_enabled_is_reported(world: World) -> None:
    await world.apply(pcs("odd", clique("w"), scheduler="someone-else"))

    async def told() -> bool:
        found = await world.get(PodCliqueSet, "odd")
        return any("not enabled" in error.description for error in found.status.last_errors)

    await world.eventually(told)
    assert await world.pods() == []


async def _is_gone(world: World, name: str) -> bool:
    found = await world.client.list(PodCliqueSet, world.namespace)
    return name not in [one.metadata.name for one in found.items]


async def _gang(world: World, name: str) -> PodGang | None:
    gang = await world.get(PodGang, name)
    return gang if gang.status.conditions else None


async def _set_repeats(world: World, name: str, words: str) -> bool:
    found = await world.get(PodCliqueSet, name)
    told = condition(found.status.conditions, "ReplicaFailure") == ("True", "FailedCreate")
    return told and [error.description.startswith(words) for error in found.status.last_errors] == [True]


async def _gang_says(world: World, name: str, type_: str, said: tuple[str, str]) -> bool:
    return condition((await world.get(PodGang, name)).status.conditions, type_) == said


@pytest.mark.simulated
async def test_what_a_replica_lost_while_it_was_on_its_way_out_comes_back_with_it(world: World) -> None:
    """It could not be deleted for a while, and was wanted again before it was."""
    in_order = "CliqueStartupTypeInOrder"
    await world.apply(pcs("back", clique("a"), clique("w", 2), replicas=2, startup=in_order))
    await world.available("back")

    async def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("not now")

    client = world.operator_client
    delete, delete_collection = client.delete, client.delete_collection
    client.delete = client.delete_collection = refuse
    await world.scale(PodCliqueSet, "back", 1)
    await world.cluster.settle()
    lost = (await world.pods("back-1-w"))[0]
    await world.delete(Pod, lost.metadata.name)
    await world.cluster.settle(40.0)
    await world.scale(PodCliqueSet, "back", 2)
    client.delete, client.delete_collection = delete, delete_collection

    await world.available("back")
    assert len(await world.pods("back-1-w")) == 2


@pytest.mark.simulated
async def test_a_pod_that_flaps_costs_few_writes_and_the_last_word_is_reported(world: World) -> None:
    await world.apply(pcs("flap", clique("w", 1), replicas=2))
    await world.available("flap")
    await asyncio.sleep(120)
    (pod, *_) = await world.pods("flap-0-w")
    before = world.writes()["patch", "podcliquesets/status"]
    for _ in range(100):
        for ready in (False, True):
            await world.nodes.set_ready(world.namespace, pod.metadata.name, ready)
            await asyncio.sleep(0.5)
    assert world.writes()["patch", "podcliquesets/status"] - before <= 25

    await world.nodes.set_ready(world.namespace, pod.metadata.name, False)
    await asyncio.sleep(11)
    assert (await world.get(PodCliqueSet, "flap")).status.available_replicas == 1
    await asyncio.sleep(61)
    await world.nodes.set_ready(world.namespace, pod.metadata.name, True)
    await asyncio.sleep(1)
    assert (await world.get(PodCliqueSet, "flap")).status.available_replicas == 2, "after a calm minute at once"
