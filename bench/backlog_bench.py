"""The scheduler beside a long queue, on the simulator: a freed slot, the longest step on the event loop, a week.

    python -m bench backlog

900 gangs that ask for the same wait for four nodes, with the default configuration. In a second story their pods keep
apart from each other. CPU time is that of the scheduler's
turns. What the simulated API server does for the same events is left out. The garbage collector is off meanwhile:
`grove scheduler` keeps it out of sight (`kube/collector.py`). In the week, jobs of random sizes and priorities start
and end every few minutes, and always some wait. Counted is what the scheduler's packages keep in memory.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import statistics
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import structlog
from tests.support.days import DAY_S, HOUR_S, NAMESPACE, PRIORITIES, Day
from tests.support.gangs import gang, group

from bench.figures import Figure
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podgang import PodGang
from grove.kube.errors import NotFound
from grove.scheduler.loop.live import Scheduler
from grove.sim.loop import run as simulate

WAITING, SLOTS, DAYS = 900, 20, 7


class Steps:
    """CPU seconds of every step that the scheduler's task takes on the event loop."""

    def __init__(self) -> None:
        self.taken_s: list[float] = []

    def run(self, handle: Handle) -> None:
        owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        began = time.thread_time()
        PLAIN_RUN(handle)
        coro = owner.get_coro() if isinstance(owner, asyncio.Task) else None
        if getattr(coro, "__qualname__", "") == Scheduler.run.__qualname__:
            self.taken_s.append(time.thread_time() - began)

    @contextmanager
    def noted(self) -> Iterator[None]:
        with mock.patch.object(Handle, "_run", lambda handle: self.run(handle)):
            yield


PLAIN_RUN: Any = Handle._run  # type: ignore[attr-defined]


SERVING = {"app": "serving"}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": SERVING}}
        ]
    }
}


async def freed_slots(steps: Steps, spec: Json) -> list[float]:
    """Milliseconds that each of several freed slots costs the scheduler, the minute after it included."""
    async with Day(nodes=4) as day:
        wanted = group("w", 1, spec=spec)
        await day.apply(*(gang(f"g{number:03}", wanted, labels=SERVING) for number in range(WAITING)))
        await asyncio.sleep(HOUR_S)  # nodes are held, and the first warnings are written
        costs = []
        for _ in range(SLOTS):
            name = min(pod.metadata.name for pod in await day.pods() if pod.spec.node_name)
            before = sum(steps.taken_s)
            await day.client.delete(PodGang, name.removesuffix("-w-0"), NAMESPACE)
            await day.client.delete(Pod, name, NAMESPACE, grace_period_s=0)
            await asyncio.sleep(60)
            costs.append((sum(steps.taken_s) - before) * 1000)
        return costs


def kept() -> int:
    """Objects of the scheduler's own classes that are alive."""
    gc.collect()
    return sum(str(type(obj).__module__).startswith("grove.scheduler") for obj in gc.get_objects())


async def week() -> list[int]:
    """Objects that the scheduler keeps after each day of churn, with nothing left to run or to wait."""
    rng, counts = random.Random(1), list[int]()

    async def job(day: Day, number: int) -> None:
        size, name = rng.randint(1, 6), f"job-{number}"
        await day.apply(gang(name, group("w", size), priority_class=rng.choice(list(PRIORITIES))))
        await asyncio.sleep(rng.uniform(0.1, 2) * HOUR_S)
        await day.client.delete(PodGang, name, NAMESPACE)
        for index in range(size):
            with suppress(NotFound):  # evicted for a job of higher priority
                await day.client.delete(Pod, f"{name}-w-{index}", NAMESPACE, grace_period_s=0)

    async with Day(nodes=8) as day:
        for number in range(DAYS):
            jobs = []
            for turn in range(144):
                jobs.append(asyncio.ensure_future(job(day, number * 1000 + turn)))
                await asyncio.sleep(DAY_S / 160)
            await asyncio.wait(jobs)
            await asyncio.sleep(HOUR_S)
            counts.append(kept())
    return counts


def run(results: dict[str, Figure]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    equal = f"among {WAITING} gangs that ask for the same"
    for what, spec in ((equal, {}), (f"{equal} and keep apart from each other", {"affinity": APART})):
        steps = Steps()
        gc.disable()
        try:
            with steps.noted():
                slots = simulate(freed_slots(steps, spec), seed=1, limit_s=1e9)
        finally:
            gc.enable()
        results[f"loop: a freed slot {what}, median"] = Figure(round(statistics.median(slots), 2), "ms", "≤ 5")
        results[f"loop: longest step {what}"] = Figure(round(max(steps.taken_s) * 1000, 1), "ms", "≤ 20")
    days = simulate(week(), seed=1, limit_s=1e9)
    print(f"    objects of the scheduler after each day of churn: {', '.join(map(str, days))}")
    results[f"memory: objects of the scheduler after {DAYS} days of churn, over the first day"] = Figure(
        round(days[-1] / days[0], 2), "x", "≤ 1"
    )
