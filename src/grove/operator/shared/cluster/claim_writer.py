"""Shared ResourceClaims of a set, a scaling group or a clique: makes those that are wanted, removes the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from grove.api.core import ResourceClaim, ResourceClaimTemplate
from grove.api.meta import Json, Key, Object
from grove.api.podcliqueset import PodCliqueSet, ResourceSharing
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound
from grove.kube.store import Handler
from grove.operator.shared.claims import FindTemplate, WantedClaims
from grove.operator.shared.cluster.children_writer import Changes, Children
from grove.operator.shared.cluster.optional_kinds import OptionalKinds


class MissingTemplate(KubeError):
    """A claim cannot be made because nobody has made its template yet."""


def edited_claim_owner(kind: type[Object], wake: Callable[[Key], None]) -> Handler[Object]:
    """A handler that wakes the owner, of this kind, of a claim that was deleted or edited by hand."""

    def on_claim(old: Object | None, new: Object | None) -> None:
        if old is None or (new is not None and old.metadata.labels == new.metadata.labels):
            return
        owner = old.metadata.controller
        if owner is not None and owner.kind == kind.RESOURCE.kind:
            wake(Key(old.metadata.namespace, owner.name))

    return on_claim


class SharedClaims:
    """Writes shared claims. Templates outside the set are read when they are needed, not followed."""

    def __init__(self, cache: Cache, client: Client, children: Children, optional: OptionalKinds) -> None:
        self._cache, self._client, self._children, self._optional = cache, client, children, optional

    async def sync(
        self,
        pcs: PodCliqueSet,
        owner: Object,
        sharing: Iterable[ResourceSharing],
        wanted: Callable[[FindTemplate], WantedClaims],
        *,
        code: str,
    ) -> Changes:
        """Brings the claims of one owner to what `wanted` says, given the templates it asks for.

        Whatever the API server answers is told in `Changes`, never raised: the rest of the owner's children and its
        status do not wait for a template that cannot be read.
        """
        try:
            return await self._sync(pcs, owner, list(sharing), wanted, code)
        except KubeError as error:
            return Changes.after(code, "read ResourceClaimTemplates", error)

    async def _sync(
        self,
        pcs: PodCliqueSet,
        owner: Object,
        sharing: list[ResourceSharing],
        wanted: Callable[[FindTemplate], WantedClaims],
        code: str,
    ) -> Changes:
        if not sharing and not self._optional.follows(ResourceClaim):
            return Changes()
        if not sharing and not self._cache.owned(ResourceClaim, by=owner.metadata.uid):
            return Changes()
        if not await self._optional.has(ResourceClaim):
            return Changes.without(code, ResourceClaim.RESOURCE)
        templates = await self._templates(pcs, sharing)
        found = wanted(lambda namespace, name: templates.get((namespace, name)))
        names = [claim["metadata"]["name"] for claim in found.objects]
        changes = await self._children.sync(ResourceClaim, owner, lambda: found.objects, version=names, code=code)
        for template in found.missing_templates:
            changes.failed(
                code, "create ResourceClaim", MissingTemplate(f"there is no ResourceClaimTemplate {template}")
            )
        return changes

    async def _templates(self, pcs: PodCliqueSet, sharing: list[ResourceSharing]) -> dict[tuple[str, str], Json]:
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
