"""A deleted set leaves nothing behind, however it is deleted, and its name can be used again at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.operating import World

from grove.api import labels
from grove.api.core import (
    ControllerRevision,
    HorizontalPodAutoscaler,
    Pod,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]

EVERYTHING: tuple[type[Object], ...] = (
    PodCliqueSet,
    PodCliqueScalingGroup,
    PodClique,
    PodGang,
    Pod,
    Service,
    Secret,
    Role,
    RoleBinding,
    HorizontalPodAutoscaler,
)


async def left(world: World) -> list[str]:
    found = [f"{kind.__name__}/{one.metadata.name}" for kind in EVERYTHING for one in await world.list(kind)]
    accounts = [one.metadata.name for one in await world.list(ServiceAccount) if one.metadata.name != "default"]
    return found + accounts


@pytest.mark.real_in("test")
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_nothing_is_left_of_a_deleted_set(world: World, propagation: str) -> None:
    scaled = {"minReplicas": 1, "maxReplicas": 2}
    await world.apply(worked_example())
    await world.apply(pcs("auto", clique("w", scale=scaled)))
    await world.available("demo")
    await world.available("auto")

    await world.delete(PodCliqueSet, "demo", propagation=propagation)
    await world.delete(PodCliqueSet, "auto", propagation=propagation)

    async def nothing() -> bool:
        return await left(world) == []

    await world.eventually(nothing, 90)


@pytest.mark.real_in("test")
async def test_a_set_deleted_and_made_again_at_once_comes_up_again(world: World) -> None:
    await world.apply(worked_example(replicas=1))
    first = await world.available("demo")
    old = {pod.metadata.uid for pod in await world.pods()}

    await world.delete(PodCliqueSet, "demo")

    async def made_again() -> bool:
        await world.apply(worked_example(replicas=1))
        return True

    await world.eventually(made_again)  # refused only while the old set still has its finalizer

    async def anew() -> bool:
        second = await world.get(PodCliqueSet, "demo")
        return second.metadata.uid != first.metadata.uid and second.status.available_replicas == 1

    await world.eventually(anew, 90)
    await world.ready(11)
    await world.quiet()
    pods = await world.pods()
    assert not old & {pod.metadata.uid for pod in pods}
    second = await world.get(PodCliqueSet, "demo")
    assert second.status.last_errors == ()
    assert not [reason for reason in await world.event_reasons("demo") if reason.endswith("Failed")]
    for gang in await world.list(PodGang):
        assert gang.metadata.owner_references[0].uid == second.metadata.uid


async def test_a_set_deleted_while_its_operator_was_away_is_finished_later(world: World) -> None:
    await world.apply(worked_example(replicas=1))
    await world.available("demo")
    await world.stop()

    await world.delete(PodCliqueSet, "demo")
    assert (await world.get(PodCliqueSet, "demo")).metadata.is_deleting
    await world.start()

    async def nothing() -> bool:
        return await left(world) == []

    await world.eventually(nothing, 90)


@pytest.mark.real_in("test")
@pytest.mark.parametrize("away", [False, True], ids=["the operator at work", "the operator away until it is settled"])
async def test_pods_of_a_set_deleted_without_its_children_stay(world: World, away: bool) -> None:
    await world.apply(pcs("kept", clique("w", 2)))
    await world.available("kept")
    before = {pod.metadata.uid for pod in await world.pods()}
    await world.delete_without_children("kept", away=away)
    assert {pod.metadata.uid for pod in await world.pods()} == before
    for kind in (PodClique, PodGang, Pod):
        await world.client.delete_collection(kind, world.namespace)


@pytest.mark.parametrize("changed", [False, True], ids=["as it was", "with another template"])
async def test_a_set_made_again_takes_on_what_it_was_deleted_without(world: World, changed: bool) -> None:
    """The way to change what cannot be changed: delete the set without its children, and apply it again."""
    scaled = {"minReplicas": 1, "maxReplicas": 2}
    manifest = pcs("kept", clique("w", 2, scale=scaled), clique("m"), groups=[group("g", "m", replicas=2)])
    await world.apply(manifest)
    await world.available("kept")
    before = {pod.metadata.uid for pod in await world.pods()}
    kinds: tuple[type[Object], ...] = (PodClique, PodCliqueScalingGroup, PodGang, Service, HorizontalPodAutoscaler)
    kinds = kinds if changed else (*kinds, ControllerRevision)
    children = {one.metadata.uid for kind in kinds for one in await world.list(kind)}

    await world.delete(PodCliqueSet, "kept", propagation="Orphan")

    async def gone() -> bool:
        return not await world.list(PodCliqueSet)

    await world.eventually(gone)
    if changed:
        manifest["spec"]["template"]["cliques"][0]["labels"] = {"version": "two"}
    made = await world.apply(manifest)
    await world.available("kept")

    async def taken_on() -> bool:
        found = [one for kind in kinds for one in await world.list(kind)]
        tops = [one for one in found if one.metadata.labels[labels.COMPONENT] != labels.MEMBER_CLIQUE]
        owned = all(one.metadata.controller and one.metadata.controller.uid == made.metadata.uid for one in tops)
        return owned and {one.metadata.uid for one in found} == children

    async def updated() -> bool:
        pods = await world.pods("kept-0-w")
        return len(pods) == 2 and all(pod.metadata.labels.get("version") == "two" for pod in pods)

    await world.eventually(taken_on)
    if changed:
        await world.eventually(updated)
    await world.available("kept")
    assert (await world.get(PodCliqueSet, "kept")).status.last_errors == ()
    after = {pod.metadata.uid for pod in await world.pods()}
    assert len(after & before) == (2 if changed else 4)


@pytest.mark.parametrize("goes", ["a replica", "a clique", "the set"])
async def test_pods_without_an_owner_with_the_labels_of_ours_stay(world: World, goes: str) -> None:
    """As an earlier set of the same name leaves them that was deleted without its children, clique by clique."""
    await world.apply(pcs("kept", clique("w", 2), replicas=2))
    await world.available("kept")
    nobodys = (await world.pods("kept-1-w"))[0]
    await world.client.patch(Pod, nobodys.metadata.name, {"metadata": {"ownerReferences": None}}, world.namespace)

    async def replaced() -> bool:
        return len(await world.pods("kept-1-w")) == 3

    await world.eventually(replaced)
    await world.quiet()
    before = {pod.metadata.uid for pod in await world.pods("kept-1-w")}
    match goes:
        case "a replica":
            await world.scale(PodCliqueSet, "kept", 1)
        case "a clique":
            await world.delete(PodClique, "kept-1-w")
        case "the set":
            await world.delete(PodCliqueSet, "kept")

    async def ours_are_gone() -> bool:
        return {pod.metadata.uid for pod in await world.list(Pod)} & before == {nobodys.metadata.uid}

    await world.eventually(ours_are_gone, 90)
    await world.cluster.settle(3.0)
    assert nobodys.metadata.uid in {pod.metadata.uid for pod in await world.pods()}
    await world.delete(Pod, nobodys.metadata.name)


@pytest.mark.real_in("test")
async def test_pods_of_a_removed_clique_go_with_one_request(world: World) -> None:
    await world.apply(pcs("wide", clique("w", 20), replicas=2))
    await world.available("wide")
    before = world.writes()

    await world.scale(PodCliqueSet, "wide", 1)

    async def gone() -> bool:
        return len(await world.list(Pod)) == 20

    await world.eventually(gone)
    await world.quiet()
    asked = world.writes() - before
    assert asked["delete", "pods"] == 0
    assert asked["deletecollection", "pods"] >= 1
    if world.cluster.is_sim:  # a real server may be asked twice
        assert asked["deletecollection", "pods"] == 1


@pytest.mark.real_in("test")
async def test_a_small_set_goes_with_few_requests(world: World) -> None:
    """By name: a delete of a collection reads every object of its kind in the namespace, and there may be many sets."""
    await world.apply(pcs("small", clique("w", 3)))
    await world.available("small")
    await world.quiet()
    before = Counter(world.operator_client.calls)
    await world.delete(PodCliqueSet, "small")

    async def gone() -> bool:
        return not await world.list(Pod) and not await world.list(PodClique)

    await world.eventually(gone)
    await world.quiet()
    asked = Counter(world.operator_client.calls) - before
    assert {call: count for call, count in asked.items() if call[0] != "watch"} == {
        ("delete", "podgangs"): 1,
        ("delete", "services"): 1,
        ("delete", "pods"): 3,
        ("delete", "podcliques"): 1,
        ("patch", "podcliques"): 1,
        ("patch", "podcliquesets"): 1,
    }, "and nothing is read first"


@pytest.mark.simulated
async def test_the_gang_and_the_service_of_a_small_set_are_deleted_at_the_same_time(world: World) -> None:
    """Many sets are deleted at once by a few workers, so each write that waits for another one takes time."""
    await world.apply(pcs("small", clique("w", 3)))
    await world.available("small")
    await world.quiet()
    delete, began_s = world.operator_client.delete, dict[type[Object], set[float]]()

    async def timed(kind: type[Object], *rest: Any, **more: Any) -> None:
        began_s.setdefault(kind, set()).add(asyncio.get_running_loop().time())
        await delete(kind, *rest, **more)

    world.operator_client.delete = timed
    await world.delete(PodCliqueSet, "small")

    async def gone() -> bool:
        return not await world.list(PodCliqueSet)

    await world.eventually(gone)
    assert list(began_s) == [PodGang, Service, Pod, PodClique]
    assert began_s[PodGang] == began_s[Service], "at the same time"
    assert len(began_s[Pod]) == 1


@pytest.mark.simulated
@pytest.mark.parametrize("keeps_children", [False, True], ids=["a scheduler wrote", "the garbage collector wrote"])
async def test_a_gang_that_was_written_since_the_operator_saw_it_is_read_before_it_is_deleted(
    world: World, keeps_children: bool
) -> None:
    """The garbage collector writes it in a deletion that keeps the children: it removes the reference to the set."""
    await world.apply(pcs("small", clique("w", 3)))
    await world.available("small")
    await world.quiet()
    delete, reads = world.operator_client.delete, world.operator_client.calls["get", "podgangs"]
    written = {"ownerReferences": None} if keeps_children else {"annotations": {"written": "late"}}

    async def late(kind: type[Object], name: str, *rest: Any, **more: Any) -> None:
        if kind is PodGang and world.operator_client.calls["get", "podgangs"] == reads:
            await world.client.patch(PodGang, name, {"metadata": written}, world.namespace)
        await delete(kind, name, *rest, **more)

    world.operator_client.delete = late
    await world.delete(PodCliqueSet, "small")

    async def gone() -> bool:
        return not await world.list(PodCliqueSet)

    await world.eventually(gone)
    assert world.operator_client.calls["get", "podgangs"] == reads + 1
    await world.quiet()
    assert len(await world.list(PodGang)) == keeps_children


@pytest.mark.simulated
async def test_gangs_and_services_of_replicas_that_are_scaled_away_go_before_their_pods(world: World) -> None:
    """Else every pod that goes costs an EndpointSlice and a PodGang status."""
    await world.apply(pcs("many", clique("a"), clique("b"), replicas=20))
    await world.available("many")
    asked: list[str] = []
    counted: set[int] = set()
    delete, delete_collection = world.operator_client.delete, world.operator_client.delete_collection

    async def note(kind: type[Object], *rest: Any, **more: Any) -> None:
        asked.append(kind.__name__)
        await delete(kind, *rest, **more)

    async def note_collection(kind: type[Object], *rest: Any, **more: Any) -> None:
        asked.append(f"{kind.__name__} of many")
        counted.add((await world.get(PodCliqueSet, "many")).status.available_replicas)
        await delete_collection(kind, *rest, **more)

    world.operator_client.delete, world.operator_client.delete_collection = note, note_collection
    lists = world.operator_client.calls["list", "pods"]
    await world.scale(PodCliqueSet, "many", 5)

    async def gone() -> bool:
        return len(await world.list(Pod)) == 10

    await world.eventually(gone)
    await world.quiet()
    together = {"Service of many": 8, "Pod of many": 8, "PodClique of many": 8}
    assert Counter(asked) == {"PodGang": 15} | together, "eight at once, nothing one by one but gangs"
    assert set(asked[:23]) == {"PodGang", "Service of many"}
    assert world.operator_client.calls["list", "pods"] == lists
    assert counted == {5}, "what goes is not counted any more, however long it takes to go"
    assert (await world.get(PodCliqueSet, "many")).status.available_replicas == 5


async def test_replicas_with_scaling_groups_that_are_scaled_away_and_back_are_whole(world: World) -> None:
    """When a replica is deleted, its groups' cliques are deleted too, and no controller creates them again."""
    one = pcs("both", clique("r"), clique("l"), clique("w"), groups=[group("g", "l", "w", replicas=2)], replicas=4)
    await world.apply(one)
    await world.ready(20)
    await world.available("both")
    kept = {pod.metadata.uid for pod in await world.pods() if pod.metadata.labels[labels.REPLICA_INDEX] == "0"}
    before = world.writes()
    await world.scale(PodCliqueSet, "both", 1)

    async def gone() -> bool:
        return len(await world.list(Pod)) == 5 and len(await world.list(PodClique)) == 5

    await world.eventually(gone)
    await world.quiet()
    assert not (world.writes() - before)["create", "pods"]
    assert not (world.writes() - before)["create", "podcliques"]
    await world.scale(PodCliqueSet, "both", 3)
    await world.eventually(lambda: _is_available(world, "both", 3))
    await world.ready(15)
    assert kept <= {pod.metadata.uid for pod in await world.pods()}


async def _is_available(world: World, name: str, replicas: int) -> bool:
    return (await world.get(PodCliqueSet, name)).status.available_replicas == replicas


@pytest.mark.simulated
async def test_gangs_and_services_of_a_deleted_set_go_before_its_pods_and_nothing_more_is_said_of_them(
    world: World,
) -> None:
    """Else every pod that goes costs an EndpointSlice and a PodGang status; and one collection delete is slow."""
    await world.apply(pcs("many", clique("a"), clique("b"), replicas=20))
    await world.available("many")
    asked: list[tuple[str, str]] = []
    may = world.operator_client.delete_collection

    async def note(kind: type[Object], namespace: str, *, labels: str) -> None:
        asked.append((kind.__name__, labels))
        await may(kind, namespace, labels=labels)

    world.operator_client.delete_collection = note
    before = world.writes()
    await world.delete(PodCliqueSet, "many")

    async def nothing() -> bool:
        return await left(world) == []

    await world.eventually(nothing, 90)
    kinds = [kind for kind, _ in asked]
    assert Counter(kinds[:9]) == {"PodGang": 1, "Service": 8}
    assert kinds[9:17] == ["Pod"] * 8, "eight at once"
    assert set(kinds[17:]) == {"PodClique"}, "what is gone is not deleted again"
    said = world.writes() - before
    assert not said["patch", "podgangs/status"]
    assert not said["patch", "podcliques/status"]


async def test_a_pod_of_another_client_that_carries_one_label_of_ours_stays(world: World) -> None:
    await world.apply(pcs("kept", clique("w", 2), replicas=2))
    await world.available("kept")
    stranger = {"metadata": {"name": "mine", "namespace": world.namespace, "labels": {labels.POD_CLIQUE: "kept-1-w"}}}
    image = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    await world.client.create(Pod, {**stranger, "spec": {"containers": [image]}})
    before = {pod.metadata.uid for pod in await world.pods("kept-1-w")}

    await world.delete(PodClique, "kept-1-w")

    async def made_anew() -> bool:
        pods = [pod for pod in await world.pods("kept-1-w") if pod.metadata.name != "mine"]
        return len(pods) == 2 and not before & {pod.metadata.uid for pod in pods}

    await world.eventually(made_anew)
    assert not (await world.get(Pod, "mine")).metadata.is_deleting
    await world.delete(Pod, "mine")
