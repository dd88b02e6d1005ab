"""Writes the ComputeDomains of a set: creates those that are wanted, removes the others.

A ComputeDomain is removed when no pod of its replica is left. It carries a finalizer of ours, so a domain that is
deleted by hand stays until then. Only clusters with the NVIDIA driver have the kind, and only sets with an MNNVL group
use it. The cache follows the kind for edits by hand; this module reads the objects from the API server.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import partial

import msgspec

from grove.api import labels
from grove.api.conditions import ErrorCode
from grove.api.core import COMPUTE_DOMAIN
from grove.api.meta import Json, Object
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from grove.kube.writes import Act, Refusals
from grove.operator.podcliqueset.compute_domains import surplus_compute_domains, wanted_compute_domains
from grove.operator.shared.cluster.children_writer import Changes, check_owner, taken
from grove.operator.shared.cluster.optional_kinds import OptionalKinds
from grove.operator.shared.cluster.pod_cleanup import ORPHAN
from grove.operator.shared.diff import adoption, finalizer_patch, is_left_behind, is_orphan, refers_to


class ComputeDomain(Object):
    """Of the driver's kind only the metadata is followed."""

    RESOURCE = COMPUTE_DOMAIN


class ComputeDomains:
    """Writes ComputeDomains; `enabled` is the operator's switch. While it is off, `SetChildren` calls no `sync`."""

    def __init__(self, client: Client, optional: OptionalKinds, *, enabled: bool) -> None:
        self._client, self._optional, self.enabled = client, optional, enabled
        self._has: set[str] = set()
        self._refusals = Refusals()

    async def sync(self, pcs: PodCliqueSet, replicas_with_pods: Collection[int]) -> Changes:
        changes, uid, code = Changes(), pcs.metadata.uid, ErrorCode.SYNC_COMPUTE_DOMAIN
        wanted = wanted_compute_domains(pcs)
        if not (wanted or uid in self._has or _may_have_had(pcs)):
            return changes
        self._has.add(uid)
        try:
            domains = await self._list(pcs) if await self._optional.follow(ComputeDomain) else None
        except KubeError as error:
            return Changes.after(code, "sync ComputeDomains", error)
        if domains is None:
            return Changes.without(code, COMPUTE_DOMAIN) if wanted else changes
        there = {domain["metadata"]["name"]: domain for domain in domains}
        acts: dict[str, Act] = {
            domain["metadata"]["name"]: partial(self._remove, domain, changes)
            for domain in surplus_compute_domains(pcs, domains, replicas_with_pods)
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
        """The set is being deleted: it releases its domains, also those from before the operator's switch was off.

        They stay if the deletion keeps its children; they may no longer refer to the set then.
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
            if not any(existing["metadata"]["name"] == name and refers_to(existing, pcs) for existing in now):
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
    """A set with 0 replicas needs no domain, but may still have some."""
    template = pcs.spec.template
    groups, cliques = template.pod_clique_scaling_groups, template.cliques
    levels = (
        pcs.metadata.annotations,
        *(group.annotations for group in groups),
        *(clique.annotations for clique in cliques),
    )
    return any(labels.MNNVL_GROUP in level for level in levels)
