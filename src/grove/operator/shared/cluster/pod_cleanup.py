"""Deletes what an object has made when the object or a replica of it goes, in the order that costs the cluster least.

The garbage collector would come to the pods last, one by one, after everything between the object and its pods is gone.
Here PodGangs go first, so that no scheduler reports on gangs that are going, and Services with them, so that no pod
that goes has its EndpointSlice written. Then the pods and after them their PodCliques, by a few collection deletes at
once: the API server works each off one by one, and the garbage collector would ask twice about each. It is safe while
our finalizer holds the object: until that is off nobody can have made another of the same name, whose children would
carry the same labels. What fails is left to the garbage collector, or, of a set that stays, tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

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
from grove.operator.shared.cluster.sets import SET
from grove.operator.shared.diff import finalizer_patch
from grove.operator.shared.layout import replica_of

ORPHAN = "orphan"
"""Kubernetes' own finalizer on an object whose children its deleter wants to keep."""
AT_ONCE = 8
"""Collection deletes at a time."""

log = structlog.get_logger(__name__)


async def delete_ahead_of_set(client: Client, pcs: PodCliqueSet) -> None:
    """PodGangs and Services of a set that goes, then its pods, then its PodCliques and scaling groups."""
    selector = labelsets.set_selector(pcs.metadata.name)
    if not await _has_children(client, pcs, PodGang, selector):
        return
    gangs = asyncio.ensure_future(_delete_all(client, pcs, PodGang, selector))
    chunks = _chunks(range(pcs.spec.replicas)) if pcs.spec.replicas > 1 else []

    async def delete_part(part: str) -> None:
        await _delete_all(client, pcs, Service, part)
        await gangs
        await _delete_in_turn(client, pcs, (Pod, PodClique), part)

    await asyncio.gather(gangs, *(delete_part(_part(selector, chunk)) for chunk in chunks))
    # And those of replicas that were scaled away.
    await _delete_in_turn(client, pcs, (Service, Pod, PodClique, PodCliqueScalingGroup), selector)


async def delete_replicas(
    cache: Cache, client: Client, pcs: PodCliqueSet, replicas: Collection[int]
) -> list[Object]:  # fmt: skip
    """Services of replicas that a set does not want any more, then their pods, then their PodCliques and groups.

    The cache shows at once what is gone, which is returned. What fails is still to be deleted, one by one.
    """
    gone: list[Object] = []

    async def delete_part(part: str, of: frozenset[int]) -> None:
        for kind in (Service, Pod, PodClique, PodCliqueScalingGroup):
            found = [one for one in cache.by_index(kind, SET, pcs.key) if replica_of(one.metadata) in of]
            if found and await _delete_all(client, pcs, kind, part):
                gone.extend(found)
                for one in found:
                    cache.removed(one)

    selector, chunks = labelsets.set_selector(pcs.metadata.name), _chunks(sorted(replicas))
    await asyncio.gather(*(delete_part(_part(selector, chunk), frozenset(chunk)) for chunk in chunks))
    return gone


async def delete_ahead_of_clique(client: Client, clique: PodClique) -> None:
    """The pods of a clique that goes."""
    selector = f"{labels.POD_CLIQUE}={clique.metadata.name}"
    if await _has_children(client, clique, Pod, selector):
        await _delete_all(client, clique, Pod, selector)


async def release(client: Client, obj: Object, finalizer: str) -> None:
    """Takes our finalizer off an object that goes, if it is still there."""
    meta = obj.metadata
    patch = finalizer_patch(meta.finalizers, meta.resource_version, finalizer, present=False)
    if patch is not None:
        with suppress(NotFound):
            await client.patch(type(obj), meta.name, patch, meta.namespace)


async def _has_children(client: Client, owner: Object, child: type[Object], selector: str) -> bool:
    """Whether something that refers to the owner is there to delete.

    Not if the owner's deleter wants to keep its children. They have lost their reference to it by the time the
    finalizer that says so is off, which can be before we look; hence a question to the server, not to the cache.
    """
    if ORPHAN in owner.metadata.finalizers:
        return False
    try:
        page = await client.list(child, owner.metadata.namespace, labels=selector, limit=1)
    except KubeError as error:
        log.info("children are left to the garbage collector", owner=str(owner.key), error=str(error))
        return False
    return any(ref.uid == owner.metadata.uid for one in page.items for ref in one.metadata.owner_references)


async def _delete_in_turn(client: Client, owner: Object, kinds: Iterable[type[Object]], selector: str) -> None:
    for kind in kinds:
        await _delete_all(client, owner, kind, selector)


async def _delete_all(client: Client, owner: Object, kind: type[Object], selector: str) -> bool:
    """Whether it went well."""
    try:
        await client.delete_collection(kind, owner.metadata.namespace, labels=selector)
    except KubeError as error:
        log.info("not deleted together", owner=str(owner.key), what=kind.RESOURCE.plural, error=str(error))
        return False
    return True


def _chunks(replicas: Sequence[int]) -> list[Sequence[int]]:
    """Replicas for each of the collection deletes that go at once."""
    return [replicas[start::AT_ONCE] for start in range(min(AT_ONCE, len(replicas)))]


def _part(selector: str, replicas: Iterable[int]) -> str:
    return f"{selector},{labels.REPLICA_INDEX} in ({','.join(map(str, replicas))})"
