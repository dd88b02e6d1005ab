"""`rollout`: what is old and new, undo, pause and resume, and a restart of everything."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.asking import World, server, text_of

from grove.answers.answer import Unanswered
from grove.answers.rollout import history_answer, pause_answer, restart_answer, status_answer, undo_answer
from grove.api import labels
from grove.api.core import ControllerRevision, Pod
from grove.api.hashes import generation_hash
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.diagnosis.seen import read
from grove.diagnosis.tree import tree_of

pytestmark = pytest.mark.real_in("soak")


async def template(world: World) -> tuple[str, list[Json]]:
    raw: Json = await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace)
    pcs = await world.client.get(PodCliqueSet, "chat", world.namespace)
    return generation_hash(pcs.spec.template), raw["spec"]["template"]["cliques"]


async def change(world: World, image: str, **more: Any) -> None:
    _, cliques = await template(world)
    for clique in cliques:
        clique["spec"]["podSpec"]["containers"][0]["image"] = image
        clique |= more
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"template": {"cliques": cliques}}}, world.namespace)


async def images(world: World) -> set[str]:
    pods = (await world.client.list(Pod, world.namespace)).items
    return {pod.spec.containers[0].image for pod in pods if not pod.metadata.is_deleting}


async def updated(world: World, image: str) -> None:
    async def all_are() -> bool:
        answer = await status_answer(world.client, world.namespace, "chat", world.now)
        return await images(world) == {image} and answer.code == 0 and answer.data.outdated == 0

    await world.cluster.eventually(all_are, 60)


async def kept(world: World, count: int) -> list[ControllerRevision]:
    async def there() -> Any:
        found = (await world.client.list(ControllerRevision, world.namespace)).items
        return sorted(found, key=lambda one: one.revision) if len(found) == count else None

    found: list[ControllerRevision] = await world.cluster.eventually(there)
    return found


async def chat(world: World) -> None:
    await world.apply(world.system("chat", cliques=[server("leader", 1, 1), server("worker", 2, 1)]))
    await world.available("chat")
    await kept(world, 1)


@pytest.mark.simulated
async def test_a_set_made_again_under_its_name_has_a_history_of_its_own(world: World) -> None:
    """That of the one before goes when the garbage collector comes to it, and has the same name till then."""
    await chat(world)
    (old,) = await kept(world, 1)
    held = {"metadata": {"finalizers": ["example.com/late"]}}
    await world.client.patch(ControllerRevision, old.metadata.name, held, world.namespace)
    await world.client.delete(PodCliqueSet, "chat", world.namespace)

    async def made_again() -> bool:
        await world.apply(world.system("chat", cliques=[server("leader", 1, 1), server("worker", 2, 1)]))
        return True

    await world.cluster.eventually(made_again)
    await world.cluster.settle(20.0)
    released = {"metadata": {"finalizers": None}}
    await world.client.patch(ControllerRevision, old.metadata.name, released, world.namespace)

    async def has_its_own() -> bool:
        (found,) = await kept(world, 1)
        return found.metadata.uid != old.metadata.uid

    await world.cluster.eventually(has_its_own, 120)


async def test_undo_restores_the_earlier_template_exactly(world: World) -> None:
    await chat(world)
    before = await template(world)
    await change(world, "example/c:2", annotations={"why": "a try"})
    await updated(world, "example/c:2")
    await kept(world, 2)
    answer = await undo_answer(world.client, world.namespace, "chat")
    assert text_of(answer, 100, world) == f"chat goes back to revision 1 ({before[0]})"
    assert await template(world) == before
    await updated(world, "example/c:1")

    async def first_is_newest() -> bool:
        found = (await world.client.list(ControllerRevision, world.namespace)).items
        newest = max(found, key=lambda one: one.revision)
        return (len(found), newest.revision) == (2, 3) and newest.metadata.labels[labels.GENERATION_HASH] == before[0]

    await world.cluster.eventually(first_is_newest)
    again = await undo_answer(world.client, world.namespace, "chat", 3)
    assert text_of(again, 100, world) == "chat is at revision 3 already"


async def test_scale_is_not_undone(world: World) -> None:
    await chat(world)
    await change(world, "example/c:2")
    await updated(world, "example/c:2")
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 2}}, world.namespace)
    await undo_answer(world.client, world.namespace, "chat")
    assert (await world.client.get(PodCliqueSet, "chat", world.namespace)).spec.replicas == 2


async def test_history_has_the_last_five_and_says_which_is_in_effect(world: World) -> None:
    await chat(world)
    for number in range(2, 8):
        await change(world, f"example/c:{number}")
        hash_, _ = await template(world)

        async def is_kept(hash_: str = hash_) -> bool:
            found = (await world.client.list(ControllerRevision, world.namespace)).items
            return any(one.metadata.labels[labels.GENERATION_HASH] == hash_ for one in found)

        await world.cluster.eventually(is_kept)
    await kept(world, 5)
    answer = await history_answer(world.client, world.namespace, "chat", world.now)
    assert [(row["revision"], row["images"][0], row["inEffect"]) for row in answer.data] == [
        (number, f"leader=example/c:{number}", number == 7) for number in range(3, 8)
    ]
    assert "example/c:7 (leader, worker)" in text_of(answer, 200, world)
    whole = await history_answer(world.client, world.namespace, "chat", world.now, 5)
    assert whole.data["cliques"][0]["podSpec"]["containers"][0]["image"] == "example/c:5"
    with pytest.raises(Unanswered, match="there is no revision 1 of chat; kept are 3, 4, 5, 6, 7"):
        await undo_answer(world.client, world.namespace, "chat", 1)


async def test_a_paused_update_takes_nothing_down_and_goes_on_when_resumed(world: World) -> None:
    await chat(world)
    assert "are paused now" in text_of(
        await pause_answer(world.client, world.namespace, "chat", paused=True), 80, world
    )
    await change(world, "example/c:2")

    async def is_open() -> bool:
        answer = await status_answer(world.client, world.namespace, "chat", world.now)
        pcs = await world.client.get(PodCliqueSet, "chat", world.namespace)
        return bool(answer.data.state == "paused" and pcs.status.update_progress is not None)

    await world.cluster.eventually(is_open)
    assert await images(world) == {"example/c:1"}
    answer = await status_answer(world.client, world.namespace, "chat", world.now)
    assert (answer.code, answer.data.updated, answer.data.pods) == (3, 0, 3)
    worker = next(role for role in answer.data.roles if role.clique == "worker")
    assert (worker.image, worker.old_images) == ("example/c:2", ("example/c:1",))
    await pause_answer(world.client, world.namespace, "chat", paused=False)
    await updated(world, "example/c:2")


@pytest.mark.simulated
async def test_the_tree_and_the_status_of_a_rollout_count_the_same_pods(world: World) -> None:
    """From the first moment of an update on, also before the operator has written the status of any clique."""
    await chat(world)
    await change(world, "example/c:2")

    seen = await read(world.client, world.namespace)
    answer = await status_answer(world.client, world.namespace, "chat", world.now)
    count = tree_of(seen, seen.sets[0]).count
    assert (count.updated, count.wanted) == (answer.data.updated, answer.data.pods) == (0, 3)


@pytest.mark.real_in("test")
@pytest.mark.simulated
async def test_a_pause_is_shown_also_while_no_update_is_under_way(world: World) -> None:
    await chat(world)
    await change(world, "two:1")
    await updated(world, "two:1")
    await kept(world, 2)
    await pause_answer(world.client, world.namespace, "chat", paused=True)

    answer = await status_answer(world.client, world.namespace, "chat", world.now)
    assert "updates are paused" in text_of(answer, 120, world)
    told = text_of(await undo_answer(world.client, world.namespace, "chat"), 200, world)
    assert "are paused: kubectl grove rollout resume chat" in told


async def test_a_restart_replaces_every_pod(world: World) -> None:
    await chat(world)
    before = {pod.metadata.uid for pod in (await world.client.list(Pod, world.namespace)).items}
    await restart_answer(world.client, world.namespace, "chat", world.now)

    async def replaced() -> bool:
        pods = (await world.client.list(Pod, world.namespace)).items
        return len(pods) == 3 and all(pod.is_ready and pod.metadata.uid not in before for pod in pods)

    await world.cluster.eventually(replaced, 60)


async def test_the_replica_that_is_down_is_named_with_what_it_waits_for(world: World) -> None:
    await chat(world)
    world.nodes.hold = lambda pod: True
    await change(world, "example/c:2")

    async def down() -> Any:
        found = (await status_answer(world.client, world.namespace, "chat", world.now)).data
        return found if found.down and found.down[0].waits_for else None

    found = await world.cluster.eventually(down)
    assert found.down[0].name == "chat-0"
    assert found.down[0].waits_for.startswith("chat-0-")
    assert "chat-0 is down since" in found.sentence


class Raced:
    """A client behind whose back the set changes, once, after it was read to be changed."""

    def __init__(self, world: World) -> None:
        self._world, self._races = world, 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.client, name)

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        found = await self._world.client.get(kind, name, namespace)
        if kind is PodCliqueSet.RESOURCE and self._races:
            self._races -= 1
            patch = {"metadata": {"annotations": {"example/seen": "yes"}}}
            await self._world.client.patch(PodCliqueSet, name, patch, namespace)
        return found


@pytest.mark.real_in("test")
async def test_undo_and_restart_do_not_mind_that_the_operator_writes_meanwhile(world: World) -> None:
    await chat(world)
    before = await template(world)
    await change(world, "example/c:2")
    await kept(world, 2)
    racing: Any = Raced(world)
    await undo_answer(racing, world.namespace, "chat")
    assert await template(world) == before
    again: Any = Raced(world)
    await restart_answer(again, world.namespace, "chat", world.now)
    assert all(labels.RESTARTED_AT in clique["annotations"] for clique in (await template(world))[1])
