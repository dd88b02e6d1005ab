"""Situations of a set: how tests bring one about, and how every command must describe it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from grove.answers.explain import explain_answer, queue_answer
from grove.answers.following import following
from grove.answers.rollout import pause_answer
from grove.answers.rollout import status_answer as rollout_answer
from grove.answers.tree import status_answer, tree_answer
from grove.api.conditions import MIN_AVAILABLE_BREACHED, TOPOLOGY_NOT_HONOURED
from grove.api.core import Lease, Node, Pod
from grove.api.meta import Json, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.console.follow import COMPLAINTS, OF_CLUSTER, OF_NAMESPACE, REFERRED, Following
from grove.sim.topology import RACK
from tests.support.asking import World, server, text_of
from tests.support.shell import QUOTA, Shell, paste

Act = Callable[[World], Awaitable[None]]
SERVED_S = 8.0
"""A pod that was ready for so long has served."""


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
        gangs = (await world.client.list(PodGang, world.namespace)).items  # it lists the one pod after a second
        answer = await status_answer(world.client, world.namespace, "chat", world.now)
        return bool(gangs) and "ResourceQuota" in answer.data[0].why

    await world.cluster.eventually(told)


async def node_lost(world: World) -> None:
    await healthy(world)
    pod = next(p for p in (await world.client.list(Pod, world.namespace)).items if "worker" in p.metadata.name)
    await world.nodes.stop_node(pod.spec.node_name)
    await unready(world)


async def surplus_replica_waits(world: World) -> None:
    """Two replicas of the set serve; there is no space for the third, which on a real API server may be either."""
    manifest = world.system("chat", cliques=[server("worker", 4, 8)])
    await world.apply(manifest)
    await world.available("chat")
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 3}}, world.namespace)
    await world.refused("chat-1", "chat-2")


async def rack_too_small(world: World) -> None:
    await world.apply(world.system("chat", cliques=[server("worker", 5, 8)]))
    await world.refused("chat-0")


async def together_too_large(world: World) -> None:
    """A rack has capacity for the leader or for the workers."""
    await world.apply(world.system("chat", cliques=[server("leader", 1, 8), server("worker", 4, 8)]))
    await world.refused("chat-0")


async def operator_dead(world: World) -> None:
    """It died, and a person deleted a pod since."""
    await healthy(world)
    await world.stop("operator")
    await expired(world, "grove-operator-leader-election")
    pod = (await world.client.list(Pod, world.namespace)).items[0].metadata
    await world.client.delete(Pod, pod.name, world.namespace)


async def scheduler_dead(world: World) -> None:
    await world.stop("scheduler")
    await expired(world, "grove-scheduler-leader-election")
    await world.apply(world.system("chat"))
    await bound(world, 0, pods=3)


async def in_two_racks(world: World) -> None:
    """A node of a set that requires one rack gets the label of another rack."""
    await healthy(world)
    pod = next(p for p in (await world.client.list(Pod, world.namespace)).items if "worker" in p.metadata.name)
    await world.client.patch(Node, pod.spec.node_name, {"metadata": {"labels": {RACK: f"{world.namespace}-elsewhere"}}})

    async def said() -> bool:
        pcs = await world.client.get(PodCliqueSet, "chat", world.namespace)
        return is_true(pcs.status.conditions, TOPOLOGY_NOT_HONOURED)

    await world.cluster.eventually(said)


async def surplus_instance_waits(world: World) -> None:
    """The group's minimum of one instance runs; its second one fits nowhere."""
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 2, "minAvailable": 1}]
    cliques = [server("front", 1, 1), server("leader", 5, 8)]
    await world.apply(world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=groups))
    await world.refused("chat-0-pair-0")


async def surplus_pod_failed(world: World) -> None:
    """One of three workers crashes; the clique needs two."""
    await world.apply(world.system("chat", cliques=[minimal(server("worker", 3, 8), 2)]))
    await world.available("chat")
    await asyncio.sleep(SERVED_S)
    pod = (await world.client.list(Pod, world.namespace)).items[0]
    await world.nodes.crash_pod(world.namespace, pod.metadata.name, restart_s=3600.0)
    await unready(world)


async def surplus_pods_wait(world: World) -> None:
    """Eight of ten workers have a node each; the clique needs four."""
    await world.apply(world.system("chat", required="block", cliques=[minimal(server("worker", 10, 8), 4)]))

    async def eight_run() -> bool:
        pods = (await world.client.list(Pod, world.namespace)).items
        return sum(pod.is_ready for pod in pods) == 8 and sum(pod.is_unschedulable for pod in pods) == 2

    await world.cluster.eventually(eight_run)


async def full_rack_lost_a_node(world: World) -> None:
    """The set uses a whole rack, of which a node is removed. The other rack is free."""
    await world.apply(world.system("chat", cliques=[server("worker", 4, 8)]))
    await world.available("chat")
    pod = (await world.client.list(Pod, world.namespace)).items[0]
    await world.nodes.remove_node(pod.spec.node_name)

    async def no_place() -> bool:
        return any(pod.is_unschedulable for pod in (await world.client.list(Pod, world.namespace)).items)

    await world.cluster.eventually(no_place)
    await breached(world)


async def two_instances_run(world: World) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader", "worker"], "replicas": 2, "minAvailable": 1}]
    cliques = [server("front", 1, 1), server("leader", 1, 8), server("worker", 1, 8)]
    await world.apply(world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=groups))


async def instance_hangs(world: World) -> None:
    """The leader of the second instance served, runs, and is not ready any more."""
    await two_instances_run(world)
    await world.available("chat")
    await asyncio.sleep(SERVED_S)
    pods = (await world.client.list(Pod, world.namespace)).items
    name = next(pod.metadata.name for pod in pods if "pair-1-leader" in pod.metadata.name)
    status = (await world.client.get(Pod.RESOURCE, name, world.namespace))["status"]
    conditions = [
        {**one, "status": "False", "lastTransitionTime": f"{world.now:%Y-%m-%dT%H:%M:%SZ}"}
        if one["type"] in ("Ready", "ContainersReady")
        else one
        for one in status["conditions"]
    ]
    containers = [{**one, "ready": False, "started": True} for one in status["containerStatuses"]]
    patch = {"status": {"conditions": conditions, "containerStatuses": containers}}
    await world.client.patch(Pod, name, patch, world.namespace, subresource="status")
    await breached(world)


async def instance_is_never_ready(world: World) -> None:
    """The second instance runs for a while and its kubelets say nothing of it; new pods would start."""
    world.nodes.hold = lambda pod: "-pair-1-" in pod.metadata.name
    await two_instances_run(world)
    await asyncio.sleep(1000)
    world.nodes.hold = lambda pod: False


async def clique_at_zero(world: World) -> None:
    """The only clique of the set is scaled to 0, as KEDA does."""
    await world.apply(world.system("chat", cliques=[server("worker", 1, 8)]))
    await world.available("chat")
    await world.client.patch(PodClique, "chat-0-worker", {"spec": {"replicas": 0}}, world.namespace)

    async def gone() -> bool:
        return not (await world.client.list(Pod, world.namespace)).items

    await world.cluster.eventually(gone)


async def expired(world: World, name: str) -> None:
    spec = {"holderIdentity": "old", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    await world.client.create(Lease, {"metadata": {"name": name, "namespace": world.namespace}, "spec": spec})


def minimal(clique: Json, minimum: int) -> Json:
    clique["spec"]["minAvailable"] = minimum
    return clique


async def new_image(world: World) -> None:
    raw: Json = await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace)
    cliques = raw["spec"]["template"]["cliques"]
    for clique in cliques:
        clique["spec"]["podSpec"]["containers"][0]["image"] = "example/c:2"
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"template": {"cliques": cliques}}}, world.namespace)


async def breached(world: World) -> None:
    """A clique reports that it is below its minimum."""

    async def is_reported() -> bool:
        cliques = (await world.client.list(PodClique, world.namespace)).items
        return any(is_true(clique.status.conditions, MIN_AVAILABLE_BREACHED) for clique in cliques)

    await world.cluster.eventually(is_reported)


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
    """`sentence` is how the reason begins, `advises` a part of the first advice or of its command.

    `cure` carries out the first advice where the product gives no command; a command is pasted as it stands.
    """

    act: Act
    state: str
    code: int
    sentence: str
    waits: bool = False
    """Whether `queue` has a gang of it."""
    advises: str = ""
    cure: Act | None = None
    over: str = "running"
    rolls: bool = False
    """Whether an update is open, although the state is another."""

    @property
    def rollout_code(self) -> int:
        """Of `rollout status`, which asks whether every pod is up to date."""
        return 3 if self.rolls or self.state in ("updating", "paused") else 0


async def agreed(world: World, situation: Situation) -> None:
    """All commands say the same, at once and a minute later.

    A real cluster may change between two commands, so there they are asked until they agree. A second set is in every
    list. It has 0 replicas, so it takes nothing.
    """
    idle = world.system("idle")
    idle["spec"]["replicas"] = 0
    await world.apply(idle)
    await situation.act(world)
    if world.cluster.is_sim:
        await compared(world, situation)
        await asyncio.sleep(60)
        return await compared(world, situation)
    disagreement = AssertionError(f"the set did not become {situation.state}")

    async def agree() -> bool:
        nonlocal disagreement
        try:
            await compared(world, situation)
        except AssertionError as found:
            disagreement = found
            return False
        return True

    try:
        await world.cluster.eventually(agree)
    except AssertionError:
        raise disagreement from None


async def shown_in_the_console(world: World) -> Json:
    """The row of the set in the console's list, for a viewer who may read everything."""
    kinds = (*OF_NAMESPACE, *OF_CLUSTER, *REFERRED, *COMPLAINTS)
    async with Following(world.client, kinds, world.namespace, world.cluster.clock).following() as page:
        row: Json = page.ledger.table("sets")[f"{world.namespace}/chat"]
        return row


async def compared(world: World, situation: Situation) -> None:
    """Asks every command once, after the situation has come."""
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
    page = await shown_in_the_console(world)
    async with following(client, namespace) as source:
        [top] = [one for one in (await source.judged(source.seen())).sets if one.name == "chat"]
    listed = (await status_answer(client, namespace, "", world.now)).data
    assert sorted(one.name for one in listed) == ["chat", "idle"]
    [row] = status.data
    words = {
        "status": row.state,
        "tree": tree.data["verdict"],
        "explain": explain.data["state"],
        "rollout": rollout.data.set_state,
        "console": page["state"],
        "top": top.state,
    }
    assert words == dict.fromkeys(words, situation.state), row.why
    assert (status.code, tree.code, explain.code, queue.code) == (situation.code,) * 4
    if situation.code and not situation.waits:
        said = text_of(queue, 400, world)
        assert re.search(rf"chat is {situation.state}: .*", said), f"why it is not 0: {said}"
    assert re.match(situation.sentence, explain.data["reason"]), explain.data["reason"]
    shown = "".join(text_of(explain, 400, world).split())
    reason = re.sub(r"^chat-\S+: ", "", explain.data["reason"]).split("; ")[0]  # the gang's name is in the heading
    for part in (reason, explain.data["next"], explain.data["command"]):
        plain = part.replace(world.cluster.prefix, "").replace(namespace, "NS")
        assert "".join(plain.split()) in shown, f"the text of explain lacks {part!r}"
    whys = [row.why, tree.data["reason"], rollout.data.set_reason]
    assert len(set(whys)) == 1, whys
    assert [row.why] == [one.why for one in listed if one.name == "chat"], "in a list of sets"
    assert row.why == page["why"], "in the console"
    assert row.why[:20] == top.reason[:20], ("in top", row.why, top.reason)
    assert page["gangs"] == {one.gang: one.state for one in explain.data["gangs"]}
    assert 0 < len(row.why) <= 80
    assert row.why[:20] == explain.data["reason"][:20], (row.why, explain.data["reason"])
    waiting = [line for line in queue.data if line.name.startswith("chat-")]
    assert bool(waiting) == situation.waits
    if waiting and not row.why.startswith("grove-"):
        assert any(row.why[:20] in f"{line.name}: {line.waits_for}" for line in waiting), waiting
    if row.why.startswith("grove-"):
        told = [status, tree, explain, queue]
        for answer in told if row.why.startswith("grove-scheduler") else [*told, rollout]:
            first = text_of(answer, 200, world).splitlines()[0]
            assert "does not run" in first, first


async def mended(world: World, situation: Situation, shell: Shell | None) -> None:
    """The first advice is the expected one; carried out, it ends the situation."""
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    step, command = explain.data["next"], explain.data["command"]
    assert situation.advises in f"{step} {command}", (step, command)
    assert bool(command) != (situation.cure is not None), "what the product gives as a command is not done by hand"
    if situation.cure is not None:
        await situation.cure(world)
    else:
        await paste(world, shell, command)

    async def over() -> bool:
        [row] = (await status_answer(world.client, world.namespace, "chat", world.now)).data
        return bool(row.state == situation.over)

    await world.cluster.eventually(over, 300)
