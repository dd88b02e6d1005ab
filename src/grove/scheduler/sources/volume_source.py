"""Volumes as a source: which nodes a pod's claims allow, the node that is written on a claim, and attach limits.

A claim that waits for its first consumer gets an existing volume by name. Otherwise it gets the annotation
`selected-node`, and the provisioner makes the volume there. The bind follows when the claim is bound. A provisioner
that cannot make the volume removes the annotation, and then the pod needs another place.

Attach limits (CSINode) count like any other resource of a node. A volume that is attached counts once, also if many
pods use it. A waiting pod counts with all its volumes, even with those that the node has already. So the scheduler may
refuse a node that would just suffice, but never accepts one that does not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress

from grove.api.core import CSINode, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from grove.api.meta import Key, Object
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotLeader
from grove.scheduler.model.facts import PodFacts, Requests
from grove.scheduler.model.seams import NO_NEEDS, Needs, Refusal
from grove.scheduler.sources.node_sources import FollowedCluster, FollowedSource
from grove.scheduler.sources.volume_promises import VolumePromises
from grove.scheduler.volumes.volume_claims import (
    NO_PROVISIONER,
    SELECTED_NODE,
    VolumeClaims,
    claim_names,
    is_for_one_pod,
    pod_volumes,
)

CLAIM = "claim"
"""Index of pods by the volume claims they mount."""
AT = "attached at"
"""Index of pods with volume claims by their node."""
ATTACHED = "attachable-volumes-csi-"
"""How the names of counted volumes begin, among a node's resources; the driver's name follows."""
UNLIMITED = 2**40

Volume = tuple[str, str]
"""Driver, and what it calls the volume; before there is one, what Kubernetes calls the claim."""


class VolumeSource(FollowedSource):
    """Claims, volumes and classes from the cache. Requests are among the `turns` that binds share."""

    name = "volumes"
    counts = ATTACHED

    def __init__(self, cluster: FollowedCluster, client: Client, turns: asyncio.Semaphore) -> None:
        super().__init__(cluster)
        self._turns = turns
        self._claims = cluster.cache.add(PersistentVolumeClaim)
        self._volumes = cluster.cache.add(PersistentVolume)
        self._classes = cluster.cache.add(StorageClass)
        self._known = VolumeClaims(
            claim=lambda namespace, name: self._claims.get(Key(namespace, name)),
            volume=lambda name: self._volumes.get(Key("", name)),
            storage_class=lambda name: self._classes.get(Key("", name)),
            volumes=self._volumes.list,
        )
        self._promises = VolumePromises(self._known, cluster.meets, client, self._volumes)
        self._news = asyncio.Event()
        self._limits: dict[str, dict[str, int]] = {}
        """Volumes that a node takes of each driver that limits them."""
        self._drivers: Counter[str] = Counter()
        self._coming: dict[str, dict[str, Pod]] = {}
        """Pods that have a place and no binding yet, by node and uid."""
        self._place: dict[str, str] = {}
        """Node of those by uid."""
        self._alone: set[str] = set()
        """Pods that have a place and no binding yet, and a claim that is for one pod, by uid."""

    def follow(self) -> None:
        self._cache.add_index(Pod, CLAIM, _claim_keys)
        self._cache.add_index(Pod, AT, _node_of)
        self._cache.on_event(PersistentVolumeClaim, self._claim_changed)
        self._cache.on_event(PersistentVolume, self._volume_changed)
        self._cache.on_event(StorageClass, self._object_changed)
        self._cache.on_event(CSINode, self._limits_changed)
        self._cache.on_event(Pod, self._pod_changed)

    # What there is

    def amounts(self, node: str) -> dict[str, int]:
        """How many more volumes of each limited driver the node takes."""
        if not self._drivers:
            return {}
        pods = (*self._cluster.pods.by_index(AT, node), *self._coming.get(node, {}).values())
        there = {volume for pod in pods for volume in self._volumes_of(pod)}
        used = Counter(driver for driver, _ in there)
        limits = self._limits.get(node, {})
        return {f"{ATTACHED}{driver}": limits.get(driver, UNLIMITED) - used[driver] for driver in self._drivers}

    def needs(self, pod: Pod) -> Needs:
        """Where the pod's volumes can be reached, what they count there, and why it cannot be placed at all, if so."""
        if not pod.spec.volumes:
            return NO_NEEDS
        nodes, blocked = ((), used) if (used := self._used_by_another(pod)) else pod_volumes(pod, self._known)
        return Needs(self._counted(pod), nodes, blocked)

    def _counted(self, pod: Pod) -> Requests:
        if not self._drivers:
            return ()
        count = Counter(driver for driver, _ in self._volumes_of(pod) if driver in self._drivers)
        return tuple(sorted((f"{ATTACHED}{driver}", number) for driver, number in count.items()))

    def _used_by_another(self, pod: Pod) -> str:
        """Says so if a claim that only one pod may use is used by one that runs, or has its place."""
        for claim in filter(is_for_one_pod, self._claims_of(pod)):
            users = (user for user in self._users(claim.metadata.key) if user.metadata.uid != pod.metadata.uid)
            if any(self._cluster.counted.node_of(user) or user.metadata.uid in self._alone for user in users):
                return f'persistentvolumeclaim "{claim.metadata.name}" is for one pod only, and another one uses it'
        return ""

    def _users(self, claim: Key) -> Sequence[Pod]:
        return self._cluster.pods.by_index(CLAIM, claim)

    def _claims_of(self, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        """Claims of a pod that exist."""
        return (claim for key in _claim_keys(pod) if (claim := self._claims.get(key)) is not None)

    def _volumes_of(self, pod: Pod) -> set[Volume]:
        return {volume for claim in self._claims_of(pod) if (volume := self._volume_of(claim)) is not None}

    def _volume_of(self, claim: PersistentVolumeClaim) -> Volume | None:
        if claim.spec.volume_name:
            volume = self._volumes.get(Key("", claim.spec.volume_name))
            csi = volume.spec.csi if volume is not None else None
            return (str(csi.get("driver", "")), str(csi.get("volumeHandle", ""))) if csi else None
        kind = self._classes.get(Key("", claim.spec.storage_class_name or ""))
        made_by = kind.provisioner if kind is not None else ""
        return (made_by, str(claim.metadata.key)) if made_by and made_by != NO_PROVISIONER else None

    # The life of a placement

    def _promise(self, node: str, pods: Sequence[PodFacts]) -> Refusal | None:
        """Sets volumes aside for pods on the node that was chosen for them; a claim for one pod is the first one's."""
        pods_here = map(self._pod, pods) if len(self._claims) else ()
        mounting = [pod for pod in pods_here if pod is not None and pod.spec.volumes]
        if used := next(filter(None, map(self._keep_alone, mounting)), ""):
            return Refusal("", used)
        wanted = {pod.metadata.uid: claims for pod in mounting if (claims := self._open_claims(pod))}
        if wanted and (refused := self._promises.promise(node, wanted)) is not None:
            return refused
        for facts in filter(self._is_asked, pods):
            if (pod := self._pod(facts)) is not None:
                self._coming.setdefault(node, {})[facts.uid] = pod
                self._place[facts.uid] = node
                self._stale.add(node)
        return None

    def _keep_alone(self, pod: Pod) -> str:
        """Keeps claims for one pod to this one; says so if another one was first."""
        alone = [claim.metadata.key for claim in self._claims_of(pod) if is_for_one_pod(claim)]
        if alone and not (used := self._used_by_another(pod)):
            self._alone.add(pod.metadata.uid)
            for other in (user for key in alone for user in self._users(key)):
                self._cluster.reader.read_again(other.metadata.key)
        return used if alone else ""

    def release(self, uid: str) -> None:
        """The pod will not be bound there after all, or it is bound and counts as such."""
        had_volumes = self._promises.release(uid)
        if uid in self._alone or had_volumes:
            self._alone.discard(uid)
            if uid in self._cluster.counted.reserved:  # others may have what it was promised
                self._cluster.reader.help_dependents()
        node = self._place.pop(uid, None)
        if node is not None:
            self._coming[node].pop(uid)
            if not self._coming[node]:
                del self._coming[node]
            self._stale.add(node)

    def prepare(self, facts: PodFacts, deadline_s: float) -> Awaitable[str] | None:
        """Writes the node on claims that wait for one, and waits for their volumes."""
        pod = self._pod(facts)
        if pod is None or not pod.spec.volumes:
            return None
        claims = self._open_claims(pod)
        return self._provision(claims, facts.node, deadline_s) if claims else None

    def _open_claims(self, pod: Pod) -> list[PersistentVolumeClaim]:
        """Claims that have no volume yet."""
        return [claim for claim in self._claims_of(pod) if not claim.spec.volume_name]

    async def _provision(self, claims: list[PersistentVolumeClaim], node: str, deadline_s: float) -> str:
        try:
            for claim in claims:
                async with self._turns:
                    if trouble := await self._promises.tell(claim, node):
                        return trouble
        except NotLeader:
            raise  # no claim is at fault: the whole attempt ends
        except KubeError as err:
            return f"the node could not be written to a volume claim: {err}"
        for claim in claims:
            if trouble := await self._bound(claim.metadata.key, node, deadline_s):
                return trouble
        return ""

    async def _bound(self, key: Key, node: str, deadline_s: float) -> str:
        """Waits until the claim has a volume; what went wrong otherwise."""
        was_selected = False
        loop = asyncio.get_running_loop()
        while True:
            claim = self._claims.get(key)
            if claim is None:
                return f"volume claim {key} is gone"
            if claim.spec.volume_name:
                return ""
            selected = claim.metadata.annotations.get(SELECTED_NODE, "")
            if was_selected and selected != node:
                return f"no volume for claim {key} could be made for node {node}"
            was_selected = was_selected or selected == node
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s):
                    await self._news.wait()
            if loop.time() >= deadline_s:
                return f"volume claim {key} was not bound in time"

    # Events

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None or not pod.spec.volumes:
            return
        before, after = _node_of(old), _node_of(new)
        if before != after:
            self._stale.update(before, after)
            self.release(pod.metadata.uid)
        # One that ends may leave a claim to another that only one may use.
        if old is not None and (new is None or new.is_finished) and any(map(is_for_one_pod, self._claims_of(old))):
            self._cluster.reader.help_dependents()

    def _object_changed(self, old: Object | None, new: Object | None) -> None:
        if old != new:
            self._news.set()
            self._cluster.reader.help_dependents()

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        self._object_changed(old, new)
        if old is None or new is None or old.spec.volume_name != new.spec.volume_name:
            self._recount_users((new or old).metadata.key)  # type: ignore[union-attr]

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        self._promises.volumes_changed()
        self._object_changed(old, new)
        ref = (new or old).spec.claim_ref  # type: ignore[union-attr]
        if ref and (old is None or new is None):
            self._recount_users(Key(str(ref.get("namespace", "")), str(ref.get("name", ""))))

    def _recount_users(self, claim: Key) -> None:
        self._stale.update(pod.spec.node_name for pod in self._users(claim) if pod.spec.node_name)

    def _limits_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        name = (new or old).metadata.name  # type: ignore[union-attr]
        before, after = self._limits.pop(name, {}), _limits(new)
        if after:
            self._limits[name] = after
        if before == after:
            return
        known = set(self._drivers)
        self._drivers.update(after.keys())
        self._drivers.subtract(before.keys())
        self._drivers = +self._drivers
        if set(self._drivers) != known:
            self._stale.update(node.metadata.name for node in self._cluster.nodes.list())
        self._stale.add(name)
        self._cluster.reader.help_dependents()


def _claim_keys(pod: Pod) -> list[Key]:
    return [Key(pod.metadata.namespace, name) for name in claim_names(pod)] if pod.spec.volumes else []


def _limits(node: CSINode | None) -> dict[str, int]:
    """Volumes by driver, for drivers that say so."""
    drivers = node.spec.drivers if node is not None else ()
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable and driver.allocatable.count is not None
    }


def _node_of(pod: Pod | None) -> list[str]:
    return [pod.spec.node_name] if pod is not None and pod.spec.node_name and _claim_keys(pod) else []
