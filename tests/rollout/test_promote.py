"""`rollout promote` lowers a partition; `rollout status` shows revisions, partitions, budgets, slices and surge."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, updated, versions

from grove.answers.answer import Unanswered
from grove.answers.promote import Promotion, asked_for, lowered, promote_answer
from grove.answers.rollout import pause_answer, status_answer, undo_answer
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.diagnosis.rollouts import HELD, Rollout

pytestmark = pytest.mark.real_in("soak")

OPERATING = Operating(start_s=0.2)


async def canary(world: World, obj: Json, pods: int) -> None:
    """The set runs, its clique `a` changed, and the update has done what the partition allows."""
    await world.apply(obj)
    await world.available("wl")
    await world.ready(pods)
    await change(world, "wl", "a")
    await world.quiet()


def of_set(partition: int = 2) -> Json:
    strategy = {"type": "RollingRecreate", "rollingUpdate": {"partition": partition}}
    return pcs("wl", clique("a", 2, min_available=1), replicas=4, strategy=strategy)


def of_group(partition: int = 3, **strategy: Any) -> Json:
    own = {"partition": partition, "maxUnavailable": 2}
    configs = [group("other", "b"), group("g", "a", replicas=4, min_available=1, rollingUpdate=own)]
    return pcs("wl", clique("a"), clique("b"), groups=configs, replicas=2, strategy=strategy or None)


async def status(world: World) -> Rollout:
    found = await status_answer(world.client, world.namespace, "wl", world.cluster.clock.now())
    assert isinstance(found.data, Rollout)
    return found.data


async def promote(world: World, target: str = "wl", to: int = 0, *, dry_run: bool = False) -> Promotion:
    asked = await asked_for(world.client, world.namespace, target, to)
    found = (await promote_answer(world.client, world.namespace, asked, dry_run=dry_run)).data
    assert isinstance(found, Promotion)
    return found


async def new_hosts(world: World) -> set[str]:
    return {host for host, version in (await versions(world)).items() if version == "two"}


async def raw_set(world: World) -> Json:
    found: Json = await world.client.get(PodCliqueSet.RESOURCE, "wl", world.namespace)
    return found


async def test_a_set_is_promoted_step_by_step(world: World) -> None:
    await canary(world, of_set(), 8)
    found = await status(world)
    new, old = found.parts.revisions
    assert (new.pods, new.outdated, new.percent) == (4, 0, 50)
    assert (old.pods, old.outdated, old.percent) == (4, 4, 50)
    assert found.sentence == f"updating: 4 of 8 pods up to date; {HELD}"
    assert found.lines == (
        f"revision {new.revision}: 4 of 8 pods (50 %)",
        f"revision {old.revision}: 4 of 8 pods (50 %), 4 outdated",
        "partition 2: replicas of the set below 2 keep the old revision",
        "budgets: set maxUnavailable 1; a maxUnavailable 1",
    )

    before = await raw_set(world)
    tried = await promote(world, to=1, dry_run=True)
    assert (tried.units, tried.before, tried.after) == (("wl-1",), 2, 1)
    assert (await raw_set(world))["spec"] == before["spec"], "a dry run changes nothing"

    assert (await promote(world, to=1)).units == ("wl-1",)
    await world.quiet()
    assert await new_hosts(world) == {f"wl-{replica}-a-{index}" for replica in (1, 2, 3) for index in (0, 1)}
    assert [one.pods for one in (await status(world)).parts.revisions] == [6, 2]

    assert (await promote(world)).units == ("wl-0",)
    await updated(world, "wl")
    assert [(one.pods, one.outdated) for one in (await status(world)).parts.revisions] == [(8, 0)]
    assert (await promote(world)).units == (), "it is 0 already"


@pytest.mark.simulated
async def test_a_group_is_promoted_and_the_other_group_stays(world: World) -> None:
    await canary(world, of_group(), 10)
    before = await raw_set(world)
    found = await status(world)
    assert "partition 3: replicas of g below 3 keep the old revision" in found.lines
    assert found.sentence.endswith(HELD)

    done = await promote(world, "wl/g", 2)
    assert done.units == ("wl-0-g-2", "wl-1-g-2")
    await world.quiet()
    assert await new_hosts(world) == {f"wl-{replica}-g-{copy}-a-0" for replica in (0, 1) for copy in (2, 3)}
    other, own = (await raw_set(world))["spec"]["template"]["podCliqueScalingGroups"]
    other_before, own_before = before["spec"]["template"]["podCliqueScalingGroups"]
    assert other == other_before
    assert own == {**own_before, "rollingUpdate": {"partition": 2, "maxUnavailable": 2}}

    await promote(world, "wl/g")
    await updated(world, "wl")
    assert {host for host in await versions(world) if "-g-" in host} == await new_hosts(world)


@pytest.mark.simulated
async def test_a_partition_of_the_set_holds_replicas_of_its_groups(world: World) -> None:
    await canary(world, of_group(3, rollingUpdate={"partition": 1}), 10)
    asked = await asked_for(world.client, world.namespace, "wl/g", 0)
    assert asked.units == ("wl-1-g-0", "wl-1-g-1", "wl-1-g-2")


@pytest.mark.simulated
async def test_promote_does_not_raise_a_partition(world: World) -> None:
    await canary(world, of_group(), 10)
    with pytest.raises(Unanswered, match="the partition of wl/g is 3; promote does not raise it to 4"):
        await asked_for(world.client, world.namespace, "wl/g", 4)
    with pytest.raises(Unanswered, match="wl has no scaling group a; its scaling groups: g, other"):
        await asked_for(world.client, world.namespace, "wl/a", 0)
    asked = Promotion("wl", "g", 3, 2, ())
    late = {**await raw_set(world)}
    late["spec"]["template"]["podCliqueScalingGroups"][1]["rollingUpdate"] = {"partition": 1}
    patch = lowered(late, asked)
    own = patch["spec"]["template"]["podCliqueScalingGroups"][1]["rollingUpdate"]
    assert own == {"partition": 1}, "another user lowered it meanwhile"


@pytest.mark.simulated
async def test_a_paused_set_is_promoted_when_it_goes_on(world: World) -> None:
    await canary(world, of_set(), 8)
    await pause_answer(world.client, world.namespace, "wl", paused=True)
    assert (await promote(world)).paused
    await world.quiet()
    assert len(await new_hosts(world)) == 4
    await pause_answer(world.client, world.namespace, "wl", paused=False)
    await updated(world, "wl")
    assert len(await new_hosts(world)) == 8


@pytest.mark.simulated
async def test_undo_takes_a_canary_back(world: World) -> None:
    await canary(world, of_set(), 8)
    await undo_answer(world.client, world.namespace, "wl")
    await updated(world, "wl")
    assert await new_hosts(world) == set()
    assert [(one.pods, one.outdated) for one in (await status(world)).parts.revisions] == [(8, 0)]


@pytest.mark.simulated
async def test_status_shows_surge_units_and_their_budget(world: World) -> None:
    manifest = pcs("wl", clique("a", 3, min_available=1))
    manifest["spec"]["template"]["cliques"][0]["rollingUpdate"] = {"maxSurge": 1, "maxUnavailable": 2}
    await world.apply(manifest)
    await world.available("wl")
    await world.ready(3)
    world.nodes.hold = lambda pod: True
    await change(world, "wl", "a")
    await world.quiet()

    found = await status(world)
    (surge,) = found.parts.surges
    assert (surge.name, surge.indexes, surge.ready) == ("wl-0-a", (3,), 0)
    assert "surge units of wl-0-a: 1 (3), 0 ready" in found.lines
    assert "wl-0 is being updated since" in found.sentence, "all its old pods are ready"
    assert "budgets: set maxUnavailable 1; a maxUnavailable 2, maxSurge 1" in found.lines


@pytest.mark.simulated
async def test_status_shows_the_slice_of_a_coherent_update(world: World) -> None:
    cliques = (clique("a", 4, min_available=2), clique("b", 2, min_available=1))
    await world.apply(pcs("wl", *cliques, strategy={"type": "Coherent"}))
    await world.available("wl")
    await world.ready(6)
    world.nodes.hold = lambda pod: True
    await change(world, "wl", "a", "b")
    await world.quiet()

    found = await status(world)
    (slice_,) = found.parts.slices
    assert (slice_.replica, slice_.number, slice_.units) == ("wl-0", 1, {"a": 2, "b": 1})
    assert "wl-0: slice 1 (a 2, b 1)" in found.lines
    assert "wl-0 is being updated since" in found.sentence, "each part has its minimum"
    assert "budgets: set maxUnavailable 1; a maxUnavailable 2; b maxUnavailable 1" in found.lines
