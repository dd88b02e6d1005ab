"""A gang of which only a part starts: none of its pods keeps its GPUs longer than the delay."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World, condition
from tests.support.workloads import uids

from grove.api import labels as key
from grove.api.conditions import GANG_RESTARTS_EXHAUSTED, INSUFFICIENT_READY_PODS, MIN_AVAILABLE_BREACHED, TRUE
from grove.api.core import Pod
from grove.api.meta import Json, rfc3339
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.operator.podclique.status import PREPARATION_S
from grove.sim.topology import Topology

pytestmark = pytest.mark.simulated

DELAY_S = 4 * 3600.0
"""The default of `terminationDelay`."""
GPU = "nvidia.com/gpu"
MINUTE_S = 60.0

OPERATING = Operating(nodes=Topology(nodes=1, gpus=8), scheduled=True)


def engine(name: str) -> Json:
    """A leader and a worker with four GPUs each: all that the node has."""
    resources = {"requests": {GPU: "4"}, "limits": {GPU: "4"}}
    containers = [{"name": "main", "image": "engine:1", "resources": resources}]
    return pcs(name, clique("leader", containers=containers), clique("worker", containers=containers))


async def on_nodes(world: World, name: str) -> list[Pod]:
    return [pod for pod in await world.pods() if pod.is_bound and pod.spec.hostname.startswith(name)]


async def test_no_pod_of_a_gang_whose_worker_never_starts_outlives_the_delay(world: World) -> None:
    """The restarted gang is placed again, since it is older than any gang that came meanwhile, and ends likewise."""
    world.nodes.hold = lambda pod: "worker" in pod.metadata.name
    await world.apply(engine("broken"))
    for restarts in range(1, 4):

        async def placed() -> bool:
            return len(await on_nodes(world, "broken")) == 2

        await world.eventually(placed)
        pods = await on_nodes(world, "broken")
        worker = next(pod for pod in pods if "worker" in pod.metadata.name)
        await world.nodes.crash_pod(world.namespace, worker.metadata.name, restart_s=10 * DELAY_S)
        first = await uids(world)
        await asyncio.sleep(DELAY_S - 10 * MINUTE_S)
        assert await uids(world) == first, "not before the delay has passed"
        await asyncio.sleep(20 * MINUTE_S)
        assert not set((await uids(world)).values()) & set(first.values())
        assert (await world.get(PodCliqueSet, "broken")).status.gang_restarts == restarts


# Containers that the kubelet cannot start

NEVER_S = 1000 * DELAY_S


def cannot_start(reason: str, message: str) -> Json:
    """What the kubelet reports of a container that it tries to start again and again."""
    container = {"name": "main", "image": "engine:1", "imageID": "", "ready": False, "started": False}
    waiting = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{**container, "restartCount": 0, "state": waiting}]}


ABSENT_IMAGE = cannot_start("ImagePullBackOff", 'Back-off pulling image "engine:1"')
ABSENT_SECRET = cannot_start("CreateContainerConfigError", 'secret "hf-token" not found')
FAILED_MOUNT = cannot_start("ContainerCreating", "")


async def report(world: World, pod: Pod, status: Json, since: str) -> None:
    """The kubelet's report. Before a volume is mounted, a pod is not ready to start containers."""
    is_mounted = "False" if status is FAILED_MOUNT else "True"
    said = {"PodScheduled": "True", "PodReadyToStartContainers": is_mounted, "Ready": "False"}
    conditions = [{"type": name, "status": value, "lastTransitionTime": since} for name, value in said.items()]
    patch = {"status": {**status, "phase": "Pending", "conditions": conditions}}
    await world.client.patch(Pod, pod.metadata.name, patch, world.namespace, subresource="status")


async def placed_pods(world: World, name: str, count: int) -> list[Pod]:
    async def placed() -> bool:
        return len(await on_nodes(world, name)) == count

    await world.eventually(placed)
    return await on_nodes(world, name)


@pytest.mark.parametrize("grouped", [pytest.param(False, id="cliques"), pytest.param(True, id="a scaling group")])
@pytest.mark.parametrize(
    ("status", "grace_s"),
    [
        pytest.param(ABSENT_IMAGE, 0.0, id="the image is absent"),
        pytest.param(ABSENT_SECRET, 0.0, id="the Secret is missing"),
        pytest.param(FAILED_MOUNT, PREPARATION_S, id="a mount fails"),
    ],
)
async def test_no_pod_of_a_gang_whose_worker_cannot_start_outlives_the_delay(
    world: World, status: Json, grace_s: float, grouped: bool
) -> None:
    world.nodes.start_s = lambda pod: NEVER_S if "worker" in pod.metadata.name else 1.0
    manifest = engine("broken")
    if grouped:
        resources = manifest["spec"]["template"]["cliques"]
        manifest["spec"]["template"]["podCliqueScalingGroups"] = [group("g", *(one["name"] for one in resources))]
    await world.apply(manifest)
    for restarts in range(1, 4):
        worker = next(pod for pod in await placed_pods(world, "broken", 2) if "worker" in pod.metadata.name)
        await report(world, worker, status, rfc3339(world.cluster.clock.now()))
        first = await uids(world)
        await asyncio.sleep(DELAY_S + grace_s - 10 * MINUTE_S)
        assert await uids(world) == first, "not before the delay has passed"
        found = await world.get(PodClique, worker.metadata.labels[key.POD_CLIQUE])
        assert condition(found.status.conditions, MIN_AVAILABLE_BREACHED) == (TRUE, INSUFFICIENT_READY_PODS)
        await asyncio.sleep(20 * MINUTE_S)
        assert not set((await uids(world)).values()) & set(first.values())
        assert (await world.get(PodCliqueSet, "broken")).status.gang_restarts == restarts


async def test_a_slow_pull_and_a_slow_mount_restart_nothing(world: World) -> None:
    """A minute of `terminationDelay`, an hour of a pull, nine minutes of a mount."""
    world.nodes.start_s = NEVER_S
    manifest = engine("slow")
    manifest["spec"]["template"]["terminationDelay"] = "1m"
    await world.apply(manifest)
    first = None
    for status, wait_s in ((FAILED_MOUNT, PREPARATION_S - MINUTE_S), (cannot_start("ContainerCreating", ""), 3600.0)):
        for pod in await placed_pods(world, "slow", 2):
            await report(world, pod, status, rfc3339(world.cluster.clock.now()))
        first = first or await uids(world)
        await asyncio.sleep(wait_s)
        assert await uids(world) == first
    assert (await world.get(PodCliqueSet, "slow")).status.gang_restarts == 0


async def test_a_gang_that_has_used_up_its_restarts_keeps_its_gpus(world: World) -> None:
    """Its pods stay for a person to look at, and the set says so. Scaled to 0, the set gives the GPUs back."""
    world.nodes.start_s = NEVER_S
    manifest = engine("broken")
    manifest["metadata"]["annotations"] = {key.MAX_GANG_RESTARTS: "1"}
    await world.apply(manifest)
    for _ in range(2):
        for pod in await placed_pods(world, "broken", 2):
            await report(world, pod, ABSENT_IMAGE, rfc3339(world.cluster.clock.now()))
        before = await uids(world)
        await asyncio.sleep(DELAY_S + 10 * MINUTE_S)
    assert await uids(world) == before
    status = (await world.get(PodCliqueSet, "broken")).status
    assert status.gang_restarts == 1
    assert condition(status.conditions, GANG_RESTARTS_EXHAUSTED) is not None

    await world.client.patch(PodCliqueSet, "broken", {"spec": {"replicas": 0}}, world.namespace)
    await world.apply(engine("next"))
    await placed_pods(world, "next", 2)
