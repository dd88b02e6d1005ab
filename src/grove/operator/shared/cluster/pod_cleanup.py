"""Deletes the children of an object or of a replica, in the order that costs the cluster least.

The garbage collector would delete the pods last, one by one, after all objects between. Here the operator deletes
PodGangs first, so that no scheduler reports on them. It deletes the Services at the same time, so that no EndpointSlice
is written for a pod that terminates. Then it deletes the pods and after them their PodCliques, by a few collection
deletes at once. The API server works on each of these one by one, and the garbage collector would ask twice about each
object. Each collection delete reads every object of its kind in the namespace, so the children of a small set are
deleted by name.

This is safe while our finalizer holds the object: no other object of the same name can exist, whose children would
carry the same labels. An earlier object may have left children (deleted with orphans). If an object with those labels
has another owner or none, nothing is deleted by label. The garbage collector deletes what fails; for a set that stays,
the operator tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from grove.api import labels, labelsets
from grove.api.core import Pod, Service
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound
from grove.kube.writes import in_parallel
from grove.operator.shared.cluster.sets import SET, by_set
from grove.operator.shared.diff import finalizer_patch
from grove.operator.shared.layout import find_replica, replica_of

ORPHAN = "orphan"
"""Kubernetes' own finalizer on an object whose deletion keeps its children."""
AT_ONCE = 8
"""Collection deletes at a time."""
FEW = 16
"""The most children of a set that are deleted by name."""
STAGES: tuple[tuple[type[Object], ...], ...] = ((PodGang, Service), (Pod,), (PodClique, PodCliqueScalingGroup))
"""The kinds of children in the order of their deletion."""

log = structlog.get_logger(__name__)


async def delete_ahead_of_set(cache: Cache, client: Client, pcs: PodCliqueSet) -> None:
    """PodGangs and Services of a set that goes, then its pods, then its PodCliques and scaling groups."""
    selector, gang = labelsets.set_selector(pcs.metadata.name), next(iter(_shown(cache, pcs, PodGang)), None)
    if gang is None or _has_strangers(cache, pcs) or ORPHAN in pcs.metadata.finalizers:
        return
    stages = [[child for kind in kinds for child in _shown(cache, pcs, kind)] for kinds in STAGES]
    if sum(map(len, stages)) <= FEW:
        unchanged = await asyncio.gather(*(_delete_unchanged(client, child) for child in stages[0]))
        stages[0] = [child for child, is_deleted in zip(stages[0], unchanged, strict=True) if not is_deleted]
        if gang in stages[0] and not await _refers(client, pcs, gang):
            return
        for children in stages:
            await _delete_each(client, pcs, children)
        return
    if not await _refers(client, pcs, gang):
        return
    gangs = asyncio.ensure_future(_delete_shown(cache, client, pcs, PodGang, selector))
    chunks = _chunks(pcs.indexes) if pcs.spec.replicas > 1 else []

    async def delete_part(part: str) -> None:
        await _delete_all(client, pcs, Service, part)
        await gangs
        for kind in (Pod, PodClique):
            await _delete_all(client, pcs, kind, part)

    await asyncio.gather(gangs, *(delete_part(_part(selector, chunk)) for chunk in chunks))
    # And those of removed replicas.
    for kind in (Service, Pod, PodClique, PodCliqueScalingGroup):
        await _delete_shown(cache, client, pcs, kind, selector)


async def delete_replicas(cache: Cache, client: Client, pcs: PodCliqueSet, replicas: Collection[int]) -> list[Object]:
    """Services of replicas that a set does not want any more, then their pods, then their PodCliques and groups.

    The cache shows at once what is gone, which is returned. What fails is still to be deleted, one by one.
    """
    gone: list[Object] = []
    owners, name = _owners(cache, pcs), pcs.metadata.name

    def is_own(child: Object, of: frozenset[int]) -> bool:
        return _is_owned(child, owners) and find_replica(name, child.metadata.name) in of

    async def delete_part(part: str, of: frozenset[int]) -> None:
        for kind in (Service, Pod, PodClique, PodCliqueScalingGroup):
            labelled = [child for child in cache.by_index(kind, SET, pcs.key) if replica_of(child.metadata) in of]
            own = [child for child in labelled if is_own(child, of)]
            by_label = len(own) == len(labelled)
            if own and by_label:
                own = own if await _delete_all(client, pcs, kind, part) else []
            else:
                own = await _delete_each(client, pcs, own)
            gone.extend(own)
            for child in own:
                cache.removed(child, by_label=by_label)

    selector, chunks = labelsets.set_selector(pcs.metadata.name), _chunks(sorted(replicas))
    await asyncio.gather(*(delete_part(_part(selector, chunk), frozenset(chunk)) for chunk in chunks))
    return gone


async def delete_ahead_of_clique(cache: Cache, client: Client, clique: PodClique) -> None:
    """The pods of a clique that goes."""
    name, part_of = clique.metadata.name, clique.metadata.labels.get(labels.PART_OF, "")
    # By all labels that the cache follows pods by: a pod of another owner that carries one of them is not seen there.
    selector = f"{labelsets.set_selector(part_of)},{labels.POD_CLIQUE}={name}"
    pods = (pod for key in by_set(clique) for pod in cache.by_index(Pod, SET, key))
    pods = (pod for pod in pods if pod.metadata.labels.get(labels.POD_CLIQUE) == name and not pod.metadata.is_deleting)
    left = list(pods)
    if not left or any(_is_stranger(pod, {clique.metadata.uid}) for pod in left):
        return
    if ORPHAN not in clique.metadata.finalizers and await _refers(client, clique, left[0]):
        await _delete_all(client, clique, Pod, selector)


async def release(cache: Cache, client: Client, obj: Object, finalizer: str) -> None:
    """Takes our finalizer off an object that goes, if it is still there."""
    meta = obj.metadata
    patch = finalizer_patch(meta.finalizers, meta.resource_version, finalizer, present=False)
    if patch is not None:
        with suppress(NotFound):
            cache.wrote(await client.patch(type(obj), meta.name, patch, meta.namespace))


async def _delete_unchanged(client: Client, child: Object) -> bool:
    """Deletes a child if the server still has the version that the cache shows, and returns whether it did.

    Then the child still refers to its owner, and the request that `_refers` makes is not needed.
    """
    meta = child.metadata
    try:
        await client.delete(
            type(child), meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )
    except KubeError:
        return False
    return True


async def _refers(client: Client, owner: Object, child: Object) -> bool:
    """True if a child to delete exists and refers to its owner.

    A deletion that keeps the children removes their reference to the owner first, and then the finalizer that says so.
    That can happen before we look, so this asks the server and not the cache.
    """
    try:
        existing = await client.get(type(child), child.metadata.name, child.metadata.namespace)
    except KubeError as error:
        log.info("children are left to the garbage collector", owner=str(owner.key), error=str(error))
        return False
    return _is_owned(existing, {owner.metadata.uid})


def _has_strangers(cache: Cache, pcs: PodCliqueSet) -> bool:
    """True if an object has the labels of the set and another owner."""
    owners, kinds = _owners(cache, pcs), (PodGang, Service, Pod, PodClique, PodCliqueScalingGroup)
    return any(_is_stranger(child, owners) for kind in kinds for child in cache.by_index(kind, SET, pcs.key))


def _owners(cache: Cache, pcs: PodCliqueSet) -> set[str]:
    """UIDs of the set and of everything of it that owns something."""
    groups = {group.metadata.uid for group in cache.owned(PodCliqueScalingGroup, by=pcs.metadata.uid)}
    above = {pcs.metadata.uid, *groups}
    return above | {clique.metadata.uid for uid in above for clique in cache.owned(PodClique, by=uid)}


def _is_owned(child: Object, owners: Collection[str]) -> bool:
    return any(ref.uid in owners for ref in child.metadata.owner_references)


def _is_stranger(child: Object, owners: Collection[str]) -> bool:
    return not child.metadata.is_deleting and not _is_owned(child, owners)


async def _delete_shown(cache: Cache, client: Client, pcs: PodCliqueSet, kind: type[Object], selector: str) -> None:
    """Deletes the objects of a kind, if the cache shows one that is not being deleted.

    A small set has few kinds, and a request that deletes nothing costs the API server as much as one that deletes an
    object. The garbage collector deletes what the cache does not show yet.
    """
    if _shown(cache, pcs, kind):
        await _delete_all(client, pcs, kind, selector)


def _shown(cache: Cache, pcs: PodCliqueSet, kind: type[Object]) -> list[Object]:
    """The objects of a set that the cache shows, without those that terminate."""
    return [child for child in cache.by_index(kind, SET, pcs.key) if not child.metadata.is_deleting]


async def _delete_all(client: Client, owner: Object, kind: type[Object], selector: str) -> bool:
    """True if the API server deleted all children of one kind."""
    try:
        await client.delete_collection(kind, owner.metadata.namespace, labels=selector)
    except KubeError as error:
        log.info("not deleted together", owner=str(owner.key), what=kind.RESOURCE.plural, error=str(error))
        return False
    return True


async def _delete_each(client: Client, owner: Object, objects: Sequence[Object]) -> list[Object]:
    """Deletes one by one, and returns what is gone."""
    gone: list[Object] = []

    async def delete(child: Object) -> None:
        with suppress(NotFound):
            await client.delete(type(child), child.metadata.name, child.metadata.namespace, uid=child.metadata.uid)
        gone.append(child)

    for error in await in_parallel([partial(delete, child) for child in objects]):
        log.info("not deleted", owner=str(owner.key), error=str(error))
    return gone


def _chunks(replicas: Sequence[int]) -> list[Sequence[int]]:
    """Replicas for each of the collection deletes that go at once."""
    return [replicas[start::AT_ONCE] for start in range(min(AT_ONCE, len(replicas)))]


def _part(selector: str, replicas: Iterable[int]) -> str:
    return f"{selector},{labels.REPLICA_INDEX} in ({','.join(map(str, replicas))})"
