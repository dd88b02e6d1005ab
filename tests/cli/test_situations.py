"""One list of situations: `status`, `tree` and `explain` agree in words and exit code, `queue` in its exit code."""

from __future__ import annotations

import pytest
from tests.support.asking import World, server, text_of
from tests.support.broken import crashed, init_at_work
from tests.support.situations import (
    Situation,
    agreed,
    bound,
    expired,
    healthy,
    in_two_racks,
    new_image,
    unready,
)

from grove.answers.explain import explain_answer
from grove.answers.tree import status_answer, tree_answer
from grove.api.core import Pod
from grove.api.meta import rfc3339
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.real_in("soak")

HELD = "4 nodes are held for big-0"


async def starting(world: World) -> None:
    world.nodes.hold = lambda pod: True
    await world.apply(world.system("chat", cliques=[server("worker", 2, 8)]))
    await bound(world, 2)


async def updating(world: World) -> None:
    await healthy(world)
    world.nodes.hold = lambda pod: True
    await new_image(world)
    await unready(world)


async def changed_unattended(world: World) -> None:
    """It gets a new image just after the operator died."""
    await healthy(world)
    await world.stop("operator")
    await new_image(world)


async def group_at_zero(world: World) -> None:
    groups = [{"name": "pair", "cliqueNames": ["leader"], "replicas": 1, "minAvailable": 1}]
    cliques = [server("front", 1, 1), server("leader", 1, 8)]
    await world.apply(world.system("chat", required="block", cliques=cliques, podCliqueScalingGroups=groups))
    await world.available("chat")
    await world.client.patch(PodCliqueScalingGroup, "chat-0-pair", {"spec": {"replicas": 0}}, world.namespace)

    async def gone() -> bool:
        pods = (await world.client.list(Pod, world.namespace)).items
        return len(pods) == 1 and pods[0].is_ready

    await world.cluster.eventually(gone)


async def held(world: World) -> None:
    """What the scheduler writes when it holds suitable nodes for a gang that comes first."""
    await world.stop("scheduler")
    await world.apply(world.system("chat"))

    async def complete() -> bool:
        gang = await world.client.get(PodGang, "chat-0", world.namespace)
        return any(one.type == "Initialized" and one.status == "True" for one in gang.status.conditions)

    await world.cluster.eventually(complete)
    gang = await world.client.get(PodGang, "chat-0", world.namespace)
    said = {
        "type": "Scheduled",
        "status": "False",
        "reason": "NodesHeldForOthers",
        "message": HELD,
        "lastTransitionTime": rfc3339(world.now),
    }
    kept = [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "lastTransitionTime": rfc3339(one.last_transition_time or world.now),
        }
        for one in gang.status.conditions
    ]
    patch = {"status": {"conditions": [*kept, said]}}
    await world.client.patch(PodGang, "chat-0", patch, world.namespace, subresource="status")


async def image_missing(world: World) -> None:
    world.nodes.hold = lambda pod: True
    await world.apply(world.system("chat", cliques=[server("worker", 1, 8)]))
    await bound(world, 1)
    [pod] = (await world.client.list(Pod, world.namespace)).items
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    image = pod.spec.containers[0].image  # a kubelet acts on a status that names another image
    container = {"name": "c", "image": image, "imageID": "", "ready": False, "restartCount": 0}
    status = {"containerStatuses": [{**container, "state": {"waiting": waiting}}]}
    await world.client.patch(Pod, pod.metadata.name, {"status": status}, world.namespace, subresource="status")


SITUATIONS = {
    "healthy": Situation(healthy, "running", 0, r"3 of 3 pods ready"),
    "starting": Situation(starting, "starting", 3, r"its pods are starting"),
    "updating": Situation(updating, "updating", 3, r"updating: \d of \d pods up to date; chat-0 is down since \d+s, "),
    "a change that nobody took up": Situation(
        changed_unattended, "updating", 3, r"the operator has not taken up the new template yet: 0 of 3 pods up to date"
    ),
    "a group at zero": Situation(group_at_zero, "running", 0, r"1 of 1 pod ready"),
    "held": Situation(held, "waiting", 4, HELD, True),
    "an init container at work": Situation(init_at_work, "starting", 3, r"init container fetch has run for \d+[sm]"),
    "image missing": Situation(image_missing, "broken", 4, r"c: ImagePullBackOff"),
}
"""Situations that are well, that pass by themselves, or that ask for nothing but patience."""


@pytest.mark.parametrize("name", [pytest.param("healthy", marks=pytest.mark.real_in("test")), *list(SITUATIONS)[1:]])
async def test_every_command_says_the_same_of_a_situation(world: World, name: str) -> None:
    await agreed(world, SITUATIONS[name])


async def test_explain_and_tree_name_the_pods_and_domains_of_a_topology_that_was_not_kept(world: World) -> None:
    await in_two_racks(world)
    explain = await explain_answer(world.client, world.namespace, "chat", now=world.now)
    shown = " ".join(text_of(explain, 400, world).split())
    for pod in (await world.client.list(Pod, world.namespace)).items:
        assert pod.metadata.name in shown
    assert "elsewhere (chat-0-worker-" in shown
    assert "kubectl grove doctor says what grove-scheduler needs" in shown
    tree = await tree_answer(world.client, world.namespace, "chat", now=world.now)
    assert "its pods span a required topology domain" in text_of(tree, 200, world)


@pytest.mark.simulated
async def test_the_first_line_of_tree_quotes_an_engine_to_the_name_of_its_file(world: World) -> None:
    words = "gguf_init_from_file: failed to open GGUF file '/models/none.gguf' (No such file or directory)"
    await crashed(1, message=f"0.00.007.148 E {words}\nexiting due to model loading error\n")(world)
    tree = await tree_answer(world.client, world.namespace, "chat", now=world.now)
    shown = " ".join(text_of(tree, 120, world).split())
    assert f"container c ends with exit code 1: {words}" in shown


@pytest.mark.simulated
@pytest.mark.parametrize("process", ["operator", "scheduler"])
async def test_a_line_of_status_keeps_its_own_cause_while_a_process_is_down(world: World, process: str) -> None:
    await image_missing(world)
    await world.stop(process)
    await expired(world, f"grove-{process}-leader-election")
    status = await status_answer(world.client, world.namespace, "", world.now)
    shown = " ".join(text_of(status, 200, world).split())
    assert shown.startswith(f"grove-{process} does not run")
    assert shown.count("does not run") == 1
    assert "c: ImagePullBackOff" in shown
    [row] = status.data
    assert row.why.startswith(f"grove-{process} does not run"), "a reader of the JSON sees no banner"
    assert "c: ImagePullBackOff" in row.cause


@pytest.mark.real_in("test")
async def test_labels_select_the_sets_of_status(world: World) -> None:
    manifest = world.system("chat", cliques=[server("worker", 1, 1)])
    manifest["metadata"]["labels"] = {"team": "search"}
    await world.apply(manifest)
    for selector, want in (("team=search", ["chat"]), ("team=x", [])):
        found = await status_answer(world.client, world.namespace, "", world.now, selector=selector)
        assert [row.name for row in found.data] == want
