"""The simulated server's rules for each built-in kind: subresources, generation, field selectors, own checks.

A kind's rules are two functions. `fill` completes and checks a new object (in place: it is the server's own copy).
`check` compares an update with the stored object. Custom kinds have a schema instead (see `grove.sim.schema`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from grove.api import core, quantity
from grove.api.faults import forbidden, invalid, required
from grove.api.hpa import metric_source
from grove.api.meta import Json, Resource
from grove.api.provisioning import POD_TEMPLATE
from grove.sim import refusals
from grove.sim.patch import copy_json
from grove.sim.schema import Structure


class StoredObjects(Protocol):
    """The objects that a rule can look up."""

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None: ...

    def all(self, resource: Resource, namespace: str = "") -> list[Json]: ...


Fill = Callable[[Json, StoredObjects], None]
Check = Callable[[Json, Json], None]


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource finds its three values, as dotted paths."""

    spec: str
    status: str
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    resource: Resource
    has_status: bool = False
    has_generation: bool = False
    fields: tuple[str, ...] = ()
    fill: Fill | None = None
    check: Check | None = None
    scale: ScalePaths | None = None
    structure: Structure | None = None

    @property
    def is_custom(self) -> bool:
        return self.structure is not None


def _fill_namespace(obj: Json, _stored: StoredObjects) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
    obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
    obj["status"] = {"phase": "Active"}


def _fill_secret(obj: Json, _stored: StoredObjects) -> None:
    obj.setdefault("type", "Opaque")
    for key, text in (obj.pop("stringData", None) or {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    if obj["type"] == TOKEN_SECRET and not (obj["metadata"].get("annotations") or {}).get(TOKEN_ACCOUNT):
        where = f"metadata.annotations[{TOKEN_ACCOUNT}]"
        raise refusals.invalid(SECRET, obj["metadata"]["name"], [required(where)])


def _check_secret(new: Json, old: Json) -> None:
    if new.get("type") != old.get("type"):
        fault = invalid("type", new.get("type"), "field is immutable")
        raise refusals.invalid(SECRET, old["metadata"]["name"], [fault])


def _fill_service(obj: Json, _stored: StoredObjects) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        raise refusals.invalid(core.Service.RESOURCE, obj["metadata"]["name"], [required("spec.ports")])
    spec.setdefault("clusterIP", _cluster_ip(obj["metadata"]["uid"]))
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    obj["status"] = {"loadBalancer": {}}


def _cluster_ip(uid: str) -> str:
    number = int(uid[:4], 16)
    return f"10.96.{number >> 8}.{number & 255}"


def _check_role_binding(new: Json, old: Json) -> None:
    if new.get("roleRef") != old.get("roleRef"):
        fault = invalid("roleRef", new.get("roleRef"), "cannot change roleRef")
        raise refusals.invalid(core.RoleBinding.RESOURCE, old["metadata"]["name"], [fault])


def _spell_amounts(obj: Json) -> None:
    """Amounts of metrics come back as Kubernetes spells them, however they were written."""
    metrics = copy_json(obj["spec"]["metrics"])
    for metric in metrics:
        target: Json = metric_source(metric).get("target") or {}
        for name in target.keys() & {"averageValue", "value"}:
            target[name] = _spelled(target[name])
    obj["spec"]["metrics"] = metrics


def _spelled(amount: str | int | float) -> str:
    is_binary = str(amount).endswith("i")
    return quantity.format_bytes(quantity.whole(amount)) if is_binary else quantity.format_milli(quantity.milli(amount))


def _check_autoscaler(new: Json, _old: Json) -> None:
    _spell_amounts(new)


def _fill_autoscaler(obj: Json, _stored: StoredObjects) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
        spec["metrics"] = [{"type": "Resource", "resource": cpu}]
    _spell_amounts(obj)
    if spec.get("maxReplicas", 0) < spec["minReplicas"]:
        fault = invalid("spec.maxReplicas", spec.get("maxReplicas"), "must be greater than or equal to minReplicas")
        raise refusals.invalid(core.HorizontalPodAutoscaler.RESOURCE, obj["metadata"]["name"], [fault])
    obj["status"] = {"currentMetrics": None, "desiredReplicas": 0}


def _check_claim(new: Json, old: Json) -> None:
    if new.get("spec") != old.get("spec"):
        fault = invalid("spec", "…", "field is immutable")
        raise refusals.invalid(core.ResourceClaim.RESOURCE, old["metadata"]["name"], [fault])


def _fill_priority_class(obj: Json, _stored: StoredObjects) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _check_priority_class(new: Json, old: Json) -> None:
    if new.get("value") != old.get("value"):
        fault = forbidden("value", "may not be changed in an update.")
        raise refusals.invalid(core.PriorityClass.RESOURCE, old["metadata"]["name"], [fault])


def _drop_status(obj: Json, _stored: StoredObjects) -> None:
    obj.pop("status", None)


TOKEN_SECRET = "kubernetes.io/service-account-token"
TOKEN_ACCOUNT = "kubernetes.io/service-account.name"
TOKEN_ACCOUNT_UID = "kubernetes.io/service-account.uid"

POD, NODE, NAMESPACE, SECRET = core.Pod.RESOURCE, core.Node.RESOURCE, core.Namespace.RESOURCE, core.Secret.RESOURCE
SERVICE_ACCOUNT, BUDGET = core.ServiceAccount.RESOURCE, core.PodDisruptionBudget.RESOURCE
PRIORITY_CLASS, CRD = core.PriorityClass.RESOURCE, core.CustomResourceDefinition.RESOURCE
QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")

_EVENT_FIELDS = tuple(
    f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
)
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"

BUILT_IN: tuple[Kind, ...] = (
    Kind(NODE, has_status=True, fields=("spec.unschedulable",)),
    Kind(NAMESPACE, has_status=True, fields=("status.phase",), fill=_fill_namespace),
    Kind(core.Service.RESOURCE, has_status=True, fields=("spec.clusterIP", "spec.type"), fill=_fill_service),
    Kind(SERVICE_ACCOUNT),
    Kind(SECRET, fields=("type",), fill=_fill_secret, check=_check_secret),
    Kind(core.ConfigMap.RESOURCE),
    Kind(POD_TEMPLATE),
    Kind(core.Event.RESOURCE, fields=(*_EVENT_FIELDS, "reason", "type", "reportingComponent")),
    Kind(Resource("events.k8s.io", "v1", "Event", "events")),
    Kind(QUOTA, has_status=True, fill=_drop_status),
    Kind(core.PersistentVolumeClaim.RESOURCE, has_status=True),
    Kind(core.PersistentVolume.RESOURCE, has_status=True),
    Kind(core.StorageClass.RESOURCE),
    Kind(core.CSINode.RESOURCE),
    Kind(core.Role.RESOURCE),
    Kind(core.RoleBinding.RESOURCE, check=_check_role_binding),
    Kind(Resource(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)),
    Kind(Resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False), check=_check_role_binding),
    Kind(core.HorizontalPodAutoscaler.RESOURCE, has_status=True, fill=_fill_autoscaler, check=_check_autoscaler),
    Kind(BUDGET, has_status=True, has_generation=True, fill=_drop_status),
    Kind(core.Lease.RESOURCE),
    Kind(PRIORITY_CLASS, has_generation=True, fill=_fill_priority_class, check=_check_priority_class),
    Kind(core.ResourceClaim.RESOURCE, has_status=True, fill=_drop_status, check=_check_claim),
    Kind(core.ResourceClaimTemplate.RESOURCE, check=_check_claim),
    Kind(core.ResourceSlice.RESOURCE, has_generation=True, fields=("spec.nodeName", "spec.driver")),
    Kind(core.DeviceClass.RESOURCE, has_generation=True),
    Kind(core.VALIDATING_WEBHOOK_CONFIGURATION, has_generation=True),
    Kind(core.MUTATING_WEBHOOK_CONFIGURATION, has_generation=True),
    Kind(CRD, has_status=True, has_generation=True),
    Kind(core.ControllerRevision.RESOURCE),
    Kind(Resource("apps", "v1", "Deployment", "deployments"), has_status=True, has_generation=True),
    Kind(Resource("apps", "v1", "StatefulSet", "statefulsets"), has_status=True, has_generation=True),
    Kind(Resource("apps", "v1", "ReplicaSet", "replicasets"), has_status=True, has_generation=True),
    Kind(Resource("batch", "v1", "Job", "jobs"), has_status=True, has_generation=True),
)
