"""A cluster to take along: what a real one (or a file) holds that matters to placement, to be loaded into a world.

Objects keep their names, uids and status, so gangs that run go on running in the copy. Owners that are not copied are
struck from owner references; otherwise the copy's garbage collector would tidy their pods away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from grove.api import core, labels
from grove.api.meta import Json, Key, Resource
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound

PAGE = 1000
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")

_FIRST: tuple[Resource, ...] = (
    core.Namespace.RESOURCE, core.Node.RESOURCE, ClusterTopologyBinding.RESOURCE, core.PriorityClass.RESOURCE,
    core.StorageClass.RESOURCE, core.CSINode.RESOURCE, core.PersistentVolume.RESOURCE,
    core.PersistentVolumeClaim.RESOURCE,
    core.PodDisruptionBudget.RESOURCE, QUOTA, core.ServiceAccount.RESOURCE, core.DeviceClass.RESOURCE,
    core.ResourceSlice.RESOURCE, core.ResourceClaimTemplate.RESOURCE, core.ResourceClaim.RESOURCE,
)  # fmt: skip
_NEEDED = (core.Node.RESOURCE, core.Pod.RESOURCE)
_OF_SETS: tuple[Resource, ...] = (
    PodCliqueSet.RESOURCE, PodCliqueScalingGroup.RESOURCE, PodClique.RESOURCE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Copy:
    """Objects by kind, in the order they are to be loaded. `blind` are kinds that could not be read.

    `controllers` has the kind of every pod's controller by the pod's uid, since owners that are not copied are struck.
    """

    objects: tuple[tuple[Resource, Json], ...] = ()
    blind: tuple[str, ...] = field(default=())
    controllers: Mapping[str, str] = field(default_factory=dict)

    def of(self, resource: Resource) -> list[Json]:
        return [obj for kind, obj in self.objects if kind == resource]


async def copy_cluster(client: Client, sets: Collection[Key] | None = ()) -> Copy:
    """Reads a cluster. Gangs and pods are copied all; the objects that make an operator act only for `sets`, because
    sets that nobody asks about shall stay as they are. None leaves everything as read, to be `limited` later.

    Raises Forbidden when nodes or pods cannot be read; without other kinds the copy is only less exact.
    """
    blind: list[str] = []

    async def listed(resource: Resource) -> list[Json]:
        fields = UNFINISHED if resource == core.Pod.RESOURCE else ""
        found: list[Json] = []
        page = ""
        try:
            while True:
                got = await client.list(resource, fields=fields, limit=PAGE, next_page=page)
                found += got.items
                page = got.next_page
                if not page:
                    return found
        except Forbidden:
            if resource in _NEEDED:
                raise
            blind.append(resource.plural)
            return []
        except NotFound:
            return []  # a cluster that does not know the kind has none of it

    kinds = (*_FIRST, *_OF_SETS, PodGang.RESOURCE, core.Pod.RESOURCE)
    lists = await asyncio.gather(*(listed(kind) for kind in kinds))
    objects = [(kind, one) for kind, found in zip(kinds, lists, strict=True) for one in found]
    kept = objects if sets is None else limited(objects, sets)
    return Copy(tuple(kept), tuple(sorted(blind)), dict(_controllers(lists[-1])))


def _controllers(pods: Iterable[Json]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                yield pod["metadata"]["uid"], owner.get("kind", "")


def limited(objects: Iterable[tuple[Resource, Json]], sets: Collection[Key]) -> list[tuple[Resource, Json]]:
    """The objects, of the kinds an operator acts on only those of these sets; owners that are left out are struck.

    Pods of other sets lose the label by which an operator follows them: to it they are anybody's, and ten thousand of
    them need not be read twice.
    """
    kept = []
    for kind, one in objects:
        concerned = _set_of(kind, one) in sets
        if kind in _OF_SETS and not concerned:
            continue
        kept.append((kind, one if concerned or kind != core.Pod.RESOURCE else _unmanaged(one)))
    return _without_strangers(kept)


def _unmanaged(pod: Json) -> Json:
    meta = pod["metadata"]
    marks = {key: value for key, value in (meta.get("labels") or {}).items() if key != labels.MANAGED_BY}
    return {**pod, "metadata": {**meta, "labels": marks}}


def _set_of(kind: Resource, obj: Json) -> Key:
    meta = obj["metadata"]
    if kind == PodCliqueSet.RESOURCE:
        return Key(meta.get("namespace", ""), meta["name"])
    return Key(meta.get("namespace", ""), (meta.get("labels") or {}).get(labels.PART_OF, ""))


def _without_strangers(objects: Iterable[tuple[Resource, Json]]) -> list[tuple[Resource, Json]]:
    """The objects, each with owners only that are among them."""
    every = list(objects)
    known = {obj["metadata"].get("uid") for _, obj in every}
    found: list[tuple[Resource, Json]] = []
    for kind, obj in every:
        meta: dict[str, Any] = obj["metadata"]
        owners = meta.get("ownerReferences")
        if owners:
            meta = {**meta, "ownerReferences": [one for one in owners if one.get("uid") in known]}
        # Items of a list come without their kind; a stored object has it.
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        found.append((kind, {**whole, "metadata": {k: v for k, v in meta.items() if k != "managedFields"}}))
    return found
