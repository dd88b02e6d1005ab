"""A gang is its uid: an operation for a deleted gang never touches another gang of the same name."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.support.gangs import Bench, gang, group, priorities, scheduling

from grove.api.core import (
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    StorageClass,
)
from grove.api.labels import GANG_TIMEOUT
from grove.api.meta import Json, find_condition
from grove.api.podgang import PodGang
from grove.scheduler.policy.gang_life import AttemptBegan, Looked, Phase
from grove.scheduler.policy.gang_state import GangState


@pytest.fixture
async def classes(cluster: Any) -> AsyncIterator[None]:
    async with priorities(cluster, low=100, high=1000):
        yield


def on_a_volume(name: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


async def a_claim_nobody_serves(bench: Bench, name: str) -> None:
    """Waits for its first consumer, and then for a provisioner that does not exist."""
    await bench.client.create(
        StorageClass,
        {
            "metadata": {"name": "slow"},
            "provisioner": "example.com/never",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    spec = {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": name, "namespace": bench.namespace}
    await bench.client.create(PersistentVolumeClaim, {"metadata": meta, "spec": spec})


async def remove(bench: Bench, name: str, *, pods: bool = True) -> None:
    await bench.client.delete(PodGang, name, bench.namespace)
    for pod in await bench.pods() if pods else ():
        if pod.metadata.name.startswith(f"{name}-"):
            await bench.client.delete(Pod, pod.metadata.name, bench.namespace, grace_period_s=0)


@pytest.mark.simulated
async def test_an_attempt_for_a_gang_that_is_gone_does_nothing_to_the_next_of_its_name(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(3)
        await a_claim_nobody_serves(bench, "data")
        old = gang("work", group("w", 2, spec=on_a_volume("data")), annotations={GANG_TIMEOUT: "30s"})
        await bench.apply(old)
        await bench.cluster.settle(5)
        await remove(bench, "work")
        new = gang("work", group("w", 2))
        await bench.apply(new)
        await bench.expect({"work/w": 2})
        await bench.cluster.settle(60)  # the old attempt has ended by now
        await bench.client.delete(Pod, "work-w-0", bench.namespace, grace_period_s=0)
        await bench.create_pods(new, only=["work-w-0"])
        await bench.expect({"work/w": 2})


@pytest.mark.simulated
async def test_the_end_of_an_attempt_is_reported_to_its_own_gang_though_another_of_its_name_is_being_bound(
    cluster: Any,
) -> None:
    """As after a watch that was cut: the old gang and the new one are never seen apart."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await a_claim_nobody_serves(bench, "data")
        old = gang("work", group("w", 2, spec=on_a_volume("data")), annotations={GANG_TIMEOUT: "30s"})
        await bench.apply(old)
        await bench.cluster.settle(5)
        view = bench.scheduler.view
        before = view.units.gangs[f"{bench.namespace}/work"]
        assert before.phase is Phase.BINDING
        after = GangState(before.name, PodGang(metadata=msgspec.structs.replace(before.podgang.metadata, uid="new")))
        after.tell(Looked(Phase.QUEUED, on_nodes=False, stood=False))
        after.tell(AttemptBegan(is_minimum=True))
        view.units.gangs[before.name] = after
        view.changes.forget(before)
        await bench.cluster.settle(60)
        assert (before.life.attempts, after.life.attempts) == (0, 1)


@pytest.mark.simulated
async def test_what_was_reserved_for_a_gang_that_is_gone_is_free_at_once(cluster: Any) -> None:
    """Its pods live on. They do not count as placed, and the scheduler gives their node to others."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await a_claim_nobody_serves(bench, "data")
        old = gang("work", group("w", 2, spec=on_a_volume("data")), annotations={GANG_TIMEOUT: "1h"})
        await bench.apply(old)
        await bench.cluster.settle(5)
        await bench.client.delete(PodGang, "work", bench.namespace)
        await bench.apply(gang("next", group("w", 2)))
        await bench.expect({"next/w": 2})


@pytest.mark.simulated
async def test_the_same_pods_under_a_new_podgang_are_placed_for_that_one(cluster: Any) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await a_claim_nobody_serves(bench, "data")
        old = gang("work", group("w", 1), group("v", 1, spec=on_a_volume("data")), annotations={GANG_TIMEOUT: "1h"})
        await bench.apply(old)
        await bench.cluster.settle(5)
        await bench.client.delete(PodGang, "work", bench.namespace)
        await bench.apply(old, pods=False)
        await bench.cluster.settle(5)
        status = (await bench.podgang("work")).status
        scheduled = find_condition(status.conditions, "Scheduled")
        assert scheduled is None or scheduled.status == "False"
        await bench.client.patch(PersistentVolumeClaim, "data", {"spec": {"volumeName": "made"}}, bench.namespace)
        await bench.client.create(
            PersistentVolume, {"metadata": {"name": "made"}, "spec": {"capacity": {"storage": "1Gi"}}}
        )
        await bench.condition("work", status="True", reason="GangScheduled")


@pytest.mark.real_in("soak")
@pytest.mark.parametrize("pods", [True, False], ids=["with its pods", "but its pods stay"])
async def test_no_gang_is_evicted_for_a_preemptor_that_is_gone(cluster: Any, classes: None, pods: bool) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("low", group("w", 2), priority_class="low"))
        await bench.expect({"low/w": 2})
        guard = {"minAvailable": 2, "selector": {"matchLabels": {"grove.io/podgang": "low"}}}
        meta = {"name": "guard", "namespace": bench.namespace}
        await bench.client.create(PodDisruptionBudget, {"metadata": meta, "spec": guard})
        await bench.cluster.settle(2)
        await bench.apply(gang("high", group("w", 2), priority_class="high"))
        await bench.condition("high", status="False", reason="Unschedulable")
        await bench.cluster.settle(3)
        await remove(bench, "high", pods=pods)
        await bench.cluster.settle(1)
        await bench.client.delete(PodDisruptionBudget, "guard", bench.namespace)
        await bench.expect({"low/w": 2}, quiet_s=60 if cluster.is_sim else 5)

        async def spared() -> Any:
            return find_condition((await bench.podgang("low")).status.conditions, "DisruptionTarget") is None

        await cluster.eventually(spared)


@pytest.mark.simulated
async def test_a_pod_above_the_minimum_is_not_evicted_for_a_preemptor_that_is_gone(cluster: Any, classes: None) -> None:
    async with scheduling(cluster) as bench:
        await bench.add_nodes(2)
        await bench.apply(gang("low", group("w", 2, 1), priority_class="low"))
        await bench.expect({"low/w": 2})
        guard = {"minAvailable": 2, "selector": {"matchLabels": {"grove.io/podgang": "low"}}}
        meta = {"name": "guard", "namespace": bench.namespace}
        await bench.client.create(PodDisruptionBudget, {"metadata": meta, "spec": guard})
        await bench.cluster.settle(2)
        await bench.apply(gang("high", group("w", 1), priority_class="high"))
        await bench.condition("high", status="False", reason="Unschedulable")
        await bench.cluster.settle(3)
        await remove(bench, "high")
        await bench.cluster.settle(1)
        await bench.client.delete(PodDisruptionBudget, "guard", bench.namespace)
        await bench.expect({"low/w": 2}, quiet_s=60)


@pytest.mark.simulated
async def test_a_preemptor_of_the_same_name_is_another(cluster: Any, classes: None) -> None:
    """The first asked for both nodes; the second needs one, and takes the gang that costs least."""
    async with scheduling(cluster) as bench:
        await bench.add_nodes(3)
        await bench.apply(gang("large", group("w", 2), priority_class="low"))
        await bench.expect({"large/w": 2})
        await bench.apply(gang("small", group("w", 1), priority_class="low"))
        await bench.expect({"large/w": 2, "small/w": 1})
        guard = {"minAvailable": 2, "selector": {"matchLabels": {"grove.io/podgang": "large"}}}
        meta = {"name": "guard", "namespace": bench.namespace}
        await bench.client.create(PodDisruptionBudget, {"metadata": meta, "spec": guard})
        await bench.cluster.settle(2)
        await bench.apply(gang("high", group("w", 2), priority_class="high"))
        await bench.condition("high", status="False", reason="Unschedulable")
        await bench.cluster.settle(3)
        await remove(bench, "high")
        await bench.apply(gang("high", group("w", 1), priority_class="high"))
        await asyncio.sleep(1)
        await bench.client.delete(PodDisruptionBudget, "guard", bench.namespace)
        await bench.expect({"large/w": 2, "high/w": 1}, quiet_s=60)


STEPS = 14


async def test_whatever_comes_and_goes_under_one_name_the_gang_that_stays_has_its_place(cluster: Any) -> None:
    """Made, deleted, made again, pods lost, the scheduler restarted, in an order that the seed says.

    The laws of it are in `test_identity_laws`, by the thousand; this is one life of them that a real server lives too.
    """
    rng = random.Random(7)
    made, smaller = gang("work", group("w", 2), group("v", 1)), gang("work", group("w", 1))
    async with scheduling(cluster) as bench:
        await bench.add_nodes(3)
        current = None
        for _ in range(STEPS):
            act = rng.choice(("replace", "replace", "lose a pod", "restart", "wait"))
            if act == "replace":
                if current is not None:
                    await remove(bench, "work", pods=rng.random() < 0.8)
                    await clear_pods(bench)
                current = rng.choice((made, smaller))
                await bench.apply(current)
            elif act == "lose a pod" and current is not None:
                lost = rng.choice(sorted(pod.metadata.name for pod in await bench.pods()))
                await bench.client.delete(Pod, lost, bench.namespace, grace_period_s=0)
                await bench.create_pods(current, only=[lost])
            elif act == "restart":
                await bench.stop()
                await bench.start()
            else:
                await bench.cluster.settle(rng.choice((0.1, 0.5, 1.0)))
        assert current is not None
        await bench.expect({f"work/{part.name}": part.pods for part in current.groups})
        await bench.condition("work", status="True", reason="GangScheduled")


async def clear_pods(bench: Bench) -> None:
    for pod in await bench.pods():
        await bench.client.delete(Pod, pod.metadata.name, bench.namespace, grace_period_s=0)
