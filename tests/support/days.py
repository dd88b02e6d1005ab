"""The scheduler with its default configuration on a simulated cluster, for stories that take hours or days.

    async with Day(nodes=3) as day:
        await day.apply(gang("large", group("w", 3)))
        await day.pass_a_day()

`Day` plays the owner of every pod: it makes the pod again, under the same name, when the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Self

from grove.api.core import Event, Node, Pod, PodDisruptionBudget, PriorityClass
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.sim.cluster import SimCluster
from grove.sim.topology import Topology
from tests.support.gangs import Gang, gang_json, member_json

NAMESPACE = "default"
HOUR_S, DAY_S = 3600.0, 24 * 3600.0
PRIORITIES = {"low": 100, "high": 1000, "urgent": 2000}


class Day:
    """A cluster with priority classes low, high and urgent. `stop_s` is how long pods take to stop, by pod or for all.

    `settings` is for the tests that say in their names that they change one.
    """

    def __init__(
        self, *, nodes: int, gpus: int = 1, stop_s: Any = 0.0, topology: Topology | None = None, **settings: Any
    ):
        shape = topology if topology is not None else Topology(nodes=nodes, gpus=gpus)
        self.sim = SimCluster(nodes=shape, stop_s=stop_s)
        self.client = self.sim.client()
        self.config = SchedulerConfiguration(**settings)
        self._stack = AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self.scheduler: Scheduler

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.sim)
        for name, value in PRIORITIES.items():
            await self.client.create(PriorityClass, {"metadata": {"name": name}, "value": value})
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        await self._stack.aclose()

    async def start(self) -> None:
        self.scheduler_client = self.sim.client(user="grove-scheduler")
        self.scheduler = Scheduler(self.scheduler_client, self.config, self.sim.clock, say=sentence)
        self._running = asyncio.ensure_future(self.scheduler.run())
        await asyncio.sleep(1)

    async def stop(self) -> None:
        """As a crash: nothing is finished."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def pass_a_day(self) -> None:
        await asyncio.sleep(DAY_S)

    async def apply(self, *gangs: Gang) -> None:
        for made in gangs:
            await self.client.create(PodGang, gang_json(made, NAMESPACE))
            for part in made.groups:
                for number in range(part.pods):
                    await self.client.create(Pod, member_json(made, part, number, NAMESPACE))

    async def make_again(self, made: Gang, *numbers: int) -> None:
        """New pods for those of the gang's first group, under their old names."""
        for number in numbers:
            await self.client.create(Pod, member_json(made, made.groups[0], number, NAMESPACE))

    async def keep_whole(self, made: Gang) -> None:
        """Makes pods of the gang's first group again whenever one is gone, until cancelled: what the operator does."""
        while True:
            there = {pod.metadata.name for pod in await self.pods()}
            for number in range(made.groups[0].pods):
                if f"{made.name}-{made.groups[0].name}-{number}" not in there:
                    await self.make_again(made, number)
            await asyncio.sleep(1)

    async def end(self, name: str) -> None:
        await self.client.delete(Pod, name, NAMESPACE, grace_period_s=0)

    async def protect(self, name: str, selector: dict[str, str], most_unavailable: int) -> None:
        """A disruption budget over pods with these labels."""
        spec: Json = {"maxUnavailable": most_unavailable, "selector": {"matchLabels": selector}}
        await self.client.create(
            PodDisruptionBudget, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        )

    async def eventually(self, holds: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(600):
            if await holds():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("not within a minute")

    async def pods(self) -> list[Pod]:
        return list((await self.client.list(Pod, NAMESPACE)).items)

    async def pod(self, name: str) -> Pod:
        return await self.client.get(Pod, name, NAMESPACE)

    async def bound(self, prefix: str) -> int:
        """Pods with such a name that are on nodes and not about to leave them."""
        return sum(
            bool(pod.spec.node_name) and not pod.metadata.is_deleting and pod.metadata.name.startswith(prefix)
            for pod in await self.pods()
        )

    async def nodes(self) -> list[str]:
        return sorted(node.metadata.name for node in (await self.client.list(Node)).items)

    async def podgang(self, name: str) -> PodGang:
        return await self.client.get(PodGang, name, NAMESPACE)

    async def events(self, reason: str) -> list[Event]:
        return [one for one in (await self.client.list(Event, NAMESPACE)).items if one.reason == reason]

    async def waited_for(self, prefix: str, pods: int, most_s: float = DAY_S) -> float:
        """Seconds until this number of pods with such a name is bound; `most_s` if they are not."""
        now = asyncio.get_running_loop().time
        began = now()
        while await self.bound(prefix) < pods:
            if now() - began >= most_s:
                return most_s
            await asyncio.sleep(1)
        return now() - began

    async def waited_and_stayed(self, prefix: str, pods: int) -> float:
        """`waited_for`, after which a day passes and the same number of pods is still bound."""
        waited_s = await self.waited_for(prefix, pods)
        await self.pass_a_day()
        assert await self.bound(prefix) == pods
        return waited_s
