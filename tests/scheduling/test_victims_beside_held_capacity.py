"""A unit that evicts others also uses what is held for itself, and for units behind it.

With the default configuration; a simulated day passes after the last event.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.days import NAMESPACE, Day
from tests.support.gangs import gang, group

from grove.api.core import PodDisruptionBudget
from grove.kube.errors import Forbidden
from grove.scheduler.loop.writes.bind import BindAttempt
from grove.scheduler.policy.hold_ledger import HoldReason
from grove.sim.loop import run

pytestmark = pytest.mark.simulated


async def nodes_of(day: Day, prefix: str) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in await day.pods() if pod.metadata.name.startswith(prefix)}


async def lose_two(day: Day, made: Any) -> None:
    """The first pod of a gang is deleted. The second is deleted too, and its node is closed."""
    second = (await nodes_of(day, made.name))[f"{made.name}-w-1"]
    await day.sim.nodes.cordon(second, unschedulable=True)
    await asyncio.gather(day.end(f"{made.name}-w-0"), day.end(f"{made.name}-w-1"))
    await asyncio.sleep(2)
    await asyncio.gather(day.make_again(made, 0), day.make_again(made, 1))


def test_a_repair_that_evicts_others_uses_the_node_that_is_held_for_it() -> None:
    async def story() -> tuple[float, int]:
        async with Day(nodes=4) as day:
            high = gang("high", group("w", 3), priority_class="high")
            await day.apply(high)
            await asyncio.sleep(60)
            await day.apply(gang("low", group("w", 1), priority_class="low"))
            await asyncio.sleep(60)
            await lose_two(day, high)
            return await day.waited_and_stayed("high-", 3), await day.bound("low-")

    waited_s, left = run(story())
    assert waited_s < 60
    assert left == 0


def test_a_unit_that_evicts_others_takes_what_is_held_for_a_unit_behind_it() -> None:
    """A node is held for a pod of the lower gang that no controller makes again. A budget protects the other pod."""

    async def story() -> tuple[float, int]:
        async with Day(nodes=3) as day:
            await day.protect("keep", {"app": "low"}, 0)
            await day.apply(gang("low", group("w", 2), priority_class="low", labels={"app": "low"}))
            await asyncio.sleep(60)
            await day.apply(gang("job", group("w", 1), priority_class="low"))
            await asyncio.sleep(60)
            await day.end("low-w-0")
            await asyncio.sleep(5)
            await day.apply(gang("high", group("w", 2), priority_class="high"))
            return await day.waited_and_stayed("high-", 2), await day.bound("low-")

    waited_s, left = run(story())
    assert waited_s < 60
    assert left == 1


def test_the_node_that_is_held_for_a_repair_stays_held_when_its_evictions_are_called_off() -> None:
    """The budget allows the eviction, and refuses it a moment later. Another gang of the same priority waits."""

    async def story() -> tuple[int, int, float]:
        async with Day(nodes=4) as day:
            high = gang("high", group("w", 3), priority_class="high")
            await day.apply(high)
            await asyncio.sleep(60)
            await day.apply(gang("low", group("w", 1), priority_class="low", labels={"app": "low"}))
            await asyncio.sleep(60)
            await day.protect("keep", {"app": "low"}, 1)
            evict = day.scheduler_client.evict

            async def refused_at_last(*args: Any, **more: Any) -> None:
                await day.client.patch(PodDisruptionBudget, "keep", {"spec": {"maxUnavailable": 0}}, NAMESPACE)
                await evict(*args, **more)

            setattr(day.scheduler_client, "evict", refused_at_last)  # noqa: B010
            await lose_two(day, high)
            await day.apply(gang("other", group("w", 1), priority_class="high"))
            await day.pass_a_day()
            bound, others = await day.bound("high-"), await day.bound("other-")
            setattr(day.scheduler_client, "evict", evict)  # noqa: B010
            await day.client.delete(PodDisruptionBudget, "keep", NAMESPACE)
            return bound, others, await day.waited_and_stayed("high-", 3)

    bound, others, waited_s = run(story())
    assert (bound, others) == (1, 0)
    assert waited_s < 60


def test_the_node_that_is_held_for_a_repair_is_held_at_once_when_its_binding_fails() -> None:
    async def story() -> tuple[list[bool], float, int]:
        async with Day(nodes=2) as day:
            high = gang("high", group("w", 2), priority_class="high")
            await day.apply(high)
            await asyncio.sleep(60)
            await day.apply(gang("other", group("w", 1), priority_class="high"))
            await asyncio.sleep(60)
            bind, failures, held = day.scheduler_client.bind, iter(range(10)), list[bool]()

            def look(node: str) -> None:
                hold = day.scheduler.view.ledger.find(f"{NAMESPACE}/high", HoldReason.REPLACEMENT)
                held.append(hold is not None and [pod.node for pod in hold.pods] == [node])

            async def refused_at_first(namespace: str, name: str, node: str, **more: Any) -> None:
                if name.startswith("high-") and next(failures, None) is not None:
                    asyncio.get_running_loop().call_later(0.01, look, node)
                    raise Forbidden("a webhook refuses it", code=403)
                await bind(namespace, name, node, **more)

            setattr(day.scheduler_client, "bind", refused_at_first)  # noqa: B010
            await day.end("high-w-0")
            await day.make_again(high, 0)
            return held, await day.waited_and_stayed("high-", 2), await day.bound("other-")

    held, waited_s, others = run(story())
    assert held == [True] * 10
    assert waited_s < 60
    assert others == 0


def test_a_unit_ahead_takes_the_held_node_of_a_repair_that_waits_for_its_victims() -> None:
    """The victim takes ten minutes to leave. Until then the repair has a place on the node that was held for it."""

    async def story() -> tuple[float, list[str], int]:
        async with Day(nodes=4, stop_s=lambda pod: 600.0 if pod.metadata.name == "low-w-0" else 0.0) as day:
            high = gang("high", group("w", 3), priority_class="high")
            await day.apply(high)
            await asyncio.sleep(60)
            slow = group("w", 1, spec={"terminationGracePeriodSeconds": 600})
            await day.apply(gang("low", slow, priority_class="low"))
            await asyncio.sleep(60)
            await lose_two(day, high)
            await asyncio.sleep(60)
            snapshot, overfull = day.scheduler.view.snapshot, list[str]()

            def look(attempt: BindAttempt) -> None:
                rows = {pod.node: snapshot.nodes.row_of[pod.node] for pod in attempt.pods}
                overfull.extend(node for node, row in rows.items() if snapshot.free[:, row].min() < 0)
                launch(attempt)

            launch = day.scheduler._committer.launch
            setattr(day.scheduler._committer, "launch", look)  # noqa: B010
            await day.apply(gang("urgent", group("w", 1), priority_class="urgent"))
            return await day.waited_and_stayed("urgent-", 1), overfull, await day.bound("high-")

    waited_s, overfull, left = run(story())
    assert waited_s < 60
    assert overfull == []
    assert left == 1
