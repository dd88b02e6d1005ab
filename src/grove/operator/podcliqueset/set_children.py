"""Makes the children of a set equal to its plan: cliques, groups, Services, access, autoscalers and claims.

`podcliqueset.plan` decides which children there should be, and which must wait. `children_writer` and `claim_writer`
write one kind each. This module decides the order, and reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from grove.api import names
from grove.api.conditions import ErrorCode, EventReason
from grove.api.core import HorizontalPodAutoscaler, Pod, ResourceClaim, RoleBinding, Secret, Service, ServiceAccount
from grove.api.meta import Key, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.errors import KubeError
from grove.operator.podcliqueset.compute_domain_writer import ComputeDomain, ComputeDomains
from grove.operator.podcliqueset.plan import CHILDREN, ChildKind, ChildrenPlan, ObservedChildren
from grove.operator.shared.children import has_revision_services
from grove.operator.shared.claims import all_sharing, set_claims
from grove.operator.shared.cluster.children_writer import Changes, Taken
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.pod_cleanup import delete_replicas
from grove.operator.shared.cluster.sets import SET
from grove.operator.shared.diff import is_controlled_by
from grove.operator.shared.layout import kept_replicas, standalone_names

_DOMAIN_EVENTS: dict[type[Object], ChildKind] = {
    ComputeDomain: ChildKind(
        lambda pcs: [],
        ErrorCode.SYNC_COMPUTE_DOMAIN,
        EventReason.COMPUTE_DOMAIN_CREATE_SUCCESSFUL,
        EventReason.COMPUTE_DOMAIN_DELETE_SUCCESSFUL,
        EventReason.COMPUTE_DOMAIN_CREATE_FAILED,
    )
}


class SetChildren:
    """Writes the children of sets; remembers whose access objects wait for pods to go."""

    def __init__(self, deps: Deps) -> None:
        self._deps, self._cache = deps, deps.cache
        self.domains = ComputeDomains(deps.client, deps.optional, enabled=deps.mnnvl_enabled)
        self._access_in_use: set[Key] = set()

    async def observe(self, pcs: PodCliqueSet) -> ObservedChildren:
        may_need = self._deps.sets.is_in_update(pcs) and self._is_short(pcs)
        former = await self._deps.former.find(pcs) if may_need else None
        name, namespace, uid = pcs.metadata.name, pcs.metadata.namespace, pcs.metadata.uid
        secrets = (names.token_secret(name), names.legacy_token_secret(name))
        return ObservedChildren(
            [
                child
                for kind in (Service, PodClique, PodCliqueScalingGroup)
                for child in self._cache.owned(kind, by=uid)
            ],
            [secret for secret in secrets if self._cache.get(Secret, Key(namespace, secret)) is not None],
            lambda: self._cache.by_index(Pod, SET, pcs.key),
            self.domains.enabled,
            lambda: self._cache.by_index(PodClique, SET, pcs.key),
            former,
        )

    def _is_short(self, pcs: PodCliqueSet) -> bool:
        """True if a standalone PodClique is missing."""
        there = {clique.metadata.name for clique in self._cache.owned(PodClique, by=pcs.metadata.uid)}
        names_of = standalone_names(pcs)
        return any(fqn not in there for replica in pcs.indexes for fqn, _ in names_of(replica))

    async def sync(self, pcs: PodCliqueSet, plan: ChildrenPlan) -> list[Changes]:
        """All kinds of children at once: a failure of one does not stop the rest.

        Only the RoleBinding and the token Secret come after the ServiceAccount. Neither is made for an account of
        another owner, and Kubernetes deletes the token of a missing account.

        Replicas that the set no longer has are deleted first, with gangs and Services before pods. Otherwise every
        deleted pod would be reported on a PodGang and an EndpointSlice that are deleted a moment later.
        """
        kinds, also = plan.kinds, {Service: plan.revisions, PodClique: plan.unreached}
        autoscaler = kinds.pop(HorizontalPodAutoscaler)
        for_account: tuple[type[Object], ...] = (RoleBinding, Secret)
        of_account = {kind: kinds.pop(kind) for kind in for_account if kind in kinds}
        self._access_in_use.discard(pcs.key)
        if plan.access_in_use:
            self._access_in_use.add(pcs.key)
        if plan.surplus:
            await self._remove_replicas(pcs, plan.surplus)
        async with asyncio.TaskGroup() as group:
            tasks = {
                kind: group.create_task(self._sync(pcs, kind, child, also=also.get(kind)))
                for kind, child in kinds.items()
            }
            for kind, child in of_account.items():
                without = plan.kept_secrets if kind is Secret else ()
                work = self._sync_for_account(pcs, kind, child, without, after=tasks[ServiceAccount])
                tasks[kind] = group.create_task(work)
            tasks[HorizontalPodAutoscaler] = group.create_task(self._sync_autoscalers(pcs, autoscaler))
            tasks[ResourceClaim] = group.create_task(self._sync_claims(pcs))
            if self.domains.enabled:
                tasks[ComputeDomain] = group.create_task(self.domains.sync(pcs, plan.replicas_with_pods))
        done = {kind: task.result() for kind, task in tasks.items()}
        for kind, changes in done.items():
            self._tell(pcs, kind, changes)
        return list(done.values())

    def waits_for_pods(self, pcs: Key) -> bool:
        """True if the end of a pod may allow the deletion of a child: a ComputeDomain, its token, a Service."""
        return self.domains.enabled or pcs in self._access_in_use or self.has_revisions(pcs)

    def has_revisions(self, pcs: Key) -> bool:
        cached = self._cache.get(PodCliqueSet, pcs)
        return cached is not None and has_revision_services(cached)

    async def _remove_replicas(self, pcs: PodCliqueSet, replicas: Collection[int]) -> None:
        gone: dict[type[Object], list[str]] = {}
        for child in await delete_replicas(self._cache, self._deps.client, pcs, replicas):
            if is_controlled_by(child, pcs):
                gone.setdefault(type(child), []).append(child.metadata.name)
        for kind, names_ in gone.items():
            self._tell(pcs, kind, Changes(deleted=sorted(names_)))

    async def _sync(
        self,
        pcs: PodCliqueSet,
        kind: type[Object],
        child: ChildKind,
        without: tuple[str, ...] = (),
        *,
        also: object = None,
    ) -> Changes:
        """`also` is what the wanted children are made from beside the set."""
        version = (pcs.metadata.generation, pcs.metadata.annotations, pcs.status.revisions, kept_replicas(pcs), also)
        return await self._deps.children.sync(
            kind, pcs, lambda: child.wanted(pcs), version=version, code=child.code, without=without
        )

    async def _sync_for_account(
        self,
        pcs: PodCliqueSet,
        kind: type[Object],
        child: ChildKind,
        without: tuple[str, ...],
        after: asyncio.Task[Changes],
    ) -> Changes:
        await asyncio.wait([after])
        account = self._cache.get(ServiceAccount, Key(pcs.metadata.namespace, names.service_account(pcs.metadata.name)))
        is_own = account is not None and is_controlled_by(account, pcs)
        is_foreign = not after.cancelled() and isinstance(after.result().error, Taken)
        if child.wanted(pcs) and not is_own:
            if not is_foreign:
                return Changes()  # the account is made later; that brings us back
            child = child._replace(wanted=lambda _pcs: [])  # what an earlier version gave the account goes
        return await self._sync(pcs, kind, child, without, also=is_foreign)

    async def _sync_autoscalers(self, pcs: PodCliqueSet, child: ChildKind) -> Changes:
        try:
            if await self._deps.optional.follow(HorizontalPodAutoscaler):
                return await self._sync(pcs, HorizontalPodAutoscaler, child)
        except KubeError as error:
            return Changes.after(child.code, "look for autoscalers", error)
        return Changes.without(child.code, HorizontalPodAutoscaler.RESOURCE) if child.wanted(pcs) else Changes()

    async def _sync_claims(self, pcs: PodCliqueSet) -> Changes:
        code = ErrorCode.SYNC_SET_RESOURCE_CLAIM
        try:
            if all_sharing(pcs) and not await self._deps.optional.follow(ResourceClaim):
                # Written here for all levels: one condition on the set, whichever of its parts shares something.
                return Changes.without(code, ResourceClaim.RESOURCE)
        except KubeError as error:
            return Changes.after(code, "look for ResourceClaims", error)
        return await self._deps.claims.sync(set_claims(pcs), code=code)

    def _tell(self, pcs: PodCliqueSet, kind: type[Object], changes: Changes) -> None:
        name, batches = kind.RESOURCE.kind, self._deps.event_batches
        child = CHILDREN.get(kind) or _DOMAIN_EVENTS.get(kind)
        if child is None:
            return
        if child.made:
            batches.add(pcs, child.made, f"created {name}", *changes.created)
            batches.add(pcs, child.made, f"updated {name}", *changes.patched)
            batches.add(pcs, child.removed, f"deleted {name}", *changes.deleted)
        for _, message in changes.errors[:1]:
            self._deps.events.warn(pcs, child.failed or f"{name}CreateOrUpdateFailed", message)
