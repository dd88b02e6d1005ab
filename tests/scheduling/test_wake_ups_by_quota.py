"""A unit that waits for a quota, a reservation or a device is tried again when it is available."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.devices import Devices, sharing
from tests.support.fleet import QUOTA, elastic, install, reservation, standing
from tests.support.gangs import Bench, Group, gang, group, member_json
from tests.support.woken import Story, ends, is_noticed, late, runs, told, zone

from grove.api.core import Node, PersistentVolumeClaim, Pod, ResourceSlice, StorageClass
from grove.api.koordinator import ElasticQuota, Reservation
from grove.api.meta import Json
from grove.api.podgang import PodGang

pytestmark = pytest.mark.simulated

TEAM = {QUOTA: "team"}
RED = {"team": "red"}
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


async def limit(bench: Bench, most: int) -> None:
    await bench.client.create(ElasticQuota, elastic("team", bench.namespace, 0, most))


async def of_the_team(bench: Bench, name: str, node: str) -> None:
    """A pod of the team that another scheduler bound."""
    await runs(bench, name, node, gpus=1)
    await bench.client.patch(Pod, name, {"metadata": {"labels": TEAM}}, bench.namespace)


# Quotas


async def a_limit_and_a_pod_of_the_queue_goes_with_its_node(bench: Bench) -> AsyncIterator[None]:
    (lost, _) = await zone(bench, "a", 1, 1)
    await limit(bench, 1)
    await of_the_team(bench, "one", lost)
    await bench.apply(gang("late", group("w", 1), labels=TEAM))
    yield
    await bench.nodes.remove_node(lost)


async def a_limit_for_pods_above_the_minimum_and_one_leaves_a_closed_node(bench: Bench) -> AsyncIterator[None]:
    (closed, _) = await zone(bench, "a", 1, 2)
    await limit(bench, 2)
    await of_the_team(bench, "one", closed)
    await bench.client.patch(Node, closed, {"spec": {"unschedulable": True}})
    await bench.apply(gang("late", group("w", 2, 1), labels=TEAM))
    yield
    await ends(bench, "one")


# Reservations


async def a_reservation_for_many_ends_by_its_time_while_one_uses_it(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 2)
    body = reservation("r", gpus=2, allocateOnce=False, ttl="10s")
    await standing(bench.cluster, body, node, 2)
    await bench.cluster.settle(0.5)
    await bench.apply(gang("red", group("w", 1), labels=RED))
    await bench.expect({"red/w": 1}, quiet_s=0.5)
    await late(bench)
    yield
    await bench.cluster.settle(10)


async def a_reservation_is_being_deleted(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    body = reservation("r", ttl="0s")
    body["metadata"]["finalizers"] = ["example.com/slow"]
    await standing(bench.cluster, body, node)
    await bench.cluster.settle(0.5)
    await late(bench)
    yield
    await bench.client.delete(Reservation, "r")


async def never_bound(bench: Bench, part: Group, **fields: Any) -> None:
    """A gang that has its place and is never bound: a volume of its pod is never made."""
    kind = {"provisioner": "example.com/slow", "volumeBindingMode": "WaitForFirstConsumer"}
    await bench.client.create(StorageClass, {"metadata": {"name": "slow"}, **kind})
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "slow", "namespace": bench.namespace}
    await bench.client.create(PersistentVolumeClaim, {"metadata": meta, "spec": {**spec, "storageClassName": "slow"}})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "slow"}}]
    await bench.apply(gang("other", replace(part, spec={**part.spec, "volumes": volumes}), **fields))
    await bench.cluster.settle(1)


async def is_given_up(bench: Bench) -> None:
    await bench.client.delete(PodGang, "other", bench.namespace)


async def a_reservation_is_given_back_by_one_on_its_way_into_it(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 1)
    await standing(bench.cluster, reservation("r", ttl="0s"), node)
    await bench.cluster.settle(0.5)
    await never_bound(bench, group("w", 1), labels=RED)
    asks = gang("late", group("w", 1), labels=RED)
    await bench.apply(asks, pods=False)
    pod = member_json(asks, asks.groups[0], 0, bench.namespace)
    pod["metadata"]["annotations"] = {AFFINITY: json.dumps({"name": "r"})}
    await bench.create_pod(pod)
    yield
    await is_given_up(bench)


async def a_part_of_a_reservation_is_given_back_by_one_on_its_way_into_it(bench: Bench) -> AsyncIterator[None]:
    (node,) = await zone(bench, "a", 2)
    await standing(bench.cluster, reservation("r", gpus=2, ttl="0s", allocateOnce=False), node, 2)
    await bench.cluster.settle(0.5)
    await never_bound(bench, group("w", 1), labels=RED)
    await bench.apply(gang("late", group("w", 1, gpus=2), labels=RED))
    yield
    await is_given_up(bench)


# Devices


async def a_device_of_many_nodes_is_given_back_by_one_on_its_way_to_it(bench: Bench) -> AsyncIterator[None]:
    (narrow, _) = await zone(bench, "a", 1, 2)
    devices = Devices(bench)
    await devices.set_up()
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": devices.driver, "allNodes": True, "pool": pool, "devices": [{"name": "link"}]}
    await bench.client.create(ResourceSlice, {"metadata": {"name": "fabric"}, "spec": spec})
    await devices.claim("first", "second")
    user = sharing("w", 1, "first")
    user.spec["nodeSelector"] = {"kubernetes.io/hostname": narrow}
    await never_bound(bench, user)
    await bench.apply(gang("late", sharing("w", 1, "second", gpus=2)))
    yield
    await is_given_up(bench)


async def a_shared_claim_is_given_back_by_one_on_its_way_to_another_node(bench: Bench) -> AsyncIterator[None]:
    narrow, wide = await zone(bench, "a", 1, 2)
    devices = Devices(bench)
    await devices.set_up()
    for node in (narrow, wide):
        await devices.put(node, "a")
    await devices.claim("shared")
    user = sharing("w", 1, "shared")
    user.spec["nodeSelector"] = {"kubernetes.io/hostname": narrow}
    await never_bound(bench, user)
    await bench.apply(gang("late", sharing("w", 1, "shared", gpus=2)))
    yield
    await is_given_up(bench)


STORIES: list[Story] = [
    a_limit_and_a_pod_of_the_queue_goes_with_its_node,
    a_limit_for_pods_above_the_minimum_and_one_leaves_a_closed_node,
    a_reservation_for_many_ends_by_its_time_while_one_uses_it,
    a_reservation_is_being_deleted,
    a_reservation_is_given_back_by_one_on_its_way_into_it,
    a_part_of_a_reservation_is_given_back_by_one_on_its_way_into_it,
    a_device_of_many_nodes_is_given_back_by_one_on_its_way_to_it,
    a_shared_claim_is_given_back_by_one_on_its_way_to_another_node,
]


@told(STORIES)
async def test_who_waits_is_tried_again_when_it_can_be_helped(cluster: Any, story: Story) -> None:
    await install(cluster, "ElasticQuota", "Reservation", "Device")
    await is_noticed(cluster, story)
