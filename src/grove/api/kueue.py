"""Keys by which Kueue admits pods, and the state that it shows on a pod. Kueue is optional on a cluster.

The operator writes these keys on pods and reads no object of Kueue. Only `explain` reads Kueue's objects.
"""

from __future__ import annotations

from grove.api.core import Pod
from grove.api.meta import Resource, is_true
from grove.api.podcliqueset import PodCliqueSet

_PREFIX = "kueue.x-k8s.io/"
QUEUE = f"{_PREFIX}queue-name"
"""A label of a set and of its pods: the LocalQueue."""
GROUP = f"{_PREFIX}pod-group-name"
"""A label of pods that Kueue admits together. Kueue gives the group's Workload the same name."""
TOTAL = f"{_PREFIX}pod-group-total-count"
"""An annotation: how many pods the group has."""
SERVING = f"{_PREFIX}pod-group-serving"
"""An annotation, "true": the group never finishes, so a pod that ended keeps its quota until it is replaced."""
ROLE = f"{_PREFIX}role-hash"
"""An annotation: the pod set of the Workload that counts this pod. Kueue computes it where it is absent."""
MANAGED = f"{_PREFIX}managed"
"""The label of pods that Kueue manages, and the finalizer that it puts on them."""
GATE = f"{_PREFIX}admission"
OWN_KEYS = (QUEUE, GROUP, TOTAL, SERVING, ROLE, MANAGED)
MOST_ROLES = 8
"""Kueue makes no Workload with more pod sets."""

VERSIONS = ("v1beta2", "v1beta1")
TERMINATION_TARGET = "TerminationTarget"
"""The condition that Kueue sets to True on a pod before it deletes the pod."""


def kinds(version: str) -> tuple[Resource, Resource, Resource]:
    """Workload, LocalQueue and ClusterQueue in one version of Kueue's API."""
    group = "kueue.x-k8s.io"
    return (
        Resource(group, version, "Workload", "workloads"),
        Resource(group, version, "LocalQueue", "localqueues"),
        Resource(group, version, "ClusterQueue", "clusterqueues", namespaced=False),
    )


def queue_of(pcs: PodCliqueSet) -> str:
    """The LocalQueue that a set names; empty if Kueue has no part in it."""
    return pcs.metadata.labels.get(QUEUE, "")


def is_managed(pod: Pod) -> bool:
    return MANAGED in pod.metadata.labels


def waits(pod: Pod) -> bool:
    """True if Kueue has not admitted the pod yet."""
    return pod.has_gate(GATE)


def is_held(pod: Pod) -> bool:
    """True if Kueue keeps the pod out of its gang: Kueue has not admitted it, or evicts it."""
    if pod.metadata.is_deleting:
        return is_managed(pod) and is_true(pod.status.conditions, TERMINATION_TARGET)
    return waits(pod)


def keeps_deleted(old: Pod | None, new: Pod | None) -> bool:
    """True if Kueue's finalizer keeps a deleted pod in the API."""
    return new is not None and new.metadata.is_deleting and MANAGED in new.metadata.finalizers
