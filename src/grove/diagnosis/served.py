"""Pods that a new pod may replace with success: they served before, and crash, hang, or never say anything. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from grove.api.meta import find_condition
from grove.api.pod import Pod, PodHealth, pod_health

SERVED_FOR = timedelta(seconds=5)
"""A pod whose readiness changed this long after its kubelet took it was ready in between."""
LONG = timedelta(minutes=15)
"""A pod that is bound this long, and of which no kubelet says anything, hangs."""


def may_recover(pod: Pod) -> bool:
    """True if a new pod may do better: this one served before, and crashes or hangs."""
    return hangs(pod) or (pod_health(pod) is PodHealth.CRASHING and _was_ready(pod))


def hangs(pod: Pod) -> bool:
    """True if all containers run, were ready, and are not ready any more without a restart."""
    statuses, ready = pod.status.container_statuses, find_condition(pod.status.conditions, "Ready")
    since = ready.last_transition_time if ready is not None else None
    if pod_health(pod) is not PodHealth.UNREADY or since is None:
        return False
    begun = [status.state.running.started_at if status.state.running else None for status in statuses]
    return all(moment is not None and moment < since for moment in begun)


def is_silent_for_long(pod: Pod, now: datetime | None) -> bool:
    """True if the pod has had its node for so long that it should have started."""
    bound = find_condition(pod.status.conditions, "PodScheduled")
    since = bound.last_transition_time if bound is not None else None
    return now is not None and since is not None and now - since > LONG


def _was_ready(pod: Pod) -> bool:
    """True if the pod was ready once. A kubelet writes the first `Ready` when it takes the pod."""
    ready, start = find_condition(pod.status.conditions, "Ready"), pod.status.start_time
    if ready is None or ready.last_transition_time is None or start is None:
        return False
    return ready.last_transition_time - start > SERVED_FOR
