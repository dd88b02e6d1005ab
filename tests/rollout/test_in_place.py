"""`updateStrategy.inPlace: IfPossible`: pods get new images, labels and annotations, and keep their place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World
from tests.support.workloads import counting, lose, pause, uids, updated

from grove.answers.rollout import restart_answer
from grove.api import labels as key
from grove.api.conditions import IN_PLACE, EventReason
from grove.api.core import Pod
from grove.api.meta import Json, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet

NEW = "registry.k8s.io/pause:3.11"


def served(*cliques: Json, **more: Any) -> Json:
    manifest = pcs("wl", *cliques, **more)
    manifest["spec"]["updateStrategy"] = {**manifest["spec"].get("updateStrategy", {}), "inPlace": "IfPossible"}
    return manifest


def with_image(manifest: Json, name: str, image: str = NEW, **fields: Json) -> Json:
    """The template with another image for one clique; `fields` go into its pod spec."""
    template = manifest["spec"]["template"]
    cliques = [dict(one) for one in template["cliques"]]
    for one in cliques:
        if one["name"] == name:
            spec = one["spec"]["podSpec"]
            containers = [{**container, "image": image} for container in spec["containers"]]
            one["spec"] = {**one["spec"], "podSpec": {**spec, **fields, "containers": containers}}
    return {"spec": {"template": {"cliques": cliques}}}


async def edit(world: World, patch: Json) -> None:
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)


async def images(world: World, clique_fqn: str = "") -> set[str]:
    return {one.image for pod in await world.pods(clique_fqn) for one in pod.spec.containers}


async def test_a_changed_image_reaches_the_same_pods_on_the_same_nodes(world: World) -> None:
    manifest = served(clique("engine", 3, min_available=2))
    await world.apply(manifest)
    await world.available("wl")
    before = {pod.metadata.uid: pod.spec.node_name for pod in await world.pods()}

    await edit(world, with_image(manifest, "engine"))
    await updated(world, "wl")

    pods = await world.pods()
    assert {pod.metadata.uid: pod.spec.node_name for pod in pods} == before
    assert await images(world) == {NEW}
    assert [(pod.is_ready, is_true(pod.status.conditions, IN_PLACE)) for pod in pods] == [(True, True)] * 3
    assert [one.restart_count for pod in pods for one in pod.status.container_statuses] == [1, 1, 1]
    revision = (await world.get(PodClique, "wl-0-engine")).metadata.labels[key.REVISION]
    assert {pod.metadata.labels[key.REVISION] for pod in pods} == {revision}
    await world.event("wl-0-engine", EventReason.POD_UPDATED_IN_PLACE)
    await world.quiet()


@pytest.mark.simulated
async def test_no_more_pods_are_unready_than_the_budget_allows(world: World) -> None:
    manifest = served(clique("engine", 6, min_available=2))
    await world.apply(manifest)
    await world.available("wl")
    fewest = 6

    def count(old: Pod | None, new: Pod | None) -> None:
        nonlocal fewest
        pods = world.operator.cache.list(Pod)
        fewest = min(fewest, sum(pod.is_ready for pod in pods))

    world.operator.cache.on_event(Pod, count)
    await edit(world, with_image(manifest, "engine"))
    await updated(world, "wl")
    assert fewest == 5
    assert await images(world) == {NEW}


@pytest.mark.simulated
@pytest.mark.parametrize(("budget", "least"), [(1, 4), (2, 3), (4, 2)], ids=["one", "two", "down to the minimum"])
async def test_no_more_replicas_of_a_group_are_unready_than_its_budget_allows(
    world: World, budget: int, least: int
) -> None:
    engine = group("g", "engine", replicas=5, min_available=2, rollingUpdate={"maxUnavailable": budget})
    manifest = served(clique("engine"), groups=[engine])
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(5)
    before = await uids(world)

    async with counting(world) as seen:
        await edit(world, with_image(manifest, "engine"))
        await updated(world, "wl")

    assert seen.least["engine"] == least
    assert await uids(world) == before
    assert await images(world) == {NEW}


@pytest.mark.simulated
async def test_the_slices_of_a_coherent_update_keep_their_ratio_in_place(world: World) -> None:
    manifest = served(
        clique("front", 4, min_available=1),
        clique("engine"),
        groups=[group("g", "engine", replicas=8, min_available=2)],
        strategy={"type": "Coherent"},
    )
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(12)
    before, mixed = await uids(world), []

    def count(old: Pod | None, new: Pod | None) -> None:
        shares = {"front": 0, "engine": 0}
        for pod in seen.pods.values():
            shares[pod.metadata.labels[key.CLIQUE_NAME]] += pod.spec.containers[0].image == NEW
        mixed.append((shares["front"], shares["engine"]))

    async with counting(world) as seen:
        seen.cache.on_event(Pod, count)
        await edit(world, with_image({"spec": with_image(manifest, "front")["spec"]}, "engine"))
        await updated(world, "wl")

    assert (seen.least["front"], seen.least["engine"]) == (3, 6), "a slice takes one of the four and two of the eight"
    assert all(abs(2 * front - engine) <= 2 for front, engine in mixed)
    assert mixed[-1] == (4, 8)
    assert await uids(world) == before


@pytest.mark.simulated
@pytest.mark.parametrize(("kind", "stays"), [("RollingRecreate", True), ("Coherent", False)])
async def test_a_container_that_would_keep_its_old_revision(world: World, kind: str, stays: bool) -> None:
    """Under Coherent its pod is recreated: a router that pairs by the variable would see two revisions in one pod."""
    engine = clique("engine", 2)
    engine["spec"]["podSpec"]["containers"].append({"name": "metrics", "image": "registry.k8s.io/pause:3.9"})
    manifest = served(engine, strategy={"type": kind})
    await world.apply(manifest)
    await world.available("wl")
    before = await uids(world)

    def with_images(*found: str) -> Json:
        spec = engine["spec"]["podSpec"]
        containers = [{**one, "image": image} for one, image in zip(spec["containers"], found, strict=True)]
        changed = {**engine, "spec": {**engine["spec"], "podSpec": {**spec, "containers": containers}}}
        return {"spec": {"template": {"cliques": [changed]}}}

    await edit(world, with_images(NEW, "registry.k8s.io/pause:3.9"))
    await updated(world, "wl")

    after = await uids(world)
    assert {after[host] == before[host] for host in before} == {stays}
    assert NEW in await images(world)

    await edit(world, with_images("registry.k8s.io/pause:3.12", NEW))
    await updated(world, "wl")
    assert await uids(world) == after, "every container restarts with the new value"


@pytest.mark.simulated
async def test_labels_and_annotations_change_without_a_restart(world: World) -> None:
    manifest = served(clique("engine", 2, labels={"tier": "a", "old": "x"}, annotations={"note": "one"}))
    await world.apply(manifest)
    await world.available("wl")
    before = await uids(world)

    (template,) = manifest["spec"]["template"]["cliques"]
    changed = {**template, "labels": {"tier": "b"}, "annotations": {"note": "two"}}
    await edit(world, {"spec": {"template": {"cliques": [changed]}}})
    await updated(world, "wl")

    assert await uids(world) == before
    for pod in await world.pods():
        assert (pod.metadata.labels["tier"], pod.metadata.annotations["note"]) == ("b", "two")
        assert "old" not in pod.metadata.labels
        assert [one.restart_count for one in pod.status.container_statuses] == [0]
        assert pod.is_ready


@pytest.mark.simulated
async def test_a_pod_that_was_made_from_the_earlier_template_loses_its_labels_too(world: World) -> None:
    """A pod remembers the labels of the template that it was made from, not those of the set at that moment."""
    manifest = served(clique("engine", 2, labels={"old": "x"}))
    await world.apply(manifest)
    await world.available("wl")
    await pause(world, True)
    (template,) = manifest["spec"]["template"]["cliques"]
    await edit(world, {"spec": {"template": {"cliques": [{**template, "labels": {"tier": "b"}}]}}})
    await world.quiet()
    await lose(world, "wl-0-engine-0")
    before = await uids(world)

    await pause(world, False)
    await updated(world, "wl")

    assert await uids(world) == before
    for pod in await world.pods():
        assert (pod.metadata.labels.get("old"), pod.metadata.labels["tier"]) == (None, "b")


@pytest.mark.simulated
async def test_a_change_of_more_than_images_recreates_the_pods(world: World) -> None:
    manifest = served(clique("engine", 2))
    await world.apply(manifest)
    await world.available("wl")
    before = await uids(world)

    await edit(world, with_image(manifest, "engine", terminationGracePeriodSeconds=7))
    await updated(world, "wl")

    assert not set(before.values()) & set((await uids(world)).values())
    assert await images(world) == {NEW}


@pytest.mark.simulated
async def test_a_restart_of_everything_recreates_the_pods(world: World) -> None:
    await world.apply(served(clique("engine", 2)))
    await world.available("wl")
    before = await uids(world)

    for at in (world.cluster.clock.now(), world.cluster.clock.now() + timedelta(hours=1)):
        await restart_answer(world.client, world.namespace, "wl", at)
        await updated(world, "wl")

        after = await uids(world)
        assert not set(before.values()) & set(after.values())
        before = after


@pytest.mark.simulated
async def test_a_replica_of_a_group_is_patched_whole_where_all_of_it_changed(world: World) -> None:
    manifest = served(clique("lead"), clique("work", 2), groups=[group("g", "lead", "work", replicas=2)])
    await world.apply(manifest)
    await world.available("wl")
    before = await uids(world)

    both = with_image({"spec": {"template": with_image(manifest, "lead")["spec"]["template"]}}, "work")
    await edit(world, both)
    await updated(world, "wl")

    assert await uids(world) == before
    assert await images(world) == {NEW}
    await world.quiet()


@pytest.mark.simulated
async def test_a_kubelet_that_does_not_act_on_it_has_its_pod_recreated(world: World) -> None:
    manifest = served(clique("engine", 2))
    await world.apply(manifest)
    await world.available("wl")
    (first, second) = await world.pods()
    world.nodes.keeps_images = lambda pod: pod.metadata.uid == first.metadata.uid

    await edit(world, with_image(manifest, "engine"))
    await updated(world, "wl", timeout_s=600)

    after = set((await uids(world)).values())
    assert first.metadata.uid not in after
    assert second.metadata.uid in after
    assert await images(world) == {NEW}


@pytest.mark.simulated
async def test_an_undone_change_and_a_restarted_operator_leave_every_pod_ready(world: World) -> None:
    manifest = served(clique("engine", 4, min_available=1))
    await world.apply(manifest)
    await world.available("wl")
    before = await uids(world)

    await edit(world, with_image(manifest, "engine"))
    await world.cluster.settle(1.0)
    await world.restart()
    await edit(world, {"spec": {"template": {"cliques": manifest["spec"]["template"]["cliques"]}}})
    await updated(world, "wl")

    assert await uids(world) == before
    assert NEW not in await images(world)
    await world.available("wl")


@pytest.mark.simulated
async def test_a_pod_from_before_the_strategy_is_recreated_once(world: World) -> None:
    manifest = pcs("wl", clique("engine", 2))
    await world.apply(manifest)
    await world.available("wl")
    first = set((await uids(world)).values())

    await edit(world, {"spec": {**with_image(manifest, "engine")["spec"], "updateStrategy": {"inPlace": "IfPossible"}}})
    await updated(world, "wl")
    second = set((await uids(world)).values())
    assert not first & second

    await edit(world, with_image(manifest, "engine", "registry.k8s.io/pause:3.12"))
    await updated(world, "wl")
    assert set((await uids(world)).values()) == second
