"""The `Client` of `grove.kube.client` over HTTP: aiohttp underneath, msgspec on both ends, typed errors.

What it adds to plain requests: safe retries (see `_Retry`), a bound on writes in flight, a rate if asked for, and
counts by verb. A guard holds writes back once leadership is in doubt. Cost, measured by `make bench`: about a quarter
of a millisecond of CPU a request over TLS, most of it TLS and aiohttp.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import structlog
from yarl import URL

from grove.api.meta import Json, Object, Resource
from grove.kube import wire
from grove.kube.client import Client, Page, Patch, Propagation, WatchEvent
from grove.kube.connection import ClusterConfig
from grove.kube.errors import (
    ConnectionLost,
    KubeError,
    NotFound,
    NotLeader,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from grove.kube.rate import Rate
from grove.kube.transport import Answer, Transport

T = TypeVar("T", bound=Object)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

ATTEMPTS = 5
BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0
MAX_RETRY_AFTER_S = 30.0
WATCH_LIFE_S = (300.0, 600.0)
"""How long the server keeps a watch; spread so that the watches of a process do not end together."""
LOG_SILENCE_S = 24 * 3600.0
"""A log that is followed may say nothing for a day."""
WATCH_GRACE_S = 30.0
"""A watch that is silent for this long after the server should have ended it is dead."""

log = structlog.get_logger(__name__)


class _Retry(Enum):
    """When the same request may be sent again."""

    ALWAYS = "asking twice is asking once: reads, merge patches without a version, deletes"
    UNSENT = "only when the server surely did nothing: no connection, or 429"
    NEVER = "the caller takes the first answer"


class HttpClient:
    """A connection pool to one API server. Made anywhere, used on one event loop; `close` it or use `async with`."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str = "grove",
        max_writes: int = 64,
        attempts: int = ATTEMPTS,
        timeout_s: float = 30.0,
        write_guard: Callable[[], bool] | None = None,
        rng: random.Random | None = None,
        rate: Rate | None = None,
    ) -> None:
        self.config = config
        self.calls: Counter[tuple[str, str]] = Counter()
        """Requests sent, by (verb, plural or plural/subresource); retries count."""
        self.write_guard = write_guard
        self._attempts = attempts
        self._writes, self._rate = asyncio.Semaphore(max_writes), rate
        self._rng = rng or random.Random(random.getrandbits(64))
        self._transport = Transport(config, user_agent=user_agent, timeout_s=timeout_s, pool=max_writes + 64)

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # Reading

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        res = wire.resource_of(kind)
        answer = await self._read("get", res, self._url(res, namespace, name))
        return wire.codec_of(kind).object(answer.body)

    async def list(
        self,
        kind: Any,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        next_page: str = "",
        resource_version: str = "",
    ) -> Page[Any]:
        res = wire.resource_of(kind)
        query: dict[str, str] = _selectors(labels, fields)
        if limit:
            query["limit"] = str(limit)
        if next_page:
            query["continue"] = next_page
        elif resource_version:
            query["resourceVersion"] = resource_version
        answer = await self._read("list", res, self._url(res, namespace, query=query))
        return wire.codec_of(kind).page(answer.body)

    async def watch(
        self,
        kind: Any,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        initial_events: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        res = wire.resource_of(kind)
        life = self._rng.uniform(*WATCH_LIFE_S) if timeout_s is None else timeout_s
        query = _selectors(labels, fields)
        query.update(watch="true", allowWatchBookmarks="true", timeoutSeconds=str(max(1, round(life))))
        if resource_version:
            query["resourceVersion"] = resource_version
        if initial_events:
            query.update(sendInitialEvents="true", resourceVersionMatch="NotOlderThan")
        url = self._url(res, namespace, query=query)
        reader = wire.EventReader(wire.codec_of(kind))
        counted = partial(self._count, "watch", res.plural)
        async with aclosing(self._transport.stream(url, counted, silence_s=life + WATCH_GRACE_S)) as chunks:
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    yield event

    async def log_lines(self, namespace: str, pod: str, query: dict[str, str]) -> AsyncGenerator[str, None]:
        """The lines of a container's log; with `follow` in the query as they are written, for as long as they come."""
        url = self._url(_PODS, namespace, pod, "log", query=query)
        rest, counted = b"", partial(self._count, "get", "pods/log")
        async with aclosing(self._transport.stream(url, counted, silence_s=LOG_SILENCE_S)) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")

    async def pod_page(self, namespace: str, pod: str, port: int, path: str) -> str:
        """A page that a pod serves, through the API server. Needs the right to `get` pods/proxy."""
        url = self._url(_PODS, namespace, f"{pod}:{port}", f"proxy/{path}")
        answer = await self._send("get", "pods/proxy", "GET", url, None, "", _Retry.ALWAYS)
        return bytes(answer.body).decode(errors="replace")

    async def serves(self, kind: Any) -> bool:
        res = wire.resource_of(kind)
        try:
            answer = await self._read("discover", res, self._transport.url(res.base_path))
        except NotFound:
            return False
        resources = wire.codec_of(_ANY).object(answer.body).get("resources") or ()
        # Not remembered: a CRD may be installed or uninstalled at any moment.
        return any(resource.get("name") == res.plural and resource.get("kind") == res.kind for resource in resources)

    async def server_version(self) -> str:
        """The server's own version, like `v1.36.3`; any caller may ask."""
        answer = await self._send("version", "version", "GET", self._transport.url("/version"), None, "", _Retry.ALWAYS)
        return str(wire.codec_of(_ANY).object(answer.body).get("gitVersion", ""))

    # Writing

    async def create(self, kind: Any, obj: Json, *, subresource: str = "", dry_run: bool = False) -> Any:
        res = wire.resource_of(kind)
        meta = obj.get("metadata", {})
        name = meta.get("name", "") if subresource else ""
        url = self._url(res, meta.get("namespace", ""), name, subresource, query=_dry(dry_run))
        body = wire.encode({"apiVersion": res.api_version, "kind": res.kind, **obj})
        answer = await self._write("create", res, "POST", url, body, JSON, _Retry.UNSENT, subresource)
        return wire.codec_of(kind).object(answer.body)

    async def patch(
        self, kind: Any, name: str, patch: Patch, namespace: str = "", *, subresource: str = "", dry_run: bool = False
    ) -> Any:
        res = wire.resource_of(kind)
        if isinstance(patch, dict):
            # Sent twice, a patch with a version would answer Conflict to its own first success.
            versioned = "resourceVersion" in (patch.get("metadata") or {})
            content, retry = MERGE_PATCH, _Retry.UNSENT if versioned else _Retry.ALWAYS
        else:
            content, retry = JSON_PATCH, _Retry.UNSENT
        url = self._url(res, namespace, name, subresource, query=_dry(dry_run))
        answer = await self._write("patch", res, "PATCH", url, wire.encode(patch), content, retry, subresource)
        return wire.codec_of(kind).object(answer.body)

    async def apply(self, kind: Resource, obj: Json, *, field_manager: str, force: bool = True) -> Json:
        meta = obj["metadata"]
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        url = self._url(kind, meta.get("namespace", ""), meta["name"], query=query)
        body = wire.encode({"apiVersion": kind.api_version, "kind": kind.kind, **obj})
        answer = await self._write("apply", kind, "PATCH", url, body, APPLY_PATCH, _Retry.ALWAYS)
        applied: Json = wire.codec_of(kind).object(answer.body)
        return applied

    async def delete(
        self,
        kind: Any,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        grace_period_s: int | None = None,
    ) -> None:
        res = wire.resource_of(kind)
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
        if preconditions:
            options["preconditions"] = preconditions
        url = self._url(res, namespace, name)
        await self._write("delete", res, "DELETE", url, wire.encode(options), JSON, _Retry.ALWAYS)

    async def delete_collection(
        self,
        kind: Any,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: Propagation = "Background",
    ) -> None:
        res = wire.resource_of(kind)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        url = self._url(res, namespace, query=_selectors(labels, fields))
        await self._write("deletecollection", res, "DELETE", url, wire.encode(options), JSON, _Retry.ALWAYS)

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str = "") -> None:
        meta = {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {})
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = wire.encode({"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target})
        url = self._url(_PODS, namespace, pod, "binding")
        await self._write("create", _PODS, "POST", url, body, JSON, _Retry.UNSENT, "binding")

    async def evict(self, namespace: str, pod: str, *, uid: str = "", dry_run: bool = False) -> None:
        eviction: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        options: Json = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if dry_run:
            options["dryRun"] = ["All"]
        if options:
            eviction["deleteOptions"] = options
        url = self._url(_PODS, namespace, pod, "eviction")
        # A disruption budget says no with 429 too: an answer, not a busy server. Who evicts decides when to ask again.
        await self._write("create", _PODS, "POST", url, wire.encode(eviction), JSON, _Retry.NEVER, "eviction")

    # Sending

    def _url(
        self,
        res: Resource,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        query: dict[str, str] | None = None,
    ) -> URL:
        path = res.path(wire.path_part("namespace", namespace), wire.path_part("name", name), subresource)
        return self._transport.url(f"{path}?{urlencode(query, quote_via=quote)}" if query else path)

    async def _read(self, verb: str, res: Resource, url: URL) -> Answer:
        return await self._send(verb, res.plural, "GET", url, None, "", _Retry.ALWAYS)

    async def _write(
        self,
        verb: str,
        res: Resource,
        method: str,
        url: URL,
        body: bytes,
        content: str,
        retry: _Retry,
        subresource: str = "",
    ) -> Answer:
        what = f"{res.plural}/{subresource}" if subresource else res.plural
        async with self._writes:
            return await self._send(verb, what, method, url, body, content, retry)

    async def _send(
        self, verb: str, what: str, method: str, url: URL, body: bytes | None, content: str, retry: _Retry
    ) -> Answer:
        maybe_done = False
        attempt = 0

        def leaving() -> None:
            """Asked when nothing is left to wait for: a turn or a new token may take longer than the lease lasts."""
            if body is not None and self.write_guard is not None and not self.write_guard():
                raise NotLeader(f"{verb} {what} held back: this process may not be the leader any more")
            self._count(verb, what)

        while True:
            attempt += 1
            if self._rate is not None:
                await self._rate.turn()
            try:
                return await self._transport.send(method, url, body, content, leaving)
            except NotFound:
                if maybe_done and method == "DELETE":
                    return Answer(200, b"{}")  # our own first try did it, only its answer was lost
                raise
            except (ConnectionLost, TooManyRequests, Unavailable) as err:
                unsent = isinstance(err, Unreachable | TooManyRequests)
                allowed = retry is _Retry.ALWAYS or (retry is _Retry.UNSENT and unsent)
                if not allowed or attempt >= self._attempts:
                    raise
                maybe_done = maybe_done or not unsent
                delay = self._delay(attempt, err)
                log.debug("request sent again", verb=verb, what=what, attempt=attempt, delay_s=delay, error=str(err))
            await asyncio.sleep(delay)

    def _count(self, verb: str, what: str) -> None:
        self.calls[verb, what] += 1

    def _delay(self, attempt: int, err: KubeError) -> float:
        backoff = min(MAX_BACKOFF_S, BACKOFF_S * 2.0 ** (attempt - 1)) * self._rng.uniform(0.5, 1.5)
        asked = getattr(err, "retry_after_s", None)
        if asked is None:
            return backoff
        # Spread over the quarter second after the moment the server named, or all its clients come back as one.
        return min(float(asked), MAX_RETRY_AFTER_S) + self._rng.uniform(0.0, 0.25)


if TYPE_CHECKING:
    _speaks_the_protocol: type[Client] = HttpClient

_ANY = Resource("", "v1", "APIResourceList", "", namespaced=False)
_PODS = Resource("", "v1", "Pod", "pods")


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}


def _dry(dry_run: bool) -> dict[str, str] | None:
    return {"dryRun": "All"} if dry_run else None
