"""Updates with our own scheduler: every node has capacity for one pod, and no node is spare.

Here the operator and the scheduler share nothing but PodGangs. A gang that is restarted or updated must be placed
again, whole, on the capacity of its own old pods.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import Operating, World
from tests.support.workloads import change, counting, ready_pods, uids, updated, versions, watching, wl1, wl2

from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.scheduler.loop.deciding.decisions import Decider
from grove.sim.topology import HOST, Topology

pytestmark = pytest.mark.simulated
DELAY = "10s"

OPERATING = Operating(nodes=Topology(racks=2, nodes=5, pods=1), start_s=0.5, scheduled=True)


async def lose(world: World, *hostnames: str) -> list[str]:
    """Cordons the nodes of these pods and kills the pods; returns the nodes."""
    doomed = [pod for pod in await world.pods() if pod.spec.hostname in hostnames]
    for pod in doomed:
        await world.nodes.cordon(pod.spec.node_name)
    for pod in doomed:
        await world.delete(Pod, pod.metadata.name, grace_period_s=0)
    return [pod.spec.node_name for pod in doomed]


async def kept(world: World, before: dict[str, str]) -> set[str]:
    return {host for host, uid in (await uids(world)).items() if before.get(host) == uid}


async def recovered(world: World, *nodes: str) -> None:
    for node in nodes:
        await world.nodes.cordon(node, unschedulable=False)

    async def whole() -> bool:
        return len(await ready_pods(world)) == 10

    await world.eventually(whole)
    await world.available("wl")


@pytest.mark.parametrize("lost", ["wl-0-pc-a-0", "wl-0-sg-x-0-pc-c-1"], ids=["GT-1", "GT-2"])
async def test_a_gang_that_lost_a_node_is_restarted_and_waits_whole_for_capacity(world: World, lost: str) -> None:
    await world.apply(wl1(delay=DELAY))
    await world.available("wl")
    before = await uids(world)

    nodes = await lose(world, lost)
    await asyncio.sleep(25)

    assert await kept(world, before) == set()
    bound = [pod.spec.hostname for pod in await world.pods() if pod.is_bound]
    assert bound == [], "nine of ten have room, and so none is placed"
    await recovered(world, *nodes)
    assert (await world.get(PodCliqueSet, "wl")).status.gang_restarts == 1


async def test_gt4_group_replicas_first_then_the_whole_replica(world: World) -> None:
    await world.apply(wl2(delay=DELAY))
    await world.available("wl")
    before = await uids(world)
    first = {host for host in before if "-sg-x-0-" in host}

    await lose(world, *(f"wl-0-sg-x-0-pc-c-{index}" for index in range(3)))
    await asyncio.sleep(25)
    assert await kept(world, before) == before.keys() - first

    # The node of the replica's leader is free again, and would do for one worker of the other replica.
    for node in set(world.nodes.names) - {pod.spec.node_name for pod in await world.pods()}:
        await world.nodes.cordon(node)
    await lose(world, *(f"wl-0-sg-x-1-pc-c-{index}" for index in range(3)))
    await asyncio.sleep(25)
    assert await kept(world, before) == set()
    await recovered(world, *world.nodes.names)


async def test_ru9_an_update_finds_capacity_where_its_own_pods_stood(world: World) -> None:
    await world.apply(wl1())
    await world.available("wl")
    before = await uids(world)

    async with watching(world) as witness:
        await change(world, "wl", "pc-a", "pc-b", "pc-c")
        await updated(world, "wl")

    assert not set((await uids(world)).values()) & set(before.values())
    assert set((await versions(world)).values()) == {"two"}
    assert witness.worst["wl-0-pc-a"] == witness.worst["wl-0/replicas"] == 1
    assert len(witness.deleted) == 10
    gangs = await world.list(PodGang)
    assert [gang.metadata.name for gang in gangs] == ["wl-0"], "gangs outlive their pods"


async def test_ru10_without_capacity_an_update_stops_at_one_pod(world: World) -> None:
    await world.apply(wl2())
    await world.available("wl")
    before = await uids(world)
    for node in world.nodes.names:
        await world.nodes.cordon(node)

    await change(world, "wl", "pc-a")
    await asyncio.sleep(30)

    assert len(before.keys() - await kept(world, before)) == 1
    for node in world.nodes.names:
        await world.nodes.cordon(node, unschedulable=False)
    await updated(world, "wl")
    assert set((await versions(world, "wl-0-pc-a")).values()) == {"two"}


async def test_od8_a_replacement_keeps_away_from_a_node_that_the_new_template_excludes(world: World) -> None:
    await world.apply(pcs("wl", clique("pc-a", 2, min_available=1), strategy={"type": "OnDelete"}))
    await world.available("wl")
    first, second = await world.pods("wl-0-pc-a")
    elsewhere = {"key": HOST, "operator": "NotIn", "values": [first.spec.node_name]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found: Json = await world.client.get(PodCliqueSet.RESOURCE, "wl", world.namespace)
    cliques = found["spec"]["template"]["cliques"]
    cliques[0]["spec"]["podSpec"]["affinity"] = affinity

    await world.client.patch(PodCliqueSet, "wl", {"spec": {"template": {"cliques": cliques}}}, world.namespace)
    await world.quiet()
    await world.delete(Pod, first.metadata.name, grace_period_s=0)
    await world.available("wl")

    after = {pod.spec.hostname: pod for pod in await world.pods("wl-0-pc-a")}
    replaced, kept_ = after[first.spec.hostname], after[second.spec.hostname]
    assert kept_.metadata.uid == second.metadata.uid
    assert replaced.metadata.uid != first.metadata.uid
    assert replaced.spec.node_name not in (first.spec.node_name, second.spec.node_name)


def coherent(frontend: int, instances: int, surge: int = 0, minimum: int = 1) -> Json:
    """A standalone frontend, and a group with this number of replicas of a leader and a worker; one pod a node."""
    found = pcs(
        "wl",
        clique("f", frontend, min_available=minimum),
        clique("l"),
        clique("w"),
        groups=[group("g", "l", "w", replicas=instances, min_available=1)],
        strategy={"type": "Coherent"},
    )
    for part in (found["spec"]["template"]["cliques"][0], found["spec"]["template"]["podCliqueScalingGroups"][0]):
        part |= {"rollingUpdate": {"maxSurge": surge}} if surge else {}
    return found


@pytest.mark.parametrize("waiting", [1, 3])
async def test_no_waiting_gang_takes_the_nodes_of_a_coherent_slice(world: World, waiting: int) -> None:
    """All ten nodes are in use. The nodes of a slice are held for its new pods while those do not exist yet."""
    await world.apply(coherent(2, 4, minimum=2))
    await world.available("wl")
    await world.ready(10)
    await world.apply(pcs("late", clique("x", waiting)))
    await asyncio.sleep(5)

    async with watching(world) as witness:
        await change(world, "wl", "f", "l", "w")
        await updated(world, "wl")

    late = await world.pods("late-0-x")
    assert len(late) == waiting
    assert not [pod for pod in late if pod.is_bound]
    assert len(witness.deleted) == len(set(witness.deleted)) == 10


@pytest.mark.parametrize(("frontend", "instances", "has_place"), [(2, 2, True), (4, 3, False)])
async def test_surge_units_of_a_coherent_update_where_the_scheduler_has_a_place_and_where_not(
    world: World, frontend: int, instances: int, has_place: bool
) -> None:
    await world.apply(coherent(frontend, instances, surge=1))
    await world.available("wl")
    before = set(await uids(world))

    async with counting(world) as seen:
        await change(world, "wl", "f", "l", "w")
        await updated(world, "wl")
        await world.ready(len(before))

    assert set(await uids(world)) == before
    assert set((await versions(world)).values()) == {"two"}
    assert ("SurgeNotPlaced" in await world.event_reasons("wl")) is not has_place
    down = 0 if has_place else 1
    assert {name: seen.least[name] for name in "flw"} == {
        "f": frontend - down,
        "l": instances - down,
        "w": instances - down,
    }


async def test_a_pod_with_the_best_place_is_placed_by_one_search(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one asks for the place that is free when the replaced pod is gone: it can be no better."""
    await world.apply(pcs("wl", clique("a"), replicas=4))
    await world.available("wl")
    searches, search = 0, Decider.search

    async def counted(decider: Decider, *given: Any) -> Any:
        nonlocal searches
        searches += 1
        return await search(decider, *given)

    monkeypatch.setattr(Decider, "search", counted)
    world.nodes.stop_s = 2.0  # the old pod is still there when the new one is placed
    await change(world, "wl", "a")
    await updated(world, "wl")

    assert searches == 4
