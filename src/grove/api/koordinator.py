"""Koordinator's kinds and keys that Grove reads: quotas, reservations, devices. All of them are optional on a cluster.

`ElasticQuota` lives in the group of the scheduler plugins it was born in; the rest are Koordinator's own.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from msgspec import field

from grove.api import selector
from grove.api.meta import Condition, Json, Object, Resource, Struct
from grove.api.node import Taint
from grove.api.pod import LabelSelector, Pod, ResourceList

_QUOTA = "quota.scheduling.koordinator.sh/"
QUOTA = f"{_QUOTA}name"
QUOTA_PARENT, QUOTA_IS_PARENT = f"{_QUOTA}parent", f"{_QUOTA}is-parent"
QUOTA_LENDS, QUOTA_TREE = f"{_QUOTA}allow-lent-resource", f"{_QUOTA}tree-id"
QUOTA_PREEMPTIBLE = f"{_QUOTA}preemptible"
"""A label of pods: "false" keeps them from being put out, and counts them against the quota's minimum."""
QUOTA_WEIGHT, QUOTA_NAMESPACES = f"{_QUOTA}shared-weight", f"{_QUOTA}namespaces"
QUOTA_TOTAL = f"{_QUOTA}total-resource"
QUOTA_RUNTIME, QUOTA_REQUEST = f"{_QUOTA}runtime", f"{_QUOTA}request"
ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA = (f"koordinator-{name}-quota" for name in ("root", "system", "default"))

QOS, PRIORITY = "koordinator.sh/qosClass", "koordinator.sh/priority"

_SCHEDULING = "scheduling.koordinator.sh/"
DISABLE_PREEMPTIBLE = f"{_SCHEDULING}disable-preemptible"
RESERVATION_REF = f"{_SCHEDULING}reservation-ref"
RESERVATION_AFFINITY = f"{_SCHEDULING}reservation-affinity"
RESERVATION_ALLOCATED = f"{_SCHEDULING}reservation-allocated"
RESERVATION_IGNORED = f"{_SCHEDULING}reservation-ignored"
RESERVATION_ORDER = f"{_SCHEDULING}reservation-order"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
"""An annotation of gangs without a PodGroup: how many members they need."""


class ElasticQuotaSpec(Struct):
    min: ResourceList = {}
    max: ResourceList = {}


class ElasticQuotaStatus(Struct):
    used: ResourceList = {}


class ElasticQuota(Object):
    """The quota of a team: `min` is guaranteed, `max` is the limit. The kind has no status subresource."""

    RESOURCE: ClassVar[Resource] = Resource("scheduling.sigs.k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas")

    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()


class ObjectOwner(Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""


class ControllerOwner(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    namespace: str = ""


class ReservationOwner(Struct):
    """The pods that may use a reservation: every given field must match. An owner without fields matches no pod."""

    object: ObjectOwner | None = None
    controller: ControllerOwner | None = None
    label_selector: LabelSelector | None = None

    def matches(self, pod: Pod) -> bool:
        meta, ref, control = pod.metadata, self.object, self.controller
        if ref is None and control is None and self.label_selector is None:
            return False
        if ref is not None and not _agrees((ref.uid, meta.uid), (ref.name, meta.name), (ref.namespace, meta.namespace)):
            return False
        if control is not None:
            owner_reference = meta.controller
            if owner_reference is None or not _agrees(
                (control.uid, owner_reference.uid),
                (control.name, owner_reference.name),
                (control.kind, owner_reference.kind),
                (control.api_version, owner_reference.api_version),
                (control.namespace, meta.namespace),
            ):
                return False
        return self.label_selector is None or selector.of(self.label_selector).matches(meta.labels)


class ReservationSpec(Struct):
    template: Json | None = None
    owners: tuple[ReservationOwner, ...] = ()
    ttl: str | None = None
    expires: datetime | None = None
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ReservationStatus(Struct):
    phase: str = ""
    node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    current_owners: tuple[Json, ...] = ()
    allocatable: ResourceList = {}
    allocated: ResourceList = {}


class Reservation(Object):
    """Capacity on a node that is kept for its owners."""

    RESOURCE: ClassVar[Resource] = Resource(
        "scheduling.koordinator.sh", "v1alpha1", "Reservation", "reservations", namespaced=False
    )

    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()

    def is_owned_by(self, pod: Pod) -> bool:
        return any(owner.matches(pod) for owner in self.spec.owners)


def _agrees(*pairs: tuple[str, str]) -> bool:
    """True if in each pair both values are equal. An empty value on the left allows every value on the right."""
    return all(not required or required == actual for required, actual in pairs)


class DeviceTopology(Struct):
    node_id: int = field(name="nodeID", default=-1)
    pcie_id: str = field(name="pcieID", default="")


class DeviceInfo(Struct):
    """One device of a node. `minor` is its number among those of its type."""

    type: str = ""
    id: str = ""
    minor: int | None = None
    health: bool = True
    resources: ResourceList = {}
    topology: DeviceTopology | None = None
    labels: dict[str, str] = {}


class DeviceSpec(Struct):
    devices: tuple[DeviceInfo, ...] = ()


class Device(Object):
    """The devices of one node; the object is called like it."""

    RESOURCE: ClassVar[Resource] = Resource(
        "scheduling.koordinator.sh", "v1alpha1", "Device", "devices", namespaced=False
    )

    spec: DeviceSpec = DeviceSpec()
