"""Holds capacity free for further replicas of sets and scaling groups: the headroom that PodGangs ask for.

The headroom of a gang is one hold in the ledger. All units of its set use it as their own. Units of a lower priority
use it while the set does not need it. Then the capacity is lent: the hold counts what is free, and the normal search
for victims evicts the borrowers when the set needs it. Headroom itself evicts no pod.

A hold is formed when the gang has its minimum on nodes. It is formed again when a unit took it, when one of its nodes
is gone, or when the replica changed. It is also formed again if a part of it is lent or missing and the cluster
changed.

While pods of the replica are missing, no new place is looked for. The hold stays where it was, because the gang itself
may need it. A scheduler that starts reads from the PodGang where that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import msgspec
import structlog

from grove.api.koordinator import QUOTA, QUOTA_PREEMPTIBLE
from grove.api.labels import KAI_QUEUE
from grove.api.podgang import GangHeadroom
from grove.kube.clock import Clock
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.loop import metrics
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.loop.deciding.victim_search import running_units
from grove.scheduler.loop.state.counted_pods import HELD
from grove.scheduler.loop.state.gang_trees import domain_of, family_of, headroom_order, headroom_priority, tree_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import PODS, PodFacts, Requests, Shape
from grove.scheduler.model.gang import BadGang, Gang, Strategy
from grove.scheduler.model.reasons import NOT_ADMITTED, REPLICA_INCOMPLETE, Reason
from grove.scheduler.policy.gang_state import GangState
from grove.scheduler.policy.headroom import (
    HeadroomState,
    ask_of_copy,
    copy_of,
    counted_amounts,
    group_replica,
    unit_label,
    whole_copies,
    whole_replica,
)
from grove.scheduler.policy.hold_ledger import CapacityHold, HoldReason
from grove.scheduler.policy.hold_records import read
from grove.scheduler.policy.reclaim import KAI_PREEMPTIBILITY
from grove.scheduler.solve.place import place

AGAIN_S = 5.0
"""Headroom that is lent or missing is not looked for more often than this while the cluster changes."""
NEVER_S = float("-inf")
CHARGED_BY = (QUOTA, KAI_QUEUE, QUOTA_PREEMPTIBLE, KAI_PREEMPTIBILITY)
"""Labels that say which queue counts a pod, and how."""

log = structlog.get_logger(__name__)

Amounts = tuple[str, str, Requests]
"""Uid, node, and the amounts that count there."""


@dataclass(slots=True)
class HeadroomLook:
    """The record of the headroom of one gang."""

    asked: tuple[GangHeadroom, ...]
    ask: object = None
    """What the copies asked for at the search."""
    scaled: frozenset[str] = frozenset()
    """The gangs scaled with the base gang that ran at that time. Others never had a place, and no copy has them."""
    is_changed: bool = True
    """Whether the gang changed since."""
    version: int = -1
    """Version of the snapshot at that time."""
    at_s: float = NEVER_S
    released: set[str] = field(default_factory=set)
    """Nodes of a hold that has ended, until the next search."""
    places: dict[str, PodFacts] = field(default_factory=dict)
    """The pods of the copies on their nodes, by uid."""
    is_recorded: bool = False
    """Whether an earlier scheduler chose these places: of the pods only the requests are known."""
    state: HeadroomState | None = None
    """The numbers that its status says, once they are known."""


class Headrooms:
    def __init__(
        self,
        view: View,
        decider: Decider,
        reporter: Reporter,
        clock: Clock,
        config: SchedulerConfiguration,
        budget: Budget,
    ) -> None:
        self._view, self._decider, self._reporter, self._clock = view, decider, reporter, clock
        self._config, self._budget = config, budget
        self.asking: set[str] = set()
        """Gangs that ask for headroom. While it is empty, callers may skip every other method."""

    def note(self, gang: GangState) -> None:
        """The cycle looked at the gang. It may ask for headroom, did so before, or is part of a replica that does."""
        if gang.base in self.asking and (of_base := self._find(gang.base)) is not None:
            of_base.is_changed = True
        asked = gang.podgang.spec.headroom
        if not asked:
            if gang.name in self.asking:
                self.end(gang.name)
                self._reporter.touch(gang.name)
            return
        self.asking.add(gang.name)
        unit = self._view.units.of(gang.name)
        if unit.headroom is None:
            unit.headroom = HeadroomLook(asked, places=self._recorded(gang), is_recorded=True)
        look = unit.headroom
        look.is_changed = True
        if look.asked != asked:
            look.asked, look.ask, look.at_s = asked, None, NEVER_S

    def _recorded(self, gang: GangState) -> dict[str, PodFacts]:
        """What an earlier scheduler held, as the PodGang says."""
        headroom = read(gang.podgang, self._view.snapshot.nodes.row_of.keys()).headroom
        charged_to = next((pod.metadata.labels for pod, _ in self._view.members(gang)), gang.podgang.metadata.labels)
        pods = (
            PodFacts(
                f"{HELD}{gang.uid}/{number}",
                gang.podgang.metadata.namespace,
                "",
                Shape(requests),
                charged_to,
                node=node,
            )
            for number, (node, requests) in enumerate(headroom)
        )
        return {pod.uid: pod for pod in pods}

    def end(self, name: str) -> None:
        """The gang is gone, or asks for no headroom any more: others may have the capacity."""
        if name not in self.asking:
            return
        self.asking.discard(name)
        metrics.forget_headroom(name)
        nodes = self._release(name)
        if (look := self._find(name)) is not None:
            nodes |= look.released
            self._view.units.of(name).headroom = None
        if nodes:
            self._view.changes.relief.update(nodes)
            self._view.changes.wake()

    def give_up(self, holds: Iterable[CapacityHold]) -> None:
        """A unit takes what is held, or looks for victims beside it. It is formed again in the same turn."""
        for hold in holds:
            look = self._find(hold.owner)
            nodes = self._release(hold.owner)
            if look is not None:
                look.released |= nodes
                look.at_s, look.version = NEVER_S, -1

    def make_way(self, pods: Sequence[PodFacts]) -> None:
        """These pods count on nodes now: headroom that they use ends."""
        nodes = {pod.node for pod in pods}
        held = [hold for hold in self._holds() if any(pod.node in nodes for pod in hold.pods)]
        self.give_up(hold for hold in held if not self._is_kept(hold))

    def has_places_for(self, family: str) -> bool:
        """True if the set had headroom. Units of a lower priority may use it now."""
        gangs = (gang for name in self.asking if (gang := self._view.units.gangs.get(name)) is not None)
        return any(family_of(gang) == family and (look := self._find(gang.name)) and look.places for gang in gangs)

    def _find(self, name: str) -> HeadroomLook | None:
        unit = self._view.units.find(name)
        return unit.headroom if unit is not None else None

    def _holds(self) -> list[CapacityHold]:
        holds = (self._view.ledger.find(name, HoldReason.HEADROOM) for name in sorted(self.asking))
        return [hold for hold in holds if hold is not None]

    def _release(self, name: str) -> set[str]:
        """Ends a hold; the nodes where something was counted."""
        nodes: set[str] = set()
        for hold in self._view.ledger.end(name, HoldReason.HEADROOM):
            nodes |= {pod.node for pod in hold.pods if self._view.counted.end_hold(pod.uid)}
        return nodes

    async def turn(self, now_s: float) -> float | None:
        """Forms what is missing; returns when to look again, if that has to wait."""
        again_s: list[float] = []
        for name in sorted(self.asking):
            gang, look = self._view.units.gangs.get(name), self._find(name)
            if gang is None or look is None:
                self.end(name)
                continue
            hold = self._view.ledger.find(name, HoldReason.HEADROOM)
            if hold is not None and not self._is_kept(hold):
                self.give_up((hold,))
                hold = None
            self._reorder(gang, hold)
            if not look.scaled.issubset(self._view.units.scaled_of.get(name, ())):
                look.is_changed = True
            if look.version == self._view.snapshot.version and not look.is_changed:
                continue
            if hold is not None and look.state is not None and look.state.is_whole and not self._is_other(gang, look):
                continue
            if now_s < look.at_s + AGAIN_S:
                again_s.append(look.at_s + AGAIN_S)
                continue
            look.at_s = now_s
            try:
                await self._form(gang, look)
            except BadGang:
                pass  # its status says so
            look.version = self._view.snapshot.version
        return min(again_s, default=None)

    def _is_kept(self, hold: CapacityHold) -> bool:
        """Whether all that is held is still there: on nodes that take such pods and are not over their capacity."""
        snapshot, look = self._view.snapshot, self._find(hold.owner)
        if look is None:
            return False
        for pod in hold.pods:
            row, like = snapshot.nodes.row_of.get(pod.node), look.places.get(pod.uid)
            if like is None or row is None:
                return False
            if not look.is_recorded and not allowed_mask(snapshot, like.shape)[row]:
                return False
            if any(snapshot.free[r, row] < 0 for r, _ in snapshot.amounts(pod.shape.requests)):
                return False
        return True

    def _reorder(self, gang: GangState, hold: CapacityHold | None) -> None:
        if hold is not None and self._view.snapshot.seams.moves:
            order = headroom_order(self._view, gang)
            self._view.ledger.put(msgspec.structs.replace(hold, order=order))

    def _is_other(self, gang: GangState, look: HeadroomLook) -> bool:
        """Whether the replica asks for something else than when the headroom was formed."""
        if not look.is_changed:
            return False
        look.is_changed = False
        return self._is_complete(gang, look) and look.ask != self._ask(gang, look)

    def _ask(self, gang: GangState, look: HeadroomLook) -> object:
        return tuple(ask_of_copy(self._replica(gang, entry)) for entry in look.asked)

    def _is_complete(self, gang: GangState, look: HeadroomLook) -> bool:
        """Whether every pod of the replica exists: only then its copy is known.

        A scaled gang that never had a place is no part of the replica yet. An earlier scheduler's record does not tell.
        """
        view, is_known = self._view, not (look.is_recorded and look.places)
        names = (name for name in view.units.scaled_of.get(gang.name, ()) if not is_known or name in look.scaled)
        scaled = (view.units.gangs[name] for name in names)
        return all(
            view.has_minimum(member)
            and not member.missing
            and not any(pod.metadata.is_deleting for pod, _ in view.members(member))
            for member in (gang, *scaled)
        )

    async def _form(self, gang: GangState, look: HeadroomLook) -> None:
        view, priority = self._view, headroom_priority(self._view, gang)
        order = headroom_order(view, gang)
        before = view.ledger.find(gang.name, HoldReason.HEADROOM)
        if not self._is_complete(gang, look):
            look.is_changed = False  # a change of one of its pods brings another look
            if before is None:
                self._put_back(gang, look)
            return  # the hold stays: the gang itself may need it
        look.is_changed, look.ask = False, self._ask(gang, look)
        look.scaled = frozenset(other.name for other in self._running(gang))
        own = frozenset(pod.uid for pod in before.pods) if before is not None else frozenset()
        closed = tuple(sorted(view.ledger.closed_to(gang.name, order).nodes))
        steps = DecisionSteps(self._budget)
        placed: list[PodFacts] = []
        held, why = 0, None
        for entry in look.asked:
            replica, label = self._replica(gang, entry), unit_label(entry.pod_group_names)
            for number in range(entry.units):
                uid = partial(_uid, gang, (entry.name, number))
                copy = copy_of(replica, uid, number, priority, label)
                answer = await self.find_place(copy, steps, own, placed, closed)
                if isinstance(answer, NoFit) or answer.unplaced:
                    why = answer.why if isinstance(answer, NoFit) else None
                    break
                placed += answer.pods
                held += 1
        if not view.units.is_current(gang) or self._find(gang.name) is not look:
            return  # it ended during this computation
        amounts, lent = self._amounts(placed, own)
        is_same = before is not None and amounts == [(pod.uid, pod.node, pod.shape.requests) for pod in before.pods]
        look.released |= set() if is_same else self._release(gang.name)
        look.places, look.is_recorded = {pod.uid: pod for pod in placed}, False
        pods = before.pods if is_same and before is not None else self._count(look, amounts)
        on = self._enter(gang, look, pods, before.since if before is not None else self._clock.now())
        self._note(gang, look, HeadroomState(sum(entry.units for entry in look.asked), held, lent, len(on), why))

    def _put_back(self, gang: GangState, look: HeadroomLook) -> None:
        """Holds what is free of the last places."""
        amounts, _ = self._amounts(list(look.places.values()), frozenset())
        pods = self._count(
            look, [entry for entry in amounts if any(amount for name, amount in entry[2] if name != PODS)]
        )
        on = self._enter(gang, look, pods, self._clock.now())
        if not look.places:
            return  # it had no hold so far
        wanted = sum(entry.units for entry in look.asked)
        requests = {uid: pod.shape.requests for uid, pod in look.places.items()}
        held = whole_copies(requests, {uid: amount for uid, _, amount in amounts})
        if look.is_recorded and held:
            held = wanted  # the record does not tell the copies apart
        why = Reason(REPLICA_INCOMPLETE) if held < wanted else None
        self._note(gang, look, HeadroomState(wanted, held, 0, len(on), why))

    def _enter(self, gang: GangState, look: HeadroomLook, pods: tuple[PodFacts, ...], since: datetime) -> set[str]:
        """Enters the hold and returns its nodes. Others may have nodes whose hold has ended."""
        view, priority = self._view, headroom_priority(self._view, gang)
        order, reason, family = headroom_order(view, gang), HoldReason.HEADROOM, family_of(gang)
        view.ledger.put(CapacityHold(gang.name, order, reason, since, pods=pods, family=family, lends_below=priority))
        on = {pod.node for pod in pods}
        left, look.released = look.released - on, set()
        if left:
            view.changes.relief.update(left)
            view.changes.wake()
        return on

    def _amounts(self, placed: Sequence[PodFacts], own: frozenset[str]) -> tuple[list[Amounts], int]:
        """What is free of these pods' requests on their nodes, and how many pods' capacity is lent in part."""
        twin, amounts, lent = self._view.snapshot.without(own).copy(), list[Amounts](), 0
        for pod in placed:
            row = twin.nodes.row_of.get(pod.node)
            if row is None:
                continue
            free = {twin.resources[r]: int(twin.free[r, row]) for r, _ in twin.amounts(pod.shape.requests)}
            requests, is_lent = counted_amounts(pod.shape.requests, free)
            twin.add_pod(pod.asking(requests=requests))
            amounts.append((pod.uid, pod.node, requests))
            lent += is_lent
        return amounts, lent

    def _count(self, look: HeadroomLook, amounts: Sequence[Amounts]) -> tuple[PodFacts, ...]:
        """Counts these amounts on nodes, for the queue of the set."""
        pods: list[PodFacts] = []
        for uid, node, requests in amounts:
            like = look.places[uid]
            labels = {name: like.labels[name] for name in CHARGED_BY if name in like.labels}
            counted = self._view.counted.hold(uid, node, requests, like.namespace, labels)
            pods.append(msgspec.structs.replace(counted, group=like.group))
        return tuple(pods)

    def _note(self, gang: GangState, look: HeadroomLook, state: HeadroomState) -> None:
        metrics.note_headroom(gang.name, state.wanted, state.held)
        if look.state != state:
            log.info("headroom", gang=gang.name, wanted=state.wanted, held=state.held, lent=state.lent)
            look.state = state
        self._reporter.touch(gang.name)

    async def find_place(
        self, copy: Gang, steps: DecisionSteps, own: frozenset[str], placed: Sequence[PodFacts], closed: Sequence[str]
    ) -> Placement | NoFit:
        """A place in what is free without the pods of `own`; if there is none, also where lower priorities are."""

        def ask(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
            twin = snapshot.without(own).copy()
            for pod in placed:
                twin.add_pod(pod)
            return place(twin, copy, budget, closed=closed)

        answer = await self._decider.search(copy, steps, ask)
        if isinstance(answer, Placement) or answer.reason == NOT_ADMITTED:
            return answer
        lower = self._lower(copy.priority)
        if not lower:
            return answer

        def ask_for_lent(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
            twin = snapshot.without(own).with_capacity_of(lower)
            for pod in placed:
                twin.add_pod(pod)
            return place(twin, copy, budget, closed=closed)

        lent = await self._decider.search(copy, steps, ask_for_lent)
        return lent if isinstance(lent, Placement) else answer

    def _lower(self, priority: int) -> list[PodFacts]:
        """Pods that the set could have evicted: of a lower priority, bound or about to be."""
        if not self._config.preemption.enabled:
            return []
        find, reserved = self._view.snapshot.find_pod, self._view.counted.reserved
        coming = (pod for uid in reserved if (pod := find(uid)) is not None and pod.priority < priority)
        return [*(pod for unit in running_units(self._view, priority) for pod in unit.pods), *coming]

    def _replica(self, gang: GangState, entry: GangHeadroom) -> Gang:
        view, strategy = self._view, self._config.node_policy
        if entry.pod_group_names:
            base = tree_of(view, gang, strategy, placed=False)
            return group_replica(base, entry.pod_group_names, domain_of(view, gang))
        return replica_of(view, gang, self._running(gang), strategy)

    def _running(self, gang: GangState) -> list[GangState]:
        """The gangs scaled with this one that have their minimum."""
        units = self._view.units
        scaled = (units.gangs[name] for name in sorted(units.scaled_of.get(gang.name, ())))
        return [other for other in scaled if self._view.has_minimum(other)]


def replica_of(view: View, gang: GangState, scaled: Sequence[GangState], strategy: Strategy) -> Gang:
    """A base gang with gangs that are scaled with it, as if none of their pods had a place."""
    beside = [tree_of(view, other, strategy, placed=False) for other in scaled]
    return whole_replica(tree_of(view, gang, strategy, placed=False), beside)


def _uid(gang: GangState, at: tuple[str, int], pod: PodFacts) -> str:
    return f"{HELD}{gang.uid}/{at[0]}/{at[1]}/{pod.uid}"
