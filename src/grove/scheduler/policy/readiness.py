"""Whether it is a gang's turn: may its minimum be placed, only its surplus, or what does it wait for.

A gang that never stood is taken whole: all its pods exist and none is gated. One that stood and lost pods is repaired
with what exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from grove.api.core import Pod
from grove.api.koordinator import PRIORITY, QOS
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gangs import (
    INVALID,
    PLACED,
    QOS_MISMATCH,
    WAITING_FOR_BASE,
    WAITING_FOR_GATES,
    WAITING_FOR_PODS,
    GangState,
    Verdict,
    is_initialized,
    missing_pods,
)
from grove.scheduler.policy.life import Phase
from grove.scheduler.policy.queue import Stage


@dataclass(frozen=True, slots=True)
class Look:
    """What the cluster shows of a gang's pods."""

    bound: Mapping[str, int]
    """Pods on nodes by group, those on their way out left out."""
    reserved: Mapping[str, int]
    """The same with those that have a place and no binding yet."""
    pending: Sequence[Pod]
    """Pods of ours without a place that are there to stay."""
    is_leaving: bool
    """Whether any is being deleted."""
    has_stood: bool
    """Whether the minimum was on nodes once, and one of the pods that are there now was among them."""

    @property
    def on_nodes(self) -> bool:
        return any(self.reserved.values())


class Base(Enum):
    """What a scaled gang finds of its base gang."""

    STANDS = "it has its place, or is about to have it"
    WAITS = "it waits itself"
    ABSENT = "it does not exist"


@dataclass(frozen=True, slots=True)
class Readiness:
    """`stage` is set when something of it may be placed now; `verdict` says what it waits for, or that it stands."""

    phase: Phase
    stage: Stage | None
    verdict: Verdict | None = None


PHASES = {
    INVALID: Phase.INVALID,
    WAITING_FOR_PODS: Phase.WAITING_FOR_PODS,
    WAITING_FOR_GATES: Phase.WAITING_FOR_GATES,
    WAITING_FOR_BASE: Phase.WAITING_FOR_BASE,
}


def readiness(gang: GangState, look: Look, base: Callable[[str], Base]) -> Readiness:
    """What may be done for a gang now."""
    if gang.trouble:
        return _waits(INVALID, Reason(kinds.INVALID, gang.trouble))
    if look.pending and (mixed := _mixed(look.pending)) is not None:
        return Readiness(Phase.INVALID, None, Verdict(False, QOS_MISMATCH, mixed))
    is_open = any(not pod.is_gated for pod in look.pending)
    if gang.has_minimum(look.reserved):
        if not gang.life.is_busy and not gang.has_minimum(look.bound):
            return Readiness(Phase.QUEUED, None)  # they are on their way for a PodGang that is gone; that ends soon
        return Readiness(Phase.PLACED, Stage.SURPLUS if is_open else None, PLACED)
    if look.has_stood:
        return Readiness(Phase.REPAIRING, floor_of(gang) if is_open else None)
    if not gang.podgang.spec.podgroups or not gang.group_of:
        return _waits(WAITING_FOR_PODS, Reason(kinds.NO_PODS), brief=not is_initialized(gang.podgang))
    if not is_initialized(gang.podgang):
        return _waits(WAITING_FOR_PODS, Reason(kinds.PODS_COMING), brief=True)
    if gang.missing:
        return Readiness(Phase.WAITING_FOR_PODS, None, missing_pods(gang))
    if look.is_leaving:
        return _waits(WAITING_FOR_PODS, Reason(kinds.PODS_LEAVING), brief=True)
    if any(pod.is_gated for pod in look.pending):
        return _waits(WAITING_FOR_GATES, Reason(kinds.GATED), brief=True)
    if gang.base and (found := base(gang.base)) is not Base.STANDS:
        state = {"state": "absent"} if found is Base.ABSENT else {}
        return _waits(WAITING_FOR_BASE, Reason(kinds.BASE_WAITS, gang.base, names=state))
    return Readiness(Phase.QUEUED, floor_of(gang) if gang.has_floor else Stage.SURPLUS)


def floor_of(gang: GangState) -> Stage:
    """The stage of its minimum."""
    return Stage.SCALED_FLOOR if gang.base else Stage.FLOOR


def _waits(reason: str, why: Reason, *, brief: bool = False) -> Readiness:
    return Readiness(PHASES[reason], None, Verdict(False, reason, why, brief))


def _mixed(pods: Sequence[Pod]) -> Reason | None:
    """Why pods cannot be one gang: all of it has one QoS class and one sub-priority."""
    for label in (QOS, PRIORITY):
        values = {pod.metadata.labels.get(label, "") for pod in pods}
        if len(values) > 1:
            shown = ", ".join(value or "none" for value in sorted(values))
            return Reason(kinds.INVALID, f"{label} must be the same in a whole gang, not {shown}")
    return None
