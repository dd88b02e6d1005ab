"""ClusterTopologyBindings: the operator translates them into PodGangs, reports them on sets, and follows changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import TOPOLOGY, Operating, World, condition, operating

from grove.api import labels as key
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]

LEVELS = [
    {"domain": "block", "key": "topology.kubernetes.io/block"},
    {"domain": "rack", "key": "topology.kubernetes.io/rack"},
    {"domain": "host", "key": "kubernetes.io/hostname"},
]
UNAVAILABLE = "TopologyLevelsUnavailable"

OPERATING = Operating(config=TOPOLOGY)


@pytest.fixture
async def binding(world: World) -> AsyncIterator[str]:
    """A binding of this test's own: they live in the cluster, not in a namespace."""
    name = f"{world.namespace}-levels"
    await world.client.create(ClusterTopologyBinding, {"metadata": {"name": name}, "spec": {"levels": LEVELS}})
    yield name
    if any(one.metadata.name == name for one in (await world.client.list(ClusterTopologyBinding)).items):
        await world.client.delete(ClusterTopologyBinding, name)


def constrained(binding: str) -> Json:
    work = clique("work", 2, topology={"pack": {"preferred": "host"}})
    members = group("grp", "lead", "work", replicas=2, topologyConstraint={"pack": {"required": "rack"}})
    block = {"topologyName": binding, "pack": {"required": "block"}}
    return pcs("demo", clique("router"), clique("lead"), work, groups=[members], topologyConstraint=block)


@pytest.mark.real_in("test")
async def test_constraints_reach_the_gangs_as_node_labels(world: World, binding: str) -> None:
    await world.apply(constrained(binding))
    pcs_ = await world.available("demo")

    base, scaled = await world.get(PodGang, "demo-0"), await world.get(PodGang, "demo-0-grp-0")
    assert base.spec.topology_constraint is not None
    assert base.spec.topology_constraint.required == "topology.kubernetes.io/block"
    (entry,) = base.spec.topology_constraint_group_configs
    assert entry.name == "demo-0-grp-0"
    assert entry.pod_group_names == ("demo-0-grp-0-lead", "demo-0-grp-0-work")
    assert entry.topology_constraint is not None
    assert entry.topology_constraint.required == "topology.kubernetes.io/rack"
    preferred = [one.topology_constraint.preferred for one in base.spec.podgroups if one.topology_constraint]
    assert preferred == ["kubernetes.io/hostname"]
    assert scaled.spec.topology_constraint is not None
    assert scaled.spec.topology_constraint.required == "topology.kubernetes.io/rack"
    assert base.metadata.annotations[key.TOPOLOGY_NAME] == binding
    assert condition(pcs_.status.conditions, UNAVAILABLE) == ("False", "AllClusterTopologyLevelsAvailable")


@pytest.mark.simulated
async def test_required_domains_reach_the_pods_as_affinity_if_the_set_asks_for_it(world: World, binding: str) -> None:
    asking = constrained(binding)
    asking["metadata"]["annotations"] = {key.DOMAIN_AFFINITY: "true"}
    await world.apply(asking)
    await world.available("demo")
    seen = {}
    for pod in await world.pods():
        affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity is not None else None
        assert affinity is not None
        assert pod.metadata.annotations[key.DOMAIN_AFFINITY] == "true"
        selectors = [term.label_selector for term in affinity.required]
        own = [one for one in selectors if one is not None and one.match_labels.items() <= pod.metadata.labels.items()]
        assert len(own) == len(selectors), "each pod is among those it selects, so the first one fits anywhere"
        seen[pod.metadata.labels[key.CLIQUE_NAME]] = [term.topology_key for term in affinity.required]
    block, rack = "topology.kubernetes.io/block", "topology.kubernetes.io/rack"
    assert seen == {"router": [block], "lead": [block, rack], "work": [block, rack]}


async def test_a_level_that_goes_is_reported_and_its_constraint_with_it(world: World, binding: str) -> None:
    await world.apply(constrained(binding))
    await world.available("demo")
    pods = {pod.metadata.uid for pod in await world.pods()}

    await world.client.patch(ClusterTopologyBinding, binding, {"spec": {"levels": [LEVELS[0], LEVELS[2]]}})

    async def told() -> bool:
        found = await world.get(PodCliqueSet, "demo")
        said = condition(found.status.conditions, UNAVAILABLE)
        gang = await world.get(PodGang, "demo-0-grp-0")
        return said == ("True", "ClusterTopologyLevelsUnavailable") and gang.spec.topology_constraint is None

    await world.eventually(told)
    assert {pod.metadata.uid for pod in await world.pods()} == pods


async def test_a_binding_that_goes_and_comes_is_followed(world: World, binding: str) -> None:
    await world.apply(constrained(binding))
    await world.available("demo")

    await world.client.delete(ClusterTopologyBinding, binding)

    async def unknown() -> bool:
        found = await world.get(PodCliqueSet, "demo")
        gang = await world.get(PodGang, "demo-0")
        said = condition(found.status.conditions, UNAVAILABLE)
        return said == ("Unknown", "ClusterTopologyNotFound") and gang.spec.topology_constraint is None

    await world.eventually(unknown)
    assert key.TOPOLOGY_NAME not in (await world.get(PodGang, "demo-0")).metadata.annotations

    again = {"metadata": {"name": binding}, "spec": {"levels": LEVELS}}
    await world.client.create(ClusterTopologyBinding, again)

    async def back() -> bool:
        found = await world.get(PodCliqueSet, "demo")
        gang = await world.get(PodGang, "demo-0")
        said = condition(found.status.conditions, UNAVAILABLE)
        return said == ("False", "AllClusterTopologyLevelsAvailable") and gang.spec.topology_constraint is not None

    await world.eventually(back)


async def test_a_binding_says_which_schedulers_know_it(world: World, binding: str) -> None:
    async def said() -> bool:
        found = await world.client.get(ClusterTopologyBinding, binding)
        return condition(found.status.conditions, "SchedulerTopologyDrift") == ("False", "InSync")

    await world.eventually(said)

    named = [{"schedulerName": "nobody", "topologyReference": "x"}]
    await world.client.patch(ClusterTopologyBinding, binding, {"spec": {"schedulerTopologyBindings": named}})

    async def in_vain() -> bool:
        found = await world.client.get(ClusterTopologyBinding, binding)
        return condition(found.status.conditions, "SchedulerTopologyDrift") == ("Unknown", "TopologyNotFound")

    await world.eventually(in_vain)


async def test_constraints_are_not_applied_while_topology_is_switched_off(cluster: object) -> None:
    async with operating(cluster) as world:
        await world.apply(constrained("any"))
        pcs_ = await world.available("demo")

        assert condition(pcs_.status.conditions, UNAVAILABLE) == ("Unknown", "TopologyAwareSchedulingDisabled")
        assert (await world.get(PodGang, "demo-0")).spec.topology_constraint is None
