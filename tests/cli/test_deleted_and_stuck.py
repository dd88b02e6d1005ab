"""What should be gone and is not, and what only looks stuck: the commands name the finalizer, the process, the work."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.support.asking import World, server, text_of
from tests.support.broken import init_at_work
from tests.support.situations import bound, expired, healthy

from grove.answers.explain import explain_answer, queue_answer
from grove.answers.rollout import status_answer as rollout_answer
from grove.answers.tree import status_answer, tree_answer
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang

pytestmark = pytest.mark.simulated

FOREIGN = "example.com/backup"


async def explained(world: World, name: str = "chat") -> Any:
    return (await explain_answer(world.client, world.namespace, name, now=world.now)).data


async def why(world: World) -> str:
    [row] = (await status_answer(world.client, world.namespace, "chat", world.now)).data
    return str(row.why)


async def brief(world: World) -> str:
    rollout = (await rollout_answer(world.client, world.namespace, "chat", world.now)).data
    return str(rollout.set_reason)


async def test_a_deleted_set_names_the_finalizer_of_another_program_and_the_step_ends_it(world: World) -> None:
    manifest = world.system("chat")
    manifest["metadata"]["finalizers"] = [FOREIGN]
    await world.apply(manifest)
    await world.available("chat")
    await world.client.delete(PodCliqueSet, "chat", world.namespace)
    await asyncio.sleep(120)
    told = await explained(world)
    assert (told["state"], told["reason"]) == ("deleting", f"is being deleted; finalizer {FOREIGN} keeps it")
    assert await why(world) == told["reason"]
    patch = re.search(r"kubectl -n (\S+) patch pcs (\S+) --type=merge -p '(.*)'", told["next"])
    assert patch is not None
    assert (patch[1], patch[2], patch[3]) == (world.namespace, "chat", '{"metadata":{"finalizers":null}}')
    await world.client.patch(PodCliqueSet, "chat", {"metadata": {"finalizers": None}}, world.namespace)
    assert (await status_answer(world.client, world.namespace, "", world.now)).data == []


async def test_a_set_that_is_deleted_while_the_operator_is_dead_waits_for_the_operator(world: World) -> None:
    await healthy(world)
    await world.stop("operator")
    await expired(world, "grove-operator-leader-election")
    await world.client.delete(PodCliqueSet, "chat", world.namespace)
    await asyncio.sleep(60)
    told = await explained(world)
    assert told["state"] == "deleting"
    assert told["reason"].startswith("grove-operator does not run")
    assert told["next"].startswith("start grove-operator")
    tree = await tree_answer(world.client, world.namespace, "chat", now=world.now)
    queue = await queue_answer(world.client, world.namespace, world.now)
    for answer in (tree, queue):
        assert "grove-operator does not run" in text_of(answer, 200, world).splitlines()[0]
    assert re.fullmatch(
        r"grove-operator does not run \(no process leads for \d+d: old was the last…", await brief(world)
    )


async def test_a_deletion_that_takes_long_asks_for_the_operator(world: World) -> None:
    """Nothing says whether an operator runs: it holds no lease."""
    await healthy(world)
    await world.stop("operator")
    await world.client.delete(PodCliqueSet, "chat", world.namespace)
    await asyncio.sleep(10)
    assert (await explained(world))["next"] == "wait until its pods are gone"
    await asyncio.sleep(120)
    assert (await explained(world))["next"].startswith("kubectl grove doctor: does the operator run?")


async def kept_pod(world: World) -> str:
    """A pod of a set that runs is deleted, and a finalizer keeps it. The operator makes another one."""
    await healthy(world)
    name = (await world.client.list(Pod, world.namespace)).items[0].metadata.name
    await world.client.patch(Pod, name, {"metadata": {"finalizers": [FOREIGN]}}, world.namespace)
    await world.client.delete(Pod, name, world.namespace)
    await asyncio.sleep(600)
    return name


async def test_a_pod_that_should_be_gone_is_named_with_its_finalizer(world: World) -> None:
    """It holds its GPUs, and a set that runs would not show why they are not free."""
    name = await kept_pod(world)
    words = rf"should be gone since \d+m: finalizer {FOREIGN} keeps it"
    told = await explained(world)
    assert told["state"] == "running"
    assert re.fullmatch(rf"3 of 3 pods ready; {name} {words}", told["reason"])
    assert told["next"] == f"the program that set finalizer {FOREIGN} has to remove it"
    tree = await tree_answer(world.client, world.namespace, "chat", now=world.now)
    [line] = [line for line in text_of(tree, 200, world).splitlines() if name in line]
    assert re.search(words, line)
    await world.client.patch(Pod, name, {"metadata": {"finalizers": None}}, world.namespace)
    assert (await explained(world))["reason"] == "3 of 3 pods ready"


async def test_a_pod_is_overdue_only_a_minute_after_its_grace_period(world: World) -> None:
    await healthy(world)
    name = (await world.client.list(Pod, world.namespace)).items[0].metadata.name
    await world.client.patch(Pod, name, {"metadata": {"finalizers": [FOREIGN]}}, world.namespace)
    await world.client.delete(Pod, name, world.namespace)
    await asyncio.sleep(50)
    assert "should be gone" not in (await explained(world))["reason"]
    await asyncio.sleep(60)
    assert "should be gone" in (await explained(world))["reason"]


async def test_a_gang_whose_base_gang_does_not_exist_sends_no_person_to_it(world: World) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 2, "minAvailable": 1}]
    cliques = [server("front", 1, 1), server("leader", 6, 8)]
    await world.apply(world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=groups))
    await world.refused("chat-0-pair-0")
    await world.stop("operator")
    await world.client.delete(PodGang, "chat-0", world.namespace)

    async def is_said() -> bool:
        return "which does not exist" in (await explained(world))["reason"]

    await world.cluster.eventually(is_said)
    assert (await explained(world))["next"].startswith("the operator makes its base gang again")


async def test_no_restart_is_advised_while_an_init_container_fetches_a_model(world: World) -> None:
    await init_at_work(world)
    await asyncio.sleep(1200)
    told = await explained(world)
    assert told["reason"] == "init container fetch has run for 20m"
    assert (told["next"].split(" -c ")[1], told["command"]) == ("fetch", "")


@pytest.mark.parametrize("probed", [pytest.param(True, id="with a startup probe"), pytest.param(False, id="without")])
async def test_a_container_that_loads_for_long_is_left_to_its_startup_probe(world: World, probed: bool) -> None:
    world.nodes.hold = lambda pod: True
    manifest = world.system("chat", cliques=[server("worker", 1, 8)])
    container: Json = manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    if probed:
        container["startupProbe"] = {"httpGet": {"path": "/", "port": 8000}, "failureThreshold": 360}
    await world.apply(manifest)
    await bound(world, 1)
    await asyncio.sleep(1200)
    told = await explained(world)
    assert told["reason"] == "its pods are starting"
    assert told["next"].startswith("wait, or kubectl logs" if probed else "restart chat/worker/0")


async def test_an_evicted_pod_has_no_log_of_an_earlier_run(world: World) -> None:
    await healthy(world)
    name = (await world.client.list(Pod, world.namespace)).items[0].metadata.name
    said = "The node was low on resource: ephemeral-storage."
    status = {"phase": "Failed", "reason": "Evicted", "message": said}
    await world.client.patch(Pod, name, {"status": status}, world.namespace, subresource="status")
    told = await explained(world)
    assert told["reason"] == said
    assert told["next"].startswith("wait: the operator replaces the pod")
