"""Preemption: whole gangs of lower priority are evicted, budgets count, and the capacity is held until they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.gangs import Gang, add_priority, gang, gang_json, group, pod_json, scheduling

from grove.api.core import Node, Pod, PodDisruptionBudget, PriorityClass
from grove.api.meta import find_condition
from grove.api.podgang import PodGang

pytestmark = pytest.mark.real_in("soak")

RACK = "example.com/rack"


@pytest.fixture
async def classes(cluster: Any) -> AsyncIterator[dict[str, str]]:
    """Names of priority classes of this test: low 100, high 1000, and `calm` 1000 that never preempts."""
    names = {name: f"{cluster.namespace}-{name}" for name in ("low", "high", "calm")}
    for name, value, policy in (("low", 100, None), ("high", 1000, None), ("calm", 1000, "Never")):
        extra = {"preemptionPolicy": policy} if policy else {}
        await add_priority(cluster, names[name], value, **extra)
    yield names
    for name in names.values():
        await cluster.client.delete(PriorityClass, name)


@pytest.mark.real_in("test")
async def test_a_lower_gang_goes_whole_and_is_reported_why(cluster: Any, classes: dict[str, str]) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await bench.apply(gang("low", group("w", 3), priority_class=classes["low"]))
        await bench.condition("low", status="True")
        await bench.apply(gang("high", group("w", 2), priority_class=classes["high"]))
        await bench.expect({"high/w": 2})
        target = find_condition((await bench.podgang("low")).status.conditions, "DisruptionTarget")
        assert target is not None
        assert (target.status, target.reason) == ("True", "PreemptedByHigherPriority")
        assert f"{bench.namespace}/high" in target.message
        assert (await bench.event("GangPreempting")).involved_object.name == "high"
        assert (await bench.event("GangPreempted")).involved_object.name == "low"


async def test_surplus_goes_before_anybodys_minimum(cluster: Any, classes: dict[str, str]) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await bench.apply(gang("low", group("w", 4, 2), priority_class=classes["low"]))
        await bench.expect({"low/w": 4})
        await bench.apply(gang("high", group("w", 2), priority_class=classes["high"]))
        await bench.expect({"low/w": 2, "high/w": 2})
        await bench.condition("low", status="True")
        assert find_condition((await bench.podgang("low")).status.conditions, "DisruptionTarget") is None


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("below", "above"),
    [
        pytest.param("high", "high", id="equal priority"),
        pytest.param("high", "low", id="lower priority"),
        pytest.param("low", "calm", id="a class that never preempts"),
    ],
)
async def test_who_may_not_preempt_waits(cluster: Any, classes: dict[str, str], below: str, above: str) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("first", group("w", 2), priority_class=classes[below]))
        await bench.expect({"first/w": 2})
        await bench.apply(gang("second", group("w", 2), priority_class=classes[above]))
        await bench.expect({"first/w": 2})
        await bench.condition("second", status="False", reason="Unschedulable")


@pytest.mark.simulated
async def test_no_gang_is_evicted_in_vain(cluster: Any, classes: dict[str, str]) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("low", group("w", 2), priority_class=classes["low"]))
        await bench.expect({"low/w": 2})
        await bench.apply(gang("huge", group("w", 3), priority_class=classes["high"]))
        await bench.expect({"low/w": 2})


@pytest.mark.real_in("test")
async def test_a_disruption_budget_is_waited_for(cluster: Any, classes: dict[str, str]) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        guarded = pod_json("guarded", bench.namespace, priorityClassName=classes["low"])
        guarded["metadata"]["labels"] = {"app": "guarded"}
        await bench.create_pod(guarded)
        await bench.expect({"/": 1})
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
        meta = {"name": "keep", "namespace": bench.namespace}
        await bench.client.create(PodDisruptionBudget, {"metadata": meta, "spec": budget})

        async def counted() -> Any:
            found = await bench.client.get(PodDisruptionBudget, "keep", bench.namespace)
            return found.status.observed_generation

        await cluster.eventually(counted)
        await bench.seen(PodDisruptionBudget, "keep", bench.namespace)
        await bench.apply(gang("high", group("w", 1), priority_class=classes["high"]))
        condition = await bench.condition("high", status="False", reason="Unschedulable")
        assert f"{bench.namespace}/keep" in condition.message
        await bench.expect({"/": 1})
        await bench.client.delete(PodDisruptionBudget, "keep", bench.namespace)
        await bench.expect({"high/w": 1}, timeout_s=60)


@pytest.mark.simulated
async def test_who_comes_after_a_preemptor_that_went_has_the_same_victim_evicted(
    cluster: Any, classes: dict[str, str]
) -> None:
    """The eviction for the first waits between two tries when the second needs the pod too: it goes on for that one."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        guarded = pod_json("guarded", bench.namespace, priorityClassName=classes["low"])
        guarded["metadata"]["labels"] = {"app": "guarded"}
        await bench.create_pod(guarded)
        await bench.expect({"/": 1})
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
        meta = {"name": "keep", "namespace": bench.namespace}
        await bench.client.create(PodDisruptionBudget, {"metadata": meta, "spec": budget})
        await cluster.settle(2)
        await bench.apply(gang("first", group("w", 1), priority_class=classes["high"]))
        await bench.condition("first", status="False", reason="Unschedulable")
        await cluster.settle(30)
        await bench.client.delete(PodGang, "first", bench.namespace)
        await bench.client.delete(Pod, "first-w-0", bench.namespace, grace_period_s=0)
        await bench.apply(gang("second", group("w", 1), priority_class=classes["high"]))
        await bench.condition("second", status="False", reason="Unschedulable")
        await cluster.settle(15)
        await bench.client.delete(PodDisruptionBudget, "keep", bench.namespace)
        await bench.expect({"second/w": 1})


async def test_the_place_is_kept_while_victims_take_their_time(cluster: Any, classes: dict[str, str]) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        bench.nodes.stop_s = 3.0
        await bench.apply(gang("low", group("w", 2), priority_class=classes["low"]))
        await bench.expect({"low/w": 2})
        await bench.apply(gang("high", group("w", 2), priority_class=classes["high"]))
        await bench.condition("high", status="False", reason="Preempting")
        told = await bench.condition("high", "Nominated", status="True", reason="WaitingForVictims")
        assert told.message == f"evicting 2 pods of lower priority, whole gangs: {bench.namespace}/low"
        await bench.create_pod(pod_json("thief", bench.namespace, priorityClassName=classes["low"]))
        await bench.expect({"high/w": 2})
        await bench.condition("high", status="True")
        assert find_condition((await bench.podgang("high")).status.conditions, "Nominated") is None


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("made", "change"),
    [
        pytest.param(gang("high", group("w", 2), required=RACK), "rack", id="one of its nodes goes to another rack"),
        pytest.param(gang("high", group("w", 3, 2)), "minimum", id="its minimum is raised"),
    ],
)
async def test_a_kept_place_is_given_back_when_it_is_not_what_the_gang_asks_for_any_more(
    cluster: Any, classes: dict[str, str], made: Gang, change: str
) -> None:
    async with scheduling(cluster) as bench:
        nodes = await bench.add_nodes(2)
        for node in nodes:
            await bench.client.patch(Node, node, {"metadata": {"labels": {RACK: "a"}}})
        for number, node in enumerate(nodes):
            victim = pod_json(f"low-{number}", bench.namespace, priorityClassName=classes["low"], nodeName=node)
            victim["metadata"]["finalizers"] = ["grove.io/test"]  # it takes its time
            await bench.client.create(Pod, victim)
        await cluster.settle(2)
        high = replace(made, priority_class=classes["high"])
        await bench.apply(high)
        await bench.condition("high", status="False", reason="Preempting")
        if change == "rack":
            await bench.client.patch(Node, nodes[1], {"metadata": {"labels": {RACK: "b"}}})
        else:
            more = gang_json(replace(high, groups=(group("w", 3, 3),)), bench.namespace)
            await bench.client.patch(PodGang, "high", {"spec": more["spec"]}, bench.namespace)
        await cluster.settle(2)
        for number in range(2):
            await bench.client.patch(Pod, f"low-{number}", {"metadata": {"finalizers": None}}, bench.namespace)
        await bench.condition("high", status="False", reason="Unschedulable")
        await bench.expect({})
