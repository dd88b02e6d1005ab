"""The least that a system costs on this control plane: a bare client makes the writes nobody can avoid.

They are the objects the operator makes for the same set (Services, cliques, gangs, pods) without owners, and a binding
a pod; fake nodes make the pods Ready, as they do for the operator. With `promised` there is also what the API promises
to whoever looks: one status of each clique and each gang, written when all is made, and the finalizer of a clique,
which costs a second write when it goes. Then all of it is deleted, Services first, so that nobody follows their pods
any more. No watch, no decision: what a real operator and scheduler take beyond it is theirs. 64 requests are in flight,
by the same HTTP client that the operator has.

`python -m tests.bench.floor KUBECONFIG` takes its orders as JSON on stdin, from `operator_bench`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Iterator
from typing import Any

from grove.api.core import Node, Pod, Service
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.backends import GroveBackend
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from tests.support.puregraph import PureGraph

KINDS = (Service, PodClique, PodCliqueScalingGroup, PodGang, Pod)
IN_FLIGHT = 64
NUMBER = "NUMBER"


def _condition(type_: str, reason: str) -> Json:
    when = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": "True", "reason": reason, "message": "as asked for", "lastTransitionTime": when}


_COUNTS = ("replicas", "readyReplicas", "scheduledReplicas", "updatedReplicas")
STATUSES: dict[str, Json] = {
    "PodClique": {
        **dict.fromkeys(_COUNTS, 2), "scheduleGatedReplicas": 0, "observedGeneration": 1,
        "conditions": [_condition("PodCliqueScheduled", "SufficientScheduledPods")],
    },
    "PodGang": {
        "phase": "Running",
        "conditions": [_condition("Initialized", "PodGangPodsCreated"), _condition("Scheduled", "GangScheduled")],
    },
}  # fmt: skip
"""One status of each, when all is made; only with `promised`."""


def unavoidable(manifest: Json, *, promised: bool = False) -> list[Json]:
    """What is made of a set, in the order to make it, ready to be created."""
    graph = PureGraph(manifest, GroveBackend())
    graph.settle()
    known = {kind.RESOURCE.kind: order for order, kind in enumerate(KINDS)}
    found = sorted((one for one in graph.children() if one["kind"] in known), key=lambda one: known[one["kind"]])
    kept = ("name", "namespace", "labels", "annotations", *(["finalizers"] if promised else []))
    return [
        {
            "apiVersion": one["apiVersion"],
            "kind": one["kind"],
            "metadata": {field: one["metadata"][field] for field in kept if one["metadata"].get(field)},
            "spec": {field: value for field, value in one["spec"].items() if field != "nodeName"},
        }
        for one in found
    ]


def numbered(objects: list[Json], old: str, new: str, number: int) -> list[Json]:
    """The same objects under another name: a set's, or that of a replica of it."""
    text = re.sub(rf"(?<![\w-]){re.escape(old)}(?=[\"/.-])", new, json.dumps(objects))
    index = '"grove.io/podcliqueset-replica-index": "0"'
    return list(json.loads(text.replace(index, index.replace('"0"', f'"{number}"')) if old.endswith("-0") else text))


class Floor:
    def __init__(self, client: HttpClient) -> None:
        self._client, self._turns = client, asyncio.Semaphore(IN_FLIGHT)
        self._made: list[Json] = []
        self._nodes: list[str] = []

    async def make(self, systems: list[list[Json]], *, promised: bool = False) -> None:
        self._nodes = [node.metadata.name for node in (await self._client.list(Node)).items]
        self._made = [one for system in systems for one in system]
        await self._all(self._one(number, one) for number, one in enumerate(self._made))
        if promised:
            told = [one for one in self._made if one["kind"] in STATUSES]
            await self._all(self._tell(one) for one in told)

    async def remove(self) -> None:
        for first in (True, False):
            chosen = [one for one in self._made if (one["kind"] == "Service") is first]
            await self._all(self._delete(one) for one in chosen)

    async def _one(self, number: int, obj: Json) -> None:
        await self._client.create(_resource(obj), obj)
        if obj["kind"] == "Pod":
            meta = obj["metadata"]
            await self._client.bind(meta["namespace"], meta["name"], self._nodes[number % len(self._nodes)])

    async def _tell(self, obj: Json) -> None:
        meta, patch = obj["metadata"], {"status": STATUSES[obj["kind"]]}
        await self._client.patch(_resource(obj), meta["name"], patch, meta["namespace"], subresource="status")

    async def _delete(self, obj: Json) -> None:
        meta, kind = obj["metadata"], _resource(obj)
        await self._client.delete(kind, meta["name"], meta["namespace"])
        if meta.get("finalizers"):
            await self._client.patch(kind, meta["name"], {"metadata": {"finalizers": None}}, meta["namespace"])

    async def _all(self, work: Iterator[Awaitable[None]]) -> None:
        async def in_turn(one: Awaitable[None]) -> None:
            async with self._turns:
                await one

        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(in_turn(one))


def _resource(obj: Json) -> Any:
    return next(kind.RESOURCE for kind in KINDS if kind.RESOURCE.kind == obj["kind"])


async def main(kubeconfig: str) -> None:
    loop = asyncio.get_running_loop()
    async with HttpClient(load_config(kubeconfig), user_agent="bare-client", max_writes=IN_FLIGHT) as client:
        floor = Floor(client)
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = json.loads(line)
            if order["do"] == "make":
                one = unavoidable(order["set"], promised=order["promised"])
                old, new = order["rename"], order["to"]
                systems = [numbered(one, old, new.replace(NUMBER, str(n)), n) for n in range(order["count"])]
                print("planned", flush=True)
                await loop.run_in_executor(None, sys.stdin.readline)
                await floor.make(systems, promised=order["promised"])
            else:
                await floor.remove()
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
