"""Pods have the reason `Unschedulable` exactly while new nodes could help: node autoscalers buy nodes for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster import BUSY_S
from tests.support.fleet import GPU, QUOTA, elastic, install
from tests.support.gangs import Bench, Wrong, gang, group, pod_json, priorities, scheduling

from grove.api.core import Pod, PodDisruptionBudget
from grove.api.koordinator import ElasticQuota
from grove.sim.topology import Topology

UNSCHEDULABLE = "Unschedulable"


async def reasons(bench: Bench, name: str) -> set[str]:
    """Reasons of PodScheduled=False over the pods of a gang, or of the pod of that name."""
    pods = [pod for pod in await bench.pods() if pod.metadata.name.startswith(name)]
    return {pod.waits_for for pod in pods}


async def have_reason(bench: Bench, name: str, reason: str, timeout_s: float = BUSY_S) -> None:
    async def reached() -> Any:
        found = await reasons(bench, name)
        return found == {reason} or Wrong(found)

    await bench.cluster.eventually(reached, timeout_s)


async def test_a_gang_that_its_quota_stops_is_no_longer_unschedulable(cluster: Any) -> None:
    await install(cluster, "ElasticQuota")
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        team = f"{bench.namespace}-a"
        await bench.client.create(ElasticQuota, elastic(team, bench.namespace, 2, 4))
        await bench.seen(ElasticQuota, team, bench.namespace)
        await bench.apply(gang("big", group("w", 4), labels={QUOTA: team}))
        await have_reason(bench, "big", UNSCHEDULABLE)
        await bench.client.patch(ElasticQuota, team, {"spec": {"max": {GPU: 3}}}, bench.namespace)
        await bench.condition("big", status="False", reason="QuotaExceeded")
        await have_reason(bench, "big", "QuotaExceeded")
        await bench.client.patch(ElasticQuota, team, {"spec": {"max": {GPU: 4}}}, bench.namespace)
        await bench.condition("big", status="False", reason=UNSCHEDULABLE)
        if cluster.is_sim:  # a text that was changed is changed again after a minute
            await have_reason(bench, "big", UNSCHEDULABLE, 90)
        await bench.client.delete(ElasticQuota, team, bench.namespace)


@pytest.mark.simulated
async def test_a_gang_whose_quota_others_take_is_no_longer_unschedulable(cluster: Any) -> None:
    await install(cluster, "ElasticQuota")
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        team = f"{bench.namespace}-a"
        await bench.client.create(ElasticQuota, elastic(team, bench.namespace, 4, 4))
        await bench.seen(ElasticQuota, team, bench.namespace)
        await bench.apply(gang("big", group("w", 4), labels={QUOTA: team}))
        await have_reason(bench, "big", UNSCHEDULABLE)
        await bench.apply(gang("small", group("w", 2), labels={QUOTA: team}))
        await bench.expect({"small/w": 2})
        await have_reason(bench, "big", "QuotaExceeded", 5)


@pytest.mark.simulated
async def test_pods_above_the_minimum_that_the_quota_stops_are_not_unschedulable(cluster: Any) -> None:
    await install(cluster, "ElasticQuota")
    async with scheduling(cluster) as bench:
        await bench.add_nodes(6)
        team = f"{bench.namespace}-a"
        await bench.client.create(ElasticQuota, elastic(team, bench.namespace, 2, 3))
        await bench.seen(ElasticQuota, team, bench.namespace)
        await bench.apply(gang("soft", group("w", 5, 2), labels={QUOTA: team}))
        await bench.expect({"soft/w": 3})
        await cluster.settle(600)
        assert await reasons(bench, "soft") == {"", "QuotaExceeded"}


@pytest.mark.simulated
async def test_a_gang_that_a_hold_keeps_out_is_not_unschedulable_and_the_owner_of_the_hold_is(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("there", group("w", 1)))
        await bench.expect({"there/w": 1})
        await bench.apply(gang("large", group("w", 2)))
        await cluster.settle(300)
        await bench.condition("large", "NodesHeld", status="True")
        await bench.apply(gang("small", group("w", 1)))
        await have_reason(bench, "small", "NodesHeldForOthers")
        await cluster.settle(600)
        assert await reasons(bench, "small") == {"NodesHeldForOthers"}
        assert await reasons(bench, "large") == {UNSCHEDULABLE}


@pytest.mark.simulated
async def test_a_gang_with_a_pod_larger_than_every_node_is_unschedulable_because_larger_nodes_may_exist(
    cluster: Any,
) -> None:
    """The scheduler does not know which types of nodes can be bought. So some may be bought for the small pod alone."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.apply(gang("mixed", group("small", 1), group("huge", 1, gpus=64)))
        await have_reason(bench, "mixed", UNSCHEDULABLE)
        await cluster.settle(600)
        assert await reasons(bench, "mixed") == {UNSCHEDULABLE}


@pytest.mark.simulated
async def test_a_scaled_gang_that_waits_for_its_base_is_not_unschedulable_and_the_base_is(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.apply(gang("base", group("w", 2)), gang("more", group("w", 1), base="base"))
        await have_reason(bench, "base", UNSCHEDULABLE)
        await cluster.settle(600)
        assert await reasons(bench, "more") == {""}
        await bench.add_nodes(1)
        await have_reason(bench, "more", UNSCHEDULABLE)


@pytest.mark.simulated
@pytest.mark.parametrize("alone", [False, True], ids=["gang", "pod"])
async def test_what_waits_for_its_victims_is_no_longer_unschedulable(cluster: Any, alone: bool) -> None:
    """First a budget of disruptions protects the only victim, then the victim takes long to end."""
    async with priorities(cluster, low=100, high=1000), scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=1, gpus=1), stop_s=60.0)
        slow = group("w", 1, spec={"terminationGracePeriodSeconds": 300})
        await bench.apply(gang("low", slow, priority_class="low"))
        await bench.expect({"low/w": 1})
        kept = {"name": "kept", "namespace": bench.namespace}
        await bench.client.create(PodDisruptionBudget, {"metadata": kept, "spec": {"minAvailable": 1, "selector": {}}})
        await bench.seen(PodDisruptionBudget, "kept", bench.namespace)
        if alone:
            await bench.create_pod(pod_json("high", bench.namespace, priorityClassName="high"))
        else:
            await bench.apply(gang("high", group("w", 1), priority_class="high"))
        await have_reason(bench, "high", UNSCHEDULABLE)
        await bench.client.delete(PodDisruptionBudget, "kept", bench.namespace)
        await have_reason(bench, "high", "Preempting")
        await bench.client.delete(Pod, "low-w-0", bench.namespace, grace_period_s=0)
        await cluster.eventually(lambda: _is_bound(bench, "high"))


async def _is_bound(bench: Bench, name: str) -> bool:
    return all(pod.spec.node_name for pod in await bench.pods() if pod.metadata.name.startswith(name))
