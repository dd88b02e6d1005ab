"""Reasons of conditions: of the gang's `Scheduled`, and of the `PodScheduled` of pods that wait.

Node autoscalers read the reason on the pods. Karpenter and the cluster autoscaler add nodes for a pod whose reason is
`Unschedulable`, and for no other pod. So a pod has this reason exactly while new nodes could help its gang.
"""

from __future__ import annotations

from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_state import HELD_FOR_OTHERS, INVALID, QOS_MISMATCH, UNSCHEDULABLE, Verdict

SCHEDULER_ERROR = "SchedulerError"
"""What Kubernetes calls a pod that a scheduler cannot decide about."""
QUOTA_REASONS = {
    kinds.QUOTA_EXCEEDED: kinds.QUOTA_EXCEEDED,
    kinds.QUOTA_KEPT: kinds.QUOTA_EXCEEDED,
    kinds.QUEUE_MISSING: kinds.QUEUE_MISSING,
    kinds.QUEUE_INVALID: kinds.QUEUE_INVALID,
    kinds.QUEUE_NOT_LEAF: kinds.QUEUE_INVALID,
}
"""Reasons of the Scheduled condition for gangs that a queue keeps out."""
NO_NODES_HELP = (kinds.NOT_ADMITTED, kinds.MISSING_PODS)
"""Refusals that hold on any number of nodes."""


def refused(why: Reason) -> Verdict:
    """The verdict on a gang, or on pods above its minimum, for which there is no place."""
    kept_out = why.parts[0].kind if why.kind == kinds.NOT_ADMITTED and why.parts else ""
    return Verdict(False, QUOTA_REASONS.get(kept_out, UNSCHEDULABLE), why)


def pod_reason(verdict: Verdict) -> str:
    """Reason of PodScheduled=False of a pod whose gang, or which itself, waits for this."""
    if verdict.reason in (INVALID, QOS_MISMATCH):
        return SCHEDULER_ERROR
    if verdict.reason == HELD_FOR_OTHERS and verdict.why.kind == kinds.HEADROOM_OF_OTHERS:
        return UNSCHEDULABLE  # no pod waits for headroom, so a node autoscaler must see the gang itself
    if verdict.reason == UNSCHEDULABLE and verdict.why.kind in NO_NODES_HELP:
        return verdict.why.kind
    return verdict.reason
