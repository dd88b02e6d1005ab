"""What the scheduler takes, what it leaves alone, and what it says: gates, missing pods, bad input, single pods."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.gangs import Bench, gang, gang_json, group, member_json, pod_json, priorities, scheduling

from grove.api.core import Event, Node, Pod
from grove.api.meta import find_condition
from grove.api.podgang import PodGang
from grove.sim.topology import Topology

pytestmark = pytest.mark.real_in("soak")

GATE = {"schedulingGates": [{"name": "grove.io/podgang-pending-creation"}]}


def initialized(status: str) -> dict[str, Any]:
    condition = {
        "type": "Initialized",
        "status": status,
        "reason": "PodGangPodsCreated",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"status": {"phase": "Pending", "conditions": [condition]}}


async def test_a_pod_without_a_gang_is_placed_by_itself(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.create_pod(pod_json("alone", bench.namespace))
        await bench.create_pod(pod_json("waits", bench.namespace))
        await bench.expect({"/": 1})
        waiting = next(pod for pod in await bench.pods() if not pod.spec.node_name)

        async def told() -> Any:
            pod = await bench.client.get(Pod, waiting.metadata.name, bench.namespace)
            return find_condition(pod.status.conditions, "PodScheduled")

        assert "insufficient nvidia.com/gpu" in (await cluster.eventually(told)).message
        await bench.add_nodes(1)
        await bench.expect({"/": 2})


@pytest.mark.simulated
async def test_pods_of_another_scheduler_are_left_alone_and_counted(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        [name] = await bench.add_nodes(1)
        await bench.create_pod(pod_json("theirs", bench.namespace, schedulerName="somebody-else"))
        await bench.expect({})
        await bench.client.bind(bench.namespace, "theirs", name)
        await bench.create_pod(pod_json("ours", bench.namespace))
        await bench.expect({"/": 1})


async def test_a_gated_gang_is_not_touched(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("work", group("w", 2, spec=GATE)))
        await bench.expect({})
        for number in range(2):
            ungate = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
            await bench.client.patch(Pod, f"work-w-{number}", ungate, bench.namespace)
        await bench.expect({"work/w": 2})


async def test_a_gang_whose_maker_is_not_done_is_not_touched(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        work = gang("work", group("w", 2))
        await bench.apply(work, pods=False)
        await bench.client.patch(PodGang, "work", initialized("False"), bench.namespace, subresource="status")
        await bench.create_pods(work)
        await bench.add_nodes(2)
        await bench.expect({})
        await bench.client.patch(PodGang, "work", initialized("True"), bench.namespace, subresource="status")
        await bench.expect({"work/w": 2})
        status = (await bench.podgang("work")).status
        assert find_condition(status.conditions, "Initialized") is not None


async def test_a_gang_waits_for_the_last_pod_it_names_even_beyond_its_minimum(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        work = gang("work", group("w", 3, 1))
        await bench.add_nodes(3)
        await bench.apply(work, pods=False)
        await bench.create_pods(work, only=["work-w-0", "work-w-1"])
        condition = await bench.condition("work", status="False", reason="WaitingForPods")
        assert "work-w-2" in condition.message
        await bench.expect({})
        await bench.create_pods(work, only=["work-w-2"])
        await bench.expect({"work/w": 3})


@pytest.mark.simulated
async def test_pods_may_come_before_their_gang(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        work = gang("work", group("w", 2))
        await bench.add_nodes(2)
        await bench.create_pods(work)
        await bench.expect({})
        await bench.apply(work, pods=False)
        await bench.expect({"work/w": 2})


async def test_a_pod_that_names_a_gang_no_client_made_is_reported(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.create_pods(gang("ghost", group("w", 1)))

        async def told() -> Any:
            pod = await bench.client.get(Pod, "ghost-w-0", bench.namespace)
            return find_condition(pod.status.conditions, "PodScheduled")

        condition = await cluster.eventually(told)
        assert (condition.reason, condition.message) == (
            "SchedulerError",
            "the pod names PodGang ghost, which does not exist",
        )
        await bench.expect({})


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("groups", "says"),
    [
        pytest.param([("w", ["a"]), ("w", ["b"])], "pod group 'w' is listed twice", id="a group twice"),
        pytest.param([("v", ["a"]), ("w", ["a"])], "is listed twice", id="a pod twice"),
        pytest.param([], "names no pods", id="no groups"),
        pytest.param([("w", [])], "names no pods", id="no pods"),
    ],
)
async def test_a_gang_that_contradicts_itself_is_reported(cluster: Any, groups: Any, says: str) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(3)
        spec = {
            "podgroups": [
                {
                    "name": name,
                    "minReplicas": 1,
                    "podReferences": [{"namespace": bench.namespace, "name": p} for p in pods],
                }
                for name, pods in groups
            ]
        }
        meta = {"name": "bad", "namespace": bench.namespace, "labels": {"grove.io/scheduler-name": "grove-scheduler"}}
        await bench.client.create(PodGang, {"metadata": meta, "spec": spec})
        for name in ("a", "b"):
            await bench.create_pod(pod_json(name, bench.namespace))
        await bench.apply(gang("good", group("w", 1)))
        assert says in (await bench.condition("bad", status="False")).message
        await cluster.eventually(lambda: bench.nodes_of("good"))


@pytest.mark.simulated
async def test_two_gangs_cannot_have_one_pod(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        first = gang("first", group("w", 1))
        await bench.apply(first)
        await bench.expect({"first/w": 1})
        twin = gang_json(first, bench.namespace)
        twin["metadata"] |= {"name": "second", "labels": {"grove.io/scheduler-name": "grove-scheduler"}}
        await bench.client.create(PodGang, twin)
        condition = await bench.condition("second", status="False", reason="InvalidPodGang")
        assert f"belongs to PodGang {bench.namespace}/first already" in condition.message


async def test_a_scaled_gang_waits_for_its_base(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.apply(gang("base-sg-0", group("c", 1), base="base"))
        condition = await bench.condition("base-sg-0", status="False", reason="WaitingForBaseGang")
        assert f"{bench.namespace}/base" in condition.message
        await bench.apply(gang("base", group("a", 2)))
        await bench.expect({})
        await bench.add_nodes(2)
        await bench.expect({"base/a": 2, "base-sg-0/c": 1})


@pytest.mark.parametrize("names_it", [True, False], ids=["it names the old gang", "it names nobody"])
async def test_a_gang_takes_over_the_place_of_the_one_it_names(cluster: Any, names_it: bool) -> None:
    async with scheduling(cluster) as bench:
        (large,) = await bench.add_nodes(1, gpus=8)
        await bench.apply(gang("old", group("w", 1)))
        await bench.expect({"old/w": 1})
        (small,) = await bench.add_nodes(1)
        await bench.client.delete(PodGang, "old", bench.namespace)
        (pod,) = await bench.nodes_of("old")
        await bench.client.delete(Pod, pod, bench.namespace, grace_period_s=0)
        await bench.expect({})
        new = gang("new", group("w", 1))
        body = gang_json(new, bench.namespace)
        if names_it:
            body["spec"]["reuseReservationRef"] = {"namespace": bench.namespace, "name": "old"}
        await bench.client.create(PodGang, body)
        await bench.create_pods(new)
        await bench.expect({"new/w": 1})
        assert set((await bench.nodes_of("new")).values()) == {large if names_it else small}


async def test_without_the_feature_gate_pods_are_placed_one_by_one(cluster: Any) -> None:
    async with scheduling(cluster, feature_gates={"GroveIntegration": False}) as bench:
        await bench.add_nodes(1)
        await bench.apply(gang("work", group("w", 2)))
        await bench.expect({"work/w": 1})
        assert not (await bench.podgang("work")).status.conditions


@pytest.mark.simulated
async def test_a_small_gang_passes_a_large_one_that_waits(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(3)
        await bench.apply(gang("large", group("w", 5)))
        await bench.expect({})
        await bench.apply(gang("small", group("w", 2)))
        await bench.expect({"small/w": 2})


@pytest.mark.real_in("test")
async def test_phase_and_ready_follow_the_pods(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("work", group("w", 2)))
        await bench.condition("work", "Ready", status="True")
        assert (await bench.podgang("work")).status.phase == "Running"
        await bench.nodes.set_ready(bench.namespace, "work-w-0", False)
        await bench.condition("work", "Ready", status="False")
        assert (await bench.podgang("work")).status.phase == "Starting"
        await bench.client.delete(Pod, "work-w-0", bench.namespace, grace_period_s=0)
        await bench.condition("work", status="False", reason="PodsLost")
        assert (await bench.podgang("work")).status.phase == "Pending"


@pytest.mark.simulated
async def test_nodes_that_change_under_a_waiting_gang(cluster: Any) -> None:
    """A cordon closes a node, an uncordon opens it: both are events, not timers."""
    async with scheduling(cluster) as bench:
        first, _second = await bench.add_nodes(2)
        await bench.client.patch(Node, first, {"spec": {"unschedulable": True}})
        await cluster.settle(0.5)
        await bench.apply(gang("work", group("w", 2)))
        await bench.expect({})
        await bench.client.patch(Node, first, {"spec": {"unschedulable": None}})
        await bench.expect({"work/w": 2})


@pytest.mark.real_in("test")
async def test_a_gang_at_rest_costs_one_binding_a_pod_and_few_writes(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=3))
        before = bench.client.calls.copy()
        await bench.apply(gang("work", group("w", 20)))
        await bench.expect({"work/w": 20})
        await bench.condition("work", "Ready", status="True")
        spent = bench.client.calls - before
        if cluster.is_sim:  # a busy server is asked twice now and then
            assert spent["create", "pods/binding"] == 20
            assert spent["patch", "podgangs/status"] <= 3
            assert spent["patch", "pods/status"] == 20, "the reports of the fake kubelet, by the same client"
        await bench.event("GangScheduled")
        quiet = bench.client.calls.copy()
        await cluster.settle(5 if cluster.is_sim else 1)
        writes = {what for what in bench.client.calls - quiet if what[0] not in ("get", "list", "watch")}
        assert writes <= {("patch", "leases")}


async def _half_bound(bench: Bench, nodes: int, **annotations: str) -> None:
    """A gang of two as a scheduler leaves it that died after its first bind."""
    names = await bench.add_nodes(nodes)
    await bench.cluster.settle(2)
    await bench.stop()
    await bench.apply(gang("half", group("w", 2), annotations=annotations))
    await bench.client.bind(bench.namespace, "half-w-0", names[0])


@pytest.mark.real_in("test")
async def test_a_restarted_scheduler_completes_what_was_bound_in_part(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await _half_bound(bench, 2)
        await bench.start()
        await bench.expect({"half/w": 2})
        await bench.condition("half", status="True")


@pytest.mark.real_in("test")
async def test_a_gang_bound_in_part_is_taken_back_at_its_deadline(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await _half_bound(bench, 1, **{"scheduling.koordinator.sh/gang-timeout": "3s"})
        await bench.start()
        if cluster.is_sim:  # on a busy machine three seconds may be over before the check
            await bench.expect({"half/w": 1}, quiet_s=0)
        await bench.expect({})
        assert "3 s" in (await bench.event("GangTimeout")).message
        await bench.create_pod(pod_json("other", bench.namespace))
        await bench.expect({"/": 1})


async def test_a_gang_that_stood_is_repaired_and_never_taken_back(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        timeout = {"scheduling.koordinator.sh/gang-timeout": "1"}
        await bench.apply(work := gang("work", group("w", 2), annotations=timeout))
        await bench.condition("work", status="True")
        await bench.client.delete(Pod, "work-w-1", bench.namespace, grace_period_s=0)
        await bench.condition("work", status="False", reason="PodsLost")
        await bench.stop()
        await bench.start()
        await cluster.settle(3)
        await bench.expect({"work/w": 1})
        await bench.create_pods(work, only=["work-w-1"])
        await bench.expect({"work/w": 2})


@pytest.mark.real_in("test")
async def test_pods_bound_by_another_client_count_for_their_gang(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        [name] = await bench.add_nodes(1)
        work = gang("work", group("w", 2))
        await bench.apply(work, pods=False)
        await bench.create_pods(work, only=["work-w-0"])
        await bench.client.bind(bench.namespace, "work-w-0", name)
        await bench.add_nodes(1)
        await bench.create_pods(work, only=["work-w-1"])
        await bench.expect({"work/w": 2})
        await bench.condition("work", status="True")


@pytest.mark.simulated
async def test_absurd_requests_do_not_stop_others(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        huge = member_json(gang("huge", group("w", 1)), group("w", 1), 0, bench.namespace)
        huge["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9223372036854775807"}}
        await bench.apply(gang("huge", group("w", 1)), pods=False)
        await bench.create_pod(huge)
        await bench.apply(gang("fine", group("w", 1)))
        await bench.expect({"fine/w": 1})
        await bench.condition("huge", status="False", reason="Unschedulable")


@pytest.mark.simulated
async def test_a_pod_without_a_gang_reports_on_itself_and_never_on_a_podgang_of_its_name(cluster: Any) -> None:
    """The pod `work` preempts another pod, waits for its node, and is bound, beside the PodGang `work`."""
    async with priorities(cluster, low=1, high=100), scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("work", group("w", 1), priority_class="high"))
        await bench.create_pod(pod_json("victim", bench.namespace, priorityClassName="low"))
        await bench.expect({"work/w": 1, "/": 1})
        await cluster.settle(60)
        before = await bench.client.get(PodGang, "work", bench.namespace)
        await bench.create_pod(pod_json("work", bench.namespace, priorityClassName="high"))
        await bench.create_pod(pod_json("waits", bench.namespace, priorityClassName="low"))
        await cluster.settle(86400)
        pods = {pod.metadata.name: pod for pod in await bench.pods()}
        assert pods["work"].spec.node_name
        assert "victim" not in pods
        said = find_condition(pods["waits"].status.conditions, "PodScheduled")
        assert said is not None
        assert said.status == "False"
        after = await bench.client.list(PodGang, bench.namespace)
        assert [(one.metadata.name, one.status) for one in after.items] == [("work", before.status)]
        events = (await bench.client.list(Event, bench.namespace)).items
        said_of = {(one.involved_object.kind, one.involved_object.name, one.reason) for one in events}
        assert {one for one in said_of if one[0] == "PodGang"} == {("PodGang", "work", "GangScheduled")}
        assert {one for one in said_of if one[2] == "FailedScheduling"} == {("Pod", "waits", "FailedScheduling")}


@pytest.mark.simulated
async def test_a_podgang_takes_over_pods_that_waited_without_one(cluster: Any) -> None:
    """One of its pods is bound, the other waits for a node. When the PodGang is deleted, the pod waits alone again."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        work = gang("work", group("w", 2))
        for number in range(2):
            await bench.create_pod(pod_json(f"work-w-{number}", bench.namespace))
        await cluster.settle(60)
        assert len([pod for pod in await bench.pods() if pod.spec.node_name]) == 1
        await bench.client.create(PodGang, gang_json(work, bench.namespace))
        await cluster.settle(60)
        assert (await bench.condition("work")).status == "False"
        await bench.client.delete(PodGang, "work", bench.namespace)
        await bench.add_nodes(1)
        await cluster.settle(60)
        assert len([pod for pod in await bench.pods() if pod.spec.node_name]) == 2
