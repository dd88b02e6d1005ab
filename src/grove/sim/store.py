"""The objects of the simulated cluster: every version of every kind, one revision counter, watch history.

It has no rules of Kubernetes (those are in `grove.sim.server`): it stores finished JSON, numbers it and notifies
watchers. A stored version never changes, it is only replaced. So versions are shared freely: a snapshot is a list of
references, and a typed view is decoded once per version for all caches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from grove.api.meta import Json, Key, Object, Resource
from grove.kube.client import EventType
from grove.kube.errors import Gone
from grove.sim.selectors import Match

T = TypeVar("T", bound=Object)

FIRST_REVISION = 100
"""Small numbers are history from before the cluster began, so a watch from 1 is too old, as on a server of some age."""
HISTORY = 20_000


class Version:
    """One version of one object: its JSON (never to be changed) and the views decoded from it."""

    __slots__ = ("_views", "json", "key", "revision")

    def __init__(self, json: Json, revision: int) -> None:
        self.json, self.revision = json, revision
        meta = json["metadata"]
        self.key = Key(meta.get("namespace", ""), meta.get("name", ""))
        self._views: dict[type, Any] = {}

    @property
    def uid(self) -> str:
        return cast(str, self.json["metadata"]["uid"])

    def view(self, kind: type[T]) -> T:
        view = self._views.get(kind)
        if view is None:
            view = self._views[kind] = msgspec.convert(self.json, kind)
        return cast(T, view)


class Change(NamedTuple):
    """One write. A deletion's `version` is the last state with the revision of the deletion."""

    type: EventType
    version: Version
    previous: Version | None


class Watcher:
    """One watch stream: what matched and has not been read yet."""

    __slots__ = ("_ended", "_failure", "_match", "_namespace", "_pending", "_waiter")

    def __init__(self, namespace: str, match: Match | None) -> None:
        self._namespace, self._match = namespace, match
        self._pending: deque[Change] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._ended = False

    def offer(self, change: Change) -> None:
        """Queues the change as this stream sees it: an object that leaves the selection is a deletion here."""
        if self._namespace and change.version.json["metadata"].get("namespace") != self._namespace:
            return
        if (match := self._match) is not None:
            is_in = change.type != "DELETED" and match(change.version.json)
            was_in = change.previous is not None and match(change.previous.json)
            if not is_in and not was_in:
                return
            if not is_in and change.type != "DELETED":
                last = cast(Version, change.previous)
                change = Change("DELETED", _renumbered(last, change.version.revision), last)
            elif is_in and not was_in:
                change = Change("ADDED", change.version, change.previous)
        self._pending.append(change)
        self._wake()

    def begin(self, versions: Iterable[Version]) -> None:
        """Queues what is there already, as additions."""
        match = self._match
        self._pending.extend(
            Change("ADDED", version, None) for version in versions if match is None or match(version.json)
        )
        self._wake()

    def bookmark(self, change: Change) -> None:
        self._pending.append(change)
        self._wake()

    def fail(self, error: Exception) -> None:
        """Ends the stream with an error once what is queued has been read."""
        self._failure = error
        self._wake()

    def end(self) -> None:
        """Ends the stream in good order, as a server does when the time asked for is over."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> Change | None:
        """The next change; None when the stream has ended."""
        while not self._pending:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._pending.popleft()


class Collection:
    """All objects of one kind and what happened to them lately."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.objects: dict[Key, Version] = {}
        self.history: deque[Change] = deque()
        self.compacted = FIRST_REVISION
        self.watchers: dict[Watcher, None] = {}
        self._labelled: dict[str, dict[str, dict[Key, None]]] = {}
        """Keys by label and value, for labels that a selector has asked for."""

    def keep(self, version: Version) -> Version | None:
        """Stores a version; returns the one before it."""
        previous = self.objects.get(version.key)
        self.objects[version.key] = version
        self._index(version.key, previous, version)
        return previous

    def drop(self, key: Key) -> Version:
        previous = self.objects.pop(key)
        self._index(key, previous, None)
        return previous

    def _index(self, key: Key, old: Version | None, new: Version | None) -> None:
        for label, by_value in self._labelled.items():
            before, after = _label(old, label), _label(new, label)
            if before == after:
                continue
            if before is not None:
                by_value[before].pop(key)
                if not by_value[before]:
                    del by_value[before]
            if after is not None:
                by_value.setdefault(after, {})[key] = None

    def select(self, namespace: str, match: Match | None, exact: Iterable[tuple[str, str]] = ()) -> list[Version]:
        """Matching versions in key order, the order of a list. `exact` are labels that `match` requires."""
        keys = min((self._with_label(label, value) for label, value in exact), key=len, default=self.objects)
        versions = ((key, self.objects[key]) for key in keys if not namespace or key.namespace == namespace)
        chosen = versions if match is None else (item for item in versions if match(item[1].json))
        return [version for _, version in sorted(chosen, key=lambda item: item[0])]

    def _with_label(self, label: str, value: str) -> Mapping[Key, object]:
        by_value = self._labelled.get(label)
        if by_value is None:
            by_value = self._labelled[label] = {}
            for key, version in self.objects.items():
                if (own := _label(version, label)) is not None:
                    by_value.setdefault(own, {})[key] = None
        return by_value.get(value, {})

    def at(self, revision: int) -> dict[Key, Version]:
        """The objects as they were at an older revision, by undoing the history."""
        if revision < self.compacted:
            raise too_old(revision, self.compacted)
        objects = dict(self.objects)
        for change in reversed(self.history):
            if change.version.revision <= revision:
                break
            if change.previous is None:
                objects.pop(change.version.key, None)
            else:
                objects[change.version.key] = change.previous
        return objects

    def since(self, revision: int) -> Iterator[Change]:
        if revision < self.compacted:
            raise too_old(revision, self.compacted)
        newer: list[Change] = []
        for change in reversed(self.history):
            if change.version.revision <= revision:
                break
            newer.append(change)
        return reversed(newer)

    def compact(self, revision: int) -> None:
        self.compacted = max(self.compacted, revision)
        while self.history and self.history[0].version.revision <= self.compacted:
            self.history.popleft()


class Store:
    """All kinds under one revision counter. Listeners, the cluster's inner controllers, hear every write in order."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.collections: dict[tuple[str, str], Collection] = {}
        self.listeners: list[Callable[[Resource, Change], None]] = []

    def collection(self, resource: Resource) -> Collection:
        where = (resource.group, resource.plural)
        collection = self.collections.get(where)
        if collection is None:
            collection = self.collections[where] = Collection(resource)
        return collection

    def put(self, resource: Resource, json: Json) -> Version:
        """Stores a finished object under the next revision; its resourceVersion is filled in here."""
        collection = self.collection(resource)
        self.revision += 1
        version = Version(_numbered(json, self.revision), self.revision)
        previous = collection.keep(version)
        self._tell(collection, Change("MODIFIED" if previous else "ADDED", version, previous))
        return version

    def fill(self, resource: Resource, objects: Iterable[Json]) -> None:
        """Adds many finished objects without watch events, before the first watch of their kind."""
        collection = self.collection(resource)
        for json in objects:
            self.revision += 1
            json["metadata"]["resourceVersion"] = str(self.revision)
            version = Version(json, self.revision)
            collection.keep(version)
        collection.compact(self.revision)

    def remove(self, resource: Resource, key: Key) -> Version:
        collection = self.collection(resource)
        self.revision += 1
        previous = collection.drop(key)
        last = _renumbered(previous, self.revision)
        self._tell(collection, Change("DELETED", last, previous))
        return last

    def compact(self) -> None:
        """Forgets all history: a watch or a page from before now is Gone."""
        for collection in self.collections.values():
            collection.compact(self.revision)

    def _tell(self, collection: Collection, change: Change) -> None:
        collection.history.append(change)
        if len(collection.history) > HISTORY:
            collection.compact(collection.history[HISTORY // 2].version.revision)
        for watcher in collection.watchers:
            watcher.offer(change)
        for listener in self.listeners:
            listener(collection.resource, change)


def _label(version: Version | None, label: str) -> str | None:
    return None if version is None else (version.json["metadata"].get("labels") or {}).get(label)


def too_old(revision: int, oldest: int) -> Gone:
    return Gone(f"too old resource version: {revision} ({oldest})", code=410, reason="Expired")


def _numbered(json: Json, revision: int) -> Json:
    return {**json, "metadata": {**json["metadata"], "resourceVersion": str(revision)}}


def _renumbered(version: Version, revision: int) -> Version:
    return Version(_numbered(version.json, revision), revision)
