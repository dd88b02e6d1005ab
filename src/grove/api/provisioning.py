"""ProvisioningRequest of the cluster autoscaler, an optional kind, and the annotations that name it."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from grove.api.meta import Conditions, Object, Resource, Struct

ATOMIC = "atomic-scale-up.kubernetes.io"
"""The class by which the cluster autoscaler adds all nodes of a request, or none."""
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
"""On a pod: the request that asks for its node. The cluster autoscaler adds no node for the pod alone."""
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
"""On a pod beside `CONSUMES`: the class of that request."""
PROVISIONED = "Provisioned"
OVER = ("Failed", "BookingExpired", "CapacityRevoked")
"""Conditions after which the cluster autoscaler does no more for a request."""
MOST_POD_SETS = 32
POD_TEMPLATE = Resource("", "v1", "PodTemplate", "podtemplates")


class TemplateReference(Struct):
    name: str = ""


class PodSet(Struct):
    count: int = 0
    pod_template_ref: TemplateReference = TemplateReference()

    @property
    def template(self) -> str:
        return self.pod_template_ref.name


class ProvisioningRequestSpec(Struct):
    provisioning_class_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()


class ProvisioningRequestStatus(Struct):
    conditions: Conditions = ()


class ProvisioningRequest(Object):
    RESOURCE: ClassVar[Resource] = Resource("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests")

    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = field(default_factory=ProvisioningRequestStatus)


def provisioning_class(value: str) -> str:
    """The class that the annotation of a set asks for; empty if there are to be no ProvisioningRequests."""
    return ATOMIC if value == "true" else "" if value == "false" else value
