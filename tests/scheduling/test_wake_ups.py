"""A waiting unit is tried again when its reason changes: one row for each reason and the event that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.gangs import Bench, gang, gang_json, group, member_json, pod_json, scheduling
from tests.support.woken import (
    APP,
    Story,
    apart,
    ends,
    evenly,
    is_noticed,
    late,
    near,
    relabel,
    runs,
    told,
    zone,
)

from grove.api.core import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PriorityClass
from grove.api.labels import GPU_MEMORY
from grove.api.meta import Json, Key
from grove.api.podgang import PodGang
from grove.kube.client import WatchEvent
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.loop.turn.placing import UnitPlacer
from grove.scheduler.policy.waiting_queue import Order
from grove.sim.client import SimClient
from grove.sim.topology import ZONE

pytestmark = pytest.mark.simulated


# Neighbours


async def affinity_and_we_bind_whom_it_wants(bench: Bench) -> AsyncIterator[None]:
    await zone(bench, "a", 2)
    await late(bench, **near("friend"))
    yield
    await bench.apply(gang("friend", group("w", 1), labels={APP: "friend"}))


async def affinity_and_another_scheduler_binds_whom_it_wants(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 2)
    await late(bench, **near("friend"))
    yield
    await runs(bench, "friend", node, "friend")


async def affinity_and_a_running_pod_gets_the_label(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 2)
    await runs(bench, "other", node, "other")
    await late(bench, **near("friend"))
    yield
    await relabel(bench, "other", app="friend")


async def affinity_and_a_namespace_gets_the_label(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 2)
    await runs(bench, "friend", node, "friend")
    wants = near("friend")
    wants["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] = {
        "matchLabels": {"team": "blue"}
    }
    await late(bench, **wants)
    yield
    await bench.client.patch(Namespace, bench.namespace, {"metadata": {"labels": {"team": "blue"}}})


async def anti_affinity_and_the_pod_leaves_a_full_node(bench: Bench) -> AsyncIterator[None]:
    full, _ = await zone(bench, "a", 1, 1)
    await runs(bench, "fills", full, gpus=1)
    await runs(bench, "foe", full, "foe")
    await late(bench, **apart("foe"))
    yield
    await ends(bench, "foe")


async def anti_affinity_and_the_pod_gets_another_label(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await runs(bench, "foe", node, "foe")
    await late(bench, **apart("foe"))
    yield
    await relabel(bench, "foe", app="friend")


async def anti_affinity_of_a_running_pod_that_leaves_a_full_node(bench: Bench) -> AsyncIterator[None]:
    full, _ = await zone(bench, "a", 1, 1)
    await runs(bench, "fills", full, gpus=1)
    await runs(bench, "foe", full, "foe", **apart("late"))
    await late(bench)
    yield
    await ends(bench, "foe")


async def anti_affinity_of_a_running_pod_and_it_gets_another_label(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await runs(bench, "foe", node, "foe", **apart("late"))
    await late(bench)
    yield
    await relabel(bench, "late-w-0", app="early")


async def anti_affinity_of_a_running_pod_whose_node_goes(bench: Bench) -> AsyncIterator[None]:
    full, _ = await zone(bench, "a", 1, 1)
    await runs(bench, "foe", full, "foe", gpus=1, **apart("late"))
    await late(bench)
    yield
    await bench.nodes.remove_node(full)


async def spread_and_a_pod_comes_to_the_emptier_zone(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    (other,) = await zone(bench, "b", 0)
    await runs(bench, "one", node, "late")
    await late(bench, **evenly("late"))
    yield
    await runs(bench, "two", other, "late")


async def spread_and_the_emptier_zone_goes(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    (other,) = await zone(bench, "b", 0)
    await runs(bench, "one", node, "late")
    await late(bench, **evenly("late"))
    yield
    await bench.nodes.remove_node(other)


async def spread_that_heeds_taints_and_the_emptier_zone_is_tainted(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    (other,) = await zone(bench, "b", 0)
    await runs(bench, "one", node, "late")
    await late(bench, **evenly("late", nodeTaintsPolicy="Honor"))
    yield
    await bench.client.patch(Node, other, {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})


async def spread_and_a_pod_of_the_fuller_zone_begins_to_end(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await zone(bench, "b", 0)
    await runs(bench, "one", node, "late")
    await bench.client.patch(Pod, "one", {"metadata": {"finalizers": ["example.com/slow"]}}, bench.namespace)
    await late(bench, **evenly("late"))
    yield
    await bench.client.delete(Pod, "one", bench.namespace)


async def host_port_that_is_given_back(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    ports = {"name": "p", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}
    await runs(bench, "port", node, containers=[ports])
    await late(bench, initContainers=[{**ports, "restartPolicy": "Always"}])
    yield
    await ends(bench, "port")


# Nodes


async def taint_that_is_taken_off(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await bench.client.patch(Node, node, {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    await late(bench)
    yield
    await bench.client.patch(Node, node, {"spec": {"taints": []}})


async def taint_that_the_pod_learns_to_tolerate(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await bench.client.patch(Node, node, {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    await late(bench)
    yield
    more = {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}
    await bench.client.patch(Pod, "late-w-0", more, bench.namespace)


async def selector_and_a_node_gets_the_label(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await late(bench, nodeSelector={"disk": "fast"})
    yield
    await bench.client.patch(Node, node, {"metadata": {"labels": {"disk": "fast"}}})


async def room_and_the_node_grows(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await late(bench, gpus=2)
    yield
    more = {"status": {"allocatable": {"nvidia.com/gpu": "2"}, "capacity": {"nvidia.com/gpu": "2"}}}
    await bench.client.patch(Node, node, more, subresource="status")


async def room_and_a_pod_finishes(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await runs(bench, "job", node, gpus=1)
    await late(bench)
    yield
    await bench.client.patch(Pod, "job", {"status": {"phase": "Succeeded"}}, bench.namespace, subresource="status")


async def room_and_a_node_has_resized_a_running_pod(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    asked = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "64"}}}
    await runs(bench, "large", node, containers=[asked])
    await bench.cluster.settle(2)  # the node reports on a new pod itself
    await _has(bench, "large", cpu="128")
    await late(bench, initContainers=[{"name": "cpu", "image": "i", "resources": {"requests": {"cpu": "1"}}}])
    yield
    await _has(bench, "large", cpu="64")


async def _has(bench: Bench, pod: str, **amounts: str) -> None:
    """What the node says that the pod's container has."""
    said = {"name": "main", "resources": {"requests": amounts}, "allocatedResources": amounts}
    status = {"status": {"containerStatuses": [said]}}
    await bench.client.patch(Pod, pod, status, bench.namespace, subresource="status")


# Free capacity that is enough together with that of lower pods


async def high(bench: Bench) -> str:
    await bench.client.create(PriorityClass, {"metadata": {"name": "high"}, "value": 1000})
    return "high"


async def late_and_high(bench: Bench, gpus: int) -> None:
    await bench.apply(gang("late", group("w", 1, gpus=gpus), priority_class="high"))


async def an_equal_leaves_a_node_of_lower_pods(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 2)
    await runs(bench, "low", node, gpus=1)
    await runs(bench, "equal", node, gpus=1, priorityClassName=await high(bench))
    await late_and_high(bench, 2)
    yield
    await ends(bench, "equal")


async def a_node_full_of_lower_pods_is_uncordoned(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await high(bench)
    await runs(bench, "low", node, gpus=1)
    await bench.client.patch(Node, node, {"spec": {"unschedulable": True}})
    await late_and_high(bench, 1)
    yield
    await bench.client.patch(Node, node, {"spec": {"unschedulable": False}})


async def a_node_full_of_lower_pods_grows(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await high(bench)
    await runs(bench, "low", node, gpus=1)
    await late_and_high(bench, 2)
    yield
    more = {"status": {"allocatable": {"nvidia.com/gpu": "2"}, "capacity": {"nvidia.com/gpu": "2"}}}
    await bench.client.patch(Node, node, more, subresource="status")


# What it says itself


async def graphics_memory_and_it_asks_for_less(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await bench.client.patch(Node, node, {"metadata": {"labels": {"nvidia.com/gpu.memory": "40000"}}})
    made = gang("late", group("w", 1))
    await bench.apply(made, pods=False)
    pod = member_json(made, made.groups[0], 0, bench.namespace)
    pod["metadata"]["annotations"] = {GPU_MEMORY: "80Gi"}
    await bench.create_pod(pod)
    yield
    less = {"metadata": {"annotations": {GPU_MEMORY: "20Gi"}}}
    await bench.client.patch(Pod, "late-w-0", less, bench.namespace)


# Its base gang


async def scaled(bench: Bench, gpus: int) -> None:
    await bench.apply(gang("late", group("w", 1, gpus=gpus), base="base"))


async def cordon(bench: Bench, node: str, *, unschedulable: bool = True) -> None:
    await bench.client.patch(Node, node, {"spec": {"unschedulable": unschedulable}})


async def a_base_gang_moves_to_where_there_is_room(bench: Bench) -> AsyncIterator[None]:
    (narrow,) = await zone(bench, "a", 1)
    (wide,) = await zone(bench, "b", 3)
    await cordon(bench, wide)
    base = gang("base", group("w", 1), required=ZONE)
    await bench.apply(base)
    await bench.expect({"base/w": 1})
    await cordon(bench, narrow)
    await cordon(bench, wide, unschedulable=False)
    await scaled(bench, 2)
    yield
    await ends(bench, "base-w-0")
    await bench.create_pods(base)


async def a_base_gang_may_stand_anywhere_from_now_on(bench: Bench) -> AsyncIterator[None]:
    await zone(bench, "a", 1)
    (wide,) = await zone(bench, "b", 2)
    await cordon(bench, wide)
    await bench.apply(gang("base", group("w", 1), required=ZONE))
    await bench.expect({"base/w": 1})
    await cordon(bench, wide, unschedulable=False)
    await scaled(bench, 2)
    yield
    await bench.client.patch(PodGang, "base", {"spec": {"topologyConstraint": None}}, bench.namespace)


async def a_base_gang_of_two_schedulers_stands_when_the_other_has_bound(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 3)
    base = gang("base", group("w", 1), group("x", 1, gpus=0, spec={"schedulerName": "other"}))
    await bench.apply(base)
    await scaled(bench, 1)
    yield
    bench.cluster.sim.server.bind(Key(bench.namespace, "base-x-0"), node)


async def a_base_gang_goes_while_a_scaled_one_is_repaired(bench: Bench) -> AsyncIterator[None]:
    (narrow,) = await zone(bench, "a", 3)
    base = gang("base", group("w", 1), required=ZONE)
    await bench.apply(base)
    await bench.expect({"base/w": 1})
    late = gang("late", group("w", 2), base="base")
    await bench.apply(late)
    await bench.expect({"base/w": 1, "late/w": 2})
    await cordon(bench, narrow)
    await zone(bench, "b", 2)
    await ends(bench, "late-w-0")
    await bench.create_pods(late, only=["late-w-0"])
    yield
    await bench.client.delete(PodGang, "base", bench.namespace)


# Who may be put out


async def high_by_its_gang_alone(bench: Bench) -> None:
    """A gang that runs, whose PodGang has the priority and whose pods say nothing of one."""
    other = gang("other", group("w", 1))
    body = gang_json(other, bench.namespace)
    body["spec"]["priorityClassName"] = "high"
    await bench.client.create(PodGang, body)
    await bench.create_pods(other)
    await bench.expect({"other/w": 1})


async def a_gang_is_given_a_lower_priority(bench: Bench) -> AsyncIterator[None]:
    await zone(bench, "a", 1)
    await high(bench)
    await bench.client.create(PriorityClass, {"metadata": {"name": "middle"}, "value": 10})
    await high_by_its_gang_alone(bench)
    await late_and_high(bench, 1)
    yield
    await bench.client.patch(PodGang, "other", {"spec": {"priorityClassName": "middle"}}, bench.namespace)


async def a_gang_of_higher_priority_is_gone_and_its_pods_are_left(bench: Bench) -> AsyncIterator[None]:
    await zone(bench, "a", 1)
    await high(bench)
    await high_by_its_gang_alone(bench)
    await late_and_high(bench, 1)
    yield
    await bench.client.delete(PodGang, "other", bench.namespace)


# Objects beside the pod


async def priority_class_that_is_made_later(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await runs(bench, "low", node, gpus=1)
    made = gang("late", group("w", 1), labels={APP: "late"})
    body = gang_json(made, bench.namespace)
    body["spec"]["priorityClassName"] = "comes-later"
    await bench.client.create(PodGang, body)
    await bench.create_pods(made)
    yield
    await bench.client.create(PriorityClass, {"metadata": {"name": "comes-later"}, "value": 1000})


async def claim_that_does_not_exist_yet(bench: Bench) -> AsyncIterator[None]:
    await zone(bench, "a", 1)
    await late(bench, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    yield
    await _bound_claim(bench, "data")


async def claim_that_is_not_bound_yet(bench: Bench) -> AsyncIterator[None]:
    await zone(bench, "a", 1)
    await bench.client.create(PersistentVolumeClaim, _claim(bench, "data", ""))
    await late(bench, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    yield
    await bench.client.create(PersistentVolume, _volume("pv-data"))
    await bench.client.patch(PersistentVolumeClaim, "data", {"spec": {"volumeName": "pv-data"}}, bench.namespace)
    await bench.client.patch(
        PersistentVolumeClaim, "data", {"status": {"phase": "Bound"}}, bench.namespace, subresource="status"
    )


def _claim(bench: Bench, name: str, volume: str) -> Json:
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec |= {"volumeName": volume} if volume else {}
    return {"metadata": {"name": name, "namespace": bench.namespace}, "spec": spec}


def _volume(name: str) -> Json:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    return {"metadata": {"name": name}, "spec": spec}


async def _bound_claim(bench: Bench, name: str) -> None:
    await bench.client.create(PersistentVolume, _volume(f"pv-{name}"))
    await bench.client.create(PersistentVolumeClaim, _claim(bench, name, f"pv-{name}"))
    await bench.client.patch(
        PersistentVolumeClaim, name, {"status": {"phase": "Bound"}}, bench.namespace, subresource="status"
    )


STORIES: list[Story] = [
    affinity_and_we_bind_whom_it_wants,
    affinity_and_another_scheduler_binds_whom_it_wants,
    affinity_and_a_running_pod_gets_the_label,
    affinity_and_a_namespace_gets_the_label,
    anti_affinity_and_the_pod_leaves_a_full_node,
    anti_affinity_and_the_pod_gets_another_label,
    anti_affinity_of_a_running_pod_that_leaves_a_full_node,
    anti_affinity_of_a_running_pod_and_it_gets_another_label,
    spread_and_a_pod_comes_to_the_emptier_zone,
    spread_and_the_emptier_zone_goes,
    spread_that_heeds_taints_and_the_emptier_zone_is_tainted,
    spread_and_a_pod_of_the_fuller_zone_begins_to_end,
    host_port_that_is_given_back,
    taint_that_is_taken_off,
    taint_that_the_pod_learns_to_tolerate,
    selector_and_a_node_gets_the_label,
    room_and_the_node_grows,
    room_and_a_pod_finishes,
    room_and_a_node_has_resized_a_running_pod,
    an_equal_leaves_a_node_of_lower_pods,
    a_node_full_of_lower_pods_is_uncordoned,
    a_node_full_of_lower_pods_grows,
    a_base_gang_moves_to_where_there_is_room,
    a_base_gang_may_stand_anywhere_from_now_on,
    a_base_gang_of_two_schedulers_stands_when_the_other_has_bound,
    a_base_gang_goes_while_a_scaled_one_is_repaired,
    a_gang_is_given_a_lower_priority,
    a_gang_of_higher_priority_is_gone_and_its_pods_are_left,
    graphics_memory_and_it_asks_for_less,
    anti_affinity_of_a_running_pod_whose_node_goes,
    priority_class_that_is_made_later,
    claim_that_does_not_exist_yet,
    claim_that_is_not_bound_yet,
]


@told(STORIES)
async def test_who_waits_is_tried_again_when_it_can_be_helped(cluster: Any, story: Story) -> None:
    await is_noticed(cluster, story)


async def test_a_claim_is_no_reason_to_try_again_for_who_has_none(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims come and go all the time in a large cluster, and many wait there."""
    tried: list[str] = []
    decide = UnitPlacer.decide

    async def noted(self: UnitPlacer, name: str, order: Order) -> Any:
        tried.append(name.rpartition("/")[2])
        return await decide(self, name, order)

    monkeypatch.setattr(UnitPlacer, "decide", noted)
    async with scheduling(cluster) as bench:
        await zone(bench, "a", 1)
        await bench.apply(gang("large", group("w", 1, gpus=2)))
        await late(bench, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        await cluster.settle(3)
        tried.clear()
        await bench.client.create(PersistentVolumeClaim, _claim(bench, "data", ""))
        await cluster.settle(10)
        assert tried == ["late"]


async def test_a_pod_of_no_gang_is_tried_again_when_its_claim_is_there(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await zone(bench, "a", 1)
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        await bench.create_pod(pod_json("alone", bench.namespace, volumes=volumes))
        await cluster.settle(3)
        await _bound_claim(bench, "data")

        async def is_bound() -> str:
            return (await bench.client.get(Pod, "alone", bench.namespace)).spec.node_name

        await cluster.eventually(is_bound, timeout_s=20)


async def test_a_neighbour_that_comes_while_a_long_decision_is_made_is_noticed_after_it(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(decider: Decider, decide: Callable[[Snapshot], Any], *_: Any, **__: Any) -> Any:
        answer = decide(bench.scheduler.view.snapshot.copy())
        decider.asides += 1
        await asyncio.sleep(2)
        return answer

    monkeypatch.setattr(Decider, "work", slowly)
    async with scheduling(cluster) as bench:
        (node,) = await zone(bench, "a", 2)
        await late(bench, **near("friend"))
        await cluster.settle(1)
        await runs(bench, "friend", node, "friend")
        await bench.expect({"late/w": 1, "/": 1})


class LateOfNamespaces(SimClient):
    """While `in_step` is not set its watch of Namespaces brings nothing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.in_step = asyncio.Event()
        self.in_step.set()

    async def watch(self, kind: Any, *args: Any, **kwargs: Any) -> AsyncIterator[WatchEvent[Any]]:
        async for event in super().watch(kind, *args, **kwargs):
            if kind is Namespace:
                await self.in_step.wait()
            yield event


async def test_a_neighbour_is_noticed_whose_namespace_arrives_after_it(cluster: Any) -> None:
    client = cluster.client = LateOfNamespaces(cluster.sim.server)
    wants = near("friend")
    wants["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] = {
        "matchLabels": {"team": "blue"}
    }
    async with scheduling(cluster) as bench:
        (node,) = await zone(bench, "a", 2)
        await late(bench, **wants)
        client.in_step.clear()
        body = {"metadata": {"name": f"{bench.namespace}-b", "labels": {"team": "blue"}}}
        await bench.client.create(Namespace, body)
        friend = pod_json("friend", f"{bench.namespace}-b", gpus=0, schedulerName="other", nodeName=node)
        friend["metadata"]["labels"] = {APP: "friend"}
        await bench.client.create(Pod, friend)
        await cluster.settle(3)
        assert await bench.nodes_of("late") == {}
        client.in_step.set()

        async def is_bound() -> Any:
            return await bench.nodes_of("late")

        await cluster.eventually(is_bound, timeout_s=20)


async def test_a_pod_is_placed_by_what_it_says_when_its_gate_comes_off(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await zone(bench, "a", 1)
        (wanted,) = await zone(bench, "b", 2)
        await late(bench, schedulingGates=[{"name": "example.com/wait"}])
        await cluster.settle(1)
        said = {"spec": {"schedulingGates": None, "nodeSelector": {ZONE: "b"}}}
        await bench.client.patch(Pod, "late-w-0", said, bench.namespace)

        async def is_bound() -> Any:
            return await bench.nodes_of("late")

        assert await cluster.eventually(is_bound, timeout_s=20) == {"late-w-0": wanted}
