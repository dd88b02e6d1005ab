"""Pods and sets that are being deleted: which of them should be gone by now, and what keeps them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from grove.api import labels
from grove.api.core import Pod
from grove.api.meta import ObjectMeta
from grove.api.podcliqueset import PodCliqueSet
from grove.diagnosis.gang_answer import Verdict, because
from grove.diagnosis.words import age

SLACK = timedelta(minutes=1)
"""Kubelets and controllers take this long behind the end of a grace period without a fault."""
OF_KUBERNETES = ("foregroundDeletion", "orphan")


def is_overdue(meta: ObjectMeta, now: datetime | None) -> bool:
    """True if an object should be gone. The deletion timestamp of a pod is the end of its grace period."""
    due = meta.deletion_timestamp
    return due is not None and now is not None and now - due > SLACK


def overdue_pods(pods: Iterable[Pod], now: datetime | None) -> list[Pod]:
    return [pod for pod in pods if is_overdue(pod.metadata, now)]


def leaving_words(pod: Pod, now: datetime | None) -> str:
    """`is being deleted`, and what keeps the pod if it should be gone."""
    if now is None or not is_overdue(pod.metadata, now):
        return "is being deleted"
    kept = f"finalizer {_named(pod.metadata)} keeps it" if pod.metadata.finalizers else "its kubelet has not ended it"
    return f"should be gone since {age(pod.metadata.deletion_timestamp, now)}: {kept}"


def step_for(pod: Pod) -> str:
    """What ends a pod that should be gone."""
    if pod.metadata.finalizers:
        return f"the program that set finalizer {_named(pod.metadata)} has to remove it"
    return f"look at the kubelet of node {pod.spec.node_name}; if the node is gone for good, delete it"


def why_deleting(pcs: PodCliqueSet, pods: Iterable[Pod], now: datetime | None) -> Verdict:
    """What a set that is being deleted waits for: its own pods, or a finalizer of another program."""
    foreign = [
        finalizer for finalizer in pcs.metadata.finalizers if finalizer not in (labels.SET_FINALIZER, *OF_KUBERNETES)
    ]
    if foreign and labels.SET_FINALIZER not in pcs.metadata.finalizers:
        reason = f"is being deleted; finalizer {', '.join(foreign)} keeps it"
        patch = """-p '{"metadata":{"finalizers":null}}'"""
        where = f"kubectl -n {pcs.metadata.namespace} patch pcs {pcs.metadata.name} --type=merge"
        step = f"the program that set it has to remove it; if that is gone for good: {where} {patch}"
        return because("", "finalizer", reason, next=step)
    if late := overdue_pods(pods, now):
        evidence = tuple(f"pod: {pod.metadata.name} {leaving_words(pod, now)}" for pod in late)
        reason = f"is being deleted; {late[0].metadata.name} {leaving_words(late[0], now)}"
        return because("", "pod", reason, evidence, step_for(late[0]))
    step = "wait until its pods are gone"
    if is_overdue(pcs.metadata, now):
        step = "kubectl grove doctor: does the operator run? It ends the deletion"
    return because("", "operator", "is being deleted", next=step)


def _named(meta: ObjectMeta) -> str:
    return ", ".join(meta.finalizers)
