"""Volumes as the live scheduler meets them: what a pod's claims allow, and telling a claim its node before the bind.

A claim that waits for its first consumer gets a volume that is there already, by name, or the annotation
`selected-node`, and the provisioner makes the volume there. The bind follows when the claim is bound. A provisioner
that cannot takes the annotation off again: the pod needs another place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from grove.api.core import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from grove.api.meta import Key
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotLeader
from grove.scheduler.model.facts import NodeTerms, PodFacts
from grove.scheduler.model.seams import NO_NEEDS, Needs, NodeSource
from grove.scheduler.volumes.claims import (
    SELECTED_NODE,
    Claims,
    claim_names,
    is_for_one_pod,
    matching_volumes,
    pod_volumes,
    reach,
)

CLAIM = "claim"
"""Index of pods by the volume claims they mount."""


class Storage(NodeSource):
    """Claims, volumes and classes from the cache. `changed` is called when one of them may help a waiting pod."""

    name = "volumes"

    def __init__(
        self, cache: Cache, client: Client, turns: asyncio.Semaphore, changed: Callable[[], None],
        reaches: Callable[[NodeTerms, str], bool],
    ) -> None:  # fmt: skip
        self._client, self._turns, self._reaches = client, turns, reaches
        self._find = cache.store(Pod).get
        self._claims = cache.add(PersistentVolumeClaim)
        self._volumes = cache.add(PersistentVolume)
        self._classes = cache.add(StorageClass)
        cache.add_index(Pod, CLAIM, _claim_keys)
        self._users = cache.store(Pod).by_index
        self._changed = changed
        self._news = asyncio.Event()
        cache.on_event(PersistentVolumeClaim, lambda old, new: self._told(old is None or new is None or old != new))
        cache.on_event(PersistentVolume, lambda old, new: self._told(old is None or new is None or old != new))
        cache.on_event(StorageClass, lambda old, new: self._told(True))
        cache.on_event(Pod, self._pod_changed)

    def needs(self, pod: Pod) -> Needs:
        """Where the pod's volumes can be reached, and why it cannot be placed at all, if so."""
        if not pod.spec.volumes:
            return NO_NEEDS
        nodes, blocked = ((), used) if (used := self._used_by_another(pod)) else pod_volumes(pod, self._known())
        return Needs(nodes=nodes, blocked=blocked)

    def _used_by_another(self, pod: Pod) -> str:
        """Says so if a claim that only one pod may use is used by one that runs."""
        for key in _claim_keys(pod):
            claim = self._claims.get(key)
            if claim is not None and is_for_one_pod(claim):
                users = self._users(CLAIM, key)
                if any(one.spec.node_name and one.metadata.uid != pod.metadata.uid for one in users):
                    return f'persistentvolumeclaim "{key.name}" is for one pod only, and another one uses it'
        return ""

    def unbound(self, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        """Claims of a pod that wait to be told a node."""
        for name in claim_names(pod):
            claim = self._claims.get(Key(pod.metadata.namespace, name))
            if claim is not None and not claim.spec.volume_name:
                yield claim

    def prepare(self, facts: PodFacts, deadline_s: float) -> Awaitable[str] | None:
        """Tells claims that wait for it their node, and waits for their volumes."""
        pod = self._find(Key(facts.namespace, facts.name))
        if pod is None or not pod.spec.volumes:
            return None
        claims = list(self.unbound(pod))
        return self._provision(claims, facts.node, deadline_s) if claims else None

    async def _provision(self, claims: list[PersistentVolumeClaim], node: str, deadline_s: float) -> str:
        try:
            for claim in claims:
                async with self._turns:
                    await self._tell(claim, node)
        except NotLeader:
            raise  # nobody's claim is at fault: the whole attempt ends
        except KubeError as err:
            return f"a volume claim could not be told its node: {err}"
        for claim in claims:
            if trouble := await self._bound(claim.metadata.key, node, deadline_s):
                return trouble
        return ""

    async def _tell(self, claim: PersistentVolumeClaim, node: str) -> None:
        volume = self._volume_at(claim, node)
        if volume is not None:
            await self._promise(volume, claim)
        else:
            patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
            await self._client.patch(PersistentVolumeClaim, claim.metadata.name, patch, claim.metadata.namespace)

    def _volume_at(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolume | None:
        """The smallest volume there is already that suits the claim and can be reached from the node."""
        for volume in matching_volumes(claim, self._volumes.list()):
            if all(self._reaches(terms, node) for terms in reach(volume)):
                return volume
        return None

    async def _promise(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Writes the claim into the volume; Kubernetes' volume controller does the rest. Conflicts if it is taken."""
        meta = claim.metadata
        if volume.spec.claim_ref is not None:
            return
        ours = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace, "name": meta.name,
            "uid": meta.uid,
        }  # fmt: skip
        patch = {"metadata": {"resourceVersion": volume.metadata.resource_version}, "spec": {"claimRef": ours}}
        await self._client.patch(PersistentVolume, volume.metadata.name, patch)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod that ends may leave a claim to another that only one may use."""
        if old is not None and old.spec.volumes and (new is None or new.is_finished):
            claims = (self._claims.get(key) for key in _claim_keys(old))
            if any(claim is not None and is_for_one_pod(claim) for claim in claims):
                self._changed()

    async def _bound(self, key: Key, node: str, deadline_s: float) -> str:
        """Waits until the claim has a volume; what went wrong otherwise."""
        told = False
        loop = asyncio.get_running_loop()
        while True:
            claim = self._claims.get(key)
            if claim is None:
                return f"volume claim {key} is gone"
            if claim.spec.volume_name:
                return ""
            selected = claim.metadata.annotations.get(SELECTED_NODE, "")
            if told and selected != node:
                return f"no volume for claim {key} could be made for node {node}"
            told = told or selected == node
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._news.wait()
            except TimeoutError:
                return f"volume claim {key} was not bound in time"
            if loop.time() >= deadline_s:
                return f"volume claim {key} was not bound in time"

    def _known(self) -> Claims:
        return Claims(
            claim=lambda namespace, name: self._claims.get(Key(namespace, name)),
            volume=lambda name: self._volumes.get(Key("", name)),
            storage_class=lambda name: self._classes.get(Key("", name)),
            volumes=self._volumes.list,
        )

    def _told(self, is_news: bool) -> None:
        if is_news:
            self._news.set()
            self._changed()


def _claim_keys(pod: Pod) -> list[Key]:
    return [Key(pod.metadata.namespace, name) for name in claim_names(pod)] if pod.spec.volumes else []
