"""`plan --drain`: gangs move whole, the plan names pods without a place, and it obeys disruption budgets."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest
from rich.console import Console
from tests.support.objects import pod_manifest

from grove.answers.answer import Answer, Unanswered
from grove.answers.plan import plan_answer
from grove.answers.settings import settings_of
from grove.api import labels
from grove.api.core import ConfigMap, Namespace, Node, Pod, PodDisruptionBudget
from grove.api.meta import Json, Resource
from grove.api.topology import ClusterTopologyBinding
from grove.plan.copying import copy_cluster
from grove.plan.world import World, binding, shaped
from grove.scheduler.model.config import SchedulerConfiguration, load_configuration
from grove.sim.loop import run

FULL, OTHER = "z0-b0-r0-n0", "z0-b0-r0-n1"


REPLICA_SET = Resource("apps", "v1", "ReplicaSet", "replicasets")


def bare_pod(name: str, gpus: int, node: str, controller: str = "") -> Json:
    """A pod without a gang. The controller has only a name here, and gets its uid when it exists."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "c", "image": "example/c:1", "resources": resources}
    body = pod_manifest("default", name, labels={"app": name}, nodeName=node, containers=[container])
    if controller:
        owner = {"apiVersion": "apps/v1", "kind": controller, "name": name, "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
    return body


async def create(world: World, one: Json) -> None:
    for owner in one["metadata"].get("ownerReferences", ()):
        if owner["kind"] == "Node":
            owner.update(apiVersion="v1", name=FULL, uid=(await world.client.get(Node, FULL)).metadata.uid)
        else:
            meta = {"name": owner["name"], "namespace": "default"}
            made = await world.client.create(REPLICA_SET, {"metadata": meta, "spec": {"replicas": 1}})
            owner["uid"] = made["metadata"]["uid"]
    await world.client.create(Pod, one)


def small() -> Json:
    resources = {"limits": {"nvidia.com/gpu": 2}}
    spec = {
        "roleName": "a",
        "replicas": 2,
        "podSpec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }
    return {
        "metadata": {"name": "small"},
        "spec": {"replicas": 1, "template": {"cliques": [{"name": "a", "spec": spec}]}},
    }


def drained(*others: Json, budget_for: str = "", labelled: str = "app") -> Answer:
    """Two nodes of 8 GPUs; a gang of 4 on the first, with others; the second has 3 taken. The first is drained."""

    async def look() -> Answer:
        async with World(shaped(2)) as world:
            await world.apply(small())
            assert await world.until(lambda: world.is_settled("small"))
            assert {one.spec.node_name for one in world.pods_of("small-0")} == {FULL}
            for one in (bare_pod("neighbour", 3, OTHER, "ReplicaSet"), *others):
                await create(world, one)
            if budget_for:
                spec = {"minAvailable": 2, "selector": {"matchLabels": {labelled: budget_for}}}
                meta = {"name": "keep", "namespace": "default"}
                await world.client.create(PodDisruptionBudget, {"metadata": meta, "spec": spec})
            await asyncio.sleep(10)
            copy, now = await copy_cluster(world.client, None), world.cluster.clock.now()
        return await plan_answer(copy, "default", drains=[FULL], now=now)

    return run(look())


def text_of(answer: Answer) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(answer.paint(100))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_gang_moves_whole_and_others_take_what_it_leaves() -> None:
    answer = drained(bare_pod("web", 1, FULL, "ReplicaSet"), bare_pod("static", 0, FULL, "Node"))
    assert answer.code == 0
    assert text_of(answer) == [
        "GANG     ANSWER  PODS  NEW  NODES  SCORE  WHERE",
        "small-0  fits     2/2    2      1   1.00",
        "1 of 1 other pod on it would fit on another node",
    ]


def test_a_pod_without_capacity_or_without_an_owner_to_make_it_again_is_named() -> None:
    answer = drained(bare_pod("web", 2, FULL, "ReplicaSet"), bare_pod("bare", 0, FULL))
    assert answer.code == 4
    assert text_of(answer)[2:] == [
        "0 of 2 other pods on it would fit on another node",
        "  - default/bare: no controller would create it again",
        "  - default/web: no node has capacity for it (a ReplicaSet would create it again)",
    ]


def test_a_pod_that_only_is_lost_is_no_reason_to_fail() -> None:
    assert drained(bare_pod("bare", 0, FULL)).code == 0


def test_a_budget_that_forbids_the_eviction_is_reported_and_does_not_hang() -> None:
    answer = drained(bare_pod("web", 1, FULL, "ReplicaSet"), budget_for="web")
    assert answer.code == 4
    assert [(one.pod, one.fits, one.note) for one in answer.data.others] == [
        ("web", False, "a disruption budget keeps it there")
    ]


def settings(text: str | None) -> SchedulerConfiguration:
    async def look() -> Any:
        async with World(shaped(1)) as world:
            await world.client.create(Namespace, {"metadata": {"name": "grove-system"}})
            labels = {"app.kubernetes.io/name": "grove-scheduler"}
            meta = {"name": "grove-scheduler-cm-1", "namespace": "grove-system", "labels": labels}
            if text is not None:
                await world.client.create(ConfigMap, {"metadata": meta, "data": {"config.yaml": text}})
            return await settings_of(world.client)

    found: SchedulerConfiguration = run(look())
    return found


def test_the_settings_are_those_of_the_scheduler_in_the_cluster() -> None:
    assert settings("nodePolicy: spread\nholdAfter: 5s\n") == load_configuration("nodePolicy: spread\nholdAfter: 5s\n")
    assert settings(None) == SchedulerConfiguration()


def test_broken_settings_are_named_with_where_they_are() -> None:
    with pytest.raises(Unanswered, match="ConfigMap grove-system/grove-scheduler-cm-1: nodePolicy: Invalid enum value"):
        settings("nodePolicy: nowhere\n")


def test_the_scheduler_of_a_plan_follows_its_settings() -> None:
    """Two pods that both fit on one node: packed there by default, spread when the cluster's scheduler spreads."""

    async def nodes(policy: str) -> int:
        async with World(shaped(2)) as world:
            copy, now = await copy_cluster(world.client, None), world.cluster.clock.now()
        config = load_configuration(f"nodePolicy: {policy}")
        answer = await plan_answer(copy, "default", [small()], now=now, settings=config)
        return len({one.node for gang in answer.data.gangs for one in gang.pods})

    assert (run(nodes("pack")), run(nodes("spread"))) == (1, 2)


def test_a_gang_pinned_to_the_drained_rack_is_restarted_and_no_set_is_deleted() -> None:
    """It fills a rack of four and must be in one rack; the other rack is free. One of its nodes is drained."""
    resources = {"limits": {"nvidia.com/gpu": 8}}
    clique = {
        "roleName": "a",
        "replicas": 4,
        "minAvailable": 4,
        "podSpec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }
    manifest = small()
    manifest["spec"]["template"] = {
        "cliques": [{"name": "a", "spec": clique}],
        "topologyConstraint": {"topologyName": "fake-nodes", "pack": {"required": "rack"}},
    }

    async def look() -> Answer:
        async with World(shaped(8), objects=[(ClusterTopologyBinding, binding())]) as world:
            await world.apply(manifest)
            assert await world.until(lambda: world.is_settled("small"))
            node = world.pods_of("small-0")[0].spec.node_name
            copy = await copy_cluster(world.client, None)
            return await plan_answer(copy, "default", drains=[node], now=world.cluster.clock.now())

    answer = run(look())
    [gang] = answer.data.gangs
    assert gang.answer == "cannot fit"
    assert gang.helps[0].startswith("restart the gang whole: its 3 running pods and the rest fit together in ")
    assert gang.commands[0] == "kubectl grove -n default restart pg/small-0"
    assert not [text for text in (*gang.helps, *gang.commands) if "delete" in text]
    assert gang.commands[0] in [line.strip() for line in text_of(answer)]


def test_a_budget_that_keeps_the_pods_of_a_gang_is_named() -> None:
    """Such a drain does not end; the plan once said that the gang fits, on the node itself."""
    answer = drained(budget_for="small", labelled=labels.PART_OF)
    [gang] = answer.data.gangs
    assert (gang.answer, gang.why) == ("waits", f"disruption budget keep keeps 2 pods on {FULL}")
    assert answer.code == 3
    assert text_of(answer)[2:] == [f"small-0 waits: disruption budget keep keeps 2 pods on {FULL}"]
