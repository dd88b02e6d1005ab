"""Many autoscalers at the same second, out and in for five minutes: gangs stay whole, and writes are bounded.

With the real operator and the real scheduler on a simulated cluster in virtual time. The number of writes is printed
and bounded by what changed: pods and gangs come and go, nothing is written twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.support.manifests import clique, group, pcs

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Resource
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.plan.world import World, shaped
from grove.sim.loop import run
from grove.sim.store import Change

LOW, HIGH, PODS_A_UNIT = 1, 3, 3
EVERY_S = 15.0
WINDOW_S = 5.0
"""How long a gang may be seen with some pods bound and some not: its binds are under way."""


class GangWatch:
    """Sees every bind: since when a gang is partly bound, and the longest that any was."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bound: dict[str, set[str]] = {}
        self._since: dict[str, float] = {}
        self.longest_s = 0.0
        self.pods = self.gangs = 0
        world.cluster.server.store.listeners.append(self._heard)

    def _heard(self, resource: Resource, change: Change) -> None:
        if resource == PodGang.RESOURCE and change.type == "ADDED":
            self.gangs += 1
        if resource != Pod.RESOURCE:
            return
        pod = change.version.view(Pod)
        gang, uid = pod.metadata.labels.get(key.POD_GANG, ""), pod.metadata.uid
        bound = self._bound.setdefault(gang, set())
        if change.type == "ADDED":
            self.pods += 1
        if change.type == "DELETED" or pod.metadata.is_deleting:
            bound.discard(uid)
            if not bound:
                self._since.pop(gang, None)
            return
        if pod.is_bound and uid not in bound:
            bound.add(uid)
            self._judge(gang, len(bound))

    def _judge(self, gang: str, bound: int) -> None:
        now = self._world.time_s
        if bound < PODS_A_UNIT:
            self._since.setdefault(gang, now)
        elif gang in self._since:
            self.longest_s = max(self.longest_s, now - self._since.pop(gang))

    def half_placed(self) -> list[str]:
        """Gangs with some of their pods on nodes and some that stay without."""
        counts: dict[str, Counter[bool]] = {}
        for pod in self._world.all(Pod):
            if not pod.metadata.is_deleting:
                counts.setdefault(pod.metadata.labels[key.POD_GANG], Counter())[pod.is_bound] += 1
        return sorted(gang for gang, seen in counts.items() if len(seen) > 1)


async def storm(sets: int, flips: int) -> tuple[GangWatch, Counter[tuple[str, str]], int]:
    names = [f"s{number}" for number in range(sets)]
    async with World(shaped(sets * 2, 8), seed=7) as world:
        watch = GangWatch(world)
        for name in names:
            scale = {"minReplicas": LOW, "maxReplicas": HIGH}
            manifest = pcs(
                name, clique("lead"), clique("work", PODS_A_UNIT - 1),
                groups=[group("g", "lead", "work", scale=scale)], metadata={"namespace": "default"},
            )  # fmt: skip
            await world.apply(manifest)
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
            assert watch.half_placed() == []
        assert await world.until(lambda: all(world.is_settled(name) for name in names))
        reads = {"get", "list", "watch", "serves"}
        writes = Counter({call: n for call, n in world.operator_client.calls.items() if call[0] not in reads})
        writes.subtract({call: n for call, n in begun.items() if call[0] not in reads})
        units = sum(one.spec.replicas for one in world.all(PodCliqueScalingGroup))
        assert units == sets * replicas
        assert len(world.all(PodGang)) == units
        return watch, +writes, sets * flips


def bounded(
    watch: GangWatch, writes: Counter[tuple[str, str]], changes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    units = changes * (HIGH - LOW)
    """Units that came or went."""
    with capsys.disabled():
        print(f"\n{changes} changes of replicas, {units} units: {writes.total()} writes of the operator, "
              f"{writes.total() / units:.1f} a unit; longest bind {watch.longest_s:.2f} s")  # fmt: skip
    assert watch.longest_s <= WINDOW_S
    # A unit that comes is 2 cliques, 3 pods, 1 gang with its references and status, 2 cliques' status; one that goes is
    # their deletion and finalizers. The group's and the set's status are shared by the units of a change.
    assert writes.total() <= 20 * units + 6 * changes


def test_twenty_sets_for_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    bounded(*run(storm(20, 4), seed=7), capsys)


@pytest.mark.soak
def test_a_hundred_sets_for_five_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    bounded(*run(storm(100, 20), seed=7), capsys)
