"""What pods are placed on and what they claim: nodes, volumes, devices, and the priority classes that order them."""

from __future__ import annotations

from typing import ClassVar

from grove.api.meta import Condition, Json, Object, Resource, Struct, is_true
from grove.api.pod import NodeSelector, ResourceList


class Taint(Struct):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct):
    allocatable: ResourceList = {}
    capacity: ResourceList = {}
    conditions: tuple[Condition, ...] = ()


class Node(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, "Ready")


class PriorityClass(Object):
    RESOURCE: ClassVar[Resource] = Resource(
        "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False
    )

    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"


class VolumeNodeAffinity(Struct):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct):
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: Json | None = None
    storage_class_name: str = ""
    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    csi: Json | None = None


class VolumePhase(Struct):
    phase: str = ""


class PersistentVolume(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumePhase = VolumePhase()


class PersistentVolumeClaimSpec(Struct):
    volume_name: str = ""
    storage_class_name: str | None = None
    """None asks for the default class, an empty string for no class at all."""
    access_modes: tuple[str, ...] = ()
    selector: Json | None = None
    resources: Json = {}


class PersistentVolumeClaim(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: VolumePhase = VolumePhase()


class StorageClass(Object):
    RESOURCE: ClassVar[Resource] = Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[Json, ...] = ()


class VolumeLimit(Struct):
    count: int | None = None


class CSIDriverOnNode(Struct):
    name: str = ""
    allocatable: VolumeLimit | None = None


class CSINodeSpec(Struct):
    drivers: tuple[CSIDriverOnNode, ...] = ()


class CSINode(Object):
    """The storage drivers of the node by the same name, and how many volumes each can attach there."""

    RESOURCE: ClassVar[Resource] = Resource("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False)

    spec: CSINodeSpec = CSINodeSpec()


class ResourceClaimConsumer(Struct):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Struct):
    allocation: Json | None = None
    reserved_for: tuple[ResourceClaimConsumer, ...] = ()


class ResourceClaim(Object):
    RESOURCE: ClassVar[Resource] = Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")

    spec: Json = {}
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplate(Object):
    RESOURCE: ClassVar[Resource] = Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")

    spec: Json = {}


class ResourceSlice(Object):
    RESOURCE: ClassVar[Resource] = Resource(
        "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False
    )

    spec: Json = {}


class DeviceClass(Object):
    RESOURCE: ClassVar[Resource] = Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)

    spec: Json = {}
