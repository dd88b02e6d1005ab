"""The assembled cluster: what is there from the start, copies, timers, and that a seed decides everything."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys

import pytest

from grove.api.core import ConfigMap, Namespace, Pod, PodDisruptionBudget, PriorityClass, ServiceAccount
from grove.api.podclique import PodClique
from grove.kube.errors import Gone, KubeError, Unavailable
from grove.sim.cluster import SimCluster
from grove.sim.crash import Process
from grove.sim.faults import ROUGH, Faults
from grove.sim.loop import run
from grove.sim.topology import Topology


async def test_a_new_cluster_has_the_usual_things(cluster):
    client = cluster.client()
    names = {n.metadata.name for n in (await client.list(Namespace)).items}
    classes = {c.metadata.name for c in (await client.list(PriorityClass)).items}

    assert {"default", "kube-system", "kube-node-lease"} <= names
    assert {"system-cluster-critical", "system-node-critical"} <= classes
    assert await client.get(ServiceAccount, "default", "default")
    assert await client.serves(PodClique)


async def test_what_a_caller_gets_or_gave_is_a_copy(cluster):
    client = cluster.client()
    body = {"metadata": {"name": "a", "namespace": "default"}, "data": {"k": "v"}}
    made = await client.create(ConfigMap.RESOURCE, body)
    body["data"]["k"] = made["data"]["k"] = "changed behind the server's back"

    assert (await client.get(ConfigMap, "a", "default")).data == {"k": "v"}


async def test_readers_of_a_version_share_its_view(cluster):
    first, second = cluster.client(), cluster.client(user="another")
    await first.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})

    assert await first.get(ConfigMap, "a", "default") is await second.get(ConfigMap, "a", "default")


async def test_a_silent_watch_gets_a_bookmark_a_minute(cluster):
    stream = cluster.client().watch(ConfigMap, "default", initial_events=True)
    loop, times = asyncio.get_running_loop(), []
    async for event in stream:
        assert event.type == "BOOKMARK"
        times.append(round(loop.time()))
        if len(times) == 4:
            break
    await stream.aclose()

    assert times == [0, 60, 120, 180]


async def test_calls_are_counted_by_verb_and_resource(cluster):
    client = cluster.client()
    await client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})
    await client.patch(ConfigMap, "a", {"data": {"k": "v"}}, "default")
    await client.list(ConfigMap)

    assert client.calls == {("create", "configmaps"): 1, ("patch", "configmaps"): 1, ("list", "configmaps"): 1}
    assert client.writes == 2


async def test_a_budget_by_percentage_counts_what_the_owner_needs(cluster):
    client = cluster.client()
    spec = {"roleName": "r", "replicas": 4, "podSpec": {"containers": [{"name": "m"}]}}
    owner = await client.create(PodClique, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec})
    ref = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "name": "c",
        "uid": owner.metadata.uid,
        "controller": True,
    }
    for at in range(3):
        meta = {"name": f"p{at}", "namespace": "default", "labels": {"app": "x"}, "ownerReferences": [ref]}
        await client.create(Pod, {"metadata": meta, "spec": {"containers": [{"name": "m", "image": "i"}]}})
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await client.patch(Pod, f"p{at}", {"status": ready}, "default", subresource="status")
    budget = {"selector": {"matchLabels": {"app": "x"}}, "maxUnavailable": "50%"}
    await client.create(PodDisruptionBudget, {"metadata": {"name": "b", "namespace": "default"}, "spec": budget})
    await asyncio.sleep(1)

    status = (await client.get(PodDisruptionBudget, "b", "default")).status
    assert (status.expected_pods, status.desired_healthy, status.current_healthy) == (4, 2, 3)
    assert status.disruptions_allowed == 1


async def test_eventually_waits_for_a_write(cluster):
    async def later() -> None:
        await asyncio.sleep(5)
        await cluster.client().create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})

    task = asyncio.ensure_future(later())
    await cluster.eventually(lambda: cluster.json(ConfigMap, "a", "default") is not None)
    assert asyncio.get_running_loop().time() < 6
    await task


async def test_a_list_from_the_future_is_not_answered(cluster):
    with pytest.raises(Unavailable) as refused:
        await cluster.client().list(ConfigMap, "default", resource_version="999999999")
    assert refused.value.code == 504


async def test_a_page_is_gone_after_a_compaction(cluster):
    client = cluster.client()
    for name in ("a", "b", "c"):
        await client.create(ConfigMap, {"metadata": {"name": name, "namespace": "default"}})
    page = await client.list(ConfigMap, "default", limit=1)
    await client.patch(ConfigMap, "a", {"data": {"k": "v"}}, "default")
    cluster.server.store.compact()

    with pytest.raises(Gone):
        await client.list(ConfigMap, "default", limit=1, next_page=page.next_page)


async def test_a_watch_from_before_a_compaction_is_gone(cluster):
    client = cluster.client()
    version = (await client.list(ConfigMap)).resource_version
    await client.create(ConfigMap, {"metadata": {"name": "a", "namespace": "default"}})
    cluster.server.store.compact()

    with pytest.raises(Gone):
        await anext(client.watch(ConfigMap, resource_version=version))


def test_the_cluster_also_runs_in_real_time():
    async def main() -> bool:
        async with SimCluster(nodes=Topology()) as cluster:
            client = cluster.client()
            meta, spec = {"name": "p", "namespace": "default"}, {"containers": [{"name": "m", "image": "i"}]}
            await client.create(Pod, {"metadata": meta, "spec": spec})
            await client.bind("default", "p", cluster.nodes.names[0])
            await cluster.eventually(lambda: bool(cluster.json(Pod, "p", "default")["status"].get("podIP")), 5)
            return (await client.get(Pod, "p", "default")).is_ready

    assert asyncio.run(main()) is True


async def busy(seed: int) -> str:
    """A run with everything that could bring in chance; its digest covers every version of every object."""
    digest = hashlib.sha256()
    async with SimCluster(nodes=Topology(racks=2, nodes=2), seed=seed) as cluster:
        cluster.server.store.listeners.append(lambda _r, change: digest.update(repr(change.version.json).encode()))
        faults = Faults(ROUGH, seed=seed)

        async def main(client) -> None:
            async with asyncio.TaskGroup() as group:
                for at in range(10):
                    group.create_task(make(client, at))
            await asyncio.sleep(3600)

        async def make(client, at: int) -> None:
            while True:
                await asyncio.sleep(random.uniform(0, 3))
                body = {"generateName": "p-", "namespace": "default"}
                spec = {"containers": [{"name": "m", "image": "i"}]}
                try:
                    made = await client.create(Pod, {"metadata": body, "spec": spec})
                    await client.bind("default", made.metadata.name, cluster.nodes.names[at % 4])
                    await client.evict("default", made.metadata.name)
                except KubeError:
                    continue

        process = Process(main, lambda: faults.client(cluster.client()), rng=faults.rng, mean_life_s=20)
        running = asyncio.ensure_future(process.run())
        await asyncio.sleep(120)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert cluster.server.store.revision > 500
    return digest.hexdigest()


def test_a_run_is_a_function_of_its_seed():
    first, again, other = run(busy(1), seed=1), run(busy(1), seed=1), run(busy(2), seed=2)

    assert first == again != other


def test_a_run_is_the_same_in_another_process():
    """Hashing of strings is seeded per process: a set of them walked anywhere would show here."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests.unit.sim import test_cluster as t; "
    code += "print(t.run(t.busy(3), seed=3))"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code, root], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout.strip())

    assert len(digests) == 1
