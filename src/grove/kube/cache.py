"""The cluster as controllers read it: one store a kind, kept up to date, indexed, without asking the server.

    cache = Cache(client)
    cache.on_event(Pod, wake_owner)
    async with cache:
        await cache.wait_synced()
        pods = cache.owned(Pod, by=clique.metadata.uid)

Objects are frozen and may lag behind the cluster, but not behind the writes of this process. `wrote` and `removed`
record those writes in the cache, and a read never shows an older object. Objects never go back in time (see
`grove.kube.store`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from grove.api.meta import Key, Object
from grove.kube.client import Client
from grove.kube.collector import Collector
from grove.kube.errors import ConnectionLost, NotFound
from grove.kube.informer import HOPELESS, PAGE, STALL_S, Informer, Selection
from grove.kube.store import OWNER, Handler, Indexer, Store

T = TypeVar("T", bound=Object)


class Cache:
    """Stores of several kinds. Declare kinds, indexes and handlers, then `start` (or `async with`).

    `tune_gc` is for a process that lives on its cache: it keeps the garbage collector away from it (`kube.collector`).
    """

    def __init__(
        self,
        client: Client,
        *,
        stall_s: float = STALL_S,
        page: int = PAGE,
        tune_gc: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self._client, self._stall_s, self._page = client, stall_s, page
        self._collector, self._rng = Collector() if tune_gc else None, rng
        self._informers: dict[type[Any], Informer[Any]] = {}
        self._tasks: dict[type[Any], asyncio.Task[None]] = {}
        self._started = False

    async def __aenter__(self) -> Cache:
        self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # Declaring

    def add(self, kind: type[T], *, namespace: str = "", labels: str = "", fields: str = "") -> Store[T]:
        """Follows `kind`, or the selected part of it. Asking for the same again is fine, for another part is not."""
        selection = Selection(namespace, labels, fields)
        known = self._informers.get(kind)
        if known is not None:
            if known.selection != selection and selection != Selection():
                raise ValueError(f"{kind.__name__} is followed already, with another selection")
            store: Store[T] = known.store
            return store
        store = Store[T]()
        informer = Informer(self._client, kind, store, selection, stall_s=self._stall_s, page=self._page, rng=self._rng)
        self._informers[kind] = informer
        if self._started:
            self._follow(informer)
        return store

    def on_event(self, kind: type[T], handler: Handler[T]) -> None:
        """Calls `handler(old, new)` for every object there is and for every change; it must not block nor await."""
        self.add(kind).add_handler(handler)

    def __contains__(self, kind: type[Object]) -> bool:
        """True if the cache watches the kind."""
        return kind in self._informers

    def add_index(self, kind: type[T], name: str, indexer: Indexer[T]) -> None:
        self.add(kind).add_index(name, indexer)

    # Reading

    def get(self, kind: type[T], key: Key) -> T | None:
        return self.store(kind).get(key)

    def list(self, kind: type[T], namespace: str | None = None) -> Sequence[T]:
        """All objects of the kind, or of one namespace, in no order a decision may rest on."""
        return self.store(kind).list(namespace)

    def owned(self, kind: type[T], *, by: str) -> Sequence[T]:
        """The objects that name the UID `by` among their owners."""
        return self.store(kind).by_index(OWNER, by)

    def by_index(self, kind: type[T], name: str, value: Hashable) -> Sequence[T]:
        return self.store(kind).by_index(name, value)

    def store(self, kind: type[T]) -> Store[T]:
        store: Store[T] = self._informers[kind].store
        return store

    def informer(self, kind: type[T]) -> Informer[T]:
        return self._informers[kind]

    # Our own writes

    def wrote(self, answer: T, *, echo: bool = False) -> T:
        """Shows the answer to a create or a patch until the watch has come as far; returns it.

        With `echo` the writer is the one controller that acts on the kind: `is_echo` says in its handler that the
        version the watch shows is its own. A kind that is not followed is left alone.
        """
        informer = self._informers.get(type(answer))
        if informer is not None:
            informer.store.wrote(answer, echo=echo)
        return answer

    def removed(self, obj: Object, *, by_label: bool = False) -> None:
        """Shows an object that we deleted, or that was not there to be deleted, as being deleted.

        What was deleted `by_label` may turn out to have had others by then.
        """
        informer = self._informers.get(type(obj))
        if informer is not None:
            informer.store.removed(obj.key, obj.metadata.uid, labels=obj.metadata.labels if by_label else None)

    def is_echo(self, obj: Object) -> bool:
        """For a handler of `type(obj)`: whether the event is about a write that was marked as its own."""
        return self._informers[type(obj)].store.is_echo(obj)

    def is_news(self, old: Object | None, new: Object | None) -> bool:
        """For a handler: whether the object is there and the event is not the echo of our own write."""
        return new is not None and not self.is_echo(new)

    # Running

    def start(self) -> None:
        self._started = True
        if self._collector is not None:
            self._collector.rest()
        for informer in self._informers.values():
            self._follow(informer)

    async def stop(self) -> None:
        self._started = False
        await self._stop_following()
        if self._collector is not None:
            self._collector.release()

    @property
    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self._informers.values())

    async def wait_synced(self, timeout_s: float | None = None, *, kind: type[Any] | None = None) -> None:
        """Returns when every kind, or this one, was listed once.

        Raises the cause if waiting cannot help: no such kind, or no rights. At the time-out it raises whatever the
        cause is, with a message for a person.
        """
        try:
            async with asyncio.timeout(timeout_s):
                for informer in list(self._informers.values()) if kind is None else [self._informers[kind]]:
                    await self._first_list(informer)
        except TimeoutError:
            missing = [informer for informer in self._informers.values() if not informer.synced.is_set()]
            error = next((informer.error for informer in missing if informer.error is not None), None)
            if error is not None:
                raise error from None
            names = ", ".join(str(informer.kind.RESOURCE) for informer in missing)
            raise ConnectionLost(f"no list of {names} in {timeout_s:g} s") from None
        if self._collector is not None:
            self._collector.settle()

    async def relist(self) -> None:
        """Reads every kind again; returns when nothing is missing that was written before the call.

        A watch does not say how far it is behind, and one that was just interrupted is behind by any time. A kind that
        the server does not know any more has nothing to read.
        """
        informers = list(self._informers.values())
        await self._stop_following()
        for informer in informers:
            informer.forget_place()
            self._follow(informer)
        for informer in informers:
            while not informer.synced.is_set() and not isinstance(informer.error, NotFound):
                await informer.changed()

    async def _first_list(self, informer: Informer[Any]) -> None:
        while not informer.synced.is_set():
            if isinstance(informer.error, HOPELESS):
                raise informer.error
            await informer.changed()

    async def _stop_following(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _follow(self, informer: Informer[Any]) -> None:
        if informer.kind not in self._tasks:
            name = f"watch-{informer.kind.RESOURCE.plural}"
            self._tasks[informer.kind] = asyncio.get_running_loop().create_task(informer.run(), name=name)
