"""The labels of docs/gateways.md select exactly the pods that a gateway should send requests to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World
from tests.support.workloads import change

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.draining import draining_until
from grove.api.hashes import wanted_revision
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.simulated

PAGE = (Path(__file__).parents[2] / "docs/gateways.md").read_text()
ROUTERS, LEADERS = "entry part of a set", "leader is a clique of one pod"
FIRST_PODS, REVISION, REPLICA = "leader and workers are one clique", "only one revision", "only one replica of the set"


def selector(row: str) -> dict[str, str]:
    """The labels in the row of the page's table that contains `row`; `the same` are those of the leaders."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith("|") and row in line)
    _, _, labels, _ = line.split("|")
    found = dict(re.findall(r"`([\w./-]+): \"?([^`\"]+)\"?`", labels))
    return {**selector(LEADERS), **found} if "the same" in labels else found


def chat() -> Json:
    """Two replicas: a router of two pods, two instances with a leader and two workers, and an engine of one clique."""
    cliques = [clique("router", 2), clique("engine-leader"), clique("engine-worker", 2), clique("engine", 3)]
    groups = [group("instance", "engine-leader", "engine-worker", replicas=2), group("whole", "engine", replicas=2)]
    manifest = pcs("chat", *cliques, replicas=2, groups=groups)
    manifest["metadata"].setdefault("annotations", {})[key.DRAIN_SECONDS] = "30"
    return manifest


async def selected(world: World, row: str, **more: str) -> set[str]:
    """Host names of the pods that a Service or an endpoint picker sends to: they are Ready and not being deleted."""
    found = await world.list(Pod, **{**selector(row), **more})
    return {pod.spec.hostname for pod in found if pod.is_ready and not pod.metadata.is_deleting}


INSTANCES = [(replica, index) for replica in (0, 1) for index in (0, 1)]
ALL_LEADERS = {f"chat-{replica}-instance-{index}-engine-leader-0" for replica, index in INSTANCES}


async def test_each_row_selects_its_pods_and_no_other(world: World) -> None:
    await world.apply(chat())
    await world.ready(28)
    revision = wanted_revision(await world.get(PodCliqueSet, "chat"), "instance")
    assert await selected(world, ROUTERS) == {
        f"chat-{replica}-router-{index}" for replica in (0, 1) for index in (0, 1)
    }
    assert await selected(world, LEADERS) == ALL_LEADERS
    firsts = {f"chat-{replica}-whole-{index}-engine-0" for replica, index in INSTANCES}
    assert await selected(world, FIRST_PODS, **{key.CLIQUE_NAME: "engine"}) == firsts
    assert await selected(world, REVISION, **{key.REVISION: revision}) == ALL_LEADERS
    assert await selected(world, REPLICA) == {one for one in ALL_LEADERS if one.startswith("chat-0-")}


async def test_a_revision_selects_the_pods_of_its_templates(world: World) -> None:
    manifest = chat()
    manifest["spec"]["template"]["podCliqueScalingGroups"][0]["rollingUpdate"] = {"partition": 1}
    await world.apply(manifest)
    await world.ready(28)
    old = wanted_revision(await world.get(PodCliqueSet, "chat"), "instance")
    await change(world, "chat", "engine-leader")

    async def is_split() -> bool:
        new = wanted_revision(await world.get(PodCliqueSet, "chat"), "instance")
        of_old, of_new = [await selected(world, REVISION, **{key.REVISION: one}) for one in (old, new)]
        held = {f"chat-{replica}-instance-0-engine-leader-0" for replica in (0, 1)}
        return new != old and of_old == held and of_new == ALL_LEADERS - held

    await world.eventually(is_split, 600)


async def test_a_leader_that_drains_is_not_selected(world: World) -> None:
    await world.apply(chat())
    await world.ready(28)
    leaving = "chat-0-instance-1-engine-leader-0"
    await world.scale(PodCliqueScalingGroup, "chat-0-instance", 1)

    async def drains() -> bool:
        return any(pod.spec.hostname == leaving and draining_until(pod) for pod in await world.pods())

    await world.eventually(drains)
    assert await selected(world, LEADERS) == ALL_LEADERS - {leaving}


async def test_a_leader_that_is_not_ready_is_not_selected(world: World) -> None:
    world.nodes.start_s = 1000
    await world.apply(chat())

    async def all_bound() -> bool:
        found = await world.pods()
        return len(found) == 28 and all(pod.is_bound for pod in found)

    await world.eventually(all_bound)
    assert await selected(world, LEADERS) == set()
    await world.eventually(lambda: _is_selected(world), 2000)


async def _is_selected(world: World) -> bool:
    return await selected(world, LEADERS) == ALL_LEADERS
