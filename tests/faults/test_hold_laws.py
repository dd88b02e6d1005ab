"""Two laws of held capacity over random histories: gangs come and end, nodes are cordoned, the scheduler restarts.

After each event, every owner of a hold waits, is being bound or is being replaced. While a hold stays, also through a
restart, it has the same time of its beginning. A unit ahead may take held capacity, and the owner is placed later.
Default settings, virtual time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.days import NAMESPACE, Day
from tests.support.gangs import gang, group

from grove.api.core import Node
from grove.api.podgang import PodGang
from grove.kube.errors import NotFound
from grove.scheduler.policy.hold_ledger import LONG_WAIT, HoldReason
from grove.sim.loop import run

Event = tuple[str, int, str]
"""What happens, to which gang or node (or: a gang of how many pods), and a priority."""
events = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "come", "end", "lose", "cordon", "open", "restart", "wait"]),
        st.integers(1, 4),
        st.sampled_from(["low", "high", "urgent"]),
    ),
    min_size=4,
    max_size=14,
)
pauses = st.sampled_from([1.0, 10.0, 130.0, 700.0])
Begun = dict[tuple[str, HoldReason], tuple[frozenset[str], datetime]]


class History:
    def __init__(self, day: Day) -> None:
        self._day = day
        self._sizes: dict[str, int] = {}
        self._begun: Begun = {}
        self.placed: set[str] = set()

    async def happens(self, event: Event) -> None:
        kind, number, priority = event
        day = self._day
        if kind == "come":
            name = f"g{len(self._sizes):02}"
            self._sizes[name] = number
            await day.apply(gang(name, group("w", number), priority_class=priority))
        elif kind in ("end", "lose") and self._sizes:
            name = sorted(self._sizes)[number % len(self._sizes)]
            if kind == "end":
                await self.end(name)
            elif await day.bound(f"{name}-") == self._sizes[name]:
                await day.end(f"{name}-w-0")
                await day.make_again(gang(name, group("w", self._sizes[name])), 0)
        elif kind in ("cordon", "open"):
            nodes = await day.nodes()
            body = {"spec": {"unschedulable": kind == "cordon"}}
            await day.client.patch(Node, nodes[number % len(nodes)], body)
        elif kind == "restart":
            await day.stop()
            await day.start()

    async def end(self, name: str) -> None:
        with suppress(NotFound):
            await self._day.client.delete(PodGang, name, NAMESPACE)
        for number in range(self._sizes[name]):
            with suppress(NotFound):
                await self._day.end(f"{name}-w-{number}")

    async def check(self) -> None:
        for name, size in self._sizes.items():
            if await self._day.bound(f"{name}-") == size:
                self.placed.add(name)
        view, queue = self._day.scheduler.view, self._day.scheduler.queue
        begun: Begun = {}
        for hold in view.ledger:
            unit = view.units.gangs.get(hold.owner)
            assert unit is not None, f"{hold.reason} is held for {hold.owner}, which does not exist"
            is_owed = hold.owner in queue or unit.life.is_busy or any(unit.replaced.values())
            assert is_owed, f"{hold.reason} is held for {hold.owner}, which does not wait"
            if hold.reason in LONG_WAIT:
                begun[hold.owner, hold.reason] = (hold.nodes, hold.since.replace(microsecond=0))
        for key, (nodes, since) in begun.items():
            before = self._begun.get(key)
            if before is not None and before[0] == nodes:
                assert since == before[1], f"{key} is held since {since}, and before since {before[1]}"
        self._begun = begun

    async def drain(self) -> set[str]:
        """Ends whatever is placed until nothing is left; the gangs that were never placed."""
        for node in await self._day.nodes():
            await self._day.client.patch(Node, node, {"spec": {"unschedulable": False}})
        for _ in range(2 * len(self._sizes)):
            await asyncio.sleep(300)
            await self.check()
            for name in sorted(self.placed):
                await self.end(name)
        await asyncio.sleep(300)
        await self.check()
        left = {pod.metadata.name.partition("-")[0] for pod in await self._day.pods()}
        return left - self.placed


async def story(nodes: int, happening: list[tuple[Event, float]]) -> None:
    async with Day(nodes=nodes, stop_s=2.0) as day:
        history = History(day)
        for event, pause_s in happening:
            kind, number, priority = event
            await history.happens((kind, min(number, nodes), priority))
            await asyncio.sleep(pause_s)
            await history.check()
        assert await history.drain() == set()


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(2, 4), events, st.lists(pauses, min_size=14, max_size=14))
def test_holds_have_owners_that_wait_and_never_begin_again(
    nodes: int, happening: list[Event], after_s: list[float]
) -> None:
    run(story(nodes, list(zip(happening, after_s, strict=False))), limit_s=1e9)
