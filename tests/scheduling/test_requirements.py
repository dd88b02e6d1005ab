"""The requirements of the integration proposal, one by one and by their names, and the four features it must go with.

FR1 to FR6 and NFR3, then preemption, ElasticQuota and device scheduling; FR5 is also the fourth feature, reservation.
Each runs on the simulator and on a real API server; other tests go into each in depth.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from tests.support.fleet import GPU, QUOTA, device, elastic, install, reservation, standing
from tests.support.gangs import add_priority, gang, group, pod_json, scheduling
from tests.support.manifests import clique, pcs
from tests.support.manifests import group as scaling_group
from tests.support.operating import Operating, World

from grove.api import labels as key
from grove.api.core import Pod, PriorityClass
from grove.api.koordinator import Device, ElasticQuota, Reservation
from grove.api.meta import find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.scheduler.model.config import SchedulerConfiguration
from grove.sim.topology import RACK, Topology

pytestmark = pytest.mark.real_in("soak")

RED = {"team": "red"}
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"

OPERATING = Operating(nodes=Topology(nodes=4), scheduled=True)


@pytest.mark.real_in("test")
async def test_FR1_hierarchical_gangs_a_miss_at_any_level_places_nothing(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(11)
        await bench.apply(gang("pd", group("prefill", 4), group("decode", 8)))
        await bench.condition("pd", status="False", reason="Unschedulable")
        await bench.expect({})
        await bench.add_nodes(1)
        await bench.expect({"pd/prefill": 4, "pd/decode": 8})


@pytest.mark.real_in("test")
async def test_FR2_dependents_are_ready_after_those_they_start_after(world: World) -> None:
    manifest = pcs(
        "mpi", clique("worker", 2), clique("leader", starts_after=["worker"]), startup="CliqueStartupTypeExplicit"
    )
    # Workers start slowly: a leader that does not wait for them is ready three seconds before them.
    world.nodes.start_s = lambda pod: 3.0 if pod.metadata.labels[key.POD_CLIQUE] == "mpi-0-worker" else 0.0
    await world.apply(manifest)

    await world.available("mpi")
    (leader,) = await world.pods("mpi-0-leader")
    assert any(container.name == "grove-initc" for container in leader.spec.init_containers)
    workers = await world.pods("mpi-0-worker")
    assert max(map(ready_since, workers)) <= ready_since(leader)


def ready_since(pod: Pod) -> datetime:
    ready = find_condition(pod.status.conditions, "Ready")
    assert ready is not None
    assert ready.last_transition_time is not None
    return ready.last_transition_time


async def test_FR3_a_gang_is_placed_in_one_domain_where_one_has_capacity(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(racks=2, nodes=2, gpus=2))
        await bench.apply(gang("near", group("w", 4), preferred=RACK))
        await bench.expect({"near/w": 4})
        assert len(await bench.domains(RACK, "near")) == 1
        await bench.apply(gang("apart", group("w", 3), preferred=RACK))
        await bench.expect({"near/w": 4, "apart/w": 3})


async def test_FR4_a_scaled_group_comes_as_a_whole_gang(world: World) -> None:
    await world.apply(pcs("chat", clique("a"), clique("b", 2), groups=[scaling_group("g", "a", "b", replicas=1)]))
    await world.available("chat")
    await world.scale(PodCliqueScalingGroup, "chat-0-g", 2)

    async def grown() -> bool:
        pods = await world.pods()
        return len(pods) == 6 and all(pod.is_bound for pod in pods)

    await world.cluster.eventually(grown)
    assert await world.names(PodGang) == ["chat-0", "chat-0-g-0"]


async def test_FR5_a_reserved_place_is_there_for_the_gang_and_for_no_other_pod(cluster: Any) -> None:
    await install(cluster, "Reservation")
    async with scheduling(cluster) as bench:
        nodes = await bench.add_nodes(2)
        for number, node in enumerate(nodes):
            await bench.seen(Reservation, await standing(cluster, reservation(f"{cluster.prefix}r{number}"), node))
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        await bench.apply(gang("mine", group("w", 2), labels=RED))
        await bench.expect({"mine/w": 2})
        for pod in await bench.pods():
            if pod.is_bound:
                used = json.loads(pod.metadata.annotations[ALLOCATED])["name"]
                held = await cluster.client.get(Reservation, used)
                assert held.status.node_name == pod.spec.node_name
        for number in range(2):
            await cluster.client.delete(Reservation, f"{cluster.prefix}r{number}")


@pytest.mark.real_in("test")
async def test_FR6_grove_objects_are_taken_as_they_are_and_extended_by_annotations_alone(world: World) -> None:
    manifest = pcs("plain", clique("a", 2))
    manifest["metadata"]["annotations"] = {"scheduling.koordinator.sh/gang-timeout": "90s"}
    manifest["metadata"]["labels"] = {"koordinator.sh/qosClass": "LS"}
    await world.apply(manifest)
    await world.available("plain")
    stored = await world.client.get(PodCliqueSet.RESOURCE, "plain", world.namespace)
    assert stored["apiVersion"] == "grove.io/v1alpha1"
    assert stored["spec"]["template"].keys() <= manifest["spec"]["template"].keys() | {"headlessServiceConfig"}
    assert {pod.metadata.labels["koordinator.sh/qosClass"] for pod in await world.pods()} == {"LS"}


@pytest.mark.parametrize("gate", [True, False], ids=["on", "off"])
async def test_NFR3_pods_of_nobodys_are_placed_alike_with_the_gate_on_and_off(cluster: Any, gate: bool) -> None:
    await install(cluster, "ElasticQuota", "Device")
    async with scheduling(cluster, feature_gates={"GroveIntegration": gate}) as bench:
        (node,) = await bench.add_nodes(1, gpus=2)
        await cluster.client.create(Device, device(node, 2))
        quota = f"{cluster.prefix}q"
        await cluster.client.create(ElasticQuota, elastic(quota, cluster.namespace, 1, 1))
        await cluster.settle(1)
        for name in ("first", "second"):
            pod = pod_json(name, cluster.namespace)
            pod["metadata"]["labels"] = {QUOTA: quota, "koordinator.sh/qosClass": "LS"}
            await bench.create_pod(pod)

        async def one_is_bound() -> bool:
            return sum(pod.is_bound for pod in await bench.pods()) == 1

        await cluster.eventually(one_is_bound)
        await cluster.settle(1)
        assert await one_is_bound(), "the quota holds for pods that are in no gang"
        (placed,) = [pod for pod in await bench.pods() if pod.is_bound]
        assert "scheduling.koordinator.sh/device-allocated" in placed.metadata.annotations
        await cluster.client.delete(ElasticQuota, quota, cluster.namespace)
        await cluster.client.delete(Device, node)


async def test_NFR3_the_gate_goes_off_and_on_again_without_touching_what_runs(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await bench.apply(gang("old", group("w", 2)))
        await bench.expect({"old/w": 2})
        uids = {pod.metadata.uid for pod in await bench.pods()}
        await bench.stop()
        bench.config = SchedulerConfiguration(feature_gates={"GroveIntegration": False})
        await bench.start()
        await bench.create_pod(pod_json("single", cluster.namespace))

        async def placed() -> bool:
            found = await bench.client.get(Pod, "single", cluster.namespace)
            return bool(found.is_bound)

        await cluster.eventually(placed)
        assert uids < {pod.metadata.uid for pod in await bench.pods() if pod.is_bound}
        await bench.stop()
        bench.config = SchedulerConfiguration()
        await bench.start()
        await bench.apply(gang("new", group("w", 1)))
        await bench.condition("new", status="True")
        assert uids < {pod.metadata.uid for pod in await bench.pods() if pod.is_bound}


# Feature interactions


async def test_grove_and_preemption(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        names = {name: f"{cluster.prefix}{name}" for name in ("low", "high")}
        for name, value in (("low", 10), ("high", 100)):
            await add_priority(cluster, names[name], value)
        await bench.add_nodes(3)
        await bench.apply(gang("under", group("w", 3), priority_class=names["low"]))
        await bench.expect({"under/w": 3})
        await bench.apply(gang("over", group("w", 1), priority_class=names["high"]))
        await bench.expect({"over/w": 1})
        await bench.condition("under", "DisruptionTarget", status="True")
        for name in names.values():
            await cluster.client.delete(PriorityClass, name)


async def test_grove_and_elastic_quota(cluster: Any) -> None:
    await install(cluster, "ElasticQuota")
    async with scheduling(cluster) as bench:
        await bench.add_nodes(3)
        quota = f"{cluster.prefix}team"
        await cluster.client.create(ElasticQuota, elastic(quota, cluster.namespace, 2, 2))
        await bench.seen(ElasticQuota, quota, cluster.namespace)
        await bench.apply(gang("gang", group("w", 3), labels={QUOTA: quota}))
        await bench.condition("gang", status="False", reason="QuotaExceeded")
        await bench.expect({})
        await cluster.client.patch(ElasticQuota, quota, {"spec": {"max": {GPU: 3}}}, cluster.namespace)
        await bench.expect({"gang/w": 3})
        await cluster.client.delete(ElasticQuota, quota, cluster.namespace)


@pytest.mark.real_in("test")
async def test_grove_and_device_scheduling(cluster: Any) -> None:
    await install(cluster, "Device")
    async with scheduling(cluster) as bench:
        nodes = await bench.add_nodes(2, gpus=2)
        for node in nodes:
            await cluster.client.create(Device, device(node, 2))
            await bench.seen(Device, node)
        await bench.apply(gang("gang", group("w", 4)))
        await bench.expect({"gang/w": 4})
        given = [
            (pod.spec.node_name, one["minor"])
            for pod in await bench.pods()
            for one in json.loads(pod.metadata.annotations["scheduling.koordinator.sh/device-allocated"])["gpu"]
        ]
        assert len(given) == len(set(given)) == 4
        for node in nodes:
            await cluster.client.delete(Device, node)
