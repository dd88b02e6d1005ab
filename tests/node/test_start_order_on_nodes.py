"""Start order on a real node: init containers with their own token, real probes, order by container start times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

import pytest

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.meta import Json, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster
from tests.node.seeing import Seen, eventually, pods_of, served
from tests.support.manifests import clique, pcs

ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
HELD_S = 3.0
"""Several probe periods and status updates: time enough for a child that is not held to show itself."""

Pods = Callable[[str], Awaitable[list[Seen]]]


@pytest.fixture
def pods(client: HttpClient, namespace: str) -> Pods:
    return lambda name: pods_of(client, namespace, f"web-0-{name}")


def web(namespace: str, **fields: Json) -> Json:
    """`leader` 2, then `worker`, then `router`, each after the one before."""
    cliques = [clique(name, count, **served()) for name, count in (("leader", 2), ("worker", 1), ("router", 1))]
    return pcs("web", *cliques, namespace=namespace, startup="CliqueStartupTypeInOrder", **fields)


async def all_run(pods: Pods, name: str, count: int) -> list[Seen]:
    async def running() -> list[Seen]:
        found = await pods(name)
        return found if len(found) == count and all(one.runs for one in found) else []

    found: list[Seen] = await eventually(running)
    return found


async def told(pods: Pods, name: str, message: str) -> None:
    """Returns when the pods of a clique say that they wait, and for what."""

    async def says() -> bool:
        found = await pods(name)
        return bool(found) and all(
            one.waits and one.condition(words.POD_STARTUP_BLOCKED) == ("True", message) for one in found
        )

    await eventually(says)


async def released(pods: Pods, name: str) -> Seen:
    """The pod of a clique, once its own container runs; its parents' readiness is behind it."""
    (one,) = await all_run(pods, name, 1)
    return one


async def test_each_clique_starts_after_the_one_before_is_ready(
    nodes: RealCluster, client: HttpClient, namespace: str, pods: Pods
) -> None:
    await client.create(PodCliqueSet, web(namespace))
    first, second = await all_run(pods, "leader", 2)
    await told(pods, "worker", "web-0-leader=0/2")
    await told(pods, "router", "web-0-worker=0/1")
    placed = [one for name in ("leader", "worker", "router") for one in await pods(name)]
    assert all(one.node in nodes.nodes for one in placed), "order does not delay placement"

    # A parent that fails its probe holds its child: one of two is not enough, nor is one after the other.
    await first.say("ready")
    await told(pods, "worker", "web-0-leader=1/2")
    await first.say("unready")
    await told(pods, "worker", "web-0-leader=0/2")
    await second.say("ready")
    await told(pods, "worker", "web-0-leader=1/2")
    await asyncio.sleep(HELD_S)
    assert [one.waits for name in ("worker", "router") for one in await pods(name)] == [True, True]

    leaders_ready = time.time()
    await first.say("ready")
    worker = await released(pods, "worker")
    await told(pods, "router", "web-0-worker=0/1")
    await asyncio.sleep(HELD_S)
    assert [one.waits for one in await pods("router")] == [True]

    worker_ready = time.time()
    await worker.say("ready")
    router = await released(pods, "router")

    began = [await one.began() for one in (first, second, worker, router)]
    assert max(began[:2]) < leaders_ready < began[2] < worker_ready < began[3]
    # The same in the words of the kubelet, to the second.
    for parents, child in ((await pods("leader"), worker), (await pods("worker"), router)):
        started = child.pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        assert max(one.since("Ready") for one in parents) <= datetime.fromisoformat(started)
    for child, last in ((worker, "web-0-leader=2/2"), (router, "web-0-worker=1/1")):
        assert child.state("grove-initc")["terminated"]["exitCode"] == 0
        assert f"all are ready: {last}" in nodes.log_of(child.name, "grove-initc")
    print(f"from the last parent's word to the child's start: {began[2] - leaders_ready:.2f} s", end=" ")
    print(f"and {began[3] - worker_ready:.2f} s, probe period (1 s) and container start included")


async def test_with_a_readiness_gate_the_kubelet_waits_for_the_operators_word(
    nodes: RealCluster, client: HttpClient, namespace: str, pods: Pods
) -> None:
    await client.create(PodCliqueSet, web(namespace, metadata={"annotations": {key.STARTUP_READINESS_GATE: "true"}}))
    leaders = await all_run(pods, "leader", 2)
    await told(pods, "worker", "web-0-leader=0/2")
    (worker,) = await pods("worker")
    assert worker.condition(words.STARTUP_ORDER) == ("False", "web-0-leader=0/2")
    for leader in leaders:
        await leader.say("ready")
    await (await released(pods, "worker")).say("ready")

    async def is_ready() -> bool:
        return all(one.is_ready for one in await pods("worker"))

    await eventually(is_ready)
    (worker,) = await pods("worker")
    assert worker.condition(words.STARTUP_ORDER) == ("True", "web-0-leader=2/2")


async def test_the_init_container_reads_pods_with_a_token_of_its_own(
    nodes: RealCluster, client: HttpClient, namespace: str, pods: Pods
) -> None:
    await client.create(PodCliqueSet, web(namespace))
    await told(pods, "worker", "web-0-leader=0/2")
    (worker,) = await pods("worker")

    async def may_list_pods(account: str) -> bool:
        ask = {"namespace": namespace, "verb": "list", "resource": "pods"}
        user = f"system:serviceaccount:{namespace}:{account}"
        answer = await client.create(ACCESS_REVIEW, {"spec": {"user": user, "resourceAttributes": ask}})
        allowed: bool = answer["status"]["allowed"]
        return allowed

    assert worker.pod["spec"]["serviceAccountName"] == "default"
    assert not await may_list_pods("default"), "the pod's own account has no rights, so only the token can have helped"
    assert await may_list_pods("web")

    async def said() -> bool:
        return "waiting for web-0-leader=0/2" in nodes.log_of(worker.name, "grove-initc")

    await eventually(said)


@pytest.mark.parametrize("condition", ["Started", "Created"])
async def test_a_worker_starts_while_its_leader_is_not_ready(
    nodes: RealCluster, client: HttpClient, namespace: str, pods: Pods, condition: str
) -> None:
    cliques = [clique("leader", **served()), clique("worker", starts_after=["leader"], **served())]
    cliques[1]["spec"]["startsAfterCondition"] = condition
    await client.create(PodCliqueSet, pcs("web", *cliques, namespace=namespace, startup="CliqueStartupTypeExplicit"))
    worker = await released(pods, "worker")
    (leader,) = await all_run(pods, "leader", 1)
    assert not leader.is_ready, "its probe failed all the time"
    assert f"all are {condition.lower()}: web-0-leader=1/1" in nodes.log_of(worker.name, "grove-initc")
    if condition == "Started":
        assert await leader.began() < await worker.began()


async def test_a_worker_that_waits_for_ready_starts_after_an_edit_to_started(
    nodes: RealCluster, client: HttpClient, namespace: str, pods: Pods
) -> None:
    cliques = [clique("leader", **served()), clique("worker", starts_after=["leader"], **served())]
    await client.create(PodCliqueSet, pcs("web", *cliques, namespace=namespace, startup="CliqueStartupTypeExplicit"))
    await all_run(pods, "leader", 1)
    await told(pods, "worker", "web-0-leader=0/1")
    cliques[1]["spec"]["startsAfterCondition"] = "Started"
    await client.patch(PodCliqueSet, "web", {"spec": {"template": {"cliques": cliques}}}, namespace)
    await released(pods, "worker")
    (leader,) = await pods("leader")
    assert not leader.is_ready
