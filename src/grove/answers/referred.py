"""Reads the objects that pods of a set refer to: claims, volumes, storage classes, Secrets and ConfigMaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from grove.api import kueue
from grove.api.core import ConfigMap, Event, Namespace, Secret
from grove.api.fields import mapping, text
from grove.api.meta import Key, Object, ObjectMeta
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.api.podclique import PodClique
from grove.diagnosis.causes import (
    CLAIM,
    CONFIG_MAP,
    SECRET,
    Cause,
    Referred,
    causes,
    ending_namespace,
    references,
)
from grove.diagnosis.kueue import KueueSeen
from grove.diagnosis.seen import Seen
from grove.kube.client import Client
from grove.kube.clock import loop_time
from grove.kube.errors import Forbidden, KubeError, NotFound

T = TypeVar("T", bound="Object")
CAUSES_S = 10.0
MOST_CLIQUES = 64
"""Cliques that are not ready whose references are read; a list of sets may have many more."""


async def with_causes(client: Client, seen: Seen) -> Seen:
    """The same with what is wrong with the objects that pods refer to, and what kubelets warn of.

    `status`, `tree`, `explain`, `top` and the console take it from here, so a list and `explain` name the same cause.
    """
    broken = sorted(
        (clique for clique in seen.cliques if is_broken(seen, clique)), key=lambda clique: clique.metadata.key
    )[:MOST_CLIQUES]
    faults: list[Cause] = []
    for namespace in dict.fromkeys(clique.metadata.namespace for clique in broken):
        mine = [clique for clique in broken if clique.metadata.namespace == namespace]
        faults += [*await _ending_namespace(client, namespace, mine), *await read_causes(client, mine)]
    seen = replace(seen, causes=tuple(faults))
    unready = [pod for pod in seen.pods if pod.is_bound and not pod.is_ready and not pod.metadata.is_deleting]
    if unready and not seen.events:
        namespaces = {pod.metadata.namespace for pod in unready}
        where = namespaces.pop() if len(namespaces) == 1 else ""
        seen = replace(seen, events=await _warnings(client, where))
    return replace(seen, kueue=await read_kueue(client, seen)) if len(seen.sets) == 1 else seen


async def _ending_namespace(client: Client, namespace: str, cliques: Sequence[PodClique]) -> tuple[Cause, ...]:
    """A namespace that is being deleted takes no new pods; its sets are deleted only when its pods are gone.

    The operator writes no status there any more, so the count of pods that exist is an old one.
    """
    try:
        namespace_object = await client.get(Namespace, namespace)
    except (NotFound, Forbidden):
        return ()
    names = frozenset(clique.metadata.name for clique in cliques)
    return (ending_namespace(namespace, names),) if namespace_object.metadata.is_deleting else ()


def is_broken(seen: Seen, clique: PodClique) -> bool:
    """True if pods are not ready by the clique's status, or do not exist: the status may be an old one.

    If no pod was read, the user may have no right to read pods. Then only the status counts.
    """
    if clique.status.ready_replicas < clique.spec.replicas or not seen.pods:
        return clique.status.ready_replicas < clique.spec.replicas
    pods = seen.pods_of_clique.get(clique.metadata.key, ())
    return sum(not pod.metadata.is_deleting for pod in pods) < clique.spec.replicas


class RecentCauses:
    """The causes of a list that is drawn often. They are read again after `CAUSES_S`, however often it is drawn."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._read_s: float | None = None
        self._causes: Sequence[Cause] = ()
        self._events: Sequence[Event] = ()

    def is_due(self) -> bool:
        return self._read_s is None or loop_time() - self._read_s >= CAUSES_S

    async def read(self, seen: Seen) -> bool:
        """Reads them for everything that the list may show. True if they changed."""
        self._read_s = loop_time()
        seen_again = await with_causes(self._client, replace(seen, causes=(), events=()))
        before, self._causes, self._events = (
            (self._causes, self._events),
            tuple(seen_again.causes),
            tuple(seen_again.events),
        )
        return before != (self._causes, self._events)

    def added_to(self, seen: Seen) -> Seen:
        """The same with the causes of cliques that are still not ready."""
        broken = {clique.metadata.key for clique in seen.cliques if is_broken(seen, clique)}
        still = [
            cause for cause in self._causes if any(Key(cause.namespace, clique) in broken for clique in cause.cliques)
        ]
        return replace(seen, causes=still, events=self._events)


async def _warnings(client: Client, namespace: str) -> Sequence[Event]:
    """The warnings of kubelets and others on the pods of a namespace; none if the user may not read events."""
    try:
        fields = "type=Warning,involvedObject.kind=Pod"
        return (await client.list(Event, namespace, fields=fields, limit=MOST_WARNINGS)).items
    except Forbidden:
        return ()


MOST_WARNINGS = 1000


async def read_causes(client: Client, cliques: Sequence[PodClique]) -> tuple[Cause, ...]:
    """The faults of objects that pods of these cliques need. The cliques are of one namespace.

    Objects that the user may not read are left out.
    """
    namespace = cliques[0].metadata.namespace
    needed = {ref for clique in cliques for ref in references(clique)}
    unread: set[str] = set()

    async def find(kind: type[T], name: str) -> tuple[bool, T | None]:
        """If the object was readable, and the object."""
        try:
            return True, await client.get(kind, name, namespace)
        except NotFound as error:
            return bool(error.details.get("name")), None
        except Forbidden:
            unread.add(kind.RESOURCE.kind)
            return False, None

    claims: dict[str, PersistentVolumeClaim | None] = {}
    keys: dict[tuple[str, str], frozenset[str] | None] = {}
    for name in {reference.name for reference in needed if reference.kind == CLAIM}:
        known, claim = await find(PersistentVolumeClaim, name)
        claims |= {name: claim} if known else {}
    kinds: dict[str, type[Secret] | type[ConfigMap]] = {SECRET: Secret, CONFIG_MAP: ConfigMap}
    for label, kind in kinds.items():
        for name in {reference.name for reference in needed if reference.kind == label}:
            known, obj = await find(kind, name)
            if known:
                keys[label, name] = None if obj is None else obj.key_names
    classes: dict[str, StorageClass | None] = {}
    warnings: tuple[Event, ...] = ()
    volumes: tuple[PersistentVolume, ...] | None = None
    if any(claim is not None and claim.status.phase != "Bound" for claim in claims.values()):
        try:
            classes = {item.metadata.name: item for item in (await client.list(StorageClass)).items}
        except KubeError:
            unread.add(StorageClass.RESOURCE.kind)
        try:
            volumes = tuple((await client.list(PersistentVolume)).items)
        except KubeError:
            unread.add(PersistentVolume.RESOURCE.kind)
        try:
            fields = f"type=Warning,involvedObject.kind={CLAIM}"
            warnings = tuple((await client.list(Event, namespace, fields=fields)).items)
        except KubeError:
            pass
    return causes(cliques, Referred(claims, classes, keys, frozenset(unread), warnings, volumes))


async def read_kueue(client: Client, seen: Seen) -> dict[str, KueueSeen]:
    """Kueue's answers on the pod groups that it holds, by name. Other sets cause no read."""
    held = {
        pod.metadata.labels[kueue.GROUP]: pod.metadata
        for pod in seen.pods
        if kueue.waits(pod) and kueue.GROUP in pod.metadata.labels
    }
    if not held:
        return {}
    version = await _kueue_version(client)
    if version is None:
        return dict.fromkeys(held, KueueSeen(is_served=False))
    return {name: await _kueue_group(client, version, meta, name) for name, meta in held.items()}


async def _kueue_version(client: Client) -> str | None:
    for version in kueue.VERSIONS:
        if await client.serves(kueue.kinds(version)[0]):
            return version
    return None


async def _kueue_group(client: Client, version: str, pod: ObjectMeta, name: str) -> KueueSeen:
    workloads, local, queues = kueue.kinds(version)
    try:
        workload = await client.get(workloads, name, pod.namespace)
    except NotFound:
        return KueueSeen()
    except Forbidden:
        return KueueSeen(unread=workloads.plural)
    try:
        named = await client.get(local, pod.labels.get(kueue.QUEUE, ""), pod.namespace)
        queue = await client.get(queues, text(mapping(named.get("spec")).get("clusterQueue")))
    except (NotFound, Forbidden):
        return KueueSeen(workload=workload)
    return KueueSeen(workload=workload, queue=queue)
