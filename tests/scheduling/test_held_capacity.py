"""Capacity that is held for a unit: which units it excludes, when it ends, and what may be evicted for it.

All stories run with the default configuration, for at least a simulated day after their last event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
from tests.support.days import DAY_S, HOUR_S, NAMESPACE, Day
from tests.support.fleet import QUOTA, elastic, install, reservation
from tests.support.gangs import gang, gang_json, group, member_json, pod_json

from grove.api.core import Event, Node, Pod, PodDisruptionBudget
from grove.api.koordinator import ElasticQuota, Reservation
from grove.api.patch import to_json
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.kube.errors import Invalid
from grove.plan.world import binding
from grove.sim.loop import run
from grove.sim.topology import HOST, RACK, Topology


def on(node: str) -> dict[str, Any]:
    return {"nodeSelector": {HOST: node}}


# Evictions


def test_a_gang_whose_budget_allows_one_pod_at_a_time_is_not_evicted_in_part() -> None:
    async def story() -> tuple[int, int, int]:
        async with Day(nodes=3) as day:
            low = gang("low", group("w", 3), priority_class="low", labels={"app": "low"})
            await day.protect("keep", {"app": "low"}, 1)
            await day.apply(low)
            await asyncio.sleep(10)
            owner = asyncio.ensure_future(day.keep_whole(low))
            uids = {pod.metadata.uid for pod in await day.pods()}
            await day.apply(gang("high", group("w", 3), priority_class="high"))
            await day.pass_a_day()
            owner.cancel()
            same = len(uids & {pod.metadata.uid for pod in await day.pods()})
            return await day.bound("low"), await day.bound("high"), same

    assert run(story()) == (3, 0, 3)


def test_a_preemptor_goes_ahead_when_the_budget_of_its_victims_allows_all_of_them() -> None:
    async def story() -> tuple[int, float]:
        async with Day(nodes=3) as day:
            await day.protect("keep", {"app": "low"}, 1)
            await day.apply(gang("low", group("w", 3), priority_class="low", labels={"app": "low"}))
            await asyncio.sleep(10)
            await day.apply(gang("high", group("w", 3), priority_class="high"))
            await asyncio.sleep(HOUR_S)
            before = await day.bound("high")
            await day.client.delete(PodDisruptionBudget, "keep", NAMESPACE)
            return before, await day.waited_and_stayed("high", 3)

    before, waited_s = run(story())
    assert before == 0
    assert waited_s < 60


def test_the_reason_names_the_budget_that_protects_the_victims() -> None:
    async def story() -> str:
        async with Day(nodes=1) as day:
            await day.protect("keep", {"app": "low"}, 0)
            await day.apply(gang("low", group("w", 1), priority_class="low", labels={"app": "low"}))
            await asyncio.sleep(10)
            await day.apply(gang("high", group("w", 1), priority_class="high"))
            await day.pass_a_day()
            (said,) = [one for one in (await day.podgang("high")).status.conditions if one.type == "Scheduled"]
            return said.message

    assert "default/keep" in run(story())


@pytest.mark.parametrize("finalizer", [False, True], ids=["a grace period of an hour", "a finalizer"])
def test_a_pod_that_takes_long_to_leave_is_not_waited_for_where_another_can_be_evicted(finalizer: bool) -> None:
    async def story() -> float:
        def stops(pod: Any) -> float:
            return HOUR_S if pod.metadata.name == "slow" and not finalizer else 0.0

        async with Day(nodes=2, stop_s=stops) as day:
            first, second = await day.nodes()
            slow = pod_json(
                "slow", NAMESPACE, priorityClassName="high", terminationGracePeriodSeconds=3600, **on(first)
            )
            if finalizer:
                slow["metadata"]["finalizers"] = ["example.com/hold"]
            await day.client.create(Pod, slow)
            await day.client.create(Pod, pod_json("cheap", NAMESPACE, priorityClassName="low", **on(second)))
            await asyncio.sleep(5)
            await day.client.delete(Pod, "slow", NAMESPACE)
            await asyncio.sleep(1)
            await day.apply(gang("high", group("w", 1), priority_class="high"))
            return await day.waited_and_stayed("high", 1)

    assert run(story()) < 60


def test_a_pod_that_takes_long_to_leave_is_waited_for_where_nothing_else_can_be_done() -> None:
    async def story() -> float:
        async with Day(nodes=1, stop_s=HOUR_S) as day:
            slow = pod_json("slow", NAMESPACE, priorityClassName="high", terminationGracePeriodSeconds=3600)
            await day.client.create(Pod, slow)
            await asyncio.sleep(5)
            await day.client.delete(Pod, "slow", NAMESPACE)
            await asyncio.sleep(1)
            await day.apply(gang("high", group("w", 1), priority_class="high"))
            return await day.waited_and_stayed("high", 1)

    assert HOUR_S - 60 < run(story()) < HOUR_S + 60


def test_a_gang_that_waits_for_a_pod_to_leave_takes_a_node_that_becomes_free_before() -> None:
    async def story() -> float:
        def stops(pod: Any) -> float:
            return HOUR_S if pod.metadata.name == "slow" else 0.0

        async with Day(nodes=2, stop_s=stops) as day:
            first, second = await day.nodes()
            slow = pod_json(
                "slow", NAMESPACE, priorityClassName="high", terminationGracePeriodSeconds=3600, **on(first)
            )
            await day.client.create(Pod, slow)
            await day.client.create(Pod, pod_json("beside", NAMESPACE, priorityClassName="high", **on(second)))
            await asyncio.sleep(5)
            await day.client.delete(Pod, "slow", NAMESPACE)
            await asyncio.sleep(1)
            await day.apply(gang("high", group("w", 1), priority_class="high"))
            await asyncio.sleep(600)
            await day.end("beside")
            return await day.waited_and_stayed("high", 1)

    assert run(story()) < 60


# Order


def test_a_nomination_leaves_a_free_node_to_a_unit_of_higher_priority() -> None:
    """The nomination needs both nodes; one of them is free, and the pod on the other one takes ten minutes to leave."""

    async def story() -> tuple[float, int]:
        def stops(pod: Any) -> float:
            return 600.0 if pod.metadata.name == "low" else 0.0

        async with Day(nodes=2, stop_s=stops) as day:
            first, second = await day.nodes()
            low = pod_json("low", NAMESPACE, priorityClassName="low", terminationGracePeriodSeconds=600, **on(first))
            await day.client.create(Pod, low)
            await asyncio.sleep(5)
            await day.apply(gang("high", group("w", 2), priority_class="high"))
            await asyncio.sleep(5)
            await day.client.create(Pod, pod_json("urgent", NAMESPACE, priorityClassName="urgent", **on(second)))
            waited_s = await day.waited_for("urgent", 1)
            await day.end("urgent")
            await day.pass_a_day()
            return waited_s, await day.bound("high")

    waited_s, high = run(story())
    assert waited_s < 60
    assert high == 2


def test_a_large_gang_among_jobs_of_half_an_hour_is_placed() -> None:
    async def story() -> float:
        async with Day(nodes=4) as day:
            number = 0

            async def jobs() -> None:
                nonlocal number
                while True:
                    number += 1
                    name = f"job-{number}"
                    await day.client.create(Pod, pod_json(name, NAMESPACE))
                    asyncio.get_running_loop().call_later(1800, lambda name=name: asyncio.ensure_future(day.end(name)))
                    await asyncio.sleep(400)

            stream = asyncio.ensure_future(jobs())
            await asyncio.sleep(HOUR_S)
            await day.apply(gang("large", group("w", 4)))
            waited_s = await day.waited_for("large", 4)
            stream.cancel()
            await day.pass_a_day()
            assert await day.bound("large") == 4
            return waited_s

    assert run(story(), limit_s=10 * DAY_S) < 2 * HOUR_S


def test_a_large_pod_without_a_gang_among_small_jobs_is_placed() -> None:
    async def story() -> tuple[float, int]:
        async with Day(nodes=1, gpus=2) as day:

            async def jobs(lane: int) -> None:
                """Jobs of half an hour. The next one waits already when one ends."""
                name = f"job-{lane}-000"
                await day.client.create(Pod, pod_json(name, NAMESPACE))
                for number in range(1, 200):
                    await day.waited_for(name, 1)
                    await asyncio.sleep(HOUR_S / 2)
                    ended, name = name, f"job-{lane}-{number:03}"
                    await day.client.create(Pod, pod_json(name, NAMESPACE))
                    await day.end(ended)

            first = asyncio.ensure_future(jobs(1))
            await asyncio.sleep(900)
            second = asyncio.ensure_future(jobs(2))
            await asyncio.sleep(60)
            await day.client.create(Pod, pod_json("large", NAMESPACE, gpus=2))
            waited_s = await day.waited_for("large", 1)
            await day.pass_a_day()
            first.cancel()
            second.cancel()
            return waited_s, await day.bound("large")

    waited_s, bound = run(story())
    assert bound == 1
    assert waited_s < 2 * HOUR_S


def test_nodes_are_held_where_pods_end_and_not_beside_a_pod_that_stays() -> None:
    """Two racks of three nodes. A pod that is always restarted has one node of the first rack.

    Jobs of half an hour fill the second rack. A gang needs a whole rack, and a stream of jobs is behind it.
    """

    async def story() -> tuple[float, int]:
        async with Day(nodes=6, topology=Topology(racks=2, nodes=3, gpus=1)) as day:
            await day.client.create(ClusterTopologyBinding, binding())
            first, *rest = await day.nodes()
            await day.client.create(Pod, pod_json("serving", NAMESPACE, **on(first)))
            once = {"restartPolicy": "Never"}
            for number, node in enumerate(rest[2:]):
                await day.client.create(Pod, pod_json(f"job-0-{number}", NAMESPACE, **once, **on(node)))
            await asyncio.sleep(5)
            await day.apply(gang("large", group("w", 3), required=RACK))
            await asyncio.sleep(180)

            async def end_and_replace() -> None:
                for turn in range(48):
                    for number in range(3):
                        body = pod_json(f"job-{turn + 1}-{number}", NAMESPACE, **once)
                        await day.client.create(Pod, body)
                    await asyncio.sleep(HOUR_S / 2)
                    for pod in await day.pods():
                        if pod.metadata.name.startswith("job-") and pod.spec.node_name:
                            await day.end(pod.metadata.name)

            jobs = asyncio.ensure_future(end_and_replace())
            waited_s = await day.waited_for("large", 3)
            await day.pass_a_day()
            jobs.cancel()
            return waited_s, await day.bound("large")

    waited_s, bound = run(story())
    assert bound == 3
    assert waited_s < 2 * HOUR_S


def test_no_node_is_held_because_the_gangs_own_pod_might_leave_it() -> None:
    """The head of the gang has one of four GPUs of a node. Its worker needs all four GPUs of another node."""

    async def story() -> tuple[float, int]:
        async with Day(nodes=3, gpus=4) as day:
            large = gang("large", group("worker", 1, gpus=4), group("head", 1))
            await day.apply(large)
            await asyncio.sleep(60)
            where = {pod.metadata.name: pod.spec.node_name for pod in await day.pods()}

            async def jobs(lane: int) -> None:
                """Jobs of half an hour. The next one waits already when one ends."""
                name = f"job-{lane}-000"
                await asyncio.sleep(lane * 230)
                await day.client.create(Pod, pod_json(name, NAMESPACE))
                for number in range(1, 200):
                    await day.waited_for(name, 1)
                    await asyncio.sleep(HOUR_S / 2)
                    ended, name = name, f"job-{lane}-{number:03}"
                    await day.client.create(Pod, pod_json(name, NAMESPACE))
                    await day.end(ended)

            lanes = [asyncio.ensure_future(jobs(lane)) for lane in range(7)]
            await asyncio.sleep(HOUR_S)
            await day.sim.nodes.cordon(where["large-worker-0"], unschedulable=True)
            await day.end("large-worker-0")
            await day.make_again(large, 0)
            waited_s = await day.waited_for("large-", 2)
            for lane in lanes:
                lane.cancel()
            await day.pass_a_day()
            return waited_s, await day.bound("large-")

    waited_s, bound = run(story())
    assert bound == 2
    assert waited_s < 2 * HOUR_S


@pytest.mark.parametrize(
    ("urgent", "left"),
    [
        pytest.param(2, 3, id="it fits elsewhere"),
        pytest.param(3, 0, id="it fits only with a held node"),
    ],
)
def test_a_unit_of_higher_priority_takes_held_nodes_only_if_it_fits_nowhere_else(urgent: int, left: int) -> None:
    """Two racks of three nodes. A job has one node of the first rack, a pod that stays one node of the second rack.

    A gang waits for the whole first rack, and its two free nodes are held. Then pods of a higher priority arrive.
    """

    async def story() -> tuple[float, int]:
        async with Day(nodes=6, topology=Topology(racks=2, nodes=3, gpus=1)) as day:
            await day.client.create(ClusterTopologyBinding, binding())
            first, *_, last = await day.nodes()
            await day.client.create(Pod, pod_json("job", NAMESPACE, restartPolicy="Never", **on(first)))
            await day.client.create(Pod, pod_json("serving", NAMESPACE, priorityClassName="urgent", **on(last)))
            await asyncio.sleep(5)
            await day.apply(gang("large", group("w", 3), required=RACK))
            await asyncio.sleep(600)
            await day.apply(gang("urgent", group("w", urgent), priority_class="urgent"))
            waited_s = await day.waited_for("urgent", urgent)
            await day.end("job")
            await day.pass_a_day()
            return waited_s, await day.bound("large")

    waited_s, bound = run(story())
    assert waited_s < 60
    assert bound == left


def test_nodes_are_chosen_again_when_a_unit_ahead_takes_a_held_node() -> None:
    """Four nodes with two GPUs. Jobs of five hours fill three of them. A gang needs two whole nodes.

    The free node and one with a job are held. Then a pod of a higher priority takes a GPU of the free node, and stays.
    The other GPU of that node does not help the gang any more, so a small job behind the gang gets it.
    """

    async def story() -> tuple[float, bool, float, int]:
        async with Day(nodes=4, gpus=2) as day:
            first, *rest = await day.nodes()
            for number, node in enumerate(rest):
                body = pod_json(f"job-{number}", NAMESPACE, gpus=2, restartPolicy="Never", **on(node))
                await day.client.create(Pod, body)
            await asyncio.sleep(5)
            await day.apply(gang("large", group("w", 2, gpus=2)))
            await asyncio.sleep(600)
            was_held = any(first in hold.nodes for hold in (await day.podgang("large")).status.capacity_holds)
            await day.client.create(Pod, pod_json("serving", NAMESPACE, priorityClassName="urgent"))
            await asyncio.sleep(5)
            await day.client.create(Pod, pod_json("small", NAMESPACE))
            small_s = await day.waited_for("small", 1)
            for number in range(2):
                await asyncio.sleep(HOUR_S)
                await day.end(f"job-{number}")
            large_s = await day.waited_for("large", 2)
            await day.pass_a_day()
            return small_s, was_held, large_s, await day.bound("large")

    small_s, was_held, large_s, bound = run(story())
    assert was_held
    assert small_s < 60
    assert large_s < 60
    assert bound == 2


def test_a_unit_of_higher_priority_leaves_held_nodes_alone_if_they_do_not_raise_its_score() -> None:
    """Four racks of three nodes. A job has one node of the first rack, and a pod that stays one of each other rack.

    A gang waits for the whole first rack. Three pods of a higher priority prefer one rack. They need two racks anyway.
    """

    async def story() -> tuple[float, float | None, set[str], float]:
        async with Day(nodes=12, topology=Topology(racks=4, nodes=3, gpus=1)) as day:
            await day.client.create(ClusterTopologyBinding, binding())
            nodes = await day.nodes()
            await day.client.create(Pod, pod_json("job", NAMESPACE, restartPolicy="Never", **on(nodes[0])))
            for number in (5, 8, 11):
                body = pod_json(f"serving-{number}", NAMESPACE, priorityClassName="urgent", **on(nodes[number]))
                await day.client.create(Pod, body)
            await asyncio.sleep(5)
            await day.apply(gang("large", group("w", 3), required=RACK))
            await asyncio.sleep(600)
            await day.apply(gang("urgent", group("w", 3), priority_class="urgent", preferred=RACK))
            urgent_s = await day.waited_for("urgent", 3)
            pods = [pod for pod in await day.pods() if pod.metadata.name.startswith("urgent")]
            taken = {pod.spec.node_name for pod in pods} & set(nodes[:3])
            score = (await day.podgang("urgent")).status.placement_score
            await day.end("job")
            large_s = await day.waited_for("large", 3)
            await day.pass_a_day()
            return urgent_s, score, taken, large_s

    urgent_s, score, taken, large_s = run(story())
    assert urgent_s < 60
    assert (score, taken) == (0.5, set())
    assert large_s < 60


def test_a_label_that_no_placement_reads_does_not_end_a_nomination() -> None:
    async def story() -> tuple[int, int]:
        def stops(pod: Any) -> float:
            return 300.0 if pod.metadata.name.startswith("low") else 0.0

        async with Day(nodes=2, stop_s=stops) as day:
            low = gang("low", group("w", 2, spec={"terminationGracePeriodSeconds": 300}), priority_class="low")
            await day.apply(low)
            await asyncio.sleep(5)
            await day.apply(gang("high", group("w", 2), priority_class="high"))
            await asyncio.sleep(5)
            began = len(await day.events("GangPreempting"))
            for node in await day.nodes():
                await day.client.patch(Node, node, {"metadata": {"labels": {"example.com/checked": "today"}}})
            await day.pass_a_day()
            return began, len(await day.events("GangPreempting")) + await day.bound("high")

    assert run(story()) == (1, 3)


# Quotas


def test_a_terminating_pod_of_another_queue_is_not_waited_for() -> None:
    async def story() -> float:
        def stops(pod: Any) -> float:
            return HOUR_S if pod.metadata.name == "slow" else 0.0

        async with Day(nodes=3, stop_s=stops) as day:
            await install(day, "ElasticQuota")
            await asyncio.sleep(60)
            for name in ("a", "b"):
                await day.client.create(ElasticQuota, elastic(name, NAMESPACE, 1, 3))
            first, second, third = await day.nodes()
            slow = pod_json("slow", NAMESPACE, terminationGracePeriodSeconds=3600, **on(first))
            slow["metadata"]["labels"] = {QUOTA: "b"}
            await day.client.create(Pod, slow)
            await day.client.create(Pod, pod_json("other", NAMESPACE, priorityClassName="high", **on(third)))
            low = pod_json("low", NAMESPACE, priorityClassName="low", **on(second))
            low["metadata"]["labels"] = {QUOTA: "a"}
            await day.client.create(Pod, low)
            await asyncio.sleep(5)
            await day.client.delete(Pod, "slow", NAMESPACE)
            await asyncio.sleep(1)
            await day.apply(gang("high", group("w", 1), priority_class="high", labels={QUOTA: "a"}))
            return await day.waited_and_stayed("high", 1)

    assert run(story()) < 60


# Reservations


def test_a_pending_reservation_does_not_take_nodes_that_are_held_for_a_gang() -> None:
    async def story() -> tuple[str, int]:
        async with Day(nodes=2) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            first, second = await day.nodes()
            for name, node in (("a", first), ("b", second)):
                await day.client.create(Pod, pod_json(name, NAMESPACE, **on(node)))
            await asyncio.sleep(5)
            await day.apply(gang("large", group("w", 2)))
            await asyncio.sleep(300)
            template = {"schedulerName": "grove-scheduler"}
            await day.client.create(Reservation, reservation("later", gpus=1, template=template))
            await asyncio.sleep(5)
            await day.end("a")
            await asyncio.sleep(600)
            waits = (await day.client.get(Reservation, "later")).status.phase
            await day.end("b")
            await day.pass_a_day()
            return waits, await day.bound("large")

    assert run(story()) == ("Pending", 2)


@pytest.mark.parametrize(("priority", "first"), [("urgent", "gang"), ("low", "reservation")])
def test_a_pending_reservation_waits_in_the_order_of_its_priority(priority: str, first: str) -> None:
    async def story() -> str:
        async with Day(nodes=1) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            await day.client.create(Pod, pod_json("busy", NAMESPACE, priorityClassName="urgent"))
            await asyncio.sleep(5)
            template = {"schedulerName": "grove-scheduler", "priorityClassName": "high"}
            await day.client.create(Reservation, reservation("r", gpus=1, template=template, ttl="48h"))
            await day.apply(gang("gang", group("w", 1), priority_class=priority))
            await asyncio.sleep(60)
            await day.end("busy")
            await day.pass_a_day()
            phase = (await day.client.get(Reservation, "r")).status.phase
            return "reservation" if phase == "Available" else "gang" if await day.bound("gang") else "none"

    assert run(story()) == first


@contextlib.asynccontextmanager
async def half_hour_jobs(day: Day, lanes: int) -> AsyncIterator[None]:
    """Jobs of one GPU in each lane. The next one waits already when one ends; lanes end at different times."""

    async def jobs(lane: int) -> None:
        name = f"job-{lane}-000"
        await day.client.create(Pod, pod_json(name, NAMESPACE, restartPolicy="Never"))
        for number in range(1, 400):
            await day.waited_for(name, 1)
            await asyncio.sleep(HOUR_S / 2)
            ended, name = name, f"job-{lane}-{number:03}"
            await day.client.create(Pod, pod_json(name, NAMESPACE, restartPolicy="Never"))
            await day.end(ended)

    tasks = []
    for lane in range(lanes):
        tasks.append(asyncio.ensure_future(jobs(lane)))
        await asyncio.sleep(HOUR_S / 2 / lanes)
    yield
    for task in tasks:
        task.cancel()


OURS = {"schedulerName": "grove-scheduler"}


async def available(day: Day, *names: str) -> bool:
    return all([(await day.client.get(Reservation, name)).status.phase == "Available" for name in names])


async def reserved_after_s(day: Day, *names: str) -> float:
    """Seconds until all these Reservations have a place; a day if they have none by then."""
    for turn in range(int(DAY_S / 10)):
        if await available(day, *names):
            return turn * 10.0
        await asyncio.sleep(10)
    return DAY_S


async def held_nodes(day: Day, name: str) -> list[tuple[str, str, datetime | None]]:
    """Reason, node and begin of the holds that a Reservation names."""
    conditions = (await day.client.get(Reservation, name)).status.conditions
    return [(one.reason, one.message, one.last_transition_time) for one in conditions if one.type == "NodeHeld"]


def test_a_large_reservation_among_small_jobs_is_placed() -> None:
    async def story() -> tuple[float, bool]:
        async with Day(nodes=1, gpus=2) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            async with half_hour_jobs(day, 2):
                await day.client.create(Reservation, reservation("large", gpus=2, template=OURS, ttl="400h"))
                waited_s = await reserved_after_s(day, "large")
                await day.pass_a_day()
            return waited_s, await available(day, "large")

    waited_s, is_available = run(story(), limit_s=10 * DAY_S)
    assert waited_s < 2 * HOUR_S
    assert is_available


def test_reservations_of_one_group_among_small_jobs_are_placed_together() -> None:
    async def story() -> tuple[float, bool]:
        async with Day(nodes=2, gpus=2) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            labels = {"pod-group.scheduling.sigs.k8s.io": "both"}
            async with half_hour_jobs(day, 4):
                for name in ("r0", "r1"):
                    body = reservation(name, gpus=2, template=OURS, ttl="400h", labels=labels)
                    await day.client.create(Reservation, body)
                waited_s = await reserved_after_s(day, "r0", "r1")
                await day.pass_a_day()
            return waited_s, await available(day, "r0", "r1")

    waited_s, is_available = run(story(), limit_s=10 * DAY_S)
    assert waited_s < 3 * HOUR_S
    assert is_available


def test_what_is_held_for_a_reservation_outlives_the_scheduler() -> None:
    async def story() -> tuple[Any, Any, int, bool, int]:
        async with Day(nodes=2) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            first, second = await day.nodes()
            await day.client.create(Pod, pod_json("busy", NAMESPACE, **on(first)))
            await day.client.create(Pod, pod_json("other", NAMESPACE, **on(second)))
            labels = {"pod-group.scheduling.sigs.k8s.io": "both"}
            for name in ("r0", "r1"):
                body = reservation(name, gpus=1, template=OURS, ttl="400h", labels=labels)
                await day.client.create(Reservation, body)
            await asyncio.sleep(600)
            before = [await held_nodes(day, name) for name in ("r0", "r1")]
            await day.stop()
            await day.end("other")
            await day.client.create(Pod, pod_json("small", NAMESPACE))
            await day.start()
            await asyncio.sleep(60)
            after = [await held_nodes(day, name) for name in ("r0", "r1")]
            small = await day.bound("small")
            await day.end("busy")
            await day.pass_a_day()
            is_available = await available(day, "r0", "r1")
            left = sum([len(await held_nodes(day, name)) for name in ("r0", "r1")])
            return before, after, small, is_available, left

    before, after, small, is_available, left = run(story(), limit_s=10 * DAY_S)
    assert [(reason, node) for ((reason, node, _),) in before] == [
        ("WaitedLong", "z0-b0-r0-n0"),
        ("WaitedLong", "z0-b0-r0-n1"),
    ]
    assert after == before
    assert (small, is_available, left) == (0, True, 0)


def test_what_is_held_for_a_reservation_is_free_when_that_is_deleted() -> None:
    async def story() -> tuple[int, float]:
        async with Day(nodes=2) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            first, _ = await day.nodes()
            await day.client.create(Pod, pod_json("busy", NAMESPACE, **on(first)))
            labels = {"pod-group.scheduling.sigs.k8s.io": "both"}
            for name in ("r0", "r1"):
                body = reservation(name, gpus=1, template=OURS, ttl="400h", labels=labels)
                await day.client.create(Reservation, body)
            await asyncio.sleep(600)
            await day.client.create(Pod, pod_json("small", NAMESPACE))
            await asyncio.sleep(600)
            before = await day.bound("small")
            for name in ("r0", "r1"):
                await day.client.delete(Reservation, name)
            waited_s = await day.waited_for("small", 1)
            await day.pass_a_day()
            return before, waited_s

    before, waited_s = run(story(), limit_s=10 * DAY_S)
    assert before == 0
    assert waited_s < 60


@pytest.mark.parametrize(
    ("reason", "node", "said"),
    [
        ("WaitedLong", "gone", "condition NodeHeld is not used: there is no node gone"),
        ("Because", "z0-b0-r0-n0", "condition NodeHeld is not used: unknown reason 'Because'"),
    ],
)
def test_a_record_on_a_reservation_that_cannot_be_used_becomes_an_event(reason: str, node: str, said: str) -> None:
    async def story() -> tuple[list[str], int]:
        async with Day(nodes=1) as day:
            await install(day, "Reservation")
            await asyncio.sleep(60)
            await day.client.create(Pod, pod_json("busy", NAMESPACE))
            await day.client.create(Reservation, reservation("r", gpus=2, template=OURS, ttl="400h"))
            await asyncio.sleep(60)
            await day.stop()
            said = (await day.client.get(Reservation, "r")).status.conditions
            held = {"type": "NodeHeld", "status": "True", "reason": reason, "message": node}
            conditions = [*(to_json(one) for one in said), held]
            await day.client.patch(Reservation, "r", {"status": {"conditions": conditions}}, subresource="status")
            await day.start()
            await day.end("busy")
            await day.client.create(Pod, pod_json("small", NAMESPACE))
            await day.pass_a_day()
            events = [
                one.message
                for one in (await day.client.list(Event)).items
                if (one.reason, one.involved_object.name) == ("InvalidCapacityHold", "r")
            ]
            return events, await day.bound("small")

    assert run(story(), limit_s=10 * DAY_S) == ([said], 1)


# The node of a pod that is being replaced


@pytest.mark.parametrize("pause_s", [0, 5], ids=["made again at once", "made again after five seconds"])
def test_the_node_of_a_replaced_pod_of_a_minimum_is_not_given_to_a_waiting_surplus_gang(pause_s: float) -> None:
    """Three nodes, a base gang of two, three scaled gangs of one pod: the last two wait."""

    async def story() -> tuple[int, int]:
        async with Day(nodes=3, stop_s=2.0) as day:
            base = gang("base", group("w", 2))
            await day.apply(base)
            await asyncio.sleep(5)
            await day.apply(*(gang(f"scaled-{n}", group("w", 1), base="base") for n in range(3)))
            await asyncio.sleep(5)
            for _ in range(10):
                await day.client.delete(Pod, "base-w-0", NAMESPACE)
                await asyncio.sleep(2 + pause_s + 0.5)
                await day.make_again(base, 0)
                await asyncio.sleep(30)
            await day.pass_a_day()
            return await day.bound("base"), await day.bound("scaled")

    assert run(story()) == (2, 1)


def test_a_new_gang_does_not_take_the_node_of_a_replaced_pod_of_another_set() -> None:
    async def story() -> tuple[int, int]:
        async with Day(nodes=2) as day:
            first = gang("first", group("w", 2))
            await day.apply(first)
            await asyncio.sleep(5)
            await day.apply(gang("new", group("w", 1)))
            await asyncio.sleep(200)
            await day.end("first-w-1")
            await asyncio.sleep(3)
            await day.make_again(first, 1)
            await day.pass_a_day()
            return await day.bound("first"), await day.bound("new")

    assert run(story()) == (2, 0)


def test_the_node_of_a_pod_that_is_not_replaced_is_free_again() -> None:
    """Its gang was scaled down: the reference goes, and with it what is held."""

    async def story() -> int:
        async with Day(nodes=2) as day:
            await day.apply(gang("first", group("w", 2, 1)))
            await asyncio.sleep(5)
            await day.apply(gang("new", group("w", 1)))
            await asyncio.sleep(5)
            await day.end("first-w-1")
            podgang = await day.podgang("first")
            refs = [{"namespace": NAMESPACE, "name": "first-w-0"}]
            patch = {"spec": {"podgroups": [{"name": "w", "minReplicas": 1, "podReferences": refs}]}}
            await day.client.patch(type(podgang), "first", patch, NAMESPACE)
            await day.pass_a_day()
            return await day.bound("new")

    assert run(story()) == 1


def test_a_unit_of_higher_priority_takes_the_node_of_a_replaced_pod() -> None:
    async def story() -> tuple[float, int]:
        async with Day(nodes=1) as day:
            first = gang("first", group("w", 1))
            await day.apply(first)
            await asyncio.sleep(5)
            await day.end("first-w-0")
            await asyncio.sleep(3)
            await day.apply(gang("urgent", group("w", 1), priority_class="urgent"))
            waited_s = await day.waited_for("urgent", 1)
            await day.make_again(first, 0)
            await day.pass_a_day()
            return waited_s, await day.bound("first")

    waited_s, first = run(story())
    assert waited_s < 60
    assert first == 0


# Records of an earlier scheduler


async def write_holds(day: Day, name: str, *holds: dict[str, Any]) -> None:
    body = {"status": {"capacityHolds": list(holds)}}
    await day.client.patch(PodGang, name, body, NAMESPACE, subresource="status")


def long_wait(*nodes: str) -> dict[str, Any]:
    return {"reason": "WaitedLong", "since": "2020-01-01T00:00:00Z", "nodes": list(nodes)}


@pytest.mark.parametrize(
    "hold",
    [
        pytest.param({"reason": "Because"}, id="an unknown reason"),
        pytest.param(long_wait("gone"), id="an unknown node"),
        pytest.param({"reason": "Replacement", "amounts": [{"group": "x", "node": "n"}]}, id="an unknown group"),
        pytest.param({"reason": "FormerPlace", "nodes": ["gone"]}, id="a former place on an unknown node"),
        pytest.param({"reason": "Nominated", "amounts": [{"group": "w", "node": "gone"}]}, id="an unknown nomination"),
        pytest.param({"reason": "Headroom", "amounts": [{"group": "w", "node": "gone"}]}, id="unknown headroom"),
    ],
)
def test_a_record_that_cannot_be_used_is_an_event_and_holds_nothing(hold: dict[str, Any]) -> None:
    async def story() -> tuple[int, int, list[str]]:
        async with Day(nodes=2) as day:
            await day.client.create(Pod, pod_json("busy", NAMESPACE))
            await day.apply(gang("large", group("w", 2)))
            await asyncio.sleep(10)
            await day.stop()
            await write_holds(day, "large", hold)
            await day.start()
            await day.apply(gang("small", group("w", 1)))
            await asyncio.sleep(60)
            small = await day.bound("small")
            await day.client.delete(PodGang, "small", NAMESPACE)
            await day.end("small-w-0")
            await day.end("busy")
            await day.pass_a_day()
            return small, await day.bound("large"), [one.involved_object.name for one in await invalid(day)]

    assert run(story()) == (1, 2, ["large"])


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param("abc", id="a text for the list"),
        pytest.param([7], id="a number for a hold"),
        pytest.param([{"nodes": ["n"]}], id="no reason"),
        pytest.param([{"reason": "WaitedLong", "nodes": "abc"}], id="a text for the nodes"),
        pytest.param([{"reason": "WaitedLong", "nodes": [7]}], id="a number for a node"),
        pytest.param([{"reason": "WaitedLong", "since": "soon", "nodes": ["n"]}], id="no time"),
        pytest.param([{"reason": "Replacement", "amounts": [{"group": "w", "requests": 7}]}], id="no requests"),
    ],
)
def test_a_record_of_a_wrong_type_is_refused_by_the_schema(holds: Any) -> None:
    async def story() -> None:
        async with Day(nodes=1) as day:
            await day.apply(gang("large", group("w", 2)))
            body = {"status": {"capacityHolds": holds}}
            with pytest.raises(Invalid):
                await day.client.patch(PodGang, "large", body, NAMESPACE, subresource="status")

    run(story())


def test_a_record_of_more_nodes_than_the_gang_has_pods_holds_nothing() -> None:
    async def story() -> tuple[int, list[str]]:
        async with Day(nodes=3) as day:
            nodes = await day.nodes()
            for name, node in zip(("a", "b"), nodes, strict=False):
                await day.client.create(Pod, pod_json(name, NAMESPACE, **on(node)))
            await day.apply(gang("large", group("w", 2)))
            await asyncio.sleep(10)
            await day.stop()
            await write_holds(day, "large", long_wait(*nodes))
            await day.start()
            await day.apply(gang("small", group("w", 1)))
            await day.pass_a_day()
            return await day.bound("small"), [one.involved_object.name for one in await invalid(day)]

    assert run(story()) == (1, ["large"])


async def invalid(day: Day) -> list[Any]:
    return await day.events("InvalidCapacityHold")


def test_of_two_records_for_one_node_the_first_in_order_counts() -> None:
    async def story() -> tuple[list[str], int, int]:
        async with Day(nodes=2) as day:
            first, second = await day.nodes()
            for name, node in (("a", first), ("b", second)):
                await day.client.create(Pod, pod_json(name, NAMESPACE, **on(node)))
            await asyncio.sleep(5)
            await day.apply(gang("early", group("w", 2)))
            await asyncio.sleep(5)
            await day.apply(gang("late", group("w", 2)))
            await asyncio.sleep(5)
            await day.stop()
            await write_holds(day, "early", long_wait(first, second))
            await write_holds(day, "late", long_wait(first, second))
            await day.start()
            await asyncio.sleep(60)
            told = [one.involved_object.name for one in await invalid(day)]
            await day.end("a")
            await asyncio.sleep(600)
            await day.end("b")
            await asyncio.sleep(600)
            early = await day.bound("early")
            await day.client.delete(PodGang, "early", NAMESPACE)
            for number in range(2):
                await day.end(f"early-w-{number}")
            await day.pass_a_day()
            return told, early, await day.bound("late")

    assert run(story()) == (["late"], 2, 2)


def test_a_restart_keeps_the_node_of_a_replaced_pod() -> None:
    async def story() -> tuple[int, int]:
        async with Day(nodes=2) as day:
            base = gang("base", group("w", 2))
            await day.apply(base)
            await asyncio.sleep(5)
            await day.apply(gang("new", group("w", 1)))
            await day.end("base-w-0")
            await asyncio.sleep(10)
            await day.stop()
            await day.start()
            await asyncio.sleep(10)
            await day.make_again(base, 0)
            await day.pass_a_day()
            return await day.bound("base"), await day.bound("new")

    assert run(story()) == (2, 0)


# Moments


async def lone_pods(day: Day) -> None:
    """A large pod for which the only node is held; the two small pods on that node end by themselves."""
    for name in ("first", "second"):
        await day.client.create(Pod, pod_json(name, NAMESPACE))
    await asyncio.sleep(5)
    await day.client.create(Pod, pod_json("large", NAMESPACE, gpus=2))
    await asyncio.sleep(HOUR_S)


def test_a_restart_keeps_the_node_that_is_held_for_a_pod_without_a_gang() -> None:
    async def story() -> tuple[str, int, int, str]:
        async with Day(nodes=1, gpus=2) as day:
            await lone_pods(day)
            held = (await day.pod("large")).status.nominated_node_name
            await day.stop()
            await day.start()
            await day.client.create(Pod, pod_json("small", NAMESPACE))
            await day.end("first")
            await asyncio.sleep(60)
            small = await day.bound("small")
            await day.end("second")
            await day.pass_a_day()
            return held, small, await day.bound("large"), (await day.pod("large")).spec.node_name

    held, small, large, node = run(story())
    assert (small, large) == (0, 1)
    assert held == node


def test_a_pod_whose_node_is_no_longer_held_does_not_name_it() -> None:
    async def story() -> tuple[str, str]:
        async with Day(nodes=1, gpus=2) as day:
            await lone_pods(day)
            held = (await day.pod("large")).status.nominated_node_name
            await day.client.patch(Node, held, {"spec": {"unschedulable": True}})
            await day.pass_a_day()
            return held, (await day.pod("large")).status.nominated_node_name

    held, after = run(story())
    assert held
    assert after == ""


def test_a_pod_that_names_an_unknown_node_gets_an_event_and_nothing_is_held() -> None:
    async def story() -> tuple[int, list[str]]:
        async with Day(nodes=1, gpus=2) as day:
            await lone_pods(day)
            await day.stop()
            await day.client.patch(
                Pod, "large", {"status": {"nominatedNodeName": "gone"}}, NAMESPACE, subresource="status"
            )
            await day.start()
            await day.client.create(Pod, pod_json("small", NAMESPACE))
            await day.end("first")
            await day.pass_a_day()
            return await day.bound("small"), [one.involved_object.name for one in await invalid(day)]

    assert run(story()) == (1, ["large"])


def test_every_timeout_is_reported_whatever_moment_it_falls_on() -> None:
    """A sum of two floats and a difference of two others may be the same moment and differ."""
    offsets = [0.1, 0.2, 0.3, 0.7, 1 / 3, 1.1, 2.7, 9.9]

    async def story() -> int:
        async with Day(nodes=1) as day:
            for number, offset in enumerate(offsets):
                await asyncio.sleep(offset)
                await day.apply(gang(f"large-{number}", group("w", 2)))
            await day.pass_a_day()
            return len({one.involved_object.name for one in await day.events("GangTimeout")})

    assert run(story()) == len(offsets)


# Queues


def test_a_group_of_another_queue_does_not_pass_that_queues_maximum() -> None:
    async def story() -> tuple[int, int]:
        async with Day(nodes=6) as day:
            await install(day, "ElasticQuota")
            await asyncio.sleep(60)
            for name, most in (("a", 4), ("b", 1)):
                await day.client.create(ElasticQuota, elastic(name, NAMESPACE, most, most))
            await asyncio.sleep(5)
            mixed = gang("mixed", group("x", 2), group("y", 2))
            await day.client.create(PodGang, gang_json(mixed, NAMESPACE))
            for part, queue in zip(mixed.groups, ("a", "b"), strict=True):
                for number in range(part.pods):
                    pod = member_json(mixed, part, number, NAMESPACE)
                    pod["metadata"]["labels"][QUOTA] = queue
                    await day.client.create(Pod, pod)
            await asyncio.sleep(HOUR_S)
            before = await day.bound("mixed")
            await day.client.patch(ElasticQuota, "b", {"spec": {"max": {"nvidia.com/gpu": 2}}}, NAMESPACE)
            await day.pass_a_day()
            return before, await day.bound("mixed")

    assert run(story()) == (0, 4)


def test_capacity_that_an_owner_takes_back_is_closed_to_the_borrower_of_higher_priority() -> None:
    """Between queues the share decides, not the priority. Else owner and borrower evict each other for ever."""

    async def story() -> tuple[float, int]:
        async with Day(nodes=3, stop_s=lambda pod: 30.0 if pod.metadata.name == "first-w-0" else 1.0) as day:
            await install(day, "ElasticQuota")
            await day.client.create(ElasticQuota, elastic("lender", NAMESPACE, 1, 3))
            await day.client.create(ElasticQuota, elastic("owner", NAMESPACE, 2, 3))
            await asyncio.sleep(5)
            guests = [
                gang(name, group("w", 1), labels={QUOTA: "lender"}, priority_class="high")
                for name in ("first", "second", "third")
            ]
            await day.apply(*guests)
            await asyncio.sleep(5)
            operator = [asyncio.ensure_future(day.keep_whole(one)) for one in guests]
            await day.apply(gang("owner", group("w", 2), labels={QUOTA: "owner"}, priority_class="low"))
            waited_s = await day.waited_for("owner", 2)
            await asyncio.sleep(HOUR_S)
            for task in operator:
                task.cancel()
            evicted = sum(one.count for one in await day.events("GangPreempted"))
            await day.pass_a_day()
            assert await day.bound("owner") == 2
            return waited_s, evicted

    waited_s, evicted = run(story())
    assert waited_s < 120
    assert evicted == 2
