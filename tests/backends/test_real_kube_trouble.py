"""Gangs on kube-scheduler compete, are released slowly, lose objects or the operator: all end in a correct state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.support.kube_gangs import (
    GANGS,
    NEWEST_FIRST,
    VERSION_OF,
    GangPlane,
    bindings_within,
    bound,
    gang_world,
    hungry,
    is_bound,
    loose_pod,
    objects,
    occupy,
    released,
)
from tests.support.manifests import pcs
from tests.support.mortal import DyingClient
from tests.support.operating import World

from grove.api.core import Pod
from grove.api.meta import Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.backends.kube_api import V1ALPHA2, pod_group, workload
from grove.config import load_configuration
from grove.kube.http import HttpClient
from grove.operator.wiring import Operator

pytestmark = pytest.mark.real
NEWEST = ["1.36.3"]
WATCHED = [pytest.param(3.0, id="for a moment"), pytest.param(330.0, id="for a deadline", marks=pytest.mark.soak)]
STEPS = ("PodGang", "Workload", "PodGroup", "Pod")
LEAST = 8
"""Writes that a gang needs: two pods and their gates, itself and its status, and the scheduler's objects."""
GAPS = [pytest.param(0.3, id="fast"), pytest.param(1.0, id="one a second", marks=pytest.mark.soak)]


@pytest.mark.parametrize("watched_s", WATCHED)
async def test_of_two_gangs_with_capacity_for_one_none_runs_in_part(
    gangs: GangPlane, fresh_name: str, watched_s: float
) -> None:
    """1.36 runs one of them at once. 1.35 lets each hold what it got for five minutes; then both may give up at the
    same time, again and again."""
    async with gang_world(gangs, fresh_name) as world:
        for name in ("a", "b"):
            await world.apply(pcs(name, hungry("x", 4), hungry("y", 8)))
        await world.eventually(lambda: released(world, "a-0-x", "a-0-y", "b-0-x", "b-0-y", count=24))
        if gangs.version != "1.35.4":
            await world.eventually(lambda: is_bound(world, 12))

        await bindings_within(world, watched_s)
        counts = {name: await bound(world, f"{name}-0-x", f"{name}-0-y") for name in ("a", "b")}
        assert sorted(counts.values()) in ([0, 12], [0, 0] if gangs.version == "1.35.4" else None)

        winner, other = sorted(counts, key=lambda name: -counts[name])
        await world.client.delete(PodCliqueSet, winner, fresh_name)
        await world.eventually(lambda: is_bound(world, 12, f"{other}-0-x", f"{other}-0-y"))


class SlowGates:
    """A client that takes gates off one after the other, with a pause before each, and some only when it may go on."""

    def __init__(self, inner: Any, gap_s: float, at_first: int) -> None:
        self._inner, self._gap_s, self._at_first, self._turn = inner, gap_s, at_first, asyncio.Lock()
        self.opened, self.may_go_on = 0, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def patch(self, kind: Any, name: str, patch: Any, *args: Any, **options: Any) -> Any:
        if kind is not Pod or "schedulingGates" not in str(patch):
            return await self._inner.patch(kind, name, patch, *args, **options)
        async with self._turn:
            await asyncio.sleep(self._gap_s)
            if self.opened == self._at_first:
                await self.may_go_on.wait()
            self.opened += 1
            return await self._inner.patch(kind, name, patch, *args, **options)


@asynccontextmanager
async def operated(world: World, client: Any) -> AsyncIterator[Operator]:
    """The world's operator replaced by one that uses this client."""
    await world.stop()
    made = Operator(
        client, load_configuration(GANGS), rng=random.Random(1), startup_image="x", namespace=world.namespace
    )
    async with made.running():
        yield made
    await world.start()


@pytest.mark.parametrize("gap_s", GAPS)
async def test_pods_let_go_one_by_one_end_up_together(gangs: GangPlane, fresh_name: str, gap_s: float) -> None:
    """1.35 keeps the places of those that came first; 1.36 holds none, and tries again as a whole."""
    async with gang_world(gangs, fresh_name) as world, HttpClient(world.client.config) as inner:
        client = SlowGates(inner, gap_s, at_first=7)
        async with operated(world, client):
            await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))

            async def half() -> bool:
                return client.opened == 7

            await world.eventually(half)
            await loose_pod(world, "wide", gpus=4)
            assert await bound(world) == 0
            if gangs.version == "1.35.4":
                client.may_go_on.set()
                await world.eventually(lambda: is_bound(world, 12))
                assert not (await world.get(Pod, "wide")).is_bound
                return
            await world.eventually(lambda: _has_node(world, "wide"))
            client.may_go_on.set()
            await world.eventually(lambda: released(world, "d-0-prefill", "d-0-decode", count=12))
            assert await bindings_within(world, 2) == []
            await world.client.delete(Pod, "wide", fresh_name, grace_period_s=0)
            await world.eventually(lambda: is_bound(world, 12))


async def _has_node(world: World, name: str) -> bool:
    return (await world.get(Pod, name)).is_bound


@pytest.mark.parametrize("gangs", NEWEST, indirect=True)
async def test_a_group_that_a_person_deletes_serves_until_its_pods_are_gone(gangs: GangPlane, fresh_name: str) -> None:
    kind = pod_group(V1ALPHA2)
    async with gang_world(gangs, fresh_name) as world:
        await occupy(world, "filler", 4)
        await world.apply(pcs("d", hungry("prefill", 4), hungry("decode", 8)))
        await world.eventually(lambda: released(world, "d-0-prefill", "d-0-decode", count=12))

        await world.client.delete(kind, "d-0", fresh_name)
        (left,) = (await objects(world, kind)).values()
        assert left["metadata"]["deletionTimestamp"]
        assert left["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
        await world.client.delete(Pod, "filler", fresh_name, grace_period_s=0)
        await world.eventually(lambda: is_bound(world, 12))

        await world.client.delete(PodCliqueSet, "d", fresh_name)

        async def gone() -> bool:
            return await objects(world, kind) == {}

        await world.eventually(gone)


@NEWEST_FIRST
async def test_an_operator_that_dies_between_any_two_steps_is_followed_by_one_that_finishes(
    gangs: GangPlane, fresh_name: str
) -> None:
    """Steps are the writes that make a gang: PodGang, the scheduler's objects, pods and their gates."""
    async with gang_world(gangs, fresh_name) as world, HttpClient(world.client.config) as inner:
        dying = DyingClient(inner, lives=1000, kinds=STEPS)
        async with operated(world, dying):
            await world.apply(pcs("whole", hungry("a", 1), hungry("b", 1)))
            await world.available("whole")
        total, told = dying.written, workload(VERSION_OF[gangs.version])
        assert total >= LEAST

        for lives in range(1, total):
            name = f"d{lives}"
            dying = DyingClient(inner, lives=lives, kinds=STEPS)
            async with operated(world, dying):
                await world.apply(pcs(name, hungry("a", 1), hungry("b", 1)))

                async def over(name: str = name, dying: DyingClient = dying) -> bool:
                    return dying.died.is_set() or await _is_available(world, name)

                await world.eventually(over)
                with suppress(TimeoutError):  # what is written together makes fewer writes than there were at first
                    await asyncio.wait_for(dying.died.wait(), 2)
                assert dying.died.is_set() or lives >= LEAST
            await world.eventually(lambda name=name: is_bound(world, 2, f"{name}-0-a", f"{name}-0-b"))  # type: ignore[misc]
            assert set(await objects(world, told)) == {"whole-0", f"{name}-0"}, f"after {lives} writes"
            await world.client.delete(PodCliqueSet, name, fresh_name)
            await world.eventually(lambda: _only_the_first(world, told))


async def _is_available(world: World, name: str) -> bool:
    return (await world.get(PodCliqueSet, name)).status.available_replicas == 1


async def _only_the_first(world: World, told: Resource) -> bool:
    return set(await objects(world, told)) == {"whole-0"} and len(await world.list(Pod)) == 2
