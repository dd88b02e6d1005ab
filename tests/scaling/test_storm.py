"""Many autoscalers act in the same second, out and in, for five minutes: gangs stay whole, and writes are bounded.

With the real operator and the real scheduler on a simulated cluster in virtual time. The number of writes is printed
and bounded by what changed: pods and gangs come and go, nothing is written twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.support.storm import EVERY_S, HIGH, LOW, GangWatch, half_placed, most_writes, scaled_set, writes_since

from grove.api.core import Pod
from grove.api.meta import Resource
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.plan.world import World, shaped
from grove.sim.loop import run
from grove.sim.store import Change

WINDOW_S = 5.0
"""How long a gang may be seen with some pods bound and some not: its binds are under way."""


async def storm(sets: int, flips: int) -> tuple[GangWatch, Counter[tuple[str, str]], int]:
    names = [f"s{number}" for number in range(sets)]
    watch = GangWatch()
    async with World(shaped(sets * 2, 8), seed=7) as world:

        def heard(resource: Resource, change: Change) -> None:
            if resource == Pod.RESOURCE:
                watch.see(change.version.view(Pod), world.time_s, is_gone=change.type == "DELETED")

        world.cluster.server.store.listeners.append(heard)
        for name in names:
            await world.apply(scaled_set(name))
        assert await world.until(lambda: all(world.is_settled(name) for name in names))
        begun = Counter(world.operator_client.calls)
        replicas = LOW
        for _ in range(flips):
            replicas = HIGH if replicas == LOW else LOW
            async with asyncio.TaskGroup() as tasks:
                for name in names:
                    patch = {"spec": {"replicas": replicas}}
                    scaling = world.client.patch(
                        PodCliqueScalingGroup, f"{name}-0-g", patch, "default", subresource="scale"
                    )
                    tasks.create_task(scaling)
            await asyncio.sleep(EVERY_S)
            assert half_placed(world.all(Pod)) == []
        assert await world.until(lambda: all(world.is_settled(name) for name in names))
        writes = writes_since(begun, world.operator_client.calls)
        units = sum(one.spec.replicas for one in world.all(PodCliqueScalingGroup))
        assert units == sets * replicas
        assert len(world.all(PodGang)) == units
        return watch, writes, sets * flips


def bounded(
    watch: GangWatch, writes: Counter[tuple[str, str]], changes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    units = changes * (HIGH - LOW)
    """Units that came or went."""
    with capsys.disabled():
        print(
            f"\n{changes} changes of replicas, {units} units: {writes.total()} writes of the operator, "
            f"{writes.total() / units:.1f} a unit; longest bind {watch.longest_s:.2f} s"
        )
    assert watch.longest_s <= WINDOW_S
    assert writes.total() <= most_writes(changes)


def test_twenty_sets_for_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    bounded(*run(storm(20, 4), seed=7), capsys)


@pytest.mark.soak
def test_a_hundred_sets_for_five_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    bounded(*run(storm(100, 20), seed=7), capsys)
