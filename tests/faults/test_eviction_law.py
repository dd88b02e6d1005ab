"""A hold starts an eviction only if the budgets of all its victims allow it: random fleets, budgets and preemptors.

The API server then refuses no eviction, and a gang that goes is evicted whole. Default settings, virtual time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.days import Day
from tests.support.gangs import gang, group

from grove.kube.errors import TooManyRequests
from grove.sim.loop import run

APPS = ("red", "green")
sizes = st.integers(1, 3)
running = st.lists(st.tuples(sizes, st.integers(1, 3), st.sampled_from(APPS)), min_size=1, max_size=4)
"""Gangs of low priority: pods, minimum at most, and the label that budgets select."""
budgets = st.lists(st.tuples(st.sampled_from(APPS), st.integers(0, 4)), max_size=3)
preemptors = st.lists(st.tuples(sizes, st.floats(0, 3), st.sampled_from(["high", "urgent"])), min_size=1, max_size=3)


class Evicted:
    """What the scheduler asked to evict, and what was refused."""

    def __init__(self, day: Day) -> None:
        self.refused: list[str] = []
        self.gone: set[str] = set()
        client: Any = day.scheduler_client
        evict = client.evict

        async def seen(namespace: str, pod: str, **options: Any) -> None:
            try:
                await evict(namespace, pod, **options)
                self.gone.add(pod)
            except TooManyRequests:
                self.refused.append(pod)
                raise

        client.evict = seen


async def story(
    nodes: int, low: list[tuple[int, int, str]], kept: list[tuple[str, int]], high: list[tuple[int, float, str]]
) -> None:
    async with Day(nodes=nodes, stop_s=1.0) as day:
        evicted = Evicted(day)
        for number, (pods, minimum, app) in enumerate(low):
            part = group("w", pods, min(pods, minimum))
            await day.apply(gang(f"low-{number}", part, priority_class="low", labels={"app": app}))
        for number, (app, most) in enumerate(kept):
            await day.protect(f"keep-{number}", {"app": app}, most)
        await asyncio.sleep(10)
        before = {pod.metadata.name for pod in await day.pods() if pod.spec.node_name}
        for number, (pods, after_s, priority) in enumerate(high):
            await asyncio.sleep(after_s)
            await day.apply(gang(f"high-{number}", group("w", pods), priority_class=priority))
        await day.pass_a_day()
        assert not evicted.refused
        for number, (pods, minimum, _) in enumerate(low):
            own = {name for name in before if name.startswith(f"low-{number}-")}
            left = len(own - evicted.gone)
            assert left in (0, *range(min(pods, minimum), pods + 1)), f"low-{number} has {left} of {len(own)} pods left"


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(2, 5), running, budgets, preemptors)
def test_no_eviction_begins_that_a_budget_refuses(
    nodes: int, low: list[tuple[int, int, str]], kept: list[tuple[str, int]], high: list[tuple[int, float, str]]
) -> None:
    run(story(nodes, low, kept, high))
