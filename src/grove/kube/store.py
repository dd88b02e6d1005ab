"""The objects of one kind by key, with indexes and handlers for changes. No I/O.

The store stands at a revision of the cluster. It ignores anything that is not newer, from a lagging server or a
replayed stream. So a reader never sees an older version after a newer one, nor an object that is already deleted.

The store includes the process's own writes. It shows the answer to a create or a patch (`wrote`) until the watch
reaches that revision. It shows an object that was deleted here (`removed`) as being deleted until the watch shows the
same. Handlers receive only changes from the watch, and their `old` is what the watch showed before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

import structlog
from msgspec import structs

from grove.api.meta import Key, Object

T = TypeVar("T", bound=Object)

Handler = Callable[[T | None, T | None], None]
"""Receives a change: (None, new) is an arrival, (old, new) a change of one object, (old, None) a departure."""
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


class _Ahead(NamedTuple, Generic[T]):
    """A write that the watch has not shown yet, with the version that the watch shows (None: no object)."""

    shown: T | None
    revision: int
    """The revision of our write. A deletion has none, so it is that of the deleted version."""
    uid: str
    gone: bool = False
    echoes: tuple[str, ...] = ()
    """The versions of our writes that were marked as echoes."""
    labels: Mapping[str, str] | None = None
    """Of something deleted by its labels, those it had: with others it may have been passed over."""


class Store(Generic[T]):
    """The objects of one kind. Reading is free of awaits, so what is read between two awaits is one state."""

    def __init__(self) -> None:
        self.revision = 0
        self._objects: dict[Key, T] = {}
        self._ahead: dict[Key, _Ahead[T]] = {}
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
        objects = self._indexes[name].get(value)
        return list(objects.values()) if objects else []

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
        for key in list(self._objects):
            if (shown := self._shown(key)) is not None:
                self._call([handler], None, shown)

    # What we write

    def wrote(self, obj: T, *, echo: bool = False) -> None:
        """Adds the answer to our own write. With `echo`, `is_echo` recognises the version when the watch shows it."""
        key, revision = obj.metadata.key, revision_of(obj.metadata.resource_version)
        held, ahead = self._objects.get(key), self._ahead.get(key)
        known = max(self.revision, revision_of(held.metadata.resource_version) if held is not None else 0)
        if held is not None and _is_released(held, obj):
            self._index(key, obj)
            return
        if revision <= known or (ahead is not None and ahead.gone and ahead.uid == obj.metadata.uid):
            return  # the watch was quicker than the answer, or it is about something that we have deleted since
        echoes = ahead.echoes if ahead is not None and ahead.uid == obj.metadata.uid else ()
        echoes += (obj.metadata.resource_version,) if echo else ()
        shown = ahead.shown if ahead is not None else held
        self._ahead[key] = _Ahead(shown, revision, obj.metadata.uid, echoes=echoes)
        self._index(key, obj)

    def removed(self, key: Key, uid: str, *, labels: Mapping[str, str] | None = None) -> None:
        """The object was deleted here, or the server answered that it does not exist: readers no longer count on it.

        `labels` are those of a deletion by label. If the watch shows the object with other labels and not as being
        deleted, an unseen edit kept it. Readers then count on it again.
        """
        held, ahead = self._objects.get(key), self._ahead.get(key)
        if held is None or held.metadata.uid != uid or held.metadata.is_deleting:
            return
        if labels not in (None, held.metadata.labels):
            return
        shown, revision = ahead.shown if ahead is not None else held, revision_of(held.metadata.resource_version)
        self._ahead[key] = _Ahead(shown, revision, uid, gone=True, labels=labels)
        self._index(key, _deleting(held))

    def is_echo(self, obj: T) -> bool:
        """For a handler: whether this version is the answer to a write of ours that was marked as an echo.

        It is never true for a version from a list. Another client may have written before us, and the list shows only
        our later version, which holds both changes.
        """
        ahead = self._ahead.get(obj.metadata.key)
        return ahead is not None and obj.metadata.resource_version in ahead.echoes

    # What the watch shows

    def put(self, obj: T) -> None:
        """Takes an added or modified object over, unless it is old news."""
        if not self._is_old(obj):
            self._show(obj.metadata.key, obj, self.revision)

    def remove(self, obj: T) -> None:
        """Takes a deletion over; `obj` carries the revision of the deletion."""
        if not self._is_old(obj):
            self._show(obj.metadata.key, None, self.revision)

    def passed(self, revision: int) -> None:
        """The watch has shown everything up to here: of our writes as old as that it shows what there is to show."""
        self.revision = max(self.revision, revision)
        for key, ahead in list(self._ahead.items()):
            if ahead.revision <= revision and not (ahead.gone and ahead.shown is not None):
                del self._ahead[key]
                self._index(key, ahead.shown)

    def take_over(self, objects: dict[Key, T], revision: int) -> Iterator[None]:
        """Makes the store equal to a whole list made at `revision`; yields where the caller may let other tasks run.

        The caller has checked that the list is not older than the store. Handlers receive only objects that changed.
        """
        if revision < self.revision:  # the cluster was restored from a backup: what we wrote since is not in it
            self.passed(self.revision)
            self._ahead.clear()
        for count, key in enumerate([key for key in self._objects if key not in objects], 1):
            self._show(key, None, revision)
            if count % SLICE == 0:
                yield
        for count, (key, obj) in enumerate(objects.items(), 1):
            held = self._shown(key)
            if held is None or held.metadata.resource_version != obj.metadata.resource_version:
                if (ahead := self._ahead.get(key)) is not None and obj.metadata.resource_version in ahead.echoes:
                    self._ahead[key] = ahead._replace(echoes=())
                self._show(key, obj, revision)
            if count % SLICE == 0:
                yield
        self.revision = revision
        self.passed(revision)

    def _is_old(self, obj: T) -> bool:
        revision = revision_of(obj.metadata.resource_version)
        if revision == 0:
            return False
        if revision <= self.revision:
            return True
        self.revision = revision
        return False

    def _shown(self, key: Key) -> T | None:
        ahead = self._ahead.get(key)
        return ahead.shown if ahead is not None else self._objects.get(key)

    def _show(self, key: Key, obj: T | None, revision: int) -> None:
        """The watch shows `obj` under `key` at `revision`, None for a deletion. Calls the handlers."""
        old = self._shown(key)
        if old is not None and obj is not None and old.metadata.uid != obj.metadata.uid:
            # A list brings another one under the same name: the old one left before that.
            self._show(key, None, revision_of(obj.metadata.resource_version) - 1)
            old = None
        ahead = self._ahead.get(key)
        if ahead is None:
            self._index(key, obj)
        elif ahead.revision > revision:  # ours is newer still
            self._ahead[key] = ahead._replace(shown=obj)
        elif ahead.gone and obj is not None and obj.metadata.uid == ahead.uid and not obj.metadata.is_deleting:
            if ahead.labels in (None, obj.metadata.labels):
                self._ahead[key] = ahead._replace(shown=obj)
                self._index(key, _deleting(obj))
            else:
                self._index(key, obj)
        elif obj is None or ahead.gone or ahead.revision != revision:
            self._index(key, obj)  # else it is the very version that is read already
        if old is not None or obj is not None:
            self._call(self._handlers, old, obj)
        if ahead is not None and self._ahead.get(key) is ahead:
            del self._ahead[key]  # after the handlers, which may ask whether they hear an echo

    def _index(self, key: Key, obj: T | None) -> None:
        """Makes `obj` what is read under `key`, None for nothing."""
        old = self._objects.get(key)
        if obj is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            values = list(indexer(obj)) if obj is not None else []
            if old is not None:
                for value in indexer(old):
                    if value not in values:
                        _discard(index, value, key)
            if obj is not None:
                for value in values:
                    bucket = index.get(value)
                    if bucket is None:
                        index[value] = {key: obj}
                    else:
                        bucket[key] = obj

    def _call(self, handlers: Iterable[Handler[T]], old: T | None, new: T | None) -> None:
        for handler in handlers:
            try:
                handler(old, new)
            except Exception:  # one subscriber's bug must not keep the news from the others
                log.exception("cache handler failed", handler=getattr(handler, "__qualname__", repr(handler)))


_LEAVING = datetime(1970, 1, 1, tzinfo=UTC)


def _deleting(obj: T) -> T:
    """The object as the API server shows it after a deletion that has not ended; only the moment is not known."""
    return structs.replace(obj, metadata=structs.replace(obj.metadata, deletion_timestamp=_LEAVING))


def _is_released(held: Object, answer: Object) -> bool:
    """True if the write removed the last finalizer of an object that is being deleted.

    The API server then removes the object and stores no new version, so the answer has the version before.
    """
    old, new = held.metadata, answer.metadata
    return bool(
        old.uid == new.uid
        and old.resource_version == new.resource_version
        and new.is_deleting
        and old.finalizers
        and not new.finalizers
    )


def _discard(index: dict[Hashable, dict[Key, T]], value: Hashable, key: Key) -> None:
    bucket = index.get(value)
    if bucket is not None and bucket.pop(key, None) is not None and not bucket:
        del index[value]
