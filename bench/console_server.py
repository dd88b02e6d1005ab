"""A console over a large made-up cluster that keeps changing, in a process of its own, for the console's bench.

python -m bench.console_server NODES SETS PODS_A_SET CHANGES_A_SECOND      prints its port, then a session
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from grove.api import labels
from grove.api.core import Lease, Node, Pod
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.console.follow import OF_CLUSTER, OF_NAMESPACE, Following
from grove.console.server import Console
from grove.console.viewers import Owner, Question, Watched
from grove.kube.client import Page, WatchEvent
from grove.plan.world import binding, shaped

GPUS = 8


def pod(name: str, owner: str, node: str, *, ready: bool, revision: int) -> Json:
    gang, clique = f"{owner}-0", f"{owner}-0-w"
    mine = {labels.PART_OF: owner, labels.POD_GANG: gang, labels.POD_CLIQUE: clique, labels.MANAGED_BY: labels.OPERATOR}
    limits = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"name": name, "namespace": "a", "uid": name, "labels": mine, "resourceVersion": str(revision)},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x", "resources": limits}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


class Stored:
    """The part of a client that a following needs: lists once, then changes as they are made."""

    def __init__(self, nodes: int, sets: int, pods: int) -> None:
        self.revision = 10
        made = shaped(nodes, GPUS)
        names = [node["metadata"]["name"] for node in made]
        meta = {"resourceVersion": "5"}
        self.objects: dict[type[Any], list[Json]] = {kind: [] for kind in (*OF_NAMESPACE, *OF_CLUSTER)}
        self.objects[Node] = [{**node, "metadata": {**node["metadata"], **meta}} for node in made]
        self.objects[ClusterTopologyBinding] = [{**binding(), "metadata": {"name": "t", **meta}}]
        self.pods: list[tuple[str, str, str]] = []
        for number in range(sets):
            name, own = f"s{number:04}", {"namespace": "a", **meta}
            mine = {labels.PART_OF: name, labels.MANAGED_BY: labels.OPERATOR}
            spec = {"containers": [{"name": "c", "image": "x"}]}
            template = {"cliques": [{"name": "w", "spec": {"replicas": pods, "podSpec": spec}}]}
            self.objects[PodCliqueSet].append(
                {"metadata": {"name": name, **own}, "spec": {"replicas": 1, "template": template}}
            )
            self.objects[PodClique].append(
                {
                    "metadata": {"name": f"{name}-0-w", "labels": mine, **own},
                    "spec": {"replicas": pods, "podSpec": spec},
                }
            )
            group = {"name": f"{name}-0-w", "minReplicas": pods}
            scheduled = [{"type": "Scheduled", "status": "True"}]
            self.objects[PodGang].append(
                {
                    "metadata": {"name": f"{name}-0", "labels": mine, **own},
                    "spec": {"podgroups": [group]},
                    "status": {"phase": "Running", "placementScore": 1.0, "conditions": scheduled},
                }
            )
            for index in range(pods):
                node = names[(number * pods + index) % len(names)]
                self.pods.append((f"{name}-0-w-{index}", name, node))
        self.objects[Pod] = [pod(*entry, ready=True, revision=5) for entry in self.pods]
        self.changed: dict[type[Any], asyncio.Queue[Json]] = {kind: asyncio.Queue() for kind in self.objects}

    async def list(self, kind: Any, namespace: str = "", **asked: Any) -> Any:
        if kind is Lease or kind not in self.objects or asked.get("labels") or asked.get("fields"):
            return Page([], "10")
        objects, self.objects[kind] = self.objects[kind], []
        return Page([msgspec.convert(obj, kind) for obj in objects], "10")

    async def watch(self, kind: Any, namespace: str = "", **asked: Any) -> AsyncIterator[WatchEvent[Any]]:
        while asked.get("initial_events") and self.objects[kind]:
            for obj in self.objects[kind]:
                yield WatchEvent("ADDED", msgspec.convert(obj, kind), "5")
            self.objects[kind] = []
        if asked.get("initial_events"):
            yield WatchEvent("BOOKMARK", None, "10", initial_done=True)
        while True:
            obj = await self.changed[kind].get()
            yield WatchEvent("MODIFIED", msgspec.convert(obj, kind), obj["metadata"]["resourceVersion"])

    async def keep_changing(self, a_second: float) -> None:
        number = 0
        while True:
            await asyncio.sleep(1 / a_second)
            number += 1
            self.revision += 1
            name, owner, node = self.pods[(number * 7919) % len(self.pods)]
            if number % 10 == 0:  # another pod of that name, elsewhere: the fleet has to be drawn again
                node = self.pods[(number * 104729) % len(self.pods)][2]
            self.changed[Pod].put_nowait(pod(name, owner, node, ready=number % 2 == 0, revision=self.revision))


class Everyone:
    """All viewers have the same rights here, so they share one following."""

    def __init__(self, following: Following) -> None:
        self._following = following

    @asynccontextmanager
    async def watching(self, namespace: str) -> AsyncIterator[Watched]:
        yield self._following

    async def still_may(self, watched: Watched) -> bool:
        return True

    async def answer(self, question: Question, namespace: str, asked: Mapping[str, Any]) -> Any:
        return {}


async def main(nodes: int, sets: int, pods: int, changes: float) -> None:
    stored = Stored(nodes, sets, pods)
    following = Following(stored, (*OF_NAMESPACE, *OF_CLUSTER))  # type: ignore[arg-type]
    async with following.following(), asyncio.TaskGroup() as group:
        group.create_task(stored.keep_changing(changes))
        owner = Owner(Everyone(following), "local")
        runner = web.AppRunner(Console(owner, {}).application(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], owner.open(owner.new_link()), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:5])))
