"""The API server of the simulated cluster: one method a verb, over a `Store`, with the rules of Kubernetes.

Reads are plain calls. Writes are coroutines because admission hooks may be. A write decides on the current version and
commits without an await in between. If a hook awaited, it compares the version again and starts over if the object
changed. Inner controllers (garbage collection, token Secrets) listen to the store and live beside this module.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from grove.api.meta import Json, Key, Resource, rfc3339
from grove.kube.client import Patch, Propagation
from grove.kube.clock import Clock
from grove.kube.errors import Gone, Unavailable
from grove.sim import custom, metadata, pods, refusals
from grove.sim.admission import Admission, Attempt
from grove.sim.kinds import BUILT_IN, CRD, NAMESPACE, NODE, POD, SERVICE_ACCOUNT, Kind
from grove.sim.patch import apply_patch, copy_json
from grove.sim.selectors import both, exact_labels, field_match, label_match
from grove.sim.store import Change, Store, Version, Watcher

BOOKMARK_S = 60.0
_RETRIES = 5
_PAGES = 1000
"""How many unread pages are kept; an older one is as good as expired."""


class Listing(NamedTuple):
    versions: Sequence[Version]
    revision: int
    next_page: str = ""


class SimServer:
    """Objects, versions and rules. `rng` makes uids and generated names, so a run repeats."""

    def __init__(self, clock: Clock, *, rng: random.Random | None = None) -> None:
        self.store, self.admission, self.clock = Store(), Admission(), clock
        self.rng = rng or random.Random(0)
        self.kinds: dict[tuple[str, str], Kind] = {}
        self._by_name: dict[tuple[str, str], Kind] = {}
        self._pages: dict[str, Listing] = {}
        self._page_count = 0
        self._bookmark_due = False
        self._stamp: tuple[datetime | None, str] = (None, "")
        for kind in (*BUILT_IN, pods.POD_KIND):
            self.register(kind)

    # Kinds

    def register(self, kind: Kind) -> None:
        """Makes the server serve a kind; installing a CRD does the same from its schema."""
        self.kinds[kind.resource.group, kind.resource.plural] = kind
        self._by_name[kind.resource.group, kind.resource.kind] = kind

    def kind_of(self, resource: Resource) -> Kind:
        kind = self.kinds.get((resource.group, resource.plural))
        if kind is None or kind.resource.version != resource.version:
            raise refusals.unknown_kind()
        return kind

    def find_kind(self, api_version: str, kind_name: str) -> Kind | None:
        """The kind that an owner reference names; any served version of the group will do."""
        return self._by_name.get((api_version.rpartition("/")[0], kind_name))

    # Reading

    def get(self, resource: Resource, key: Key) -> Version:
        self.kind_of(resource)
        version = self.store.collection(resource).objects.get(key)
        if version is None:
            raise refusals.not_found(resource, key.name)
        return version

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        version = self.store.collection(resource).objects.get(Key(namespace, name))
        return version.json if version else None

    def all(self, resource: Resource, namespace: str = "") -> list[Json]:
        objects = self.store.collection(resource).objects
        return [v.json for k, v in objects.items() if not namespace or k.namespace == namespace]

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        next_page: str = "",
        resource_version: str = "",
        at: int | None = None,
    ) -> Listing:
        """Matching objects in key order; later pages continue its snapshot. `at` reads an older revision."""
        kind = self.kind_of(resource)
        if next_page:
            rest = self._pages.get(next_page)
            if rest is None or rest.revision < self.store.collection(resource).compacted:
                why = "The provided continue parameter is too old"
                raise Gone(why, code=410, reason="Expired")
            return self._page(rest, limit)
        if resource_version and int(resource_version) > self.store.revision:
            why = f"Too large resource version: {resource_version}, current: {self.store.revision}"
            raise Unavailable(why, code=504, reason="Timeout", retry_after_s=1.0)
        match = both(label_match(labels), field_match(fields, kind.fields))
        collection = self.store.collection(resource)
        if at is None:
            versions = collection.select(namespace, match, exact_labels(labels))
            return self._page(Listing(versions, self.store.revision), limit)
        then = sorted(collection.at(at).items(), key=lambda item: item[0])
        versions = [v for k, v in then if (not namespace or k.namespace == namespace) and (not match or match(v.json))]
        return self._page(Listing(versions, at), limit)

    def _page(self, listing: Listing, limit: int) -> Listing:
        if not limit or len(listing.versions) <= limit:
            return Listing(listing.versions, listing.revision)
        self._page_count += 1
        token = f"{listing.revision}-{self._page_count}"
        self._pages[token] = Listing(listing.versions[limit:], listing.revision)
        if len(self._pages) > _PAGES:
            del self._pages[next(iter(self._pages))]
        return Listing(listing.versions[:limit], listing.revision, token)

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        initial_events: bool = False,
    ) -> Watcher:
        """A stream from a revision on (Gone when too old), or from the current objects; close it with `unwatch`."""
        kind = self.kind_of(resource)
        match = both(label_match(labels), field_match(fields, kind.fields))
        collection = self.store.collection(resource)
        watcher = Watcher(namespace, match)
        if initial_events or resource_version in ("", "0"):
            watcher.begin(collection.select(namespace, None))
            if initial_events:
                watcher.bookmark(self._bookmark(initial_done=True))
        else:
            for change in collection.since(int(resource_version)):
                watcher.offer(change)
        collection.watchers[watcher] = None
        self._plan_bookmarks()
        return watcher

    def unwatch(self, resource: Resource, watcher: Watcher) -> None:
        self.store.collection(resource).watchers.pop(watcher, None)

    def drop_watches(self, error: Exception) -> None:
        """Ends every open stream with an error, as a restart of the server would."""
        for collection in self.store.collections.values():
            for watcher in collection.watchers:
                watcher.fail(error)
            collection.watchers.clear()

    def _bookmark(self, *, initial_done: bool = False) -> Change:
        done = {"annotations": {"k8s.io/initial-events-end": "true"}} if initial_done else {}
        return Change("BOOKMARK", Version({"metadata": done}, self.store.revision), None)

    def _plan_bookmarks(self) -> None:
        # One timer for all streams, and none without any: a cluster without watches has nothing to wait for.
        if not self._bookmark_due and any(c.watchers for c in self.store.collections.values()):
            self._bookmark_due = True
            asyncio.get_running_loop().call_later(BOOKMARK_S, self._send_bookmarks)

    def _send_bookmarks(self) -> None:
        bookmark = self._bookmark()
        for collection in self.store.collections.values():
            for watcher in collection.watchers:
                watcher.bookmark(bookmark)
        self._bookmark_due = False
        self._plan_bookmarks()

    # Writing

    def stamp(self) -> str:
        """Now, as the server writes it; formatted once a second, since thousands of writes share it."""
        now = self.clock.now().replace(microsecond=0)
        if now != self._stamp[0]:
            self._stamp = (now, rfc3339(now))
        return self._stamp[1]

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    async def create(self, resource: Resource, obj: Json, *, user: str = "", dry_run: bool = False) -> Version:
        kind = self.kind_of(resource)
        new = metadata.for_create(resource, copy_json(obj), self)
        key = Key(new["metadata"].get("namespace", ""), new["metadata"]["name"])
        if resource.namespaced:
            self._check_namespace(resource, key)
        attempt = Attempt(resource, "CREATE", key.namespace, key.name, user, dry_run=dry_run)
        if kind.structure is not None:
            if kind.has_status:
                new.pop("status", None)
            new = _shaped(kind, new, None)
        is_hooked = self.admission.concerns(attempt)
        if is_hooked:
            new = await self.admission.mutate(attempt, self.new_uid(), new, None)
        if kind.fill is not None:
            kind.fill(new, self)
        if kind.structure is not None:
            new = _shaped(kind, new, None) if is_hooked else new
            _check_structure(kind, new, None)
        metadata.check(kind, new)
        if is_hooked:
            await self.admission.validate(attempt, self.new_uid(), new, None)
        if key in self.store.collection(resource).objects:
            raise refusals.already_exists(resource, key.name)
        if resource == CRD:
            new = self._install(new, dry_run=dry_run)
        if dry_run:
            return Version(new, 0)
        if resource == NAMESPACE:
            version = self.store.put(resource, new)
            account = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": key.name},
            }
            self.store.put(SERVICE_ACCOUNT, metadata.for_create(SERVICE_ACCOUNT, account, self))
            return version
        return self.store.put(resource, new)

    def _check_namespace(self, resource: Resource, key: Key) -> None:
        namespace = self.find(NAMESPACE, key.namespace)
        if namespace is None:
            raise refusals.not_found(NAMESPACE, key.namespace)
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
            raise refusals.forbidden(resource, key.name, why)

    async def patch(
        self,
        resource: Resource,
        key: Key,
        patch: Patch,
        *,
        subresource: str = "",
        user: str = "",
        dry_run: bool = False,
    ) -> Version:
        kind = self.kind_of(resource)
        if subresource == "scale":
            return await custom.patch_scale(self, kind, key, patch, user=user, dry_run=dry_run)
        if subresource and not (subresource == "status" and kind.has_status):
            raise refusals.unknown_kind()
        return await self.update(kind, key, lambda json: apply_patch(json, patch), subresource, user, dry_run)

    async def update(
        self,
        kind: Kind,
        key: Key,
        change: Callable[[Json], Json],
        subresource: str = "",
        user: str = "",
        dry_run: bool = False,
    ) -> Version:
        """Changes an object under all rules. An update that changes nothing is no write: no new version, no event."""
        resource = kind.resource
        attempt = Attempt(resource, "UPDATE", key.namespace, key.name, user, subresource=subresource, dry_run=dry_run)
        for _ in range(_RETRIES):
            current = self.get(resource, key)
            old = current.json
            new = metadata.for_update(kind, change(old), old, subresource)
            if kind.structure is not None:
                new = _shaped(kind, new, old)
            is_hooked = self.admission.concerns(attempt)
            if is_hooked:
                new = await self.admission.mutate(attempt, self.new_uid(), new, old)
                new = metadata.for_update(kind, new, old, subresource)
                new = _shaped(kind, new, old) if kind.structure is not None else new
            if kind.check is not None and not subresource:
                kind.check(new, old)
            if kind.structure is not None:
                _check_structure(kind, new, old)
            metadata.check(kind, new, old)
            new = metadata.with_generation(kind, new, old)
            if is_hooked:
                await self.admission.validate(attempt, self.new_uid(), new, old)
                if self.store.collection(resource).objects.get(key) is not current:
                    continue
            if resource == CRD and not subresource:
                new = self._install(new, dry_run=dry_run)
            if dry_run or new == old:
                return Version(new, current.revision) if new != old else current
            return self.commit(resource, key, new)
        raise refusals.modified(resource, key.name)

    def commit(self, resource: Resource, key: Key, new: Json) -> Version:
        meta = new["metadata"]
        is_over = meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds")
        if is_over and not meta.get("finalizers") and resource != NAMESPACE:
            # The last finalizer is gone: the write is also the removal. The answer has the version stored last.
            collection = self.store.collection(resource)
            stored = collection.objects[key].revision
            collection.keep(Version(new, self.store.revision))
            self.remove(resource, key)
            return Version(new, stored)
        return self.store.put(resource, new)

    def remove(self, resource: Resource, key: Key) -> Version:
        if resource == CRD:
            self._uninstall(key.name)
        return self.store.remove(resource, key)

    async def delete(
        self,
        resource: Resource,
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        grace_period_s: int | None = None,
        user: str = "",
        dry_run: bool = False,
    ) -> None:
        self.kind_of(resource)
        current = self.get(resource, key)
        attempt = Attempt(resource, "DELETE", key.namespace, key.name, user, dry_run=dry_run)
        if self.admission.concerns(attempt):
            await self.admission.validate(attempt, self.new_uid(), None, current.json)
            current = self.get(resource, key)
        meta = current.json["metadata"]
        for name, asked, actual in (
            ("UID", uid, meta["uid"]),
            ("ResourceVersion", resource_version, meta["resourceVersion"]),
        ):
            if asked and asked != actual:
                why = f"Precondition failed: {name} in precondition: {asked}, {name} in object meta: {actual}"
                raise refusals.conflict(resource, key.name, why)
        if not dry_run:
            self.start_deletion(resource, current, propagation, grace_period_s)

    def start_deletion(
        self, resource: Resource, current: Version, propagation: Propagation, grace_period_s: int | None = None
    ) -> None:
        """Removes the object at once, or marks it when finalizers or a grace period keep it a while."""
        old, key = current.json, current.key
        grace_s = pods.grace_period_s(old, grace_period_s) if resource == POD else 0
        new = metadata.for_deletion(old, propagation, grace_s, self.clock.now())
        if new is old:
            return
        meta = new["metadata"]
        if not meta.get("finalizers") and not meta["deletionGracePeriodSeconds"] and resource != NAMESPACE:
            self.remove(resource, key)
            return
        if resource == NAMESPACE:
            new = {**new, "status": {**new["status"], "phase": "Terminating"}}
        self.store.put(resource, new)

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        propagation: Propagation = "Background",
        user: str = "",
    ) -> None:
        for version in self.list(resource, namespace, labels=labels, fields=fields).versions:
            if version.key in self.store.collection(resource).objects:
                await self.delete(resource, version.key, propagation=propagation, user=user)

    def bind(self, key: Key, node: str, *, uid: str = "") -> None:
        labels = (self.find(NODE, node) or {"metadata": {}})["metadata"].get("labels") or {}
        bound = pods.bound_pod(self.get(POD, key).json, node, labels, uid=uid, now=self.stamp())
        self.store.put(POD, bound)

    # Custom resource definitions

    def _install(self, crd: Json, *, dry_run: bool) -> Json:
        kind = custom.kind_of_crd(crd)
        if not dry_run:
            self.register(kind)
        return custom.established(crd, kind, self.stamp())

    def _uninstall(self, name: str) -> None:
        for where, kind in list(self.kinds.items()):
            if kind.is_custom and str(kind.resource) == name:
                for key in list(self.store.collection(kind.resource).objects):
                    self.store.remove(kind.resource, key)
                for watcher in list(self.store.collection(kind.resource).watchers):
                    watcher.end()  # as the API server does; clients that connect again get a 404
                del self.kinds[where], self._by_name[kind.resource.group, kind.resource.kind]


def _shaped(kind: Kind, new: Json, old: Json | None) -> Json:
    assert kind.structure is not None
    around = {k: new[k] for k in ("apiVersion", "kind", "metadata") if k in new}
    inner = {k: v for k, v in new.items() if k not in around}
    inner_old = {k: v for k, v in (old or {}).items() if k not in around}
    return {**around, **kind.structure.shape(inner, inner_old)}


def _check_structure(kind: Kind, new: Json, old: Json | None) -> None:
    assert kind.structure is not None
    if faults := kind.structure.faults(new, old):
        raise refusals.invalid(kind.resource, new["metadata"]["name"], faults)
