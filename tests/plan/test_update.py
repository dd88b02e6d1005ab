"""`plan -f` of a running set plays the update to its end."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace

import pytest
from tests.support.manifests import clique, group, pcs

from grove.answers.answer import Answer, Unanswered
from grove.answers.plan import plan_answer
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.plan.copying import copy_cluster
from grove.plan.whatif import Plan
from grove.plan.world import World
from grove.sim.loop import run
from grove.sim.topology import Topology

PAUSED = {"grove.io/rollout-paused": "true"}


def chat(image: str) -> Json:
    made = pcs(
        "chat", clique("router", 3, min_available=1), clique("engine", 2), groups=[group("inst", "engine", replicas=2)]
    )
    for one in made["spec"]["template"]["cliques"]:
        one["spec"]["podSpec"]["containers"][0]["image"] = image
    return made


OLD, NEW = chat("example/engine:1"), chat("example/engine:2")


def said(manifest: Json, **metadata: Json) -> Json:
    """The manifest with labels and annotations of the set."""
    return {**manifest, "metadata": {**manifest["metadata"], **metadata}}


def applied(manifest: Json) -> Json:
    """The manifest as `kubectl apply` leaves it, with a note of what it was."""
    last = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(manifest)}
    return said(manifest, annotations={**manifest["metadata"].get("annotations", {}), **last})


async def updated(new: Json, stored: Json | None = None) -> Answer:
    async with World(Topology(nodes=4).objects(), seed=1) as world:
        await world.apply(stored or chat("example/engine:1"))
        assert await world.until(lambda: world.is_settled("chat"))
        await asyncio.sleep(5.0)
        seen, now = await copy_cluster(world.client, None), world.cluster.clock.now()
    return await plan_answer(seen, "default", [new], now=now)


@pytest.mark.parametrize("scheduler", ["default-scheduler", "kai-scheduler"])
def test_an_update_of_what_another_scheduler_places_is_reported_to_be_its_affair(scheduler: str) -> None:
    """Who places a set is settled when it is made, so the update cannot be played by another."""

    def theirs(resource: Resource, obj: Json) -> Json:
        if resource != PodCliqueSet.RESOURCE:
            return obj
        found = copy.deepcopy(obj)
        for one in found["spec"]["template"]["cliques"]:
            one["spec"]["podSpec"]["schedulerName"] = scheduler
        return found

    async def planned() -> Answer:
        async with World(Topology(nodes=4).objects(), seed=1) as world:
            await world.apply(OLD)
            seen, now = await copy_cluster(world.client, None), world.cluster.clock.now()
        objects = tuple((resource, theirs(resource, obj)) for resource, obj in seen.objects)
        new = theirs(PodCliqueSet.RESOURCE, NEW)
        return await plan_answer(replace(seen, objects=objects), "default", [new], now=now)

    with pytest.raises(Unanswered, match=f"chat is placed by {scheduler}, which is not played here"):
        run(planned(), seed=1)


def test_every_pod_of_an_update_is_planned_and_has_its_place() -> None:
    answer = run(updated(chat("example/engine:2")), seed=1)
    plan: Plan = answer.data
    assert answer.code == 0
    assert [(one.name, one.answer, len(one.pods), one.unplaced, one.moved) for one in plan.gangs] == [
        ("chat-0", "fits", 5, 0, 5),
        ("chat-0-inst-0", "fits", 2, 0, 2),
    ]


def test_an_unchanged_manifest_moves_nothing() -> None:
    answer = run(updated(chat("example/engine:1")), seed=1)
    assert (answer.code, [one.moved for one in answer.data.gangs]) == (0, [0, 0])


@pytest.mark.parametrize(
    ("new", "stored", "moved"),
    [
        pytest.param(
            said(OLD, labels={"team": "a"}, annotations={"note": "b"}),
            OLD,
            [0, 0],
            id="a label and a note of the set replace no pod",
        ),
        pytest.param(said(NEW, annotations=PAUSED), OLD, [0, 0], id="an update that comes paused replaces no pod"),
        pytest.param(NEW, said(OLD, annotations=PAUSED), [0, 0], id="who applies without the pause leaves it"),
        pytest.param(
            NEW, applied(said(OLD, annotations=PAUSED)), [5, 2], id="unless he applied it before: then it is taken off"
        ),
        pytest.param(
            said(NEW, annotations={"grove.io/rollout-paused": "false"}),
            said(OLD, annotations=PAUSED),
            [5, 2],
            id="an update that ends the pause replaces them",
        ),
    ],
)
def test_labels_and_annotations_of_the_set_count_as_they_do_when_applied(
    new: Json, stored: Json, moved: list[int]
) -> None:
    assert [one.moved for one in run(updated(new, stored), seed=1).data.gangs] == moved


def test_an_annotation_that_would_be_refused_is_reported() -> None:
    wrong = said(OLD, annotations={"grove.io/max-gang-restarts": "many"})
    with pytest.raises(Unanswered, match="PodCliqueSet chat would be refused"):
        run(updated(wrong), seed=1)
