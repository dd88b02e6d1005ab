"""Fake nodes on the simulator: how few writes they need, what they do about faults, and what they report."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.support.objects import pod_manifest

from grove.api.core import Lease, Node, Pod
from grove.api.meta import Condition, ObjectMeta
from grove.kube.errors import ConnectionLost
from grove.sim import kubelet
from grove.sim.cluster import SimCluster
from grove.sim.faults import CALM, ROUGH, Faults
from grove.sim.kubelet import RunContainer, RunPod, RunSpec, RunStatus
from grove.sim.nodes import FakeNodes
from grove.sim.topology import HOST, LEVELS, RACK, Topology

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def start(cluster: SimCluster, body: dict, node: str) -> None:
    client = cluster.client()
    made = await client.create(Pod, body)
    await client.bind("default", made.metadata.name, node)


async def ready_names(cluster: SimCluster) -> set[str]:
    page = await cluster.client().list(Pod, "default")
    return {p.metadata.name for p in page.items if p.is_ready}


def test_a_topology_names_every_domain_by_its_path():
    nodes = list(Topology(zones=2, blocks=2, racks=3, nodes=4).objects())

    assert len(nodes) == len(Topology(zones=2, blocks=2, racks=3, nodes=4)) == 48
    assert len({node["metadata"]["name"] for node in nodes}) == 48
    for _, key in LEVELS:
        assert all(key in node["metadata"]["labels"] for node in nodes)
    assert len({node["metadata"]["labels"][RACK] for node in nodes}) == 12
    assert nodes[-1]["metadata"]["labels"][HOST] == "z1-b1-r2-n3"


def test_a_topology_without_gpus_has_no_such_resource():
    (node,) = Topology(gpus=0).objects()

    assert node["status"]["allocatable"] == {"cpu": "128", "memory": "1024Gi", "pods": "110"}


async def test_one_status_write_a_pod():
    async with SimCluster(nodes=Topology(nodes=4)) as cluster:
        for at in range(20):
            await start(cluster, pod_manifest("default", f"p{at}"), cluster.nodes.names[at % 4])
        await asyncio.sleep(1)

        assert len(await ready_names(cluster)) == 20
        calls = cluster.nodes._client.calls
        assert calls["patch", "pods/status"] == 20


def running(name: str, node: str) -> dict:
    body = pod_manifest("default", name)
    meta = {**body["metadata"], "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": {**body["spec"], "nodeName": node}, "status": {"phase": "Running"}}


async def test_adopted_pods_at_rest_are_left_alone_until_something_happens_to_them():
    nodes = list(Topology(nodes=2).objects())
    names = [node["metadata"]["name"] for node in nodes]
    async with SimCluster() as cluster:
        store = cluster.server.store
        for node in nodes:
            store.put(Node.RESOURCE, {**node, "metadata": {**node["metadata"], "uid": node["metadata"]["name"]}})
        store.fill(Pod.RESOURCE, [running("rests", names[0]), running("leaves", names[1])])
        waits = store.put(Pod.RESOURCE, {**running("waits", names[0]), "status": {"phase": "Pending"}})
        cluster.nodes.adopt(names, [waits.view(RunPod)], since=str(store.revision))
        await asyncio.sleep(1)
        assert await ready_names(cluster) == {"waits"}
        assert cluster.nodes._client.calls["list", "pods"] == 0

        await cluster.client().delete(Pod, "leaves", "default")
        await cluster.nodes.drain(names[0])
        await asyncio.sleep(1)
        assert (await cluster.client().list(Pod, "default")).items == []


async def test_one_delete_a_pod():
    async with SimCluster(nodes=Topology()) as cluster:
        await start(cluster, pod_manifest("default", "p"), cluster.nodes.names[0])
        await asyncio.sleep(1)
        await cluster.client().delete(Pod, "p", "default")
        await asyncio.sleep(1)

        assert (await cluster.client().list(Pod, "default")).items == []
        assert cluster.nodes._client.calls["delete", "pods"] == 1


async def test_start_and_stop_take_the_time_they_are_given():
    async with SimCluster(
        nodes=Topology(), start_s=lambda p: 100.0 if p.metadata.name == "slow" else 10.0, stop_s=20.0
    ) as cluster:
        for name in ("slow", "quick"):
            await start(cluster, pod_manifest("default", name), cluster.nodes.names[0])
        await asyncio.sleep(50)
        assert await ready_names(cluster) == {"quick"}
        await asyncio.sleep(60)
        assert await ready_names(cluster) == {"slow", "quick"}

        await cluster.client().delete(Pod, "quick", "default")
        await asyncio.sleep(15)
        assert len((await cluster.client().list(Pod, "default")).items) == 2
        await asyncio.sleep(10)
        assert len((await cluster.client().list(Pod, "default")).items) == 1


async def test_a_chain_of_startup_gates_opens_in_order():
    async with SimCluster(nodes=Topology(), start_s=10.0) as cluster:
        await start(cluster, pod_manifest("default", "c", clique="c", parents=("b:1",)), cluster.nodes.names[0])
        await start(cluster, pod_manifest("default", "b", clique="b", parents=("a:1",)), cluster.nodes.names[0])
        await start(cluster, pod_manifest("default", "a", clique="a"), cluster.nodes.names[0])
        seen = []
        for _ in range(4):
            seen.append(await ready_names(cluster))
            await asyncio.sleep(10.5)

        assert seen == [set(), {"a"}, {"a", "b"}, {"a", "b", "c"}]


async def test_parents_that_were_ready_once_are_enough():
    async with SimCluster(nodes=Topology()) as cluster:
        await start(cluster, pod_manifest("default", "a", clique="a"), cluster.nodes.names[0])
        await asyncio.sleep(1)
        await start(cluster, pod_manifest("default", "b", clique="b", parents=("a:1",)), cluster.nodes.names[0])
        await asyncio.sleep(1)
        await cluster.nodes.set_ready("default", "a", False)
        await asyncio.sleep(10)

        assert await ready_names(cluster) == {"b"}


async def test_nodes_it_does_not_know_are_left_alone():
    async with SimCluster(nodes=Topology()) as cluster:
        await start(cluster, pod_manifest("default", "p"), "somebody-elses")
        await asyncio.sleep(10)

        assert await ready_names(cluster) == set()


async def test_pods_of_a_node_that_stays_away_are_evicted_after_five_minutes():
    async with SimCluster(nodes=Topology()) as cluster:
        await start(cluster, pod_manifest("default", "p"), cluster.nodes.names[0])
        await asyncio.sleep(1)
        await cluster.nodes.stop_node(cluster.nodes.names[0])
        await asyncio.sleep(290)
        assert not (await cluster.client().get(Pod, "p", "default")).metadata.is_deleting
        await asyncio.sleep(20)
        assert (await cluster.client().get(Pod, "p", "default")).metadata.is_deleting

        await cluster.nodes.start_node(cluster.nodes.names[0])
        await asyncio.sleep(5)
        assert (await cluster.client().list(Pod, "default")).items == []


async def test_pods_of_a_node_that_comes_back_in_time_stay():
    async with SimCluster(nodes=Topology()) as cluster:
        await start(cluster, pod_manifest("default", "p"), cluster.nodes.names[0])
        await asyncio.sleep(1)
        await cluster.nodes.stop_node(cluster.nodes.names[0])
        await asyncio.sleep(60)
        assert await ready_names(cluster) == set()
        await cluster.nodes.start_node(cluster.nodes.names[0])
        await asyncio.sleep(600)

        assert await ready_names(cluster) == {"p"}


async def test_heartbeats_renew_a_lease_a_node():
    async with SimCluster() as cluster:
        nodes = FakeNodes(cluster.client(), cluster.clock, heartbeat_s=10.0)
        await nodes.add(Topology(nodes=3))
        async with nodes.running():
            await asyncio.sleep(60)
            leases = (await cluster.client().list(Lease, "kube-node-lease")).items
            ages = [(cluster.clock.now() - lease.spec.renew_time).total_seconds() for lease in leases]

        assert len(leases) == 3
        assert max(ages) <= 10.1


async def test_nodes_that_exist_are_taken_over():
    async with SimCluster(nodes=Topology(nodes=2)) as cluster:
        again = FakeNodes(cluster.client(), cluster.clock)
        await again.add(Topology(nodes=2))

        assert sorted(again.names) == sorted(cluster.nodes.names)
        assert len((await cluster.client().list(Node)).items) == 2


@pytest.mark.parametrize("seed", range(3))
async def test_all_pods_become_ready_in_any_weather(seed):
    async with SimCluster() as cluster:
        faults = Faults(CALM, seed=seed)
        nodes = FakeNodes(faults.client(cluster.client()), cluster.clock)
        await nodes.add(Topology(nodes=2))
        faults.rates = ROUGH
        async with nodes.running():
            for at in range(30):
                await start(
                    cluster,
                    pod_manifest("default", f"p{at}", clique=f"c{at % 3}", parents=("c0:5",) if at % 3 else ()),
                    nodes.names[at % 2],
                )
                if at % 10 == 5:
                    cluster.server.drop_watches(ConnectionLost("restart"))
                await asyncio.sleep(1)
            faults.stop()
            await asyncio.sleep(600)

        assert len(await ready_names(cluster)) == 30


def run_pod(**status: object) -> RunPod:
    return RunPod(
        metadata=ObjectMeta(name="p", namespace="n", uid="u"),
        spec=RunSpec(node_name="n0", containers=(RunContainer(name="m", image="i"),)),
        status=RunStatus(**status),
    )


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param(("--podcliques=a:2",), {("n", "a", "Ready"): 2}, id="one parent"),
        pytest.param(
            ("--podcliques=a:2", "--podcliques=b-0:1"),
            {("n", "a", "Ready"): 2, ("n", "b-0", "Ready"): 1},
            id="two parents",
        ),
        pytest.param(("--podcliques=a:2", "--condition=Started"), {("n", "a", "Started"): 2}, id="a condition"),
        pytest.param(("--verbose",), {}, id="other arguments"),
    ],
)
def test_parents_are_read_from_the_startup_gate(args, want):
    gate = RunContainer(name="grove-initc", args=args)
    other = RunContainer(name="mine", args=("--podcliques=ignored:9",))
    found = RunPod(metadata=ObjectMeta(namespace="n"), spec=RunSpec(init_containers=(other, gate)))

    assert kubelet.parents(found) == want


def test_a_condition_that_holds_on_keeps_its_time():
    since = datetime(2025, 1, 1, tzinfo=UTC)
    scheduled = Condition(type="PodScheduled", status="True", last_transition_time=since)
    report = kubelet.running(run_pod(conditions=(scheduled,)), NOW)

    times = {c["type"]: c["lastTransitionTime"] for c in report["status"]["conditions"]}
    assert times["PodScheduled"] == "2025-01-01T00:00:00Z"
    assert times["Ready"] == "2026-01-01T00:00:00Z"


def test_a_report_is_about_one_pod_by_uid():
    assert kubelet.running(run_pod(), NOW)["metadata"] == {"uid": "u"}
