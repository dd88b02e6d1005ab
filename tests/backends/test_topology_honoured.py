"""A scheduler ignores a required topology: the gang and its set report it with the names of the pods.

The scheduler is the tests' own; it binds pods to all nodes in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.gang_schedulers import GangScheduler, Kai, Koordinator, Kube, Volcano, eventually, operator
from tests.support.gang_schedulers import cluster as simulated
from tests.support.manifests import clique, group, pcs
from tests.support.operating import TOPOLOGY, Operating, World

from grove.api.conditions import TOPOLOGY_NOT_HONOURED
from grove.api.core import Event, Node, Pod
from grove.api.meta import Condition, Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.backends.volcano import HYPER_NODE
from grove.kube.client import Client
from grove.sim.topology import BLOCK, RACK, Topology

LEVELS = [{"domain": "block", "key": BLOCK}, {"domain": "rack", "key": RACK}]


def in_one_rack(binding: str, *, replicas: int = 3, scheduler: str = "") -> Json:
    rack = {"topologyName": binding, "pack": {"required": "rack"}}
    more = {"scheduler": scheduler} if scheduler else {}
    metadata = {"labels": {"kai.scheduler/queue": "research"}}
    return pcs("demo", clique("a", replicas), metadata=metadata, topologyConstraint=rack, **more)


OPERATING = Operating(config=TOPOLOGY, nodes=Topology(racks=2, nodes=2))


@pytest.fixture
async def binding(world: World) -> AsyncIterator[str]:
    name = f"{world.namespace}-levels"
    await world.client.create(ClusterTopologyBinding, {"metadata": {"name": name}, "spec": {"levels": LEVELS}})
    yield name
    await world.client.delete(ClusterTopologyBinding, name)


async def told(world: World) -> tuple[Condition | None, Condition | None]:
    """What the gang and the set say."""
    gang, pcs_ = await world.get(PodGang, "demo-0"), await world.get(PodCliqueSet, "demo")
    return tuple(find_condition(one.status.conditions, TOPOLOGY_NOT_HONOURED) for one in (gang, pcs_))  # type: ignore[return-value]


async def use_only_rack(world: World, rack: str) -> None:
    for node in (await world.client.list(Node)).items:
        if node.metadata.name.startswith(world.cluster.prefix):
            patch = {"spec": {"unschedulable": True if node.metadata.labels[RACK] != rack else None}}
            await world.client.patch(Node, node.metadata.name, patch)


async def test_pods_that_span_a_required_rack_are_named_until_they_stand_in_one(world: World, binding: str) -> None:
    await world.apply(in_one_rack(binding))
    await world.available("demo")

    async def both() -> tuple[Condition, Condition] | None:
        gang, set_ = await told(world)
        return (gang, set_) if gang is not None and set_ is not None else None

    of_gang, of_set = await world.eventually(both)
    places = {pod.metadata.name: pod.spec.node_name for pod in await world.pods()}
    racks = {name: node.rpartition("-")[0] for name, node in places.items()}
    assert len(set(racks.values())) == 2
    for name, rack in racks.items():
        assert name in of_gang.message
        assert rack in of_gang.message
    assert (of_gang.status, of_set.status) == ("True", "True")
    assert of_set.message == f"demo-0: {of_gang.message}"
    assert await world.event("demo", TOPOLOGY_NOT_HONOURED) == f"PodGang demo-0: {of_gang.message}"

    await world.restart()  # what was said stays said, once
    await world.quiet()
    assert [of_gang, of_set] == list(await told(world))

    chosen = min(racks.values())
    await use_only_rack(world, chosen)
    for name, rack in racks.items():
        if rack != chosen:
            await world.delete(Pod, name)

    async def silent() -> bool:
        return await told(world) == (None, None)

    await world.eventually(silent)
    await world.available("demo")
    said = [one for one in await world.list(Event) if one.reason == TOPOLOGY_NOT_HONOURED]
    assert sum(one.count or 1 for one in said) == 1


async def test_a_requirement_that_is_kept_costs_no_write_and_says_nothing(world: World, binding: str) -> None:
    """As many writes as for a set that requires nothing."""
    rack = min(
        node.metadata.labels[RACK]
        for node in (await world.client.list(Node)).items
        if node.metadata.name.startswith(world.cluster.prefix)
    )
    await use_only_rack(world, rack)
    await world.apply(in_one_rack(binding))
    await world.available("demo")
    before = world.writes()

    (lost, *_) = await world.pods()
    await world.delete(Pod, lost.metadata.name)

    async def again() -> bool:
        pods = await world.pods()
        return (
            len(pods) == 3
            and lost.metadata.name not in {pod.metadata.name for pod in pods}
            and all(pod.is_ready for pod in pods)
        )

    await world.eventually(again)
    await world.quiet()
    assert await told(world) == (None, None)
    assert (world.writes() - before)["patch", "podgangs/status"] == 0


# Other schedulers, each by a stand-in that does not look at topology


PROFILES: dict[str, tuple[str, type[GangScheduler], str]] = {
    "kai-scheduler": ("kai", Kai, "kai-scheduler"),
    "koord-scheduler": (
        "koord",
        Koordinator,
        f"koord-scheduler, config: {{topologyLayers: {{{RACK}: rack, {BLOCK}: block}}}}",
    ),
    "volcano": ("volcano", Volcano, f"volcano, config: {{tiers: {{{RACK}: rack, {BLOCK}: block}}}}"),
    "default-scheduler": ("kube-1.36", Kube, "default-scheduler"),
}


async def conditions_of(client: Client) -> dict[str, Condition]:
    gangs = (await client.list(PodGang, "ns")).items
    found = {gang.metadata.name: find_condition(gang.status.conditions, TOPOLOGY_NOT_HONOURED) for gang in gangs}
    return {name: one for name, one in found.items() if one is not None}


@pytest.mark.simulated
@pytest.mark.parametrize("name", PROFILES)
async def test_every_other_scheduler_is_watched_the_same_way(name: str) -> None:
    schema, kind, profile = PROFILES[name]
    config = f"{TOPOLOGY}scheduler: {{defaultProfileName: {name}, profiles: [{{name: {profile}}}]}}"
    kind = type(f"Careless{kind.__name__}", (kind,), {"keeps_topology": False})
    async with simulated(schema, kind) as sim:
        for tier, level in enumerate(("rack", "block"), start=1):
            if schema == "volcano":
                spec = {"tier": tier, "tierName": level}
                await sim.client().create(HYPER_NODE, {"metadata": {"name": level}, "spec": spec})
        await sim.client().create(ClusterTopologyBinding, {"metadata": {"name": "topo"}, "spec": {"levels": LEVELS}})
        async with operator(sim, config):
            rack = {"topologyName": "topo", "pack": {"required": "rack"}}
            metadata = {"labels": {"kai.scheduler/queue": "research"}}
            scaled = group("grp", "a", replicas=2)
            made = pcs(
                "demo", clique("a", 3), groups=[scaled], namespace="ns", metadata=metadata, topologyConstraint=rack
            )
            await sim.client().create(PodCliqueSet, made)

            async def both_said() -> dict[str, Condition] | None:
                found = await conditions_of(sim.client())
                return found if len(found) == 2 else None

            found = await eventually(both_said)
            pods = [pod.metadata.name for pod in (await sim.client().list(Pod, "ns")).items]
            for name_ in pods:
                assert any(name_ in one.message for one in found.values())
            await asyncio.sleep(30)
            said = find_condition(
                (await sim.client().get(PodCliqueSet, "demo", "ns")).status.conditions, TOPOLOGY_NOT_HONOURED
            )
            assert said is not None
            assert said.message.startswith("demo-0, demo-0-grp-0: ")
