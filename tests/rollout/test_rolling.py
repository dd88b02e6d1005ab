"""RollingRecreate from the outside: one unit at a time, the same host names, and an end whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World, condition
from tests.support.workloads import change, ready_pods, uids, updated, versions, watching, wl1, wl2

from grove.api import conditions as words
from grove.api.conditions import EventReason
from grove.api.core import Pod, PriorityClass
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup

pytestmark = pytest.mark.real_in("soak")

OPERATING = Operating(start_s=0.2)


@pytest.mark.simulated
async def test_a_cliques_own_priority_class_is_rolled_out(world: World) -> None:
    for name, value in (("low", 1), ("high", 2)):
        await world.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
    await world.apply(pcs("wl", clique("a", 2, priorityClassName="low"), clique("b")))
    await world.available("wl")
    before = await uids(world)

    at = "/spec/template/cliques/0/spec/podSpec/priorityClassName"
    await world.client.patch(PodCliqueSet, "wl", [{"op": "replace", "path": at, "value": "high"}], world.namespace)
    await updated(world, "wl")

    after = await uids(world)
    assert {host for host in after if after[host] != before[host]} == {"wl-0-a-0", "wl-0-a-1"}
    found = (await world.client.list(Pod.RESOURCE, world.namespace)).items
    assert sorted(pod["spec"].get("priorityClassName", "") for pod in found) == ["", "high", "high"]


async def test_ru7_a_standalone_clique_is_replaced_pod_by_pod(world: World) -> None:
    await world.apply(wl1())
    await world.available("wl")
    before = await uids(world)

    async with watching(world) as witness:
        await change(world, "wl", "pc-a")
        await updated(world, "wl")

    after = await uids(world)
    assert after.keys() == before.keys(), "every pod keeps its host name"
    assert {host for host in after if after[host] != before[host]} == {"wl-0-pc-a-0", "wl-0-pc-a-1"}
    assert await versions(world, "wl-0-pc-a") == {"wl-0-pc-a-0": "two", "wl-0-pc-a-1": "two"}
    assert witness.worst["wl-0-pc-a"] == 1
    assert sorted(witness.deleted) == ["wl-0-pc-a-0", "wl-0-pc-a-1"]


@pytest.mark.simulated
async def test_ru8_a_scaling_group_is_recreated_replica_by_replica(world: World) -> None:
    await world.apply(wl1())
    await world.available("wl")
    before = await uids(world)

    async with watching(world) as witness:
        await change(world, "wl", "pc-b")
        await updated(world, "wl")

    after = await uids(world)
    assert after.keys() == before.keys()
    assert {host for host in after if after[host] == before[host]} == {"wl-0-pc-a-0", "wl-0-pc-a-1"}, (
        "replicas go whole"
    )
    assert witness.worst["wl-0/replicas"] == 1
    assert len(witness.deleted) == 8
    group = await world.get(PodCliqueScalingGroup, "wl-0-sg-x")
    assert group.status.updated_replicas == 2
    assert group.status.update_progress is not None
    assert group.status.update_progress.update_ended_at is not None


@pytest.mark.simulated
async def test_what_an_update_recreates_is_not_reported_as_lost(world: World) -> None:
    await world.apply(pcs("wl", clique("a"), clique("b"), clique("c"), groups=[group("g", "b", "c")]))
    await world.available("wl")

    await change(world, "wl", "a", "b")
    await updated(world, "wl")

    for name in ("wl-0-a", "wl-0-g", "wl-0-g-0-b", "wl-0-g-0-c"):
        assert EventReason.ALL_SCHEDULED_REPLICAS_LOST not in await world.event_reasons(name), name


@pytest.mark.real_in("test")
async def test_ru9_everything_changes_replica_by_replica(world: World) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")
    before = await uids(world)

    async with watching(world) as witness:
        await change(world, "wl", "pc-a", "pc-b", "pc-c")
        pcs = await updated(world, "wl")

    after = await uids(world)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert set((await versions(world)).values()) == {"two"}
    assert witness.worst["replicas"] == 1, "one replica of the set after the other"
    assert witness.worst["wl-0-pc-a"] == witness.worst["wl-1/replicas"] == 1
    assert len(witness.deleted) == 20, "nothing is replaced twice"
    progress = pcs.status.update_progress
    assert progress is not None
    assert (progress.updated_pod_cliques_count, progress.total_pod_cliques_count) == (2, 2)
    assert (progress.updated_pod_clique_scaling_groups_count, progress.currently_updating) == (2, ())


async def test_ru10_without_capacity_exactly_one_pod_is_taken(world: World) -> None:
    await world.apply(wl2())
    await world.available("wl")
    before = await uids(world)

    world.binder.allow(0)
    await change(world, "wl", "pc-a")

    async def taken() -> list[str]:
        after = await uids(world)
        return [host for host in before if after.get(host) != before[host]]

    await world.eventually(taken)
    await world.quiet()
    assert await taken() == ["wl-0-pc-a-0"]
    assert len(await ready_pods(world)) == 9
    clique = await world.get(PodClique, "wl-0-pc-a")
    assert condition(clique.status.conditions, words.MIN_AVAILABLE_BREACHED) == ("Unknown", words.UPDATE_IN_PROGRESS)
    world.binder.allow(None)
    await updated(world, "wl")
    assert set((await versions(world, "wl-0-pc-a")).values()) == {"two"}


@pytest.mark.simulated
async def test_an_update_costs_few_writes_and_cries_no_wolf(world: World) -> None:
    """Of a clique's status two a pod: it is taken, it is back. What is down meanwhile is on its way."""
    await world.apply(pcs("wl", clique("w"), replicas=6))
    await world.available("wl")
    before = world.writes()

    await change(world, "wl", "w")
    await updated(world, "wl")

    assert world.writes() - before <= Counter(
        {
            ("patch", "podcliques"): 6,
            ("patch", "podcliques/status"): 12 + 6,  # those whose turn comes late say that they know
            ("patch", "podcliquesets/status"): 7,
            ("patch", "podgangs"): 6,
            ("create", "pods"): 6,
            ("delete", "pods"): 6,
            ("create", "events"): 13,
            ("create", "controllerrevisions"): 1,
        }
    )
    assert await world.event_reasons("wl-3-w") == {"PodCreateSuccessful", "PodDeleteSuccessful"}


@pytest.mark.simulated
async def test_ru11_replicas_added_during_an_update_come_from_the_new_template(world: World) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")

    async with watching(world) as witness:
        await change(world, "wl", "pc-a", "pc-b")
        await asyncio.sleep(0.5)
        await world.scale(PodCliqueSet, "wl", 3)
        await updated(world, "wl")

    assert set((await versions(world, "wl-2-pc-a")).values()) == {"two"}
    assert not [host for host in witness.deleted if host.startswith("wl-2")], "what is new already stays"
    assert len(await ready_pods(world)) == 30


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.1, 3.0, 6.0], ids=["RU-12 early", "RU-12 in the middle", "RU-13 late"])
async def test_an_update_ends_when_its_replica_is_scaled_away(world: World, after_s: float) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")

    await change(world, "wl", "pc-a", "pc-b")
    await asyncio.sleep(after_s)
    await world.scale(PodCliqueSet, "wl", 1)
    await updated(world, "wl")

    assert len(await ready_pods(world)) == 10
    assert set((await versions(world, "wl-0-pc-a")).values()) == {"two"}


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.0, 0.3], ids=["RU-15 before", "RU-14 during"])
async def test_group_replicas_added_to_a_group_are_not_replaced_again(world: World, after_s: float) -> None:
    await world.apply(wl2())
    await world.available("wl")

    async with watching(world) as witness:
        await change(world, "wl", "pc-b", "pc-c")
        await asyncio.sleep(after_s)
        await world.scale(PodCliqueScalingGroup, "wl-0-sg-x", 3)
        await updated(world, "wl")

    assert set((await versions(world, "wl-0-sg-x-2-pc-c")).values()) == {"two"}
    assert not [host for host in witness.deleted if "-sg-x-2-" in host]
    assert len(await ready_pods(world)) == 14


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0], ids=["RU-17 before", "RU-16 during", "RU-16 later"])
async def test_an_update_ends_when_a_group_is_scaled_in(world: World, after_s: float) -> None:
    manifest = wl2()
    manifest["spec"]["template"]["podCliqueScalingGroups"][0]["replicas"] = 3
    await world.apply(manifest)
    await world.available("wl")

    await change(world, "wl", "pc-b")
    await asyncio.sleep(after_s)
    await world.scale(PodCliqueScalingGroup, "wl-0-sg-x", 2)
    await updated(world, "wl")

    assert len(await ready_pods(world)) == 10
    assert set((await versions(world, "wl-0-sg-x-0-pc-b")).values()) == {"two"}


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.0, 0.3], ids=["RU-19 before", "RU-18 during"])
async def test_pods_added_to_a_clique_are_not_replaced_again(world: World, after_s: float) -> None:
    await world.apply(wl2())
    await world.available("wl")

    async with watching(world) as witness:
        await change(world, "wl", "pc-a")
        await asyncio.sleep(after_s)
        await world.scale(PodClique, "wl-0-pc-a", 4)
        await updated(world, "wl")

    assert set((await versions(world, "wl-0-pc-a")).values()) == {"two"}
    assert sorted(witness.deleted) == ["wl-0-pc-a-0", "wl-0-pc-a-1"]
    assert await world.hostnames("wl-0-pc-a") == [f"wl-0-pc-a-{index}" for index in range(4)]


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.6], ids=["RU-21 before", "RU-20 during", "RU-20 later"])
async def test_an_update_ends_when_a_clique_is_scaled_in(world: World, after_s: float) -> None:
    await world.apply(wl2())
    await world.available("wl")
    await world.scale(PodClique, "wl-0-pc-a", 3)
    await world.quiet()

    await change(world, "wl", "pc-a")
    await asyncio.sleep(after_s)
    await world.scale(PodClique, "wl-0-pc-a", 2)
    await updated(world, "wl")

    assert list((await versions(world, "wl-0-pc-a")).values()) == ["two", "two"]


@pytest.mark.simulated
@pytest.mark.parametrize("after_s", [0.1, 0.5, 1.0, 2.0, 4.0])
async def test_a_change_in_the_middle_starts_over_and_keeps_to_one_unit(world: World, after_s: float) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")

    async with watching(world) as witness:
        await change(world, "wl", "pc-a", "pc-b")
        await asyncio.sleep(after_s)
        await change(world, "wl", "pc-a", "pc-c", to="three")
        await updated(world, "wl")

    found = await versions(world)
    assert {host: version for host, version in found.items() if "pc-b" not in host and version != "three"} == {}
    assert {version for host, version in found.items() if "pc-b" in host} == {"two"}
    assert witness.worst["replicas"] == witness.worst["wl-0-pc-a"] == witness.worst["wl-1/replicas"] == 1


@pytest.mark.simulated
async def test_a_broken_template_takes_one_unit_down_and_its_repair_brings_it_back(world: World) -> None:
    await world.apply(wl1(replicas=2, strategy={"type": "RollingRecreate", "progressDeadline": "1m"}))
    await world.available("wl")
    await world.quiet()
    world.nodes.hold = lambda pod: pod.metadata.labels.get("version") == "broken"

    async with watching(world) as witness:
        await change(world, "wl", "pc-a", "pc-b", to="broken")
        await asyncio.sleep(30)
        assert condition((await world.get(PodCliqueSet, "wl")).status.conditions, words.UPDATE_STALLED) is None
        await asyncio.sleep(40)
        stalled = (await world.get(PodCliqueSet, "wl")).status
        assert condition(stalled.conditions, words.UPDATE_STALLED) == ("True", words.PROGRESS_DEADLINE_EXCEEDED)
        assert witness.worst["replicas"] == witness.worst["wl-0-pc-a"] == witness.worst["wl-0/replicas"] == 1
        await change(world, "wl", "pc-a", "pc-b", to="three")
        pcs = await updated(world, "wl")

    assert condition(pcs.status.conditions, words.UPDATE_STALLED) is None
    assert len(await ready_pods(world)) == 20
    assert "broken" not in (await versions(world)).values()
    assert witness.worst["replicas"] == 1


@pytest.mark.simulated
async def test_max_unavailable_allows_more_units_but_never_below_the_minimum(world: World) -> None:
    manifest = wl2(strategy={"type": "RollingRecreate", "rollingRecreate": {"maxUnavailable": 2}}, replicas=3)
    manifest["spec"]["template"]["cliques"][0]["spec"]["replicas"] = 5
    await world.apply(manifest)
    await world.available("wl")

    async with watching(world) as witness:
        await change(world, "wl", "pc-a", "pc-b")
        await updated(world, "wl")

    assert witness.worst["replicas"] == 2
    assert witness.worst["wl-0-pc-a"] == 2
    assert witness.worst["wl-0/replicas"] == 1, "one of the two replicas is the minimum"


@pytest.mark.real_in("soak")
async def test_more_units_are_taken_at_once_when_a_stuck_update_is_allowed_more(world: World) -> None:
    one, three = ({"type": "RollingRecreate", "rollingRecreate": {"maxUnavailable": count}} for count in (1, 3))
    await world.apply(pcs("wl", clique("pc-a", 4, min_available=1), strategy=one))
    await world.available("wl")
    world.binder.allow(0)
    await change(world, "wl", "pc-a")

    async def taken() -> int:
        return sum(version == "two" for version in (await versions(world)).values())

    async def is_stuck() -> bool:
        return await taken() == 1

    await world.eventually(is_stuck)
    await world.quiet()
    await world.client.patch(PodCliqueSet, "wl", {"spec": {"updateStrategy": three}}, world.namespace)

    async def goes_on() -> bool:
        return await taken() == 3

    await world.eventually(goes_on)


@pytest.mark.simulated
async def test_what_needs_no_new_pods_restarts_nothing(world: World) -> None:
    await world.apply(wl1())
    await world.available("wl")
    before = await uids(world)

    patch = {
        "spec": {
            "template": {"terminationDelay": "1h0m0s", "headlessServiceConfig": {"publishNotReadyAddresses": False}},
            "updateStrategy": {"type": "OnDelete"},
        },
        "metadata": {"labels": {"team": "serving"}, "annotations": {"note": "hello"}},
    }
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)
    await world.quiet()
    patch = {"spec": {"updateStrategy": {"type": "RollingRecreate"}}}
    await world.client.patch(PodCliqueSet, "wl", patch, world.namespace)
    await world.quiet()

    assert await uids(world) == before
    assert (await world.get(PodCliqueSet, "wl")).status.update_progress is None


@pytest.mark.real_in("test")
async def test_an_operator_that_dies_in_the_middle_goes_on_where_it_was(world: World) -> None:
    await world.apply(wl1(replicas=2))
    await world.available("wl")

    async with watching(world) as witness:
        await change(world, "wl", "pc-a", "pc-b", "pc-c")
        for _ in range(6):
            await asyncio.sleep(0.7)
            await world.restart()
        await updated(world, "wl")

    assert len(witness.deleted) == 20
    assert witness.worst["replicas"] == witness.worst["wl-0-pc-a"] == witness.worst["wl-1/replicas"] == 1
