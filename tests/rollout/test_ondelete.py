"""OnDelete: no pod is replaced by itself, a deleted pod comes back new, and a change of strategy converges."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.operating import Operating, World, condition
from tests.support.workloads import change, ready_pods, uids, updated, versions, watching, wl1

from grove.api import conditions as words
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

ON_DELETE = {"type": "OnDelete"}
ROLLING = {"type": "RollingRecreate"}


def od(**fields: object) -> Json:
    """WL1 in which one `pc-a` is enough, under OnDelete."""
    manifest = wl1(strategy=ON_DELETE, **fields)
    manifest["spec"]["template"]["cliques"][0]["spec"]["minAvailable"] = 1
    return manifest


OPERATING = Operating(start_s=0.2)


async def delete_pods(world: World, *hostnames: str) -> None:
    for pod in await world.pods():
        if pod.spec.hostname in hostnames:
            await world.delete(Pod, pod.metadata.name, grace_period_s=0)
    await world.quiet()


async def switch(world: World, strategy: Json) -> None:
    await world.client.patch(PodCliqueSet, "wl", {"spec": {"updateStrategy": strategy}}, world.namespace)


async def test_od1_to_od3_a_standalone_clique_is_updated_by_any_client_that_deletes_its_pods(world: World) -> None:
    await world.apply(od())
    await world.available("wl")
    before = await uids(world)

    await change(world, "wl", "pc-a")
    await world.available("wl")

    assert await uids(world) == before, "OD-1: nothing is deleted"
    progress = (await world.get(PodCliqueSet, "wl")).status.update_progress
    assert progress is not None
    assert progress.update_ended_at is not None
    assert progress.update_ended_at == progress.update_started_at

    await delete_pods(world, "wl-0-pc-a-1")

    async def one_is_new() -> bool:
        said = (await world.get(PodClique, "wl-0-pc-a")).status
        found = await versions(world, "wl-0-pc-a")
        return (found, said.ready_replicas, said.updated_replicas) == ({"wl-0-pc-a-0": "", "wl-0-pc-a-1": "two"}, 2, 1)

    await world.eventually(one_is_new)  # OD-2

    await world.scale(PodClique, "wl-0-pc-a", 1)

    async def scaled_in() -> dict[str, str]:
        left = await versions(world, "wl-0-pc-a")
        return left if len(left) == 1 else {}

    assert await world.eventually(scaled_in) == {"wl-0-pc-a-1": "two"}, "OD-3: the outdated one goes"


@pytest.mark.simulated
async def test_od4_and_od5_members_of_a_group_are_updated_one_by_one(world: World) -> None:
    await world.apply(od())
    await world.available("wl")
    before = await uids(world)

    await change(world, "wl", "pc-b", "pc-c")
    await world.quiet()

    assert await uids(world) == before
    group = await world.get(PodCliqueScalingGroup, "wl-0-sg-x")
    assert group.status.update_progress is not None
    assert group.status.update_progress.update_ended_at is not None

    await delete_pods(world, "wl-0-sg-x-0-pc-c-1")
    after = await uids(world)
    assert [host for host in before if before[host] != after[host]] == ["wl-0-sg-x-0-pc-c-1"]
    assert (await versions(world))["wl-0-sg-x-0-pc-c-1"] == "two"
    assert len(await ready_pods(world)) == 10


@pytest.mark.simulated
async def test_od6_and_od7_in_every_replica_only_what_is_deleted_is_new(world: World) -> None:
    await world.apply(od(replicas=2))
    await world.available("wl")
    gone = [f"wl-{i}-{pod}" for i in (0, 1) for pod in ("pc-a-0", "sg-x-1-pc-b-0", "sg-x-0-pc-c-2")]

    await change(world, "wl", "pc-a", "pc-b", "pc-c")
    await world.quiet()
    await delete_pods(world, *gone)

    found = await versions(world)
    assert sorted(host for host, version in found.items() if version == "two") == sorted(gone)
    assert len(found) == 20
    assert (await world.get(PodCliqueSet, "wl")).status.updated_replicas == 0

    await delete_pods(world, *(host for host, version in found.items() if version == ""))
    await updated(world, "wl")


@pytest.mark.simulated
async def test_od8_a_changed_pod_spec_reaches_the_replacement_and_no_other_pod(world: World) -> None:
    await world.apply(od())
    await world.available("wl")
    before = await uids(world)
    found: Json = await world.client.get(PodCliqueSet.RESOURCE, "wl", world.namespace)
    cliques = found["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}

    await world.client.patch(PodCliqueSet, "wl", {"spec": {"template": {"cliques": cliques}}}, world.namespace)
    await world.quiet()
    await delete_pods(world, "wl-0-pc-a-0")

    after = await uids(world)
    assert [host for host in before if before[host] != after[host]] == ["wl-0-pc-a-0"]
    selectors = {pod.spec.hostname: pod.spec.node_selector for pod in await world.pods("wl-0-pc-a")}
    assert selectors == {"wl-0-pc-a-0": {"kubernetes.io/os": "linux"}, "wl-0-pc-a-1": {}}


@pytest.mark.real_in("soak")
async def test_od9_strategies_take_turns_with_a_change_each(world: World) -> None:
    await world.apply(od())
    await world.available("wl")
    first = await uids(world)

    await change(world, "wl", "pc-a", "pc-b", to="two")
    await world.available("wl")
    assert await uids(world) == first

    await switch(world, ROLLING)
    await world.available("wl")
    assert await uids(world) == first, "the strategy alone restarts nothing"
    await change(world, "wl", "pc-c", to="three")
    await updated(world, "wl")
    second = await uids(world)
    assert not set(first.values()) & set(second.values()), "what OnDelete left behind is caught up with"
    assert set((await versions(world, "wl-0-pc-a")).values()) == {"two"}

    await change(world, "wl", "pc-a", to="four", updateStrategy=ON_DELETE)
    await world.available("wl")
    assert await uids(world) == second


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.8, 2.0])
async def test_an_update_that_is_switched_to_ondelete_is_closed_and_termination_works_again(
    world: World, after_s: float
) -> None:
    await world.apply(wl1(replicas=2, delay="10s"))
    await world.available("wl")

    await change(world, "wl", "pc-a", "pc-b")
    await asyncio.sleep(after_s)
    await switch(world, ON_DELETE)
    await world.quiet()

    for kind in (PodCliqueSet, PodCliqueScalingGroup, PodClique):
        for one in await world.list(kind):  # type: ignore[type-var]
            progress = one.status.update_progress  # type: ignore[attr-defined]
            assert progress is None or progress.update_ended_at is not None, one.metadata.name
    for clique in await world.list(PodClique):
        assert condition(clique.status.conditions, words.MIN_AVAILABLE_BREACHED) == ("False", "SufficientReadyPods")
    left = await uids(world)
    await asyncio.sleep(30)
    assert await uids(world) == left

    async with watching(world) as witness:
        await change(world, "wl", "pc-c", to="three", updateStrategy=ROLLING)
        await updated(world, "wl")
    found = await versions(world)
    assert {host for host, version in found.items() if version == ""} == set()
    assert witness.worst["replicas"] == 1


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.05, 0.1, 0.3, 0.8])
async def test_a_switch_that_is_taken_back_at_once_still_converges_at_the_next_change(
    world: World, after_s: float
) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")

    await change(world, "wl", "pc-a", "pc-b")
    await asyncio.sleep(after_s)
    await switch(world, ON_DELETE)
    await asyncio.sleep(0.01)
    await switch(world, ROLLING)
    await world.quiet()
    await change(world, "wl", "pc-a", to="three")
    await updated(world, "wl")

    found = await versions(world)
    assert {version for host, version in found.items() if "pc-a" in host} == {"three"}
    assert {version for host, version in found.items() if "pc-b" in host} == {"two"}
