"""The way back to the Go operator: what ours leaves behind, read as that operator reads it.

That operator itself does not run here. What it looks at is known: its kinds without our additions, its finalizers, and
the hashes by which it decides whether anything is to be updated. So that is what is judged.
"""

from __future__ import annotations

import pytest
from tests.support.contract import contract_schema, missing, pruned
from tests.support.go_operator import GoOperator, left_behind, put
from tests.support.manifests import clique, group, pcs
from tests.support.operating import KUBE, Operating, World
from tests.support.workloads import change, updated, watching

from grove.answers.takeover import back_answer
from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

KINDS: tuple[type[Object], ...] = (PodCliqueSet, PodClique, PodCliqueScalingGroup, PodGang)
FINALIZERS = {
    "PodCliqueSet": ["grove.io/podcliqueset.grove.io"],
    "PodClique": ["grove.io/podclique.grove.io"],
    "PodCliqueScalingGroup": ["grove.io/podcliquescalinggroup.grove.io"],
}
"""Those that the other operator sets and takes off; anything else would hold an object for ever."""

Objects = dict[tuple[str, str], Json]
"""By kind and name."""


OPERATING = Operating(config=KUBE, stopped=True)


async def ready(world: World) -> bool:
    return all(pod.is_ready for pod in await world.pods())


async def moved_in(world: World, name: str) -> Objects:
    """A set as the other operator left it, then taken over by ours; returned is how it was."""
    await put(world.client, world.namespace, left_behind(name), world.nodes.names)
    await world.eventually(lambda: ready(world))
    before = await theirs(world)
    await world.start()
    await world.quiet()
    return before


async def theirs(world: World) -> Objects:
    """Every object of the other operator's kinds, as its CRDs keep it, and every pod."""
    found: Objects = {}
    for kind in KINDS:
        schema = contract_schema(f"{kind.RESOURCE.plural}.{kind.RESOURCE.group}")
        for one in (await world.client.list(kind.RESOURCE, world.namespace)).items:
            kept = pruned(schema, one)
            found[kind.RESOURCE.kind, one["metadata"]["name"]] = kept
            assert list(missing(schema, kept)) == [], (
                f"{kind.RESOURCE.kind} {one['metadata']['name']} is not valid there"
            )
    for pod in (await world.client.list(Pod.RESOURCE, world.namespace)).items:
        if "deletionTimestamp" not in pod["metadata"]:
            found["Pod", pod["metadata"]["name"]] = pod
    return found


def of_kind(objects: Objects, kind: str) -> dict[str, Json]:
    return {name: one for (what, name), one in objects.items() if what == kind}


def open_work(objects: Objects) -> list[str]:
    """Why the other operator would begin or go on with an update, if the hash in the set's status is its own."""
    (pcs,) = of_kind(objects, "PodCliqueSet").values()
    current, cliques = pcs["status"]["currentGenerationHash"], of_kind(objects, "PodClique")
    found = [
        f"{kind} {name}: an update is open"
        for (kind, name), one in objects.items()
        if (progress := (one.get("status") or {}).get("updateProgress")) and not progress.get("updateEndedAt")
    ]
    for name, one in cliques.items():
        label, status = one["metadata"]["labels"][key.POD_TEMPLATE_HASH], one["status"]
        if status.get("currentPodTemplateHash") != label:
            found.append(f"{name}: its status tells another template than its label")
        if status.get("currentPodCliqueSetGenerationHash") != current:
            found.append(f"{name}: of another generation")
    for name, one in of_kind(objects, "PodCliqueScalingGroup").items():
        if one["status"].get("currentPodCliqueSetGenerationHash") != current:
            found.append(f"{name}: of another generation")
    for name, pod in of_kind(objects, "Pod").items():
        labels = pod["metadata"]["labels"]
        if (
            labels[key.POD_TEMPLATE_HASH]
            != cliques[labels[key.POD_CLIQUE]]["metadata"]["labels"][key.POD_TEMPLATE_HASH]
        ):
            found.append(f"pod {name}: of another template than its clique")
    return found


def is_as_it_was(before: Objects, after: Objects) -> None:
    """Spec, names, owners, labels and finalizers of everything that was there."""
    assert before.keys() <= after.keys()
    for which, was in before.items():
        now = after[which]
        assert now["spec"] == was["spec"], which
        for part in ("uid", "ownerReferences", "finalizers"):
            assert now["metadata"].get(part) == was["metadata"].get(part), (which, part)
        assert (was["metadata"].get("labels") or {}).items() <= (now["metadata"].get("labels") or {}).items(), which


def has_its_finalizers(objects: Objects) -> None:
    for (kind, name), one in objects.items():
        assert one["metadata"].get("finalizers", []) == FINALIZERS.get(kind, []), (kind, name)


async def test_a_set_that_was_not_changed_is_left_as_it_was_found(world: World) -> None:
    await is_left_as_found(world, "scaled")


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["groups", "start-order"])
async def test_a_set_of_another_shape_too(world: World, name: str) -> None:
    await is_left_as_found(world, name)


async def is_left_as_found(world: World, name: str) -> None:
    before = await moved_in(world, name)
    await world.stop()

    after = await theirs(world)

    assert after.keys() == before.keys()
    is_as_it_was(before, after)
    has_its_finalizers(after)
    assert open_work(after) == []
    assert [one["status"]["currentGenerationHash"] for one in of_kind(after, "PodCliqueSet").values()] == [
        left_behind(name)[0]["status"]["currentGenerationHash"]
    ]


@pytest.mark.simulated
async def test_pods_that_ours_made_meanwhile_are_like_those_that_the_other_makes(world: World) -> None:
    before = await moved_in(world, "scaled")
    lost = min(of_kind(before, "Pod"))
    await world.delete(Pod, lost)
    await world.scale(PodCliqueScalingGroup, "simple1-0-sga", 4)
    await world.eventually(lambda: _has_pods(world, len(of_kind(before, "Pod")) + 4))
    await world.quiet()
    await world.stop()

    after = await theirs(world)

    has_its_finalizers(after)
    assert open_work(after) == [], "also what is new carries the other operator's hashes"
    like = {one["metadata"]["labels"][key.POD_CLIQUE]: one for one in of_kind(before, "Pod").values()}
    new = [one for name, one in of_kind(after, "Pod").items() if ("Pod", name) not in before]
    assert len(new) == 5
    for pod in new:
        labels = pod["metadata"]["labels"]
        other = like.get(labels[key.POD_CLIQUE]) or like[labels[key.POD_CLIQUE].replace("-3-", "-2-")]
        assert other["metadata"]["labels"].keys() <= labels.keys()
        assert {one["name"] for one in other["spec"]["containers"][0]["env"]} <= {
            one["name"] for one in pod["spec"]["containers"][0]["env"]
        }
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "PodClique"


async def _has_pods(world: World, count: int) -> bool:
    return len(await world.pods()) == count and await ready(world)


@pytest.mark.simulated
async def test_a_set_whose_template_changed_is_left_with_nothing_half_done(world: World) -> None:
    """The other operator finds a hash that is not its own and updates once; what it starts from is whole."""
    await moved_in(world, "scaled")
    await change(world, "simple1", "pcd")
    await updated(world, "simple1")
    await world.quiet()
    await world.stop()

    after = await theirs(world)

    has_its_finalizers(after)
    assert open_work(after) == []


@pytest.mark.simulated
async def test_coming_again_after_the_other_operators_crds_took_our_fields_away_touches_no_pod(world: World) -> None:
    await moved_in(world, "scaled")
    await world.stop()
    for kind in KINDS:
        schema = contract_schema(f"{kind.RESOURCE.plural}.{kind.RESOURCE.group}")
        for one in (await world.client.list(kind.RESOURCE, world.namespace)).items:
            kept = pruned(schema, one).get("status") or {}
            gone = {field: None for field in one.get("status") or {} if field not in kept}
            name = one["metadata"]["name"]
            await world.client.patch(kind, name, {"status": gone}, world.namespace, subresource="status")
    assert not (await world.get(PodCliqueSet, "simple1")).status.adopted_hashes

    async with watching(world) as witness:
        await world.start()
        await world.quiet()

    assert witness.deleted == []
    assert (await world.get(PodCliqueSet, "simple1")).status.adopted_hashes
    assert open_work(await theirs(world)) == []


# Sets that the other operator never saw


async def made_by_ours(world: World) -> set[str]:
    """A set with a scaling group that our operator alone made, and its pods by name. No operator follows it now."""
    await world.start()
    lead, work = clique("lead"), clique("work", 2)
    made = pcs(
        "demo",
        clique("router", 2),
        lead,
        work,
        groups=[group("grp", "lead", "work", replicas=3)],
        replicas=1,
        scheduler="default-scheduler",
    )
    made["spec"]["updateStrategy"] = {"type": "RollingRecreate", "rollingRecreate": {"maxUnavailable": 1}}
    await world.apply(made)
    await world.available("demo")
    await world.ready(11)
    await world.quiet()
    return {pod.metadata.uid for pod in await world.pods()}


async def test_without_a_preparation_the_other_operator_replaces_every_pod_that_ours_made(world: World) -> None:
    await made_by_ours(world)
    told = await back_answer(world.client, world.namespace, dry_run=True)
    assert told.data[0].text.startswith("the other operator would replace 11 of 11 pods")
    await world.stop()
    other = GoOperator(world.client, world.namespace)
    await other.look()
    assert len(other.replaced) == 11


async def test_the_way_back_in_two_steps_replaces_no_pod(world: World) -> None:
    pods = await made_by_ours(world)
    assert (await back_answer(world.client, world.namespace)).code == 3
    await world.quiet()
    assert (await back_answer(world.client, world.namespace)).data[0].text.startswith("is ready for the other operator")
    await world.stop()

    other = GoOperator(world.client, world.namespace)
    await other.look()
    await other.look()
    assert other.replaced == []
    told = await back_answer(world.client, world.namespace)
    assert (told.code, told.data[0].text) == (
        0,
        "11 pods get the hash of the other operator, and the set its own strategy again",
    )
    for _ in range(3):
        await other.look()

    assert other.replaced == []
    assert {pod.metadata.uid for pod in await world.pods()} == pods
    after = await theirs(world)
    assert open_work(after) == []
    (set_,) = of_kind(after, "PodCliqueSet").values()
    assert set_["spec"]["updateStrategy"]["type"] == "RollingRecreate"
    assert "grove.io/way-back" not in set_["metadata"].get("annotations", {})
    assert not any(
        "updateProgress" in one["status"] for name, one in of_kind(after, "PodClique").items() if "grp" in name
    )
    told = await back_answer(world.client, world.namespace)
    assert (told.code, told.data[0].state) == (0, "ok")

    await world.start()  # and here again: nothing is restarted either
    await world.quiet()
    assert {pod.metadata.uid for pod in await world.pods()} == pods


@pytest.mark.simulated
async def test_a_set_in_the_middle_of_an_update_is_not_prepared(world: World) -> None:
    await made_by_ours(world)
    world.nodes.hold = lambda pod: True
    await change(world, "demo", "router")

    async def begun() -> bool:
        return (await world.get(PodCliqueSet, "demo")).status.update_progress is not None

    await world.eventually(begun)
    told = await back_answer(world.client, world.namespace)
    assert told.code == 3
    assert told.data[0].text.startswith("an update is under way")
    found: PodCliqueSet = await world.get(PodCliqueSet, "demo")
    assert found.spec.update_strategy is not None
    assert found.spec.update_strategy.type == "RollingRecreate"


@pytest.mark.simulated
async def test_a_set_with_the_other_operators_hashes_needs_no_preparation(world: World) -> None:
    await moved_in(world, "scaled")
    told = await back_answer(world.client, world.namespace)
    assert told.code == 0
    assert "with the hashes of the other operator, which replaces none of them" in told.data[0].text
