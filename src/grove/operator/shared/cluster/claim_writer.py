"""Shared ResourceClaims of a set, a scaling group or a clique: creates those that are wanted, removes the others."""

from __future__ import annotations

from collections.abc import Iterable

from grove.api.core import ResourceClaim, ResourceClaimTemplate
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet, ResourceSharing
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound
from grove.operator.shared.claims import OwnedClaims
from grove.operator.shared.cluster.children_writer import Changes, ChildrenWriter
from grove.operator.shared.cluster.optional_kinds import OptionalKinds
from grove.operator.shared.cluster.sets import differ
from grove.operator.shared.layout import living


class MissingTemplate(KubeError):
    """A claim must wait because its template does not exist yet."""


def is_claim_edited(old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """True if a person deleted or edited a claim."""
    return old is not None and (new is None or differ(old, new, "labels", "owner_references"))


class ClaimWriter:
    """Writes shared claims. Templates outside the set are read when they are needed, not followed."""

    def __init__(self, cache: Cache, client: Client, children: ChildrenWriter, optional: OptionalKinds) -> None:
        self._cache, self._client, self._children, self._optional = cache, client, children, optional

    async def sync(self, claims: OwnedClaims, *, code: str) -> Changes:
        """Brings the claims of one owner to the wanted ones, given the templates they are made from.

        `Changes` carries every answer of the API server; nothing is raised. So a template that cannot be read does not
        delay the owner's other children and its status.
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
            wanted_claims = claims.wanted(lambda namespace, name: {})
            names = {claim["metadata"]["name"] for claim in wanted_claims.objects}
            if not names <= living(self._cache.owned(ResourceClaim, by=uid)).keys():
                templates = await self._templates(claims.pcs, claims.sharing)
                wanted_claims = claims.wanted(lambda namespace, name: templates.get((namespace, name)))
        except KubeError as error:
            return Changes.after(code, "read ResourceClaimTemplates", error)
        made = {claim["metadata"]["name"] for claim in wanted_claims.objects}
        changes = await self._children.sync(
            ResourceClaim, owner, lambda: wanted_claims.objects, version=made, code=code, without=names - made
        )
        for template in wanted_claims.missing_templates:
            changes.failed(
                code, "create ResourceClaim", MissingTemplate(f"there is no ResourceClaimTemplate {template}")
            )
        return changes

    async def _templates(self, pcs: PodCliqueSet, sharing: Iterable[ResourceSharing]) -> dict[tuple[str, str], Json]:
        """The inner specs of the templates that live outside the set, by namespace and name."""
        internal = {config.name for config in pcs.spec.template.resource_claim_templates}
        named = {
            (resource_sharing.namespace or pcs.metadata.namespace, resource_sharing.name)
            for resource_sharing in sharing
            if resource_sharing.namespace or resource_sharing.name not in internal
        }
        specs: dict[tuple[str, str], Json] = {}
        for namespace, name in sorted(named):
            try:
                template = await self._client.get(ResourceClaimTemplate.RESOURCE, name, namespace)
            except NotFound:
                continue
            specs[namespace, name] = (template.get("spec") or {}).get("spec") or {}
        return specs
