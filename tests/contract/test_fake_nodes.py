"""Fake nodes over either cluster: pods bound to them run, wait for parents, fail and go, as kubelets have it."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import aclosing

import pytest
from tests.support.objects import pod_manifest

from grove.api.core import Node, Pod
from grove.api.meta import find_condition
from grove.kube.errors import NotFound
from grove.sim.topology import BLOCK, HOST, RACK, ZONE, Topology


async def start(cluster, nodes, body: dict) -> None:
    made = await cluster.client.create(Pod, body)
    await cluster.client.bind(cluster.namespace, made.metadata.name, nodes.names[0], uid=made.metadata.uid)


def seen(cluster, name: str, holds):
    """A look at the pod for `eventually`: the pod when the condition holds for it."""

    async def look():
        found = await cluster.client.get(Pod, name, cluster.namespace)
        return found if holds(found) else None

    return look


async def is_gone(cluster, kind, name: str, namespace: str = "") -> bool:
    try:
        await cluster.client.get(kind, name, namespace)
    except NotFound:
        return True
    return False


async def test_a_topology_becomes_labelled_nodes_with_capacity(cluster):
    nodes = await cluster.add_nodes(Topology(zones=1, blocks=2, racks=2, nodes=2, gpus=4, cpu="64", memory="256Gi"))
    assert len(nodes.names) == 8
    node = await cluster.client.get(Node, f"{cluster.prefix}z0-b1-r0-n1")

    assert node.is_ready
    assert {key: node.metadata.labels[key] for key in (ZONE, BLOCK, RACK, HOST)} == {
        ZONE: f"{cluster.prefix}z0",
        BLOCK: f"{cluster.prefix}z0-b1",
        RACK: f"{cluster.prefix}z0-b1-r0",
        HOST: f"{cluster.prefix}z0-b1-r0-n1",
    }
    assert node.status.allocatable == {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "4"}

    async def has_no_taint() -> bool:
        # A real server taints every new node until its controller has seen that it is ready.
        return not (await cluster.client.get(Node, node.metadata.name)).spec.taints

    await cluster.eventually(has_no_taint)


async def test_a_bound_pod_becomes_ready(cluster):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    ready = await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))

    assert ready.status.phase == "Running"
    assert ready.status.pod_ip
    assert ready.is_scheduled
    assert [(c.name, c.ready, c.restart_count) for c in ready.status.container_statuses] == [("m", True, 0)]


async def test_a_bound_pod_learns_its_zone(cluster):
    nodes, numbers = await cluster.add_nodes(Topology()), itertools.count()

    async def labels_of_another() -> dict[str, str]:
        # A real server gets its nodes from a watch, and labels no pod on a node that it has not received yet.
        name = f"p{next(numbers)}"
        await start(cluster, nodes, pod_manifest(cluster.namespace, name))
        return (await cluster.client.get(Pod, name, cluster.namespace)).metadata.labels

    assert await cluster.eventually(labels_of_another) == {ZONE: f"{cluster.prefix}z0"}


async def test_a_pod_takes_its_time_to_start(cluster):
    nodes = await cluster.add_nodes(Topology(), start_s=1.0)
    clock = asyncio.get_running_loop().time
    before = clock()
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))

    await cluster.eventually(seen(cluster, "p", lambda p: p.status.phase != "Pending"))
    assert clock() - before >= 1.0
    await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))


async def test_a_deleted_pod_is_finalised_by_its_node(cluster):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))
    await cluster.client.delete(Pod, "p", cluster.namespace)

    await cluster.eventually(lambda: is_gone(cluster, Pod, "p", cluster.namespace), timeout_s=10)


async def test_the_startup_gate_waits_for_as_many_ready_parents(cluster):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "child", parents=("parent:2",)))
    await start(cluster, nodes, pod_manifest(cluster.namespace, "parent-0", clique="parent"))
    await start(cluster, nodes, pod_manifest(cluster.namespace, "lookalike", clique="parent-b"))
    await cluster.eventually(seen(cluster, "parent-0", lambda p: p.is_ready))
    await cluster.settle(0.3)
    assert (await cluster.client.get(Pod, "child", cluster.namespace)).status.phase == "Pending"

    await start(cluster, nodes, pod_manifest(cluster.namespace, "parent-1", clique="parent"))
    await cluster.eventually(seen(cluster, "child", lambda p: p.is_ready))


async def test_the_startup_gate_waits_for_every_parent_clique(cluster):
    nodes = await cluster.add_nodes(Topology(), report_init=True)
    await start(cluster, nodes, pod_manifest(cluster.namespace, "child", parents=("a:1", "b:1")))
    await start(cluster, nodes, pod_manifest(cluster.namespace, "a-0", clique="a"))
    waiting = await cluster.eventually(seen(cluster, "child", lambda p: p.status.init_container_statuses))
    initialized = find_condition(waiting.status.conditions, "Initialized")
    assert (waiting.status.phase, initialized.status) == ("Pending", "False")

    await start(cluster, nodes, pod_manifest(cluster.namespace, "b-0", clique="b"))
    ready = await cluster.eventually(seen(cluster, "child", lambda p: p.is_ready))
    assert ready.status.init_container_statuses[0].state.terminated.exit_code == 0


@pytest.mark.parametrize(("exit_code", "phase"), [(1, "Failed"), (0, "Succeeded")])
async def test_a_pod_can_end(cluster, exit_code, phase):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))
    await nodes.fail_pod(cluster.namespace, "p", exit_code=exit_code)

    ended = await cluster.client.get(Pod, "p", cluster.namespace)
    assert (ended.status.phase, ended.is_ready) == (phase, False)
    assert ended.status.container_statuses[0].state.terminated.exit_code == exit_code


async def test_a_crashed_pod_comes_back_with_a_restart(cluster):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    ready = await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))
    await nodes.crash_pod(cluster.namespace, "p", exit_code=139, restart_s=0.5)
    # It may be back by now: a watch tells how it was.
    changes = cluster.client.watch(Pod, cluster.namespace, resource_version=ready.metadata.resource_version)
    async with aclosing(changes):
        down = (await anext(changes)).object
    assert not down.is_ready
    assert down.status.container_statuses[0].last_state.terminated.exit_code == 139

    up = await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))
    assert up.status.container_statuses[0].restart_count == 1


async def test_readiness_comes_and_goes(cluster):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    ready = await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))
    await nodes.set_ready(cluster.namespace, "p", False)
    unready = await cluster.client.get(Pod, "p", cluster.namespace)
    assert (unready.is_ready, unready.status.phase, unready.status.pod_ip) == (False, "Running", ready.status.pod_ip)

    await nodes.set_ready(cluster.namespace, "p", True)
    assert (await cluster.client.get(Pod, "p", cluster.namespace)).is_ready


async def test_a_held_pod_runs_but_is_not_ready(cluster):
    nodes = await cluster.add_nodes(Topology())
    nodes.hold = lambda p: p.metadata.name == "p"
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))

    running = await cluster.eventually(seen(cluster, "p", lambda p: p.status.phase == "Running"))
    assert not running.is_ready


async def test_a_drained_node_is_cordoned_and_empty(cluster):
    nodes = await cluster.add_nodes(Topology())
    for name in ("a", "b"):
        await start(cluster, nodes, pod_manifest(cluster.namespace, name))
        await cluster.eventually(seen(cluster, name, lambda p: p.is_ready))
    await nodes.drain(nodes.names[0])

    assert (await cluster.client.get(Node, nodes.names[0])).spec.unschedulable
    for name in ("a", "b"):
        await cluster.eventually(lambda name=name: is_gone(cluster, Pod, name, cluster.namespace))


async def test_a_silent_node_is_not_ready_and_does_nothing(cluster):
    nodes = await cluster.add_nodes(Topology())
    await nodes.stop_node(nodes.names[0])

    async def is_tainted() -> bool:
        node = await cluster.client.get(Node, nodes.names[0])
        keys = {(t.key, t.effect) for t in node.spec.taints}
        return not node.is_ready and ("node.kubernetes.io/unreachable", "NoSchedule") in keys

    await cluster.eventually(is_tainted)
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    await cluster.settle(0.5)
    assert (await cluster.client.get(Pod, "p", cluster.namespace)).status.phase == "Pending"

    await nodes.start_node(nodes.names[0])
    await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))

    async def is_clean() -> bool:
        return not (await cluster.client.get(Node, nodes.names[0])).spec.taints

    await cluster.eventually(is_clean)


async def test_pods_of_a_silent_node_stop_counting_as_ready(cluster):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))
    await nodes.stop_node(nodes.names[0])

    await cluster.eventually(seen(cluster, "p", lambda p: not p.is_ready))
    await cluster.client.delete(Pod, "p", cluster.namespace)
    await cluster.settle(0.5)
    assert (await cluster.client.get(Pod, "p", cluster.namespace)).metadata.is_deleting
    await cluster.client.delete(Pod, "p", cluster.namespace, grace_period_s=0)


@pytest.mark.waits
async def test_pods_of_a_removed_node_are_collected(cluster):
    nodes = await cluster.add_nodes(Topology())
    await start(cluster, nodes, pod_manifest(cluster.namespace, "p"))
    await cluster.eventually(seen(cluster, "p", lambda p: p.is_ready))
    await nodes.remove_node(nodes.names[0])

    # A real collector looks every twenty seconds, and waits for forty more.
    await cluster.eventually(lambda: is_gone(cluster, Pod, "p", cluster.namespace), timeout_s=300)
