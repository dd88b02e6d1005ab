"""Pods that fail, lose their node or wait at a gate: replaced under their own index, let go with their gang."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs, worked_example
from tests.support.operating import KUBE, World, operating

from grove.api import labels as key
from grove.api.core import Pod, Secret
from grove.api.meta import is_true
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]


async def test_a_failed_pod_is_replaced_under_its_own_index(world: World) -> None:
    await world.apply(pcs("f", clique("w", 3, min_available=1)))
    await world.available("f")
    victim = next(pod for pod in await world.pods() if pod.spec.hostname == "f-0-w-1")

    patch = {"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}}
    await world.client.patch(Pod, victim.metadata.name, patch, world.namespace, subresource="status")

    async def replaced() -> bool:
        pods = await world.pods()
        return len(pods) == 3 and victim.metadata.uid not in {pod.metadata.uid for pod in pods}

    await world.eventually(replaced)
    await world.available("f")
    assert await world.hostnames() == ["f-0-w-0", "f-0-w-1", "f-0-w-2"]


@pytest.mark.real_in("test")
async def test_pods_of_a_vanished_node_are_replaced_elsewhere(world: World) -> None:
    await world.apply(pcs("n", clique("w", 4, min_available=1)))
    await world.available("n")
    lost = (await world.pods())[0].spec.node_name
    before = {pod.metadata.uid for pod in await world.pods() if pod.spec.node_name == lost}

    await world.nodes.remove_node(lost)

    async def replaced() -> bool:
        pods = await world.pods()
        ready = [pod for pod in pods if pod.is_ready]
        return len(ready) == 4 and not before & {pod.metadata.uid for pod in pods}

    await world.eventually(replaced, 300)  # pods of a node that is gone are collected after a minute or more
    assert await world.hostnames() == ["n-0-w-0", "n-0-w-1", "n-0-w-2", "n-0-w-3"]


@pytest.mark.simulated
async def test_a_pod_that_lingers_on_a_vanished_node_keeps_no_news_back(world: World) -> None:
    await world.apply(pcs("f", clique("w", 3, min_available=2)))
    await world.available("f")
    victim, *others = await world.pods()
    patch = {"metadata": {"finalizers": ["example.com/slow"]}}
    await world.client.patch(Pod, victim.metadata.name, patch, world.namespace)
    await world.nodes.remove_node(victim.spec.node_name)
    await world.cluster.settle(60.0)

    world.binder.allow(0)
    for pod in others:
        await world.delete(Pod, pod.metadata.name, grace_period_s=0)

    async def told() -> bool:
        ready = sum(pod.is_ready for pod in await world.pods())
        return ready < 2 and (await world.get(PodClique, "f-0-w")).status.ready_replicas == ready

    await world.eventually(told)
    await world.quiet()
    before = world.writes()
    await world.cluster.settle(60.0)
    assert not world.writes() - before, "that it is still there is no reason to write anything"


async def test_scale_in_takes_pods_without_a_node_first(world: World) -> None:
    await world.apply(pcs("s", clique("w", 2, min_available=1)))
    await world.available("s")
    settled = {pod.metadata.uid for pod in await world.pods()}
    world.binder.allow(0)
    await world.scale(PodClique, "s-0-w", 4)
    await world.eventually(lambda: world.has_pods(4))

    await world.scale(PodClique, "s-0-w", 2)

    await world.eventually(lambda: world.has_pods(2))
    await world.quiet()
    assert {pod.metadata.uid for pod in await world.pods()} == settled


@pytest.mark.real_in("test")
async def test_pods_are_gated_until_their_gang_is_whole_where_the_scheduler_needs_it(cluster: object) -> None:
    async with operating(cluster, config=KUBE) as world:
        await world.apply(worked_example(replicas=1))
        await world.ready(11)
        await world.available("demo")

        async def every_gang_runs() -> bool:
            return [gang.status.phase for gang in await world.list(PodGang)] == ["Running"] * 3

        await world.eventually(every_gang_runs)
        for pod in await world.pods():
            assert pod.spec.scheduling_gates == ()
            assert pod.spec.scheduler_name == "default-scheduler"
        for gang in await world.list(PodGang):
            assert gang.metadata.labels[key.SCHEDULER_NAME] == "default-scheduler"
            assert is_true(gang.status.conditions, "Scheduled")
        if world.cluster.is_sim:  # a real server may be asked twice
            assert world.writes()["patch", "pods"] == 11


async def test_a_scaled_gang_waits_at_its_gate_for_the_base_gang(cluster: object) -> None:
    async with operating(cluster, config=KUBE) as world:
        room = {"requests": {"cpu": "1000"}}
        huge = clique("huge")
        huge["spec"]["podSpec"]["containers"][0]["resources"] = room
        members = group("g", "m", replicas=2, min_available=1)
        world.binder.allow(0)  # on the simulator it plays kube-scheduler, which does not count capacity
        await world.apply(pcs("w", huge, clique("m"), groups=[members]))

        async def waits() -> bool:
            base, scaled = await world.pods("w-0-g-0-m"), await world.pods("w-0-g-1-m")
            return [pod.is_gated for pod in base + scaled] == [False, True]

        await world.eventually(waits)
        await world.cluster.settle(2.0)
        assert [pod.is_gated for pod in await world.pods("w-0-g-1-m")] == [True]


async def test_cliques_with_parents_wait_for_them_and_scheduling_does_not(world: World) -> None:
    await world.apply(
        pcs("order", clique("first"), clique("second", 2), startup="CliqueStartupTypeInOrder", replicas=1)
    )
    await world.available("order")

    (pod, _) = await world.pods("order-0-second")
    raw = await world.client.get(Pod.RESOURCE, pod.metadata.name, world.namespace)
    (container,) = raw["spec"]["initContainers"]
    assert container["name"] == "grove-initc"
    assert container["image"] == "grove/startup:test"
    assert container["args"] == ["--podcliques=order-0-first:1"]
    assert (await world.get(PodClique, "order-0-second")).spec.starts_after == ("order-0-first",)
    assert (await world.get(Secret, "order-ic-sat")).type == "kubernetes.io/service-account-token"


async def test_an_operator_without_the_startup_image_says_so(cluster: object) -> None:
    async with operating(cluster, startup_image="") as world:
        await world.apply(pcs("order", clique("first"), clique("second"), startup="CliqueStartupTypeInOrder"))

        async def told() -> bool:
            found = await world.get(PodClique, "order-0-second")
            codes = [error.code for error in found.status.last_errors]
            return codes == ["ERR_INITCONTAINER_ENVIRONMENT_VARIABLE_MISSING"]

        await world.eventually(told)
        assert await world.pods("order-0-second") == []
