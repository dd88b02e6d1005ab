"""A partition keeps the old revision in replicas below it until it is lowered."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World, condition
from tests.support.workloads import change, lose, pause, uids, updated, versions

from grove.answers.rollout import undo_answer
from grove.api import labels
from grove.api.conditions import RECONCILING, UPDATE_STALLED
from grove.api.meta import Json, find_condition
from grove.api.podcliqueset import PodCliqueSet

pytestmark = pytest.mark.real_in("soak")

OPERATING = Operating(start_s=0.2)


@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
async def test_replicas_of_a_set_below_the_partition_keep_their_revision(world: World, kind: str) -> None:
    strategy = {"type": kind, "rollingUpdate": {"partition": 2}}
    await world.apply(pcs("wl", clique("a", 2, min_available=1), replicas=4, strategy=strategy))
    await world.available("wl")
    await world.ready(8)

    await change(world, "wl", "a")
    await world.quiet()

    def new(found: dict[str, str]) -> set[str]:
        return {host for host, version in found.items() if version == "two"}

    reached = {f"wl-{replica}-a-{index}" for replica in (2, 3) for index in (0, 1)}
    assert new(await versions(world)) == reached
    status = (await world.get(PodCliqueSet, "wl")).status
    assert (status.updated_replicas, status.available_replicas) == (2, 4)
    assert status.update_progress is not None
    assert status.update_progress.update_ended_at is None
    reconciling = find_condition(status.conditions, RECONCILING)
    assert reconciling is not None
    assert reconciling.message == "a partition holds the update until it is lowered"
    await lose(world, "wl-0-a-0")
    assert new(await versions(world)) == reached, "a lost pod comes back as it was"

    lower = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
    await world.client.patch(PodCliqueSet, "wl", lower, world.namespace)
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
async def test_replicas_of_a_group_below_its_partition_keep_their_revision(world: World, kind: str) -> None:
    config = group("g", "a", replicas=4, min_available=1, rollingUpdate={"partition": 3})
    await world.apply(pcs("wl", clique("a"), groups=[config], replicas=2, strategy={"type": kind}))
    await world.available("wl")
    await world.ready(8)

    await change(world, "wl", "a")
    await world.quiet()

    found = await versions(world)
    assert {host for host, version in found.items() if version == "two"} == {"wl-0-g-3-a-0", "wl-1-g-3-a-0"}
    status = (await world.get(PodCliqueSet, "wl")).status
    assert (status.updated_replicas, status.available_replicas) == (0, 2)
    assert status.update_progress is not None
    assert status.update_progress.update_ended_at is None
    before = world.writes()
    await world.quiet(for_s=20)
    assert world.writes() == before, "a partition that holds costs no writes"

    config = {**config, "rollingUpdate": {"partition": 0}}
    lower = {"spec": {"template": {"podCliqueScalingGroups": [config]}}}
    await world.client.patch(PodCliqueSet, "wl", lower, world.namespace)
    await updated(world, "wl")
    assert set((await versions(world)).values()) == {"two"}


@pytest.mark.simulated
@pytest.mark.parametrize("level", ["set", "group"])
async def test_the_time_of_a_canary_does_not_count_towards_the_deadline(world: World, level: str) -> None:
    of_set, of_group = (3, 0) if level == "set" else (0, 1)
    strategy: Json = {"type": "RollingRecreate", "progressDeadline": "1m", "rollingUpdate": {"partition": of_set}}
    config = group("g", "a", replicas=2, min_available=1, rollingUpdate={"partition": of_group})
    await world.apply(pcs("wl", clique("a"), groups=[config], replicas=4, strategy=strategy))
    await world.available("wl")
    await change(world, "wl", "a")

    async def stalled() -> bool:
        found = await world.get(PodCliqueSet, "wl")
        return condition(found.status.conditions, UPDATE_STALLED) is not None

    await asyncio.sleep(600)
    assert not await stalled(), "a canary that was not promoted is no update that fails"

    world.nodes.hold = lambda pod: True
    lower: Json = {"updateStrategy": {"rollingUpdate": {"partition": 0}}}
    if level == "group":
        lower = {"template": {"podCliqueScalingGroups": [{**config, "rollingUpdate": {"partition": 0}}]}}
    await world.client.patch(PodCliqueSet, "wl", {"spec": lower}, world.namespace)
    await asyncio.sleep(30)
    assert not await stalled(), "the time begins with the promotion"
    await asyncio.sleep(60)
    assert await stalled()


@pytest.mark.simulated
@pytest.mark.parametrize("kind", ["RollingRecreate", "Coherent"])
@pytest.mark.parametrize("paused", [False, True])
async def test_undo_of_a_canary_leaves_the_units_below_the_partition_as_they_are(
    world: World, kind: str, paused: bool
) -> None:
    strategy = {"type": kind, "rollingUpdate": {"partition": 2}}
    own = group("g", "b", replicas=3, min_available=1, rollingUpdate={"partition": 1})
    await world.apply(pcs("wl", clique("a", 2), clique("b"), groups=[own], replicas=4, strategy=strategy))
    await world.available("wl")
    await world.quiet(for_s=3)
    before = await uids(world)
    await change(world, "wl", "a", "b")
    await world.quiet()
    new = {f"wl-{replica}-{part}" for replica in (2, 3) for part in ("a-0", "a-1", "g-1-b-0", "g-2-b-0")}
    assert {host for host, version in (await versions(world)).items() if version} == new

    if paused:
        await pause(world, True)
    await undo_answer(world.client, world.namespace, "wl")
    await world.quiet()
    if paused:
        assert {host for host, version in (await versions(world)).items() if version} == new
        await pause(world, False)
    found = await updated(world, "wl")

    assert set((await versions(world)).values()) == {""}
    after = await uids(world)
    assert {host for host, uid in after.items() if uid != before[host]} == new
    assert {pod.metadata.labels[labels.REVISION] for pod in await world.pods()} == {
        found.status.current_generation_hash
    }
