"""Capacity for a whole PodCliqueSet before it exists: the Reservations that stand for its pods.

There is one Reservation for each pod that the set will have. Those of one gang carry its name as their pod group, so
they are placed together or not at all. Their owners are the pods of their clique.
"""

from __future__ import annotations

from grove.api import labels
from grove.api.koordinator import MIN_AVAILABLE, POD_GROUP, Reservation
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.operator.shared.layout import Unit, replica_layouts

RESERVED_FOR = "grove.io/reserved-for"
"""A label of such Reservations: the set, as `namespace.name`."""


def set_label(namespace: str, name: str) -> str:
    return f"{namespace}.{name}"[:63]


def reservations_for(pcs: PodCliqueSet, namespace: str, ttl: str) -> list[Json]:
    """Reservations for every pod of a set as it is written; one pod each, used once."""
    reservations: list[Json] = []
    for replica in range(pcs.spec.replicas):
        for gang in replica_layouts(pcs, replica, lambda fqn, config: range(config.replicas)):
            pods = [(unit, index) for unit in gang.units for index in range(unit.template.spec.replicas)]
            reservations += (
                _reservation(pcs, namespace, gang.name, len(pods), unit, index, ttl) for unit, index in pods
            )
    return reservations


def _reservation(pcs: PodCliqueSet, namespace: str, gang: str, size: int, unit: Unit, index: int, ttl: str) -> Json:
    spec = {**unit.template.spec.pod_spec, "schedulerName": labels.GROVE_SCHEDULER}
    spec.pop("schedulingGates", None)
    owner = {"matchLabels": {labels.PART_OF: pcs.metadata.name, labels.POD_CLIQUE: unit.fqn}}
    metadata = {
        "name": f"{namespace}-{unit.fqn}-{index}",
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
