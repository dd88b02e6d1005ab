"""Start order: a waiting pod names its parents, gangs are placed whole, and restarts keep the order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import datetime

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.operating import World, condition
from tests.support.workloads import ready_pods, uids

from grove.api import conditions as words
from grove.api import labels as key
from grove.api.core import Pod, Role, RoleBinding, Secret, ServiceAccount
from grove.api.meta import Json, find_condition
from grove.api.podcliqueset import PodCliqueSet

IN_ORDER, EXPLICIT = "CliqueStartupTypeInOrder", "CliqueStartupTypeExplicit"


def ordered(startup: str, sg_min: int, after: dict[str, list[str]] | None = None, delay: str = "4h") -> Json:
    """`pc-a` 2, and two replicas of `pc-b` with `pc-c` of which `sg_min` are in the base gang."""
    after = after or {}
    names = [("pc-a", 2), ("pc-b", 1), ("pc-c", 3)]
    return pcs(
        "wl",
        *(clique(name, pods, starts_after=after.get(name, ())) for name, pods in names),
        startup=startup,
        groups=[group("sg-x", "pc-b", "pc-c", replicas=2, min_available=sg_min)],
        termination_delay=delay,
    )


async def access(world: World) -> int:
    """How many of the four objects are there by which start-order containers may watch pods."""
    accounts = [name for name in await world.names(ServiceAccount) if name != "default"]
    others = [await world.names(kind) for kind in (Role, RoleBinding, Secret)]
    return len(accounts) + sum(map(len, others))


async def test_only_a_set_with_a_start_order_may_watch_pods_and_as_long_as_a_pod_of_it_waits(world: World) -> None:
    await world.apply(pcs("plain", clique("a"), clique("b")))
    await world.available("plain")
    assert await access(world) == 0
    await world.apply(pcs("wl", clique("a"), clique("b"), startup=IN_ORDER))
    await world.available("wl")
    assert await access(world) == 4

    any_order = {"spec": {"template": {"cliqueStartupType": "CliqueStartupTypeAnyOrder"}}}
    await world.client.patch(PodCliqueSet, "wl", any_order, world.namespace)
    await world.quiet()
    assert await access(world) == 4, "a pod from before still mounts the token"

    await world.delete(Pod, (await world.pods("wl-0-b"))[0].metadata.name)

    async def gone() -> bool:
        return await access(world) == 0

    await world.eventually(gone)


def since(pod: Pod) -> datetime:
    found = find_condition(pod.status.conditions, "Ready")
    assert found is not None
    assert found.last_transition_time is not None
    return found.last_transition_time


async def ready_times(world: World, *cliques: str) -> tuple[datetime, datetime]:
    """When the first and the last pod of these cliques became ready."""
    times = [since(pod) for name in cliques for pod in await world.pods(name)]
    return min(times), max(times)


async def in_sequence(world: World, *steps: list[str]) -> None:
    """Fails unless every pod of a step became ready after every pod of the step before."""
    spans = [await ready_times(world, *step) for step in steps]
    for (_, last), (first, _) in itertools.pairwise(spans):
        assert last < first, spans


def members(name: str, *replicas: int) -> list[str]:
    return [f"wl-0-sg-x-{replica}-{name}" for replica in replicas]


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("startup", "after", "order"),
    [
        pytest.param(IN_ORDER, {}, ("pc-b", "pc-c"), id="SO-1 in the order of the templates"),
        pytest.param(EXPLICIT, {"pc-c": ["pc-a"], "pc-b": ["pc-c"]}, ("pc-c", "pc-b"), id="SO-3 as said"),
    ],
)
async def test_a_base_gang_starts_in_order(
    world: World, startup: str, after: dict[str, list[str]], order: tuple[str, str]
) -> None:
    world.nodes.start_s = 2.0
    await world.apply(ordered(startup, 2, after))
    await world.available("wl")
    await in_sequence(world, ["wl-0-pc-a"], members(order[0], 0, 1), members(order[1], 0, 1))


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("startup", "after"),
    [
        pytest.param(IN_ORDER, {}, id="SO-2"),
        pytest.param(EXPLICIT, {"pc-b": ["pc-a"], "pc-c": ["pc-b"]}, id="SO-4"),
    ],
)
async def test_a_scaled_gang_has_an_order_of_its_own(world: World, startup: str, after: dict[str, list[str]]) -> None:
    world.nodes.start_s = 2.0
    await world.apply(ordered(startup, 1, after))
    await world.available("wl")
    await in_sequence(world, ["wl-0-pc-a"], members("pc-b", 0), members("pc-c", 0))
    await in_sequence(world, members("pc-b", 1), members("pc-c", 1))


async def test_pods_that_wait_name_their_parents_and_are_placed_all_the_same(world: World) -> None:
    world.nodes.hold = lambda pod: pod.metadata.labels.get(key.POD_CLIQUE) == "wl-0-pc-a"
    await world.apply(ordered(IN_ORDER, 2))

    async def blocked() -> bool:
        found = [pod for name in ("pc-b", "pc-c") for one in members(name, 0, 1) for pod in await world.pods(one)]
        wanted = ("True", words.PREREQUISITES_NOT_READY)
        return len(found) == 8 and all(
            pod.is_bound and condition(pod.status.conditions, words.POD_STARTUP_BLOCKED) == wanted for pod in found
        )

    await world.eventually(blocked)
    (one,) = await world.pods("wl-0-sg-x-0-pc-b")
    told = find_condition(one.status.conditions, words.POD_STARTUP_BLOCKED)
    assert told is not None
    assert told.message == "wl-0-pc-a=0/2"
    assert all(
        condition(pod.status.conditions, words.POD_STARTUP_BLOCKED) is None for pod in await world.pods("wl-0-pc-a")
    )

    world.nodes.hold = lambda pod: False
    for pod in await world.pods("wl-0-pc-a"):
        await world.nodes.set_ready(world.namespace, pod.metadata.name, True)
    await world.available("wl")

    for name in ("pc-b", "pc-c"):
        for pod in await world.pods(f"wl-0-sg-x-0-{name}"):
            said = condition(pod.status.conditions, words.POD_STARTUP_BLOCKED)
            assert said == ("False", words.PREREQUISITES_READY)


async def test_with_a_readiness_gate_a_pod_is_ready_only_by_the_operators_word(world: World) -> None:
    world.nodes.hold = lambda pod: pod.metadata.labels.get(key.POD_CLIQUE) == "wl-0-pc-a"
    opted_in = {"annotations": {key.STARTUP_READINESS_GATE: "true"}}
    cliques = (clique("pc-a", 2), clique("pc-b", 1))
    await world.apply(pcs("wl", *cliques, startup=IN_ORDER, metadata=opted_in))

    async def said(name: str, gate: str | None) -> bool:
        found = await world.pods(name)
        told = [find_condition(pod.status.conditions, words.STARTUP_ORDER) for pod in found]
        return bool(found) and all((one.status if one else None) == gate for one in told)

    await world.eventually(lambda: said("wl-0-pc-b", "False"))
    (before,) = await world.pods("wl-0-pc-b")
    assert not before.is_ready
    assert await said("wl-0-pc-a", None)
    world.nodes.hold = lambda pod: False
    for pod in await world.pods("wl-0-pc-a"):
        await world.nodes.set_ready(world.namespace, pod.metadata.name, True)
    await world.available("wl")

    assert await said("wl-0-pc-b", "True")
    # Parents that fail later change nothing, and a pod that need not wait gets its word as well.
    (first, _) = await world.pods("wl-0-pc-a")
    await world.nodes.set_ready(world.namespace, first.metadata.name, False)
    await world.nodes.set_ready(world.namespace, first.metadata.name, True)
    (after,) = await world.pods("wl-0-pc-b")
    assert after.is_ready
    await world.delete(Pod, after.metadata.name)
    await world.eventually(lambda: _replaced(world, after))


async def _replaced(world: World, gone: Pod) -> bool:
    found = await world.pods("wl-0-pc-b")
    return [pod.metadata.uid == gone.metadata.uid for pod in found if pod.is_ready] == [False]


def engine(condition: str) -> Json:
    """A leader that becomes ready only when its worker has joined, and a worker that starts after it."""
    cliques = clique("leader"), clique("worker", starts_after=["leader"], start_condition=condition)
    return pcs("wl", *cliques, groups=[group("sg", "leader", "worker")], startup=EXPLICIT)


def in_order(condition: str) -> Json:
    """The same without `startsAfter`: the set says what each clique waits for from the one before it."""
    cliques = clique("leader"), clique("worker")
    groups = [group("sg", "leader", "worker")]
    return pcs("wl", *cliques, groups=groups, startup=IN_ORDER, startsAfterCondition=condition)


def joins(world: World) -> None:
    """Makes leaders wait for their worker, as the leader of an engine that runs over several pods does."""
    world.nodes.hold = lambda pod: pod.metadata.labels.get(key.POD_CLIQUE) == "wl-0-sg-0-leader"


async def let_join(world: World) -> None:
    """The worker runs, so the leader becomes ready."""
    world.nodes.hold = lambda pod: False
    for pod in await world.pods("wl-0-sg-0-leader"):
        await world.nodes.set_ready(world.namespace, pod.metadata.name, True)


async def blocked_on(world: World, message: str) -> bool:
    told = [find_condition(pod.status.conditions, words.POD_STARTUP_BLOCKED) for pod in await world.pods(WORKER)]
    return bool(told) and all(one is not None and (one.status, one.message) == ("True", message) for one in told)


async def is_up(world: World, name: str) -> bool:
    found = await world.pods(name)
    return bool(found) and all(pod.is_ready for pod in found)


WORKER = "wl-0-sg-0-worker"


@pytest.mark.parametrize("condition", ["Started", "Created"])
@pytest.mark.parametrize("ordered", [pytest.param(engine, id="Explicit"), pytest.param(in_order, id="InOrder")])
async def test_a_leader_that_needs_its_worker_comes_up(
    world: World, ordered: Callable[[str], Json], condition: str
) -> None:
    joins(world)
    await world.apply(ordered(condition))
    await world.eventually(lambda: is_up(world, WORKER))
    assert not await is_up(world, "wl-0-sg-0-leader"), "the worker did not wait for it to be ready"
    await let_join(world)
    await world.available("wl")


async def test_in_order_a_clique_waits_for_ready_unless_the_set_says_otherwise(world: World) -> None:
    joins(world)
    await world.apply(in_order("Ready"))
    await world.eventually(lambda: blocked_on(world, "wl-0-sg-0-leader=0/1"))
    await let_join(world)
    await world.available("wl")


async def test_a_deadlock_shows_and_a_weaker_condition_ends_it(world: World) -> None:
    joins(world)
    await world.apply(engine(""))
    await world.eventually(lambda: blocked_on(world, "wl-0-sg-0-leader=0/1"))
    before = {pod.metadata.uid for pod in await world.pods(WORKER)}
    leaders = {pod.metadata.uid for pod in await world.pods("wl-0-sg-0-leader")}

    obj = engine("Started")["spec"]["template"]["cliques"]
    await world.client.patch(PodCliqueSet, "wl", {"spec": {"template": {"cliques": obj}}}, world.namespace)
    await world.eventually(lambda: is_up(world, WORKER))
    after = await world.pods(WORKER)
    assert before.isdisjoint(pod.metadata.uid for pod in after), "the pod that waited for Ready is replaced"
    assert [pod.metadata.annotations[key.STARTS_AFTER_CONDITION] for pod in after] == ["Started"]
    assert leaders == {pod.metadata.uid for pod in await world.pods("wl-0-sg-0-leader")}, "nothing else is touched"
    await let_join(world)
    await world.available("wl")

    await world.client.patch(
        PodCliqueSet,
        "wl",
        {"spec": {"template": {"cliques": engine("Ready")["spec"]["template"]["cliques"]}}},
        world.namespace,
    )
    await world.quiet()
    assert [pod.metadata.uid for pod in await world.pods(WORKER)] == [pod.metadata.uid for pod in after], (
        "a pod that has started is not replaced by an edit of what it waited for"
    )


@pytest.mark.simulated
@pytest.mark.parametrize(("condition", "waits"), [("Started", True), ("Created", False)])
@pytest.mark.parametrize("ordered", [pytest.param(engine, id="Explicit"), pytest.param(in_order, id="InOrder")])
async def test_containers_of_a_started_parent_run_first(
    world: World, ordered: Callable[[str], Json], condition: str, waits: bool
) -> None:
    world.nodes.start_s = 2.0
    await world.apply(ordered(condition))
    await world.available("wl")
    began = []
    for name in ("wl-0-sg-0-leader", WORKER):
        (pod,) = await world.pods(name)
        running = pod.status.container_statuses[0].state.running
        assert running is not None
        assert running.started_at is not None
        began.append(running.started_at)
    assert (began[0] < began[1]) is waits


@pytest.mark.simulated
async def test_a_restarted_gang_starts_in_order_again(world: World) -> None:
    world.nodes.start_s, world.nodes.stop_s = 2.0, 5.0
    await world.apply(ordered(IN_ORDER, 2, delay="10s"))
    await world.available("wl")
    before = await uids(world)

    world.binder.allow(0)
    (doomed, *_) = await world.pods("wl-0-pc-a")
    await world.delete(Pod, doomed.metadata.name)
    await asyncio.sleep(30)
    world.binder.allow(None)

    async def back() -> bool:
        found = await ready_pods(world)
        return len(found) == 10 and not {pod.metadata.uid for pod in found} & set(before.values())

    await world.eventually(back)
    await in_sequence(world, ["wl-0-pc-a"], members("pc-b", 0, 1), members("pc-c", 0, 1))
