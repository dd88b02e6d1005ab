"""Deletes what an object has made when the object itself goes, in the order that costs the cluster least.

The garbage collector would come to the pods last, one by one, after everything between the object and its pods is gone.
Here PodGangs go first, so that no scheduler reports on gangs that are going, and Services with them, so that no pod
that goes has its EndpointSlice written. Then the pods and after them their PodCliques, by a few collection deletes at
once: the API server works each off one by one, and the garbage collector would ask twice about each. It is safe while
our finalizer holds the object: until that is off nobody can have made another of the same name, whose children would
carry the same labels. What fails is left to the garbage collector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from grove.api import labels, labelsets
from grove.api.core import Pod, Service
from grove.api.meta import Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.kube.client import Client
from grove.kube.errors import KubeError

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
    await asyncio.gather(*(_delete_all(client, pcs, kind, selector) for kind in (PodGang, Service)))
    replicas = [str(index) for index in range(pcs.spec.replicas)]
    chunks = [replicas[start::AT_ONCE] for start in range(min(AT_ONCE, len(replicas)))] if len(replicas) > 1 else []
    parts = [f"{selector},{labels.REPLICA_INDEX} in ({','.join(chunk)})" for chunk in chunks]
    await asyncio.gather(*(_delete_in_turn(client, pcs, (Pod, PodClique), part) for part in parts))
    # And those of replicas that were scaled away.
    await _delete_in_turn(client, pcs, (Pod, PodClique, PodCliqueScalingGroup), selector)


async def delete_ahead_of_clique(client: Client, clique: PodClique) -> None:
    """The pods of a clique that goes."""
    selector = f"{labels.POD_CLIQUE}={clique.metadata.name}"
    if await _has_children(client, clique, Pod, selector):
        await _delete_all(client, clique, Pod, selector)


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


async def _delete_all(client: Client, owner: Object, kind: type[Object], selector: str) -> None:
    try:
        await client.delete_collection(kind, owner.metadata.namespace, labels=selector)
    except KubeError as error:
        what = kind.RESOURCE.plural
        log.info("left to the garbage collector", owner=str(owner.key), what=what, error=str(error))
