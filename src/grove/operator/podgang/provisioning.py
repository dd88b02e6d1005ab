"""The ProvisioningRequest of a gang: which pods it is for, when it is made again, and what it says. Pure.

The pods decide. A pod that carries the name of a request counts on it for its node. A request is wanted while one of
these pods is `Unschedulable`, so new nodes could help. Its spec cannot be changed: a request that asks for too little
is deleted, and made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from grove.api import labels, labelsets
from grove.api.conditions import FALSE, TRUE
from grove.api.core import Pod
from grove.api.meta import Json, is_true
from grove.api.podgang import PodGang
from grove.api.provisioning import CLASS, CONSUMES, MOST_POD_SETS, OVER, POD_TEMPLATE, PROVISIONED, ProvisioningRequest
from grove.operator.shared.diff import child_metadata

RETRY_S = 600.0
"""A request that failed or expired is made again after this time, if the gang still waits."""
API_NOT_SERVED = "APINotServed"
TOO_MANY_CLIQUES = "TooManyCliques"
REQUESTED = "Requested"
_OF_ONE_POD = ("nodeName", "schedulingGates", "hostname")
"""Fields of a pod spec that its siblings have otherwise, or that a template may not have."""


class NodesAsked(NamedTuple):
    """Pods without a node that count on a request, by the name of their template."""

    class_name: str
    pods: Mapping[str, Sequence[Pod]]

    def is_met_by(self, request: ProvisioningRequest) -> bool:
        """True if a request of this class asks for at least these pods."""
        there = Counter({pcs.template: pcs.count for pcs in request.spec.pod_sets})
        return request.spec.provisioning_class_name == self.class_name and all(
            len(pods) <= there[name] for name, pods in self.pods.items()
        )


class ProvisioningState(NamedTuple):
    """The condition of the gang that repeats what the request says."""

    status: str
    reason: str
    message: str


def nodes_asked(gang: PodGang, pods: Iterable[Pod]) -> NodesAsked | None:
    """The nodes that the pods of a gang ask a node autoscaler for; None if new nodes would not help."""
    waiting = [pod for pod in pods if pod.metadata.annotations.get(CONSUMES) == gang.metadata.name and not pod.is_bound]
    if not any(pod.is_unschedulable for pod in waiting):
        return None
    by_template: dict[str, list[Pod]] = {}
    for pod in waiting:
        own = pod.metadata.labels
        name = f"{own.get(labels.POD_CLIQUE, '')}-{own.get(labels.POD_TEMPLATE_HASH, '')}"
        by_template.setdefault(name, []).append(pod)
    return NodesAsked(waiting[0].metadata.annotations.get(CLASS, ""), dict(sorted(by_template.items())))


def refusal(asked: NodesAsked) -> ProvisioningState | None:
    """Why no request can ask for these pods."""
    if len(asked.pods) <= MOST_POD_SETS:
        return None
    message = f"{len(asked.pods)} cliques wait; a ProvisioningRequest has at most {MOST_POD_SETS}"
    return ProvisioningState(FALSE, TOO_MANY_CLIQUES, message)


def not_served() -> ProvisioningState:
    kind = ProvisioningRequest.RESOURCE
    return ProvisioningState(FALSE, API_NOT_SERVED, f"the cluster does not serve {kind.plural} of {kind.api_version}")


def request_of(gang: PodGang, asked: NodesAsked) -> Json:
    pod_sets = [{"count": len(pods), "podTemplateRef": {"name": name}} for name, pods in asked.pods.items()]
    spec = {"provisioningClassName": asked.class_name, "podSets": pod_sets}
    return ProvisioningRequest.RESOURCE.manifest(child_metadata(gang, gang.metadata.name, _own_labels(gang)), spec=spec)


def template_of(gang: PodGang, request: ProvisioningRequest, name: str, pod: Json) -> Json:
    """A pod as it was created, without what belongs to this one pod alone."""
    own = {key: value for key, value in (pod["metadata"].get("labels") or {}).items() if key != labels.POD_INDEX}
    spec = {field: value for field, value in pod["spec"].items() if field not in _OF_ONE_POD}
    template = {"metadata": {"labels": own}, "spec": spec}
    return POD_TEMPLATE.manifest(child_metadata(request, name, _own_labels(gang)), template=template)


def _own_labels(gang: PodGang) -> dict[str, str]:
    pcs = gang.metadata.labels.get(labels.PART_OF, "")
    return labelsets.component(pcs, labels.PROVISIONING, gang.metadata.name) | {labels.POD_GANG: gang.metadata.name}


def wait_before_next_s(request: ProvisioningRequest, now: datetime) -> float | None:
    """Seconds until a request that is over is made again; None while the cluster autoscaler works on it."""
    ended = [
        condition.last_transition_time
        for condition in request.status.conditions
        if condition.type in OVER and condition.status == TRUE
    ]
    if not ended:
        return None
    since = [(now - at).total_seconds() for at in ended if at is not None]
    return max(0.0, RETRY_S - min(since, default=RETRY_S))


def provisioning_state(request: ProvisioningRequest) -> ProvisioningState:
    conditions = request.status.conditions
    over = next((type_ for type_ in OVER if is_true(conditions, type_)), "")
    is_there = is_true(conditions, PROVISIONED) and not over
    reason = over or (PROVISIONED if is_there else conditions[-1].type if conditions else REQUESTED)
    parts = [
        f"{condition.type}={condition.status} ({condition.reason}): {condition.message}" for condition in conditions
    ]
    message = f"ProvisioningRequest {request.metadata.name}: {'; '.join(parts) or 'no answer yet'}"
    return ProvisioningState(TRUE if is_there else FALSE, reason, message)
