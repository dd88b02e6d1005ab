"""`custom.metrics.k8s.io` and `external.metrics.k8s.io` over HTTPS, behind the aggregator.

Every request is authenticated and authorized first. A metric without a recent value is NotFound, never zero: the HPA
controller then leaves the replicas as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
import structlog
from aiohttp import web

from grove.api import selector
from grove.api.meta import Json
from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import KubeError
from grove.metrics import wire
from grove.metrics.access import Aggregator, Ask, User
from grove.metrics.readings import POD, Readings, Subject, Value

log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MayAsk(Protocol):
    async def may(self, user: User, ask: Ask) -> bool: ...


class Names(Protocol):
    """The metrics that are looked for; asking for another makes it one of them."""

    def listed(self) -> list[str]: ...

    def asked(self, metric: str) -> None: ...


class MetricsApi:
    """The two APIs as an aiohttp application."""

    def __init__(
        self,
        readings: Readings,
        names: Names,
        aggregator: Callable[[], Aggregator],
        authorizer: MayAsk,
        clock: Clock = SYSTEM,
    ) -> None:
        self._readings, self._names, self._aggregator, self._authorizer = readings, names, aggregator, authorizer
        self._clock = clock

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=64 * 1024)
        for path, body in wire.OPENAPI.items():
            app.router.add_get(path, _fixed(body))
        app.router.add_get("/apis", self._all_groups)
        for api, versions in wire.VERSIONS.items():
            app.router.add_get(f"/apis/{api}", self._group)
            for version in versions:
                app.router.add_get(f"/apis/{api}/{version}", self._resources)
        objects = f"/apis/{wire.CUSTOM}/{{version}}/namespaces/{{namespace}}/{{resource}}/{{name}}/{{metric}}"
        app.router.add_get(objects, self._of_objects)
        app.router.add_get(f"/apis/{wire.EXTERNAL}/v1beta1/namespaces/{{namespace}}/{{metric}}", self._of_selection)
        return app

    # Who may ask

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        user = self._aggregator().find_user(certificate, list(request.headers.items()))
        if user is None:
            return _refused(401, "Unauthorized", "only the API server's aggregator is served")
        if request.match_info.http_exception is not None:
            return _refused(404, "NotFound", "the server could not find the requested resource")
        ask = _ask(request)
        try:
            allowed = await self._authorizer.may(user, ask)
        except KubeError as error:
            log.warning("rights could not be looked up", error=str(error))
            return _refused(503, "ServiceUnavailable", "the API server did not say whether this is allowed")
        if not allowed:
            what = ask.path or f"{ask.resource}.{ask.api} {ask.name}/{ask.subresource} in {ask.namespace}"
            return _refused(403, "Forbidden", f"user {user.name!r} may not get {what}")
        return await handler(request)

    # What is served

    async def _all_groups(self, request: web.Request) -> web.Response:
        if "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""):
            # The aggregator would rather have everything at once. So refused it asks version by version, and puts names
            # with a slash in their place itself.
            return _refused(406, "NotAcceptable", "discovery is served version by version")
        return _json(wire.groups())

    async def _group(self, request: web.Request) -> web.Response:
        return _json(wire.group(request.path.rsplit("/", 1)[1]))

    async def _resources(self, request: web.Request) -> web.Response:
        api, version = request.path.split("/")[2:4]
        return _json(wire.resources(api, version, self._names.listed()))

    async def _of_objects(self, request: web.Request) -> web.Response:
        facts = request.match_info
        version, namespace, name, metric = facts["version"], facts["namespace"], facts["name"], facts["metric"]
        kind = wire.RESOURCES.get(facts["resource"])
        if version not in wire.VERSIONS[wire.CUSTOM] or kind is None:
            return _refused(404, "NotFound", f"there are no metrics of {facts['resource']}")
        self._names.asked(metric)
        try:
            chosen = self._chosen(namespace, kind, name, request.query.get("labelSelector", ""))
        except selector.InvalidSelector as error:
            return _refused(400, "BadRequest", str(error))
        now = asyncio.get_running_loop().time()
        values = ((subject, self._readings.find(subject, metric, now)) for subject in chosen)
        items = [
            wire.Item(kind, namespace, subject.name, value.number, self._when(value, now))
            for subject, value in values
            if value is not None
        ]
        if not items and name != "*":
            return _absent(metric, f"{facts['resource']} {name}")
        return _json(wire.metric_values(version, metric, items))

    def _chosen(self, namespace: str, kind: str, name: str, text: str) -> list[Subject]:
        if name != "*":
            return [Subject(namespace, kind, name)]
        if kind == POD:
            wanted = selector.parse(text)
            return [Subject(namespace, POD, pod) for pod in self._readings.selected(namespace, wanted)]
        if text:
            raise selector.InvalidSelector("only pods can be selected by labels; owners are asked for by name")
        return [
            subject for subject in self._readings.subjects() if subject.namespace == namespace and subject.kind == kind
        ]

    async def _of_selection(self, request: web.Request) -> web.Response:
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        self._names.asked(metric)
        try:
            wanted = selector.parse(request.query.get("labelSelector", ""))
        except selector.InvalidSelector as error:
            return _refused(400, "BadRequest", str(error))
        now = asyncio.get_running_loop().time()
        value: Value | None = self._readings.find_selected(namespace, wanted, metric, now)
        if value is None:
            return _absent(metric, f"pods of {namespace} that were selected")
        return _json(wire.external_values(metric, value.number, self._when(value, now)))

    def _when(self, value: Value, now: float) -> datetime:
        """The wall time of a value, which was read on the loop's clock."""
        return self._clock.now() - timedelta(seconds=now - value.read_at)


def _fixed(body: Json) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return _json(body)

    return answer


def _ask(request: web.Request) -> Ask:
    facts = request.match_info
    if "metric" not in facts:
        return Ask(path=request.path)
    api, version = request.path.split("/")[2:4]
    if "resource" in facts:
        return Ask("", api, version, facts["namespace"], facts["resource"], facts["name"], facts["metric"])
    return Ask("", api, version, facts["namespace"], facts["metric"])


def _json(body: Json, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def _refused(code: int, reason: str, message: str) -> web.Response:
    return _json(wire.failure(code, reason, message), code)


def _absent(metric: str, about: str) -> web.Response:
    return _refused(404, "NotFound", f"no pod has reported {metric} of {about} lately")
