"""How far a pod got: it served before and may recover, no container ever ran, or an init container runs. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from grove.api.meta import find_condition
from grove.api.pod import ContainerStatus, Pod, PodHealth, pod_health
from grove.diagnosis.words import age

INIT_RUNS = "init container"

SERVED_FOR = timedelta(seconds=5)
"""A pod whose readiness changed this long after its kubelet took it was ready in between."""
LONG = timedelta(minutes=15)
"""A pod that is bound this long, and says nothing, hangs."""


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
    """True if the pod has had its node for so long that a container should have started.

    An init container at work may fetch a model, and a restart would begin that again.
    """
    if init_at_work(pod) is not None:
        return False
    bound = find_condition(pod.status.conditions, "PodScheduled")
    since = bound.last_transition_time if bound is not None else None
    return now is not None and since is not None and now - since > LONG


def runs_something(pod: Pod) -> bool:
    """True if a container of the pod, or an init container, runs."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return any(status.state.running is not None for status in statuses)


def init_at_work(pod: Pod) -> ContainerStatus | None:
    """The init container that runs now, so that the containers of the pod wait for it; None if there is none."""
    sidecars = {container.name for container in pod.spec.init_containers if container.is_sidecar}
    statuses = pod.status.init_container_statuses
    return next(
        (status for status in statuses if status.state.running is not None and status.name not in sidecars), None
    )


def init_words(status: ContainerStatus, now: datetime | None) -> str:
    """`init container fetch has run for 20m`."""
    since = status.state.running.started_at if status.state.running is not None else None
    if now is None or since is None:
        return f"{INIT_RUNS} {status.name} runs"
    return f"{INIT_RUNS} {status.name} has run for {age(since, now)}"


def _was_ready(pod: Pod) -> bool:
    """True if the pod was ready once. A kubelet writes the first `Ready` when it takes the pod."""
    ready, start = find_condition(pod.status.conditions, "Ready"), pod.status.start_time
    if ready is None or ready.last_transition_time is None or start is None:
        return False
    return ready.last_transition_time - start > SERVED_FOR
