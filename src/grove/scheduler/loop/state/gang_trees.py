"""A gang as the core is asked about it: the tree of its pods, where it must stay, and where it comes in the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from grove.api import labels
from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.model.gang import BadGang, Gang, Pin, Strategy, build_gang
from grove.scheduler.model.network import ZONES, InvalidLinks, Neighbourhood, Wishes, links_of, wishing, zone_wishes
from grove.scheduler.model.seams import Applicant
from grove.scheduler.policy.gang_state import GangState, minimum_stage
from grove.scheduler.policy.hold_ledger import ClosedCapacity, HoldReason
from grove.scheduler.policy.waiting_queue import Order, Stage

if TYPE_CHECKING:
    from grove.scheduler.loop.holds.pending_reservations import PendingReservation


class Unit(msgspec.Struct, frozen=True):
    """What the scheduler decides about in one step: a gang, or the Reservations of one group."""

    name: str
    tree: Gang
    order: Order
    subject: GangState | PendingReservation
    """The gang itself: by the time something was done for it another may have its name. Or Reservations that wait."""

    @property
    def gang(self) -> GangState:
        assert isinstance(self.subject, GangState), "Reservations are placed, and neither bound nor preempted for"
        return self.subject

    @property
    def reservation(self) -> PendingReservation | None:
        return None if isinstance(self.subject, GangState) else self.subject

    @property
    def is_minimum(self) -> bool:
        """Whether it is about the minimum."""
        return self.order.stage is not Stage.SURPLUS

    def to_bind(self, placement: Placement) -> tuple[PodFacts, ...]:
        """Minima go alone, so that other gangs' minima come before this one's surplus."""
        return placement.pods[: placement.core] if self.is_minimum else placement.pods


def order_of(view: View, name: str, snapshot: Snapshot | None = None) -> Order:
    """Where the minimum of a unit comes in the queue, by the shares in a snapshot; by default in that of the view."""
    gang, waiting = view.units.gangs.get(name), view.units.reservation(name)
    snapshot = snapshot or view.snapshot
    if gang is not None:
        return gang_order(view, gang, minimum_stage(gang), snapshot=snapshot)
    who = Applicant(name, 0, {})
    if waiting is not None:
        namespace = next((pod.namespace for group in waiting.tree.groups() for pod in group.pods), "")
        who = Applicant(name, waiting.tree.priority, waiting.labels, namespace)
    rank = snapshot.seams.rank(snapshot, who)
    return Order(rank, Stage.MINIMUM, waiting.created_s if waiting else 0.0, name)


def without_nominated(view: View) -> Snapshot:
    """The snapshot for comparing units with the owners of holds: nominated pods count as use of no queue.

    With them, the queue of a nominated unit would look fuller. Then two units would take each other's place for ever.
    """
    ledger, reason = view.ledger, HoldReason.NOMINATED
    holds = (ledger.find(owner, reason) for owner in ledger.owners(reason))
    nominated = [pod for hold in holds if hold is not None for pod in hold.pods]
    if not nominated or not view.snapshot.usage.charges:
        return view.snapshot
    snapshot = view.snapshot.copy()
    for pod in nominated:
        snapshot.usage.remove(view.snapshot.find_pod(pod.uid) or pod)
    return snapshot


def gang_order(
    view: View, gang: GangState, stage: Stage, priority: int | None = None, snapshot: Snapshot | None = None
) -> Order:
    """Where a gang comes in the queue at a stage, by its own priority or a given one."""
    meta = gang.podgang.metadata
    created = meta.creation_timestamp
    first = next((pod.metadata.labels for pod, _ in view.members(gang)), {})  # the keys by which its pods count
    priority = gang.priority if priority is None else priority
    who = Applicant(gang.name, priority, {**meta.labels, **first}, meta.namespace)
    snapshot = snapshot or view.snapshot
    rank = snapshot.seams.rank(snapshot, who)
    return Order(rank, stage, created.timestamp() if created else 0.0, gang.name)


def family_of(gang: GangState) -> str:
    """The set of a gang, whose units share headroom; the gang itself if it is of no set."""
    meta = gang.podgang.metadata
    return f"{meta.namespace}/{meta.labels.get(labels.PART_OF) or meta.name}"


def headroom_priority(view: View, gang: GangState) -> int:
    """The lowest of the priorities that its headroom names, and never above the gang's."""
    names = (entry.priority_class_name for entry in gang.podgang.spec.headroom)
    classes = [view.priorities.get(Key("", name)) for name in names if name]
    return min([gang.priority, *(priority_class.value for priority_class in classes if priority_class is not None)])


def headroom_order(view: View, gang: GangState) -> Order:
    """Where the headroom of a gang comes: with new minima of its own priority, by the age of the gang."""
    return gang_order(view, gang, Stage.MINIMUM, headroom_priority(view, gang))


def closed_capacity(view: View, name: str, order: Order, queues: frozenset[str] = frozenset()) -> ClosedCapacity:
    """Which capacity is closed to a unit. A gang uses the headroom of its set as its own."""
    gang, waiting = view.units.gangs.get(name), view.units.reservation(name)
    family = family_of(gang) if gang is not None else ""
    priority = gang.priority if gang is not None else waiting.tree.priority if waiting is not None else None
    return view.ledger.closed_to(name, order, queues, family, priority)


def tree_of(
    view: View,
    gang: GangState,
    strategy: Strategy,
    *,
    placed: bool = True,
    instead: Mapping[Key, PodFacts] = MappingProxyType({}),
) -> Gang:
    """The gang as the core takes it; raises BadGang when the PodGang contradicts itself.

    Unless `placed`, as if none of its pods had a place yet. `instead` has other facts for some of its pods.
    """
    facts: dict[Key, PodFacts] = {}
    may_preempt = True
    topology = gang.podgang.metadata.annotations.get(labels.TOPOLOGY_NAME, "")
    wishes: Wishes = ()
    if zones := gang.podgang.metadata.annotations.get(ZONES):
        wishes = zone_wishes(zones, view.level_names(topology))
    for pod, _ in view.members(gang):
        if not view.counted.node_of(pod):
            if not view.is_ours(pod) or pod.is_gated or pod.metadata.is_deleting:
                continue
            may_preempt = may_preempt and pod.spec.preemption_policy != "Never"
        known = instead.get(pod.metadata.key) or view.reader.facts(pod)
        known = known if placed else known.on("")
        facts[pod.metadata.key] = wishing(known, wishes) if wishes else known
    if linked := gang.podgang.metadata.annotations.get(labels.NETWORK_AFFINITY):
        facts = _near_peers(view, gang, facts, linked, wishes, placed=placed)
    podgang = gang.podgang
    if len(facts) < len(gang.group_of):
        podgang = _with_existing(podgang, facts, lower=view.look(gang).has_stood)
    named = view.priorities.get(Key("", podgang.spec.priority_class_name))
    if named is not None and named.preemption_policy == "Never":
        may_preempt = False
    return build_gang(
        podgang,
        facts,
        priority=gang.priority,
        may_preempt=may_preempt,
        topology=topology,
        pinned_domain=pin_of(view, gang),
        headroom=_headroom(view, gang),
        strategy=strategy,
        former=former_nodes(view, gang),
        earlier_nodes={group: tuple(replaced.node for replaced in left) for group, left in gang.replaced.items()},
    )


def _near_peers(
    view: View, gang: GangState, facts: dict[Key, PodFacts], linked: str, zones: Wishes, *, placed: bool
) -> dict[Key, PodFacts]:
    """Waiting pods with the nodes of those they talk to: of this gang, its base and those scaled with it."""
    try:
        links = links_of(linked)
    except InvalidLinks as error:
        raise BadGang(f"{labels.NETWORK_AFFINITY}: {error}") from error
    base = gang.base or gang.name
    family = [view.units.gangs.get(name) for name in (base, *sorted(view.units.scaled_of.get(base, ())))]
    stand = [
        (pod.metadata.labels, node)
        for member in family
        if member is not None and (placed or member is not gang)
        for pod, _ in view.members(member)
        if (node := view.counted.node_of(pod)) and not pod.metadata.is_deleting
    ]
    around = Neighbourhood(links, stand, sum(not pod.node for pod in facts.values()), zones)
    return {key: pod if pod.node else pod.asking(network=around.of(pod.labels)) for key, pod in facts.items()}


def former_nodes(view: View, gang: GangState) -> frozenset[str]:
    """Nodes of the gang whose place this one may take over: where it is, or was as far as we or the object remember."""
    named = gang.podgang.spec.reuse_reservation_ref
    if named is None:
        return frozenset()
    name = f"{named.namespace}/{named.name}"
    other = view.units.gangs.get(name)
    nodes = (
        frozenset(node for pod, _ in view.members(other) if (node := view.counted.node_of(pod)))
        if other
        else frozenset()
    )
    return nodes or view.units.places.get(name) or gang.recorded_former


def _with_existing(podgang: PodGang, facts: dict[Key, PodFacts], *, lower: bool) -> PodGang:
    """The PodGang without references to pods that are not there; `lower` makes minima ask for no more than exist."""
    groups = []
    for group in podgang.spec.podgroups:
        refs = tuple(ref for ref in group.pod_references if Key(ref.namespace, ref.name) in facts)
        minimum = min(group.min_replicas, len(refs)) if lower else group.min_replicas
        groups.append(msgspec.structs.replace(group, pod_references=refs, min_replicas=minimum))
    spec = msgspec.structs.replace(podgang.spec, podgroups=tuple(groups))
    return msgspec.structs.replace(podgang, spec=spec)


def pin_of(view: View, gang: GangState | None) -> Pin | None:
    """Where a scaled gang must go: the domain of its base gang. None for a gang that may go anywhere."""
    return domain_of(view, view.units.gangs.get(gang.base)) if gang is not None and gang.base else None


def domain_of(view: View, base: GangState | None) -> Pin | None:
    """The domain that scaled gangs must use: a requirement of the whole replica holds for its scaled gangs too."""
    if base is None or base.podgang.spec.topology_constraint is None:
        return None
    key = base.podgang.spec.topology_constraint.required
    nodes = _nodes_of(view, base) if key else []
    return Pin(key, min(nodes)) if nodes else None


def level_names(view: View, tree: Gang) -> dict[str, str]:
    """What the gang's topology calls its levels, by label key."""
    return {key: name for name, key in view.level_names(tree.topology).items()}


def _nodes_of(view: View, gang: GangState) -> list[str]:
    known = view.snapshot.nodes.row_of
    return [
        node
        for pod, _ in view.members(gang)
        if (node := view.counted.node_of(pod)) in known and not pod.metadata.is_deleting
    ]


def score_in_replica(view: View, gang: GangState, placement: Placement) -> float:
    """The score of a placement, lower if a scaled gang does not share the domains of its base gang.

    The level is the narrowest that the base gang names for the whole replica. The score is at most the number of
    domains that the base uses over the number that both gangs use.
    """
    base = view.units.gangs.get(gang.base) if gang.base else None
    constraint = base.podgang.spec.topology_constraint if base is not None else None
    key = (constraint.preferred or constraint.required) if constraint is not None else ""
    if base is None or not key:
        return placement.score
    snapshot = view.snapshot
    tree = snapshot.tree((key,), base.podgang.metadata.annotations.get(labels.TOPOLOGY_NAME, ""))
    level, rows = tree.find_level(key), snapshot.nodes.row_of
    assert level is not None

    def domains(nodes: Iterable[str]) -> set[int]:
        return {tree.domain_of(rows[node], level) for node in nodes if node in rows} - {-1}

    near = domains(_nodes_of(view, base))
    both = near | domains((*(pod.node for pod in placement.pods), *_nodes_of(view, gang)))
    return min(placement.score, len(near) / len(both)) if near else placement.score


def _headroom(view: View, gang: GangState) -> tuple[tuple[Shape, int], ...]:
    """Pods of the scaled gangs that will have to join this one in its domain."""
    constraint = gang.podgang.spec.topology_constraint
    if constraint is None or not constraint.required:
        return ()
    wanted: Counter[Shape] = Counter()
    for name in sorted(view.units.scaled_of.get(gang.name, ())):
        scaled = view.units.gangs.get(name)
        if scaled is not None:
            wanted.update(view.reader.facts(pod).shape for pod, _ in view.members(scaled) if view.is_pending(pod))
    return tuple(wanted.items())
