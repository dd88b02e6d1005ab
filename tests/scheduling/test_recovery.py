"""A scheduler that dies in the middle of something, and refusals: what is half done is finished or taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.gangs import Bench, Gang, Wrong, gang, gang_json, group, member_json, pod_json, scheduling

from grove.api.core import Node, Pod, PodDisruptionBudget, PriorityClass
from grove.api.labels import GANG_TIMEOUT, POD_GANG
from grove.api.meta import Key, find_condition
from grove.api.podgang import HeldCapacity, PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.client import WatchEvent
from grove.kube.clock import Clock
from grove.kube.errors import Forbidden
from grove.scheduler.loop.holds.long_wait_holds import LongWaitHolds
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration, Seconds
from grove.sim.client import SimClient
from grove.sim.cluster import SimCluster
from grove.sim.loop import run
from grove.sim.topology import Topology

NAMESPACE = "default"


class Refusing(SimClient):
    """Refuses to bind pods of some names for good, and can be cut off after a number of evictions."""

    refused: frozenset[str] = frozenset()
    evictions_left = 10**6

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str = "") -> None:
        if pod in self.refused:
            raise Forbidden("an admission policy says no", code=403)
        await super().bind(namespace, pod, node, uid=uid)

    async def evict(self, namespace: str, pod: str, *, uid: str = "", dry_run: bool = False) -> None:
        if self.evictions_left <= 0:
            await asyncio.get_running_loop().create_future()  # no answer will ever come
        self.evictions_left -= 1
        await super().evict(namespace, pod, uid=uid, dry_run=dry_run)


class LateOfPods(SimClient):
    """When `is_behind` is set, watches of pods that are open bring nothing more; those opened afterwards are sound."""

    is_behind = False

    async def watch(self, kind: Any, *args: Any, **kwargs: Any) -> AsyncIterator[WatchEvent[Any]]:
        opened_late = self.is_behind
        async for event in super().watch(kind, *args, **kwargs):
            if kind is Pod and self.is_behind and not opened_late:
                await asyncio.get_running_loop().create_future()
            yield event


async def apply(client: SimClient, made: Gang) -> None:
    await client.create(PodGang, gang_json(made, NAMESPACE))
    for part in made.groups:
        for number in range(part.pods):
            await client.create(Pod, member_json(made, part, number, NAMESPACE))


async def on_nodes(client: SimClient, prefix: str) -> list[str]:
    pods = (await client.list(Pod, NAMESPACE)).items
    return sorted(
        pod.metadata.name
        for pod in pods
        if pod.spec.node_name and not pod.metadata.is_deleting and pod.metadata.name.startswith(prefix)
    )


def test_a_pod_that_may_not_be_bound_takes_its_gang_back_and_no_other_pod() -> None:
    async def story() -> tuple[list[str], list[str], Any]:
        async with SimCluster(nodes=Topology(nodes=6, gpus=1)) as sim:
            mine = Refusing(sim.server)
            mine.refused = frozenset({"bad-w-2"})
            task = asyncio.ensure_future(
                Scheduler(mine, SchedulerConfiguration(bind_concurrency=1), sim.clock, say=sentence).run()
            )
            client = sim.client()
            await apply(client, gang("bad", group("w", 3)))
            await apply(client, gang("good", group("w", 3)))
            await asyncio.sleep(20)
            bad, good = await on_nodes(client, "bad"), await on_nodes(client, "good")
            gang_now = await client.get(PodGang, "bad", NAMESPACE)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return bad, good, find_condition(gang_now.status.conditions, "Scheduled")

    bad, good, condition = run(story())
    assert bad == []
    assert good == ["good-w-0", "good-w-1", "good-w-2"]
    assert condition.status == "False"


def test_surplus_that_may_not_be_bound_costs_the_gang_nothing() -> None:
    async def story() -> list[str]:
        async with SimCluster(nodes=Topology(nodes=6, gpus=1)) as sim:
            mine = Refusing(sim.server)
            mine.refused = frozenset({"work-w-2"})
            task = asyncio.ensure_future(Scheduler(mine, SchedulerConfiguration(), sim.clock, say=sentence).run())
            client = sim.client()
            await apply(client, gang("work", group("w", 3, 2)))
            await asyncio.sleep(20)
            found = await on_nodes(client, "work")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return found

    assert run(story()) == ["work-w-0", "work-w-1"]


def test_an_eviction_that_was_cut_short_is_finished_by_the_next_scheduler() -> None:
    async def story() -> tuple[int, int, list[str]]:
        async with SimCluster(nodes=Topology(nodes=4, gpus=1)) as sim:
            client = sim.client()
            for name, value in (("low", 10), ("high", 1000)):
                await client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
            first = Refusing(sim.server)
            first.evictions_left = 1
            task = asyncio.ensure_future(Scheduler(first, SchedulerConfiguration(), sim.clock, say=sentence).run())
            await apply(client, gang("low", group("w", 4), priority_class="low"))
            await asyncio.sleep(3)
            await apply(client, gang("high", group("w", 4), priority_class="high"))
            await asyncio.sleep(3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            half = len(await on_nodes(client, "low"))
            await client.delete(PodGang, "high", NAMESPACE)
            task = asyncio.ensure_future(
                Scheduler(sim.client(), SchedulerConfiguration(), sim.clock, say=sentence).run()
            )
            await asyncio.sleep(5)
            rest = len(await on_nodes(client, "low"))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return half, rest, await on_nodes(client, "high")

    half, rest, high = run(story())
    assert half == 3
    assert rest == 0
    assert high == []


def test_an_eviction_that_a_budget_stops_past_a_short_gang_timeout_is_given_up_and_the_gang_repaired() -> None:
    """The rest of a gang may not go for want of the pods that went: one of the two has to give way."""

    async def story() -> list[str]:
        async with SimCluster(nodes=Topology(nodes=4, gpus=1)) as sim:
            client = sim.client()
            for name, value in (("low", 10), ("high", 1000)):
                await client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
            config = SchedulerConfiguration(gang_timeout=Seconds(30))
            first = Refusing(sim.server)
            first.evictions_left = 1
            low = gang("low", group("w", 4), priority_class="low")
            task = asyncio.ensure_future(Scheduler(first, config, sim.clock, say=sentence).run())
            await apply(client, low)
            await asyncio.sleep(3)
            await apply(client, gang("high", group("w", 4), priority_class="high"))
            await asyncio.sleep(3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.delete(PodGang, "high", NAMESPACE)
            await client.delete_collection(Pod, NAMESPACE, labels=f"{POD_GANG}=high")
            budget = {"minAvailable": 4, "selector": {"matchLabels": {POD_GANG: "low"}}}
            await client.create(
                PodDisruptionBudget, {"metadata": {"name": "b", "namespace": NAMESPACE}, "spec": budget}
            )
            await asyncio.sleep(3)
            task = asyncio.ensure_future(Scheduler(sim.client(), config, sim.clock, say=sentence).run())
            left = await on_nodes(client, "low")
            [gone] = [number for number in range(4) if f"low-w-{number}" not in left]
            await client.create(Pod, member_json(low, low.groups[0], gone, NAMESPACE))
            await asyncio.sleep(60)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return await on_nodes(client, "low")

    assert len(run(story())) == 4


@pytest.mark.parametrize("watches", ["watches that hear", "watches that lag behind"])
def test_who_gets_the_lease_has_what_the_last_leader_bound(watches: str) -> None:
    """A watch does not say how far behind it is: a new leader that believes in it would fill a full node again."""

    async def story() -> tuple[list[str], list[str]]:
        async with SimCluster(nodes=Topology(nodes=2, gpus=8)) as sim:
            client, mine = sim.client(), LateOfPods(sim.server)
            await client.create(PriorityClass, {"metadata": {"name": "high"}, "value": 1000})
            await apply(client, gang("second", group("w", 2, gpus=8)))
            standby = Scheduler(mine, SchedulerConfiguration(), sim.clock, say=sentence)
            async with standby.following():
                mine.is_behind = watches == "watches that lag behind"
                await apply(client, gang("first", group("w", 2, gpus=8), priority_class="high"))
                leader = asyncio.ensure_future(
                    Scheduler(sim.client(), SchedulerConfiguration(), sim.clock, say=sentence).run()
                )
                await asyncio.sleep(5)
                leader.cancel()
                await asyncio.gather(leader, return_exceptions=True)
                leading = asyncio.ensure_future(standby.lead())
                await asyncio.sleep(10)
                found = await on_nodes(client, "first"), await on_nodes(client, "second")
                for pod in ("first-w-0", "first-w-1"):
                    await client.delete(Pod, pod, NAMESPACE)
                await client.delete(PodGang, "first", NAMESPACE)
                await asyncio.sleep(60)
                later = await on_nodes(client, "second")
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)
            assert later == ["second-w-0", "second-w-1"], "it follows what happens afterwards"
            return found

    assert run(story()) == (["first-w-0", "first-w-1"], [])


def test_a_back_off_that_ends_in_the_middle_of_a_turn_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the turn began the gang was not to be tried yet, and when it ended no moment lay ahead."""
    quick = LongWaitHolds.resume

    async def slow(self: LongWaitHolds) -> None:
        await asyncio.sleep(0.02)
        await quick(self)

    async def story() -> tuple[int, int]:
        async with SimCluster(nodes=Topology(nodes=1, gpus=1)) as sim:
            scheduler = Scheduler(sim.client(), SchedulerConfiguration(), sim.clock, say=sentence)
            task = asyncio.ensure_future(scheduler.run())
            await apply(sim.client(), gang("wide", group("w", 2)))
            await asyncio.sleep(30)
            waiting = scheduler.queue.get(f"{NAMESPACE}/wide")
            assert waiting is not None
            before = waiting.failures
            waiting.not_before_s = asyncio.get_running_loop().time() + 0.01
            monkeypatch.setattr(LongWaitHolds, "resume", slow)
            scheduler.view.changes.help_all()
            await asyncio.sleep(5)
            after = waiting.failures
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return before, after

    before, after = run(story())
    assert after == before + 1, "it was tried again"


def test_capacity_that_comes_in_the_middle_of_a_turn_is_first_for_who_was_refused_before() -> None:
    """The elder gang is refused while the second node becomes free; the younger one would take it in the same turn."""

    async def slowly(work: Callable[[], Any]) -> Any:
        answer = work()
        await asyncio.sleep(1)
        return answer

    async def story() -> tuple[list[str], list[str]]:
        async with SimCluster(nodes=Topology(nodes=2, gpus=1)) as sim:
            client = sim.client()
            for number, node in enumerate(sorted(sim.nodes.names)):
                await client.create(Pod, pod_json(f"busy-{number}", NAMESPACE, schedulerName="other"))
                sim.server.bind(Key(NAMESPACE, f"busy-{number}"), node)
            scheduler = Scheduler(client, SchedulerConfiguration(), sim.clock, aside=slowly, say=sentence)
            task = asyncio.ensure_future(scheduler.run())
            await apply(client, gang("elder", group("w", 2)))
            await asyncio.sleep(10)
            await apply(client, gang("younger", group("w", 1)))
            await asyncio.sleep(20)
            await client.delete(Pod, "busy-0", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(0.5)
            await client.delete(Pod, "busy-1", NAMESPACE, grace_period_s=0)
            await asyncio.sleep(20)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return await on_nodes(client, "elder"), await on_nodes(client, "younger")

    assert run(story()) == (["elder-w-0", "elder-w-1"], [])


class Jumping:
    """The cluster's clock, wrong by so much: a machine whose time was set while it ran."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.wrong = timedelta()

    def now(self) -> datetime:
        return self._clock.now() + self.wrong


@pytest.mark.parametrize(
    "jump", [pytest.param(timedelta(days=-400), id="back"), pytest.param(timedelta(days=400), id="ahead")]
)
def test_a_clock_that_jumps_delays_no_deadline_and_stops_no_other(jump: timedelta) -> None:
    """A gang is bound in part when the clock jumps: it goes back by its deadline, others come and stay."""

    async def story() -> tuple[list[str], list[str], list[str]]:
        async with SimCluster(nodes=Topology(nodes=2, gpus=1)) as sim:
            client, clock = sim.client(), Jumping(sim.clock)
            nodes = sorted(node.metadata.name for node in (await client.list(Node)).items)
            await apply(client, gang("half", group("w", 3), annotations={GANG_TIMEOUT: "30s"}))
            await client.bind(NAMESPACE, "half-w-0", nodes[0])
            task = asyncio.ensure_future(Scheduler(sim.client(), SchedulerConfiguration(), clock, say=sentence).run())
            await asyncio.sleep(5)
            clock.wrong = jump
            await apply(client, gang("fine", group("w", 1)))
            await asyncio.sleep(5)
            early = await on_nodes(client, "fine")
            await asyncio.sleep(25)
            half = await on_nodes(client, "half")
            clock.wrong = timedelta()
            await asyncio.sleep(600)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return early, half, await on_nodes(client, "fine")

    assert run(story()) == (["fine-w-0"], [], ["fine-w-0"])


@pytest.mark.parametrize(
    ("behind_s", "start_s"),
    [
        pytest.param(0.5, 1, id="half a second"),
        pytest.param(3, 1, id="seconds"),
        pytest.param(60, 1, id="a minute"),
        pytest.param(3, 7200, id="seconds, while it starts"),
    ],
)
def test_a_gang_that_ran_is_repaired_after_a_restart_although_the_clock_is_behind_the_clusters(
    behind_s: float, start_s: float
) -> None:
    """Its pods look as if they were bound after it stood: taken for another attempt, the healthy ones would go."""

    async def story() -> list[str]:
        async with SimCluster(nodes=Topology(nodes=6, gpus=1), start_s=start_s) as sim:
            client, clock = sim.client(), Jumping(sim.clock)
            clock.wrong = -timedelta(seconds=behind_s)
            task = asyncio.ensure_future(Scheduler(sim.client(), SchedulerConfiguration(), clock, say=sentence).run())
            await apply(client, gang("work", group("w", 3)))
            await asyncio.sleep(3600)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.delete(Pod, "work-w-0", NAMESPACE, grace_period_s=0)
            task = asyncio.ensure_future(Scheduler(sim.client(), SchedulerConfiguration(), clock, say=sentence).run())
            await asyncio.sleep(30)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return await on_nodes(client, "work")

    assert run(story()) == ["work-w-1", "work-w-2"]


def test_a_gang_whose_pods_were_all_replaced_is_repaired_after_a_restart() -> None:
    """One by one, so that it always stood: none of its pods was there when it was placed."""

    async def story() -> list[str]:
        async with SimCluster(nodes=Topology(nodes=6, gpus=1)) as sim:
            client = sim.client()
            task = asyncio.ensure_future(
                Scheduler(sim.client(), SchedulerConfiguration(), sim.clock, say=sentence).run()
            )
            made = gang("work", group("w", 3, 2))
            await apply(client, made)
            await asyncio.sleep(600)
            for number in range(3):
                await client.delete(Pod, f"work-w-{number}", NAMESPACE, grace_period_s=0)
                await asyncio.sleep(60)
                await client.create(Pod, member_json(made, made.groups[0], number, NAMESPACE))
                await asyncio.sleep(600)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for number in (0, 2):
                await client.delete(Pod, f"work-w-{number}", NAMESPACE, grace_period_s=0)
            task = asyncio.ensure_future(
                Scheduler(sim.client(), SchedulerConfiguration(), sim.clock, say=sentence).run()
            )
            await asyncio.sleep(30)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return await on_nodes(client, "work")

    assert run(story()) == ["work-w-1"]


@pytest.mark.simulated
async def test_nodes_that_were_held_for_a_gang_are_held_after_a_restart_too(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("there", group("w", 1)))
        await bench.expect({"there/w": 1})
        await bench.apply(gang("large", group("w", 2)))
        await cluster.settle(200)
        held = await bench.condition("large", "NodesHeld", status="True")
        nodes = (await _hold(bench, "large", "WaitedLong")).nodes
        await bench.stop()
        await bench.apply(gang("small", group("w", 1)))
        await cluster.settle(5)
        await bench.start()
        told = await bench.condition("small", status="False", reason="NodesHeldForOthers")
        assert f"{bench.namespace}/large" in told.message
        again = await bench.condition("large", "NodesHeld", status="True")
        assert again.last_transition_time == held.last_transition_time, "it is the same hold"
        assert (await _hold(bench, "large", "WaitedLong")).nodes == nodes
        await bench.expect({"there/w": 1})
        await bench.client.delete(PodGang, "there", bench.namespace)
        await bench.client.delete(Pod, "there-w-0", bench.namespace, grace_period_s=0)
        await bench.expect({"large/w": 2})


@pytest.mark.real_in("soak")
async def test_a_node_that_was_held_for_a_pod_without_a_gang_is_held_after_a_restart_with_a_short_hold_after_too(
    cluster: Any,
) -> None:
    """`hold_after` is 10 seconds, because a real API server has no virtual time."""
    async with scheduling(cluster, hold_after=Seconds(10)) as bench:
        (node,) = await bench.add_nodes(1, gpus=2)
        there = gang("there", group("w", 2))
        await bench.apply(there)
        await bench.expect({"there/w": 2})
        await bench.client.create(Pod, pod_json("large", bench.namespace, gpus=2))

        async def is_named() -> Any:
            large = await bench.client.get(Pod, "large", bench.namespace)
            return large.status.nominated_node_name == node or Wrong(large.status)

        await cluster.eventually(is_named, 120)
        await bench.stop()
        await bench.apply(gang("small", group("w", 1)))
        await bench.client.delete(Pod, "there-w-0", bench.namespace, grace_period_s=0)
        await bench.client.delete(PodGang, "there", bench.namespace)
        await bench.start()
        told = await bench.condition("small", status="False", reason="NodesHeldForOthers")
        assert f"{bench.namespace}/large" in told.message
        await bench.client.delete(Pod, "there-w-1", bench.namespace, grace_period_s=0)

        async def is_bound() -> Any:
            large = await bench.client.get(Pod, "large", bench.namespace)
            return large.spec.node_name == node or Wrong(large.status)

        await cluster.eventually(is_bound, 120)


@pytest.mark.simulated
async def test_a_place_that_a_gang_may_take_over_is_known_after_a_restart_too(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        (large,) = await bench.add_nodes(1, gpus=8)
        await bench.apply(gang("old", group("w", 1)))
        await bench.expect({"old/w": 1})
        await bench.add_nodes(1)  # which a gang of one pod would take rather
        await bench.client.delete(PodGang, "old", bench.namespace)
        new = gang("new", group("w", 1), labels={"grove.io/scheduler-name": "grove-scheduler"})
        body = gang_json(new, bench.namespace)
        body["spec"]["reuseReservationRef"] = {"namespace": bench.namespace, "name": "old"}
        await bench.client.create(PodGang, body)
        await bench.client.delete(Pod, "old-w-0", bench.namespace, grace_period_s=0)
        assert (await _hold(bench, "new", "FormerPlace")).nodes == (large,)
        await bench.stop()
        await bench.start()
        await bench.create_pods(new)
        await bench.expect({"new/w": 1})
        assert set((await bench.nodes_of("new")).values()) == {large}
        await cluster.eventually(lambda: _holds_nothing(bench, "new"))


async def test_a_pod_that_was_lost_comes_back_to_its_node_after_a_restart_too(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        (large,) = await bench.add_nodes(1, gpus=8)
        made = gang("sys", group("w", 1), labels={"grove.io/scheduler-name": "grove-scheduler"})
        await bench.apply(made)
        await bench.expect({"sys/w": 1})
        await bench.add_nodes(1)  # which a gang of one pod would take rather
        await bench.client.delete(Pod, "sys-w-0", bench.namespace, grace_period_s=0)
        (lost,) = (await _hold(bench, "sys", "Replacement")).amounts
        assert (lost.group, lost.node, lost.requests) == ("w", large, {"nvidia.com/gpu": "1"})
        await bench.stop()
        await bench.start()
        await bench.create_pods(made)
        await bench.expect({"sys/w": 1})
        assert set((await bench.nodes_of("sys")).values()) == {large}
        await cluster.eventually(lambda: _holds_nothing(bench, "sys"))


@pytest.mark.parametrize("terminates", [False, True], ids=["gone at once", "terminating for long"])
async def test_a_pod_above_the_minimum_comes_back_to_its_node_after_a_restart_too(
    cluster: Any, terminates: bool
) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(1)
        await bench.apply(gang("other", group("w", 1)))
        await bench.expect({"other/w": 1})
        await bench.add_nodes(2)
        made = gang("sys", group("w", 2, 1), labels={"grove.io/scheduler-name": "grove-scheduler"})
        await bench.apply(made)
        await bench.expect({"other/w": 1, "sys/w": 2})
        left = (await bench.nodes_of("sys"))["sys-w-1"]
        await bench.client.delete(PodGang, "other", bench.namespace)  # its node is the first that a new pod would take
        await bench.client.delete(Pod, "other-w-0", bench.namespace, grace_period_s=0)
        if terminates:
            await bench.client.patch(Pod, "sys-w-1", {"metadata": {"finalizers": ["grove.io/test"]}}, bench.namespace)
        await bench.client.delete(Pod, "sys-w-1", bench.namespace, grace_period_s=0)
        if not terminates:
            assert [one.node for one in (await _hold(bench, "sys", "Replacement")).amounts] == [left]
        await bench.stop()
        await bench.start()
        if terminates:
            await bench.client.patch(Pod, "sys-w-1", {"metadata": {"finalizers": None}}, bench.namespace)
        await bench.create_pods(made, only=["sys-w-1"])
        await bench.expect({"sys/w": 2})
        assert (await bench.nodes_of("sys"))["sys-w-1"] == left
        await cluster.eventually(lambda: _holds_nothing(bench, "sys"))


async def _hold(bench: Bench, gang: str, reason: str) -> HeldCapacity:
    """What the gang's status says is held for this reason, as soon as it does."""

    async def find() -> HeldCapacity | None:
        holds = (await bench.podgang(gang)).status.capacity_holds
        return next((one for one in holds if one.reason == reason), None)

    found: HeldCapacity = await bench.cluster.eventually(find)
    return found


async def _holds_nothing(bench: Bench, gang: str) -> bool:
    return not (await bench.podgang(gang)).status.capacity_holds
