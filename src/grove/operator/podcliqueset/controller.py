"""PodCliqueSet: keeps the children of a set as its template says. How the set is doing is told by `setstatus`.

Woken by the set and by what happens to its children from outside: one that is deleted or edited is put right. The
children's own progress wakes only the status, so a look here is rare.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from grove.api import labels as key
from grove.api import labelsets, names
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import (
    HorizontalPodAutoscaler,
    Pod,
    ResourceClaim,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
)
from grove.api.hashes import generation_hash
from grove.api.meta import Json, Key, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.controller import DONE, Controller, Result
from grove.kube.errors import KubeError, NotFound
from grove.kube.events import Recorder
from grove.operator.podcliqueset.computedomain_writer import ComputeDomains
from grove.operator.podcliqueset.status import with_outcome
from grove.operator.shared.children import (
    wanted_access,
    wanted_autoscalers,
    wanted_cliques,
    wanted_groups,
    wanted_services,
)
from grove.operator.shared.children_writer import Changes, Children
from grove.operator.shared.claim_writer import SharedClaims
from grove.operator.shared.claims import all_sharing, wanted_set_claims
from grove.operator.shared.diff import finalizer_patch
from grove.operator.shared.event_batching import Digest
from grove.operator.shared.latest import Latest
from grove.operator.shared.layout import replica_of
from grove.operator.shared.optional_kinds import OptionalKinds
from grove.operator.shared.outcome import Outcome
from grove.operator.shared.pod_cleanup import send_pods_ahead
from grove.operator.shared.reports import Reports
from grove.operator.shared.sets import SET, Sets, set_key
from grove.operator.shared.status_batching import SETTLE_S
from grove.operator.shared.status_writer import StatusWriter


class Told(NamedTuple):
    """How the children of one kind are spoken of: code of errors, reasons of events."""

    code: str
    made: str = ""
    removed: str = ""
    failed: str = ""


TOLD: dict[type[Object], Told] = {
    PodClique: Told(
        ErrorCode.CREATE_OR_UPDATE_POD_CLIQUE,
        EventReason.POD_CLIQUE_CREATE_OR_UPDATE_SUCCESSFUL,
        EventReason.POD_CLIQUE_DELETE_SUCCESSFUL,
        EventReason.POD_CLIQUE_CREATE_OR_UPDATE_FAILED,
    ),
    PodCliqueScalingGroup: Told(
        ErrorCode.CREATE_GROUP,
        EventReason.GROUP_CREATE_SUCCESSFUL,
        EventReason.GROUP_DELETE_SUCCESSFUL,
        EventReason.GROUP_CREATE_OR_UPDATE_FAILED,
    ),
    Service: Told(ErrorCode.SYNC_SERVICE),
    ServiceAccount: Told(ErrorCode.SYNC_SERVICE_ACCOUNT),
    Role: Told(ErrorCode.SYNC_ROLE),
    RoleBinding: Told(ErrorCode.SYNC_ROLE_BINDING),
    Secret: Told(ErrorCode.CREATE_SECRET),
    HorizontalPodAutoscaler: Told(ErrorCode.SYNC_AUTOSCALER),
}
CHILDREN = tuple(TOLD)


class PodCliqueSetReconciler:
    """Keeps every child of a set; nothing here waits for anything but the API server's answers."""

    def __init__(
        self, cache: Cache, client: Client, sets: Sets, children: Children, claims: SharedClaims,
        domains: ComputeDomains, optional: OptionalKinds, latest: Latest, statuses: StatusWriter, reports: Reports,
        events: Recorder, digest: Digest, clock: Clock, wake_gangs: Callable[[PodCliqueSet], None],
    ) -> None:  # fmt: skip
        self._cache, self._client, self._sets, self._children = cache, client, sets, children
        self._claims, self._domains, self._optional, self._latest = claims, domains, optional, latest
        self._statuses, self._reports, self._events, self._digest = statuses, reports, events, digest
        self._clock, self._wake_gangs = clock, wake_gangs
        self._passed_on: dict[str, tuple[int, Json, Json]] = {}

    async def reconcile(self, key_: Key) -> Result:
        cached = self._cache.get(PodCliqueSet, key_)
        if cached is None:
            return DONE
        pcs = self._latest.of(cached)
        if pcs.metadata.is_deleting:
            return await self._finish(pcs)
        pcs = await self._begin(pcs)

        changes = await self._sync(pcs)
        for kind, done in changes.items():
            self._tell(pcs, kind, done)
        outcome, error = _outcome(changes.values()), _first_error(changes.values())
        if self._sets.backend_of(pcs) is None:
            message = "the scheduler that the set names is not enabled in the operator's configuration"
            outcome = Outcome(errors=(*outcome.errors, (ErrorCode.CREATE_OR_PATCH_POD_GANG, message)))
        missing = tuple(done.missing for done in changes.values() if done.missing is not None)
        self._reports.put_outcome(key_, pcs.metadata.uid, pcs.metadata.generation, outcome, missing)
        self._pass_on(pcs)
        if error is not None:
            raise error
        looks = [done.look_again_s for done in changes.values() if done.look_again_s is not None]
        return Result(after_s=min(looks, default=None))

    async def _begin(self, pcs: PodCliqueSet) -> PodCliqueSet:
        """Takes charge of a new set: our finalizer, and the hash that later changes are told by."""
        meta = pcs.metadata
        patch = finalizer_patch(meta.finalizers, meta.resource_version, key.SET_FINALIZER, present=True)
        if patch is not None:
            pcs = await self._client.patch(PodCliqueSet, meta.name, patch, meta.namespace)
            self._latest.wrote(pcs)
        if not pcs.status.current_generation_hash:
            # Before the children: their status names it, and would be written again if it came later.
            status = {"status": {"currentGenerationHash": generation_hash(pcs.spec.template)}}
            pcs = await self._client.patch(PodCliqueSet, meta.name, status, meta.namespace, subresource="status")
            self._latest.wrote(pcs)
        return pcs

    def _pass_on(self, pcs: PodCliqueSet) -> None:
        """Has the gangs looked at when something changed that they are made from."""
        said = (pcs.metadata.generation, pcs.metadata.labels, pcs.metadata.annotations)
        if self._passed_on.get(pcs.metadata.uid) != said:
            self._passed_on[pcs.metadata.uid] = said
            self._wake_gangs(pcs)

    async def _sync(self, pcs: PodCliqueSet) -> dict[type[Object], Changes]:
        """All kinds of children at once: trouble with one does not stop the rest.

        Only the token Secret comes after the account: Kubernetes deletes the token of an account that is not there.
        """
        access: dict[str, list[Json]] = {}
        for one in wanted_access(pcs):
            access.setdefault(one["kind"], []).append(one)
        wanted: dict[type[Object], Callable[[], list[Json]]] = {
            PodClique: lambda: wanted_cliques(pcs),
            PodCliqueScalingGroup: lambda: wanted_groups(pcs),
            Service: lambda: wanted_services(pcs),
            **{
                kind: lambda kind=kind: access[kind.RESOURCE.kind]  # type: ignore[misc]
                for kind in (ServiceAccount, Role, RoleBinding, Secret)
            },
        }
        changes: dict[type[Object], Changes] = {}
        autoscalers = wanted_autoscalers(pcs)
        if await self._optional.has(HorizontalPodAutoscaler):
            wanted[HorizontalPodAutoscaler] = lambda: autoscalers
        elif autoscalers:
            resource = HorizontalPodAutoscaler.RESOURCE
            changes[HorizontalPodAutoscaler] = Changes.without(ErrorCode.SYNC_AUTOSCALER, resource)
        async with asyncio.TaskGroup() as group:
            token = wanted.pop(Secret)
            tasks = {kind: group.create_task(self._sync_kind(pcs, kind, make)) for kind, make in wanted.items()}
            tasks[Secret] = group.create_task(self._sync_token(pcs, token, after=tasks[ServiceAccount]))
            tasks[ResourceClaim] = group.create_task(self._sync_claims(pcs))
            domains = group.create_task(self._domains.sync(pcs, self._replicas_with_pods(pcs)))
        changes |= {kind: task.result() for kind, task in tasks.items()}
        self._tell_domains(pcs, domains.result())
        changes[Object] = domains.result()
        return changes

    async def _sync_kind(self, pcs: PodCliqueSet, kind: type[Object], make: Callable[[], list[Json]]) -> Changes:
        version = (pcs.metadata.generation, pcs.metadata.annotations)
        without = self._mounted_legacy_secret(pcs) if kind is Secret else ()
        return await self._children.sync(kind, pcs, make, version=version, code=TOLD[kind].code, without=without)

    async def _sync_token(
        self, pcs: PodCliqueSet, make: Callable[[], list[Json]], after: asyncio.Task[Changes]
    ) -> Changes:
        await asyncio.wait([after])
        return await self._sync_kind(pcs, Secret, make)

    async def _sync_claims(self, pcs: PodCliqueSet) -> Changes:
        if all_sharing(pcs) and not await self._optional.has(ResourceClaim):
            # Said here for all levels: one condition on the set, whoever of its parts shares something.
            return Changes.without(ErrorCode.SYNC_SET_RESOURCE_CLAIM, ResourceClaim.RESOURCE)
        return await self._claims.sync(
            pcs,
            pcs,
            pcs.spec.template.resource_sharing,
            lambda find: wanted_set_claims(pcs, find),
            code=ErrorCode.SYNC_SET_RESOURCE_CLAIM,
        )

    def _mounted_legacy_secret(self, pcs: PodCliqueSet) -> tuple[str, ...]:
        """The token Secret under its old name, while a pod still mounts it."""
        name = names.legacy_token_secret(pcs.metadata.name)
        if self._cache.get(Secret, Key(pcs.metadata.namespace, name)) is None:
            return ()
        volumes = (volume for pod in self._cache.by_index(Pod, SET, pcs.key) for volume in pod.spec.volumes)
        return (name,) if any((one.get("secret") or {}).get("secretName") == name for one in volumes) else ()

    def _replicas_with_pods(self, pcs: PodCliqueSet) -> set[int]:
        if not self._domains.enabled:
            return set()
        found = (replica_of(pod.metadata) for pod in self._cache.by_index(Pod, SET, pcs.key))
        return {replica for replica in found if replica is not None}

    async def _finish(self, pcs: PodCliqueSet) -> Result:
        """Lets a set go; its children follow it by their owner references."""
        self.forget(pcs.metadata.uid)
        meta = pcs.metadata
        patch = finalizer_patch(meta.finalizers, meta.resource_version, key.SET_FINALIZER, present=False)
        if patch is None:
            return DONE
        try:
            await self._domains.release_all(pcs)
        except KubeError as error:
            self._events.warn(pcs, EventReason.COMPUTE_DOMAIN_DELETE_FAILED, str(error))
            outcome = Outcome(errors=((ErrorCode.DELETE_COMPUTE_DOMAIN, str(error)),), deleting=True)
            await self._statuses.write(pcs, with_outcome(pcs.status, outcome, self._clock.now()), news=True)
            raise
        await send_pods_ahead(self._client, pcs, PodGang, labelsets.set_selector(meta.name))
        try:
            await self._client.patch(PodCliqueSet, meta.name, patch, meta.namespace)
        except NotFound:
            pass
        return DONE

    def forget(self, uid: str) -> None:
        self._children.forget(uid)
        self._sets.forget(uid)
        self._reports.forget(uid)
        self._passed_on.pop(uid, None)

    # Telling

    def _tell(self, pcs: PodCliqueSet, kind: type[Object], changes: Changes) -> None:
        told = TOLD.get(kind)
        if told is None:
            return
        name = kind.RESOURCE.kind
        if told.made:
            self._digest.add(pcs, told.made, f"created {name}", *changes.created)
            self._digest.add(pcs, told.made, f"updated {name}", *changes.patched)
            self._digest.add(pcs, told.removed, f"deleted {name}", *changes.deleted)
        for _, message in changes.errors[:1]:
            self._events.warn(pcs, told.failed or f"{name}CreateOrUpdateFailed", message)

    def _tell_domains(self, pcs: PodCliqueSet, changes: Changes) -> None:
        made, removed = EventReason.COMPUTE_DOMAIN_CREATE_SUCCESSFUL, EventReason.COMPUTE_DOMAIN_DELETE_SUCCESSFUL
        self._digest.add(pcs, made, "created ComputeDomain", *changes.created)
        self._digest.add(pcs, removed, "deleted ComputeDomain", *changes.deleted)
        for _, message in changes.errors:
            self._events.warn(pcs, EventReason.COMPUTE_DOMAIN_CREATE_FAILED, message)


class PodCliqueSetWakes:
    """Which events wake which sets."""

    def __init__(
        self, cache: Cache, latest: Latest, domains: ComputeDomains, reconciler: PodCliqueSetReconciler,
        controller: Controller[Key],
    ) -> None:  # fmt: skip
        self._latest, self._reconciler, self._controller = latest, reconciler, controller
        cache.on_event(PodCliqueSet, self.on_set)
        for kind in CHILDREN:
            if kind is not HorizontalPodAutoscaler:
                cache.on_event(kind, self.on_child)
        if domains.enabled:
            cache.on_event(Pod, self.on_pod)

    def on_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        if new is None:
            if old is not None:
                self._reconciler.forget(old.metadata.uid)
        elif old is None or _is_changed(old, new):
            self._controller.add(new.key)

    def on_child(self, old: Object | None, new: Object | None) -> None:
        """A child that comes was made by us; one that goes or is edited may have to be put right."""
        if old is None or (new is not None and not _is_edited(old, new)):
            return
        if key.SCALING_GROUP in old.metadata.labels:
            return  # a member; its group sees to it
        if (found := set_key(old)) is not None:
            self._controller.add(found, after_s=SETTLE_S)

    def on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """The last pod of a replica that goes lets the replica's ComputeDomains go."""
        if new is None and old is not None and (found := set_key(old)) is not None:
            self._controller.add(found, after_s=SETTLE_S)


def _is_changed(old: PodCliqueSet, new: PodCliqueSet) -> bool:
    before, after = old.metadata, new.metadata
    return (
        before.generation != after.generation
        or before.deletion_timestamp != after.deletion_timestamp
        or before.labels != after.labels
        or before.annotations != after.annotations
        or (key.SET_FINALIZER in before.finalizers and key.SET_FINALIZER not in after.finalizers)
        or (bool(old.status.current_generation_hash) and not new.status.current_generation_hash)
    )


def _is_edited(old: Object, new: Object) -> bool:
    before, after = old.metadata, new.metadata
    if isinstance(new, Secret) and before.annotations.items() <= after.annotations.items():
        return before.labels != after.labels  # the token controller notes the account's uid and fills the token in
    if before.labels != after.labels or before.annotations != after.annotations:
        return True
    if before.owner_references != after.owner_references:
        return True
    return before.generation != after.generation if after.generation else _content(old) != _content(new)


def _content(obj: Object) -> list[object]:
    return [getattr(obj, name) for name in obj.__struct_fields__ if name not in ("metadata", "status", "data")]


def _outcome(all_changes: Iterable[Changes]) -> Outcome:
    errors: list[tuple[str, str]] = []
    blocked: list[str] = []
    for changes in all_changes:
        errors += changes.errors[:5]
        blocked += changes.blocked
    waiting = f"waiting for older objects to go: {', '.join(sorted(blocked)[:3])}" if blocked else ""
    return Outcome(errors=tuple(errors), waiting_for=waiting)


def _first_error(all_changes: Iterable[Changes]) -> KubeError | None:
    return next((changes.error for changes in all_changes if changes.error is not None), None)
