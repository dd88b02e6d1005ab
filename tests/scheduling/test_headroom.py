"""Headroom: capacity for further replicas is held free, lent to lower priorities, and used when a node fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from prometheus_client import Counter
from tests.support.fleet import elastic
from tests.support.gangs import pod_json
from tests.support.manifests import gpu_clique
from tests.support.operating import World as RealWorld
from tests.support.operating import operating
from tests.support.running import beside

from grove.api import labels
from grove.api.conditions import HEADROOM_HELD, SCHEDULED, EventReason
from grove.api.core import Event, Node, Pod, PriorityClass
from grove.api.koordinator import QUOTA, ElasticQuota
from grove.api.meta import Condition, Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import HeldCapacity, PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.reasons import sentence
from grove.plan.world import TOPOLOGY, World, binding
from grove.scheduler.loop.gpu_meter import GpuMeter
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.policy.gpu_states import Owner
from grove.scheduler.policy.hold_ledger import HoldReason
from grove.show.usage import METRIC
from grove.sim.loop import run
from grove.sim.topology import HOST, Topology

GPU = "nvidia.com/gpu"
SHAPE = Topology(zones=1, racks=4, nodes=2)
"""Four racks of two nodes with eight GPUs each; a replica of the set below fills a rack."""
DAY_S = 24 * 3600.0


def serving(name: str, replicas: int, headroom: str = "", priority: str = "", *cliques: Json, **more: Any) -> Json:
    template: Json = {
        "cliques": list(cliques) or [gpu_clique("work", 2, 8)],
        "topologyConstraint": {"topologyName": TOPOLOGY, "pack": {"required": "rack"}},
        **({"priorityClassName": priority} if priority else {}),
        **more,
    }
    metadata: Json = {"name": name, "namespace": "default"}
    if headroom:
        metadata["annotations"] = {labels.HEADROOM: headroom}
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": metadata,
        "spec": {"replicas": replicas, "template": template},
    }


def decoding(front: Json) -> Json:
    """A set with a scaling group whose replica fills a rack, and headroom for one further replica of the group."""
    pack = {"topologyName": TOPOLOGY, "pack": {"required": "rack"}}
    group = {"name": "decode", "cliqueNames": ["work"], "replicas": 1, "topologyConstraint": pack}
    group["annotations"] = {labels.HEADROOM: "1"}
    made = serving("chat", 1, "", "", front, gpu_clique("work", 2, 8), podCliqueScalingGroups=[group])
    del made["spec"]["template"]["topologyConstraint"]
    return made


def charged(manifest: Json) -> Json:
    """The set, with pods that count in the quota of a team."""
    for one in manifest["spec"]["template"]["cliques"]:
        one["labels"] = {QUOTA: "team"}
    return manifest


def world(*more: tuple[type, Json]) -> World:
    classes = [
        (PriorityClass, {"metadata": {"name": one}, "value": value}) for one, value in (("high", 100), ("low", -5))
    ]
    return World(SHAPE.objects(), seed=3, objects=[(ClusterTopologyBinding, binding()), *classes, *more])


def said(here: World, gang: str, type_: str = HEADROOM_HELD) -> Condition | None:
    found = here.find(PodGang, gang)
    return find_condition(found.status.conditions, type_) if found is not None else None


def is_held(here: World, gang: str) -> bool:
    found = said(here, gang)
    return found is not None and found.status == "True"


def headroom_of(here: World, gang: str) -> HeldCapacity | None:
    found = here.find(PodGang, gang)
    holds = found.status.capacity_holds if found is not None else ()
    return next((one for one in holds if one.reason == "Headroom"), None)


def held_nodes(here: World, gang: str) -> set[str]:
    found = headroom_of(here, gang)
    return {one.node for one in found.amounts} if found is not None else set()


def nodes_of(here: World, set_: str) -> set[str]:
    mine = (pod for pod in here.all(Pod) if pod.metadata.labels.get(labels.PART_OF) == set_)
    return {pod.spec.node_name for pod in mine if pod.spec.node_name and not pod.metadata.is_deleting}


def pod_reasons(here: World, set_: str) -> set[str]:
    """Reasons for which pods of the set have no node: node autoscalers buy nodes for `Unschedulable`."""
    mine = (pod for pod in here.all(Pod) if pod.metadata.labels.get(labels.PART_OF) == set_)
    return {pod.waits_for for pod in mine if not pod.spec.node_name}


def story(tell: Callable[[World], Any], *more: tuple[type, Json]) -> None:
    """Tells a story, waits for a day, and checks that the scheduler holds what it says."""

    async def told() -> None:
        async with world(*more) as here:
            await tell(here)
            await asyncio.sleep(DAY_S)
            for gang in here.all(PodGang):
                hold = here.scheduler.view.ledger.find(str(gang.metadata.key), HoldReason.HEADROOM)
                held = {pod.node for pod in hold.pods} if hold is not None else set()
                assert held == held_nodes(here, gang.metadata.name)
            free = here.scheduler.view.snapshot.free
            assert (free >= 0).all(), "no node is over its capacity"

    run(told())


async def fail_node(here: World, node: str) -> None:
    await here.client.delete(Node, node)
    for pod in here.all(Pod):
        if pod.spec.node_name == node:
            await here.client.delete(Pod, pod.metadata.name, here.namespace, grace_period_s=0)


@pytest.mark.simulated
def test_a_gang_that_loses_a_node_goes_to_the_headroom_at_once_although_others_wait_for_it() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        assert len(reserve) == 2
        assert reserve.isdisjoint(nodes_of(here, "chat"))
        await here.apply(serving("other", 3))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        assert await here.until(
            lambda: (found := said(here, "other-2", SCHEDULED)) is not None and found.status == "False"
        )
        waits = said(here, "other-2", SCHEDULED)
        assert waits is not None
        assert waits.message == "it would fit, but capacity is held as headroom of default/chat"
        before = here.time_s
        lost = min(nodes_of(here, "chat"))
        await fail_node(here, lost)
        # A pod that is required to stay with its gang in one rack: the whole gang has to go.
        await here.client.delete(Pod, next(iter(_pods(here, "chat"))), here.namespace, grace_period_s=0)
        assert await here.until(lambda: nodes_of(here, "chat") == reserve and here.is_settled("chat"))
        assert here.time_s - before < 300
        assert nodes_of(here, "other").isdisjoint(reserve)

    story(tell)


def _pods(here: World, set_: str) -> list[str]:
    mine = (pod for pod in here.all(Pod) if pod.metadata.labels.get(labels.PART_OF) == set_)
    return [pod.metadata.name for pod in mine if not pod.metadata.is_deleting]


@pytest.mark.simulated
def test_a_gang_that_cannot_be_completed_in_its_rack_goes_whole_to_the_headroom() -> None:
    """One node of the rack fails. The pod on the other node keeps the gang in a rack without capacity."""

    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("other", 3))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        before = here.time_s
        await fail_node(here, min(nodes_of(here, "chat")))
        assert await here.until(lambda: nodes_of(here, "chat") == reserve and here.is_settled("chat"), 300.0)
        assert here.time_s - before < 300
        assert nodes_of(here, "other").isdisjoint(reserve)
        events = [one for one in here.all(Event) if one.reason == EventReason.GANG_MOVING]
        assert [one.involved_object.name for one in events] == ["chat-0"]
        assert events[0].message == (
            "1 pod is evicted: a topology domain has no capacity for the pods that are missing beside it, "
            "and the headroom of default/chat is a place for all of them"
        )

    story(tell)


@pytest.mark.simulated
def test_only_the_part_of_a_gang_that_must_be_together_goes_to_the_headroom() -> None:
    async def tell(here: World) -> None:
        await here.apply(decoding(gpu_clique("front", 1, 0)))
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("other", 3))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        work = [pod for pod in here.all(Pod) if "work" in pod.metadata.labels.get(labels.POD_CLIQUE, "")]
        front = next(pod for pod in here.all(Pod) if "front" in pod.metadata.labels.get(labels.POD_CLIQUE, ""))
        lost = next(pod.spec.node_name for pod in work if pod.spec.node_name != front.spec.node_name)
        await fail_node(here, lost)
        assert await here.until(lambda: nodes_of(here, "chat") >= reserve and here.is_settled("chat"), 300.0)
        assert front.metadata.uid in {pod.metadata.uid for pod in here.all(Pod)}

    story(tell)


@pytest.mark.simulated
def test_it_goes_there_too_if_a_lower_priority_uses_the_headroom() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("other", 2))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        await here.apply(serving("batch", 1, "", "low"))
        assert await here.until(lambda: nodes_of(here, "batch") == reserve)
        await fail_node(here, min(nodes_of(here, "chat")))
        assert await here.until(lambda: nodes_of(here, "chat") == reserve and here.is_settled("chat"), 300.0)

    story(tell)


@pytest.mark.simulated
def test_a_replica_in_one_rack_goes_there_with_its_scaled_gangs() -> None:
    """The leader fills a node of the rack. The gang that was scaled out is complete, and must be beside the leader."""

    async def tell(here: World) -> None:
        group = {"name": "decode", "cliqueNames": ["work"], "replicas": 2, "minAvailable": 1}
        made = serving("chat", 1, "1", "", gpu_clique("lead", 1, 8), gpu_clique("work", 1, 4))
        made["spec"]["template"] |= {"podCliqueScalingGroups": [group]}
        await here.apply(made)
        assert await here.until(lambda: is_held(here, "chat-0") and here.is_settled("chat"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("other", 2))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        [lead] = [pod for pod in here.all(Pod) if pod.metadata.labels.get(labels.POD_CLIQUE) == "chat-0-lead"]
        await fail_node(here, lead.spec.node_name)
        assert await here.until(lambda: nodes_of(here, "chat") == reserve and here.is_settled("chat"), 300.0)

    story(tell)


@pytest.mark.simulated
def test_headroom_of_a_set_follows_its_scaling_groups_and_leaves_out_what_has_no_place_in_the_rack() -> None:
    """An autoscaler may ask for more than the rack holds. That must not end the headroom."""

    async def tell(here: World) -> None:
        group = {"name": "decode", "cliqueNames": ["work"], "replicas": 3, "minAvailable": 1}
        made = serving("chat", 1, "1", "", gpu_clique("lead", 1, 8), gpu_clique("work", 1, 4))
        made["spec"]["template"] |= {"podCliqueScalingGroups": [group]}
        await here.apply(made)

        def holds(pods: int) -> bool:
            found = headroom_of(here, "chat-0")
            return is_held(here, "chat-0") and found is not None and len(found.amounts) == pods

        assert await here.until(lambda: holds(3)), "the third pod of decode has no place in the rack"
        for replicas in (1, 2, 3, 1):
            change = {"spec": {"replicas": replicas}}
            await here.client.patch(PodCliqueScalingGroup, "chat-0-decode", change, here.namespace)
            assert await here.until(lambda replicas=replicas: holds(1 + min(replicas, 2)))
            await asyncio.sleep(60)
            assert holds(1 + min(replicas, 2))

    story(tell)


@pytest.mark.simulated
def test_a_scaled_gang_that_cannot_be_completed_does_not_move_the_rest_of_its_replica() -> None:
    async def tell(here: World) -> None:
        group = {"name": "decode", "cliqueNames": ["work"], "replicas": 2, "minAvailable": 1}
        made = serving("chat", 1, "1", "", gpu_clique("lead", 1, 0), gpu_clique("work", 1, 8))
        made["spec"]["template"] |= {"podCliqueScalingGroups": [group]}
        await here.apply(made)
        assert await here.until(lambda: is_held(here, "chat-0") and here.is_settled("chat"))
        await here.apply(serving("other", 2))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        await here.cluster.nodes.cordon(here.pods_of("chat-0-decode-0")[0].spec.node_name)
        base = {pod.metadata.uid for pod in here.pods_of("chat-0")}
        [scaled] = here.pods_of("chat-0-decode-0")
        await here.client.delete(Pod, scaled.metadata.name, here.namespace, grace_period_s=0)
        await asyncio.sleep(600)
        assert base == {pod.metadata.uid for pod in here.pods_of("chat-0")}

    story(tell)


@pytest.mark.simulated
def test_without_headroom_a_gang_that_cannot_be_completed_keeps_its_pods() -> None:
    """Its node may come back before the termination delay is over."""

    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1))
        assert await here.until(lambda: len(nodes_of(here, "chat")) == 2)
        await here.apply(serving("other", 3))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 6)
        stays = max(nodes_of(here, "chat"))
        await fail_node(here, min(nodes_of(here, "chat")))
        await asyncio.sleep(600)
        assert nodes_of(here, "chat") == {stays}

    story(tell)


@pytest.mark.simulated
def test_headroom_for_one_replica_moves_one_gang_and_the_other_keeps_its_pods() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 2, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("other", 1))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 2)
        for gang in ("chat-0", "chat-1"):
            await fail_node(here, min(pod.spec.node_name for pod in here.pods_of(gang)))
        await asyncio.sleep(600)
        assert sorted(len([pod for pod in here.pods_of(gang) if pod.is_ready]) for gang in ("chat-0", "chat-1")) == [
            1,
            2,
        ]
        assert nodes_of(here, "chat") > reserve

    story(tell)


@pytest.mark.simulated
def test_a_replica_whose_zone_is_full_goes_to_its_headroom_in_another_zone() -> None:
    """A spread keeps the new pod of a replica in the zone of the replica."""

    async def tell(here: World) -> None:
        spread = {"topologyName": TOPOLOGY, "domain": "rack", "maxSkew": 2}
        made = serving("chat", 1, "1", "", gpu_clique("work", 2, 8), spreadConstraint=spread)
        del made["spec"]["template"]["topologyConstraint"]
        await here.apply(made)
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("other", 2))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        await fail_node(here, min(nodes_of(here, "chat")))
        assert await here.until(lambda: nodes_of(here, "chat") == reserve and here.is_settled("chat"), 300.0)

    story(tell)


@pytest.mark.simulated
def test_a_gang_leaves_a_node_whose_kubelet_is_silent_although_its_pods_never_end() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("other", 2))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        await here.cluster.nodes.stop_node(min(nodes_of(here, "chat")))
        assert await here.until(lambda: nodes_of(here, "chat") == reserve, 420.0), "pods are deleted after 300 s"
        assert any(pod.metadata.is_deleting for pod in here.all(Pod)), "the lost pod still terminates"

    story(tell)


@pytest.mark.simulated
def test_an_update_whose_old_pods_end_slowly_stays_in_its_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new pod of an update has no place in the rack until the old one has ended. That is no lost node."""
    monkeypatch.setattr("grove.plan.world.STOP_S", (20.0, 60.0))

    async def tell(here: World) -> None:
        made = serving("chat", 1, "1", "", gpu_clique("lead", 1, 4), gpu_clique("work", 3, 4))
        await here.apply(made)
        assert await here.until(lambda: is_held(here, "chat-0"))
        before = nodes_of(here, "chat")
        cliques = made["spec"]["template"]["cliques"]
        for one in cliques:
            one["spec"]["podSpec"]["containers"][0]["image"] = "example/serve:2"
        await here.client.patch(PodCliqueSet, "chat", {"spec": {"template": {"cliques": cliques}}}, here.namespace)
        await asyncio.sleep(10)
        assert await here.until(lambda: here.is_settled("chat"))
        assert nodes_of(here, "chat") == before
        assert not [one for one in here.all(Event) if one.reason == EventReason.GANG_MOVING]

    story(tell)


@pytest.mark.simulated
def test_a_scale_out_takes_the_headroom_and_another_one_is_formed() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        await here.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 2}}, here.namespace)
        assert await here.until(lambda: len(nodes_of(here, "chat")) == 4)
        assert await here.until(
            lambda: is_held(here, "chat-0") and held_nodes(here, "chat-0").isdisjoint(nodes_of(here, "chat"))
        )
        await here.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 4}}, here.namespace)
        assert await here.until(lambda: len(nodes_of(here, "chat")) == 8)
        assert await here.until(lambda: not is_held(here, "chat-0"))
        found = said(here, "chat-0")
        assert found is not None
        assert found.message.startswith("headroom for 0 of 1 replica is held on 0 nodes: ")
        await here.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 3}}, here.namespace)
        assert await here.until(lambda: is_held(here, "chat-0"))

    story(tell)


@pytest.mark.simulated
@pytest.mark.parametrize("waiting", ["a gang", "a pod above the minimum", "a pod without a set"])
def test_what_the_headroom_of_another_set_keeps_out_is_unschedulable_so_nodes_are_bought(waiting: str) -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        bound = 1 if waiting == "a pod above the minimum" else 0
        filling = gpu_clique("work", 4 - bound, 8)
        await here.apply(serving("full", 1, "", "", filling, topologyConstraint=None))
        assert await here.until(lambda: len(nodes_of(here, "full")) == 4 - bound)
        if waiting == "a pod without a set":
            pod = pod_json("other", "default", gpus=8)
            pod["metadata"]["labels"] = {labels.PART_OF: "other"}
            await here.client.create(Pod, pod)
        else:
            clique = gpu_clique("work", 2, 8)
            clique["spec"]["minAvailable"] = 2 - bound
            await here.apply(serving("other", 1, "", "", clique, topologyConstraint=None))
        assert await here.until(lambda: pod_reasons(here, "other") == {"Unschedulable"})
        assert len(nodes_of(here, "other")) == bound
        if waiting == "a gang":
            why = said(here, "other-0", SCHEDULED)
            assert why is not None
            assert why.reason == "NodesHeldForOthers"
            assert why.message == "it would fit, but capacity is held as headroom of default/chat"
        assert pod_reasons(here, "chat") == set(), "no pod waits for the headroom"
        for node in Topology(nodes=2, prefix="new-").objects():
            await here.client.create(Node, node)
        assert await here.until(lambda: not pod_reasons(here, "other") and nodes_of(here, "other") != set())
        assert is_held(here, "chat-0")

    story(tell)


@pytest.mark.simulated
def test_a_lower_priority_uses_the_headroom_and_is_evicted_when_the_set_needs_it() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 2, "1", "high"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        await here.apply(serving("batch", 2, "", "low"))
        assert await here.until(lambda: len(nodes_of(here, "batch")) == 4), "it uses the headroom too"
        assert await here.until(
            lambda: is_held(here, "chat-0") and "lower priority" in (said(here, "chat-0") or _NONE).message
        )
        await here.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 3}}, here.namespace)
        assert await here.until(lambda: len(nodes_of(here, "chat")) == 6 and here.is_settled("chat"))
        assert await here.until(lambda: len(nodes_of(here, "batch")) == 2), "a gang of it was evicted"

    story(tell)


_NONE = Condition(type="", status="")


@pytest.mark.simulated
def test_a_higher_priority_takes_the_headroom_if_it_finds_no_other_place() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0"))
        reserve = held_nodes(here, "chat-0")
        await here.apply(serving("first", 2, "", "high"))
        assert await here.until(lambda: len(nodes_of(here, "first")) == 4)
        assert nodes_of(here, "first").isdisjoint(reserve)
        await here.apply(serving("more", 1, "", "high"))
        assert await here.until(lambda: nodes_of(here, "more") == reserve)
        assert await here.until(lambda: not is_held(here, "chat-0"))
        await here.client.delete(PodCliqueSet, "more", here.namespace)
        assert await here.until(lambda: is_held(here, "chat-0"))

    story(tell)


@pytest.mark.simulated
def test_headroom_that_others_took_while_the_replica_lacks_a_pod_is_said_to_be_missing() -> None:
    async def tell(here: World) -> None:
        host = here.all(Node)[-1].metadata.name
        front = gpu_clique("front", 1, 0)
        front["spec"]["podSpec"]["nodeSelector"] = {HOST: host}
        await here.apply(decoding(front))
        assert await here.until(lambda: is_held(here, "chat-0"))
        await here.apply(serving("other", 2))
        assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
        lost = next(pod for pod in here.all(Pod) if pod.metadata.labels.get(labels.POD_CLIQUE) == "chat-0-front")
        await here.cluster.nodes.cordon(host)
        await here.client.delete(Pod, lost.metadata.name, here.namespace, grace_period_s=0)
        await asyncio.sleep(60)
        assert is_held(here, "chat-0"), "the gang itself may need it"
        await here.apply(serving("urgent", 1, "", "high"))
        assert await here.until(lambda: len(nodes_of(here, "urgent")) == 2)
        assert await here.until(lambda: not is_held(here, "chat-0"), 60.0)
        condition = said(here, "chat-0")
        assert condition is not None
        assert condition.message == (
            "headroom for 0 of 1 replica is held on 0 nodes: "
            "a pod of the replica has no node; the scheduler looks for a place when all of them have one"
        )
        assert not held_nodes(here, "chat-0")
        await here.client.delete(PodCliqueSet, "urgent", here.namespace)
        await here.cluster.nodes.cordon(host, unschedulable=False)
        assert await here.until(lambda: is_held(here, "chat-0"))
        assert len(held_nodes(here, "chat-0")) == 2

    story(tell)


@pytest.mark.simulated
@pytest.mark.parametrize("way", ["the set is deleted", "the annotation is removed"])
def test_the_headroom_ends_with_its_set_and_with_its_annotation(way: str) -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "3"))
        assert await here.until(lambda: is_held(here, "chat-0") and len(held_nodes(here, "chat-0")) == 6)
        await here.apply(serving("other", 1))
        await asyncio.sleep(60)
        assert not nodes_of(here, "other")
        if way == "the set is deleted":
            await here.client.delete(PodCliqueSet, "chat", here.namespace)
        else:
            patch = {"metadata": {"annotations": {labels.HEADROOM: None}}}
            await here.client.patch(PodCliqueSet, "chat", patch, here.namespace)
        assert await here.until(lambda: len(nodes_of(here, "other")) == 2)
        assert await here.until(lambda: not held_nodes(here, "chat-0") and said(here, "chat-0") is None)

    story(tell)


@pytest.mark.simulated
def test_the_quota_of_its_queue_counts_the_headroom_and_a_full_quota_is_said() -> None:
    async def tell(here: World) -> None:
        await here.apply(charged(serving("chat", 1, "2")))
        assert await here.until(lambda: (found := said(here, "chat-0")) is not None and found.status == "False")
        found = said(here, "chat-0")
        assert found is not None
        assert found.message.startswith("headroom for 1 of 2 replicas is held on 2 nodes: ")
        assert "quota" in found.message
        await here.apply(charged(serving("other", 1)))
        assert await here.until(lambda: (why := said(here, "other-0", SCHEDULED)) is not None and why.status == "False")
        why = said(here, "other-0", SCHEDULED)
        assert why is not None
        assert why.message == "it would fit, but its quota is held as headroom of default/chat", "two racks are free"
        assert pod_reasons(here, "other") == {"NodesHeldForOthers"}, "no node helps"

    story(tell, (ElasticQuota, elastic("team", "default", 32, 32)))


@pytest.mark.simulated
def test_gpu_hours_count_the_headroom_as_held_for_its_set_and_what_is_lent_for_its_user() -> None:
    async def tell(here: World) -> None:
        await here.apply(serving("chat", 1, "1"))
        assert await here.until(lambda: is_held(here, "chat-0") and here.is_settled("chat"))
        meter = GpuMeter(
            here.scheduler.view,
            here.cluster.clock,
            Counter(METRIC, "GPU-seconds.", ["namespace", "set", "queue", "state"], registry=None),
        )
        chat, batch = Owner("default", "chat"), Owner("default", "batch")
        assert meter.look() == {(chat, "serving"): 16.0, (chat, "held"): 16.0, (Owner(), "idle"): 32.0}
        await here.apply(serving("batch", 3, "", "low"))
        assert await here.until(lambda: len(nodes_of(here, "batch")) == 6 and here.is_settled("batch"))
        assert meter.look() == {(chat, "serving"): 16.0, (batch, "serving"): 48.0}

    story(tell)


@pytest.mark.simulated
def test_the_headroom_of_a_group_is_one_more_replica_of_the_group() -> None:
    async def tell(here: World) -> None:
        group = {
            "name": "decode",
            "cliqueNames": ["work"],
            "replicas": 1,
            "annotations": {labels.HEADROOM: "1"},
            "topologyConstraint": {"pack": {"required": "rack"}},
        }
        made = serving(
            "chat", 1, "", "", gpu_clique("front", 1, 1), gpu_clique("work", 2, 8), podCliqueScalingGroups=[group]
        )
        del made["spec"]["template"]["topologyConstraint"]
        group["topologyConstraint"] = {"topologyName": TOPOLOGY, "pack": {"required": "rack"}}
        await here.apply(made)
        assert await here.until(lambda: is_held(here, "chat-0"))
        found = headroom_of(here, "chat-0")
        assert found is not None
        assert [one.group for one in found.amounts] == ["chat-0-decode-0-work"] * 2
        assert all(one.requests[GPU] == "8" for one in found.amounts)
        reserve = held_nodes(here, "chat-0")
        await here.client.patch(PodCliqueScalingGroup, "chat-0-decode", {"spec": {"replicas": 2}}, here.namespace)
        assert await here.until(lambda: reserve <= nodes_of(here, "chat") and here.is_settled("chat"))

    story(tell)


@pytest.mark.simulated
def test_the_headroom_keeps_the_spread_inside_a_replica() -> None:
    """Three pods over two zones: two nodes of the headroom are in one zone, and one is in the other."""

    async def told() -> None:
        nodes = Topology(zones=2, nodes=4).objects()
        async with World(nodes, seed=3, objects=[(ClusterTopologyBinding, binding())]) as here:
            spread = {"topologyName": TOPOLOGY, "domain": "zone"}
            clique = gpu_clique("work", 3, 8, spreadConstraint=spread)
            await here.apply(serving("chat", 1, "1", "", clique, topologyConstraint=None))
            assert await here.until(lambda: is_held(here, "chat-0"))
            reserve = held_nodes(here, "chat-0")
            zones = [node.split("-")[0] for node in sorted(reserve)]
            assert sorted(map(zones.count, {"z0", "z1"})) == [1, 2]
            await here.client.patch(PodCliqueSet, "chat", {"spec": {"replicas": 2}}, here.namespace)
            assert await here.until(lambda: reserve <= nodes_of(here, "chat") and here.is_settled("chat"))
            for node in here.all(Node):
                if node.metadata.name.startswith("z1-"):
                    await here.client.delete(Node, node.metadata.name)
            assert await here.until(lambda: (found := said(here, "chat-0")) is not None and found.status == "False")

    run(told())


@pytest.mark.simulated
def test_a_scheduler_that_starts_again_holds_the_headroom_before_it_places_anything() -> None:
    async def told() -> None:
        async with world() as here:
            await here.apply(serving("chat", 1, "1"))
            assert await here.until(lambda: is_held(here, "chat-0"))
            await here.apply(serving("other", 3))
            assert await here.until(lambda: len(nodes_of(here, "other")) == 4)
            reserve = held_nodes(here, "chat-0")
            second = Scheduler(here.cluster.client(user="second"), clock=here.cluster.clock, say=sentence)
            async with second.following():
                task = asyncio.get_running_loop().create_task(second.schedule())
                await asyncio.sleep(120)
                task.cancel()
                hold = second.view.ledger.find("default/chat-0", HoldReason.HEADROOM)
            assert hold is not None
            assert {pod.node for pod in hold.pods} == reserve
            assert len(nodes_of(here, "other")) == 4

    run(told())


@pytest.fixture
async def real(cluster: object) -> AsyncIterator[RealWorld]:
    config = "topologyAwareScheduling: {enabled: true}"
    async with operating(cluster, config=config, nodes=Topology(zones=1, racks=3, nodes=2)) as found:
        found.binder.allow(0)
        async with beside(Scheduler(found.client, clock=found.cluster.clock, say=sentence).run()):
            yield found


@pytest.mark.real_in("soak")
async def test_headroom_is_used_by_a_scale_out_and_by_a_gang_that_lost_a_node(
    real: RealWorld,
) -> None:
    name = f"{real.cluster.prefix}headroom"
    await real.client.create(ClusterTopologyBinding, binding(name=name))
    made = serving("chat", 1, "1")
    made["spec"]["template"]["topologyConstraint"]["topologyName"] = name
    await real.apply(made)

    async def held() -> set[str] | None:
        gang = await real.get(PodGang, "chat-0")
        holds = [one for one in gang.status.capacity_holds if one.reason == "Headroom"]
        condition = find_condition(gang.status.conditions, HEADROOM_HELD)
        is_true = condition is not None and condition.status == "True"
        return {one.node for one in holds[0].amounts} if holds and is_true else None

    async def gang_is_there() -> PodGang | None:
        return next((one for one in await real.list(PodGang) if one.metadata.name == "chat-0"), None)

    await real.eventually(gang_is_there, timeout_s=180.0)
    reserve = await real.eventually(held, timeout_s=180.0)
    await real.scale(PodCliqueSet, "chat", 2)

    async def moved() -> bool:
        bound = {pod.spec.node_name for pod in await real.pods() if pod.is_bound}
        now = await held()
        return len(bound) == 4 and now is not None and now.isdisjoint(bound) and reserve <= bound | now

    await real.eventually(moved, timeout_s=180.0)
    reserve = await real.eventually(held, timeout_s=180.0)

    async def nodes() -> set[str]:
        mine = (pod for pod in await real.pods() if pod.metadata.labels[labels.POD_GANG] == "chat-0")
        return {pod.spec.node_name for pod in mine if pod.is_bound and not pod.metadata.is_deleting}

    lost = min(await nodes())
    await real.nodes.remove_node(lost)
    for pod in await real.pods():
        if pod.spec.node_name == lost:
            await real.client.delete(Pod, pod.metadata.name, real.namespace, grace_period_s=0)

    async def went() -> bool:
        return await nodes() == reserve

    await real.eventually(went, timeout_s=180.0)


@pytest.mark.simulated
@pytest.mark.parametrize("meanwhile", ["the scheduler starts again", "a lower priority looks for victims"])
async def test_the_headroom_of_a_gang_stays_while_its_pods_are_missing(cluster: object, meanwhile: str) -> None:
    """Its nodes fail, its pods come back half a minute later, and other gangs wait for the same capacity."""
    config = "topologyAwareScheduling: {enabled: true}"
    async with operating(cluster, config=config, nodes=Topology(zones=1, racks=3, nodes=2)) as here:
        here.binder.allow(0)
        await here.client.create(ClusterTopologyBinding, binding())
        await here.client.create(PriorityClass, {"metadata": {"name": "low"}, "value": -5})

        async def nodes(set_: str, pods: int) -> set[str]:
            found = [pod for pod in await here.pods() if pod.metadata.labels[labels.PART_OF] == set_ and pod.is_bound]
            return {pod.spec.node_name for pod in found} if len(found) == pods else set()

        async def reserve() -> set[str]:
            gang = await here.get(PodGang, "chat-0")
            held = [hold for hold in gang.status.capacity_holds if hold.reason == "Headroom"]
            return {one.node for hold in held for one in hold.amounts}

        def scheduling() -> AbstractAsyncContextManager[Any]:
            return beside(Scheduler(here.client, clock=here.cluster.clock, say=sentence).run())

        async def fail_nodes_of_chat() -> None:
            await here.stop()
            for node in lost:
                await here.client.patch(Node, node, {"spec": {"unschedulable": True}})
            for pod in await here.pods():
                if pod.spec.node_name in lost:
                    await here.client.delete(Pod, pod.metadata.name, here.namespace, grace_period_s=0)

        async def comes_back() -> None:
            await asyncio.sleep(30)
            await here.start()
            assert await here.eventually(lambda: nodes("chat", 2)) == held
            assert len(await nodes("other", 2)) == 2

        async with scheduling():
            await here.apply(serving("chat", 1, "1"))
            await here.eventually(lambda: nodes("chat", 2))
            await here.eventually(reserve)
            await here.apply(serving("other", 2))
            await here.eventually(lambda: nodes("other", 2))
            await here.apply(serving("large", 1, "", "low", gpu_clique("work", 4, 8)))
            await asyncio.sleep(10)
            held, lost = await reserve(), await nodes("chat", 2)
            if meanwhile == "a lower priority looks for victims":
                await fail_nodes_of_chat()
                for prefix in ("first-", "second-"):  # all that wait are tried again
                    await here.nodes.add(Topology(zones=1, racks=1, nodes=1, gpus=1, prefix=prefix))
                    await asyncio.sleep(5)
                await comes_back()
                return
        await fail_nodes_of_chat()
        async with scheduling():
            await comes_back()
