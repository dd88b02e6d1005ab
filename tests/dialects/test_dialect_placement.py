"""A PodClique of grove.dynamo.ai in a cluster: it places gangs where it says, waits for a rollout, and reports it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.dialect_worlds import apply, edit, said
from tests.support.dialects import gang_set, rule, seed, wish
from tests.support.manifests import pod_spec
from tests.support.operating import World, condition

from grove.api.core import Node, Pod
from grove.api.dynamo import PlacementPodClique, PodGangSet
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.kube.errors import AlreadyExists

pytestmark = pytest.mark.simulated  # on a real API server: test_real_seeds

RACK = "topology.kubernetes.io/rack"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WORKER = {"app": "dynamo-worker"}


async def lay(world: World, obj: Json) -> None:
    obj["metadata"]["namespace"] = world.namespace
    await world.client.create(PlacementPodClique, obj)


async def told(world: World, name: str, status: str, reason: str) -> Any:
    async def look() -> Any:
        found = await world.get(PlacementPodClique, name)
        return found if condition(found.status.conditions, "Applied") == (status, reason) else None

    return await world.eventually(look)


async def racks(world: World, **labels: str) -> set[str]:
    """Racks that the bound pods with these labels stand in."""
    nodes = {one.metadata.name: one.metadata.labels.get(RACK, "") for one in (await world.client.list(Node)).items}
    return {nodes[pod.spec.node_name] for pod in await world.list(Pod, **labels) if pod.is_bound}


async def topology(world: World) -> str:
    """A ClusterTopologyBinding with racks; on the real cluster tests share it."""
    levels = [{"domain": "rack", "key": RACK}]
    try:
        await world.client.create(ClusterTopologyBinding, {"metadata": {"name": "by-rack"}, "spec": {"levels": levels}})
    except AlreadyExists:
        pass
    return "by-rack"


async def test_workers_go_to_the_rack_of_the_prefill_pods(world: World) -> None:
    alone = gang_set("prefill", 2, labels={"component": "prefill"})
    nodes = [one.metadata for one in (await world.client.list(Node)).items]
    mine = sorted(one.labels[RACK] for one in nodes if one.name.startswith(world.cluster.prefix))
    alone["spec"]["scheduling"] = {"nodeSelector": {RACK: mine[-1]}}
    await apply(world, alone)
    await said(world, PodGangSet, "prefill", "Ready", "True")

    await lay(world, seed("podclique"))
    await apply(world, gang_set("serving", 2, labels=WORKER))
    await said(world, PodGangSet, "serving", "Ready", "True")

    assert await racks(world, **WORKER) == {mine[-1]}

    async def counted() -> bool:
        found = (await world.get(PlacementPodClique, "prefill-decode-clique")).status
        return (found.matched_pods, found.satisfied_pods) == (2, 2)

    await world.eventually(counted)
    found = await told(world, "prefill-decode-clique", "True", "Applied")
    assert [(one.name, one.applied_as) for one in found.status.matched_pod_gang_sets] == [("serving", "PodAffinity")]
    assert sorted(await world.names(PodCliqueSet)) == ["prefill", "serving"]


async def test_a_gangs_own_pods_are_packed_by_the_topology(world: World) -> None:
    name = await topology(world)
    await lay(world, rule(**{PREFERRED: [wish(RACK)]}))
    await apply(world, gang_set("packed", 3, labels={"app": "worker"}))
    await said(world, PodGangSet, "packed", "Ready", "True")
    template = (await world.get(PodCliqueSet, "packed")).spec.template
    assert template.topology_constraint is not None
    assert template.topology_constraint.topology_name == name
    assert len(await racks(world, app="worker")) == 1
    found = await told(world, "near", "True", "Applied")
    assert found.status.matched_pod_gang_sets[0].applied_as == "Pack"


async def test_a_later_rule_waits_for_the_next_rollout_unless_it_is_in_a_hurry(world: World) -> None:
    await apply(world, gang_set("late", 2, labels=WORKER))
    await said(world, PodGangSet, "late", "Ready", "True")
    before = {pod.metadata.uid for pod in await world.pods()}

    await lay(world, seed("podclique"))
    await told(world, "prefill-decode-clique", "False", "WaitingForRollout")
    await world.quiet()
    assert {pod.metadata.uid for pod in await world.pods()} == before

    await edit_rule(world, "prefill-decode-clique", {"metadata": {"annotations": {"grove.dynamo.ai/apply": "now"}}})
    await told(world, "prefill-decode-clique", "True", "Applied")

    async def replaced() -> bool:
        return not before & {pod.metadata.uid for pod in await world.pods()}

    await world.eventually(replaced, 90)
    await said(world, PodGangSet, "late", "Ready", "True")


async def test_the_next_rollout_takes_a_waiting_rule_along(world: World) -> None:
    await apply(world, gang_set("next", 1, labels=WORKER))
    await said(world, PodGangSet, "next", "Ready", "True")
    await lay(world, seed("podclique"))
    await told(world, "prefill-decode-clique", "False", "WaitingForRollout")
    template = {"metadata": {"labels": WORKER}, "spec": pod_spec(priority=None)}
    await edit(world, PodGangSet, "next", {"spec": {"template": template}})
    await told(world, "prefill-decode-clique", "True", "Applied")
    spec = (await world.get(PodCliqueSet, "next")).spec.template.cliques[0].spec.pod_spec
    assert spec["affinity"]["podAffinity"][PREFERRED][0]["weight"] == 100


async def test_a_selector_that_matches_nothing_is_reported(world: World) -> None:
    await lay(world, seed("podclique"))
    await told(world, "prefill-decode-clique", "False", "NothingMatches")


async def edit_rule(world: World, name: str, patch: Json) -> None:
    await world.client.patch(PlacementPodClique, name, patch, world.namespace)


async def test_the_pods_of_a_gang_are_spread_over_racks(world: World) -> None:
    name = await topology(world)
    obj = gang_set("spread", 2, labels={"app": "spread"})
    entry = {"topologyKey": RACK, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    obj["spec"]["scheduling"] = {"topologySpread": [entry]}
    await apply(world, obj)
    await said(world, PodGangSet, "spread", "Ready", "True")
    [clique] = (await world.get(PodCliqueSet, "spread")).spec.template.cliques
    assert clique.spread_constraint is not None
    assert (clique.spread_constraint.topology_name, clique.spread_constraint.domain) == (name, "rack")
    assert len(await racks(world, app="spread")) == 2
