"""The client a controller gets in the simulated cluster: `grove.kube.client.Client` answered from memory.

A call takes a little (virtual) time before it is carried out, so callers interleave as they would over a network. The
answer is a copy, or a frozen Struct that all readers of the version share.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from grove.api.core import SUBJECT_ACCESS_REVIEW
from grove.api.meta import Json, Key, Resource
from grove.kube.client import Page, Patch, Propagation, WatchEvent
from grove.kube.errors import NotFound
from grove.kube.wire import path_part
from grove.sim import disruption, refusals
from grove.sim.kinds import POD
from grove.sim.patch import copy_json
from grove.sim.server import SimServer
from grove.sim.store import Change, Version

READS = ("get", "list", "watch", "serves")
"""Verbs that ask for no change."""


class SimClient:
    """One user's way into the cluster. `calls` counts requests by (verb, plural or plural/subresource)."""

    def __init__(self, server: SimServer, *, user: str = "admin", latency_s: float = 0.001) -> None:
        self.server, self.user, self.latency_s = server, user, latency_s
        self.calls: Counter[tuple[str, str]] = Counter()

    @property
    def writes(self) -> int:
        """Requests so far that ask for a change, whether or not it was granted."""
        return sum(count for (verb, _), count in self.calls.items() if verb not in READS)

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        resource = await self._arrive("get", kind)
        return shown(self.server.get(resource, _key(resource, namespace, name)), kind)

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
        resource = await self._arrive("list", kind)
        listing = self.server.list(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            next_page=next_page,
            resource_version=resource_version,
        )
        return Page([shown(version, kind) for version in listing.versions], str(listing.revision), listing.next_page)

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
        resource = await self._arrive("watch", kind)
        watcher = self.server.watch(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            initial_events=initial_events,
        )
        loop = asyncio.get_running_loop()
        ends = None if timeout_s is None else loop.call_later(timeout_s, watcher.end)
        try:
            while (change := await watcher.take()) is not None:
                yield _event(change, kind)
        finally:
            if ends is not None:
                ends.cancel()
            self.server.unwatch(resource, watcher)

    async def create(self, kind: Any, obj: Json, *, subresource: str = "", dry_run: bool = False) -> Any:
        resource = await self._arrive("create", kind, subresource)
        if subresource:
            raise refusals.unknown_kind()
        if resource == SUBJECT_ACCESS_REVIEW:
            return {**obj, "status": {"allowed": True}}  # there is no RBAC: everybody may do everything
        return shown(await self.server.create(resource, obj, user=self.user, dry_run=dry_run), kind)

    async def patch(
        self, kind: Any, name: str, patch: Patch, namespace: str = "", *, subresource: str = "", dry_run: bool = False
    ) -> Any:
        resource = await self._arrive("patch", kind, subresource)
        key = _key(resource, namespace, name)
        version = await self.server.patch(
            resource, key, patch, subresource=subresource, user=self.user, dry_run=dry_run
        )
        return shown(version, kind)

    async def apply(self, kind: Resource, obj: Json, *, field_manager: str, force: bool = True) -> Json:
        resource = await self._arrive("apply", kind)
        meta = obj["metadata"]
        key = _key(resource, meta.get("namespace", ""), meta["name"])
        try:
            version = await self.server.patch(resource, key, obj, user=self.user)
        except NotFound:
            version = await self.server.create(resource, obj, user=self.user)
        applied: Json = shown(version, kind)
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
        resource = await self._arrive("delete", kind)
        await self.server.delete(
            resource,
            _key(resource, namespace, name),
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace_period_s=grace_period_s,
            user=self.user,
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
        resource = await self._arrive("deletecollection", kind)
        await self.server.delete_collection(
            resource, namespace, labels=labels, fields=fields, propagation=propagation, user=self.user
        )

    async def bind(self, namespace: str, pod: str, node: str, *, uid: str = "") -> None:
        await self._arrive("create", POD, "binding")
        self.server.bind(Key(namespace, pod), node, uid=uid)

    async def evict(self, namespace: str, pod: str, *, uid: str = "", dry_run: bool = False) -> None:
        await self._arrive("create", POD, "eviction")
        await disruption.evict(self.server, Key(namespace, pod), uid=uid, dry_run=dry_run, user=self.user)

    async def serves(self, kind: Any) -> bool:
        resource = await self._arrive("serves", kind)
        served = self.server.kinds.get((resource.group, resource.plural))
        return served is not None and served.resource.version == resource.version

    async def close(self) -> None:
        return None

    async def _arrive(self, verb: str, kind: Any, subresource: str = "") -> Resource:
        resource: Resource = kind if isinstance(kind, Resource) else kind.RESOURCE
        self.calls[verb, f"{resource.plural}/{subresource}" if subresource else resource.plural] += 1
        await asyncio.sleep(self.latency_s)
        return resource


def _key(resource: Resource, namespace: str, name: str) -> Key:
    path_part("namespace", namespace)
    path_part("name", name)
    return Key(namespace if resource.namespaced else "", name)


def shown(version: Version, kind: Any) -> Any:
    """A version as a caller gets it: a copy of its JSON, or its Struct."""
    return copy_json(version.json) if isinstance(kind, Resource) else version.view(kind)


def _event(change: Change, kind: Any) -> WatchEvent[Any]:
    version = change.version
    if change.type == "BOOKMARK":
        is_initial = "annotations" in version.json["metadata"]
        return WatchEvent("BOOKMARK", None, str(version.revision), initial_done=is_initial)
    return WatchEvent(change.type, shown(version, kind), str(version.revision))
