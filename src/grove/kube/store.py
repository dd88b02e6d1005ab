"""What we know of one kind: objects by key, indexes over them, and who wants to hear of changes. No I/O.

The store stands at a revision of the cluster. Whatever is not newer than that revision is old news, from a lagging
server or a replayed stream, and is passed over; so nobody is ever shown an older version after a newer one, nor an
object that is known to be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import structlog

from grove.api.meta import Key, Object

T = TypeVar("T", bound=Object)

Handler = Callable[[T | None, T | None], None]
"""Told of a change: (None, new) is an arrival, (old, new) a change, (old, None) a departure."""
Indexer = Callable[[T], Iterable[Hashable]]

OWNER = "owner"
SLICE = 1000
"""Objects handled between two breaths of the event loop when a whole list is taken over: some milliseconds."""

log = structlog.get_logger(__name__)


def revision_of(resource_version: str) -> int:
    """The number inside a resourceVersion; 0, which is never old, for a server that does not number them."""
    return int(resource_version) if resource_version.isdecimal() else 0


def owner_uids(obj: Object) -> Iterable[str]:
    return [ref.uid for ref in obj.metadata.owner_references]


class Store(Generic[T]):
    """The objects of one kind. Reading is free of awaits, so what is read between two awaits is one state."""

    def __init__(self) -> None:
        self.revision = 0
        self._objects: dict[Key, T] = {}
        self._indexers: dict[str, Indexer[T]] = {OWNER: owner_uids}
        self._indexes: dict[str, dict[Hashable, dict[Key, T]]] = {OWNER: {}}
        self._handlers: list[Handler[T]] = []

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def list(self, namespace: str | None = None) -> Sequence[T]:
        if namespace is None:
            return list(self._objects.values())
        return [obj for key, obj in self._objects.items() if key.namespace == namespace]

    def by_index(self, name: str, value: Hashable) -> Sequence[T]:
        found = self._indexes[name].get(value)
        return list(found.values()) if found else []

    def add_index(self, name: str, indexer: Indexer[T]) -> None:
        """Keeps `by_index(name, v)` up to date for every v that `indexer` gives, objects held already included."""
        if name in self._indexers:
            raise ValueError(f"there is an index {name!r} already")
        self._indexers[name] = indexer
        index = self._indexes[name] = {}
        for key, obj in self._objects.items():
            for value in indexer(obj):
                index.setdefault(value, {})[key] = obj

    def add_handler(self, handler: Handler[T]) -> None:
        """Calls `handler` for what is there already and for every change from now on."""
        self._handlers.append(handler)
        for obj in list(self._objects.values()):
            self._call(handler, None, obj)

    def put(self, obj: T) -> None:
        """Takes an added or modified object over, unless it is old news."""
        if self._is_old(obj):
            return
        self._set(obj.metadata.key, obj)

    def remove(self, obj: T) -> None:
        """Takes a deletion over; `obj` carries the revision of the deletion."""
        if self._is_old(obj):
            return
        self._unset(obj.metadata.key)

    def take_over(self, objects: dict[Key, T], revision: int) -> Iterator[None]:
        """Makes the store equal to a whole list made at `revision`; yields where the caller may let others run.

        The caller has made sure that the list is not older than the store. Objects that did not change are not told of.
        """
        for count, key in enumerate([key for key in self._objects if key not in objects], 1):
            self._unset(key)
            if count % SLICE == 0:
                yield
        for count, (key, obj) in enumerate(objects.items(), 1):
            held = self._objects.get(key)
            if held is None or held.metadata.resource_version != obj.metadata.resource_version:
                self._set(key, obj)
            if count % SLICE == 0:
                yield
        self.revision = revision

    def _is_old(self, obj: T) -> bool:
        revision = revision_of(obj.metadata.resource_version)
        if revision == 0:
            return False
        if revision <= self.revision:
            return True
        self.revision = revision
        return False

    def _set(self, key: Key, obj: T) -> None:
        old = self._objects.get(key)
        self._objects[key] = obj
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            values = indexer(obj)
            if old is not None:
                values = list(values)
                for value in indexer(old):
                    if value not in values:
                        _discard(index, value, key)
            for value in values:
                bucket = index.get(value)
                if bucket is None:
                    index[value] = {key: obj}
                else:
                    bucket[key] = obj
        for handler in self._handlers:
            self._call(handler, old, obj)

    def _unset(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        for name, indexer in self._indexers.items():
            for value in indexer(old):
                _discard(self._indexes[name], value, key)
        for handler in self._handlers:
            self._call(handler, old, None)

    def _call(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        try:
            handler(old, new)
        except Exception:  # one subscriber's bug must not keep the news from the others
            log.exception("cache handler failed", handler=getattr(handler, "__qualname__", repr(handler)))


def _discard(index: dict[Hashable, dict[Key, T]], value: Hashable, key: Key) -> None:
    bucket = index.get(value)
    if bucket is not None and bucket.pop(key, None) is not None and not bucket:
        del index[value]
