"""Room for a whole PodCliqueSet before it exists: the Reservations that stand for its pods.

One a pod that the set will have, gang by gang: those of one gang carry its name as their pod group, so they are placed
together or not at all. Their owners are the pods of the clique they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator

from grove.api import labels, names
from grove.api.koordinator import MIN_AVAILABLE, POD_GROUP, Reservation
from grove.api.meta import Json
from grove.api.podcliqueset import CliqueTemplate, PodCliqueSet

RESERVED_FOR = "grove.io/reserved-for"
"""A label of such Reservations: the set, as `namespace.name`."""


def set_label(namespace: str, name: str) -> str:
    return f"{namespace}.{name}"[:63]


def reservations_for(pcs: PodCliqueSet, namespace: str, ttl: str) -> list[Json]:
    """Reservations for every pod of a set as it is written; one pod each, used once."""
    by_gang: dict[str, list[tuple[str, CliqueTemplate, int]]] = {}
    for gang, fqn, template in _cliques(pcs):
        by_gang.setdefault(gang, []).extend((fqn, template, index) for index in range(template.spec.replicas))
    return [
        _reservation(pcs, namespace, gang, len(pods), fqn, template, index, ttl)
        for gang, pods in by_gang.items()
        for fqn, template, index in pods
    ]


def _cliques(pcs: PodCliqueSet) -> Iterator[tuple[str, str, CliqueTemplate]]:
    """Gang, full name and template of every clique the set will have."""
    name, template = pcs.metadata.name, pcs.spec.template
    by_name = {one.name: one for one in template.cliques}
    members = {member for group in template.pod_clique_scaling_groups for member in group.clique_names}
    for replica in range(pcs.spec.replicas):
        for one in template.cliques:
            if one.name not in members:
                yield names.replica(name, replica), names.clique(name, replica, one.name), one
        for group in template.pod_clique_scaling_groups:
            fqn = names.scaling_group(name, replica, group.name)
            least = group.min_available if group.min_available is not None else 1
            for index in range(group.replicas if group.replicas is not None else 1):
                gang = names.gang_of_member(name, replica, fqn, index, least)
                for member in group.clique_names:
                    yield gang, names.member_clique(fqn, index, member), by_name[member]


def _reservation(
    pcs: PodCliqueSet, namespace: str, gang: str, size: int, fqn: str, template: CliqueTemplate, index: int, ttl: str
) -> Json:
    spec = {**template.spec.pod_spec, "schedulerName": labels.GROVE_SCHEDULER}
    spec.pop("schedulingGates", None)
    owner = {"matchLabels": {labels.PART_OF: pcs.metadata.name, labels.POD_CLIQUE: fqn}}
    metadata = {
        "name": f"{namespace}-{fqn}-{index}",
        "labels": {RESERVED_FOR: set_label(namespace, pcs.metadata.name), POD_GROUP: f"{namespace}-{gang}"[:63]},
        "annotations": {MIN_AVAILABLE: str(size)},
    }
    reserved = {
        "ttl": ttl,
        "allocateOnce": True,
        "owners": [{"labelSelector": owner, "object": {"namespace": namespace}}],
        "template": {"metadata": {"namespace": namespace}, "spec": spec},
    }
    return Reservation.RESOURCE.manifest(metadata, spec=reserved)
