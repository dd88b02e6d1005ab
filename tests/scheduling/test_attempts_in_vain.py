"""What the scheduler does when the same attempt fails again and again: it waits for longer, or takes another way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.days import HOUR_S, NAMESPACE, Day
from tests.support.fleet import QUOTA, elastic, install
from tests.support.gangs import gang, group, pod_json

from grove.api.core import Pod
from grove.api.koordinator import ElasticQuota
from grove.kube.errors import Forbidden
from grove.scheduler.loop.holds.nominations import Nominations
from grove.scheduler.loop.turn.cycle import QueueUpdater
from grove.sim.loop import run
from grove.sim.topology import HOST, RACK


def on(node: str) -> dict[str, Any]:
    return {"nodeSelector": {HOST: node}}


def test_a_gang_whose_bindings_are_always_refused_is_bound_more_and_more_seldom() -> None:
    async def story() -> tuple[int, int]:
        async with Day(nodes=1) as day:
            binds = 0

            async def refuse(namespace: str, pod: str, node: str, *, uid: str = "") -> None:
                nonlocal binds
                binds += 1
                raise Forbidden("an admission policy says no", code=403)

            setattr(day.scheduler_client, "bind", refuse)  # noqa: B010
            await day.apply(gang("refused", group("w", 1)))
            await asyncio.sleep(600)
            events = await day.events("GangUnschedulable")
            return binds, sum(event.count for event in events)

    binds, events = run(story())
    assert 100 < binds < 150  # once in five seconds, the longest back-off
    assert events <= binds


def test_a_pod_that_two_budgets_cover_is_no_victim_because_no_eviction_of_it_is_ever_allowed() -> None:
    async def story() -> tuple[float, str]:
        async with Day(nodes=2) as day:
            first, second = await day.nodes()
            for name in ("one", "two"):
                await day.protect(name, {"app": "covered"}, 1)
            covered = pod_json("a-covered", NAMESPACE, priorityClassName="low", **on(first))
            covered["metadata"]["labels"] = {"app": "covered"}
            await day.client.create(Pod, covered)
            await day.client.create(Pod, pod_json("beside", NAMESPACE, priorityClassName="low", **on(second)))
            await asyncio.sleep(10)
            await day.apply(gang("high", group("w", 1), priority_class="high"))
            waited_s = await day.waited_and_stayed("high", 1)
            await day.apply(gang("more", group("w", 1), priority_class="high"))
            await day.pass_a_day()
            [scheduled] = [one for one in (await day.podgang("more")).status.conditions if one.type == "Scheduled"]
            return waited_s, scheduled.message

    waited_s, message = run(story())
    assert waited_s < 60
    assert "default/one and default/two (a pod that more than one budget covers cannot be evicted)" in message


def test_many_gangs_that_wait_for_pods_to_leave_are_not_placed_again_because_one_of_them_is() -> None:
    """Some other pod looks at its neighbours, so each place that is reserved counts as a change that may help."""

    async def story() -> tuple[int, int]:
        gangs = 12
        async with Day(nodes=gangs + 1, stop_s=HOUR_S) as day:
            *nodes, last = await day.nodes()
            for node in nodes:
                slow = pod_json(
                    f"slow-{node}",
                    NAMESPACE,
                    priorityClassName="low",
                    terminationGracePeriodSeconds=int(HOUR_S),
                    **on(node),
                )
                await day.client.create(Pod, slow)
            await day.client.create(Pod, pod_json("ends", NAMESPACE, priorityClassName="urgent", **on(last)))
            near = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "absent"}}}
            affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
            await day.client.create(Pod, pod_json("looks", NAMESPACE, priorityClassName="low", affinity=affinity))
            await asyncio.sleep(5)
            for node in nodes:
                await day.client.delete(Pod, f"slow-{node}", NAMESPACE)
            for number in range(gangs):
                await day.apply(gang(f"g-{number}", group("w", 1), priority_class="high"))
            await asyncio.sleep(60)
            await day.client.create(Pod, pod_json("next", NAMESPACE, priorityClassName="urgent", **on(last)))
            await asyncio.sleep(5)
            before = day.scheduler.cycles
            await day.end("ends")
            await asyncio.sleep(600)
            turns = day.scheduler.cycles - before
            await asyncio.sleep(HOUR_S)
            return turns, await day.bound("g-")

    turns, bound = run(story())
    assert turns < 60
    assert bound == 12


async def wait_for_a_pod_to_leave(day: Day, small: dict[str, Any]) -> None:
    """Gang g waits for the end of pod slow on the first node. Its small pod is beside pod ends, on the second."""
    first, second = await day.nodes()
    grace = {"terminationGracePeriodSeconds": int(HOUR_S)}
    await day.client.create(Pod, pod_json("slow", NAMESPACE, gpus=8, priorityClassName="low", **on(first), **grace))
    await day.client.create(Pod, pod_json("ends", NAMESPACE, priorityClassName="urgent", **on(second)))
    await asyncio.sleep(5)
    await day.client.delete(Pod, "slow", NAMESPACE)
    groups = group("large", 1, gpus=8), group("small", 1, gpus=1, spec=small)
    await day.apply(gang("g", *groups, priority_class="high"))
    await asyncio.sleep(60)


@pytest.mark.parametrize("keeps_others_off_its_rack", [False, True])
def test_a_gang_that_waits_for_pods_to_leave_is_not_placed_again_because_its_own_place_was_given_back(
    monkeypatch: pytest.MonkeyPatch, *, keeps_others_off_its_rack: bool
) -> None:
    """Its small pod fits beside its own place, so the nodes of that place look as if they helped it."""
    searches, most = 0, 20
    search = Nominations.try_preempt

    async def count(self: Nominations, *args: Any) -> bool:
        nonlocal searches
        searches += 1
        return searches < most and await search(self, *args)  # else it would never end

    async def story() -> tuple[int, int]:
        async with Day(nodes=2, gpus=8, stop_s=HOUR_S) as day:
            apart = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "absent"}}}
            affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
            await wait_for_a_pod_to_leave(day, {"affinity": affinity} if keeps_others_off_its_rack else {})
            monkeypatch.setattr(Nominations, "try_preempt", count)
            await day.end("ends")
            await asyncio.sleep(600)
            after = searches
            await asyncio.sleep(HOUR_S)
            return after, await day.bound("g-")

    after, bound = run(story())
    assert 0 < after < 5
    assert bound == 2


def test_a_look_that_fails_at_a_gang_that_waits_for_pods_to_leave_stops_no_other_gang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consider = QueueUpdater.consider

    def fail(self: QueueUpdater, name: str, *args: Any, **more: Any) -> None:
        if name == "default/g":
            raise LookupError("nobody thought of that")
        consider(self, name, *args, **more)

    async def story() -> int:
        async with Day(nodes=2, gpus=8, stop_s=HOUR_S) as day:
            await wait_for_a_pod_to_leave(day, {})
            monkeypatch.setattr(QueueUpdater, "consider", fail)
            await day.end("ends")
            await asyncio.sleep(10)
            await day.apply(gang("other", group("w", 1)))
            await asyncio.sleep(60)
            return await day.bound("other")

    assert run(story()) == 1


def test_with_quotas_a_place_that_another_pod_took_is_given_up_at_once() -> None:
    async def story() -> float:
        async with Day(nodes=1, stop_s=20) as day:
            await install(day, "ElasticQuota")
            await asyncio.sleep(60)
            await day.client.create(ElasticQuota, elastic("team", NAMESPACE, 4, 4))
            [node] = await day.nodes()
            grace = {"terminationGracePeriodSeconds": 20}
            await day.client.create(Pod, pod_json("low", NAMESPACE, priorityClassName="low", **grace))
            await asyncio.sleep(5)
            await day.apply(gang("high", group("w", 1), priority_class="high", labels={QUOTA: "team"}))
            await asyncio.sleep(10)
            other = pod_json("other", NAMESPACE, priorityClassName="low")
            other["spec"] |= {"nodeName": node, "schedulerName": "another"}
            await day.client.create(Pod, other)
            return await day.waited_and_stayed("high", 1)

    assert run(story()) < 60


def test_units_of_two_queues_that_wait_for_the_same_pods_to_leave_do_not_take_the_place_from_each_other() -> None:
    """The queue of the unit for which the place is held would be the fuller one, if that place counted as used."""

    async def story() -> tuple[int, int]:
        async with Day(nodes=1, gpus=4, stop_s=20) as day:
            await install(day, "ElasticQuota")
            await asyncio.sleep(60)
            for queue in ("queue-0", "queue-1"):
                await day.client.create(ElasticQuota, elastic(queue, NAMESPACE, 2, 4))
            grace = {"terminationGracePeriodSeconds": 20}
            old = gang("old", group("w", 1, gpus=4, spec=grace), priority_class="low", labels={QUOTA: "queue-0"})
            await day.apply(old)
            await asyncio.sleep(5)
            await day.client.delete(Pod, "old-w-0", NAMESPACE)
            before = day.scheduler.cycles
            for number in range(2):
                labels = {QUOTA: f"queue-{number}"}
                await day.apply(gang(f"new-{number}", group("w", 1, gpus=4), priority_class="high", labels=labels))
            await asyncio.sleep(60)
            return day.scheduler.cycles - before, await day.bound("new-")

    turns, bound = run(story())
    assert turns < 50
    assert bound == 1
