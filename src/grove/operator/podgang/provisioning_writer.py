"""Writes the ProvisioningRequest of a gang and its PodTemplates, and removes them. `provisioning` decides.

The kind belongs to the cluster autoscaler. It is followed as soon as a gang asks for it. The request owns its
PodTemplates, so they are deleted with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from grove.api.core import Pod
from grove.api.podgang import PodGang
from grove.api.provisioning import POD_TEMPLATE, ProvisioningRequest
from grove.kube.errors import AlreadyExists, Conflict, NotFound
from grove.kube.wakes import forgetting
from grove.operator.podgang.provisioning import (
    NodesAsked,
    ProvisioningState,
    nodes_asked,
    not_served,
    provisioning_state,
    refusal,
    request_of,
    template_of,
    wait_before_next_s,
)
from grove.operator.shared.cluster.children_writer import delete, taken
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.diff import is_controlled_by, refers_to

SyncResult = tuple[ProvisioningState | None, float | None]
"""The condition of the gang about its request, and the seconds until the next reconcile."""
NOTHING: SyncResult = (None, None)


class ProvisioningRequests:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._complete: set[str] = set()
        """Uids of requests whose PodTemplates exist."""
        deps.optional.on_event(ProvisioningRequest, forgetting(self._complete.discard))

    async def sync(self, gang: PodGang, pods: Sequence[Pod]) -> SyncResult:
        """Makes the request of a gang, makes it again, or removes it."""
        asked = nodes_asked(gang, pods)
        if not await self._deps.optional.follow(ProvisioningRequest):
            return (not_served() if asked is not None else None), None
        request = self._deps.cache.get(ProvisioningRequest, gang.metadata.key)
        if request is not None and not is_controlled_by(request, gang):
            raise taken(ProvisioningRequest, request.metadata.name, gang)
        if request is not None and request.metadata.is_deleting:
            return NOTHING  # its end wakes the gang
        if asked is None:
            await self._remove(request)
            return NOTHING
        if (refused := refusal(asked)) is not None:
            await self._remove(request)
            return refused, None
        return await self._keep(gang, request, asked)

    async def _keep(self, gang: PodGang, request: ProvisioningRequest | None, asked: NodesAsked) -> SyncResult:
        again_s = wait_before_next_s(request, self._deps.clock.now()) if request is not None else None
        if request is not None and (again_s == 0.0 or not asked.is_met_by(request)):
            await self._remove(request)
            return NOTHING
        if request is None:
            request = await self._create(gang, asked)
        await self._complete_templates(gang, request, asked)
        return provisioning_state(request), again_s

    async def _create(self, gang: PodGang, asked: NodesAsked) -> ProvisioningRequest:
        client = self._deps.client
        try:
            made = await client.create(ProvisioningRequest, request_of(gang, asked))
        except AlreadyExists:
            made = await client.get(ProvisioningRequest, gang.metadata.name, gang.metadata.namespace)
            if not is_controlled_by(made, gang):
                raise taken(ProvisioningRequest, made.metadata.name, gang) from None
        return self._deps.cache.wrote(made)

    async def _complete_templates(self, gang: PodGang, request: ProvisioningRequest, asked: NodesAsked) -> None:
        if request.metadata.uid in self._complete:
            return
        client, namespace = self._deps.client, gang.metadata.namespace
        for name, pods in asked.pods.items():
            try:
                pod = await client.get(Pod.RESOURCE, pods[0].metadata.name, namespace)
            except NotFound:
                raise Conflict(f"Pod {pods[0].metadata.name} is gone") from None
            try:
                await client.create(POD_TEMPLATE, template_of(gang, request, name, pod))
            except AlreadyExists:
                there = await client.get(POD_TEMPLATE, name, namespace)
                if not refers_to(there, request):
                    raise Conflict(f"PodTemplate {name} of an earlier request is still being deleted") from None
        self._complete.add(request.metadata.uid)

    async def _remove(self, request: ProvisioningRequest | None) -> None:
        if request is not None:
            await delete(self._deps.client, self._deps.cache, request)
