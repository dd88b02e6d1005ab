"""A settled system gets no writes without a cause, also not from an operator that has just started."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from tests.support.manifests import clique, group, many_pairs, pcs, worked_example
from tests.support.operating import World

from grove.api.core import Pod
from grove.api.meta import Json, Object, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.diagnosis.reasons import sentence
from grove.operator.podgang.gangs import ObservedGang
from grove.operator.podgang.plan import GangPlan, plan_gang
from grove.operator.shared.status_batching import PROGRESS_S
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.sim.cluster import SimCluster
from grove.sim.loop import run
from grove.sim.topology import ZONE, Topology

pytestmark = [pytest.mark.older_too, pytest.mark.real_in("soak")]

STARTED_S = 3.0 + 2 * PROGRESS_S
"""Pods of a simulated cluster are ready by then, and what a small set has to report is written."""


@pytest.mark.real_in("test")
@pytest.mark.parametrize(
    "watched_s", [pytest.param(15.0, id="15 s"), pytest.param(60.0, id="60 s", marks=pytest.mark.soak)]
)
async def test_after_convergence_nothing_is_written(world: World, watched_s: float) -> None:
    await world.apply(worked_example())
    await world.ready(22)
    await world.available("demo")
    before, versions = world.writes(), await _versions(world)

    await world.cluster.settle(3600.0 if world.cluster.is_sim else watched_s)

    assert world.writes() - before == Counter()
    assert await _versions(world) == versions


@pytest.mark.simulated
async def test_cliques_that_are_up_are_named_before_more_are_begun(world: World) -> None:
    """Else all statuses of a big set are written in the end, when its last pod is long up."""
    create, told_at_last_pod = world.operator_client.create, 0

    async def slowly(kind: type[Object], obj: Json, **more: Any) -> Any:
        nonlocal told_at_last_pod
        made = await create(kind, obj, **more)
        if kind is Pod:
            told_at_last_pod = world.writes()["patch", "podcliques/status"]
            await asyncio.sleep(2.0)
        return made

    world.operator_client.create = slowly
    await world.apply(pcs("many", clique("w"), replicas=60))
    await world.available("many")
    assert told_at_last_pod >= 30


@pytest.mark.simulated
async def test_gangs_are_written_once_however_slowly_their_pods_come(world: World) -> None:
    """On a busy control plane the last of hundreds of cliques has its turn after minutes."""
    create = world.operator_client.create

    async def slowly(kind: type[Object], obj: Json, **more: Any) -> Any:
        made = await create(kind, obj, **more)
        if kind is Pod:
            await asyncio.sleep(12.0)
        return made

    world.operator_client.create = slowly
    await world.apply(pcs("many", clique("w", 2), replicas=40))
    await world.available("many", timeout_s=600.0)
    written = world.writes()
    assert written["create", "podgangs"] == 40
    assert written["patch", "podgangs"] == 0


@pytest.mark.simulated
async def test_a_gang_is_not_looked_at_because_its_pods_are_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scheduler says how far it is; and the label that pods get then, their node's zone, lists no other pods."""
    looks = 0

    def counted(observed: ObservedGang, now: datetime) -> GangPlan:
        nonlocal looks
        looks += 1
        return plan_gang(observed, now)

    monkeypatch.setattr("grove.operator.podgang.controller.plan_gang", counted)
    world.binder.allow(0)
    await world.apply(many_pairs("pairs", 5))
    await world.cluster.settle(120.0)
    before = looks
    world.binder.allow(None)
    await world.available("pairs")
    await world.cluster.settle(120.0)

    assert before >= 5
    assert all(ZONE in pod.metadata.labels for pod in await world.pods())
    assert looks == before


@pytest.mark.simulated
async def test_a_gang_is_not_looked_at_because_its_cliques_come(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made when they have pods; that there is one to wait for is said by the set."""
    looks: Counter[str] = Counter()

    def counted(observed: ObservedGang, now: datetime) -> GangPlan:
        plan = plan_gang(observed, now)
        looks["before its pods"] += plan.wait_s is not None
        return plan

    monkeypatch.setattr("grove.operator.podgang.controller.plan_gang", counted)
    create = world.operator_client.create

    async def slowly(kind: type[Object], obj: Json, **more: Any) -> Any:
        if kind is Pod:
            await asyncio.sleep(12.0)
        return await create(kind, obj, **more)

    world.operator_client.create = slowly
    await world.apply(many_pairs("pairs", 20))
    await world.available("pairs")
    assert looks["before its pods"] == 20


@pytest.mark.simulated
async def test_scaling_a_group_wakes_its_base_gang_and_the_gangs_that_come_or_go(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other gangs stay as they are: a set may have a hundred of them."""
    looks: Counter[str] = Counter()

    def counted(observed: ObservedGang, now: datetime) -> GangPlan:
        looks[observed.layout.name if observed.layout is not None else "unwanted"] += 1
        return plan_gang(observed, now)

    async def gangs() -> set[str]:
        return {gang.metadata.name for gang in await world.list(PodGang)}

    async def scale(replicas: int) -> None:
        await world.scale(PodCliqueScalingGroup, "s-0-g", replicas)
        await world.cluster.settle(120.0)

    parts = [group("g", "w", replicas=6, min_available=1), group("h", "v", replicas=6, min_available=1)]
    await world.apply(pcs("s", clique("w"), clique("v"), groups=parts))
    await world.available("s")
    await world.cluster.settle(120.0)
    monkeypatch.setattr("grove.operator.podgang.controller.plan_gang", counted)
    before = await gangs()

    await scale(8)
    assert await gangs() == before | {"s-0-g-5", "s-0-g-6"}
    await scale(4)
    assert await gangs() == before - {"s-0-g-3", "s-0-g-4"}
    assert set(looks) == {"s-0", "s-0-g-5", "s-0-g-6", "unwanted"}


async def test_a_small_set_is_up_at_once(world: World) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await world.apply(pcs("s", clique("r", 3), clique("l"), clique("w", 2), groups=[group("g", "l", "w", replicas=2)]))

    async def up() -> bool:
        return (await world.get(PodCliqueSet, "s")).status.available_replicas == 1

    await world.eventually(up)
    if world.cluster.is_sim:  # a real machine may be busy with something else
        assert loop.time() - began < 1.0, "nothing waits for a token or a timer"


@pytest.mark.real_in("test")
async def test_what_the_server_spells_in_another_way_is_not_written_again(world: World) -> None:
    """Native kinds come back with amounts, order and defaults of the server's; custom ones as they were written."""
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
    metrics: list[Json] = [cpu]
    for amount in ("1000m", "0.5", 1500, "2048Mi", "1e3"):
        target = {"type": "AverageValue", "averageValue": amount}
        metrics.append({"type": "Pods", "pods": {"metric": {"name": f"of-{amount}"}, "target": target}})
    scale = {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics}
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "0.1", "memory": "1024Ki"}, "limits": {"cpu": 1, "memory": 1073741824}},
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "initialDelaySeconds": 0},
        "env": [{"name": "EMPTY", "value": ""}],
        "command": [],
    }
    await world.apply(
        pcs(
            "odd",
            clique("a", scale=scale, containers=[container], nodeSelector={}),
            clique("b"),
            groups=[group("g", "b", scale=scale)],
        )
    )
    await world.available("odd")
    await world.quiet()

    await world.restart()
    await world.cluster.settle(60.0 if world.cluster.is_sim else 10.0)

    assert world.writes() == Counter()


async def test_a_restarted_operator_writes_nothing(world: World) -> None:
    await world.apply(worked_example())
    await world.ready(22)
    await world.available("demo")
    pods = {pod.metadata.uid for pod in await world.pods()}

    await world.restart()
    await world.cluster.settle(60.0 if world.cluster.is_sim else 10.0)

    assert world.writes() == Counter()
    assert {pod.metadata.uid for pod in await world.pods()} == pods


async def _versions(world: World) -> dict[str, str]:
    """Every object made for the sets, with its version: without a change there was no write."""
    return {
        f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"] for one in await world.graph()
    }


async def test_a_trigger_annotation_causes_a_look_and_no_write(world: World) -> None:
    await world.apply(worked_example())
    await world.ready(22)
    await world.available("demo")
    before = world.writes()

    patch = {"metadata": {"annotations": {"grove.io/reconcile-trigger": "now"}}}
    await world.client.patch(PodCliqueSet, "demo", patch, world.namespace)
    await world.cluster.settle(5.0)

    assert world.writes() - before == Counter()


@pytest.mark.simulated  # a busy machine starts pods in more steps, each of which is reported
async def test_a_pair_of_pods_costs_few_writes(world: World) -> None:
    await world.apply(many_pairs("pairs", 20))
    await world.available("pairs")

    writes = world.writes()
    assert writes["create", "pods"] == 40
    assert writes["create", "podcliques"] == writes["create", "podgangs"] == writes["create", "services"] == 20
    assert writes["patch", "podgangs"] == writes["patch", "podcliques"] == writes["patch", "pods"] == 0
    assert writes["patch", "podgangs/status"] <= 20
    assert writes["patch", "podcliques/status"] <= 40
    assert writes.total() <= 40 * 4.5


@pytest.mark.parametrize(
    ("pairs", "apart_s"),
    [
        pytest.param(5, 0.0, id="ready at once"),
        pytest.param(20, 0.15, id="a crowd that takes six seconds"),
    ],
)
def test_operator_and_scheduler_together_write_the_status_of_a_gang_once(pairs: int, apart_s: float) -> None:
    """The scheduler's first word about a gang says for the operator that its pods exist."""

    async def story() -> tuple[int, list[tuple[str, bool]]]:
        async with SimCluster(nodes=Topology(nodes=5)) as sim:
            turns = iter(range(2 * pairs))
            sim.nodes.start_s = lambda _pod: apart_s * next(turns)
            client, ours = sim.client(), [sim.client(user=user) for user in ("grove-operator", "grove-scheduler")]
            task = asyncio.ensure_future(Scheduler(ours[1], clock=sim.clock, say=sentence).run())
            async with Operator(ours[0], clock=sim.clock, rng=random.Random(5)).running():
                await client.create(PodCliqueSet, many_pairs("pairs", pairs))
                await asyncio.sleep(60)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            gangs = [one.status for one in (await client.list(PodGang, "default")).items]
            said = [(one.phase, is_true(one.conditions, "Initialized")) for one in gangs]
            return sum(one.calls["patch", "podgangs/status"] for one in ours), said

    assert run(story()) == (pairs, [("Running", True)] * pairs)


def test_a_set_whose_gangs_all_run_reports_that_as_soon_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer wait of a big set is for more progress. The scheduler reports the last gang after it is available."""
    pairs, seconds_a_replica = 5, 10.0
    monkeypatch.setattr("grove.operator.podcliqueset.controller.REPLICA_PROGRESS_S", seconds_a_replica)

    async def story() -> tuple[Counter[Any], list[str]]:
        async with SimCluster(nodes=Topology(nodes=5)) as sim:
            client, ours = sim.client(), [sim.client(user=user) for user in ("grove-operator", "grove-scheduler")]
            task = asyncio.ensure_future(Scheduler(ours[1], clock=sim.clock, say=sentence).run())
            async with Operator(ours[0], clock=sim.clock, rng=random.Random(5)).running():
                await client.create(PodCliqueSet, many_pairs("pairs", pairs))
                await asyncio.sleep(STARTED_S)
                before = Counter(ours[0].calls)
                found = (await client.get(PodCliqueSet, "pairs", "default")).status.pod_gang_statuses
                await asyncio.sleep(2 * pairs * seconds_a_replica)
                written = Counter(ours[0].calls) - before
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return written, [one.phase for one in found]

    written, phases = run(story())
    assert phases == ["Running"] * pairs
    assert not written["patch", "podcliquesets/status"]


@pytest.mark.real_in("test")
async def test_two_pods_ready_in_one_moment_are_one_status_write(world: World) -> None:
    await world.apply(many_pairs("pairs", 1, pods=2))
    await world.available("pairs")
    status = (await world.get(PodClique, "pairs-0-w")).status

    assert (status.replicas, status.ready_replicas, status.scheduled_replicas) == (2, 2, 2)
    if world.cluster.is_sim:
        assert world.writes()["patch", "podcliques/status"] == 1
