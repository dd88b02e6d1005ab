"""A small API server on loopback, for tests that need the wire: one kind, real watch streams, faults on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from aiohttp import web

from grove.api.meta import Object, Resource
from grove.kube.connection import ClusterConfig
from grove.kube.credentials import Credential, CredentialSource, Fixed

Json = dict[str, Any]


class Thing(Object):
    RESOURCE: ClassVar[Resource] = Resource("test.grove.io", "v1", "Thing", "things")

    data: dict[str, str] = {}


class FakeApi:
    """Holds Things. `faults` are asked before every request; one that returns a response has answered it."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self._snapshots: dict[str, list[tuple[tuple[str, str], Json]]] = {}
        self.revision = 100
        self.history: list[tuple[int, str, Json]] = []
        self.compacted = 0
        self.streams_lists = True
        self.token = ""
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.faults: list[Callable[[web.Request], web.Response | None]] = []
        self.cut_after_bytes: int | None = None
        self.watches: set[asyncio.Queue[tuple[str, Json]]] = set()
        self.silent = False
        self.stuck = 0
        """Watches that fell silent in the middle of an event."""
        self.hangs = False
        self.url = ""

    # What happens in the cluster

    def put(self, name: str, namespace: str = "ns", **data: str) -> Json:
        self.revision += 1
        key = (namespace, name)
        kind = "MODIFIED" if key in self.objects else "ADDED"
        uid = self.objects[key]["metadata"]["uid"] if key in self.objects else f"uid-{self.revision}"
        meta = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(self.revision)}
        meta["managedFields"] = [{"manager": "test"}]
        self.objects[key] = {"apiVersion": "test.grove.io/v1", "kind": "Thing", "metadata": meta, "data": data}
        self._tell(kind, self.objects[key])
        return self.objects[key]

    def delete(self, name: str, namespace: str = "ns") -> None:
        self.revision += 1
        old = self.objects.pop((namespace, name))
        meta = {**old["metadata"], "resourceVersion": str(self.revision)}
        self._tell("DELETED", {**old, "metadata": meta})

    def compact(self) -> None:
        self.compacted = self.revision
        self.history.clear()

    def bookmark(self) -> None:
        self._say_to_all("BOOKMARK", {"kind": "Thing", "metadata": self._meta()})

    def fail_watches(self, code: int, reason: str) -> None:
        status = {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": f"made to: {reason}",
        }
        self._say_to_all("ERROR", status)

    def _meta(self) -> Json:
        return {"resourceVersion": str(self.revision), "creationTimestamp": None}

    def _tell(self, kind: str, obj: Json) -> None:
        self.history.append((self.revision, kind, obj))
        self._say_to_all(kind, obj)

    def _say_to_all(self, kind: str, obj: Json) -> None:
        for queue in self.watches:
            queue.put_nowait((kind, obj))

    # What it answers

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        if self.hangs:
            await asyncio.Event().wait()
        for fault in self.faults:
            answer = fault(request)
            if answer is not None:
                return answer
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return status(401, "Unauthorized")
        if request.query.get("watch"):
            return await self._watch(request)
        name = request.match_info.get("name", "")
        if request.method == "GET" and not name:
            return self._list(request)
        found = self.objects.get((request.match_info.get("namespace", ""), name))
        if request.method == "POST":
            return web.json_response(json.loads(self.bodies[-1]), status=201)
        if found is None:
            return status(404, "NotFound")
        if request.method == "DELETE":
            self.delete(name, request.match_info["namespace"])
        return web.json_response(found)

    def _list(self, request: web.Request) -> web.Response:
        start, _, revision = request.query.get("continue", f"0-{self.revision}").partition("-")
        # All pages are of one moment, as in Kubernetes, whatever happens between two of them.
        every = self._snapshots.setdefault(revision, sorted(self.objects.items()))
        at = int(start)
        limit = int(request.query.get("limit", "0")) or len(every) or 1
        meta = {"resourceVersion": revision}
        if at + limit < len(every):
            meta["continue"] = f"{at + limit}-{revision}"
        items = [obj for _, obj in every[at : at + limit]]
        return web.json_response({"kind": "ThingList", "metadata": meta, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        initial = request.query.get("sendInitialEvents") == "true"
        if initial and not self.streams_lists:
            return status(422, "Invalid")
        since = int(request.query.get("resourceVersion") or 0)
        if not initial and since < self.compacted:
            return status(410, "Expired")
        queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue()
        meta = {**self._meta(), "annotations": {"k8s.io/initial-events-end": "true"}}
        if initial:
            backlog = [("ADDED", obj) for obj in self.objects.values()]
            backlog.append(("BOOKMARK", {"kind": "Thing", "metadata": meta}))
        else:
            backlog = [(kind, obj) for revision, kind, obj in self.history if revision > since]
        for event in backlog:
            queue.put_nowait(event)
        self.watches.add(queue)
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        try:
            while True:
                await self._say(stream, request, *(await queue.get()))
        finally:
            self.watches.discard(queue)

    async def _say(self, stream: web.StreamResponse, request: web.Request, kind: str, obj: Json) -> None:
        if self.silent:
            self.stuck += 1
            await asyncio.Event().wait()
        line = json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"
        if self.cut_after_bytes is not None:
            line, self.cut_after_bytes = line[: self.cut_after_bytes], None
            await stream.write(line)
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError
        await stream.write(line)

    def drop_watches(self) -> None:
        """Cuts every watch's connection as a failing network would."""
        for request in self.requests:
            if request.query.get("watch") and request.transport is not None:
                request.transport.abort()

    def config(self, credentials: CredentialSource | None = None) -> ClusterConfig:
        return ClusterConfig(server=self.url, credentials=credentials or Fixed(Credential(self.token)))

    def count(self, *, watch: bool | None = None, method: str = "GET") -> int:
        chosen = [r for r in self.requests if r.method == method]
        return sum(watch is None or bool(r.query.get("watch")) == watch for r in chosen)


def status(
    code: int, reason: str, message: str = "", headers: dict[str, str] | None = None, **more: Any
) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message or reason, **more}
    return web.json_response(body, status=code, headers=headers)


def fail_times(times: int, response: Callable[[], web.Response]) -> Callable[[web.Request], web.Response | None]:
    """A fault that answers the first `times` requests."""
    left = [times]

    def fault(request: web.Request) -> web.Response | None:
        if left[0] == 0:
            return None
        left[0] -= 1
        return response()

    return fault


@asynccontextmanager
async def serving(api: FakeApi, port: int = 0, ssl_context: Any = None) -> AsyncIterator[FakeApi]:
    app = web.Application()
    base = "/apis/test.grove.io/v1"
    for path in (
        "/things",
        "/namespaces/{namespace}/things",
        "/namespaces/{namespace}/things/{name}",
        "/namespaces/{namespace}/things/{name}/{sub}",
    ):
        app.router.add_route("*", base + path, api.serve)
    app.router.add_route("*", "/{rest:.*}", api.serve)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=ssl_context)
    await site.start()
    port = runner.addresses[0][1]
    api.url = f"{'https' if ssl_context else 'http'}://127.0.0.1:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()
