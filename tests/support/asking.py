"""A cluster where operator and scheduler run, for what people ask of it; either of them can be stopped."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

from rich.console import Console

from grove.answers.answer import Answer
from grove.answers.plan import plan_answer
from grove.api.core import Pod
from grove.api.meta import Json, find_condition, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.config import load_configuration
from grove.diagnosis.reasons import sentence
from grove.kube.http import HttpClient
from grove.operator.wiring import Operator
from grove.scheduler.loop.live import Scheduler
from grove.sim.loop import run
from grove.sim.topology import LEVELS, Topology

CONFIG = "topologyAwareScheduling: {enabled: true}\n"


def text_of(answer: Answer, width: int, world: World) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, highlight=False).print(answer.paint(width))
    plain = out.getvalue().replace(world.cluster.prefix, "").replace(world.cluster.namespace, "NS")
    return "\n".join(line.rstrip() for line in plain.splitlines())


def server(clique: str, replicas: int, gpus: int, after: tuple[str, ...] = ()) -> Json:
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}}
    spec: Json = {
        "roleName": clique,
        "replicas": replicas,
        "minAvailable": replicas,
        "podSpec": {"containers": [{"name": "c", "image": "example/c:1", "resources": resources}]},
    }
    if after:
        spec["startsAfter"] = list(after)
    return {"name": clique, "spec": spec}


class World:
    """A test's cluster with an operator and a scheduler at work on it, and nodes that only its own pods go to."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.client, self.namespace = cluster, cluster.client, cluster.namespace
        self.nodes: Any = None
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.make: dict[str, Callable[[], Awaitable[None]]] = {}
        """Runs a new process of this name until it is cancelled."""

    def start(self, process: str) -> None:
        """An operator or a scheduler begins to work."""
        self.tasks[process] = asyncio.get_running_loop().create_task(_running(self.make[process]))

    async def stop(self, process: str) -> None:
        """The operator or the scheduler dies."""
        task = self.tasks[process]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def system(self, name: str, *, required: str = "rack", cliques: list[Json] | None = None, **template: Any) -> Json:
        parts = cliques or [server("leader", 1, 8), server("worker", 2, 8, ("leader",))]
        for part in parts:
            part["spec"]["podSpec"]["nodeSelector"] = {"test": self.namespace}
        constraint = {"topologyName": self.cluster.namespace, "pack": {"required": required}}
        explicit = any("startsAfter" in part["spec"] for part in parts)
        order = "CliqueStartupTypeExplicit" if explicit else "CliqueStartupTypeAnyOrder"
        return {
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "replicas": 1,
                "template": {
                    "cliques": parts,
                    "topologyConstraint": constraint,
                    "cliqueStartupType": order,
                    **template,
                },
            },
        }

    async def apply(self, manifest: Json) -> None:
        await self.client.create(PodCliqueSet, manifest)

    async def available(self, name: str) -> None:
        async def whole() -> bool:
            pcs = await self.client.get(PodCliqueSet, name, self.namespace)
            gangs = (await self.client.list(PodGang, self.namespace)).items
            pods = (await self.client.list(Pod, self.namespace)).items
            mine = [gang for gang in gangs if gang.metadata.name.startswith(f"{name}-")]
            return (
                pcs.status.available_replicas == pcs.spec.replicas
                and all(pod.is_ready for pod in pods)
                and all(is_true(gang.status.conditions, "Ready") for gang in mine)
            )

        await self.cluster.eventually(whole, 60)

    async def refused(self, *gangs: str) -> None:
        """A scheduler refuses one of these gangs."""

        async def is_said() -> bool:
            found = [await self.client.get(PodGang, gang, self.namespace) for gang in gangs]
            said = [find_condition(one.status.conditions, "Scheduled") for one in found]
            return any(one and one.status == "False" and one.reason != "WaitingForPods" for one in said)

        await self.cluster.eventually(is_said, 60)

    @property
    def now(self) -> datetime:
        now: datetime = self.cluster.clock.now()
        return now


async def _running(process: Callable[[], Awaitable[None]]) -> None:
    await process()


async def planned(world: World, *words: Any, **options: Any) -> Answer:
    """What `plan` answers; in virtual time, as the command runs it, also where the cluster it copied is a real one."""
    asked = plan_answer(*words, **options)
    return await asked if world.cluster.is_sim else await asyncio.to_thread(run, asked)


@asynccontextmanager
async def asking(cluster: Any, racks: int = 2) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        found = World(cluster)
        name = cluster.namespace
        levels = [{"domain": domain, "key": key} for domain, key in LEVELS]
        await cluster.client.create(ClusterTopologyBinding, {"metadata": {"name": name}, "spec": {"levels": levels}})
        stack.push_async_callback(cluster.client.delete, ClusterTopologyBinding, name)
        found.nodes = await cluster.add_nodes(Topology(racks=racks, nodes=4, labels={"test": name}), report_init=True)

        async def client(agent: str) -> Any:
            if cluster.is_sim:
                return cluster.sim.client(user=agent)
            return await stack.enter_async_context(HttpClient(cluster.client.config, user_agent=agent))

        ready = asyncio.Event()

        async def operator() -> None:
            await Operator(
                await client("operator"),
                load_configuration(CONFIG),
                clock=cluster.clock,
                rng=random.Random(5),
                startup_image="grove/startup:test",
            ).run(on_ready=ready.set)

        async def scheduler() -> None:
            await Scheduler(await client("scheduler"), clock=cluster.clock, say=sentence).run()

        found.make = {"scheduler": scheduler, "operator": operator}
        for process in found.make:
            found.start(process)
        try:
            await ready.wait()
            yield found
        finally:
            for process in found.tasks:
                await found.stop(process)
