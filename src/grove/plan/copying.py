"""A cluster to take along: what a real one (or a file) holds that matters to placement, to be loaded into a world.

Objects keep their names, uids and status, so gangs that run go on running in the copy. Owners that are not copied are
struck from owner references; otherwise the copy's garbage collector would tidy their pods away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from grove.api import core, labels
from grove.api.koordinator import Device, Reservation
from grove.api.meta import Json, Key, Resource
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound
from grove.plan.guests import QUEUES

PAGE = 1000
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")

_FIRST: tuple[Resource, ...] = (
    core.Namespace.RESOURCE,
    core.Node.RESOURCE,
    ClusterTopologyBinding.RESOURCE,
    core.PriorityClass.RESOURCE,
    core.StorageClass.RESOURCE,
    core.CSINode.RESOURCE,
    core.PersistentVolume.RESOURCE,
    core.PersistentVolumeClaim.RESOURCE,
    core.PodDisruptionBudget.RESOURCE,
    QUOTA,
    core.ServiceAccount.RESOURCE,
    core.DeviceClass.RESOURCE,
    core.ResourceSlice.RESOURCE,
    core.ResourceClaimTemplate.RESOURCE,
    core.ResourceClaim.RESOURCE,
    *QUEUES,
    Reservation.RESOURCE,
    Device.RESOURCE,
)
_NEEDED = (core.Node.RESOURCE, core.Pod.RESOURCE)
_OF_SETS: tuple[Resource, ...] = (
    PodCliqueSet.RESOURCE,
    PodCliqueScalingGroup.RESOURCE,
    PodClique.RESOURCE,
)


@dataclass(frozen=True, slots=True)
class Copy:
    """Objects by kind, in the order they are to be loaded. `unreadable` are kinds that could not be read."""

    objects: tuple[tuple[Resource, Json], ...] = ()
    unreadable: tuple[str, ...] = ()

    def of(self, resource: Resource) -> list[Json]:
        return [obj for kind, obj in self.objects if kind == resource]


async def copy_cluster(client: Client, sets: Collection[Key] | None = ()) -> Copy:
    """Reads a cluster.

    It copies all gangs and pods. It copies the objects that make an operator act only for `sets`, so that other sets
    stay as they are. None leaves everything as read, to be `limited` later.

    Raises Forbidden when nodes or pods cannot be read. Without other kinds the copy is only less exact.
    """
    unreadable: list[str] = []

    async def listed(resource: Resource) -> list[Json]:
        fields = UNFINISHED if resource == core.Pod.RESOURCE else ""
        items: list[Json] = []
        page = ""
        try:
            while True:
                got = await client.list(resource, fields=fields, limit=PAGE, next_page=page)
                items += got.items
                page = got.next_page
                if not page:
                    return items
        except Forbidden:
            if resource in _NEEDED:
                raise
            unreadable.append(resource.plural)
            return []
        except NotFound:
            return []  # a cluster that does not know the kind has none of it

    kinds = (*_FIRST, *_OF_SETS, PodGang.RESOURCE, core.Pod.RESOURCE)
    lists = await asyncio.gather(*(listed(kind) for kind in kinds))
    objects = [(kind, obj) for kind, items in zip(kinds, lists, strict=True) for obj in items]
    kept = objects if sets is None else limited(objects, sets)
    return Copy(tuple(kept), tuple(sorted(unreadable)))


def controllers_of(pods: Iterable[Json]) -> dict[str, str]:
    """The kind of each pod's controller by the pod's uid; of pods whose owners were not struck yet."""
    return {
        pod["metadata"]["uid"]: owner.get("kind", "")
        for pod in pods
        for owner in pod["metadata"].get("ownerReferences") or ()
        if owner.get("controller")
    }


def limited(objects: Iterable[tuple[Resource, Json]], sets: Collection[Key]) -> list[tuple[Resource, Json]]:
    """Objects for a copy of the cluster: of the kinds that an operator acts on, only those of these sets.

    References to owners that are left out are removed. Pods of other sets lose the label by which an operator follows
    them, so it does not read ten thousand of them.
    """
    kept = [(kind, obj) for kind, obj in objects if kind not in _OF_SETS or _set_of(kind, obj) in sets]
    known = {obj["metadata"].get("uid") for _, obj in kept}
    copied: list[tuple[Resource, Json]] = []
    for kind, obj in kept:
        meta: dict[str, Any] = {**obj["metadata"]}
        meta.pop("managedFields", None)
        if owners := meta.get("ownerReferences"):
            meta["ownerReferences"] = [owner for owner in owners if owner.get("uid") in known]
        if kind == core.Pod.RESOURCE and "labels" in meta and _set_of(kind, obj) not in sets:
            meta["labels"] = {**meta["labels"]}
            meta["labels"].pop(labels.MANAGED_BY, None)
        # Items of a list come without their kind; a stored object has it.
        copied.append((kind, {"apiVersion": kind.api_version, "kind": kind.kind, **obj, "metadata": meta}))
    return copied


def is_restless(pod: Json) -> bool:
    """True if a kubelet has work on a pod, or pods of an operator may wait until it is ready."""
    meta = pod["metadata"]
    is_up = (pod.get("status") or {}).get("phase") == "Running" and not pod["spec"].get("readinessGates")
    return not is_up or bool(meta.get("deletionTimestamp")) or labels.MANAGED_BY in (meta.get("labels") or ())


def _set_of(kind: Resource, obj: Json) -> Key:
    meta = obj["metadata"]
    if kind == PodCliqueSet.RESOURCE:
        return Key(meta.get("namespace", ""), meta["name"])
    return Key(meta.get("namespace", ""), (meta.get("labels") or {}).get(labels.PART_OF, ""))
