"""Keeps a `Store` equal to the cluster: lists once, then follows the changes for as long as it runs.

A dropped connection is resumed where it ended, without a list; only 410 Gone (the server no longer has that history)
lists again. Works over any `Client` and uses the event loop's clock only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from grove.api.meta import Key, Object
from grove.kube.client import Client, WatchEvent
from grove.kube.errors import (
    ApiError,
    BadRequest,
    ConfigError,
    ConnectionLost,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from grove.kube.store import Store, revision_of

T = TypeVar("T", bound=Object)

PAGE = 500
STALL_S = 120.0
"""After this time without data the informer replaces the connection.

The connection may be dead, or nothing changes. The API server sends a bookmark each minute, but none while nothing is
newer than the start of the watch.
"""
BACKOFF_S, MAX_BACKOFF_S = 0.1, 2.0
MAX_RETRY_AFTER_S = MAX_HOPELESS_S = 30.0
PATIENCE = 5
"""How many lists in a row may be older than the store (a lagging server) until we believe the cluster went back."""
HOPELESS = (NotFound, Forbidden, Unauthorized, ConfigError)
"""Answers that retrying does not change by itself: they end the wait for the first list."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


class _Silence(Exception):
    """A watch said nothing for `STALL_S`."""


class StaleList(KubeError):
    """A list came from a server that lags behind what we have seen."""


class Informer(Generic[T]):
    """Follows one kind. `run` ends only when cancelled; trouble is logged once a bout and waited out."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        store: Store[T],
        selection: Selection = Selection(),
        *,
        stall_s: float = STALL_S,
        page: int = PAGE,
        rng: random.Random | None = None,
    ) -> None:
        self.kind, self.store, self.selection, self.synced = kind, store, selection, asyncio.Event()
        self.error: KubeError | None = None
        """Why the cluster cannot be followed right now; None while it can."""
        self.lists = 0
        self._client, self._changed = client, asyncio.Event()
        self._stall_s, self._page, self._rng = stall_s, page, rng or random.Random(random.getrandbits(64))
        self._streams_lists = True
        self._resume_at = ""
        self._failures = 0
        self._stale_lists = 0
        self._too_new = 0
        self._log = structlog.get_logger(__name__).bind(kind=kind.RESOURCE.kind)

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
                continue
            except Gone as err:
                self._log.info("the server has no history from our revision, listing again", error=str(err))
                self._resume_at, self._failures = "", 0  # it does answer: no reason to stay away any longer
            except KubeError as err:
                self._troubled(err)
            except Exception:
                self._log.exception("watch failed")
            self._failures += 1
            await asyncio.sleep(self._delay())

    def forget_place(self) -> None:
        """Has the next `run` list again, and `synced` wait for that; what is in the store stays until then."""
        self._resume_at, self._failures, self.error = "", 0, None
        self.synced.clear()

    async def changed(self) -> None:
        """Returns at the next news about this informer itself: synced, or in trouble."""
        self._changed.clear()
        await self._changed.wait()

    async def _follow(self) -> None:
        """One connection's worth: a list when we have no place in history, then events until the stream ends."""
        if not self._resume_at and not self._streams_lists:
            await self._list()
        try:
            if self._resume_at:
                async with self._watch(resource_version=self._resume_at) as events:
                    await self._consume(events)
                return
            async with self._watch(initial_events=True) as events:
                await self._take_initial(events)
                await self._consume(events)
        except _Silence:
            if not self._resume_at:
                raise ConnectionLost(f"no list of {self.kind.RESOURCE} in {self._stall_s:g} s") from None
            self._log.debug("quiet watch connected again")
        except (BadRequest, Invalid):
            if self._resume_at:
                raise
            self._log.debug("streamed lists are not served, listing by pages")
            self._streams_lists = False

    @asynccontextmanager
    async def _watch(
        self, *, resource_version: str = "", initial_events: bool = False
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        chosen = self.selection
        stream = self._client.watch(
            self.kind,
            chosen.namespace,
            labels=chosen.labels,
            fields=chosen.fields,
            resource_version=resource_version,
            initial_events=initial_events,
        )
        try:
            async with asyncio.timeout(self._stall_s) as limit, aclosing(self._alive(stream, limit)) as events:
                yield events
        except TimeoutError as err:
            raise _Silence from err
        finally:
            aclose = getattr(stream, "aclose", None)
            if aclose is not None:
                await aclose()

    async def _alive(
        self, stream: AsyncIterator[WatchEvent[T]], limit: asyncio.Timeout
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """The same events; each moves the stall limit, but the timer is touched a few times a limit only."""
        clock, step = asyncio.get_running_loop().time, self._stall_s / 8
        next_touch = clock() + step
        async for event in stream:
            now = clock()
            if now >= next_touch:
                limit.reschedule(now + self._stall_s)
                next_touch = now + step
            yield event

    async def _consume(self, events: AsyncIterator[WatchEvent[T]]) -> None:
        put, remove = self.store.put, self.store.remove
        received = False
        async for event in events:
            if not received:
                received = True
                self._recovered()
            obj = event.object
            if obj is not None:
                if event.type == "DELETED":
                    remove(obj)
                else:
                    put(obj)
            elif event.resource_version:
                self.store.passed(revision_of(event.resource_version))
            if event.resource_version:
                self._resume_at = event.resource_version
        if not received:
            raise ConnectionLost(f"the watch of {self.kind.RESOURCE} ended without a word")

    async def _take_initial(self, events: AsyncIterator[WatchEvent[T]]) -> None:
        """Gathers a streamed list up to the bookmark that ends it."""
        objects: dict[Key, T] = {}
        async for event in events:
            if event.initial_done:
                await self._take_over(objects, event.resource_version)
                return
            obj = event.object
            if obj is None:
                continue
            if event.type == "DELETED":
                objects.pop(obj.metadata.key, None)
            else:
                objects[obj.metadata.key] = obj
        raise ConnectionLost(f"the list of {self.kind.RESOURCE} was cut off")

    async def _list(self) -> None:
        chosen, objects, more = self.selection, dict[Key, T](), ""
        while True:
            page = await self._client.list(
                self.kind,
                chosen.namespace,
                labels=chosen.labels,
                fields=chosen.fields,
                limit=self._page,
                next_page=more,
            )
            for obj in page.items:
                objects[obj.metadata.key] = obj
            more = page.next_page
            if not more:
                break
        await self._take_over(objects, page.resource_version)

    async def _take_over(self, objects: dict[Key, T], resource_version: str) -> None:
        revision = revision_of(resource_version)
        if 0 < revision < self.store.revision:
            # We ask for the newest state, so this is a server that lags. If it never catches up, the cluster was
            # restored from a backup, and what it says is the truth now.
            self._stale_lists += 1
            if self._stale_lists <= PATIENCE:
                raise StaleList(f"a list of {self.kind.RESOURCE} at {revision} is older than our {self.store.revision}")
            self._log.warning("the cluster went back in time, starting over", ours=self.store.revision, its=revision)
        self._stale_lists = 0
        for _ in self.store.take_over(objects, revision):
            await asyncio.sleep(0)
        self.lists += 1
        self._resume_at = resource_version
        self._recovered()
        self.synced.set()
        self._changed.set()

    def _recovered(self) -> None:
        if self.error is not None:
            self._log.info("watch is back", after_failures=self._failures)
        self.error, self._failures, self._too_new = None, 0, 0

    def _troubled(self, err: KubeError) -> None:
        if isinstance(err, Unavailable) and _asks_for_too_new(err):
            self._too_new += 1
            if self._too_new >= PATIENCE:
                self._resume_at = ""
        if self.error is None or type(self.error) is not type(err):
            self._log.info("watch interrupted, trying again", error=str(err))
        self.error = _explained(err, self.kind)
        self._changed.set()

    def _delay(self) -> float:
        longest = MAX_HOPELESS_S if isinstance(self.error, HOPELESS) else MAX_BACKOFF_S
        backoff = min(longest, BACKOFF_S * 2.0 ** min(self._failures - 1, 16)) * self._rng.uniform(0.5, 1.5)
        asked = getattr(self.error, "retry_after_s", None) or 0.0
        return max(backoff, min(asked, MAX_RETRY_AFTER_S))


def _asks_for_too_new(err: ApiError) -> bool:
    causes = err.details.get("causes") or ()
    return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes)


def _explained(err: KubeError, kind: type[Object]) -> KubeError:
    """The same error, with words for the person who must act where the server's own say little."""
    if isinstance(err, NotFound):
        message = f"the server does not know {kind.RESOURCE} ({kind.RESOURCE.api_version}): is its CRD installed?"
        return NotFound(message, code=err.code, reason=err.reason, details=err.details)
    return err
