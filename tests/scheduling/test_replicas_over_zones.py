"""Replicas over three zones while a whole system lives: scale-out, lost nodes, a lost zone, updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.manifests import gpu_clique
from tests.support.operating import World as RealWorld
from tests.support.operating import operating
from tests.support.running import beside

from grove.api import labels
from grove.api.conditions import SCHEDULED
from grove.api.core import Node, Pod
from grove.api.meta import Json, find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.reasons import sentence
from grove.plan.world import TOPOLOGY, World, binding
from grove.scheduler.loop.live import Scheduler
from grove.sim.loop import run
from grove.sim.topology import RACK, ZONE, Topology

SHAPE = Topology(zones=3, racks=2, nodes=2)
"""A replica of the set below fills a rack: each zone holds two replicas."""


def serving(replicas: int, *cliques: Json, name: str = "serve", **more: Json) -> Json:
    """Each replica in one rack, the replicas over zones, unless it is said otherwise."""
    template: Json = {
        "cliques": list(cliques) or [gpu_clique("lead", 1, 4), gpu_clique("work", 3, 4)],
        "topologyConstraint": {"topologyName": TOPOLOGY, "pack": {"required": "rack"}},
        "spreadConstraint": {"topologyName": TOPOLOGY, "domain": "zone"},
        **more,
    }
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "template": {k: v for k, v in template.items() if v is not None}},
    }


def world(seed: int = 1) -> World:
    return World(SHAPE.objects(), seed=seed, objects=[(ClusterTopologyBinding, binding())])


def pods(here: World) -> list[Pod]:
    """The pods of the set that are there to stay."""
    found = (pod for pod in here.all(Pod) if pod.metadata.labels.get(labels.PART_OF) == "serve")
    return [pod for pod in found if not pod.metadata.is_deleting]


def units(here: World, label: str = labels.REPLICA_INDEX, key: str = ZONE) -> dict[str, set[str]]:
    """Domains of every replica that has pods on nodes."""
    nodes = {node.metadata.name: node.metadata.labels[key] for node in here.all(Node)}
    found: dict[str, set[str]] = {}
    for pod in pods(here):
        if pod.spec.node_name in nodes and label in pod.metadata.labels:
            found.setdefault(pod.metadata.labels[label], set()).add(nodes[pod.spec.node_name])
    return found


def by_zone(here: World, label: str = labels.REPLICA_INDEX) -> list[int]:
    """Replicas in each zone that has any, fewest first. Every replica is in one zone."""
    found = units(here, label)
    assert all(len(zones) == 1 for zones in found.values()), found
    return sorted(Counter(next(iter(zones)) for zones in found.values()).values())


async def scale(here: World, replicas: int) -> None:
    await here.client.patch(PodCliqueSet, "serve", {"spec": {"replicas": replicas}}, here.namespace)


def stands(here: World, count: int) -> bool:
    return len([pod for pod in pods(here) if pod.spec.node_name]) == 4 * count and here.is_settled("serve")


async def lose(here: World, zone: str) -> list[Node]:
    """Takes the nodes of a zone away, with their pods."""
    return await lose_nodes(here, [node for node in here.all(Node) if node.metadata.labels[ZONE] == zone])


async def lose_nodes(here: World, nodes: list[Node]) -> list[Node]:
    names = {node.metadata.name for node in nodes}
    for node in nodes:
        await here.client.delete(Node, node.metadata.name)
    for pod in pods(here):
        if pod.spec.node_name in names:
            await here.client.delete(Pod, pod.metadata.name, here.namespace, grace_period_s=0)
    return nodes


def why(here: World, gang: str) -> str:
    found = here.find(PodGang, gang)
    condition = find_condition(found.status.conditions, SCHEDULED) if found is not None else None
    return condition.message if condition is not None and condition.status == "False" else ""


@pytest.mark.parametrize("seed", range(2))
def test_replicas_are_packed_by_rack_and_spread_over_zones_at_every_scale_out(seed: int) -> None:
    async def story() -> None:
        async with world(seed) as here:
            await here.apply(serving(1))
            for replicas, counts in ((1, [1]), (3, [1, 1, 1]), (4, [1, 1, 2]), (6, [2, 2, 2])):
                await scale(here, replicas)
                assert await here.until(lambda replicas=replicas: stands(here, replicas))
                assert by_zone(here) == counts
                assert all(len(racks) == 1 for racks in units(here, key=RACK).values())

    run(story())


def test_a_replica_waits_for_the_zone_with_the_fewest_and_says_so() -> None:
    async def story() -> None:
        async with world() as here:
            for node in here.all(Node):
                if node.metadata.labels[ZONE] == "z2":
                    await _fill(here, node.metadata.name)
            await here.apply(serving(3))
            assert await here.until(lambda: "z2 has no capacity" in "".join(why(here, f"serve-{i}") for i in range(3)))
            assert by_zone(here) == [1, 1], "two zones have room for more, and the skew keeps it out"
            said = next(text for i in range(3) if (text := why(here, f"serve-{i}")))
            assert "the skew 2, and maxSkew is 1" in said
            for pod in here.all(Pod):
                if pod.metadata.name.startswith("other-"):
                    await here.client.delete(Pod, pod.metadata.name, here.namespace, grace_period_s=0)
            assert await here.until(lambda: stands(here, 3))
            assert by_zone(here) == [1, 1, 1]

    run(story())


async def _fill(here: World, node: str) -> None:
    asked = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "example/other", "resources": asked}]}
    await here.client.create(Pod, {"metadata": {"name": f"other-{node}", "namespace": here.namespace}, "spec": spec})


def test_a_replica_that_another_one_makes_capacity_for_in_the_skew_is_tried_again() -> None:
    """Nothing becomes free: a replica comes to the emptiest zone, and that alone lets the next one in."""

    async def story() -> None:
        async with world() as here:
            closed = [node.metadata.name for node in here.all(Node) if node.metadata.labels[ZONE] == "z2"]
            for name in closed:
                await _fill(here, name)
            await here.apply(serving(5))
            assert await here.until(lambda: by_zone(here) == [1, 1])
            for name in closed[:2]:
                await here.client.delete(Pod, f"other-{name}", here.namespace, grace_period_s=0)
            assert await here.until(lambda: stands(here, 5))
            assert by_zone(here) == [1, 2, 2]

    run(story())


def test_a_lost_zone_does_not_count_and_gets_the_next_replicas_when_it_is_back() -> None:
    async def story() -> None:
        async with world() as here:
            await here.apply(serving(3))
            assert await here.until(lambda: stands(here, 3))
            stay = {pod.metadata.uid for pod in pods(here)}
            nodes = await lose(here, "z1")
            stay &= {pod.metadata.uid for pod in pods(here)}
            assert await here.until(lambda: stands(here, 3))
            assert by_zone(here) == [1, 2], "the replica found a place in the zones that are left"
            for shape in SHAPE.objects():
                if shape["metadata"]["name"] in {node.metadata.name for node in nodes}:
                    await here.cluster.nodes.add([shape])
            await scale(here, 5)
            assert await here.until(lambda: stands(here, 5))
            assert by_zone(here) == [1, 2, 2]
            zones = Counter(zone for found in units(here).values() for zone in found)
            assert zones["z1"] == 2, "both new replicas went where there was none"
            assert stay <= {pod.metadata.uid for pod in pods(here)}, "what ran was not moved"

    run(story())


def test_a_lost_node_is_replaced_in_the_zone_of_its_replica() -> None:
    async def story() -> None:
        async with world() as here:
            await here.apply(serving(3, gpu_clique("lead", 1, 2), gpu_clique("work", 3, 2)))
            assert await here.until(lambda: stands(here, 3))
            before = units(here)
            dead = next(pod.spec.node_name for pod in pods(here))
            lost = {pod.metadata.uid for pod in pods(here) if pod.spec.node_name == dead}
            await here.client.delete(Node, dead)
            for pod in pods(here):
                if pod.metadata.uid in lost:
                    await here.client.delete(Pod, pod.metadata.name, here.namespace, grace_period_s=0)
            assert await here.until(lambda: not lost & {pod.metadata.uid for pod in pods(here)} and stands(here, 3))
            assert units(here) == before

    run(story())


def test_an_update_keeps_the_replicas_spread() -> None:
    async def story() -> None:
        async with world() as here:
            await here.apply(serving(4))
            assert await here.until(lambda: stands(here, 4))
            old = {pod.metadata.uid for pod in pods(here)}
            changed = serving(4)["spec"]["template"]["cliques"]
            for one in changed:
                one["spec"]["podSpec"]["containers"][0]["image"] = "example/serve:2"
            await here.client.patch(PodCliqueSet, "serve", {"spec": {"template": {"cliques": changed}}}, here.namespace)
            assert await here.until(
                lambda: stands(here, 4) and not old & {pod.metadata.uid for pod in pods(here)}, 7200.0
            )
            assert by_zone(here) == [1, 1, 2]

    run(story())


def test_replicas_of_a_scaling_group_and_pods_of_a_clique_are_spread() -> None:
    async def story() -> None:
        async with world() as here:
            group = {
                "name": "decode",
                "cliqueNames": ["work"],
                "replicas": 3,
                "minAvailable": 2,
                "spreadConstraint": {"domain": "zone", "topologyName": TOPOLOGY},
            }
            front = gpu_clique("front", 3, 1, spreadConstraint={"domain": "zone"})
            made = serving(1, front, gpu_clique("work", 2, 4), podCliqueScalingGroups=[group])
            del made["spec"]["template"]["topologyConstraint"], made["spec"]["template"]["spreadConstraint"]
            await here.apply(made)
            assert await here.until(lambda: here.is_settled("serve"))
            assert by_zone(here, labels.SCALING_GROUP_REPLICA_INDEX) == [1, 1, 1]
            assert len(units(here, labels.POD_CLIQUE)["serve-0-front"]) == 3
            await here.client.patch(PodCliqueScalingGroup, "serve-0-decode", {"spec": {"replicas": 5}}, here.namespace)
            assert await here.until(lambda: len(units(here, labels.SCALING_GROUP_REPLICA_INDEX)) == 5)
            assert by_zone(here, labels.SCALING_GROUP_REPLICA_INDEX) == [1, 2, 2]

    run(story())


def test_a_scaled_part_of_a_replica_stays_in_the_zone_of_its_replica() -> None:
    async def story() -> None:
        async with world() as here:
            group = {"name": "decode", "cliqueNames": ["work"], "replicas": 2}
            made = serving(2, gpu_clique("front", 1, 1), gpu_clique("work", 2, 4), podCliqueScalingGroups=[group])
            del made["spec"]["template"]["topologyConstraint"]
            await here.apply(made)
            assert await here.until(lambda: here.is_settled("serve"))
            assert by_zone(here) == [1, 1]

    run(story())


def test_a_preferred_spread_is_given_up_where_there_is_no_capacity() -> None:
    async def story() -> None:
        async with world() as here:
            for node in here.all(Node):
                if node.metadata.labels[ZONE] == "z2":
                    await _fill(here, node.metadata.name)
            spread = {"topologyName": TOPOLOGY, "domain": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            await here.apply(serving(4, spreadConstraint=spread))
            assert await here.until(lambda: stands(here, 4))
            assert by_zone(here) == [2, 2]

    run(story())


WORLDS = settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STEPS = st.lists(st.sampled_from(["out", "out", "in", "full", "node", "zone", "back"]), min_size=3, max_size=7)


@WORLDS
@given(steps=STEPS, seed=st.integers(0, 99), skew=st.integers(1, 2))
@example(steps=["full", "out", "out", "zone", "back"], seed=1, skew=1)
def test_no_replica_is_placed_beyond_the_skew_whatever_happens(steps: list[str], seed: int, skew: int) -> None:
    """Replicas come and go, the zone with the fewest is filled by others, nodes and zones are lost and come back.

    A replica that was placed in a step is in a zone that has at most `maxSkew` replicas more than any other zone with
    nodes. What a step takes away may leave a larger skew: what runs is not moved.
    """
    spread = {"topologyName": TOPOLOGY, "domain": "zone", "maxSkew": skew}
    rng = Random(seed)

    async def story() -> None:
        async with world(seed) as here:
            replicas, gone = 2, list[Node]()
            await here.apply(serving(replicas, spreadConstraint=spread))
            before = await settled(here)
            check_placed(here, {}, before, skew)
            for step in steps:
                if step == "out":
                    replicas += rng.randint(1, 2)
                elif step == "in":
                    replicas = max(1, replicas - 1)
                elif step == "full":
                    taken = Counter(zone for zone, _ in before.values())
                    zone = min((node.metadata.labels[ZONE] for node in here.all(Node)), key=lambda one: taken[one])
                    used = {pod.spec.node_name for pod in here.all(Pod)}
                    for node in here.all(Node):
                        if node.metadata.labels[ZONE] == zone and node.metadata.name not in used:
                            await _fill(here, node.metadata.name)
                elif step == "back":
                    names, gone = {node.metadata.name for node in gone}, []
                    await here.cluster.nodes.add([one for one in SHAPE.objects() if one["metadata"]["name"] in names])
                else:
                    zone = rng.choice(sorted({node.metadata.labels[ZONE] for node in here.all(Node)}))
                    chosen = [node for node in here.all(Node) if node.metadata.labels[ZONE] == zone]
                    if len(here.all(Node)) - len(chosen) >= 4:
                        gone += await lose_nodes(here, chosen if step == "zone" else [rng.choice(chosen)])
                await scale(here, replicas)
                now = await settled(here)
                check_placed(here, before, now, skew)
                before = now

    run(story(), seed=seed)


async def settled(here: World) -> dict[str, tuple[str, frozenset[str]]]:
    """After an hour: the zone and the pods of each replica that is placed."""
    await here.until(lambda: False, 3600.0)
    zones, pods_of = units(here), dict[str, set[str]]()
    for pod in pods(here):
        if pod.spec.node_name:
            pods_of.setdefault(pod.metadata.labels[labels.REPLICA_INDEX], set()).add(pod.metadata.uid)
    assert all(len(found) == 1 for found in zones.values()), zones
    return {replica: (next(iter(zones[replica])), frozenset(pods_of[replica])) for replica in zones}


def check_placed(
    here: World,
    before: dict[str, tuple[str, frozenset[str]]],
    now: dict[str, tuple[str, frozenset[str]]],
    skew: int,
) -> None:
    counts = Counter({node.metadata.labels[ZONE]: 0 for node in here.all(Node)})
    counts.update(zone for zone, _ in now.values())
    for replica, (zone, found) in now.items():
        is_new = replica not in before or found.isdisjoint(before[replica][1])
        if is_new:
            assert counts[zone] - min(counts.values()) <= skew, (replica, counts)


@pytest.fixture
async def real(cluster: object) -> AsyncIterator[RealWorld]:
    config = "topologyAwareScheduling: {enabled: true}"
    async with operating(cluster, config=config, nodes=Topology(zones=3, nodes=3)) as found:
        found.binder.allow(0)
        async with beside(Scheduler(found.client, clock=found.cluster.clock, say=sentence).run()):
            yield found


async def placed(real: RealWorld, count: int, without: frozenset[str] = frozenset()) -> list[int]:
    """Waits for this number of pods on nodes, none of `without`; the replicas in each zone, fewest first."""

    async def there() -> list[Pod] | None:
        alive = [pod for pod in await real.pods() if not pod.metadata.is_deleting]
        found = [pod for pod in alive if pod.is_bound and pod.metadata.uid not in without]
        return found if len(found) == len(alive) == count else None

    found = await real.eventually(there, timeout_s=180.0)
    nodes = {node.metadata.name: node.metadata.labels[ZONE] for node in (await real.client.list(Node)).items}
    zones = {(pod.metadata.labels[labels.REPLICA_INDEX], nodes[pod.spec.node_name]) for pod in found}
    assert len(zones) == len({replica for replica, _ in zones}), "every replica is in one zone"
    return sorted(Counter(zone for _, zone in zones).values())


@pytest.mark.real_in("soak")
async def test_replicas_stay_spread_through_scale_out_node_loss_and_update(real: RealWorld) -> None:
    name = f"{real.cluster.prefix}spread"
    await real.client.create(ClusterTopologyBinding, binding(name=name))
    made = serving(2, gpu_clique("lead", 1, 2), gpu_clique("work", 2, 2))
    for field in ("topologyConstraint", "spreadConstraint"):
        made["spec"]["template"][field]["topologyName"] = name
    await real.apply(made)
    assert await placed(real, 6) == [1, 1]
    await real.scale(PodCliqueSet, "serve", 4)
    assert await placed(real, 12) == [1, 1, 2]

    lost = [pod for pod in await real.pods() if pod.spec.node_name == (await real.pods())[0].spec.node_name]
    await real.nodes.remove_node(lost[0].spec.node_name)
    for pod in lost:
        await real.client.delete(Pod, pod.metadata.name, real.namespace, grace_period_s=0)
    assert await placed(real, 12, frozenset(pod.metadata.uid for pod in lost)) == [1, 1, 2]

    old = frozenset(pod.metadata.uid for pod in await real.pods())
    changed = serving(4, gpu_clique("lead", 1, 2), gpu_clique("work", 2, 2))["spec"]["template"]["cliques"]
    for one in changed:
        one["spec"]["podSpec"]["containers"][0]["image"] = "example/serve:2"
    await real.client.patch(PodCliqueSet, "serve", {"spec": {"template": {"cliques": changed}}}, real.namespace)
    assert await placed(real, 12, old) == [1, 1, 2]
