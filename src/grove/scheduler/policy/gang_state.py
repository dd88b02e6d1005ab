"""One PodGang as the live scheduler follows it: its pods, its life, and whether it is due.

A `GangState` stands for one object, by uid: another PodGang of the same name is another state. All modules read it;
only this module writes to it. Facts come in by its methods, and events through `tell`.

`readiness` says what the scheduler may do for it now. A new gang is taken whole: all its pods exist and none is gated.
A gang that was placed and lost pods is repaired with the pods that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from grove.api import conditions as words
from grove.api import kueue, labels
from grove.api.core import Pod
from grove.api.koordinator import PRIORITY, QOS
from grove.api.meta import Key, find_condition, is_true
from grove.api.podgang import NamespacedName, PodGang, PodGangSpec, PodGroup
from grove.scheduler.evict.running import POD
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.gang import Pin
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_life import Event, Life, Phase, after
from grove.scheduler.policy.waiting_queue import Stage

# Reasons of the Scheduled condition.
GANG_SCHEDULED = "GangScheduled"
UNSCHEDULABLE = "Unschedulable"
WAITING_FOR_PODS = "WaitingForPods"
WAITING_FOR_GATES = "SchedulingGated"
WAITING_FOR_BASE = "WaitingForBaseGang"
INVALID = "InvalidPodGang"
QOS_MISMATCH = "QoSMismatch"
PODS_LOST = "PodsLost"
BINDING = "Binding"
BIND_FAILED = "BindFailed"
GANG_TIMEOUT = "GangTimeout"
PREEMPTING = "Preempting"
HELD_FOR_OTHERS = words.NODES_HELD_FOR_OTHERS
NO_PLACE = (UNSCHEDULABLE, HELD_FOR_OTHERS)

CLOCKS_DIFFER = timedelta(seconds=5)
"""The scheduler's clock may be behind the cluster's by this much."""
MOST_REPLACED = 1024
MOST_NAMED = 3
"""Missing pods that are named."""


class Base(Enum):
    """The state of the base gang of a scaled gang."""

    STANDS = "it has its place, or is about to have it"
    WAITS = "it waits itself"
    ABSENT = "it does not exist"


class Verdict(msgspec.Struct, frozen=True):
    """The content of the Scheduled condition. `brief` marks states that end by themselves and need no write."""

    placed: bool
    reason: str
    why: Reason
    brief: bool = False


PLACED = Verdict(True, GANG_SCHEDULED, Reason(kinds.STANDS))


class ReplacedPod(msgspec.Struct, frozen=True):
    """A pod that left its node, or is about to."""

    uid: str
    node: str
    shape: Shape
    until_s: float = 0.0
    """Loop time until which its replacement has to exist, if the gang has no other pod."""


class GangState(msgspec.Struct):
    """A PodGang and what we know beyond the object. `name` is `namespace/name`, as the core calls gangs."""

    name: str
    podgang: PodGang
    minima: dict[str, int] = msgspec.field(default_factory=dict)
    """How many pods of each group are enough."""
    group_of: dict[Key, str] = msgspec.field(default_factory=dict)
    """Group of every pod the gang refers to; a reference that appears twice is a fault."""
    fault: str = ""
    claimed: dict[Key, str] = msgspec.field(default_factory=dict)
    """Pods it refers to that belong to other gangs, and to which."""
    missing: set[Key] = msgspec.field(default_factory=set)
    """References to pods that do not exist."""
    was_ours: bool = False
    """What the last of its pods that came said of its scheduler."""
    base: str = ""
    """Name of the base gang, if this is a scaled one."""
    footing: tuple[Base, Pin | None] | None = None
    """What became of its base gang when that was looked at last: whether it stands, and where it must be followed."""
    priority: int = 0
    former: frozenset[str] = frozenset()
    """Nodes of the gang whose place it may take over."""
    recorded_former: frozenset[str] = frozenset()
    """The same as an earlier scheduler wrote it down."""
    replaced: dict[str, list[ReplacedPod]] = msgspec.field(default_factory=dict)
    """By group, pods that left or are about to, and whose nodes no other pod of the group took since."""
    taken_over: dict[str, tuple[str, ReplacedPod]] = msgspec.field(default_factory=dict)
    """By uid of each pod that is to be bound where a replaced pod was: its group, and that replaced pod."""
    moving: frozenset[str] = frozenset()
    """Uids of the pods that are evicted so that the gang moves. `replaced` then names the nodes it moves to."""
    returns: bool = False
    """Whether what its replaced pods had is held for it: it was placed once, and can still be placed there."""
    score: float | None = None
    verdict: Verdict | None = None
    life: Life = msgspec.field(default_factory=Life)
    has_object: bool = True
    """Whether a PodGang exists for it. A pod that no PodGang refers to is a gang of one, and only the pod reports."""
    named: str = ""
    """The PodGang that the pod of a gang of one names."""

    def __post_init__(self) -> None:
        self.minima = _minima(self.podgang.spec)

    @property
    def uid(self) -> str:
        return self.podgang.metadata.uid

    @property
    def phase(self) -> Phase:
        return self.life.phase

    @property
    def stood(self) -> bool:
        return self.life.stood

    @property
    def trouble(self) -> str:
        """The fault in the gang's own spec; empty if there is none."""
        for key, other in self.claimed.items():
            return f"pod {key} belongs to PodGang {other} already"
        return self.fault

    @property
    def needs_minimum(self) -> bool:
        """True if it has a minimum. Without one the scheduler places as many pods as fit."""
        return any(self.minima.values())

    def has_minimum(self, standing: Mapping[str, int]) -> bool:
        """True if every group has its minimum, given the pods on nodes by group. False without any pod."""
        return any(standing.values()) and all(standing[name] >= minimum for name, minimum in self.minima.items())

    # Facts that come in

    def tell(self, event: Event) -> None:
        """Something happened to it."""
        self.life = after(self.life, event)

    def judge(self, verdict: Verdict, score: float | None = None) -> None:
        """Records the content of its condition, with a score if a place was chosen."""
        self.verdict = verdict
        self.score = self.score if score is None else score

    def met(self, pod: Key, *, ours: bool) -> None:
        """A pod of it is there."""
        self.missing.discard(pod)
        self.was_ours = ours

    def lost(self, pod: Key) -> None:
        self.missing.add(pod)

    def recall(self, former: frozenset[str]) -> None:
        """Records the former nodes that an earlier scheduler wrote."""
        self.recorded_former = former

    def note_replaced(self, group: str, pod: ReplacedPod) -> None:
        """A pod is about to leave, or has left: its node is for the one that replaces it."""
        left = self.replaced.setdefault(group, [])
        self.returns = self.returns or self.stood or was_placed(self.podgang)
        if all(replaced_pod.uid != pod.uid for replaced_pod in left):
            left.append(pod)
            del left[:-MOST_REPLACED]

    def find_replaced(self, uid: str) -> tuple[str, ReplacedPod | None]:
        """A replaced pod by its uid, with its group."""
        matches = ((group, pod) for group, left in self.replaced.items() for pod in left if pod.uid == uid)
        return next(matches, ("", None))

    def renew_replaced(self, group: str, uid: str, until_s: float) -> None:
        """The pod is gone now: from here on its replacement is waited for."""
        left = self.replaced.get(group, [])
        left[:] = [
            msgspec.structs.replace(replaced_pod, until_s=until_s) if replaced_pod.uid == uid else replaced_pod
            for replaced_pod in left
        ]

    def take_replaced(self, group: str, node: str, uid: str) -> ReplacedPod | None:
        """A pod of the group gets a place on the node: the replaced pod whose place it is, if there is one."""
        left = self.replaced.get(group, [])
        replaced_pod = next((replaced for replaced in left if replaced.node == node), None)
        if replaced_pod is not None:
            left.remove(replaced_pod)
            self.taken_over[uid] = group, replaced_pod
        return replaced_pod

    def give_back_replaced(self, uid: str) -> bool:
        """The pod is not bound where it was to be: whether that was the place of a replaced pod, which waits again."""
        group, replaced_pod = self.taken_over.pop(uid, ("", None))
        if replaced_pod is not None:
            self.replaced.setdefault(group, []).append(replaced_pod)
        return replaced_pod is not None

    def forget_replaced(self, uid: str) -> None:
        """The pod is bound, or gone."""
        self.taken_over.pop(uid, None)

    def begin_move(self, uids: frozenset[str], places: Iterable[tuple[str, ReplacedPod]]) -> None:
        """Its pods leave for these places, whatever it was to return to before."""
        self.moving, self.returns = uids, True
        self.replaced.clear()
        self.taken_over.clear()
        for group, place in places:
            self.replaced.setdefault(group, []).append(place)

    def call_off_move(self) -> None:
        """It stays where it is."""
        self.moving = frozenset()
        self.replaced.clear()
        self.taken_over.clear()

    def cannot_return(self) -> None:
        """There is no place for it in what its replaced pods had."""
        self.returns = False

    def refer(self, missing: set[Key], claimed: dict[Key, str]) -> None:
        """Which of the pods it names do not exist, and which are others'."""
        self.missing, self.claimed = missing, claimed

    def join(self, base: str) -> None:
        self.base = base

    def stand_on(self, footing: tuple[Base, Pin | None]) -> bool:
        """Takes over what became of its base gang; whether that is news."""
        is_news, self.footing = footing != self.footing, footing
        return is_news

    def succeed(self, nodes: frozenset[str]) -> None:
        """It may take over the place of one that is, or was, on these nodes."""
        self.former = nodes

    def rank(self, priority: int) -> None:
        self.priority = priority

    def adopt(self, podgang: PodGang) -> None:
        """Takes a new version of the object over."""
        if podgang.spec != self.podgang.spec or not self.group_of:
            self.group_of, self.fault = references(podgang.spec)
            self.minima = _minima(podgang.spec)
        self.podgang = podgang


def gang_of_one(pod: Pod, *, takes_gangs: bool) -> GangState:
    """The gang of a pod that no PodGang refers to."""
    key, label = pod.metadata.key, pod.metadata.labels.get(labels.POD_GANG)
    named = f"{key.namespace}/{label}" if label and takes_gangs else ""
    refs = (NamespacedName(namespace=key.namespace, name=key.name),)
    spec = PodGangSpec(podgroups=(PodGroup(name=str(key), pod_references=refs, min_replicas=1),))
    podgang = PodGang(metadata=msgspec.structs.replace(pod.metadata, annotations={}), spec=spec)
    gang = GangState(f"{POD}{key}", podgang, priority=pod.spec.priority or 0, has_object=False, named=named)
    gang.adopt(podgang)
    return gang


def _minima(spec: PodGangSpec) -> dict[str, int]:
    return {group.name: max(0, group.min_replicas) for group in spec.podgroups}


def references(spec: PodGangSpec) -> tuple[dict[Key, str], str]:
    """The group of every referenced pod, and what is wrong with the list, if anything."""
    group_of: dict[Key, str] = {}
    names: set[str] = set()
    for group in spec.podgroups:
        if group.name in names:
            return group_of, f"pod group {group.name!r} is listed twice"
        names.add(group.name)
        for ref in group.pod_references:
            key = Key(ref.namespace, ref.name)
            if key in group_of:
                return group_of, f"pod {key} is listed twice"
            group_of[key] = group.name
    return group_of, ""


def was_placed(podgang: PodGang) -> bool:
    """True if the object records that the minimum was on nodes once."""
    condition = find_condition(podgang.status.conditions, words.SCHEDULED)
    return condition is not None and (condition.status == words.TRUE or condition.reason == PODS_LOST)


def says_placed(podgang: PodGang, bound_since: Iterable[datetime]) -> bool:
    """True if the object records that the minimum was on nodes once, with one of the pods that are bound now.

    If all bound pods are younger than that record, they belong to another attempt. The gang was evicted or restarted,
    and lost pods before a scheduler could write it. The cluster sets the times of bindings, the scheduler those of its
    own writes.
    """
    condition = find_condition(podgang.status.conditions, words.SCHEDULED)
    if condition is None or not was_placed(podgang):
        return False
    written = condition.last_transition_time
    return written is None or any(moment <= written + CLOCKS_DIFFER for moment in bound_since)


def is_initialized(podgang: PodGang) -> bool:
    """True if the operator reports that all pods exist. A gang that a person made has no such condition."""
    return find_condition(podgang.status.conditions, words.INITIALIZED) is None or is_true(
        podgang.status.conditions, words.INITIALIZED
    )


def base_of(pod: Pod) -> str:
    """Name of the base gang a pod's gang waits for; empty for pods of base gangs."""
    base = pod.metadata.labels.get(labels.BASE_POD_GANG, "")
    own = pod.metadata.labels.get(labels.POD_GANG, "")
    return f"{pod.metadata.namespace}/{base}" if base and base != own else ""


def missing_pods(gang: GangState) -> Verdict:
    few = sorted(map(str, gang.missing))[:MOST_NAMED]
    why = Reason(kinds.PODS_MISSING, " ".join(few), {"pods": len(gang.missing)})
    return Verdict(False, WAITING_FOR_PODS, why)


class Look(msgspec.Struct, frozen=True):
    """The pods of a gang in the cluster, counted by state."""

    bound: Mapping[str, int]
    """Pods on nodes by group, those on their way out left out."""
    reserved: Mapping[str, int]
    """The same with those that have a place and no binding yet."""
    pending: Sequence[Pod]
    """Pods of ours without a place that are there to stay."""
    usable: Mapping[str, int]
    """Pods by group that have a place or may get one now."""
    is_leaving: bool
    """Whether any is being deleted."""
    has_stood: bool
    """Whether the minimum was on nodes once, and one of the pods that are there now was among them."""

    @property
    def on_nodes(self) -> bool:
        return any(self.reserved.values())


class Readiness(msgspec.Struct, frozen=True):
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
    """The phase in which a gang is by its pods, gates and base gang."""
    if gang.named:
        if base(gang.named) is not Base.ABSENT:
            return Readiness(Phase.WAITING_FOR_PODS, None)  # it refers to the pod soon
        text = f"the pod names PodGang {gang.named.partition('/')[2]}, which does not exist"
        return _waits(INVALID, Reason(kinds.INVALID, text))
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
        return Readiness(Phase.REPAIRING, repair_of(gang) if is_open else None)
    if not gang.podgang.spec.podgroups or not gang.group_of:
        return _waits(WAITING_FOR_PODS, Reason(kinds.NO_PODS), brief=not is_initialized(gang.podgang))
    if not is_initialized(gang.podgang):
        return _waits(WAITING_FOR_PODS, Reason(kinds.PODS_COMING), brief=True)
    if gang.missing and not (gang.returns and gang.has_minimum(look.usable)):
        return Readiness(Phase.WAITING_FOR_PODS, None, missing_pods(gang))
    if look.is_leaving:
        return _waits(WAITING_FOR_PODS, Reason(kinds.PODS_LEAVING), brief=True)
    if any(pod.is_gated for pod in look.pending):
        by_kueue = any(kueue.waits(pod) for pod in look.pending)
        # Kueue may take hours, so the status says it at once.
        return _waits(WAITING_FOR_GATES, Reason(kinds.GATED, "Kueue" if by_kueue else ""), brief=not by_kueue)
    if gang.base and (base_state := base(gang.base)) is not Base.STANDS:
        state = {"state": "absent"} if base_state is Base.ABSENT else {}
        return _waits(WAITING_FOR_BASE, Reason(kinds.BASE_WAITS, gang.base, names=state))
    return Readiness(Phase.QUEUED, minimum_stage(gang) if gang.needs_minimum else Stage.SURPLUS)


def minimum_stage(gang: GangState) -> Stage:
    """The stage of its minimum."""
    if gang.stood:
        return repair_of(gang)
    return Stage.SCALED_MINIMUM if gang.base else Stage.MINIMUM


def repair_of(gang: GangState) -> Stage:
    """The stage of a minimum that was on nodes and is not complete any more."""
    return Stage.SCALED_REPAIR if gang.base else Stage.REPAIR


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
