"""Shared ResourceClaims of a set, a scaling group or a clique, and the ComputeDomains of a set: makes those that are
wanted, removes the others.

A ComputeDomain is wanted for every replica and MNNVL group and goes when no pod of its replica is left; it carries a
finalizer of ours, so that one deleted by hand stays until then. Only clusters with the NVIDIA driver have the kind, and
only sets with an MNNVL group use it: they are followed for what happens to them by hand, and read when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

import msgspec

from grove.api import labels
from grove.api.conditions import ErrorCode
from grove.api.core import COMPUTE_DOMAIN, ResourceClaim, ResourceClaimTemplate
from grove.api.meta import Json, Key, Object
from grove.api.podcliqueset import PodCliqueSet, ResourceSharing
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from grove.kube.store import Handler
from grove.kube.writes import Act, Refusals
from grove.operator.shared.claims import OwnedClaims, surplus_compute_domains, wanted_compute_domains
from grove.operator.shared.cluster.children_writer import Changes, ChildrenWriter, check_owner, taken
from grove.operator.shared.cluster.optional_kinds import OptionalKinds
from grove.operator.shared.cluster.pod_cleanup import ORPHAN
from grove.operator.shared.cluster.sets import differ
from grove.operator.shared.diff import adoption, finalizer_patch, is_left_behind, is_orphan, refers_to
from grove.operator.shared.layout import living


class MissingTemplate(KubeError):
    """A claim cannot be made because nobody has made its template yet."""


def edited_claim_owner(kind: type[Object], wake: Callable[[Key], None]) -> Handler[Object]:
    """A handler that wakes the owner, of this kind, of a claim that was deleted or edited by hand."""

    def on_claim(old: Object | None, new: Object | None) -> None:
        if old is None or (new is not None and not differ(old, new, "labels", "owner_references")):
            return
        owner = old.metadata.controller
        if owner is not None and owner.kind == kind.RESOURCE.kind:
            wake(Key(old.metadata.namespace, owner.name))

    return on_claim


class ClaimWriter:
    """Writes shared claims. Templates outside the set are read when they are needed, not followed."""

    def __init__(self, cache: Cache, client: Client, children: ChildrenWriter, optional: OptionalKinds) -> None:
        self._cache, self._client, self._children, self._optional = cache, client, children, optional

    async def sync(self, claims: OwnedClaims, *, code: str) -> Changes:
        """Brings the claims of one owner to what is wanted, given the templates they are made from.

        Whatever the API server answers is told in `Changes`, never raised: the rest of the owner's children and its
        status do not wait for a template that cannot be read.
        """
        owner, uid = claims.owner, claims.owner.metadata.uid
        if not claims.sharing and not (
            self._optional.follows(ResourceClaim) and self._cache.owned(ResourceClaim, by=uid)
        ):
            return Changes()
        try:
            if not await self._optional.follow(ResourceClaim):
                return Changes.without(code, ResourceClaim.RESOURCE)
            # A claim has its spec from its template when it is made; those that are there stay, whatever became of it.
            found = claims.wanted(lambda namespace, name: {})
            names = {claim["metadata"]["name"] for claim in found.objects}
            if not names <= living(self._cache.owned(ResourceClaim, by=uid)).keys():
                templates = await self._templates(claims.pcs, claims.sharing)
                found = claims.wanted(lambda namespace, name: templates.get((namespace, name)))
        except KubeError as error:
            return Changes.after(code, "read ResourceClaimTemplates", error)
        made = {claim["metadata"]["name"] for claim in found.objects}
        changes = await self._children.sync(
            ResourceClaim, owner, lambda: found.objects, version=made, code=code, without=names - made
        )
        for template in found.missing_templates:
            changes.failed(
                code, "create ResourceClaim", MissingTemplate(f"there is no ResourceClaimTemplate {template}")
            )
        return changes

    async def _templates(self, pcs: PodCliqueSet, sharing: Iterable[ResourceSharing]) -> dict[tuple[str, str], Json]:
        """The inner specs of the templates that live outside the set, by namespace and name."""
        internal = {one.name for one in pcs.spec.template.resource_claim_templates}
        named = {
            (one.namespace or pcs.metadata.namespace, one.name)
            for one in sharing
            if one.namespace or one.name not in internal
        }
        found: dict[tuple[str, str], Json] = {}
        for namespace, name in sorted(named):
            try:
                template = await self._client.get(ResourceClaimTemplate.RESOURCE, name, namespace)
            except NotFound:
                continue
            found[namespace, name] = (template.get("spec") or {}).get("spec") or {}
        return found


class ComputeDomain(Object):
    """Of the driver's kind only the metadata is followed."""

    RESOURCE = COMPUTE_DOMAIN


class ComputeDomains:
    """Writes ComputeDomains; `enabled` is the operator's switch. Off, existing ones are left alone."""

    def __init__(self, client: Client, optional: OptionalKinds, *, enabled: bool) -> None:
        self._client, self._optional, self.enabled = client, optional, enabled
        self._has: set[str] = set()
        self._refusals = Refusals()

    async def sync(self, pcs: PodCliqueSet, replicas_with_pods: Collection[int]) -> Changes:
        changes, uid, code = Changes(), pcs.metadata.uid, ErrorCode.SYNC_COMPUTE_DOMAIN
        wanted = wanted_compute_domains(pcs)
        if not self.enabled or not (wanted or uid in self._has or _may_have_had(pcs)):
            return changes
        self._has.add(uid)
        try:
            found = await self._list(pcs) if await self._optional.follow(ComputeDomain) else None
        except KubeError as error:
            return Changes.after(code, "sync ComputeDomains", error)
        if found is None:
            return Changes.without(code, COMPUTE_DOMAIN) if wanted else changes
        there = {domain["metadata"]["name"]: domain for domain in found}
        acts: dict[str, Act] = {
            domain["metadata"]["name"]: partial(self._remove, domain, changes)
            for domain in surplus_compute_domains(pcs, found, replicas_with_pods)
        }
        for domain in wanted:
            name = domain["metadata"]["name"]
            if name not in there:
                acts[name] = partial(self._create, pcs, domain, changes)
            elif not refers_to(there[name], pcs):
                acts[name] = partial(self._adopt, pcs, domain, there[name], changes)
        for refused in await self._refusals.in_parallel(uid, "sync", acts):
            changes.failed(code, "sync ComputeDomains", refused)
        return changes

    async def release_all(self, pcs: PodCliqueSet) -> None:
        """The set goes: nothing may hold its domains any more, also those from before the operator's switch was off.

        They stay if the set's deleter wants to keep its children; by then they may refer to it no more.
        """
        self._has.discard(pcs.metadata.uid)
        self._refusals.forget(pcs.metadata.uid)
        if not (self.enabled or _may_have_had(pcs)) or not await self._client.serves(COMPUTE_DOMAIN):
            return
        stay = ORPHAN in pcs.metadata.finalizers
        for domain in await self._list(pcs) or ():
            if refers_to(domain, pcs) and not stay:
                await self._release(domain)
            elif refers_to(domain, pcs) or not domain["metadata"].get("ownerReferences"):
                await self._let_go(domain)

    async def _list(self, pcs: PodCliqueSet) -> list[Json] | None:
        """Those with the labels of the set; None if the kind was uninstalled a moment ago, and its objects with it."""
        selector = f"{labels.PART_OF}={pcs.metadata.name},{labels.COMPONENT}={labels.COMPUTE_DOMAIN}"
        try:
            return list((await self._client.list(COMPUTE_DOMAIN, pcs.metadata.namespace, labels=selector)).items)
        except NotFound:
            return None

    async def _create(self, pcs: PodCliqueSet, domain: Json, changes: Changes) -> None:
        name = domain["metadata"]["name"]
        try:
            await self._client.create(COMPUTE_DOMAIN, domain)
        except AlreadyExists:
            now = await self._list(pcs) or ()
            if not any(one["metadata"]["name"] == name and refers_to(one, pcs) for one in now):
                raise taken(ComputeDomain, name, pcs) from None
        changes.created.append(name)

    async def _adopt(self, pcs: PodCliqueSet, domain: Json, there: Json, changes: Changes) -> None:
        """Takes on a domain that an earlier set of the name was deleted without."""
        name, live = domain["metadata"]["name"], msgspec.convert(there, ComputeDomain, strict=False)
        if live.metadata.is_deleting or is_left_behind(live, pcs):
            raise Conflict(f"ComputeDomain {name} is still being deleted")
        if not is_orphan(live, domain):
            raise taken(ComputeDomain, name, pcs)
        await check_owner(self._client, pcs)
        patch = adoption(domain, live)
        patch["metadata"]["finalizers"] = sorted({*live.metadata.finalizers, labels.COMPUTE_DOMAIN_FINALIZER})
        await self._client.patch(COMPUTE_DOMAIN, name, patch, pcs.metadata.namespace)
        changes.patched.append(name)

    async def _remove(self, domain: Json, changes: Changes) -> None:
        await self._release(domain)
        changes.deleted.append(domain["metadata"]["name"])

    async def _release(self, domain: Json) -> None:
        meta = domain["metadata"]
        await self._let_go(domain)
        if "deletionTimestamp" not in meta:
            with suppress(NotFound):
                await self._client.delete(COMPUTE_DOMAIN, meta["name"], meta["namespace"], uid=meta["uid"])

    async def _let_go(self, domain: Json) -> None:
        meta = domain["metadata"]
        patch = finalizer_patch(
            meta.get("finalizers") or (), meta["resourceVersion"], labels.COMPUTE_DOMAIN_FINALIZER, present=False
        )
        if patch is not None:
            with suppress(NotFound):
                await self._client.patch(COMPUTE_DOMAIN, meta["name"], patch, meta["namespace"])


def _may_have_had(pcs: PodCliqueSet) -> bool:
    """A set scaled to nothing wants no domain, but may still have some."""
    template = pcs.spec.template
    groups, cliques = template.pod_clique_scaling_groups, template.cliques
    levels = (pcs.metadata.annotations, *(one.annotations for one in groups), *(one.annotations for one in cliques))
    return any(labels.MNNVL_GROUP in level for level in levels)
