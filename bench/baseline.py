"""The least that a system costs on this control plane: a bare client makes only the writes that every client must make.

They are the objects the operator makes for the same set (Services, cliques, gangs, pods), and a binding for each pod.
Fake nodes make the pods Ready, as they do for the operator. With `promised` there is also what the API promises. That
is the set itself and the owner references that lead to it, which the garbage collector follows. It is finalizers, which
cost a second write when their object is deleted. And it is the final status of each clique, group and gang, written
once. A test compares what is left on a server with what the operator leaves there.

Then the client deletes all of it: Services first, so that no controller follows their pods any more, and no owner
before what it owns. It has no watch and makes no decision. So everything that a real operator and scheduler cost beyond
it is their own cost, also the status of the set, its revision and Events. 64 requests are in flight, by the same HTTP
client that the operator has.

The same client also binds pods of others, like a scheduler without a decision to make. It replaces the pods of an
update one at a time.

`python -m bench.baseline KUBECONFIG` takes its orders as JSON on stdin, from the benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Iterator
from typing import Any

from tests.support.puregraph import PureGraph

from grove.api import labels
from grove.api.core import Node, Pod, Service
from grove.api.env import PCS_INDEX
from grove.api.meta import Json
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.backends.grove import GroveBackend
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.config import load_config
from grove.kube.http import HttpClient

KINDS = (PodCliqueSet, Service, PodCliqueScalingGroup, PodClique, PodGang, Pod)
"""In the order to make them; who owns something comes before it."""
GOING = (Service, PodGang, Pod, PodClique, PodCliqueScalingGroup, PodCliqueSet)
"""In the order to delete them."""
IN_FLIGHT = 64
NUMBER = "NUMBER"
KUBE_SCHEDULER = "default-scheduler"
"""Places its pods itself."""


def _condition(type_: str, reason: str, message: str) -> Json:
    when = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": when}


PLACED: Json = {
    "phase": "Running",
    "placementScore": 1,
    "conditions": [
        _condition("Scheduled", "GangScheduled", "placed 2 pods, score 1"),
        _condition("Ready", "MinimumReady", "every group has its minimum ready"),
        _condition("Initialized", "PodGangPodsCreated", "all pods exist"),
    ],
}
"""What a scheduler says of a gang that runs."""
REPORTED = ("PodClique", "PodCliqueScalingGroup", "PodGang")


def _promised(obj: Json) -> Json:
    """What only a system with its promises has: owners, finalizers, and the status that an object has in the end."""
    kept = ("ownerReferences", "finalizers")
    promised: Json = {"metadata": {field: obj["metadata"][field] for field in kept if field in obj["metadata"]}}
    if obj["kind"] == "PodCliqueSet":
        promised["metadata"]["finalizers"] = [labels.SET_FINALIZER]
    if obj["kind"] in REPORTED:
        promised["status"] = PLACED if obj["kind"] == "PodGang" else obj["status"]
    return promised


def unavoidable(manifest: Json, *, promised: bool = False, scheduler: str = "") -> list[Json]:
    """What is made of a set, in the order to make it, ready to be created; its pods for `scheduler` if one is named.

    The uids in owner references are not known before the owners are made.
    """
    graph = PureGraph(manifest, GroveBackend())
    graph.settle()
    known = {kind.RESOURCE.kind: order for order, kind in enumerate(KINDS) if promised or kind is not PodCliqueSet}
    ordered = sorted(
        (obj for obj in graph.objects.values() if obj["kind"] in known), key=lambda obj: known[obj["kind"]]
    )
    kept = ("name", "generateName", "namespace", "labels", "annotations")
    placed_by = {"schedulerName": scheduler} if scheduler else {}
    made = []
    for obj in ordered:
        more = _promised(obj) if promised else {"metadata": {}}
        metadata = {field: obj["metadata"][field] for field in kept if obj["metadata"].get(field)}
        spec = {field: value for field, value in obj["spec"].items() if field != "nodeName"}
        spec |= placed_by if obj["kind"] == "Pod" else {}
        made.append(
            {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                **more,
                "metadata": metadata | more["metadata"],
                "spec": spec,
            }
        )
    return made


def numbered(objects: list[Json], old: str, new: str, number: int) -> list[Json]:
    """The same objects under another name: a set's, or that of a replica of it."""
    text = re.sub(rf"(?<![\w-]){re.escape(old)}(?=[\"/.-])", new, json.dumps(objects))
    if old.endswith("-0"):
        for index in (f'"{labels.REPLICA_INDEX}": "0"', f'"name": "{PCS_INDEX}", "value": "0"'):
            text = text.replace(index, index.replace('"0"', f'"{number}"'))
    return list(json.loads(text))


class Baseline:
    def __init__(self, client: Client) -> None:
        self._client, self._turns = client, asyncio.Semaphore(IN_FLIGHT)
        self._made: list[Json] = []
        self._uids: dict[tuple[str, str], asyncio.Future[str]] = {}
        """Of the objects that own others, by kind and name; what they own waits for them."""
        self._nodes: list[str] = []

    async def make(self, systems: list[list[Json]]) -> None:
        await self._create([obj for system in systems for obj in system])
        await self._all(self._tell(obj) for obj in self._made if "status" in obj)

    async def remove(self) -> None:
        for kind in GOING:
            await self._all(self._delete(obj) for obj in self._made if obj["kind"] == kind.RESOURCE.kind)

    async def bind(self, namespace: str, places: list[tuple[str, str]], gang: str) -> None:
        """Binds pods to the nodes named, and says of their gang what a scheduler has to say."""
        await self._all(self._client.bind(namespace, pod, node) for pod, node in places)
        await self._tell({"kind": "PodGang", "metadata": {"name": gang, "namespace": namespace}, "status": PLACED})

    async def fill(self, systems: list[list[Json]]) -> None:
        """The pods of these systems and nothing else, up and running: what `replace` begins with."""
        await self._create([obj for system in systems for obj in system if obj["kind"] == "Pod"])

    async def replace(self) -> None:
        """Every pod in turn: deleted, gone, made, bound, Ready; followed by a watch."""
        changed, cache, whole = asyncio.Event(), Cache(self._client), len(self._made)
        cache.add(Pod)
        cache.on_event(Pod, lambda old, new: changed.set())

        async def until(pods: int, ready: int) -> None:
            while len(listed := cache.list(Pod)) != pods or sum(pod.is_ready for pod in listed) != ready:
                changed.clear()
                await changed.wait()

        async with cache:
            await cache.wait_synced()
            for number, pod in enumerate(self._made):
                await self._client.delete(Pod, pod["metadata"]["name"], pod["metadata"]["namespace"])
                await until(whole - 1, whole - 1)
                await self._one(number, pod)
                await until(whole, whole)

    async def _create(self, objects: list[Json]) -> None:
        self._nodes = [node.metadata.name for node in (await self._client.list(Node)).items]
        self._made, loop = objects, asyncio.get_running_loop()
        self._uids = {_owner(ref): loop.create_future() for obj in objects for ref in _owners(obj)}
        async with asyncio.TaskGroup() as group:
            for number, obj in enumerate(objects):
                group.create_task(self._after_owners(number, obj))

    async def _after_owners(self, number: int, obj: Json) -> None:
        owners = [ref | {"uid": await self._uids[_owner(ref)]} for ref in _owners(obj)]
        metadata = obj["metadata"] | ({"ownerReferences": owners} if owners else {})
        async with self._turns:
            await self._one(number, obj | {"metadata": metadata})

    async def _one(self, number: int, obj: Json) -> None:
        body, meta = {field: value for field, value in obj.items() if field != "status"}, obj["metadata"]
        answer = await self._client.create(_resource(obj), body)
        if (waited_for := self._uids.get((obj["kind"], meta["name"]))) is not None:
            waited_for.set_result(answer["metadata"]["uid"])
        if obj["kind"] == "Pod" and obj["spec"].get("schedulerName") != KUBE_SCHEDULER:
            await self._client.bind(meta["namespace"], meta["name"], self._nodes[number % len(self._nodes)])

    async def _tell(self, obj: Json) -> None:
        meta, patch = obj["metadata"], {"status": obj["status"]}
        await self._client.patch(_resource(obj), meta["name"], patch, meta["namespace"], subresource="status")

    async def _delete(self, obj: Json) -> None:
        meta, kind = obj["metadata"], _resource(obj)
        await self._client.delete(kind, meta["name"], meta["namespace"])
        if meta.get("finalizers"):
            await self._client.patch(kind, meta["name"], {"metadata": {"finalizers": None}}, meta["namespace"])

    async def _all(self, work: Iterator[Awaitable[None]]) -> None:
        async def in_turn(request: Awaitable[None]) -> None:
            async with self._turns:
                await request

        async with asyncio.TaskGroup() as group:
            for request in work:
                group.create_task(in_turn(request))


def _resource(obj: Json) -> Any:
    return next(kind.RESOURCE for kind in KINDS if kind.RESOURCE.kind == obj["kind"])


def _owners(obj: Json) -> list[Json]:
    return list(obj["metadata"].get("ownerReferences", ()))


def _owner(reference: Json) -> tuple[str, str]:
    return reference["kind"], reference["name"]


def systems_of(order: Json) -> list[list[Json]]:
    """The objects of every system that an order asks for: several sets, or one set of several replicas."""
    objects = unavoidable(order["set"], promised=order.get("promised", False), scheduler=order.get("scheduler", ""))
    old, new, count = order["rename"], order["to"], order["count"]
    of_all: list[Json] = []
    if old != order["set"]["metadata"]["name"]:
        of_all = [obj | {"spec": obj["spec"] | {"replicas": count}} for obj in objects if obj["kind"] == "PodCliqueSet"]
        objects = [obj for obj in objects if obj["kind"] != "PodCliqueSet"]
    return [of_all, *(numbered(objects, old, new.replace(NUMBER, str(n)), n) for n in range(count))]


async def main(kubeconfig: str) -> None:
    loop = asyncio.get_running_loop()
    async with HttpClient(load_config(kubeconfig), user_agent="bare-client", max_writes=IN_FLIGHT) as client:
        baseline = Baseline(client)
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = json.loads(line)

            async def when_ordered(say: str) -> None:
                print(say, flush=True)
                await loop.run_in_executor(None, sys.stdin.readline)

            match order["do"]:
                case "make":
                    systems = systems_of(order)
                    await when_ordered("planned")
                    await baseline.make(systems)
                case "replace":
                    await baseline.fill(systems_of(order))
                    await when_ordered("planned")
                    await baseline.replace()
                case "bind":
                    await baseline.bind(order["namespace"], order["places"], order["gang"])
                case _:
                    await baseline.remove()
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
