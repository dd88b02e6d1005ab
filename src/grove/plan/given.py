"""Objects beside PodCliqueSets in the files of `plan -f`: the copy gets them before the sets, as if they were applied.

Kinds whose controllers a copy does not have are left out and named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grove.api import core, labels
from grove.api.meta import Json, Key, Resource
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.causes import (
    CLAIM,
    CONFIG_MAP,
    SECRET,
    Cause,
    Reference,
    Referred,
    causes,
    references,
    references_of,
)
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound
from grove.plan.copying import QUOTA
from grove.plan.guests import GUESTS
from grove.plan.world import World

_RBAC = "rbac.authorization.k8s.io"
PLAYED: tuple[Resource, ...] = (
    core.Namespace.RESOURCE,
    core.ServiceAccount.RESOURCE,
    core.PriorityClass.RESOURCE,
    StorageClass.RESOURCE,
    PersistentVolume.RESOURCE,
    PersistentVolumeClaim.RESOURCE,
    core.Secret.RESOURCE,
    core.ConfigMap.RESOURCE,
    core.Service.RESOURCE,
    QUOTA,
    core.PodDisruptionBudget.RESOURCE,
    core.DeviceClass.RESOURCE,
    core.ResourceClaimTemplate.RESOURCE,
    core.ResourceClaim.RESOURCE,
    ClusterTopologyBinding.RESOURCE,
    *GUESTS,
    core.Role.RESOURCE,
    core.RoleBinding.RESOURCE,
    Resource(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False),
    Resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
)
"""Kinds of which a copy can take objects, in the order in which it takes them."""
_PLAYED = {(kind.api_version, kind.kind): kind for kind in PLAYED}


@dataclass(frozen=True, slots=True)
class Given:
    """The objects of files. `left_out` are the kinds of objects that a copy cannot play."""

    sets: tuple[Json, ...] = ()
    objects: tuple[tuple[Resource, Json], ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """Secrets and ConfigMaps of the cluster that sets refer to: the keys of each, None if it does not exist."""

    keys: Mapping[tuple[str, Key], frozenset[str] | None] = field(default_factory=dict)


def given_in(manifests: Iterable[Json], namespace: str) -> Given:
    """Sorts the objects of files."""
    sets: list[Json] = []
    objects: list[tuple[Resource, Json]] = []
    left_out: set[str] = set()
    for manifest in manifests:
        if manifest["kind"] == PodCliqueSet.RESOURCE.kind:
            sets.append(manifest)
            continue
        resource = _PLAYED.get((manifest.get("apiVersion", ""), manifest["kind"]))
        if resource is None:
            left_out.add(manifest["kind"])
            continue
        meta = {**manifest["metadata"]}
        if resource.namespaced:
            meta.setdefault("namespace", namespace)
        given = {**manifest, "metadata": meta}
        if strings := given.pop("stringData", None):
            given["data"] = {**(given.get("data") or {}), **dict.fromkeys(strings, "")}  # no value is read
        objects.append((resource, given))
    objects.sort(key=lambda pair: PLAYED.index(pair[0]))
    return Given(tuple(sets), tuple(objects), tuple(sorted(left_out)))


async def apply_given(world: World, given: Sequence[tuple[Resource, Json]]) -> None:
    """Creates the objects in a world, or changes those that exist."""
    store = world.cluster.server.store
    for resource, obj in given:
        meta = obj["metadata"]
        key = Key(meta.get("namespace", ""), meta["name"])
        if key in store.collection(resource).objects:
            marks = {name: meta[name] for name in ("labels", "annotations") if name in meta}
            rest = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "status")}
            await world.client.patch(resource, key.name, {**rest, "metadata": marks}, key.namespace)
            continue
        await world.client.create(resource, obj)
        if resource == core.Namespace.RESOURCE:
            account = {"metadata": {"name": "default", "namespace": key.name}}
            await world.client.create(core.ServiceAccount.RESOURCE, account)


async def read_known(client: Client, sets: Iterable[Json], namespace: str) -> KnownObjects:
    """Reads the Secrets and ConfigMaps that sets refer to; those that the user may not read are left out."""
    keys: dict[tuple[str, Key], frozenset[str] | None] = {}
    kinds: dict[str, type[core.Secret] | type[core.ConfigMap]] = {SECRET: core.Secret, CONFIG_MAP: core.ConfigMap}
    for pcs in sets:
        where = pcs["metadata"].get("namespace") or namespace
        for ref in _of_set(pcs):
            if ref.kind not in kinds or (ref.kind, Key(where, ref.name)) in keys:
                continue
            try:
                referred = await client.get(kinds[ref.kind], ref.name, where)
            except NotFound:
                keys[ref.kind, Key(where, ref.name)] = None
            except Forbidden:
                continue
            else:
                keys[ref.kind, Key(where, ref.name)] = referred.key_names
    return KnownObjects(keys)


def _of_set(manifest: Json) -> set[Reference]:
    template = (manifest.get("spec") or {}).get("template") or {}
    specs = [(clique.get("spec") or {}).get("podSpec") or {} for clique in template.get("cliques") or ()]
    return {ref for spec in specs for ref in references_of(spec)}


def wrong_references(
    world: World, sets: Collection[Key], known: KnownObjects, unreadable: Collection[str] = ()
) -> tuple[Cause, ...]:
    """The faults, after the plan, of the objects that the pods of these sets need to start.

    `unreadable` are the plurals of kinds that could not be read.
    """
    faults: list[Cause] = []
    classes = {storage_class.metadata.name: storage_class for storage_class in world.all(StorageClass)}
    unread = frozenset({StorageClass.RESOURCE.kind} if StorageClass.RESOURCE.plural in unreadable else ())
    for key in sorted(sets):
        mine = [clique for clique in world.all(PodClique) if clique.metadata.namespace == key.namespace]
        cliques = [clique for clique in mine if clique.metadata.labels.get(labels.PART_OF) == key.name]
        names = {ref.name for clique in cliques for ref in references(clique) if ref.kind == CLAIM}
        claims = {name: world.find(PersistentVolumeClaim, name, key.namespace) for name in sorted(names)}
        if PersistentVolumeClaim.RESOURCE.plural in unreadable:
            claims = {name: claim for name, claim in claims.items() if claim is not None}
        keys = {
            (kind, object_key.name): there
            for (kind, object_key), there in known.keys.items()
            if object_key.namespace == key.namespace
        }
        there: list[tuple[str, core.Secret | core.ConfigMap]] = [(SECRET, secret) for secret in world.all(core.Secret)]
        there += [(CONFIG_MAP, config_map) for config_map in world.all(core.ConfigMap)]
        keys |= {
            (kind, obj.metadata.name): obj.key_names for kind, obj in there if obj.metadata.namespace == key.namespace
        }
        volumes = tuple(world.all(PersistentVolume)) if PersistentVolume.RESOURCE.plural not in unreadable else None
        faults += causes(cliques, Referred(claims, dict(classes), keys, unread, volumes=volumes))
    return tuple({cause.reason: cause for cause in faults}.values())
