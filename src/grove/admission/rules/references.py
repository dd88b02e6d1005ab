"""Warnings about objects that a set names and that do not exist, or that its pods cannot use.

These are priority classes, quotas, queues and reservations. A missing object is no refusal: it may be created a moment
later. The API server refuses pods of an unknown priority class. Koordinator counts pods of an unknown quota against its
default quota and says nothing. It lets a gang wait for ever whose reservations belong to others.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from grove.admission.rules.lookups import Known, LookupFailed
from grove.admission.rules.view import TEMPLATE, CliqueView, SetView
from grove.api import kai, labelsets, names
from grove.api.fields import text
from grove.api.koordinator import QUOTA, RESERVATION_REF, ElasticQuota, Reservation, ReservationOwner
from grove.api.labels import (
    COMPONENT,
    GROVE_PREFIX,
    GROVE_SCHEDULER,
    KAI_QUEUE,
    KAI_SCHEDULER,
    KOORDINATOR_SCHEDULER,
    NAME,
)
from grove.api.meta import Json, ObjectMeta, OwnerReference
from grove.api.node import PriorityClass
from grove.api.pod import Pod
from grove.api.podclique import PodClique
from grove.api.reservation_ref import InvalidAnnotation, matching, reservation_affinity

READERS = (KOORDINATOR_SCHEDULER, GROVE_SCHEDULER)
"""Schedulers that read ElasticQuotas and Reservations."""
QUEUE_READERS = (GROVE_SCHEDULER, KAI_SCHEDULER)
"""Schedulers that read KAI's Queues."""


def listed_kinds(new: SetView, scheduler: str) -> set[str]:
    """Kinds that have to be looked at for these warnings."""
    kinds = {PriorityClass.RESOURCE.kind} if _priority_classes(new, scheduler) else set()
    if scheduler in QUEUE_READERS and _named(new, KAI_QUEUE):
        kinds.add(kai.Queue.RESOURCE.kind)
    if scheduler not in READERS:
        return kinds
    kinds |= {ElasticQuota.RESOURCE.kind} if _named(new, QUOTA) else set()
    return kinds | ({Reservation.RESOURCE.kind} if RESERVATION_REF in new.annotations else set())


def reference_warnings(new: SetView, scheduler: str, lookups: Known) -> Iterator[str]:
    try:
        for kind in sorted(listed_kinds(new, scheduler)):
            objects = lookups.find_all(kind)
            if kind == PriorityClass.RESOURCE.kind:
                yield from _priority_warnings(new, scheduler, objects or [])
            elif kind == ElasticQuota.RESOURCE.kind:
                yield from _quota_warnings(new, scheduler, objects)
            elif kind == kai.Queue.RESOURCE.kind:
                yield from _queue_warnings(new, objects)
            else:
                yield from _reservation_warnings(new, objects)
    except LookupFailed:
        return  # a warning less


def _priority_classes(new: SetView, scheduler: str) -> dict[str, str]:
    """Names of priority classes of pods with where they are said. KAI has that of the set for its PodGroups only."""
    class_names = {
        f"{clique.path}.spec.podSpec.priorityClassName": text(clique.pod_spec.get("priorityClassName"))
        for clique in new.cliques
    }
    if scheduler != KAI_SCHEDULER:
        class_names[f"{TEMPLATE}.priorityClassName"] = text(new.template.get("priorityClassName"))
    return {path: name for path, name in class_names.items() if name}


def _priority_warnings(new: SetView, scheduler: str, classes: list[Json]) -> Iterator[str]:
    known = {text((class_.get("metadata") or {}).get("name")) for class_ in classes}
    for path, name in _priority_classes(new, scheduler).items():
        if name not in known:
            yield f"{path}: there is no PriorityClass {name}; the API server refuses pods until there is one"


def _named(new: SetView, key: str) -> dict[str, str]:
    """The values of a label of the set and of its cliques, by field path."""
    of_cliques = {f"{clique.path}.labels[{key}]": text(clique.labels.get(key)) for clique in new.cliques}
    values = {f"metadata.labels[{key}]": text(new.labels.get(key)), **of_cliques}
    return {path: name for path, name in values.items() if name}


def _quota_warnings(new: SetView, scheduler: str, quotas: list[Json] | None) -> Iterator[str]:
    known = {text((quota.get("metadata") or {}).get("name")) for quota in quotas or ()}
    falls = (
        "koord-scheduler counts its pods against the default quota"
        if scheduler == KOORDINATOR_SCHEDULER
        else "its gangs wait until there is one"
    )
    for path, name in _named(new, QUOTA).items():
        if quotas is None:
            yield f"{path}: this cluster has no ElasticQuota (scheduling.sigs.k8s.io), so {name} limits nothing"
        elif name not in known:
            yield f"{path}: there is no ElasticQuota {name}; {falls}"


def _queue_warnings(new: SetView, queues: list[Json] | None) -> Iterator[str]:
    known = {text((queue.get("metadata") or {}).get("name")) for queue in queues or ()}
    for path, name in _named(new, KAI_QUEUE).items():
        if queues is None:
            yield f"{path}: this cluster has no Queue ({kai.Queue.RESOURCE.group}), so {name} limits nothing"
        elif name not in known:
            yield f"{path}: there is no Queue {name}; its gangs wait until there is one"


def _reservation_warnings(new: SetView, reservations: list[Json] | None) -> Iterator[str]:
    path = f"metadata.annotations[{RESERVATION_REF}]"
    try:
        affinity = reservation_affinity(text(new.annotations.get(RESERVATION_REF)))
    except InvalidAnnotation:
        return  # its own rule says so
    if reservations is None:
        yield f"{path}: this cluster has no Reservation (scheduling.koordinator.sh); the gangs wait until it has"
        return
    meant = matching(affinity, [msgspec.convert(reservation, Reservation) for reservation in reservations])
    if not meant:
        yield f"{path}: no Reservation is meant by {text(new.annotations.get(RESERVATION_REF))}; the gangs wait for one"
        return
    pods = [_first_pod(new, clique) for clique in new.cliques]
    for clique, pod in zip(new.cliques, pods, strict=True):
        if not any(_may_own(owner, pod) for reservation in meant for owner in reservation.spec.owners):
            names = ", ".join(sorted(reservation.metadata.name for reservation in meant)[:3])
            yield f"{path}: the owners of {names} match no pod of clique {clique.name}: they cannot use it"


def _first_pod(new: SetView, clique: CliqueView) -> Pod:
    """A pod of the clique as far as it is known beforehand."""
    name = new.name
    fqn, gang = f"{name}-0-{clique.name}", names.replica(name, 0)
    labels_of_pod = {k: v for k, v in clique.labels.items() if isinstance(v, str)}
    labels = labelsets.pod(labels_of_pod, name, 0, clique.name, fqn, gang, 0)
    owner = OwnerReference(api_version=PodClique.RESOURCE.api_version, kind="PodClique", controller=True)
    return Pod(metadata=ObjectMeta(namespace=new.namespace, labels=labels, owner_references=(owner,)))


def _may_own(owner: ReservationOwner, pod: Pod) -> bool:
    """True if a pod of this template can match an owner.

    Names, uids and index labels do not exist yet, so they do not count.
    """
    ref = owner.object and msgspec.structs.replace(owner.object, uid="", name="")
    control = owner.controller and msgspec.structs.replace(owner.controller, uid="", name="")
    selector = owner.label_selector
    if selector is not None:
        fixed = {k: v for k, v in selector.match_labels.items() if not _counts(k)}
        expressions = tuple(expression for expression in selector.match_expressions if not _counts(expression.key))
        selector = msgspec.structs.replace(selector, match_labels=fixed, match_expressions=expressions)
    return msgspec.structs.replace(owner, object=ref, controller=control, label_selector=selector).matches(pod)


def _counts(label: str) -> bool:
    return label.startswith(GROVE_PREFIX) or label in (NAME, COMPONENT)
