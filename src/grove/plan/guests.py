"""Kinds of other projects in a world: as much of their definitions as a simulated cluster needs."""

from __future__ import annotations

from grove.api import kai
from grove.api.koordinator import Device, ElasticQuota, Reservation
from grove.api.meta import Json, Resource

COMPUTE_DOMAIN = Resource("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains")
QUEUES: tuple[Resource, ...] = (ElasticQuota.RESOURCE, kai.Queue.RESOURCE)
GUESTS: tuple[Resource, ...] = (COMPUTE_DOMAIN, *QUEUES, Reservation.RESOURCE, Device.RESOURCE)
_WITH_STATUS = (kai.Queue.RESOURCE, Reservation.RESOURCE, Device.RESOURCE)


def definitions() -> list[Json]:
    """CustomResourceDefinitions that take any fields."""
    return [_definition(guest) for guest in GUESTS]


def _definition(resource: Resource) -> Json:
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    if resource in _WITH_STATUS:
        version["subresources"] = {"status": {}}
    return {
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()},
            "versions": [version],
        },
    }
