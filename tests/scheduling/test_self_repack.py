"""The scheduler moves gangs of its own accord, where that is switched on, and within its budget."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from tests.support.repack_worlds import fragmented, serving

from grove.answers.answer import RUNNING
from grove.answers.repack import repack_answer
from grove.answers.repack_apply import apply_answer
from grove.api.conditions import EventReason
from grove.api.core import Event, Node, Pod, PodDisruptionBudget
from grove.api.labels import PART_OF, POD_GANG
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.plan.world import World, shaped
from grove.scheduler.loop.moving.self_repack import restarted_lately
from grove.scheduler.model.config import Repacking, SchedulerConfiguration
from grove.scheduler.policy.restart_budget import HOUR_S
from grove.sim.loop import run

pytestmark = pytest.mark.simulated

ON = SchedulerConfiguration(repack=Repacking(automatic=True))
HOURS = 24


def events(world: World, reason: str) -> list[Event]:
    return [one for one in world.all(Event) if one.reason == reason]


def figure(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_gang_that_waits_gets_in_and_both_gangs_have_an_event() -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True, settings=ON) as world:
            await fragmented(world, 3, ["never", "never", "allow"])
            restarted, placed = (
                figure("grove_repack_restarted_pods_total"),
                figure("grove_repacks_total", result="placed"),
            )
            await world.apply(serving("chat", 1, 8))
            assert await world.until(lambda: world.is_settled("chat"), 300)
            await asyncio.sleep(120)
            [moved] = events(world, EventReason.GANG_MOVING)
            [helped] = events(world, EventReason.GANGS_MOVED_FOR_IT)
            assert moved.message == "moved, so that default/chat-0 fits"
            assert (helped.involved_object.name, helped.message) == (
                "chat-0",
                "1 gang moved for this gang, 1 pod restarted",
            )
            assert figure("grove_repack_restarted_pods_total") - restarted == 1
            assert figure("grove_repacks_total", result="placed") - placed == 1
            assert all(pod.is_ready for pod in world.all(Pod))
            assert not any(gang.status.capacity_holds for gang in world.all(PodGang))

    run(story())


@pytest.mark.parametrize(
    ("config", "said"),
    [
        pytest.param(SchedulerConfiguration(), "allow", id="it is not switched on"),
        pytest.param(ON, "never", id="no set allows it"),
        pytest.param(ON, "", id="nothing is said: the default is never"),
    ],
)
def test_nothing_moves(config: SchedulerConfiguration, said: str) -> None:
    async def story() -> None:
        async with World(shaped(3), steady=True, settings=config) as world:
            await fragmented(world, 3, [said] * 3)
            before = {pod.metadata.uid for pod in world.all(Pod)}
            await world.apply(serving("chat", 1, 8))
            await asyncio.sleep(2 * HOUR_S)
            assert before <= {pod.metadata.uid for pod in world.all(Pod)}
            assert not world.is_settled("chat")

    run(story())


def test_a_second_gang_waits_until_the_budget_allows_more_restarts() -> None:
    async def story() -> None:
        config = SchedulerConfiguration(repack=Repacking(automatic=True, restarts_per_hour=1))
        async with World(shaped(4), steady=True, settings=config) as world:
            await fragmented(world, 4)
            for name in ("chat", "code"):
                await world.apply(serving(name, 1, 8, "never"))
            assert await world.until(lambda: world.is_settled("chat"), 600)
            await asyncio.sleep(HOUR_S / 2)
            assert not world.is_settled("code")
            assert await world.until(lambda: world.is_settled("code"), HOUR_S)

    run(story())


def test_a_scheduler_that_starts_counts_the_pods_that_replaced_others() -> None:
    async def story() -> None:
        async with World(shaped(4), steady=True, settings=ON) as world:
            await fragmented(world, 4)
            await asyncio.sleep(600)

            def counted() -> int:
                now_s = world.cluster.clock.now().timestamp()
                return len(list(restarted_lately(world.scheduler.view, ON, now_s)))

            assert counted() == 0
            await world.apply(serving("chat", 2, 8, "never"))
            assert await world.until(lambda: world.is_settled("chat"), 600)
            assert counted() == 2
            await asyncio.sleep(HOUR_S)
            assert counted() == 0

    run(story())


class Watched:
    """Notes every pod that is evicted for a move, and breaches of what must hold at every moment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.restarts: list[float] = []
        self.faults: list[str] = []
        self.protected: set[str] = set()
        """Gangs of which a disruption budget allows no eviction."""
        self.deleted: set[str] = set()
        """Sets that the test itself deleted."""
        self.bound: dict[str, float] = {}
        """When each set had its first pod on a node."""
        world.scheduler.cache.on_event(Pod, self._note)

    def _note(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.is_bound:
            self.bound.setdefault(new.metadata.labels[PART_OF], self._world.time_s)
        if old is None or new is None or not new.metadata.is_deleting or old.metadata.is_deleting:
            return
        if (name := new.metadata.labels[PART_OF]) in self.deleted:
            return
        gang = new.metadata.labels[POD_GANG]
        self.restarts.append(self._world.time_s)
        if gang in self.protected:
            self.faults.append(f"{gang} is protected by a budget")
        if not self._world.scheduler.view.ledger.of(f"default/{gang}"):
            self.faults.append(f"{gang} has no place to go to")
        others = [pod for pod in self._world.all(Pod) if pod.metadata.labels[PART_OF] == name]
        down = {pod.metadata.labels[POD_GANG] for pod in others if not pod.is_ready} - {gang}
        if down:
            self.faults.append(f"{gang} is evicted while {sorted(down)} of its set is down")

    def check(self, an_hour: int) -> None:
        assert self.faults == []
        for end in self.restarts:
            assert sum(end - HOUR_S < at <= end for at in self.restarts) <= an_hour


WAITS_AT_MOST_S = 1.5 * HOUR_S


async def churn(world: World, watched: Watched, seed: int) -> dict[str, float]:
    """A day of sets that come and go on 8 nodes; each four hours one comes that needs whole nodes. Its wait, by set."""
    rng, alive, came = Random(seed), dict[str, float](), dict[str, float]()
    for step in range(HOURS * 6):
        now = world.time_s
        for name in [name for name, end in alive.items() if end <= now]:
            del alive[name]
            watched.deleted.add(name)
            await world.client.delete(PodCliqueSet, name, "default")
        if len(alive) < 13:
            name = f"small-{step}"
            alive[name] = now + rng.uniform(0.5, 5) * HOUR_S
            await world.apply(serving(name, rng.choice((1, 1, 2)), rng.choice((2, 3, 4))))
        if step % 24 == 6:
            name = f"large-{step}"
            came[name], alive[name] = now, now + WAITS_AT_MOST_S
            await world.apply(serving(name, 2, 8, "never"))
        await asyncio.sleep(HOUR_S / 6)
    return {name: watched.bound.get(name, at + WAITS_AT_MOST_S) - at for name, at in came.items()}


def day(config: SchedulerConfiguration, seed: int) -> tuple[dict[str, float], Watched]:
    async def story() -> tuple[dict[str, float], Watched]:
        async with World(shaped(8), seed=seed, settings=config) as world:
            watched = Watched(world)
            return await churn(world, watched, seed), watched

    return run(story(), seed=seed)


def test_over_a_day_large_gangs_wait_less_and_the_budget_holds() -> None:
    """Everything has its default but the switch."""
    with_moves, watched = day(ON, 3)
    without, still = day(SchedulerConfiguration(), 3)
    watched.check(ON.repack.restarts_per_hour)
    assert still.restarts == []
    assert watched.restarts, "gangs were moved"
    assert sum(with_moves.values()) < sum(without.values()), (with_moves, without)


WORLDS = settings(max_examples=10, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


async def random_world(world: World, rng: Random) -> None:
    """A set of one or two gangs on each of five nodes, some of which may be moved, and large gangs that wait."""
    for i in range(5):
        replicas = rng.choice((1, 1, 2))
        gpus = rng.randint(1, 2) if replicas == 2 else rng.randint(2, 4)
        manifest = serving(f"s{i}", 1, gpus, rng.choice(("allow", "allow", "allow", "never")))
        manifest["spec"]["replicas"] = replicas
        for name, one in ((f"s{i}", manifest), (f"filler{i}", serving(f"filler{i}", 1, 8 - replicas * gpus))):
            await world.apply(one)
            assert await world.until(lambda name=name: world.is_settled(name))
    for i in range(5):
        await world.client.delete(PodCliqueSet, f"filler{i}", "default")
    await asyncio.sleep(60)
    for i in range(rng.randint(1, 2)):
        await world.apply(serving(f"large{i}", rng.choice((1, 2)), rng.randint(7, 8), "never"))
    await asyncio.sleep(30)


async def disturb(world: World, rng: Random) -> None:
    """Something that a plan does not expect, at some time."""
    await asyncio.sleep(rng.uniform(0, 12))
    what = rng.randrange(3)
    if what == 0:
        for i in range(3):
            await world.apply(serving(f"late{i}", 1, rng.randint(2, 5), "never"))
    elif what == 1:
        node = rng.choice(world.all(Node)).metadata.name
        await world.client.patch(Node, node, {"spec": {"unschedulable": True}})
    else:
        pod = rng.choice(world.all(Pod))
        await world.client.delete(Pod, pod.metadata.name, pod.metadata.namespace)


@WORLDS
@given(st.integers(0, 1 << 32))
def test_a_move_breaks_no_minimum_and_no_budget_and_has_a_place(seed: int) -> None:
    rng = Random(seed)

    async def story() -> None:
        an_hour = rng.randint(1, 6)
        config = SchedulerConfiguration(repack=Repacking(automatic=True, restarts_per_hour=an_hour))
        async with World(shaped(5), seed=seed, settings=config) as world:
            watched = Watched(world)
            for i in range(5):
                if rng.random() < 0.2:
                    watched.protected |= {f"s{i}-0", f"s{i}-1"}
                    budget = {
                        "metadata": {"name": f"s{i}", "namespace": "default"},
                        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {PART_OF: f"s{i}"}}},
                    }
                    await world.client.create(PodDisruptionBudget, budget)
            watched.deleted = {f"filler{i}" for i in range(5)}
            await random_world(world, rng)
            await asyncio.sleep(2 * HOUR_S)
            watched.check(an_hour)
            running = [pod for pod in world.all(Pod) if pod.metadata.labels[PART_OF].startswith("s") and pod.is_bound]
            assert all(pod.is_ready for pod in running)

    run(story(), seed=seed % 1000)


@WORLDS
@given(st.integers(0, 1 << 32))
def test_a_plan_that_is_applied_ends_in_the_state_it_promised_or_says_why_not(seed: int) -> None:
    rng = Random(seed)

    async def story() -> None:
        async with World(shaped(5), seed=seed) as world:
            await random_world(world, rng)
            plan = (await repack_answer(world.client, "default", "large0")).data
            if not getattr(plan, "moves", ()):
                return
            disturbed = asyncio.create_task(disturb(world, rng)) if rng.random() < 0.7 else None
            answer = await apply_answer(world.client, "default", "large0", plan, clock=world.cluster.clock)
            done = answer.data
            assert (answer.code == RUNNING) == (not done.why)
            assert done.restarts <= plan.restarts
            if not done.why:
                placed = [pod for pod in world.all(Pod) if pod.metadata.labels[PART_OF] == "large0"]
                assert placed
                assert all(pod.is_bound for pod in placed)
            if disturbed is not None:
                await disturbed
            elif world.find(PodCliqueSet, "large1", "default") is None:  # else it may take what a move leaves
                assert not done.why, done
                now = Counter(f"{pod.metadata.labels[POD_GANG]} {pod.spec.node_name}" for pod in world.all(Pod))
                for move in plan.moves:
                    gang = move.gang.removeprefix("default/")
                    for node, pods in Counter(node for nodes in move.target.values() for node in nodes).items():
                        assert now[f"{gang} {node}"] == pods

    run(story(), seed=seed % 1000)
