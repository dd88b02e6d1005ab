"""Faults of the simulated cluster: refused, lost and delayed calls, broken and late watches, stale lists.

`Faults` returns clients that fail at given rates, from one seeded random source. A test can stop the faults and then
look at the final state. `grove.sim.crash` has crashes of a whole process.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from grove.api.meta import Json, Resource
from grove.kube.client import Page, Patch, Propagation, WatchEvent
from grove.kube.errors import ConnectionLost, Gone, TooManyRequests, Unavailable
from grove.sim import refusals
from grove.sim.client import SimClient, shown
from grove.sim.kinds import POD

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How bad it is: probabilities per call, per watch start or per event, and the longest delays in seconds."""

    conflict: float = 0.0
    """A patch or binding is refused with 409 though nothing is wrong with it."""
    throttled: float = 0.0
    """429, and nothing happened."""
    failed: float = 0.0
    """500, and nothing happened."""
    unsent: float = 0.0
    """The connection broke before the server saw the request."""
    lost: float = 0.0
    """The connection broke after the server did what was asked: the caller cannot know."""
    delay_s: float = 0.0
    """A call takes up to this much longer on its way there and again on its way back."""
    watch_drop: float = 0.0
    """After an event the stream ends, in good order or with an error."""
    watch_expire: float = 0.0
    """A watch that resumes from a version receives the error that the version is too old."""
    watch_delay_s: float = 0.0
    """An event arrives up to this much later; the order of a stream is kept."""
    stale: float = 0.0
    """A list that accepts any version is answered from the past."""
    stale_revisions: int = 50
    """How far back that past may lie, in writes to the cluster."""


CALM = FaultRates()
ROUGH = FaultRates(
    conflict=0.05,
    throttled=0.03,
    failed=0.03,
    unsent=0.02,
    lost=0.02,
    delay_s=0.2,
    watch_drop=0.02,
    watch_expire=0.05,
    watch_delay_s=1.0,
    stale=0.2,
)


class Faults:
    """The faults of all clients that it hands out; change `rates` at any time, or `stop` it."""

    def __init__(self, rates: FaultRates = ROUGH, *, seed: int = 0) -> None:
        self.rates, self.rng = rates, random.Random(seed)

    def client(self, inner: SimClient) -> FaultyClient:
        return FaultyClient(inner, self)

    def stop(self) -> None:
        self.rates = CALM

    def strikes(self, rate: float) -> bool:
        return rate > 0 and self.rng.random() < rate

    async def linger(self, at_most_s: float) -> None:
        if at_most_s > 0:
            await asyncio.sleep(self.rng.uniform(0, at_most_s))


class FaultyClient:
    """A `SimClient` that fails at the rates of its `Faults`."""

    def __init__(self, inner: SimClient, faults: Faults) -> None:
        self.inner, self._faults = inner, faults

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        return await self._call(lambda: self.inner.get(kind, name, namespace))

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
        if resource_version == "0" and self._faults.strikes(self._faults.rates.stale):
            return await self._call(lambda: self._stale(kind, namespace, labels, fields))
        return await self._call(
            lambda: self.inner.list(
                kind,
                namespace,
                labels=labels,
                fields=fields,
                limit=limit,
                next_page=next_page,
                resource_version=resource_version,
            )
        )

    async def _stale(self, kind: Any, namespace: str, labels: str, fields: str) -> Page[Any]:
        server = self.inner.server
        resource = kind if isinstance(kind, Resource) else kind.RESOURCE
        oldest = server.store.collection(resource).compacted
        back = self._faults.rng.randint(0, self._faults.rates.stale_revisions)
        at = max(oldest, server.store.revision - back)
        listing = server.list(resource, namespace, labels=labels, fields=fields, at=at)
        return Page([shown(version, kind) for version in listing.versions], str(listing.revision))

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
    ) -> AsyncIterator[WatchEvent[Any]]:
        await self._before()
        if resource_version not in ("", "0") and self._faults.strikes(self._faults.rates.watch_expire):
            raise Gone(f"too old resource version: {resource_version}", code=410, reason="Expired")
        stream = self.inner.watch(
            kind,
            namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            initial_events=initial_events,
            timeout_s=timeout_s,
        )
        late = _LateStream(stream, self._faults)
        try:
            async for event in late:
                yield event
                if self._faults.strikes(self._faults.rates.watch_drop):
                    if self._faults.rng.random() < 0.5:
                        raise ConnectionLost("the watch broke")
                    return
        finally:
            await late.close()

    async def create(self, kind: Any, obj: Json, *, subresource: str = "", dry_run: bool = False) -> Any:
        return await self._call(lambda: self.inner.create(kind, obj, subresource=subresource, dry_run=dry_run))

    async def patch(
        self, kind: Any, name: str, patch: Patch, namespace: str = "", *, subresource: str = "", dry_run: bool = False
    ) -> Any:
        resource = kind if isinstance(kind, Resource) else kind.RESOURCE
        return await self._call(
            lambda: self.inner.patch(kind, name, patch, namespace, subresource=subresource, dry_run=dry_run),
            contested=(resource, name),
        )

    async def apply(self, kind: Resource, obj: Json, *, field_manager: str, force: bool = True) -> Json:
        return await self._call(lambda: self.inner.apply(kind, obj, field_manager=field_manager, force=force))

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
        await self._call(
            lambda: self.inner.delete(
                kind,
                name,
                namespace,
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
                grace_period_s=grace_period_s,
            )
        )

    async def delete_collection(
        self,
        kind: Any,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: Propagation = "Background",
    ) -> None:
        await self._call(
            lambda: self.inner.delete_collection(kind, namespace, labels=labels, fields=fields, propagation=propagation)
        )

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str = "") -> None:
        await self._call(lambda: self.inner.bind(namespace, pod, node, uid=uid), contested=(POD, pod))

    async def evict(self, namespace: str, pod: str, *, uid: str = "", dry_run: bool = False) -> None:
        await self._call(lambda: self.inner.evict(namespace, pod, uid=uid, dry_run=dry_run))

    async def serves(self, kind: Any) -> bool:
        return await self._call(lambda: self.inner.serves(kind))

    async def close(self) -> None:
        await self.inner.close()

    async def _before(self) -> None:
        faults, rates = self._faults, self._faults.rates
        await faults.linger(rates.delay_s)
        if faults.strikes(rates.unsent):
            raise ConnectionLost("the connection broke before the request was sent")
        if faults.strikes(rates.throttled):
            why = "the server has received too many requests and has asked us to try again later"
            raise TooManyRequests(why, retry_after_s=1.0, code=429, reason="TooManyRequests")
        if faults.strikes(rates.failed):
            raise Unavailable("an error on the server has prevented the request", code=500, reason="InternalError")

    async def _call(self, send: Callable[[], Awaitable[T]], contested: tuple[Resource, str] | None = None) -> T:
        await self._before()
        if contested is not None and self._faults.strikes(self._faults.rates.conflict):
            raise refusals.modified(*contested)
        answer = await send()
        await self._faults.linger(self._faults.rates.delay_s)
        if self._faults.strikes(self._faults.rates.lost):
            raise ConnectionLost("the connection broke before the answer arrived")
        return answer


class _LateStream:
    """Reads a watch at once and hands its events on later, each with its own delay but never out of order.

    A task of its own reads the inner stream. Otherwise a slow reader would look like a late event.
    """

    def __init__(self, stream: AsyncIterator[WatchEvent[Any]], faults: Faults) -> None:
        self._stream, self._faults = stream, faults
        self._due: deque[tuple[float, WatchEvent[Any]]] = deque()
        self._arrived = asyncio.Event()
        self._ended: BaseException | None = None
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="late-watch")

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        try:
            async for event in self._stream:
                delay_s = self._faults.rng.uniform(0, self._faults.rates.watch_delay_s)
                due_s = max(due_s, loop.time() + delay_s)
                self._due.append((due_s, event))
                self._arrived.set()
            self._ended = StopAsyncIteration()
        except Exception as error:
            self._ended = error
        self._arrived.set()

    def __aiter__(self) -> _LateStream:
        return self

    async def __anext__(self) -> WatchEvent[Any]:
        while not self._due:
            if self._ended is not None:
                raise self._ended
            self._arrived.clear()
            await self._arrived.wait()
        due_s, event = self._due.popleft()
        wait_s = due_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return event

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()
