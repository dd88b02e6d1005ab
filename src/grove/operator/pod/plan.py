"""The pod condition `PodStartupBlocked`: which pods wait, and for which pods, in words.

The start-order container (`startup`) does the waiting; this module only reports it. A pod that never had to wait gets
no condition, so a set whose parents are quick costs no write. The exception is a pod with the readiness gate
`grove.io/startup-order`: the kubelet waits for it, so it is always written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from grove.api import labels
from grove.api.conditions import (
    FALSE,
    POD_STARTUP_BLOCKED,
    PREREQUISITES_NOT_READY,
    PREREQUISITES_READY,
    STARTUP_ORDER,
    TRUE,
)
from grove.api.core import Pod
from grove.api.meta import Condition, Json, find_condition, is_true
from grove.api.startorder import READY
from grove.operator.shared.diff import condition_steps
from grove.operator.shared.startup import has_start_order_container, has_started, start_conditions


@dataclass(frozen=True, slots=True)
class BlockedChange:
    """A pod whose condition is to change. Only the words differ if not `turned`: that may wait for more to change."""

    pod: Pod
    status: str
    reason: str
    message: str
    turned: bool


def blocked_changes(
    pods: Iterable[Pod], minimums: Sequence[tuple[str, int]], ready: Mapping[str, int], condition: str = READY
) -> list[BlockedChange]:
    """The event for the pods of a clique, given how many pods of each parent it needs and how many are `condition`."""
    missing = [(fqn, needed) for fqn, needed in minimums if ready.get(fqn, 0) < needed]
    suffix = "" if condition == READY else f" {condition}"
    message = ", ".join(f"{fqn}={ready.get(fqn, 0)}/{needed}{suffix}" for fqn, needed in minimums)
    changes = (_change(pod, bool(missing), message) for pod in pods)
    return [change for change in changes if change is not None]


def reached_in_gang(pods: Iterable[Pod], gang: str, condition: str) -> int:
    """Pods that count for a waiting one: they satisfy its start condition and are of its own gang."""
    counted = (pod for pod in pods if condition in start_conditions(pod))
    return sum(pod.metadata.labels.get(labels.POD_GANG) == gang for pod in counted)


def condition_patch(change: BlockedChange, now: datetime) -> list[Json]:
    """The JSON patch of a pod's status that writes this condition, and its readiness gate's, and touches no other."""
    steps = condition_steps(change.pod, POD_STARTUP_BLOCKED, change.status, change.reason, change.message, now)
    if _is_gated(change.pod):
        status = FALSE if change.status == TRUE else TRUE
        steps += condition_steps(change.pod, STARTUP_ORDER, status, change.reason, change.message, now)
    return steps


def _change(pod: Pod, blocked: bool, message: str) -> BlockedChange | None:
    conditions = pod.status.conditions
    if pod.metadata.is_deleting or not conditions or not has_start_order_container(pod):
        return None  # a pod without any condition is about to get one, and there is no list to add ours to yet
    old = find_condition(conditions, POD_STARTUP_BLOCKED)
    if blocked and not has_started(pod):
        return _unless_said(pod, old, TRUE, PREREQUISITES_NOT_READY, message)
    if _is_gated(pod) and not is_true(conditions, STARTUP_ORDER):
        return BlockedChange(pod, FALSE, PREREQUISITES_READY, message, turned=True)
    if old is None or old.status == FALSE:
        return None
    return _unless_said(pod, old, FALSE, PREREQUISITES_READY, message)


def _unless_said(pod: Pod, old: Condition | None, status: str, reason: str, message: str) -> BlockedChange | None:
    if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
        return None
    return BlockedChange(pod, status, reason, message, turned=old is None or old.status != status)


def _is_gated(pod: Pod) -> bool:
    return any(gate.get("conditionType") == STARTUP_ORDER for gate in pod.spec.readiness_gates)
