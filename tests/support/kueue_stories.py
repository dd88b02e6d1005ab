"""What happens to sets in a queue of Kueue, the same for the stand-in and for the program of `make test-kueue`.

Gangs are admitted whole, evicted whole and deleted without a trace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from grove.answers.explain import explain_answer
from grove.api import kueue
from grove.api import labels as key
from grove.api.conditions import SCHEDULED
from grove.api.core import Pod
from grove.api.meta import Json, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.sim.topology import Topology
from tests.support import kueue as stand_in
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World

HOUR = 3600.0
GPU = "nvidia.com/gpu"

OPERATING = Operating(nodes=Topology(nodes=8, gpus=4), scheduled=True)


class Queue(Protocol):
    """What a story asks of Kueue. `excess` and `refused` name the pods and groups that Kueue did not accept."""

    admitted: list[str]
    """Workloads in the order in which they were admitted, each as often as it was."""
    excess: list[str]
    refused: list[str]

    async def workloads(self) -> dict[str, Json]: ...
    async def evict(self, workload: str) -> None: ...


Story = Callable[[World, Any], Awaitable[None]]


async def quota(world: World, gpus: int) -> None:
    """The queue `team` with this number of GPUs, or its new quota."""
    name = f"{world.cluster.prefix}gpu-a"
    try:
        await stand_in.add_queue(world.client, world.namespace, "team", name, gpu=str(gpus))
    except stand_in.AlreadyExists:
        found = await world.client.get(stand_in.CLUSTER_QUEUE, name)
        found["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = str(gpus)
        patch = {"spec": {"resourceGroups": found["spec"]["resourceGroups"]}}
        await world.client.patch(stand_in.CLUSTER_QUEUE, name, patch)


def with_gpu(*cliques: Json) -> list[Json]:
    for one in cliques:
        one["spec"]["podSpec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    return list(cliques)


def queued(*cliques: Json, groups: list[Json] | None = None, **spec: Any) -> Json:
    metadata = {"labels": {kueue.QUEUE: "team"}}
    return pcs("chat", *with_gpu(*cliques), groups=groups or [], metadata=metadata, **spec)


async def waiting(world: World, pods: int) -> list[Pod]:
    """Returns when this number of pods exists and Kueue holds them all."""

    async def all_held() -> list[Pod] | None:
        found = await world.pods()
        return found if len(found) == pods and all(map(kueue.waits, found)) else None

    found: list[Pod] = await world.eventually(all_held)
    return found


async def explained(world: World, reason: str) -> None:
    """Returns when `explain` gives this reason for the set."""

    async def said() -> bool:
        found = await explain_answer(world.client, world.namespace, "chat")
        return bool(found.data["reason"].startswith(reason))

    await world.eventually(said)


async def no_restart(world: World) -> None:
    found = await world.get(PodCliqueSet, "chat")
    assert not found.status.replica_restarts
    assert all(not one.status.incarnation for one in await world.list(PodClique))


async def a_gang_is_admitted_evicted_and_deleted_whole(world: World, queue: Queue) -> None:
    await quota(world, 4)
    await world.apply(queued(clique("prefill", 2), clique("decode", 3)))
    pods = await waiting(world, 5)
    names = {pod.metadata.labels[kueue.GROUP] for pod in pods}
    assert len(names) == 1
    assert {pod.metadata.labels[kueue.QUEUE] for pod in pods} == {"team"}
    assert {pod.metadata.annotations[kueue.TOTAL] for pod in pods} == {"5"}
    assert {pod.metadata.annotations[kueue.SERVING] for pod in pods} == {"true"}

    async def told() -> bool:
        said = find_condition((await world.get(PodGang, "chat-0")).status.conditions, SCHEDULED)
        return said is not None and said.message == "waits for Kueue to admit it"

    await world.eventually(told)
    assert not any(pod.is_bound for pod in await world.pods())
    await explained(world, f"waits for Kueue: ClusterQueue {world.cluster.prefix}gpu-a has 4 of 4 GPUs left")

    await quota(world, 5)
    await world.available("chat")
    workload = next(iter(names))
    assert queue.admitted == [workload]

    before = {pod.metadata.uid for pod in await world.pods()}
    await queue.evict(workload)

    async def replaced() -> bool:
        now = await world.pods()
        return len(now) == 5 and not before & {pod.metadata.uid for pod in now} and all(pod.is_ready for pod in now)

    await world.eventually(replaced)
    await world.available("chat")
    assert queue.admitted == [workload, workload]
    await no_restart(world)

    await world.delete(PodCliqueSet, "chat")

    async def gone() -> bool:
        return not await world.list(Pod) and not await queue.workloads()

    await world.eventually(gone)
    assert (queue.excess, queue.refused) == ([], [])


async def quota_is_asked_for_gang_by_gang_and_the_base_gang_comes_first(world: World, queue: Queue) -> None:
    await quota(world, 5)
    workers = group("workers", "lead", "work", replicas=3, minAvailable=1)
    await world.apply(queued(clique("router"), clique("lead"), clique("work"), groups=[workers]))
    await world.available("chat")

    async def five_ready() -> bool:
        return sum(pod.is_ready for pod in await world.pods()) == 5

    await world.eventually(five_ready)
    await world.quiet()
    workloads = await queue.workloads()
    assert len(workloads) == 3, "a base gang and two scaled ones"
    assert "workers" not in queue.admitted[0]
    held = [pod for pod in await world.pods() if kueue.waits(pod)]
    [gang] = {pod.metadata.labels[key.POD_GANG] for pod in held}
    assert gang in ("chat-0-workers-0", "chat-0-workers-1"), "made in the same second, they have no order for Kueue"
    await quota(world, 7)
    await world.ready(7)
    await world.scale(PodCliqueScalingGroup, "chat-0-workers", 1)
    await world.ready(3)

    async def released() -> bool:
        return len(await queue.workloads()) == 1

    await world.eventually(released)
    assert (queue.excess, queue.refused) == ([], [])


async def a_base_gang_that_waits_keeps_its_scaled_gangs_out_of_the_queue(world: World, queue: Queue) -> None:
    await quota(world, 2)
    workers = group("workers", "work", replicas=2, minAvailable=1)
    await world.apply(queued(clique("router", 2), clique("work"), groups=[workers]))
    await waiting(world, 3)
    await world.quiet()
    assert len(await queue.workloads()) == 1
    await quota(world, 4)
    await world.ready(4)


async def a_base_gang_that_is_evicted_alone_waits_while_its_scaled_gang_runs(world: World, queue: Queue) -> None:
    await quota(world, 4)
    workers = group("workers", "work", replicas=2, minAvailable=1)
    await world.apply(queued(clique("router", 2), clique("work"), groups=[workers]))
    await world.ready(4)
    base, scaled = queue.admitted
    scaled_pods = {pod.metadata.uid for pod in await world.pods() if "workers-0" in pod.metadata.labels[key.POD_GANG]}
    assert len(scaled_pods) == 1
    await quota(world, 1)
    await queue.evict(base)

    async def base_waits() -> bool:
        pods = [pod for pod in await world.pods() if pod.metadata.uid not in scaled_pods]
        return len(pods) == 3 and all(map(kueue.waits, pods))

    await world.eventually(base_waits)
    await world.quiet()
    assert {pod.metadata.uid for pod in await world.pods() if pod.is_ready} == scaled_pods
    await no_restart(world)
    await quota(world, 4)
    await world.ready(4)
    assert scaled_pods <= {pod.metadata.uid for pod in await world.pods()}
    assert queue.admitted.count(scaled) == 1
    await no_restart(world)
    assert (queue.excess, queue.refused) == ([], [])


async def an_evicted_gang_waits_for_days_without_a_restart_and_without_a_write(world: World, queue: Queue) -> None:
    await quota(world, 3)
    await world.apply(queued(clique("decode", 3), terminationDelay="10s"))
    await world.available("chat")
    await quota(world, 0)
    await queue.evict(queue.admitted[0])
    await waiting(world, 3)
    await world.quiet()
    before = world.writes()
    await world.cluster.settle(48 * HOUR)
    assert world.writes() == before
    await no_restart(world)
    await quota(world, 3)
    await world.available("chat")
    await no_restart(world)
    assert (queue.excess, queue.refused) == ([], [])


async def an_update_keeps_the_quota_and_loses_no_replacement(world: World, queue: Queue) -> None:
    await quota(world, 4)
    await world.apply(queued(clique("prefill", 2), clique("decode", 2)))
    await world.available("chat")
    before = {pod.metadata.uid for pod in await world.pods()}
    template = (await world.client.get(PodCliqueSet.RESOURCE, "chat", world.namespace))["spec"]["template"]
    for one in template["cliques"]:
        one["spec"]["podSpec"]["containers"][0]["image"] = "registry.k8s.io/pause:3.9"
    await world.client.patch(PodCliqueSet, "chat", {"spec": {"template": template}}, world.namespace)

    async def replaced() -> bool:
        now = await world.pods()
        return len(now) == 4 and not before & {pod.metadata.uid for pod in now} and all(pod.is_ready for pod in now)

    await world.eventually(replaced, HOUR)
    assert len(queue.admitted) == 1
    assert (queue.excess, queue.refused) == ([], [])


async def a_pod_that_is_added_later_is_a_workload_of_its_own_and_leaves_first(world: World, queue: Queue) -> None:
    await quota(world, 8)
    await world.apply(queued(clique("prefill", 2), clique("decode", 2, min_available=1)))
    await world.available("chat")
    await world.ready(4)
    await world.scale(PodClique, "chat-0-decode", 3)
    await world.ready(5)
    assert len(await queue.workloads()) == 2
    await world.scale(PodClique, "chat-0-decode", 2)
    await world.ready(4)

    async def released() -> bool:
        return len(await queue.workloads()) == 1

    await world.eventually(released)
    assert all(kueue.GROUP in pod.metadata.labels for pod in await world.pods())
    assert (queue.excess, queue.refused) == ([], [])


async def a_gang_that_is_scaled_while_it_waits_asks_for_its_new_size(world: World, queue: Queue) -> None:
    await quota(world, 3)
    await world.apply(queued(clique("prefill", 2), clique("decode", 3, min_available=1)))
    await waiting(world, 5)
    await world.scale(PodClique, "chat-0-decode", 1)
    await world.ready(3)
    assert {pod.metadata.annotations[kueue.TOTAL] for pod in await world.pods()} == {"3"}
    assert (queue.excess, queue.refused) == ([], [])


async def pods_that_fail_are_replaced_inside_the_group(world: World, queue: Queue) -> None:
    await quota(world, 3)
    await world.apply(queued(clique("decode", 3)))
    await world.available("chat")
    lost = (await world.pods())[0]
    await world.client.delete(Pod, lost.metadata.name, world.namespace)

    async def back() -> bool:
        now = await world.pods()
        return len(now) == 3 and all(pod.is_ready and pod.metadata.uid != lost.metadata.uid for pod in now)

    await world.eventually(back)
    assert len(queue.admitted) == 1
    assert (queue.excess, queue.refused) == ([], [])


STORIES: list[Story] = [
    a_gang_is_admitted_evicted_and_deleted_whole,
    quota_is_asked_for_gang_by_gang_and_the_base_gang_comes_first,
    a_base_gang_that_waits_keeps_its_scaled_gangs_out_of_the_queue,
    a_base_gang_that_is_evicted_alone_waits_while_its_scaled_gang_runs,
    an_update_keeps_the_quota_and_loses_no_replacement,
    a_pod_that_is_added_later_is_a_workload_of_its_own_and_leaves_first,
    a_gang_that_is_scaled_while_it_waits_asks_for_its_new_size,
    pods_that_fail_are_replaced_inside_the_group,
]
