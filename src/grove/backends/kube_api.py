"""Which gangs a cluster's kube-scheduler supports: the Workload API in its versions, as the server reports them.

Three releases have three shapes and no conversion between them: 1.35 (`v1alpha1`, groups inside a Workload), 1.36
(`v1alpha2`, Workload and PodGroup), 1.37 (`v1beta1`, and in `v1alpha3` groups of groups). The server silently drops a
field behind a closed feature gate, so a dry run shows what it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grove.api.core import Pod
from grove.api.meta import Json, Resource
from grove.backends.base import Answers, Question

GROUP = "scheduling.k8s.io"
V1ALPHA1, V1ALPHA2, V1ALPHA3, V1BETA1 = "v1alpha1", "v1alpha2", "v1alpha3", "v1beta1"
VERSIONS = (V1BETA1, V1ALPHA3, V1ALPHA2, V1ALPHA1)
"""Best first."""
COMPOSITE = Resource(GROUP, V1ALPHA3, "CompositePodGroup", "compositepodgroups")

PROBE_NAMESPACE = "default"
_PROBE = {"generateName": "grove-probe-", "namespace": PROBE_NAMESPACE}


@dataclass(frozen=True, slots=True)
class Capability:
    """The features of the Workload API on this server. `version` is empty without that API.

    No API says if the scheduler enforces the groups; see `NOT_ENFORCED`.
    """

    version: str = ""
    topology: bool = False
    preemption: bool = False
    """Priority and disruption mode of a whole group."""
    tree: bool = False
    """Groups of groups."""

    @property
    def pod_field(self) -> str:
        return "workloadRef" if self.version == V1ALPHA1 else "schedulingGroup"


def workload(version: str) -> Resource:
    return Resource(GROUP, version, "Workload", "workloads")


def pod_group(version: str) -> Resource:
    return Resource(GROUP, version, "PodGroup", "podgroups")


def questions() -> Iterator[Question]:
    for version in VERSIONS:
        workloads = f"{version} workloads"
        yield Question(workloads, "served", workload(version))
        if version != V1ALPHA1:
            yield Question(version, "served", pod_group(version), only_if=workloads)
            yield Question(f"{version} group", "dry_run", pod_group(version), _probe_group(version), only_if=version)
        seen = workloads if version == V1ALPHA1 else version
        yield Question(f"{version} pod", "dry_run", Pod.RESOURCE, _probe_pod(version), only_if=seen)
    yield Question("tree", "served", COMPOSITE, only_if=V1BETA1)


def capability(answers: Answers) -> Capability:
    """The best that is offered in full: kinds served, and the pod's field kept."""
    for version in VERSIONS:
        if not answers.get(f"{version} workloads") or (version != V1ALPHA1 and not answers.get(version)):
            continue
        offered = Capability(version)
        pod = answers.get(f"{version} pod")
        if pod is not None and offered.pod_field not in pod["spec"]:
            continue  # this server has its feature gate off and would drop the reference
        spec: Json = (answers.get(f"{version} group") or {}).get("spec") or {}
        return Capability(
            version,
            topology=bool((spec.get("schedulingConstraints") or {}).get("topology")),
            preemption=spec.get("disruptionMode") == disruption_mode(version),
            tree=version == V1BETA1 and bool(answers.get("tree")),
        )
    return Capability()


def disruption_mode(version: str) -> Any:
    """Evict all pods of a group or none."""
    return "PodGroup" if version == V1ALPHA2 else {"all": {}}


def _probe_group(version: str) -> Json:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 1}},
        "schedulingConstraints": {"topology": [{"key": "kubernetes.io/hostname"}]},
        "disruptionMode": disruption_mode(version),
    }
    return {"metadata": _PROBE, "spec": spec}


def _probe_pod(version: str) -> Json:
    reference = {"name": "grove-probe", "podGroup": "core"} if version == V1ALPHA1 else {"podGroupName": "grove-probe"}
    spec = {
        "containers": [{"name": "probe", "image": "registry.k8s.io/pause:3.10"}],
        Capability(version).pod_field: reference,
    }
    return {"metadata": _PROBE, "spec": spec}
