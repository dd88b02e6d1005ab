"""ComputeDomains of a set: made for every replica and MNNVL group, removed when no pod of their replica is left.

They carry a finalizer of ours, so that one deleted by hand stays until its pods are gone. Only clusters with the NVIDIA
driver have the kind, and only sets with an MNNVL group use it: they are followed for what happens to them by hand, and
read when needed.
"""

from __future__ import annotations

from collections.abc import Collection

from grove.api import labels as key
from grove.api.conditions import ErrorCode
from grove.api.core import COMPUTE_DOMAIN
from grove.api.meta import Json, Object
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.client import Client
from grove.kube.errors import AlreadyExists, KubeError, NotFound
from grove.operator.podcliqueset.computedomains import surplus_compute_domains, wanted_compute_domains
from grove.operator.shared.cluster.children_writer import Changes
from grove.operator.shared.cluster.optional_kinds import OptionalKinds
from grove.operator.shared.diff import finalizer_patch


class ComputeDomain(Object):
    """Of the driver's kind only the metadata is followed."""

    RESOURCE = COMPUTE_DOMAIN


class ComputeDomains:
    """Writes ComputeDomains; `enabled` is the operator's switch. Off, existing ones are left alone."""

    def __init__(self, client: Client, optional: OptionalKinds, *, enabled: bool) -> None:
        self._client, self._optional, self.enabled = client, optional, enabled
        self._has: set[str] = set()

    async def sync(self, pcs: PodCliqueSet, replicas_with_pods: Collection[int]) -> Changes:
        changes = Changes()
        wanted = wanted_compute_domains(pcs)
        if not self.enabled or not (wanted or pcs.metadata.uid in self._has or _may_have_had(pcs)):
            return changes
        try:
            if not await self._optional.has(ComputeDomain):
                return Changes.without(ErrorCode.SYNC_COMPUTE_DOMAIN, COMPUTE_DOMAIN) if wanted else changes
            try:
                observed = await self._list(pcs)
            except NotFound:  # uninstalled a moment ago; the watch has not noticed yet
                return Changes.without(ErrorCode.SYNC_COMPUTE_DOMAIN, COMPUTE_DOMAIN) if wanted else changes
            for domain in surplus_compute_domains(pcs, observed, replicas_with_pods):
                await self._release(domain)
                changes.deleted.append(domain["metadata"]["name"])
            present = {domain["metadata"]["name"] for domain in observed}
            for domain in wanted:
                if domain["metadata"]["name"] not in present:
                    await self._create(domain)
                    changes.created.append(domain["metadata"]["name"])
        except KubeError as error:
            changes.failed(ErrorCode.SYNC_COMPUTE_DOMAIN, "sync ComputeDomains", error)
        self._has.add(pcs.metadata.uid)
        return changes

    async def release_all(self, pcs: PodCliqueSet) -> None:
        """The set goes: nothing may hold its domains any more, also those from before the operator's switch was off."""
        self._has.discard(pcs.metadata.uid)
        if not (self.enabled or _may_have_had(pcs)) or not await self._client.serves(COMPUTE_DOMAIN):
            return
        try:
            domains = await self._list(pcs)
        except NotFound:
            return  # the kind was uninstalled, and its objects with it
        for domain in domains:
            await self._release(domain)

    async def _list(self, pcs: PodCliqueSet) -> list[Json]:
        labels = f"{key.PART_OF}={pcs.metadata.name},{key.COMPONENT}={key.COMPUTE_DOMAIN}"
        page = await self._client.list(COMPUTE_DOMAIN, pcs.metadata.namespace, labels=labels)
        return [domain for domain in page.items if _is_owned(domain, pcs)]

    async def _create(self, domain: Json) -> None:
        try:
            await self._client.create(COMPUTE_DOMAIN, domain)
        except AlreadyExists:
            pass

    async def _release(self, domain: Json) -> None:
        meta = domain["metadata"]
        try:
            patch = finalizer_patch(
                meta.get("finalizers") or (), meta["resourceVersion"], key.COMPUTE_DOMAIN_FINALIZER, present=False
            )
            if patch is not None:
                await self._client.patch(COMPUTE_DOMAIN, meta["name"], patch, meta["namespace"])
            if "deletionTimestamp" not in meta:
                await self._client.delete(COMPUTE_DOMAIN, meta["name"], meta["namespace"], uid=meta["uid"])
        except NotFound:
            pass


def _may_have_had(pcs: PodCliqueSet) -> bool:
    """A set scaled to nothing wants no domain, but may still have some."""
    template = pcs.spec.template
    groups, cliques = template.pod_clique_scaling_groups, template.cliques
    levels = (pcs.metadata.annotations, *(one.annotations for one in groups), *(one.annotations for one in cliques))
    return any(key.MNNVL_GROUP in level for level in levels)


def _is_owned(domain: Json, pcs: PodCliqueSet) -> bool:
    return any(ref.get("uid") == pcs.metadata.uid for ref in domain["metadata"].get("ownerReferences") or ())
