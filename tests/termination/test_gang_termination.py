"""Gang termination from the outside: what is restarted when pods are lost, exactly when, and what survives it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, condition
from tests.support.workloads import change, ready_pods, uids, updated, versions, wl1, wl2

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.conditions import EventReason
from grove.api.core import Pod, Service
from grove.api.meta import Json, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import Forbidden

DELAY_S = 2.0
DELAY = "2s"
SLACK_S = 1.0
"""Conditions are dated in whole seconds, and the breach takes a moment to be seen."""


async def lose(world: World, *hostnames: str) -> None:
    """Pods die and, without free capacity, their replacements stay pending."""
    world.binder.allow(0)
    doomed = [pod for pod in await world.pods() if pod.spec.hostname in hostnames]
    assert len(doomed) == len(hostnames)
    for pod in doomed:
        await world.client.delete(type(pod), pod.metadata.name, world.namespace, grace_period_s=0)


async def no_room_yet(world: World) -> None:
    """Time for a restart to happen that should not."""
    await asyncio.sleep(DELAY_S + SLACK_S)


async def kept(world: World, before: dict[str, str]) -> set[str]:
    """Host names whose pod is still the one it was."""
    return {host for host, uid in (await uids(world)).items() if before.get(host) == uid}


async def left_only(world: World, before: dict[str, str], hosts: set[str]) -> None:
    """Returns when exactly these pods are still the ones they were; that it stays so is for the next step to see."""

    async def so() -> bool:
        return await kept(world, before) == hosts

    await world.eventually(so)


async def recovered(world: World, pods: int = 10) -> None:
    world.binder.allow(None)

    async def whole() -> bool:
        return len(await ready_pods(world)) == pods

    await world.eventually(whole)
    await world.available("wl")


@pytest.mark.simulated
@pytest.mark.parametrize(
    "lost",
    [
        pytest.param("wl-0-pc-a-0", id="GT-1 a pod of a standalone clique that needs all of them"),
        pytest.param("wl-0-sg-x-0-pc-c-1", id="GT-2 a pod of a group that needs all its replicas"),
    ],
)
async def test_a_needed_pod_restarts_the_whole_replica(world: World, lost: str) -> None:
    await world.apply(wl1(delay=DELAY))
    await world.available("wl")
    before = await uids(world)

    await lose(world, lost)
    await asyncio.sleep(DELAY_S - SLACK_S)
    assert await kept(world, before) == before.keys() - {lost}, "not before the delay has passed"
    await left_only(world, before, set())
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 1
    await recovered(world)
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 1, "one restart for one breach"
    await world.event("wl", EventReason.SET_REPLICA_DELETE_SUCCESSFUL)


@pytest.mark.simulated
async def test_only_what_was_lost_is_reported_as_lost_not_what_restarts_with_it(world: World) -> None:
    await world.apply(wl1(delay=DELAY))
    await world.available("wl")
    before = await uids(world)

    await lose(world, "wl-0-sg-x-0-pc-b-0")
    await left_only(world, before, set())
    await recovered(world)

    names = ["wl-0-pc-a", "wl-0-sg-x", *(f"wl-0-sg-x-{index}-{one}" for index in (0, 1) for one in ("pc-b", "pc-c"))]
    lost = [name for name in names if EventReason.ALL_SCHEDULED_REPLICAS_LOST in await world.event_reasons(name)]
    assert lost == ["wl-0-sg-x-0-pc-b"]


@pytest.mark.simulated
async def test_a_restart_is_not_recorded_before_the_pods_have_gone(world: World) -> None:
    await world.apply(wl1(delay=DELAY))
    await world.available("wl")
    before, delete = await uids(world), world.operator_client.delete

    async def refused(kind: type[Object], name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("wl-0-sg-x-1-pc-c"):
            raise Forbidden("not these")
        return await delete(kind, name, *rest, **more)

    world.operator_client.delete = refused
    await lose(world, "wl-0-pc-a-0")
    old = {before[f"wl-0-sg-x-1-pc-c-{index}"] for index in range(3)}

    async def only_those_are_left() -> bool:
        return {pod.metadata.uid for pod in await world.pods()} & set(before.values()) == old

    await world.eventually(only_those_are_left)
    await asyncio.sleep(SLACK_S)
    assert (await world.get(PodClique, "wl-0-sg-x-0-pc-c")).status.incarnation == 1
    assert (await world.get(PodClique, "wl-0-sg-x-1-pc-c")).status.incarnation == 0, "its pods are still the old ones"

    world.operator_client.delete = delete
    await left_only(world, before, set())
    await recovered(world)
    assert (await world.get(PodClique, "wl-0-sg-x-1-pc-c")).status.incarnation == 1


@pytest.mark.simulated
async def test_gt3_a_clique_that_can_spare_a_pod_waits_for_it_and_one_that_lost_all_restarts(world: World) -> None:
    await world.apply(wl2(delay=DELAY))
    await world.available("wl")
    before = await uids(world)

    await lose(world, "wl-0-pc-a-0")
    await no_room_yet(world)
    assert await kept(world, before) == before.keys() - {"wl-0-pc-a-0"}

    await lose(world, "wl-0-pc-a-1")
    await left_only(world, before, set())
    await recovered(world)


@pytest.mark.real_in("soak")
async def test_gt4_group_replicas_restart_alone_until_the_group_is_below_its_minimum(world: World) -> None:
    await world.apply(wl2(delay=DELAY))
    await world.available("wl")
    before = await uids(world)
    first = {host for host in before if "-sg-x-0-" in host}

    await lose(world, "wl-0-sg-x-0-pc-c-0")
    await no_room_yet(world)
    assert await kept(world, before) == before.keys() - {"wl-0-sg-x-0-pc-c-0"}, "two of three are enough"

    await lose(world, "wl-0-sg-x-0-pc-c-1", "wl-0-sg-x-0-pc-c-2")
    await left_only(world, before, before.keys() - first)  # only the replica that broke
    group = await world.get(PodCliqueScalingGroup, "wl-0-sg-x")
    assert group.status.gang_restarts == 1

    await lose(world, "wl-0-sg-x-1-pc-c-0")
    await no_room_yet(world)
    assert await kept(world, before) == before.keys() - first - {"wl-0-sg-x-1-pc-c-0"}

    await lose(world, "wl-0-sg-x-1-pc-c-1", "wl-0-sg-x-1-pc-c-2")
    await left_only(world, before, set())  # no replica is left: the whole replica restarts
    await recovered(world)


@pytest.mark.simulated
async def test_gt5_a_group_replica_that_needs_all_its_pods_restarts_when_it_lost_them(world: World) -> None:
    await world.apply(wl2(delay=DELAY, pc_c_min=3))
    await world.available("wl")
    before = await uids(world)

    await lose(world, *(f"wl-0-sg-x-0-pc-c-{index}" for index in range(3)))
    await left_only(world, before, {host for host in before if "-sg-x-0-" not in host})
    await no_room_yet(world)
    await left_only(world, before, {host for host in before if "-sg-x-0-" not in host})
    await recovered(world)


@pytest.mark.simulated
async def test_gt6_a_scaled_group_replica_within_its_tolerance_is_left_alone(world: World) -> None:
    await world.apply(wl2(delay=DELAY))
    await world.available("wl")
    before = await uids(world)

    await lose(world, "wl-0-sg-x-1-pc-c-2")
    await no_room_yet(world)

    assert await kept(world, before) == before.keys() - {"wl-0-sg-x-1-pc-c-2"}
    await recovered(world)


@pytest.mark.simulated
async def test_scaled_replicas_survive_a_restart(world: World) -> None:
    await world.apply(wl2(delay=DELAY))
    await world.available("wl")
    await world.scale(PodClique, "wl-0-pc-a", 3)
    await world.scale(PodCliqueScalingGroup, "wl-0-sg-x", 3)
    await recovered(world, pods=15)
    before = await uids(world)

    await lose(world, *(f"wl-0-pc-a-{index}" for index in range(3)))
    await left_only(world, before, set())
    await recovered(world, pods=15)


async def test_gt1_the_delay_is_exact(world: World) -> None:
    """Though conditions are dated in whole seconds: neither early by what was cut off nor late by polling."""
    await world.apply(wl1(delay=DELAY))
    await world.available("wl")
    await asyncio.sleep(0.7)
    before = await uids(world)

    began = asyncio.get_running_loop().time()
    await lose(world, "wl-0-pc-a-0")

    async def restarted() -> bool:
        return not await kept(world, before)

    await world.eventually(restarted)
    took_s = asyncio.get_running_loop().time() - began
    assert took_s >= DELAY_S, "not early"
    if world.cluster.is_sim:  # a busy machine is late in ways that are not the operator's
        assert took_s < DELAY_S + 0.3, "nor late"
    await recovered(world)
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 1, "one restart for one breach"
    await world.event("wl", EventReason.SET_REPLICA_DELETE_SUCCESSFUL)


@pytest.mark.simulated
async def test_the_delay_is_exact_also_while_something_else_is_refused(world: World) -> None:
    """A Service whose name is taken is tried again every minute by now; the gang does not wait for that."""
    meta = {"name": "wl-0", "namespace": world.namespace}
    await world.client.create(Service, {"metadata": meta, "spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    await world.apply(wl1(delay=DELAY))
    await asyncio.sleep(400)
    before = await uids(world)

    await lose(world, "wl-0-pc-a-0")
    await asyncio.sleep(DELAY_S + SLACK_S)

    assert not await kept(world, before)


@pytest.mark.simulated
async def test_what_never_fitted_is_not_restarted(world: World) -> None:
    world.binder.allow(0)
    await world.apply(wl1(delay=DELAY))

    async def all_there() -> bool:
        return len(await world.pods()) == 10

    await world.eventually(all_there)
    before = await uids(world)
    await no_room_yet(world)

    assert await kept(world, before) == before.keys()
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 0


@pytest.mark.simulated
@pytest.mark.parametrize("low", [pytest.param(0, id="from zero"), pytest.param(1, id="from below its minimum")])
@pytest.mark.parametrize("kind", [PodClique, PodCliqueScalingGroup])
async def test_what_is_scaled_out_without_capacity_does_not_restart_what_runs(
    world: World, kind: type[Object], low: int
) -> None:
    """Its minimum, as it is now, has never fitted: what it had before was a smaller one."""
    groups = [group("back", "worker", replicas=2, min_available=2)] if kind is PodCliqueScalingGroup else []
    worker = clique("worker") if groups else clique("back", 2)
    await world.apply(pcs("wl", clique("front"), worker, groups=groups, termination_delay=DELAY))
    await world.available("wl")
    await world.scale(kind, "wl-0-back", low)
    await world.quiet()
    before = await uids(world)

    world.binder.allow(0)
    await world.scale(kind, "wl-0-back", 2)
    await no_room_yet(world)

    assert await kept(world, before) == before.keys()
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 0
    await recovered(world, pods=3)
    before = await uids(world)
    await lose(world, max(before))
    await left_only(world, before, set())  # now that it was whole, its loss counts


@pytest.mark.simulated
async def test_a_replica_that_recovers_in_time_is_left_alone(world: World) -> None:
    await world.apply(wl1(delay=DELAY))
    await world.available("wl")
    before = await uids(world)

    await lose(world, "wl-0-pc-a-0")
    await asyncio.sleep(DELAY_S / 2)
    await recovered(world)
    await no_room_yet(world)

    assert await kept(world, before) == before.keys() - {"wl-0-pc-a-0"}


async def test_an_operator_that_dies_during_the_delay_is_on_time_when_it_is_back(world: World) -> None:
    await world.apply(wl1(delay=DELAY))
    await world.available("wl")
    before = await uids(world)

    await lose(world, "wl-0-pc-a-0")
    await asyncio.sleep(SLACK_S)
    await world.restart()
    await left_only(world, before, set())
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 1
    await recovered(world)


@pytest.mark.simulated
async def test_restarts_stop_at_the_maximum_and_the_set_says_so(world: World) -> None:
    await world.apply(wl1(delay=DELAY, metadata={"annotations": {key.MAX_GANG_RESTARTS: "1"}}))
    await world.available("wl")
    await lose(world, "wl-0-pc-a-0")
    await no_room_yet(world)
    await recovered(world)
    before = await uids(world)

    await lose(world, "wl-0-pc-a-0")
    await no_room_yet(world)

    assert await kept(world, before) == before.keys() - {"wl-0-pc-a-0"}
    status = (await world.get(PodCliqueSet, "wl")).status
    assert status.gang_restarts == 1
    assert condition(status.conditions, words.GANG_RESTARTS_EXHAUSTED) == ("True", words.MAXIMUM_REACHED)
    await recovered(world)
    status = (await world.get(PodCliqueSet, "wl")).status
    assert condition(status.conditions, words.GANG_RESTARTS_EXHAUSTED) is None


@pytest.mark.simulated
async def test_an_engine_that_loads_for_long_and_crashes_is_restarted_no_more_than_allowed(world: World) -> None:
    """Twelve minutes of loading are no sign of health: only a ready minimum has earlier restarts forgotten."""
    world.nodes.hold = lambda pod: True
    manifest = pcs("wl", clique("engine", 2), termination_delay="1m")
    await world.apply({**manifest, "metadata": {**manifest["metadata"], "annotations": {key.MAX_GANG_RESTARTS: "2"}}})
    for _ in range(8):
        await asyncio.sleep(12 * 60)
        for pod in await world.pods():
            await world.nodes.crash_pod(world.namespace, pod.metadata.name, restart_s=300)
        await asyncio.sleep(6 * 60)
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 2


def containers(pod: Pod, *states: Json) -> Json:
    """A status for each container of the pod, with the image it has: a kubelet acts on another one."""
    named = [{**_UNSTARTED, "name": one.name, "image": one.image} for one in pod.spec.containers]
    return {"containerStatuses": [{**one, **state} for one, state in zip(named, states, strict=True)]}


_UNSTARTED: Json = {"image": "i", "imageID": "", "ready": False, "started": False, "restartCount": 0}
_ERROR: Json = {"terminated": {"exitCode": 1, "reason": "Error"}}


@pytest.mark.simulated
async def test_an_init_container_that_failed_once_and_succeeded_restarts_nothing(world: World) -> None:
    """Its engine loads for longer than the termination delay; nothing of the pod is broken."""
    world.nodes.hold = lambda pod: True
    await world.apply(pcs("wl", clique("engine", 2), termination_delay="1m"))
    await asyncio.sleep(60)
    fetched = {**_UNSTARTED, "name": "fetch", "ready": True, "restartCount": 1, "lastState": _ERROR}
    fetched["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    for pod in await world.pods():
        loading = containers(pod, {"state": {"running": {}}})
        await patch_status(world, pod, {**loading, "initContainerStatuses": [fetched]})
    before = await uids(world)
    await asyncio.sleep(1800)
    assert await uids(world) == before
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 0


@pytest.mark.simulated
async def test_a_pod_that_succeeded_is_missed(world: World) -> None:
    """It keeps its place, and counts neither as ready nor as starting: the gang is restarted after its delay."""
    await world.apply(pcs("wl", clique("engine", 2, restartPolicy="OnFailure"), termination_delay="1m"))
    await world.available("wl")
    before = await uids(world)
    (first, *_) = await world.pods()
    await world.nodes.fail_pod(world.namespace, first.metadata.name, exit_code=0)
    await asyncio.sleep(30)
    clique_ = await world.get(PodClique, "wl-0-engine")
    assert condition(clique_.status.conditions, words.MIN_AVAILABLE_BREACHED) == ("True", words.INSUFFICIENT_READY_PODS)
    assert await uids(world) == before
    await left_only(world, before, set())
    await world.available("wl")


@pytest.mark.simulated
async def test_a_pod_with_a_container_that_is_dead_for_good_is_replaced(world: World) -> None:
    await world.apply(pcs("wl", clique("engine", 2, restartPolicy="Never")))
    await world.available("wl")
    before = await uids(world)
    (first, *_) = await world.pods()
    conditions = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]
    await patch_status(world, first, {**containers(first, {"state": _ERROR}), "conditions": conditions})
    await left_only(world, before, before.keys() - {first.spec.hostname})
    await world.available("wl")


async def patch_status(world: World, pod: Pod, status: Json) -> None:
    await world.client.patch(Pod, pod.metadata.name, {"status": status}, world.namespace, subresource="status")


# After restarts of a set, or of a group, that was deleted without its children and made again

SHARDS = {f"wl-0-g-{index}-b-0" for index in (0, 1)}


def shards() -> Json:
    """Two replicas of a group of one pod each, of which one is enough, and nothing else."""
    return pcs("wl", clique("b"), groups=[group("g", "b", replicas=2)], termination_delay=DELAY)


async def made_again(world: World, owner: type[Object]) -> None:
    """Restarts once what the owner decides about, and makes the owner again, without a record of a restart."""
    await world.apply(shards())
    await world.available("wl")
    lost = SHARDS if owner is PodCliqueSet else SHARDS - {"wl-0-g-1-b-0"}
    before = await uids(world)
    await lose(world, *lost)
    await no_room_yet(world)
    await recovered(world, pods=2)
    assert {one.status.incarnation for one in await world.list(PodClique)} == ({1} if owner is PodCliqueSet else {0, 1})
    assert await kept(world, before) == SHARDS - lost
    (was,) = await world.list(owner)
    await world.delete(owner, was.metadata.name, propagation="Orphan")
    if owner is PodCliqueSet:

        async def gone() -> bool:
            return not await world.list(PodCliqueSet)

        await world.eventually(gone)
        await world.apply(shards())

    async def is_new() -> bool:
        return [one.metadata.uid != was.metadata.uid for one in await world.list(owner)] == [True]

    await world.eventually(is_new)
    await world.available("wl")


@pytest.mark.simulated
@pytest.mark.parametrize("owner", [PodCliqueSet, PodCliqueScalingGroup])
async def test_an_owner_made_again_updates_what_was_restarted_before(world: World, owner: type[Object]) -> None:
    await made_again(world, owner)
    before = await uids(world)

    await change(world, "wl", "b")
    await updated(world, "wl")

    assert await kept(world, before) == set()
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
@pytest.mark.parametrize("owner", [PodCliqueSet, PodCliqueScalingGroup])
@pytest.mark.parametrize(
    "lost", [pytest.param({"wl-0-g-0-b-0"}, id="a replica of the group"), pytest.param(SHARDS, id="the whole group")]
)
async def test_an_owner_made_again_restarts_what_was_restarted_before(
    world: World, owner: type[Object], lost: set[str]
) -> None:
    await made_again(world, owner)

    await lose(world, *lost)

    async def pods_are_of_the_next_incarnation() -> bool:
        pods = [pod for pod in await world.pods() if pod.spec.hostname in lost]
        return {pod.metadata.annotations.get(key.INCARNATION) for pod in pods} == {"2"}

    await world.eventually(pods_are_of_the_next_incarnation)
    await recovered(world, pods=2)
    counted = (
        await world.get(PodCliqueSet, "wl") if lost == SHARDS else await world.get(PodCliqueScalingGroup, "wl-0-g")
    )
    assert counted.status.gang_restarts == 1
