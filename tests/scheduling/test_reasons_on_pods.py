"""Every pod without a node has a reason, and a gang that cannot be read does not stop others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.gangs import Bench, Wrong, constraint, gang, gang_json, group, member_json, scheduling

from grove.api.core import Node, Pod
from grove.api.meta import Json, find_condition
from grove.api.podgang import PodGang
from grove.sim.topology import RACK, Topology


async def reason_of(bench: Bench, name: str, words: str = "") -> str:
    """What the pod's PodScheduled condition says once it has these words; autoscalers and users read it."""

    async def told() -> Any:
        pod = await bench.client.get(Pod, name, bench.namespace)
        found = find_condition(pod.status.conditions, "PodScheduled")
        return found if found is not None and found.status == "False" and words in found.message else Wrong(found)

    condition = await bench.cluster.eventually(told)
    assert condition.reason == "Unschedulable"
    message: str = condition.message
    return message


async def test_pods_above_the_minimum_that_find_no_place_are_reported_and_their_gang_stands(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("work", group("w", 3, minimum=2)))
        said = await reason_of(bench, "work-w-2", "nodes can take one more pod of the gang")
        assert "insufficient nvidia.com/gpu" in said
        await bench.condition("work", status="True", reason="GangScheduled")
        await bench.add_nodes(1)
        await bench.expect({"work/w": 3})


@pytest.mark.simulated
async def test_a_minimum_that_was_raised_says_what_is_missing_and_why(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("work", group("w", 3, minimum=2)))
        await bench.expect({"work/w": 2})
        more = gang_json(gang("work", group("w", 3)), bench.namespace)
        await bench.client.patch(PodGang, "work", {"spec": more["spec"]}, bench.namespace)

        async def told() -> Any:
            found = find_condition((await bench.podgang("work")).status.conditions, "Scheduled")
            return found if found is not None and "insufficient" in found.message else None

        condition = await cluster.eventually(told)
        assert (condition.status, condition.reason) == ("False", "PodsLost")
        assert condition.message == (
            "w: 0/2 nodes can take one of its pods (2 insufficient nvidia.com/gpu); "
            "pods are missing since the gang was placed: w 2/3"
        )
        await bench.expect({"work/w": 2})
        await bench.add_nodes(1)
        await bench.expect({"work/w": 3})
        await bench.condition("work", status="True", reason="GangScheduled")


@pytest.mark.simulated
async def test_a_lost_pod_that_finds_no_place_again_is_reported_why(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        lost, _ = await bench.add_nodes(2)
        work = gang("work", group("w", 2))
        await bench.apply(work)
        await bench.expect({"work/w": 2})
        name = next(pod for pod, node in (await bench.nodes_of("work")).items() if node == lost)
        await bench.client.patch(Node, lost, {"spec": {"unschedulable": True}})
        await bench.client.delete(Pod, name, bench.namespace, grace_period_s=0)
        await bench.create_pods(work, only=[name])
        assert "insufficient nvidia.com/gpu" in await reason_of(bench, name)
        await bench.client.patch(Node, lost, {"spec": {"unschedulable": None}})
        await bench.expect({"work/w": 2})


@pytest.mark.simulated
@pytest.mark.parametrize("ended", [False, True], ids=["deleted", "ended"])
async def test_a_gang_that_has_no_pods_any_more_is_not_said_to_be_scheduled(cluster: Any, ended: bool) -> None:
    """Only its pods show that it is ours."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        work = gang("work", group("w", 2))
        await bench.apply(work)
        await bench.condition("work", status="True", reason="GangScheduled")
        for name in ("work-w-0", "work-w-1"):
            if ended:
                done = {"status": {"phase": "Succeeded"}}
                await bench.client.patch(Pod, name, done, bench.namespace, subresource="status")
            else:
                await bench.client.delete(Pod, name, bench.namespace, grace_period_s=0)
        condition = await bench.condition("work", status="False", reason="WaitingForPods")
        assert f"do not exist, or have ended: {bench.namespace}/work-w-0" in condition.message
        await bench.apply(gang("next", group("w", 2)))
        await cluster.eventually(lambda: bench.nodes_of("next"), timeout_s=120)  # first its pods might be made again


@pytest.mark.simulated
@pytest.mark.parametrize("minimum", [0, -1])
async def test_a_gang_without_a_minimum_is_placed_as_far_as_there_is_capacity(cluster: Any, minimum: int) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.apply(gang("busy", group("w", 1)))
        await bench.expect({"busy/w": 1})
        await bench.apply(gang("any", group("w", 2, minimum=minimum)))
        await bench.condition("any", status="False", reason="Unschedulable")
        await bench.add_nodes(1)
        await bench.expect({"busy/w": 1, "any/w": 1})
        await bench.condition("any", status="True", reason="GangScheduled")


@pytest.mark.simulated
async def test_a_scaled_gang_says_whether_its_base_exists(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("scaled", group("w", 1), base="base"))
        condition = await bench.condition("scaled", reason="WaitingForBaseGang")
        assert condition.message == f"waits for its base PodGang {bench.namespace}/base, which does not exist"
        await bench.apply(gang("base", group("w", 3)))
        words = f"waits for its base PodGang {bench.namespace}/base to be scheduled"
        await bench.condition("scaled", reason="WaitingForBaseGang", message=words)
        await bench.add_nodes(2)
        await bench.expect({"base/w": 3, "scaled/w": 1})


def with_parts(*parts: tuple[str, list[str]]) -> Json:
    """Constraint groups of these names over these pod groups."""
    return {
        "topologyConstraintGroupConfigs": [
            {"name": name, "podGroupNames": groups, **constraint(RACK)} for name, groups in parts
        ]
    }


def asking(**requests: str) -> Json:
    return {"requests": requests, "limits": requests}


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("spec", "resources", "reason", "says"),
    [
        pytest.param(
            with_parts(("x", ["none"])),
            None,
            "InvalidPodGang",
            "constraint group 'x' names unknown pod group 'none'",
            id="a constraint group of groups that do not exist",
        ),
        pytest.param(
            with_parts(("x", ["w"]), ("y", ["w"])),
            None,
            "InvalidPodGang",
            "pod group 'w' is in two constraint groups",
            id="constraint groups that overlap",
        ),
        pytest.param(
            {"podgroups": [{"name": "w", "minReplicas": 3}]},
            None,
            "Unschedulable",
            "group w needs 3 pods and has 1",
            id="a minimum of more pods than are named",
        ),
        pytest.param(
            constraint("example.com/none"), None, "Unschedulable", "example.com/none", id="an unknown topology level"
        ),
        pytest.param(
            {}, asking(cpu="-5"), "Unschedulable", "less than nothing is requested of cpu", id="a negative request"
        ),
        pytest.param({}, asking(cpu="many"), "Unschedulable", "not a quantity: 'many'", id="a request of no number"),
        pytest.param({}, asking(memory="9223372036854775807"), "Unschedulable", "memory", id="an absurd request"),
        pytest.param(
            {},
            asking(**{"example.com/horn": "1"}),
            "Unschedulable",
            "insufficient example.com/horn",
            id="a resource that no node has",
        ),
    ],
)
async def test_bad_input_is_a_condition_that_says_so_and_others_go_on(
    cluster: Any, spec: Json, resources: Json | None, reason: str, says: str
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_topology(Topology(nodes=1, gpus=2))
        bad = gang("bad", group("w", 1))
        podgang = gang_json(bad, bench.namespace)
        refs = podgang["spec"]["podgroups"][0]["podReferences"]
        podgang["spec"] |= {key: value for key, value in spec.items() if key != "podgroups"}
        for entry in spec.get("podgroups", ()):
            podgang["spec"]["podgroups"] = [{**entry, "podReferences": refs}]
        pod = member_json(bad, bad.groups[0], 0, bench.namespace)
        if resources is not None:
            pod["spec"]["containers"][0]["resources"] = resources
        await bench.client.create(PodGang, podgang)
        await bench.create_pod(pod)
        condition = await bench.condition("bad", status="False", reason=reason)
        assert says in condition.message
        await bench.apply(gang("good", group("w", 1)))
        await bench.expect({"good/w": 1})


@pytest.mark.simulated
async def test_a_node_that_says_nothing_of_what_it_has_takes_nothing(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        empty, other = await bench.add_nodes(2)
        nothing = {"status": {"allocatable": None, "capacity": None}}
        await bench.client.patch(Node, empty, nothing, subresource="status")
        await bench.apply(gang("work", group("w", 2)), gang("good", group("w", 1)))
        await bench.expect({"good/w": 1})
        assert list((await bench.nodes_of("good")).values()) == [other]
        assert "1/2 nodes" in (await bench.condition("work", status="False", reason="Unschedulable")).message


@pytest.mark.simulated
@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "without the pods"])
async def test_a_gang_whose_pods_were_anothers_is_sound_once_that_lets_go_of_them(cluster: Any, gone: bool) -> None:
    async with scheduling(cluster) as bench:
        first = gang("first", group("w", 2))
        await bench.apply(first)
        second = gang_json(first, bench.namespace)
        second["metadata"]["name"] = "second"
        await bench.client.create(PodGang, second)
        told = await bench.condition("second", status="False", reason="InvalidPodGang")
        assert told.message == f"pod {bench.namespace}/first-w-0 belongs to PodGang {bench.namespace}/first already"
        if gone:
            await bench.client.delete(PodGang, "first", bench.namespace)
        else:
            await bench.client.patch(PodGang, "first", {"spec": {"podgroups": []}}, bench.namespace)
        await bench.add_nodes(2)
        await bench.condition("second", status="True", reason="GangScheduled")
