"""Claims for volumes are bound while a plan is played, as the volume controllers of Kubernetes bind them.

A claim is bound to a PersistentVolume that matches, or to a new one if its class has a provisioner. A claim that waits
for its first pod is bound when the scheduler has chosen a volume or a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grove.api.meta import Json
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.diagnosis.causes import LATER, NO_PROVISIONER, asked_of, is_default, suits
from grove.plan.world import World
from grove.scheduler.volumes.volume_claims import SELECTED_NODE

BOUND = "Bound"
PERIOD_S = 1.0


@asynccontextmanager
async def binding_volumes(world: World) -> AsyncIterator[None]:
    """Binds claims of a world until the block ends. It does nothing if no claim waits."""
    if not _waiting(world):
        yield
        return
    await _bind_all(world)
    task = asyncio.get_running_loop().create_task(_again(world))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _again(world: World) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        await _bind_all(world)


def _waiting(world: World) -> list[PersistentVolumeClaim]:
    stored = world.cluster.server.store.collection(PersistentVolumeClaim.RESOURCE).objects
    return [
        version.view(PersistentVolumeClaim)
        for _, version in sorted(stored.items())
        if (version.json.get("status") or {}).get("phase") not in (BOUND, "Lost")
    ]


async def _bind_all(world: World) -> None:
    classes = {storage_class.metadata.name: storage_class for storage_class in world.all(StorageClass)}
    for claim in _waiting(world):
        named = claim.spec.storage_class_name
        if named is None:
            named = next((name for name, storage_class in classes.items() if is_default(storage_class)), "")
        volumes = world.all(PersistentVolume)
        own = classes.get(named)
        chosen = next((volume for volume in volumes if _is_for(volume, claim)), None)
        if own is None or own.volume_binding_mode != LATER:
            chosen = chosen or next((volume for volume in volumes if suits(volume, claim, named)), None)
        elif chosen is None and SELECTED_NODE not in claim.metadata.annotations:
            continue
        if chosen is not None:
            await _bind(world, claim, named, chosen.metadata.name)
        elif own is not None and own.provisioner not in ("", NO_PROVISIONER):
            await _bind(world, claim, named, await _provision(world, claim, own))


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if the volume is promised to the claim."""
    ref, key = volume.spec.claim_ref or {}, claim.metadata.key
    return (ref.get("namespace"), ref.get("name")) == (key.namespace, key.name)


async def _provision(world: World, claim: PersistentVolumeClaim, own: StorageClass) -> str:
    """A new volume where the class allows volumes."""
    key = claim.metadata.key
    name = f"of-{key.namespace}-{key.name}"
    modes, named = list(claim.spec.access_modes), own.metadata.name
    spec: Json = {"storageClassName": named, "accessModes": modes, "capacity": asked_of(claim)}
    terms = [
        {"matchExpressions": [{"operator": "In", **each} for each in topology.get("matchLabelExpressions") or ()]}
        for topology in own.allowed_topologies
    ]
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    await world.client.create(PersistentVolume, {"metadata": {"name": name}, "spec": spec})
    return name


async def _bind(world: World, claim: PersistentVolumeClaim, named: str, volume: str) -> None:
    key, status = claim.metadata.key, {"status": {"phase": BOUND}}
    ref = {"kind": "PersistentVolumeClaim", "namespace": key.namespace, "name": key.name, "uid": claim.metadata.uid}
    await world.client.patch(PersistentVolume, volume, {"spec": {"claimRef": ref}})
    await world.client.patch(PersistentVolume, volume, status, subresource="status")
    spec = {"volumeName": volume, "storageClassName": named}
    await world.client.patch(PersistentVolumeClaim, key.name, {"spec": spec}, key.namespace)
    await world.client.patch(PersistentVolumeClaim, key.name, status, key.namespace, subresource="status")
