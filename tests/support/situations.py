"""Situations of a set: how tests bring one about, and how every command must describe it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from grove.api.core import Pod
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.cli.explain import explain_answer, queue_answer
from grove.cli.rollout import pause_answer
from grove.cli.rollout import status_answer as rollout_answer
from grove.cli.tree import status_answer, tree_answer
from grove.console.rows import set_rows
from grove.show.processes import read_processes
from grove.show.seen import read
from tests.support.asking import World, server, text_of

QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")

Act = Callable[[World], Awaitable[None]]


async def healthy(world: World) -> None:
    await world.apply(world.system("chat"))
    await world.available("chat")


async def paused(world: World) -> None:
    await healthy(world)
    await pause_answer(world.client, world.namespace, "chat", paused=True)
    await new_image(world)

    async def begun() -> bool:
        progress = (await world.client.get(PodCliqueSet, "chat", world.namespace)).status.update_progress
        return progress is not None and progress.update_ended_at is None

    await world.cluster.eventually(begun)


async def scaled_to_zero(world: World) -> None:
    await healthy(world)
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 0}}, world.namespace)

    async def gone() -> bool:
        return not (await world.client.list(Pod, world.namespace)).items

    await world.cluster.eventually(gone)


async def waits_for_quota(world: World) -> None:
    few = {"metadata": {"name": "few", "namespace": world.namespace}, "spec": {"hard": {"pods": "1"}}}
    await world.client.create(QUOTA, few)
    await world.apply(world.system("chat"))

    async def told() -> bool:
        answer = await status_answer(world.client, world.namespace, "chat", world.now)
        return "quota" in answer.data[0].why

    await world.cluster.eventually(told)


async def node_lost(world: World) -> None:
    await healthy(world)
    pod = next(p for p in (await world.client.list(Pod, world.namespace)).items if "worker" in p.metadata.name)
    await world.nodes.stop_node(pod.spec.node_name)
    await unready(world)


async def surplus_replica_waits(world: World) -> None:
    """One replica of the set serves; the cluster has no space for the second one."""
    manifest = world.system("chat", cliques=[server("worker", 4, 8)])
    await world.apply(manifest)
    await world.available("chat")
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 3}}, world.namespace)
    await world.refused("chat-2")


def minimal(clique: Json, minimum: int) -> Json:
    clique["spec"]["minAvailable"] = minimum
    return clique


async def new_image(world: World) -> None:
    raw: Json = await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace)
    cliques = raw["spec"]["template"]["cliques"]
    for clique in cliques:
        clique["spec"]["podSpec"]["containers"][0]["image"] = "example/c:2"
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"template": {"cliques": cliques}}}, world.namespace)


async def bound(world: World, count: int, pods: int | None = None) -> None:
    async def there() -> bool:
        found = (await world.client.list(Pod, world.namespace)).items
        return len(found) == (pods or count) and sum(pod.is_bound for pod in found) == count

    await world.cluster.eventually(there)


async def unready(world: World) -> None:
    async def one_is() -> bool:
        return any(not pod.is_ready for pod in (await world.client.list(Pod, world.namespace)).items)

    await world.cluster.eventually(one_is)


@dataclass(frozen=True)
class Situation:
    act: Act
    state: str
    code: int
    sentence: str
    waits: bool = False
    """Whether `queue` has a gang of it."""
    simulated: bool = False

    @property
    def rollout_code(self) -> int:
        """Of `rollout status`, which asks whether every pod is up to date."""
        return 3 if self.state in ("updating", "paused") else 0


async def agreed(world: World, situation: Situation) -> None:
    await situation.act(world)
    client, namespace, now = world.client, world.namespace, world.now

    async def settled() -> Any:
        found = await status_answer(client, namespace, "chat", world.now)
        return found if found.data[0].state == situation.state else None

    try:
        status = await world.cluster.eventually(settled, 60)
    except AssertionError:
        status = await status_answer(client, namespace, "chat", now)
    tree = await tree_answer(client, namespace, "chat", now=world.now)
    explain = await explain_answer(client, namespace, "chat", now=world.now)
    queue = await queue_answer(client, namespace, world.now)
    rollout = await rollout_answer(client, namespace, "chat", world.now)
    assert rollout.code == situation.rollout_code
    source = await read(client, namespace)
    page = set_rows(source, world.now, await read_processes(client, world.now), "")[f"{namespace}/chat"]
    [row] = status.data
    words = {
        "status": row.state,
        "tree": tree.data["verdict"],
        "explain": explain.data["state"],
        "rollout": rollout.data.set_state,
        "console": page["state"],
    }
    assert words == dict.fromkeys(words, situation.state), row.why
    assert (status.code, tree.code, explain.code, queue.code) == (situation.code,) * 4
    if situation.code and not situation.waits:
        assert re.search(rf"chat is {situation.state}: .*", text_of(queue, 400, world)), "why it is not 0"
    assert re.match(situation.sentence, explain.data["reason"]), explain.data["reason"]
    assert row.why == tree.data["reason"]
    assert page["gangs"] == {one.gang: one.state for one in explain.data["gangs"]}
    assert 0 < len(row.why) <= 80
    assert row.why[:20] == explain.data["reason"][:20]
    assert bool([line for line in queue.data if line.name.startswith("chat-")]) == situation.waits
    if row.why.startswith("grove-"):
        told = [status, tree, explain, queue]
        for answer in told if row.why.startswith("grove-scheduler") else [*told, rollout]:
            first = text_of(answer, 200, world).splitlines()[0]
            assert "does not run" in first, first
