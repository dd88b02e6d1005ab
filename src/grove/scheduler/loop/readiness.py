"""Whether it is a gang's turn: may its minimum be placed, only its surplus, or what does it wait for; and whose first.

Also the tree the core is asked about. A gang that never stood is taken whole: all its pods exist and none is gated. One
that stood and lost pods is repaired with what exists, inside the domains its running pods keep it in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from grove.api import labels
from grove.api.core import Pod
from grove.api.koordinator import PRIORITY, QOS
from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.scheduler.loop.view import View
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.model.gang import ZONES, Gang, Pin, Strategy, Wishes, build_gang, wishing, zone_wishes
from grove.scheduler.model.reasons import Reason
from grove.scheduler.model.seams import Applicant
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
    says_placed,
)
from grove.scheduler.policy.life import Phase
from grove.scheduler.policy.queue import Order, Stage


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


def _waits(reason: str, kind: str, subject: str = "", *, brief: bool = False) -> Readiness:
    return Readiness(PHASES[reason], None, Verdict(False, reason, Reason(kind, subject), brief))


def has_stood(view: View, gang: GangState) -> bool:
    """Whether the minimum of a gang was on nodes once, and one of the pods that are there now was among them."""
    if not any(view.standing(gang, with_reserved=True).values()):
        return False
    bound = (view.bound_since(pod) for pod, _ in view.members(gang) if pod.spec.node_name)
    return gang.stood or says_placed(gang.podgang, (moment for moment in bound if moment is not None))


def readiness(view: View, gang: GangState, base_stands: Callable[[str], bool]) -> Readiness:
    """What may be done for a gang now."""
    has_minimum = view.has_minimum(gang, with_reserved=True)
    if gang.trouble:
        return _waits(INVALID, kinds.INVALID, gang.trouble)
    pending = [pod for pod, _ in view.members(gang) if is_pending(view, pod)]
    if pending and (mixed := _mixed(pending)) is not None:
        return Readiness(Phase.INVALID, None, Verdict(False, QOS_MISMATCH, mixed))
    is_open = any(not pod.is_gated for pod in pending)
    if has_minimum and not gang.life.is_busy and not view.has_minimum(gang):
        return Readiness(Phase.QUEUED, None)  # its pods are on their way for a PodGang that is gone; that ends soon
    if has_minimum:
        return Readiness(Phase.PLACED, Stage.SURPLUS if is_open else None, PLACED)
    if has_stood(view, gang):
        return Readiness(Phase.REPAIRING, _floor(gang) if is_open else None)
    if not gang.podgang.spec.podgroups or not gang.group_of:
        return _waits(WAITING_FOR_PODS, kinds.NO_PODS, brief=not is_initialized(gang.podgang))
    if not is_initialized(gang.podgang):
        return _waits(WAITING_FOR_PODS, kinds.PODS_COMING, brief=True)
    if gang.missing:
        return Readiness(Phase.WAITING_FOR_PODS, None, missing_pods(gang))
    if any(view.is_leaving(pod) for pod, _ in view.members(gang)):
        return _waits(WAITING_FOR_PODS, kinds.PODS_LEAVING, brief=True)
    if any(pod.is_gated for pod in pending):
        return _waits(WAITING_FOR_GATES, kinds.GATED, brief=True)
    if gang.base and not base_stands(gang.base):
        state = {} if gang.base in view.gangs else {"state": "absent"}
        why = Reason(kinds.BASE_WAITS, gang.base, names=state)
        return Readiness(Phase.WAITING_FOR_BASE, None, Verdict(False, WAITING_FOR_BASE, why))
    return Readiness(Phase.QUEUED, _floor(gang) if gang.has_floor else Stage.SURPLUS)


def _mixed(pods: list[Pod]) -> Reason | None:
    """Why pods cannot be one gang: all of it has one QoS class and one sub-priority."""
    for label in (QOS, PRIORITY):
        values = {pod.metadata.labels.get(label, "") for pod in pods}
        if len(values) > 1:
            shown = ", ".join(value or "none" for value in sorted(values))
            return Reason(kinds.INVALID, f"{label} must be the same in a whole gang, not {shown}")
    return None


def is_pending(view: View, pod: Pod) -> bool:
    return view.is_ours(pod) and not view.node_of(pod) and not view.is_leaving(pod)


def _floor(gang: GangState) -> Stage:
    return Stage.SCALED_FLOOR if gang.base else Stage.FLOOR


def order_of(view: View, name: str) -> Order:
    """Where the minimum of a gang, or a single pod, comes in the queue."""
    gang = view.gangs.get(name)
    if gang is not None:
        return gang_order(view, gang, _floor(gang))
    pod = view.singles.get(name)
    created = pod.metadata.creation_timestamp if pod is not None else None
    priority = (pod.spec.priority or 0) if pod is not None else 0
    applicant = Applicant(name, priority, pod.metadata.labels if pod is not None else {})
    rank = view.snapshot.seams.rank(view.snapshot, applicant)
    return Order(rank, Stage.FLOOR, created.timestamp() if created else 0.0, name)


def gang_order(view: View, gang: GangState, stage: Stage) -> Order:
    meta = gang.podgang.metadata
    created = meta.creation_timestamp
    first = next((pod.metadata.labels for pod, _ in view.members(gang)), {})  # what its pods are counted by
    applicant = Applicant(gang.name, gang.priority, {**meta.labels, **first})
    rank = view.snapshot.seams.rank(view.snapshot, applicant)
    return Order(rank, stage, created.timestamp() if created else 0.0, gang.name)


def tree_of(view: View, gang: GangState, strategy: Strategy) -> Gang:
    """The gang as the core takes it; raises BadGang when the PodGang contradicts itself."""
    facts: dict[Key, PodFacts] = {}
    may_preempt = True
    topology = gang.podgang.metadata.annotations.get(labels.TOPOLOGY_NAME, "")
    wishes: Wishes = ()
    if zones := gang.podgang.metadata.annotations.get(ZONES):
        wishes = zone_wishes(zones, view.level_names(topology))
    for pod, _ in view.members(gang):
        if not view.node_of(pod):
            if not view.is_ours(pod) or pod.is_gated or view.is_leaving(pod):
                continue
            may_preempt = may_preempt and pod.spec.preemption_policy != "Never"
        facts[pod.metadata.key] = wishing(view.facts(pod), wishes)
    podgang = gang.podgang
    if len(facts) < len(gang.group_of):
        podgang = _with_existing(podgang, facts, lower=has_stood(view, gang))
    named = view.priorities.get(Key("", podgang.spec.priority_class_name))
    if named is not None and named.preemption_policy == "Never":
        may_preempt = False
    return build_gang(
        podgang,
        facts,
        priority=gang.priority,
        may_preempt=may_preempt,
        topology=topology,
        pinned_domain=_base_domain(view, gang),
        headroom=_headroom(view, gang),
        strategy=strategy,
        former=_former(view, podgang),
        seats={group: tuple(left) for group, left in view.seats.get(gang.name, {}).items()},
    )


def _former(view: View, podgang: PodGang) -> frozenset[str]:
    """Nodes of the gang whose place this one may take over: where it is, or where it was as far as we remember."""
    named = podgang.spec.reuse_reservation_ref
    if named is None:
        return frozenset()
    name = f"{named.namespace}/{named.name}"
    gang = view.gangs.get(name)
    nodes = frozenset(node for pod, _ in view.members(gang) if (node := view.node_of(pod))) if gang else frozenset()
    return nodes or view.places.get(name, frozenset())


def _with_existing(podgang: PodGang, facts: dict[Key, PodFacts], *, lower: bool) -> PodGang:
    """The PodGang without references to pods that are not there; `lower` makes minima ask for no more than exist."""
    groups = []
    for group in podgang.spec.podgroups:
        refs = tuple(ref for ref in group.pod_references if Key(ref.namespace, ref.name) in facts)
        minimum = min(group.min_replicas, len(refs)) if lower else group.min_replicas
        groups.append(msgspec.structs.replace(group, pod_references=refs, min_replicas=minimum))
    spec = msgspec.structs.replace(podgang.spec, podgroups=tuple(groups))
    return msgspec.structs.replace(podgang, spec=spec)


def _base_domain(view: View, gang: GangState) -> Pin | None:
    """A requirement of the whole replica holds for its scaled gangs too: they go where their base gang is."""
    base = view.gangs.get(gang.base) if gang.base else None
    if base is None or base.podgang.spec.topology_constraint is None:
        return None
    key = base.podgang.spec.topology_constraint.required
    if not key:
        return None
    known = view.snapshot.nodes.row_of
    nodes = [node for pod, _ in view.members(base) if (node := view.node_of(pod)) in known and not view.is_leaving(pod)]
    return Pin(key, min(nodes)) if nodes else None


def _headroom(view: View, gang: GangState) -> tuple[tuple[Shape, int], ...]:
    """Pods of the scaled gangs that will have to join this one in its domain."""
    constraint = gang.podgang.spec.topology_constraint
    if constraint is None or not constraint.required:
        return ()
    wanted: Counter[Shape] = Counter()
    for name in sorted(view.scaled_of.get(gang.name, ())):
        scaled = view.gangs.get(name)
        if scaled is not None:
            wanted.update(view.facts(pod).shape for pod, _ in view.members(scaled) if is_pending(view, pod))
    return tuple(wanted.items())
