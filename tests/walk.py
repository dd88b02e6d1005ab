"""The way of one PodCliqueSet through the operator, and of one PodGang through the scheduler: `python -m tests.walk`.

A plain set is applied in a simulated cluster, and every module of ours that runs a function meanwhile is noted in the
order of its first call, with the first function called. What the API server, nodes and scheduler do is not the operator
and left out (`grove.sim`). So are the values it speaks in (`grove.api`) and what every controller stands on
(`grove.kube`): they are read once and then known. So is `wiring`, which has built everything before. The same for a
PodGang of three pods, from the watch event to its pods bound and its status written.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from grove.api.core import Namespace
from grove.sim.cluster import SimCluster
from grove.sim.loop import run
from tests.support.cluster import Cluster
from tests.support.gangs import gang, group, scheduling
from tests.support.manifests import clique, pcs
from tests.support.operating import operating

NAMESPACE = "walk"
TOUR = Path(__file__).parents[1] / "docs" / "development" / "code-tour.md"
LEFT_OUT = ("grove.sim", "grove.crds", "grove.api", "grove.kube", "grove.operator.wiring")


class Walk:
    """Modules in the order in which they are met, each with the first function called in it."""

    def __init__(self, *left_out: str) -> None:
        self.met: dict[str, str] = {}
        self._left_out = left_out

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        is_ours = module.startswith("grove.") and not module.startswith(self._left_out)
        if event == "call" and is_ours and module not in self.met:
            self.met[module] = frame.f_code.co_qualname

    def __enter__(self) -> Walk:
        sys.setprofile(self)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)


def missing_in_the_tour(met: Iterable[str]) -> list[str]:
    """Modules that docs/development/code-tour.md does not name, with their path or the end of it."""
    named = set(re.findall(r"`([\w/]+\.py)`", TOUR.read_text()))
    paths = {module: [f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"] for module in met}
    return [
        module for module, ways in paths.items() if not any(way.endswith(f"/{name}") for way in ways for name in named)
    ]


@asynccontextmanager
async def simulated() -> AsyncIterator[Cluster]:
    random.seed(0)
    async with AsyncExitStack() as stack:
        sim = await stack.enter_async_context(SimCluster())
        cluster = Cluster(sim.client(), sim.clock, sim, stack)
        cluster.namespace = NAMESPACE
        await cluster.client.create(Namespace, {"metadata": {"name": NAMESPACE}})
        yield cluster


async def walk(*left_out: str) -> dict[str, str]:
    """What is met between apply and Ready, by module."""
    async with simulated() as cluster, operating(cluster) as world:
        await asyncio.sleep(1)
        with Walk(*left_out) as found:
            await world.apply(pcs("chat", clique("router", 2), clique("worker", 3)))
            await world.available("chat")
        return found.met


async def walk_of_a_gang() -> dict[str, str]:
    """What of the scheduler is met between a PodGang's watch event and its status, by module."""
    async with simulated() as cluster, scheduling(cluster) as bench:
        await bench.add_nodes(4)
        await asyncio.sleep(1)
        with Walk("grove.sim", "grove.api", "grove.kube", "grove.show", "grove.diagnosis") as found:
            await bench.apply(gang("one", group("w", 2), group("v", 1)))
            await bench.condition("one", status="True")
        return found.met


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for number, (module, function) in enumerate(run(walk(*LEFT_OUT)).items(), 1):
        print(f"{number:3}  {module:55} {function}")
    print()
    for number, (module, function) in enumerate(run(walk_of_a_gang()).items(), 1):
        print(f"{number:3}  {module:55} {function}")


if __name__ == "__main__":
    main()
