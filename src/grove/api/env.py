"""Environment variables Grove gives to pods, and those its own processes read.

They stand before the user's own, so that a user's value may say `$(GROVE_PCLQ_NAME)`. A user's variable of the same
name is dropped: the programs of a pod may rely on ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grove.api import labels, names
from grove.api.meta import Json

PCS_NAME = "GROVE_PCS_NAME"
PCS_INDEX = "GROVE_PCS_INDEX"
PCLQ_NAME = "GROVE_PCLQ_NAME"
HEADLESS_SERVICE = "GROVE_HEADLESS_SERVICE"
PCLQ_POD_INDEX = "GROVE_PCLQ_POD_INDEX"
REVISION = "GROVE_REVISION"
PCSG_NAME = "GROVE_PCSG_NAME"
PCSG_TEMPLATE_NUM_PODS = "GROVE_PCSG_TEMPLATE_NUM_PODS"
PCSG_INDEX = "GROVE_PCSG_INDEX"

# Read by the operator's process.
INIT_CONTAINER_IMAGE = "GROVE_INIT_CONTAINER_IMAGE"


def pod_variables(pcs: str, replica: int, clique_fqn: str, namespace: str) -> list[Json]:
    """Environment variables of every pod of a set; written when the pod is made."""
    return [
        _literal(PCS_NAME, pcs),
        _literal(PCS_INDEX, str(replica)),
        _literal(PCLQ_NAME, clique_fqn),
        _literal(HEADLESS_SERVICE, names.service_dns(pcs, replica, namespace)),
        _from_label(PCLQ_POD_INDEX, labels.POD_INDEX),
        _from_label(REVISION, labels.REVISION),
    ]


def group_variables(template_pods: int) -> list[Json]:
    """Further environment variables of members of a scaling group; written into the PodClique's own pod spec.

    `template_pods` is the number of pods in one replica of the group, counted from the templates.
    """
    return [
        _from_label(PCSG_NAME, labels.SCALING_GROUP),
        _literal(PCSG_TEMPLATE_NUM_PODS, str(template_pods)),
        _from_label(PCSG_INDEX, labels.SCALING_GROUP_REPLICA_INDEX),
    ]


def with_variables(pod_spec: Json, variables: Sequence[Json]) -> Json:
    """A copy of a pod spec whose containers and init containers all have `variables` first."""
    ours = {variable["name"] for variable in variables}

    def with_variables(container: Json) -> Json:
        own = [v for v in container.get("env") or () if v.get("name") not in ours]
        return {**container, "env": [*variables, *own]}

    changed: dict[str, Any] = {
        part: [with_variables(container) for container in pod_spec[part]]
        for part in ("containers", "initContainers")
        if pod_spec.get(part)
    }
    return {**pod_spec, **changed}


def _literal(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def _from_label(name: str, label: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
