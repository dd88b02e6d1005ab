"""An object of a dialect is kept as a PodCliqueSet: made, changed, scaled and deleted with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.dialect_worlds import Kind, apply, edit, said
from tests.support.dialects import gang_set, koord_set, nested, pod_template
from tests.support.manifests import clique, pcs
from tests.support.operating import World, condition

from grove.api.core import Pod, Service
from grove.api.dynamo import PodGangSet
from grove.api.koordset import KoordPodCliqueSet
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import NotFound

pytestmark = pytest.mark.simulated  # on a real API server: test_real_seeds


async def gone(world: World, kind: type[Object], name: str) -> None:
    async def look() -> bool:
        try:
            await world.get(kind, name)
        except NotFound:
            return True
        return False

    await world.eventually(look, 90)


async def test_a_gang_set_runs_and_its_status_is_that_of_its_gang(world: World) -> None:
    await apply(world, gang_set("eight", 8, minAvailable=8))
    found = await said(world, PodGangSet, "eight", "Ready", "True")
    await world.quiet()
    found = await world.get(PodGangSet, "eight")
    assert len(await world.pods("eight-0-gang")) == 8
    assert found.status.pod_clique_set_name == "eight"
    assert (found.status.replicas, found.status.ready_replicas, found.status.scheduled_replicas) == (8, 8, 8)
    assert (found.status.phase, found.status.pod_gangs[0].name) == ("Running", "eight-0")
    assert condition(found.status.conditions, "Translated") == ("True", "Translated")
    clique = await world.get(PodClique, "eight-0-gang")
    assert found.status.selector == clique.status.hpa_pod_selector
    assert (await world.get(PodCliqueSet, "eight")).metadata.owner_references == ()


async def test_what_has_settled_is_not_written_again(world: World) -> None:
    await apply(world, gang_set("calm", 2))
    await apply(world, koord_set("still", groups={"g": [nested("a", 2, 0), nested("b", 1, 1)]}))
    await said(world, PodGangSet, "calm", "Ready", "True")
    await said(world, KoordPodCliqueSet, "still", "Ready", "True")
    await world.quiet()
    versions = [(await world.get(PodCliqueSet, name)).metadata.resource_version for name in ("calm", "still")]
    await world.restart()
    await world.quiet()
    assert [(await world.get(PodCliqueSet, name)).metadata.resource_version for name in ("calm", "still")] == versions


async def test_a_set_of_groups_tells_gangs_groups_cliques_and_who_waits_for_which(world: World) -> None:
    await apply(
        world, koord_set("llama", groups={"pipe": [nested("prefill", 2, 0), nested("decode", 3, 1)]}, replicas=2)
    )
    await said(world, KoordPodCliqueSet, "llama", "Ready", "True")
    await world.quiet()
    found = (await world.get(KoordPodCliqueSet, "llama")).status
    assert (found.replicas, found.available_replicas) == (2, 2)
    assert [one.name for one in found.pod_gangs] == ["llama-0", "llama-1"]
    assert all(one.scheduled and one.ready and one.phase == "Running" for one in found.pod_gangs)
    assert [(one.name, one.index, one.available_replicas) for one in found.pod_clique_scaling_groups] == [
        ("pipe", 0, 1),
        ("pipe", 1, 1),
    ]
    told = [(one.group, one.name, one.index, one.replicas, one.ready, one.start_order) for one in found.pod_cliques]
    assert told == [
        ("pipe", "decode", 0, 3, 3, 1),
        ("pipe", "prefill", 0, 2, 2, 0),
        ("pipe", "decode", 1, 3, 3, 1),
        ("pipe", "prefill", 1, 2, 2, 0),
    ]
    assert condition(found.conditions, "StartupBlocked") == ("False", "PrerequisitesReady")
    decode = await world.get(PodClique, "llama-0-pipe-0-decode")
    assert decode.spec.starts_after == ("llama-0-pipe-0-prefill",)


async def test_deleting_the_object_deletes_the_set_and_deleting_the_set_has_it_made_again(world: World) -> None:
    await apply(world, gang_set("here", 2))
    await said(world, PodGangSet, "here", "Ready", "True")
    first = (await world.get(PodCliqueSet, "here")).metadata.uid

    await world.delete(PodCliqueSet, "here")

    async def anew() -> bool:
        return bool((await world.get(PodCliqueSet, "here")).metadata.uid != first)

    await world.eventually(anew, 90)
    await said(world, PodGangSet, "here", "Ready", "True")

    await world.delete(PodGangSet, "here")
    await gone(world, PodGangSet, "here")
    await gone(world, PodCliqueSet, "here")


async def test_a_set_of_another_client_is_never_touched(world: World) -> None:
    mine = await world.apply(pcs("taken", clique("w")))
    await apply(world, gang_set("taken", 2))
    await said(world, PodGangSet, "taken", "Translated", "False", "NameConflict")
    assert (await world.get(PodCliqueSet, "taken")).metadata.uid == mine.metadata.uid
    await world.event("taken", "NameConflict")

    await world.delete(PodGangSet, "taken")
    await gone(world, PodGangSet, "taken")
    assert (await world.get(PodCliqueSet, "taken")).metadata.deletion_timestamp is None

    await apply(world, gang_set("taken", 2))
    await said(world, PodGangSet, "taken", "Translated", "False", "NameConflict")
    await world.delete(PodCliqueSet, "taken")
    await said(world, PodGangSet, "taken", "Ready", "True")


async def test_scaling_the_object_scales_the_gang_and_keeps_its_minimum(world: World) -> None:
    await apply(world, gang_set("elastic", 3, minAvailable=2))
    await said(world, PodGangSet, "elastic", "Ready", "True")
    before = {pod.metadata.uid for pod in await world.pods()}

    await world.scale(PodGangSet, "elastic", 5)

    async def five() -> bool:
        return (await world.get(PodGangSet, "elastic")).status.ready_replicas == 5

    await world.eventually(five)
    assert before < {pod.metadata.uid for pod in await world.pods()}
    assert (await world.get(PodClique, "elastic-0-gang")).spec.min_available == 2


async def test_a_direct_scale_of_the_clique_is_kept_until_the_object_says_another_number(world: World) -> None:
    await apply(world, gang_set("direct", 2, minAvailable=1))
    await said(world, PodGangSet, "direct", "Ready", "True")
    await world.scale(PodClique, "direct-0-gang", 4)

    async def ready(count: int) -> bool:
        return (await world.get(PodGangSet, "direct")).status.ready_replicas == count

    await world.eventually(lambda: ready(4))
    await world.quiet()
    assert await ready(4)
    await world.scale(PodGangSet, "direct", 3)
    await world.eventually(lambda: ready(3))


async def test_every_number_of_a_set_of_groups_scales_what_there_is(world: World) -> None:
    obj = koord_set(
        "many",
        groups={"g": [nested("a", 1, minAvailable=1), nested("b", 2, minAvailable=1)]},
        podCliques=[nested("r", 1)],
    )
    await apply(world, obj)
    await said(world, KoordPodCliqueSet, "many", "Ready", "True")
    template = obj["spec"]["template"]
    template["podCliqueScalingGroups"][0]["replicas"] = 2
    template["podCliqueScalingGroups"][0]["podCliques"][1]["replicas"] = 3
    template["podCliques"][0]["replicas"] = 4
    await edit(world, KoordPodCliqueSet, "many", {"spec": {"template": template, "replicas": 2}})

    async def scaled() -> bool:
        groups = {one.metadata.name: one.spec.replicas for one in await world.list(PodCliqueScalingGroup)}
        counts = {name: len(await world.pods(name)) for name in await world.names(PodClique)}
        wanted = {f"many-{i}-g-{j}-{c}": n for i in (0, 1) for j in (0, 1) for c, n in (("a", 1), ("b", 3))}
        return groups == {"many-0-g": 2, "many-1-g": 2} and counts == wanted | {"many-0-r": 4, "many-1-r": 4}

    await world.eventually(scaled, 90)


async def test_a_changed_template_rolls_and_hand_edits_beside_it_stay(world: World) -> None:
    await apply(world, gang_set("roll", 2))
    await said(world, PodGangSet, "roll", "Ready", "True")
    await world.client.patch(
        PodCliqueSet, "roll", {"spec": {"template": {"terminationDelay": "1h0m0s"}}}, world.namespace
    )
    template = pod_template(nodeSelector={})
    template["spec"]["containers"][0]["image"] = "registry.k8s.io/pause:3.9"
    await edit(world, PodGangSet, "roll", {"spec": {"template": template}})

    async def rolled() -> bool:
        pods = (await world.client.list(Pod.RESOURCE, world.namespace)).items
        return [pod["spec"]["containers"][0]["image"] for pod in pods] == 2 * ["registry.k8s.io/pause:3.9"]

    await world.eventually(rolled, 120)
    assert (await world.get(PodCliqueSet, "roll")).spec.template.termination_delay == "1h0m0s"


async def test_a_generation_is_published_when_its_set_has_carried_it_out(world: World) -> None:
    """A client reads "observedGeneration equals generation, and every pod is up to date" as done."""
    await apply(world, gang_set("roll", 3))
    before = await said(world, PodGangSet, "roll", "Ready", "True")
    await world.quiet()
    early: list[int] = []
    patch = world.operator_client.patch

    async def note(kind: Any, name: str, *rest: Any, **more: Any) -> Any:
        answer = await patch(kind, name, *rest, **more)
        if kind is PodGangSet and answer.status.observed_generation == answer.metadata.generation:
            pods = (await world.client.list(Pod.RESOURCE, world.namespace)).items
            early.append(sum(pod["spec"]["containers"][0]["image"] != "registry.k8s.io/pause:3.9" for pod in pods))
        return answer

    world.operator_client.patch = note
    template = pod_template()
    template["spec"]["containers"][0]["image"] = "registry.k8s.io/pause:3.9"
    await edit(world, PodGangSet, "roll", {"spec": {"template": template}})

    async def published() -> bool:
        found = await world.get(PodGangSet, "roll")
        return bool(found.status.observed_generation == found.metadata.generation > before.metadata.generation)

    await world.eventually(published, 120)
    assert set(early) == {0}, "no old pod is left by then"


async def test_what_a_running_set_cannot_take_is_reported_and_made_again_only_if_asked(world: World) -> None:
    await apply(world, gang_set("fixed", 4, minAvailable=4))
    await said(world, PodGangSet, "fixed", "Ready", "True")
    first = (await world.get(PodCliqueSet, "fixed")).metadata.uid
    await edit(world, PodGangSet, "fixed", {"spec": {"minAvailable": 2}})
    found = await said(world, PodGangSet, "fixed", "Translated", "False", "InvalidSpec")
    message = next(one.message for one in found.status.conditions if one.type == "Translated")
    assert message.startswith("spec.minAvailable: ")
    assert "grove.dynamo.ai/recreate" in message
    assert (await world.get(PodCliqueSet, "fixed")).metadata.uid == first

    await edit(world, PodGangSet, "fixed", {"metadata": {"annotations": {"grove.dynamo.ai/recreate": "true"}}})
    await said(world, PodGangSet, "fixed", "Translated", "True")
    await said(world, PodGangSet, "fixed", "Ready", "True")
    after = await world.get(PodClique, "fixed-0-gang")
    assert after.spec.min_available == 2
    assert (await world.get(PodCliqueSet, "fixed")).metadata.uid != first


async def test_a_minimum_left_out_of_an_edit_stays_as_it_was(world: World) -> None:
    await apply(world, gang_set("floor", 4, minAvailable=2))
    await said(world, PodGangSet, "floor", "Ready", "True")
    annotations = {"grove.dynamo.ai/recreate": "true"}
    first = (await world.get(PodCliqueSet, "floor")).metadata.uid
    await edit(world, PodGangSet, "floor", {"metadata": {"annotations": annotations}, "spec": {"minAvailable": None}})
    await said(world, PodGangSet, "floor", "Translated", "True")
    await world.quiet()
    assert (await world.get(PodCliqueSet, "floor")).metadata.uid == first
    assert (await world.get(PodClique, "floor-0-gang")).spec.min_available == 2


async def test_an_object_edited_while_its_set_is_being_deleted_gets_a_set_as_it_is_then(world: World) -> None:
    await apply(world, gang_set("race", 2))
    await said(world, PodGangSet, "race", "Ready", "True")
    await world.delete(PodCliqueSet, "race", propagation="Foreground")
    await edit(world, PodGangSet, "race", {"spec": {"replicas": 3, "minAvailable": 3}})

    async def three() -> bool:
        found = await world.get(PodGangSet, "race")
        return found.status.ready_replicas == 3 and condition(found.status.conditions, "Translated") == (
            "True",
            "Translated",
        )

    await world.eventually(three, 90)
    assert (await world.get(PodClique, "race-0-gang")).spec.min_available == 3


async def test_faults_are_a_condition_when_no_admission_reported_them(world: World) -> None:
    await apply(world, koord_set("wrong", groups={"g": [nested("a", order=1), nested("a")], "h": [nested("b", cpu=1)]}))
    found = await said(world, KoordPodCliqueSet, "wrong", "Translated", "False", "InvalidSpec")
    message = next(one.message for one in found.status.conditions if one.type == "Translated")
    assert "spec.template.podCliqueScalingGroups[1].podCliques[0].cpu: Forbidden: no such field" in message
    assert "podCliques[1].name" in message
    assert await world.names(PodCliqueSet) == []


async def test_a_long_name_is_cut_and_reported(world: World) -> None:
    name = "a-name-of-fifty-characters-that-is-far-too-long-xy"
    await apply(world, gang_set(name, 1))
    found = await said(world, PodGangSet, name, "Ready", "True")
    assert found.status.pod_clique_set_name == "a-name-of-fifty-characters-that-is-f-91af"
    assert await world.names(PodGang) == ["a-name-of-fifty-characters-that-is-f-91af-0"]


async def test_an_operator_that_dies_between_writes_leaves_nothing_half_scaled(world: World) -> None:
    """The set records the replicas until its cliques have them."""
    await apply(world, gang_set("half", 2, minAvailable=1))
    await said(world, PodGangSet, "half", "Ready", "True")
    await world.stop()
    await world.scale(PodGangSet, "half", 4)
    await world.start()

    async def four() -> bool:
        return len(await world.pods()) == 4

    await world.eventually(four)
    await world.quiet()
    assert '"scaling"' not in (await world.get(PodCliqueSet, "half")).metadata.annotations["grove.io/translation"]


@pytest.mark.parametrize("kind", [PodGangSet, KoordPodCliqueSet])
async def test_an_object_deleted_without_its_set_leaves_the_set_and_its_pods(world: World, kind: Kind) -> None:
    await apply(world, gang_set("kept", 2) if kind is PodGangSet else koord_set("kept", podCliques=[nested("a", 2)]))
    await said(world, kind, "kept", "Ready", "True")
    before = {pod.metadata.uid for pod in await world.pods()}

    await world.delete(kind, "kept", propagation="Orphan")

    await gone(world, kind, "kept")
    await world.quiet()
    assert not (await world.get(PodCliqueSet, "kept")).metadata.is_deleting
    assert {pod.metadata.uid for pod in await world.pods()} == before


async def test_a_set_with_a_lasting_error_is_scaled_once_and_then_by_any_client_that_scales_it(world: World) -> None:
    await apply(world, gang_set("wrong", 2, minAvailable=1))
    await said(world, PodGangSet, "wrong", "Ready", "True")
    await world.stop()
    await world.delete(Service, "wrong-0")
    await world.client.create(
        Service, {"metadata": {"name": "wrong-0", "namespace": world.namespace}, "spec": {"ports": [{"port": 1}]}}
    )
    await world.start()
    await world.scale(PodGangSet, "wrong", 3)

    async def pods(count: int) -> bool:
        return len(await world.pods()) == count

    await world.eventually(lambda: pods(3))
    pcs_ = await world.get(PodCliqueSet, "wrong")
    assert pcs_.status.observed_generation != pcs_.metadata.generation, "the error lasts"

    await world.scale(PodClique, "wrong-0-gang", 5)
    await world.eventually(lambda: pods(5))
    await edit(world, PodGangSet, "wrong", {"metadata": {"labels": {"a": "b"}}})
    await world.cluster.settle(120.0)
    assert await pods(5)
    await world.delete(Service, "wrong-0")
