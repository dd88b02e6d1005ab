"""Reservations: only their owners use the capacity, the use is written down, and it ends."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.support.fleet import GPU, install, reservation, standing
from tests.support.gangs import Bench, gang, group, member_json, pod_json, scheduling
from tests.support.late import Late

from grove.api.core import Event, Pod, PriorityClass
from grove.api.koordinator import Reservation
from grove.kube.clock import Clock

pytestmark = pytest.mark.real_in("soak")

RED = {"team": "red"}
POOL = {"pool": "p"}
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
OURS = {"template": {"schedulerName": "grove-scheduler"}}


@pytest.fixture
async def reservations(cluster: Any) -> AsyncIterator[None]:
    """The kind is there; what the test made of it is gone at its end."""
    await install(cluster, "Reservation")
    yield
    for one in (await cluster.client.list(Reservation)).items:
        if one.metadata.name.startswith(cluster.prefix):
            await cluster.client.delete(Reservation, one.metadata.name)


@pytest.fixture
def slow_binds(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Pods of the gang `mine` are bound when this is set, and not before."""
    may_bind = asyncio.Event()
    bind = type(cluster.client).bind

    async def slowly(self: Any, namespace: str, pod: str, node: str, **more: Any) -> None:
        if pod.startswith("mine"):
            await may_bind.wait()
        await bind(self, namespace, pod, node, **more)

    monkeypatch.setattr(type(cluster.client), "bind", slowly)
    return may_bind


async def is_written_on_a_pod(bench: Bench) -> bool:
    return any(ALLOCATED in pod.metadata.annotations for pod in await bench.pods())


def own(bench: Bench, name: str) -> str:
    return f"{bench.cluster.prefix}{name}"


async def users(bench: Bench) -> dict[str, str]:
    """The reservation that is written on each pod."""
    return {
        pod.metadata.name: json.loads(pod.metadata.annotations[ALLOCATED])["name"]
        for pod in await bench.pods()
        if ALLOCATED in pod.metadata.annotations
    }


async def told_of_a_reservation(cluster: Any, reason: str) -> Event:
    """The first event with this reason; Reservations are in no namespace, and their events in `default`."""

    async def told() -> Any:
        return [one for one in (await cluster.client.list(Event)).items if one.reason == reason]

    found: list[Event] = await cluster.eventually(told)
    return found[0]


@pytest.mark.real_in("test")
async def test_others_do_not_get_what_is_reserved_and_its_owners_do(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2)
        for number, node in enumerate((first, second)):
            await bench.seen(Reservation, await standing(cluster, reservation(own(bench, f"r{number}")), node))
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        before = REGISTRY.get_sample_value("grove_reservation_used_total") or 0
        await bench.apply(gang("red", group("w", 2), labels=RED))
        await bench.expect({"red/w": 2})
        assert sorted((await users(bench)).values()) == [own(bench, "r0"), own(bench, "r1")]
        assert REGISTRY.get_sample_value("grove_reservation_used_total") == before + 2

        async def written() -> Any:
            found = await cluster.client.get(Reservation, own(bench, "r0"))
            return found.status.phase == "Succeeded" and found

        done = await cluster.eventually(written)
        assert [owner["name"] for owner in done.status.current_owners] == [
            name for name, one in (await users(bench)).items() if one == own(bench, "r0")
        ]
        assert done.status.allocated == {GPU: "1"}


async def test_a_reference_is_a_condition_solved_for_the_whole_gang(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        nodes = await bench.add_nodes(4)
        await standing(cluster, reservation(own(bench, "a")), nodes[0])
        asked = {AFFINITY: json.dumps({"reservationSelector": {"pool": "p"}})}
        pods = gang("red", group("w", 2), labels=RED)
        await bench.apply(pods, pods=False)
        for number in range(2):
            pod = member_json(pods, pods.groups[0], number, bench.namespace)
            pod["metadata"]["annotations"] = asked
            await bench.create_pod(pod)
        await bench.condition("red", status="False")
        await bench.expect({})
        await standing(cluster, reservation(own(bench, "b"), labels={"pool": "p"}), nodes[1])
        await bench.expect({})
        await standing(cluster, reservation(own(bench, "c"), labels={"pool": "p"}), nodes[2])
        await bench.expect({"red/w": 2})
        assert sorted((await users(bench)).values()) == [own(bench, "b"), own(bench, "c")]


@pytest.mark.real_in("test")
async def test_a_reservation_for_many_is_given_back_when_its_user_goes(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=2)
        pool = await standing(cluster, reservation(own(bench, "pool"), gpus=2, allocateOnce=False), node, 2)
        await bench.seen(Reservation, pool)
        await bench.apply(gang("one", group("w", 1), labels=RED))
        await bench.apply(gang("two", group("w", 1), labels=RED))
        await bench.expect({"one/w": 1, "two/w": 1})

        async def allocated(amount: str) -> bool:
            found = await cluster.client.get(Reservation, pool)
            return found.status.allocated.get(GPU, "0") == amount and found.status.phase == "Available"

        await cluster.eventually(lambda: allocated("2"))
        for pod in await bench.pods():
            if pod.metadata.name.startswith("one"):
                await cluster.client.delete(type(pod), pod.metadata.name, bench.namespace, grace_period_s=0)
        await cluster.eventually(lambda: allocated("1"))
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        await bench.apply(gang("three", group("w", 1), labels=RED))
        await bench.expect({"two/w": 1, "three/w": 1})


@pytest.mark.simulated
async def test_aligned_takes_the_rest_from_the_node_and_restricted_does_not(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2, gpus=2)
        await standing(cluster, reservation(own(bench, "tight"), allocatePolicy="Restricted"), first)
        await standing(cluster, reservation(own(bench, "loose"), allocatePolicy="Aligned"), second)
        await cluster.settle(0.5)
        await bench.apply(gang("red", group("w", 1, gpus=2), labels=RED))
        await bench.expect({"red/w": 1})
        assert list((await users(bench)).values()) == [own(bench, "loose")]


@pytest.mark.simulated
async def test_taints_and_unschedulable_keep_owners_away(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2)
        taint = {"key": "hold", "effect": "NoSchedule"}
        await standing(cluster, reservation(own(bench, "tainted"), taints=[taint]), first)
        await standing(cluster, reservation(own(bench, "closed"), unschedulable=True), second)
        await cluster.settle(0.5)
        await bench.apply(gang("red", group("w", 1), labels=RED))
        await bench.condition("red", status="False", reason="Unschedulable")
        tolerant = group("w", 1, spec={"tolerations": [{"key": "hold", "operator": "Exists"}]})
        await bench.apply(gang("brave", tolerant, labels=RED))
        await bench.expect({"brave/w": 1})
        assert list((await users(bench)).values()) == [own(bench, "tainted")]


async def test_reservations_of_one_group_are_placed_by_us_whole_or_not_at_all(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        label = {"pod-group.scheduling.sigs.k8s.io": own(bench, "g")}
        home = {"nodeSelector": {"example.com/bench": bench.namespace}}
        ours: dict[str, Any] = {"template": {"schedulerName": "grove-scheduler", **home}}
        ours["annotations"] = {"gang.scheduling.koordinator.sh/min-available": "3"}
        for number in range(3):
            body = reservation(own(bench, f"g{number}"), labels=label, **copy.deepcopy(ours))
            await cluster.client.create(Reservation, body)

        async def phases() -> list[str]:
            found = (await cluster.client.list(Reservation)).items
            return [one.status.phase for one in found if one.metadata.name.startswith(own(bench, "g"))]

        await cluster.eventually(lambda: _all(phases, "Pending"))
        await bench.apply(gang("other", group("w", 2)))
        await bench.expect({"other/w": 2})
        await bench.add_nodes(3)
        await cluster.eventually(lambda: _all(phases, "Available"))
        await bench.apply(gang("late", group("w", 1)))
        await bench.condition("late", status="False", reason="Unschedulable")
        await bench.apply(gang("red", group("w", 3), labels=RED))
        await bench.expect({"other/w": 2, "red/w": 3})


@pytest.mark.simulated
async def test_no_reservation_of_a_group_is_placed_while_one_of_them_is_wrong(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        label = {"pod-group.scheduling.sigs.k8s.io": own(bench, "g")}
        wrong = reservation(own(bench, "wrong"), labels=label, **copy.deepcopy(OURS))
        wrong["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {GPU: "-1"}}
        await cluster.client.create(Reservation, wrong)
        await cluster.client.create(Reservation, reservation(own(bench, "right"), labels=label, **copy.deepcopy(OURS)))
        await cluster.settle(2)
        right = await cluster.client.get(Reservation, own(bench, "right"))
        assert (right.status.phase, right.status.conditions[0].message) == (
            "Pending",
            f"{own(bench, 'wrong')} of its group is wrong, and a group is placed whole",
        )
        wrong["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {GPU: "1"}}
        await cluster.client.patch(Reservation, own(bench, "wrong"), {"spec": {"template": wrong["spec"]["template"]}})
        await cluster.settle(2)
        for name in ("wrong", "right"):
            assert (await cluster.client.get(Reservation, own(bench, name))).status.phase == "Available"


async def _all(phases: Any, wanted: str) -> bool:
    found = await phases()
    return len(found) == 3 and set(found) == {wanted}


@pytest.mark.simulated
async def test_a_reservation_ends_with_its_time_and_its_capacity_is_free(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        await standing(cluster, reservation(own(bench, "short"), ttl="60s"), node)
        await cluster.settle(0.5)
        assert node in bench.scheduler.reservations._on
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        await cluster.settle(61)
        await bench.expect({"other/w": 1})
        assert (await cluster.client.get(Reservation, own(bench, "short"))).status.phase == "Failed"
        assert node not in bench.scheduler.reservations._on, "nothing is kept of a node that has none any more"


@pytest.mark.simulated
async def test_a_reservation_whose_time_ended_while_no_scheduler_ran_is_over(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        name = await standing(cluster, reservation(own(bench, "short"), ttl="60s"), node)
        await bench.stop()
        await cluster.settle(61)
        await bench.start()
        await cluster.settle(1)
        assert (await cluster.client.get(Reservation, name)).status.phase == "Failed"


@pytest.mark.simulated
async def test_a_reservation_whose_place_is_written_after_its_time_keeps_no_capacity(
    cluster: Any, reservations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = type(cluster.client).patch

    async def slowly(self: Any, kind: Any, *args: Any, **more: Any) -> Any:
        if kind is Reservation:
            await cluster.settle(61)
        return await patch(self, kind, *args, **more)

    monkeypatch.setattr(type(cluster.client), "patch", slowly)
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await cluster.client.create(Reservation, reservation(own(bench, "brief"), ttl="60s", **OURS))
        await cluster.settle(1)
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        await cluster.settle(130)
        await bench.expect({"other/w": 1})
        assert (await cluster.client.get(Reservation, own(bench, "brief"))).status.phase == "Failed"


@pytest.mark.simulated
async def test_what_nodes_are_counted_by_does_not_grow_with_reservations_that_have_gone(
    cluster: Any, reservations: None
) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        await cluster.settle(1)
        before = len(bench.scheduler.view.snapshot.resources)
        for number in range(8):
            name = await standing(cluster, reservation(own(bench, f"r{number}")), node)
            await bench.seen(Reservation, name)
            await bench.apply(gang(f"g{number}", group("w", 1), labels=RED))
            await bench.expect({f"g{number}/w": 1}, quiet_s=0)
            await cluster.client.delete(Reservation, name)
            await bench.clear()
            await cluster.settle(1)
        assert len(bench.scheduler.view.snapshot.resources) <= before + 2


class SetBack:
    """The cluster's clock, behind by this time: the time of a machine was corrected while it ran."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.behind = timedelta()

    def now(self) -> datetime:
        return self._clock.now() - self.behind


@pytest.mark.simulated
async def test_a_reservation_ends_although_the_clock_was_set_back_meanwhile(cluster: Any, reservations: None) -> None:
    clock = cluster.clock = SetBack(cluster.clock)
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        await standing(cluster, reservation(own(bench, "short"), ttl="60s"), node)
        await bench.apply(gang("other", group("w", 1)))
        await cluster.settle(30)
        clock.behind = timedelta(seconds=20)
        await cluster.settle(55)
        await bench.expect({"other/w": 1})


@pytest.mark.simulated
async def test_the_capacity_of_a_reservation_that_was_never_seen_to_stand_is_free_when_it_is_gone(
    cluster: Any, reservations: None
) -> None:
    late = cluster.client = Late(cluster.sim.server)
    async with scheduling(cluster) as bench:
        body = reservation(own(bench, "brief"), template={"schedulerName": "grove-scheduler"})
        await cluster.client.create(Reservation, body)
        await cluster.settle(2)
        late.behind = Reservation
        await bench.add_nodes(1)
        await cluster.settle(2)
        assert (await cluster.client.get(Reservation, own(bench, "brief"))).status.phase == "Available"
        await cluster.client.delete(Reservation, own(bench, "brief"))
        await bench.scheduler.cache.relist()
        await bench.apply(gang("other", group("w", 1)))
        await bench.expect({"other/w": 1})


@pytest.mark.simulated
async def test_a_place_is_not_written_to_a_reservation_that_was_made_again_meanwhile(
    cluster: Any, reservations: None
) -> None:
    late = cluster.client = Late(cluster.sim.server)
    async with scheduling(cluster) as bench:
        await cluster.client.create(Reservation, reservation(own(bench, "r"), **copy.deepcopy(OURS)))
        await cluster.settle(2)
        late.behind = Reservation
        await cluster.client.delete(Reservation, own(bench, "r"))
        await cluster.client.create(Reservation, reservation(own(bench, "r"), gpus=2, **copy.deepcopy(OURS)))
        await bench.add_nodes(1)
        await cluster.settle(2)
        assert (await cluster.client.get(Reservation, own(bench, "r"))).status.phase == ""
        await bench.scheduler.cache.relist()
        await bench.add_nodes(1, gpus=2)
        await cluster.settle(2)
        found = await cluster.client.get(Reservation, own(bench, "r"))
        assert (found.status.phase, found.status.allocatable[GPU]) == ("Available", "2")


@pytest.mark.simulated
async def test_what_a_pod_used_is_given_back_when_a_list_shows_another_one_of_its_name(
    cluster: Any, reservations: None
) -> None:
    late = cluster.client = Late(cluster.sim.server)
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        await standing(cluster, reservation(own(bench, "pool"), allocateOnce=False), node)
        await cluster.settle(0.5)
        pod = pod_json("server-0", bench.namespace)
        pod["metadata"]["labels"] = RED
        await bench.create_pod(pod)
        await bench.expect({"/": 1})
        late.behind = Pod
        await cluster.client.delete(Pod, "server-0", bench.namespace, grace_period_s=0)
        pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        await bench.create_pod(pod)
        await bench.scheduler.cache.relist()
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        await bench.apply(gang("red", group("w", 1), labels=RED))
        await bench.expect({"red/w": 1})


@pytest.mark.simulated
async def test_what_was_allocated_is_known_after_a_restart(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1, gpus=2)
        await standing(cluster, reservation(own(bench, "pool"), gpus=2, allocateOnce=False), node, 2)
        await cluster.settle(0.5)
        await bench.apply(gang("one", group("w", 1), labels=RED))
        await bench.expect({"one/w": 1})
        await bench.stop()
        await bench.start()
        await bench.apply(gang("two", group("w", 2), labels=RED))
        await bench.condition("two", status="False", reason="Unschedulable")
        await bench.apply(gang("three", group("w", 1), labels=RED))
        await bench.expect({"one/w": 1, "three/w": 1})


@pytest.mark.simulated
@pytest.mark.parametrize("restarted", [False, True], ids=["seen to be made anew", "found so after a restart"])
async def test_a_reservation_made_again_under_its_name_is_not_used_by_the_pod_of_the_one_before(
    cluster: Any, reservations: None, restarted: bool
) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2)
        name = await standing(cluster, reservation(own(bench, "r")), first)
        await cluster.settle(0.5)
        await bench.apply(gang("red", group("w", 1), labels=RED))
        await bench.expect({"red/w": 1})
        await cluster.client.delete(Reservation, name)
        if restarted:
            await bench.stop()
        await standing(cluster, reservation(name), second)
        if restarted:
            await bench.start()
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        assert (await cluster.client.get(Reservation, name)).status.phase == "Available"
        await bench.apply(gang("next", group("w", 1), labels=RED))
        await bench.expect({"red/w": 1, "next/w": 1})


@pytest.mark.simulated
async def test_a_reservation_no_one_can_use_is_reported(cluster: Any, reservations: None) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await cluster.client.create(Reservation, reservation(own(bench, "void"), owners=[{}], **OURS))
        event = await told_of_a_reservation(cluster, "NobodyMatches")
        assert event.message == "no owner is named: no pod can ever use it"
        waits = gang("waits", group("w", 1), labels=RED)
        await bench.apply(waits, pods=False)
        pod = member_json(waits, waits.groups[0], 0, bench.namespace)
        pod["metadata"]["annotations"] = {AFFINITY: json.dumps({"name": own(bench, "void")})}
        await bench.create_pod(pod)
        kept = await bench.condition("waits", status="False")
        assert "no reservation that it asks for is free and for it" in kept.message
        await bench.apply(gang("others", group("w", 1)))
        await bench.condition("others", status="False")  # its capacity is taken all the same


@pytest.mark.simulated
async def test_no_gang_is_put_out_of_a_reservation_whose_capacity_would_not_become_free(
    cluster: Any, reservations: None
) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        for name, value in (("low", 10), ("high", 100)):
            await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        await standing(cluster, reservation(f"{cluster.prefix}many", allocateOnce=False), node)
        await cluster.settle(1)
        await bench.apply(gang("mine", group("w", 1), labels=RED, priority_class="low"))
        await bench.expect({"mine/w": 1})
        (pod,) = await bench.pods()
        await bench.apply(gang("other", group("w", 1), priority_class="high"))
        await bench.condition("other", status="False", reason="Unschedulable")
        await cluster.settle(30)
        assert pod.metadata.uid in {one.metadata.uid for one in await bench.pods()}, "its going would help nobody"


async def test_a_reservation_that_an_earlier_scheduler_wrote_on_a_pod_is_taken_off_where_it_is_not_used(
    cluster: Any, reservations: None
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        made = gang("late", group("w", 1))
        await bench.apply(made, pods=False)
        pod = member_json(made, made.groups[0], 0, bench.namespace)
        pod["metadata"]["annotations"] = {ALLOCATED: json.dumps({"name": own(bench, "gone"), "uid": "u"})}
        await bench.create_pod(pod)
        await bench.expect({"late/w": 1})
        (found,) = await bench.pods()
        assert ALLOCATED not in found.metadata.annotations


async def test_a_reservation_that_ends_while_its_pod_is_bound_keeps_its_capacity_for_it(
    cluster: Any, reservations: None, slow_binds: asyncio.Event
) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        name = await standing(cluster, reservation(own(bench, "short")), node)
        await bench.seen(Reservation, name)
        await bench.apply(gang("mine", group("w", 1), labels=RED))
        await cluster.eventually(lambda: is_written_on_a_pod(bench))
        await cluster.client.delete(Reservation, name)
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        slow_binds.set()
        await bench.expect({"mine/w": 1})


@pytest.mark.simulated
async def test_a_reservation_made_again_while_the_pod_of_the_one_before_is_bound_is_not_used_by_it(
    cluster: Any, reservations: None, slow_binds: asyncio.Event
) -> None:
    async with scheduling(cluster) as bench:
        first, second = await bench.add_nodes(2)
        name = await standing(cluster, reservation(own(bench, "r")), first)
        await bench.seen(Reservation, name)
        await bench.apply(gang("mine", group("w", 1), labels=RED))
        await cluster.eventually(lambda: is_written_on_a_pod(bench))
        await cluster.client.delete(Reservation, name)
        await standing(cluster, reservation(name), second)
        await cluster.settle(1)
        slow_binds.set()
        await bench.expect({"mine/w": 1})
        await bench.apply(gang("other", group("w", 1)))
        await bench.condition("other", status="False", reason="Unschedulable")
        assert (await cluster.client.get(Reservation, name)).status.phase == "Available"


@pytest.mark.simulated
async def test_a_preemptor_finds_the_way_that_suits_all_its_pods(cluster: Any, reservations: None) -> None:
    """The small pod fits into either reservation, the large one only beside it into the first."""
    async with scheduling(cluster) as bench:
        for name, value in (("low", 10), ("high", 100)):
            await cluster.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        (first,) = await bench.add_nodes(1, gpus=4)
        (second,) = await bench.add_nodes(1, gpus=2)
        await standing(cluster, reservation(own(bench, "a"), labels=POOL, allocateOnce=False), first)
        restricted = reservation(own(bench, "b"), gpus=2, labels=POOL, allocatePolicy="Restricted")
        await standing(cluster, restricted, second, 2)
        await cluster.settle(0.5)
        await bench.apply(gang("under", group("w", 1, gpus=3), priority_class="low"))
        await bench.expect({"under/w": 1})
        high = gang("red", group("small", 1), group("large", 1, gpus=3), labels=RED, priority_class="high")
        await bench.apply(high, pods=False)
        for part in high.groups:
            pod = member_json(high, part, 0, bench.namespace)
            pod["metadata"]["annotations"] = {AFFINITY: json.dumps({"reservationSelector": {"pool": "p"}})}
            await bench.create_pod(pod)
        await bench.expect({"red/small": 1, "red/large": 1})
        assert await users(bench) == {"red-small-0": own(bench, "b"), "red-large-0": own(bench, "a")}


@pytest.mark.simulated
async def test_no_node_is_held_for_a_gang_where_the_capacity_is_reserved_for_others(
    cluster: Any, reservations: None
) -> None:
    """Pods end and reservations stay: who waits would wait there for ever, and keep others away."""
    async with scheduling(cluster) as bench:
        reserved, taken = await bench.add_nodes(2)
        await standing(cluster, reservation(own(bench, "a"), ttl="0s", allocateOnce=False), reserved)
        await cluster.settle(0.5)
        await bench.apply(gang("there", group("w", 1)))
        await bench.expect({"there/w": 1})
        await bench.apply(gang("waits", group("w", 1)))
        await cluster.settle(200)
        held = await bench.condition("waits", "NodesHeld", status="True")
        assert taken in held.message
        assert reserved not in held.message
        await bench.stop()
        await bench.start()
        await cluster.settle(5)
        held = await bench.condition("waits", "NodesHeld", status="True")
        assert taken in held.message, "the same after a restart"
        assert reserved not in held.message


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("requests", "words"),
    [
        pytest.param({GPU: "-1"}, "less than nothing is requested", id="a negative amount"),
        pytest.param({GPU: "lots"}, "quantity", id="an unknown unit"),
    ],
)
async def test_a_reservation_that_is_wrong_is_reported_and_nothing_else_stops(
    cluster: Any, reservations: None, requests: dict[str, str], words: str
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        wrong = reservation(own(bench, "wrong"), **OURS)
        wrong["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
        await cluster.client.create(Reservation, wrong)
        await cluster.client.create(Reservation, reservation(own(bench, "right"), **OURS))
        await bench.apply(gang("runs", group("w", 1)))
        await bench.expect({"runs/w": 1})
        event = await told_of_a_reservation(cluster, "InvalidReservation")
        assert words in event.message
        assert event.involved_object.name == own(bench, "wrong")
        assert (await cluster.client.get(Reservation, own(bench, "right"))).status.phase == "Available"


@pytest.mark.simulated
async def test_an_allocatable_that_is_no_quantity_is_reported_and_holds_nothing(
    cluster: Any, reservations: None
) -> None:
    async with scheduling(cluster) as bench:
        (node,) = await bench.add_nodes(1)
        await cluster.client.create(Reservation, reservation(own(bench, "wrong")))
        status = {"phase": "Available", "nodeName": node, "allocatable": {GPU: "lots"}}
        await cluster.client.patch(Reservation, own(bench, "wrong"), {"status": status}, subresource="status")
        event = await told_of_a_reservation(cluster, "InvalidReservation")
        assert event.message == f"allocatable.{GPU}: 'lots' is not a quantity"
        await bench.apply(gang("runs", group("w", 1)))
        await bench.expect({"runs/w": 1})


@pytest.mark.simulated
async def test_no_record_remains_of_reservations_that_were_placed_or_deleted(cluster: Any, reservations: None) -> None:
    """Both are refused first, so that a reason is remembered for each."""
    async with scheduling(cluster) as bench:
        for name in ("placed", "deleted"):
            body = reservation(own(bench, name), gpus=1 if name == "placed" else 2, **copy.deepcopy(OURS))
            await cluster.client.create(Reservation, body)
        await cluster.settle(60)
        assert len([unit for unit in bench.scheduler.view.units if unit.explained is not None]) == 2
        await bench.add_nodes(1)
        await cluster.client.delete(Reservation, own(bench, "deleted"))
        await cluster.settle(3600)
        assert (await cluster.client.get(Reservation, own(bench, "placed"))).status.phase == "Available"
        assert [unit.name for unit in bench.scheduler.view.units] == []
