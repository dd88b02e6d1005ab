"""Objects of a PodGang for other schedulers, such as a PodGroup; grove-scheduler needs none.

The backend defines them, and `grove.backends.steps` decides what to do about each. This module does it, in order, and
follows the objects: a deletion or an edit wakes the gang. While a gang's needs stay the same, it reads and writes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache as remembered

import msgspec

from grove.api.core import Pod
from grove.api.meta import Json, Key, Object, Resource
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends.base import NO_OBJECTS, REPLACING, SHRUNK, WRITTEN_IN_PART, Backend, GangObjects, GangObjectsState
from grove.backends.steps import Step, merged, owner_references, remembering, step_for, taking_back
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, NotFound
from grove.kube.wakes import Wake, each
from grove.kube.workqueue import Workqueue
from grove.operator.shared.cluster.children_writer import delete
from grove.operator.shared.cluster.deps import GangKey, gang_key_of
from grove.operator.shared.cluster.optional_kinds import MANAGED
from grove.operator.shared.cluster.sets import differ
from grove.operator.shared.diff import Ownership, needed_patch


@remembered
def view_of(resource: Resource) -> type[Object]:
    """A kind of which only the metadata is read, for a cache to follow."""
    return type(f"Observed{resource.kind}", (Object,), {"RESOURCE": resource, "__module__": __name__})


class SchedulerObjects:
    """Keeps a backend's objects for a gang."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        queue: Workqueue[GangKey],
        *,
        on_missing: Callable[[], None],
        namespace: str = "",
    ) -> None:
        self._client, self._cache, self._queue, self._on_missing = client, cache, queue, on_missing
        self._namespace = namespace
        self._followed: set[Resource] = set()
        self._written: dict[str, tuple[GangObjects, GangObjectsState | None]] = {}

    def follow(self, backends: Iterable[Backend]) -> None:
        """Has the cache follow what these backends make; asking again adds what is new."""
        for backend in backends:
            for resource in backend.gang_resources:
                if resource not in self._followed:
                    self._followed.add(resource)
                    self._cache.add(view_of(resource), namespace=self._namespace, labels=MANAGED)
                    self._cache.on_event(view_of(resource), self._forget_edited)
                    wake = Wake(view_of(resource), each(gang_key_of), self._queue.add, self._is_edited)
                    self._cache.on_event(wake.source, wake)

    async def sync(
        self, gang: PodGang, pcs: PodCliqueSet, backend: Backend, pods: Sequence[Pod]
    ) -> GangObjectsState | None:
        """Writes a gang's objects for its scheduler; None when there is nothing to write or to report."""
        objects = backend.gang_objects(gang, pcs, pods)
        uid = gang.metadata.uid
        known = self._written.get(uid)
        if known is not None and known[0] == objects:
            return known[1]
        if objects is NO_OBJECTS:
            return None
        state = await self._write(gang, backend, objects, bool(pods))
        if not state.retry and state.reason != REPLACING:
            self._written[uid] = (objects, state)
        return state

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)

    async def _write(self, gang: PodGang, backend: Backend, objects: GangObjects, in_use: bool) -> GangObjectsState:
        made: dict[tuple[str, str], str] = {}
        troubles: list[Step] = []
        for wanted in objects.objects:
            resource = _resource_of(wanted, backend)
            step, live = await self._put(gang, wanted, resource, backend, objects.create, made, in_use)
            if live is not None:
                made[wanted["kind"], wanted["metadata"]["name"]] = live["metadata"]["uid"]
            is_replaced = step.act == "replace" or step.reason == REPLACING
            if is_replaced or step.act in ("conflict", "keep"):
                troubles.append(step)
            elif live is not None and (lost := _dropped(wanted, live)):
                troubles.append(lost)
            if is_replaced or step.act == "conflict":
                break  # what comes after may refer to it
        if objects.create and objects.objects and not troubles:
            await self._prune(gang, backend, objects.objects)
        if not troubles:
            return GangObjectsState(objects.ready, objects.reason, objects.message)
        worst = troubles[-1]
        if worst.act in ("replace", "wait"):
            return GangObjectsState(False, REPLACING, "an older object is being replaced")
        return GangObjectsState(worst.act == "keep", worst.reason, worst.message, retry=worst.act == "conflict")

    async def _put(
        self,
        gang: PodGang,
        wanted: Json,
        resource: Resource,
        backend: Backend,
        create: bool,
        made: dict[tuple[str, str], str],
        in_use: bool,
    ) -> tuple[Step, Json | None]:
        name, namespace = wanted["metadata"]["name"], wanted["metadata"]["namespace"]
        reference = {"apiVersion": gang.RESOURCE.api_version, "kind": gang.RESOURCE.kind, "name": gang.metadata.name}
        owners = owner_references({**reference, "uid": gang.metadata.uid}, wanted, made)
        owned = {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": owners}}
        wanted = remembering(owned, backend.said_once)
        if self._cache.get(view_of(resource), Key(namespace, name)) is None and create:
            try:
                live = await self._client.create(resource, wanted)
                return Step("create"), self._remember(resource, live)
            except AlreadyExists:
                pass  # ours that the cache has not shown yet, or one of another owner
            except NotFound:
                self._on_missing()
                raise
        try:
            existing: Json | None = await self._client.get(resource, name, namespace)
        except NotFound:
            existing = None
        ownership = Ownership(exact=(), left=backend.said_once)
        patch: Json | None = None
        if existing is not None:
            patch = merged(needed_patch(wanted, existing, ownership), taking_back(wanted, existing))
        frozen = resource.kind in backend.frozen
        step = step_for(wanted, existing, gang.metadata.uid, patch, frozen=frozen, in_use=in_use, fixed=backend.fixed)
        if step.act == "keep" and existing is not None and backend.asks_for_more(wanted, existing):
            step = step._replace(reason=SHRUNK)
        if step.act == "create":
            if not create:
                return Step("nothing"), None
            existing = self._remember(resource, await self._client.create(resource, wanted))
        elif step.patch is not None:
            existing = self._remember(resource, await self._client.patch(resource, name, step.patch, namespace))
        elif step.act == "replace" and existing is not None:
            await self._client.delete(resource, name, namespace, uid=existing["metadata"]["uid"])
        return step, existing

    async def _prune(self, gang: PodGang, backend: Backend, objects: Sequence[Json]) -> None:
        """Removes what a gang had and needs no more, such as the group of a clique that was scaled to zero."""
        wanted = {(obj["kind"], obj["metadata"]["name"]) for obj in objects}
        for resource in backend.gang_resources:
            for owned in self._cache.owned(view_of(resource), by=gang.metadata.uid):
                if (resource.kind, owned.metadata.name) not in wanted and not owned.metadata.is_deleting:
                    await delete(self._client, self._cache, owned)

    def _remember(self, resource: Resource, live: Json) -> Json:
        self._cache.wrote(msgspec.convert({"metadata": live["metadata"]}, view_of(resource), strict=False), echo=True)
        return live

    def _is_edited(self, old: Object | None, new: Object | None) -> bool:
        """True if another client deleted or edited one of our objects."""
        if old is None or (new is not None and self._cache.is_echo(new)):
            return False
        return new is None or differ(old, new, "generation", "labels", "annotations", "uid")

    def _forget_edited(self, old: Object | None, new: Object | None) -> None:
        owner = old.metadata.controller if old is not None else None
        if owner is not None and self._is_edited(old, new):
            self.forget(owner.uid)


def _dropped(wanted: Json, answer: Json) -> Step | None:
    """A server drops fields that it does not know, or whose feature is off, without a word: so it is said here."""
    lost = (needed_patch({"spec": wanted["spec"]}, answer, Ownership(exact=())) or {}).get("spec")
    if not lost:
        return None
    what = f"{wanted['kind']} {wanted['metadata']['name']}"
    return Step("keep", reason=WRITTEN_IN_PART, message=f"{what}: the server does not keep {', '.join(sorted(lost))}")


def _resource_of(wanted: Json, backend: Backend) -> Resource:
    for resource in backend.gang_resources:
        if resource.kind == wanted["kind"]:
            return resource
    raise LookupError(f"{backend.name} makes {wanted['kind']} objects and does not list the kind")
