"""`tree`, `topology`, `plan` and `explain` show how evenly replicas are distributed over failure domains."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.support.manifests import gpu_clique

from grove.answers.answer import Answer
from grove.answers.explain import explain_answer
from grove.answers.plan import plan_answer
from grove.answers.topology import topology_answer
from grove.answers.tree import tree_answer
from grove.api.core import Node, Pod
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.spreads import spread_counts
from grove.plan.copying import copy_cluster
from grove.plan.world import TOPOLOGY, World, binding
from grove.scheduler.loop.state.gang_trees import tree_of
from grove.scheduler.model.gang import Pin
from grove.scheduler.solve.spread_domains import kept_in, rows_of, spread_domains
from grove.sim.loop import run
from grove.sim.topology import ZONE, Topology

GPU = "nvidia.com/gpu"


def serving(replicas: int, *cliques: Json, **more: Any) -> Json:
    template: Json = {
        "cliques": list(cliques) or [gpu_clique("lead", 1, 4), gpu_clique("work", 3, 4)],
        "spreadConstraint": {"topologyName": TOPOLOGY, "domain": "zone"},
    }
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": "serve", "namespace": "default"},
        "spec": {"replicas": replicas, "template": template | more},
    }


def world() -> World:
    shape = Topology(zones=3, racks=2, nodes=2)
    return World(shape.objects(), seed=1, objects=[(ClusterTopologyBinding, binding())])


def painted(found: Answer, width: int = 200) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as caught:
        console.print(found.paint(width))
    return caught.get()


def bound(here: World) -> int:
    return sum(pod.is_bound for pod in here.all(Pod))


@pytest.mark.simulated
def test_tree_topology_and_plan_show_the_replicas_in_each_zone() -> None:
    async def story() -> None:
        async with world() as here:
            await here.apply(serving(4))
            assert await here.until(lambda: bound(here) == 16 and here.is_settled("serve"))
            zones = _zones(here)
            shown = ", ".join(f"{zone} {zones[zone]}" for zone in sorted(zones))
            line = f"serve is spread over zone: {shown} (skew 1 of 1)"
            tree = await tree_answer(here.client, here.namespace, "serve")
            assert line in painted(tree)
            assert tree.data["spreads"][0]["units"] == [[zone, zones[zone]] for zone in sorted(zones)]
            assert tree.data["spreads"][0]["maxSkew"] == 1
            assert line in painted(await topology_answer(here.client))
            copy = await copy_cluster(here.client, None)
            now = here.cluster.clock.now()
            plan = await plan_answer(copy, here.namespace, scales=["serve=6"], now=now)
            assert "serve is spread over zone: z0 2, z1 2, z2 2 (skew 0 of 1)" in painted(plan)

    run(story())


def _zones(here: World) -> dict[str, int]:
    label = {node.metadata.name: node.metadata.labels[ZONE] for node in here.all(Node)}
    pods = [pod for pod in here.all(Pod) if pod.is_bound]
    found = {(label[pod.spec.node_name], pod.metadata.labels["grove.io/podcliqueset-replica-index"]) for pod in pods}
    return {zone: sum(one == zone for one, _ in found) for zone in set(label.values())}


@pytest.mark.simulated
def test_explain_names_the_full_domain_and_the_skew_elsewhere() -> None:
    async def story() -> None:
        async with world() as here:
            for node in here.all(Node):
                if node.metadata.labels[ZONE] == "z2":
                    await _fill(here, node.metadata.name)
            await here.apply(serving(3))
            assert await here.until(lambda: bound(here) == 4 + 8)
            await here.until(lambda: False, 5.0)
            said = painted(await explain_answer(here.client, here.namespace, "serve", now=here.cluster.clock.now()))
            assert "z2 has no capacity" in said
            assert "the skew 2, and maxSkew is 1" in said
            tree = painted(await tree_answer(here.client, here.namespace, "serve"))
            assert "serve is spread over zone: z0 1, z1 1, z2 0 (skew 1 of 1)" in tree

    run(story())


async def _fill(here: World, node: str) -> None:
    asked = {"limits": {GPU: "8"}, "requests": {GPU: "8"}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "example/other", "resources": asked}]}
    await here.client.create(Pod, {"metadata": {"name": f"other-{node}", "namespace": here.namespace}, "spec": spec})


GROUP = {"name": "decode", "cliqueNames": ["work"], "replicas": 3, "minAvailable": 2}
SITUATIONS: dict[str, tuple[Json, dict[str, Any]]] = {
    "replicas": (serving(4), {}),
    "a cordoned zone": (serving(3), {"cordoned": "z1"}),
    "a replica of a group, and pods": (
        serving(
            1,
            gpu_clique("front", 3, 1, spreadConstraint={"domain": "zone"}),
            gpu_clique("work", 2, 4),
            spreadConstraint=None,
            podCliqueScalingGroups=[GROUP | {"spreadConstraint": {"domain": "zone", "topologyName": TOPOLOGY}}],
        ),
        {},
    ),
    "pods over the racks of one zone": (
        serving(
            1,
            gpu_clique("work", 4, 2, spreadConstraint={"domain": "rack"}),
            spreadConstraint=None,
            topologyConstraint={"topologyName": TOPOLOGY, "pack": {"required": "zone"}},
        ),
        {},
    ),
    "pods over the racks of the zone of their replica": (
        serving(2, gpu_clique("work", 4, 2, spreadConstraint={"domain": "rack"})),
        {},
    ),
    "a node selector": (
        serving(2, gpu_clique("work", 2, 2), spreadConstraint={"topologyName": TOPOLOGY, "domain": "zone"}),
        {"selector": "z1"},
    ),
}


@pytest.mark.simulated
@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_shown_is_what_the_scheduler_counts(name: str) -> None:
    """The display reads objects, the scheduler its tables. Both name the same domains with the same numbers."""
    manifest, asked = SITUATIONS[name]
    template = manifest["spec"]["template"]
    if template["spreadConstraint"] is None:
        del template["spreadConstraint"]
    if zone := asked.get("selector"):
        template["cliques"][0]["spec"]["podSpec"]["nodeSelector"] = {ZONE: zone}
        template["spreadConstraint"]["whenUnsatisfiable"] = "ScheduleAnyway"

    async def story() -> None:
        async with world() as here:
            for node in here.all(Node):
                if node.metadata.labels[ZONE] == asked.get("cordoned"):
                    await here.client.patch(Node, node.metadata.name, {"spec": {"unschedulable": True}})
            await here.apply(manifest)
            assert await here.until(lambda: here.is_settled("serve"))
            shown = {(one.owner, one.domain): dict(one.units) for one in spread_counts(here.seen())}
            assert shown
            for gang in here.all(PodGang):
                for of, (domains, counts) in zip(gang.spec.spread_constraints, _counted(here, gang), strict=True):
                    owner = next(iter(of.match_labels.values()))
                    found = next(units for (at, _), units in shown.items() if at == owner)
                    assert found == dict(zip(domains, counts, strict=True))

    run(story())


def _counted(here: World, gang: PodGang) -> list[tuple[list[str], tuple[int, ...]]]:
    """Domains and units of each spread of a gang, as the scheduler counts them for such a gang that waits."""
    view = here.scheduler.view
    state = view.units.gangs[str(gang.metadata.key)]
    pods = [msgspec.structs.replace(view.reader.facts(pod), group=group) for pod, group in view.members(state)]
    whole = tree_of(view, state, here.scheduler.config.node_policy).unbound(pods)
    tree = view.snapshot.tree(whole.keys(), whole.topology)
    answers = []
    for spread in whole.spreads:
        kept = kept_in(whole, spread, tree)
        inside = rows_of(view.snapshot, tree, [Pin(kept[0], pods[0].node)]) if kept is not None else None
        found = spread_domains(view.snapshot, whole, spread, tree, inside)
        named = [view.snapshot.domain_name(tree, found.level, one).rpartition("/")[2] for one in found.ids]
        answers.append((named, found.counts))
    return answers
