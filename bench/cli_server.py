"""A server for the command line's bench, in a process of its own: a stored cluster in the API server's format.

    python -m bench.cli_server FILE      prints its port

FILE holds kind after kind as JSON: `{"/api/v1/pods": [objects]}`. Lists with labels, names and pages, single objects,
streamed lists and discovery are answered, and everybody may see everything; nothing can be written, nothing changes.
A scale is answered with its object.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

REVISION = "1000"
ASKED = "/asked"
"""Answers with what was asked for since the last time."""
_ONE_NAMESPACE = re.compile(r"/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?$")


class Stored:
    """The objects of one kind, encoded once."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self.rows = [(obj["metadata"], json.dumps(obj, separators=(",", ":")).encode()) for obj in objects]

    def found(self, namespace: str, query: Any) -> list[bytes]:
        wanted = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if "=" in part)
        fields = query.get("fieldSelector", "")
        name = fields.removeprefix("metadata.name=") if fields.startswith("metadata.name=") else ""
        return [
            body
            for meta, body in self.rows
            if (not namespace or meta.get("namespace") == namespace)
            and (not name or meta["name"] == name)
            and (not wanted or wanted.items() <= (meta.get("labels") or {}).items())
        ]


class Cluster:
    def __init__(self, kinds: dict[str, list[dict[str, Any]]]) -> None:
        self._kinds = {path: Stored(objects) for path, objects in kinds.items()}
        self._asked: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, namespace, name = request.path.removesuffix("/scale"), "", ""
        if path == ASKED:
            asked, self._asked = self._asked, []
            return web.json_response(asked)
        if request.method == "GET":
            self._asked.append(request.path_qs)
        if path == "/version":
            return web.json_response({"gitVersion": "v1.36.3"})
        if path.endswith("/selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}})
        if match := _ONE_NAMESPACE.search(path):
            namespace, plural, name = match[1], match[2], match[3] or ""
            path = f"{path[: match.start()]}/{plural}"
        if path not in self._kinds and (base := path.rsplit("/", 1))[0] in self._kinds:
            path, name = base
        kind = self._kinds.get(path)
        if kind is None:
            return self._discovery(path)
        if name:
            bodies = [
                body for meta, body in kind.rows if meta["name"] == name and meta.get("namespace", "") == namespace
            ]
            return web.Response(body=bodies[0], content_type="application/json") if bodies else _missing(name)
        bodies = kind.found(namespace, request.query)
        if request.query.get("watch") == "true":
            return await self._stream(request, bodies)
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 0)
        page = bodies[start : start + limit] if limit else bodies
        more = str(start + limit) if limit and start + limit < len(bodies) else ""
        head = json.dumps({"resourceVersion": REVISION, "continue": more})
        return web.Response(
            body=b'{"metadata":' + head.encode() + b',"items":[' + b",".join(page) + b"]}",
            content_type="application/json",
        )

    def _discovery(self, base: str) -> web.Response:
        inside = [path for path in self._kinds if path.rsplit("/", 1)[0] == base]
        if not inside:
            return _missing("")
        kinds = {"podcliquesets": "PodCliqueSet", "podgangs": "PodGang"}
        names = [path.rsplit("/", 1)[1] for path in inside]
        return web.json_response({"resources": [{"name": name, "kind": kinds.get(name, name)} for name in names]})

    async def _stream(self, request: web.Request, bodies: list[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for start in range(0, len(bodies), 64):
            await response.write(
                b"".join(b'{"type":"ADDED","object":%s}\n' % body for body in bodies[start : start + 64])
            )
        meta = {"resourceVersion": REVISION, "annotations": {"k8s.io/initial-events-end": "true"}}
        await response.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}).encode() + b"\n")
        await asyncio.Event().wait()  # until the client goes away
        return response


def _missing(name: str) -> web.Response:
    details = {"name": name} if name else {}
    status = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": details}
    return web.json_response({**status, "message": f"{name} not found"}, status=404)


async def main(file: Path) -> None:
    cluster = Cluster(json.loads(file.read_text()))  # noqa: ASYNC240  nothing else happens yet
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
