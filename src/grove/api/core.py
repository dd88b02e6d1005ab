"""The kinds of Kubernetes that Grove reads, as small frozen views: import them from here.

Pod and what hangs on it live in `grove.api.pod`, nodes, storage and claims in `grove.api.node`; this module holds the
namespaced objects around a workload. A view holds what we read; fields we only pass on stay plain JSON, and all fields
have defaults.
"""

# It would write one statement for each kind that is passed on.
# ruff: isort: skip_file
from __future__ import annotations

import json
from datetime import datetime
from typing import ClassVar

import msgspec
from msgspec import field

from grove.api.meta import Condition, Json, Object, Resource, Struct, is_true
from grove.api.node import (
    CSINode as CSINode,
    DeviceClass as DeviceClass,
    Node as Node,
    PersistentVolume as PersistentVolume,
    PersistentVolumeClaim as PersistentVolumeClaim,
    PriorityClass as PriorityClass,
    ResourceClaim as ResourceClaim,
    ResourceClaimTemplate as ResourceClaimTemplate,
    ResourceSlice as ResourceSlice,
    StorageClass as StorageClass,
    Taint as Taint,
)
from grove.api.pod import (
    Affinity as Affinity,
    Container as Container,
    ContainerStatus as ContainerStatus,
    LabelSelector as LabelSelector,
    NodeSelector as NodeSelector,
    NodeSelectorTerm as NodeSelectorTerm,
    Pod as Pod,
    PodAffinityTerm as PodAffinityTerm,
    PodSpec as PodSpec,
    ResourceRequirements as ResourceRequirements,
    SchedulingGate as SchedulingGate,
    Toleration as Toleration,
    TopologySpreadConstraint as TopologySpreadConstraint,
)

COMPUTE_DOMAIN = Resource("resource.nvidia.com", "v1beta1", "ComputeDomain", "computedomains")
VALIDATING_WEBHOOK_CONFIGURATION = Resource(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False
)
SUBJECT_ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False)
MUTATING_WEBHOOK_CONFIGURATION = Resource(
    "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
)


class NamespaceStatus(Struct):
    phase: str = ""


class Namespace(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)

    status: NamespaceStatus = NamespaceStatus()


class ServiceSpec(Struct):
    cluster_ip: str = field(name="clusterIP", default="")
    type: str = ""
    selector: dict[str, str] = {}
    ports: tuple[Json, ...] = ()
    publish_not_ready_addresses: bool = False


class Service(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Service", "services")

    spec: ServiceSpec = ServiceSpec()


class ServiceAccount(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")

    automount_service_account_token: bool | None = None


class Secret(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")

    type: str = ""
    data: dict[str, str] = {}
    """Values are base64, as on the wire."""

    @property
    def key_names(self) -> frozenset[str]:
        """What volumes and variables may name."""
        return frozenset(self.data)


class ConfigMap(Object):
    RESOURCE: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}

    @property
    def key_names(self) -> frozenset[str]:
        """What volumes and variables may name."""
        return frozenset((*self.data, *self.binary_data))


class Role(Object):
    RESOURCE: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")

    rules: tuple[Json, ...] | None = None
    """None as well as empty: the API server writes `null` for a role without rules."""


class RoleBinding(Object):
    RESOURCE: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")

    role_ref: Json = {}
    subjects: tuple[Json, ...] | None = None


class CrossVersionObjectReference(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class HorizontalPodAutoscalerSpec(Struct):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[Json, ...] | None = None
    behavior: Json | None = None


class HorizontalPodAutoscalerStatus(Struct):
    current_replicas: int = 0
    desired_replicas: int = 0
    current_metrics: tuple[Json, ...] | None = None
    last_scale_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None


class HorizontalPodAutoscaler(Object):
    RESOURCE: ClassVar[Resource] = Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")

    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()
    status: HorizontalPodAutoscalerStatus = HorizontalPodAutoscalerStatus()


class ControllerRevision(Object):
    """An earlier state of something, as its controller wrote it down; `data` never changes."""

    RESOURCE: ClassVar[Resource] = Resource("apps", "v1", "ControllerRevision", "controllerrevisions")

    data: Json = {}
    revision: int = 0

    @property
    def kept(self) -> Json:
        """The data that `written_down` stored in the revision."""
        data: Json = msgspec.json.decode(self.data[_KEPT]) if _KEPT in self.data else self.data
        return data


_KEPT = "kept"


def written_down(value: Json) -> Json:
    """A value as the `data` of a ControllerRevision: JSON text, in which no character is spelled in two ways.

    `data` is immutable and compared byte by byte. The API server writes it in its own spelling at every patch, also
    when the garbage collector removes an owner. This spelling has sorted keys and escapes `&`, `<` and `>`.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    for character in "&<>":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return {_KEPT: text}


class PodDisruptionBudgetSpec(Struct):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(Struct):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class PodDisruptionBudget(Object):
    RESOURCE: ClassVar[Resource] = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class LeaseSpec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Object):
    RESOURCE: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Struct):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class Event(Object):
    """core/v1, the one `kubectl describe` and every dashboard read."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Event", "events")

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    action: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    source: Json = {}


class CustomResourceDefinitionStatus(Struct):
    conditions: tuple[Condition, ...] | None = None


class CustomResourceDefinition(Object):
    """Only whether it is served. Schemas are large, and Grove does not read them back."""

    RESOURCE: ClassVar[Resource] = Resource(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
    )

    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def is_established(self) -> bool:
        return is_true(self.status.conditions or (), "Established")
