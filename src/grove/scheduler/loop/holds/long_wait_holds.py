"""Holds nodes for gangs that wait long or were overtaken, and warns of gangs that wait for longer than their timeout.

Reservations that wait for a place get holds like gangs. A unit lacks some amount of a resource. It is overtaken when
units behind it in the queue have taken that amount since it waits, on nodes that it could use. A hold ends when the
unit is placed, is deleted, or can no longer be placed on the held nodes. Its timeout does not end it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np
import structlog

from grove.api import labels
from grove.api.conditions import EventReason
from grove.api.meta import rfc3339
from grove.api.podgang import HeldCapacity
from grove.kube.clock import Clock
from grove.scheduler.evict.nodes_to_hold import (
    free_nodes,
    looks_beyond_amounts,
    may_be_used,
    may_be_worth_later,
    nodes_of_ending_pods,
    nodes_to_hold,
)
from grove.scheduler.filters.fit import allowed_mask, scarcest
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.loop.holds.hold_restorer import HoldRestorer
from grove.scheduler.loop.holds.pending_reservations import PendingReservation, PendingReservations
from grove.scheduler.loop.state.gang_trees import order_of, tree_of
from grove.scheduler.loop.state.unit import Shortage
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.config import SchedulerConfiguration, gang_timeout_s
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.model.gang import BadGang, Gang
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.alike import Place
from grove.scheduler.policy.gang_state import GangState
from grove.scheduler.policy.hold_ledger import LONG_WAIT, CapacityHold, ClosedCapacity, HoldReason
from grove.scheduler.policy.long_waits import NEVER, LongWaits
from grove.scheduler.policy.waiting_queue import Order, Stage, Waiting, WaitingQueue, place_of
from grove.scheduler.sources.node_sources import ends

MOST_ELDERS = 16
"""How many gangs at the head of the queue get a hold if others overtake them: holds for more block each other."""
BETWEEN_LOOKS_S = 1.0
"""Gangs that become old enough within this time are looked at together."""
UNITS_A_SLICE = 100
"""Units that are looked at, each for some 20 microseconds, before the event loop goes on."""
IN_PLACE_PODS = 500
"""Where more pods run, nodes for a gang that looks at more than their amounts are chosen in a thread."""
MOST_NAMED = 3
WARN_AGAIN_S = 3000.0
"""Between two warnings of one gang that waits. The API server forgets an Event after an hour."""

Waits = GangState | PendingReservation
"""What a unit is that waits for its minimum."""

log = structlog.get_logger(__name__)


class LongWaitHolds:
    def __init__(
        self,
        view: View,
        queue: WaitingQueue,
        reporter: Reporter,
        clock: Clock,
        config: SchedulerConfiguration,
        decider: Decider,
        budget: Budget,
        restoring: HoldRestorer,
        reserving: PendingReservations,
    ) -> None:
        self._view, self._queue, self._reporter, self._clock = view, queue, reporter, clock
        self._config, self._decider, self._budget = config, decider, budget
        self._restoring, self._reserving = restoring, reserving
        self._ledger, self._units = view.ledger, view.units
        self._elders: list[Waiting] = []
        self._overtaken: list[Waiting] = []
        """Units that get a hold at once."""
        self._crossed: set[str] = set()
        """Units for which nodes are chosen again: another unit took a free node that is held for them."""
        self._elders_at = -1
        """The version of the queue when the elders were chosen."""
        self._waits = LongWaits()
        queue.on_withdraw = self._forget
        self._hopeless: set[Hashable] = set()
        """What was asked for when no node was worth holding, or the name of a unit that is like no other."""
        self._hopeless_at = -1
        """The version of the nodes at that time."""
        self._is_settled_for_all = False
        """Whether each unit that has waited long has a hold or gets none, since the last change."""

    def _forget(self, waiting: Waiting) -> None:
        """The unit waits no more."""
        self._waits.forget(waiting)
        self._hopeless.discard(waiting.order.name)

    def timeout_s(self, gang: GangState) -> float:
        """How long an attempt may take: what the gang says, or the default."""
        return gang_timeout_s(gang.podgang.metadata.annotations.get(labels.GANG_TIMEOUT), self._config.gang_timeout)

    def _is_settled(self, waiting: Waiting) -> bool:
        """Whether nodes are held for a unit, or none can be."""
        return self._is_hopeless(waiting) or self._ledger.find(waiting.order.name, *LONG_WAIT) is not None

    def _is_hopeless(self, waiting: Waiting) -> bool:
        if self._hopeless_at != self._view.snapshot.nodes.version:
            self.reconsider()
        return _key_of(waiting) in self._hopeless

    def _give_up(self, name: str) -> None:
        """No node is worth holding for the unit, nor for units that ask for the same."""
        self.let_go(name)
        if (waiting := self._queue.get(name)) is not None and not self._is_hopeless(waiting):
            self._hopeless.add(_key_of(waiting))

    async def note_refused(
        self, name: str, order: Order, tree: Gang, steps: DecisionSteps, *, is_admitted: bool
    ) -> None:
        """Its minimum found no place. If nodes are held for it, those with the most capacity now are."""
        if not self._config.hold_after:
            return
        short = scarcest(self._view.snapshot, tree) if is_admitted else None
        if short is not None:
            shapes = tuple(dict.fromkeys(pod.shape for group in tree.groups() for pod in group.pods))
            want = Shortage(short.subject, short.number("wanted"), shapes)
            unit = self._units.of(name)
            if unit.shortage is not None and unit.shortage != want:
                self._hopeless.discard(name)  # emptying nodes may help now that it asks for something else
            unit.shortage = want
        known = self._ledger.find(name, *LONG_WAIT)
        if known is not None:
            await self._take(name, order, tree, known.reason, steps)
        elif (waiting := self._queue.get(name)) is not None and may_be_worth_later(self._view.snapshot, tree):
            self._hopeless.discard(_key_of(waiting))
            self._is_settled_for_all = False

    def note_capacity_taken(self, order: Order, pods: Iterable[PodFacts]) -> None:
        """A unit got a place: units ahead of it that could have used that capacity are overtaken by that amount."""
        placed = tuple(pods)
        self._note_crossed(order.name, placed)
        taken: Counter[tuple[Shape, str]] = Counter((pod.shape, pod.node) for pod in placed)
        for waiting in self._elders:
            if self._queue.get(waiting.order.name) is not waiting:
                continue
            want = self._units.of(waiting.order.name).shortage
            if want is None or self._is_settled(waiting):
                continue
            if self._order_now(waiting) >= order:
                continue
            waiting.overtaken += self._loss(want, taken)
            if waiting.overtaken >= want.amount and waiting not in self._overtaken:
                self._overtaken.append(waiting)

    def _note_crossed(self, taker: str, pods: Sequence[PodFacts]) -> None:
        """A unit is placed: fewer nodes are free for those behind it if it took a held node that was free."""
        taken, uids = {pod.node for pod in pods}, [pod.uid for pod in pods]
        for name in self._ledger.owners(*LONG_WAIT):
            hold = self._ledger.find(name, *LONG_WAIT)
            if hold is None or name == taker:
                continue
            if free_nodes(self._view.snapshot, taken & hold.nodes, (), uids):
                self._crossed.add(name)
                self._units.of(name).waits_for_ending = False  # the pods of the other unit may stay

    def _order_now(self, waiting: Waiting) -> Order:
        """Where a unit comes now: ranks of parked units are those of the moment when they were parked."""
        if not self._view.snapshot.seams.moves:
            return waiting.order
        return waiting.order._replace(rank=order_of(self._view, waiting.order.name).rank)

    def reconsider(self) -> None:
        """A change may help any unit, also one for which no node was worth holding."""
        self._hopeless.clear()
        self._hopeless_at, self._is_settled_for_all = self._view.snapshot.nodes.version, False

    async def resume(self) -> None:
        """Holds nodes again for units that say an earlier scheduler did, before anything is decided; once."""
        for waiting in sorted(self._queue.all(), key=lambda waiting: waiting.order):
            subject = self._subject(waiting.order.name)
            if isinstance(subject, PendingReservation):
                record = self._reserving.recorded(subject)
            else:
                record = self._units.of(waiting.order.name).recorded
            if subject is not None and record is not None and self._config.hold_after:
                await self._hold_again(subject, waiting, record)
        for unit in self._units:
            unit.recorded = None
        self._reserving.has_read_holds = True

    async def _hold_again(self, subject: Waits, waiting: Waiting, record: HeldCapacity) -> None:
        reason = HoldReason(record.reason)
        if not record.nodes:  # an older scheduler did not write all of them down
            await self._hold_for(subject, waiting, reason, since=record.since)
            return
        others = {node: hold.owner for hold in self._ledger for node in hold.nodes}
        if taken := sorted(node for node in record.nodes if node in others):
            fault = f"node {taken[0]} is held for {others[taken[0]]}"
            if isinstance(subject, PendingReservation):
                self._reserving.report_record(subject, fault)
            else:
                self._restoring.report(subject, fault)
            return
        try:
            tree = self._tree_of(subject)
        except BadGang:
            return
        self._units.of(subject.name).held_shapes = frozenset(pod.shape for group in tree.groups() for pod in group.pods)
        since = record.since or self._clock.now()
        self._put(CapacityHold(subject.name, waiting.order, reason, since, frozenset(record.nodes)))

    async def hold_for_overtaken(self) -> None:
        """Holds nodes for units that were overtaken since, before any other unit is placed.

        For units of which another unit took a free held node, it chooses nodes again.
        """
        crossed, self._crossed = self._crossed, set()
        for name in sorted(crossed):
            subject, unit = self._subject(name), self._queue.get(name)
            hold = self._ledger.find(name, *LONG_WAIT)
            if subject is not None and unit is not None and hold is not None:
                await self._hold_for(subject, unit, hold.reason)
        overtaken, self._overtaken = self._overtaken, []
        for waiting in sorted(overtaken, key=lambda waiting: waiting.order):
            subject = self._subject(waiting.order.name)
            if subject is not None and not self._is_settled(waiting) and self._queue.get(subject.name) is waiting:
                await self._hold_for(subject, waiting, HoldReason.OVERTAKEN)

    def _loss(self, want: Shortage, taken: Mapping[tuple[Shape, str], int]) -> int:
        """How much of what is wanted went, with pods of these shapes on these nodes, where it could have been used."""
        snapshot = self._view.snapshot
        usable = np.logical_or.reduce([allowed_mask(snapshot, shape) for shape in want.shapes])
        amounts = {shape: dict(shape.requests).get(want.resource, 0) for shape, _ in taken}
        losses = ((snapshot.nodes.row_of.get(node), amounts[shape] * count) for (shape, node), count in taken.items())
        return sum(amount for row, amount in losses if row is not None and usable[row])

    async def look_after_waiting(self, now_s: float) -> float | None:
        """Holds nodes for gangs that waited long, and warns of those past their timeout. When to look again."""
        await self.hold_for_overtaken()
        for hold in sorted((hold for hold in self._ledger if hold.reason in LONG_WAIT), key=lambda hold: hold.owner):
            gang = self._view.units.gangs.get(hold.owner)
            waits = hold.owner in self._queue or (gang is not None and gang.life.is_busy)
            if not waits or self._has_lost(hold):
                self.let_go(hold.owner)
        self._choose_elders()
        for number, waiting in enumerate(self._queue.take_newly_refused(), start=1):
            if self._queue.get(waiting.order.name) is waiting:
                self._watch(waiting)
            self._is_settled_for_all = False
            await _give_way_after(number)
        for number, name in enumerate(self._waits.due(now_s), start=1):
            if (late := self._queue.get(name)) is not None:
                self._note_long_wait(late, now_s)
            await _give_way_after(number)
        if self._hopeless_at != self._view.snapshot.nodes.version:
            self.reconsider()
        if not self._is_settled_for_all and self._config.hold_after:
            self._is_settled_for_all = True
            lines = [self._unsettled(ask, line) for ask, line in self._waits.lines()]
            for waiting, subject in heapq.merge(*lines, key=lambda entry: entry[0].order):
                if self._queue.get(subject.name) is waiting and self._subject(subject.name) is subject:
                    await self._hold_for(subject, waiting, HoldReason.WAITED_LONG)
                    await asyncio.sleep(0)  # a search, or two
        next_s = self._waits.next_s
        return max(next_s, now_s + BETWEEN_LOOKS_S) if next_s is not None else None

    def _choose_elders(self) -> None:
        elders = sum(self._queue.get(elder.order.name) is elder for elder in self._elders)
        if self._elders_at != self._queue.version or elders < min(len(self._elders), MOST_ELDERS // 2):
            self._elders_at = self._queue.version
            failing = (waiting for waiting in self._queue.heads(MOST_ELDERS) if self._failing(waiting) is not None)
            self._elders = heapq.nsmallest(MOST_ELDERS, failing, key=lambda waiting: waiting.order)

    def _failing(self, waiting: Waiting) -> Waits | None:
        """The gang or the Reservations of a unit whose minimum was refused."""
        if not waiting.failures or waiting.order.stage is Stage.SURPLUS:
            return None
        return self._subject(waiting.order.name)

    def _subject(self, name: str) -> Waits | None:
        gang = self._units.gangs.get(name)
        return gang if gang is not None else self._units.reservation(name)

    def _tree_of(self, subject: Waits) -> Gang:
        """Raises BadGang."""
        if isinstance(subject, PendingReservation):
            return subject.tree
        return tree_of(self._view, subject, self._config.node_policy)

    def _watch(self, waiting: Waiting) -> None:
        """Sets the timer of a refused unit."""
        subject = self._failing(waiting)
        if subject is None:
            return
        moment_s = self._warn_at_s(subject, waiting)
        if self._config.hold_after and waiting.patient_at is None:
            moment_s = min(moment_s, waiting.since_s + self._config.hold_after)
        self._waits.set_timer(waiting, moment_s)

    def _note_long_wait(self, waiting: Waiting, now_s: float) -> None:
        self._waits.set_timer(waiting, NEVER)
        subject = self._failing(waiting)
        if subject is None:
            return
        if isinstance(subject, GangState) and self._warn_at_s(subject, waiting) <= now_s:
            self._warn_of_timeout(subject, waiting, now_s)
        hold_after_s = self._config.hold_after
        if waiting.patient_at is None and hold_after_s and waiting.since_s + hold_after_s <= now_s:
            self._waits.add(waiting)
            self._is_settled_for_all = False
        self._watch(waiting)

    def _unsettled(self, ask: Hashable, line: list[Place]) -> Iterator[tuple[Waiting, Waits]]:
        """Units of a line for which nodes are to be held, in order; no more of them once none was worth holding."""
        for place in line:
            waiting = self._queue.get(place[1])
            if waiting is None or waiting.patient_at != (ask, place):
                continue  # it got its place since the look began
            if (waiting.ask, place_of(waiting)) != waiting.patient_at:
                self._waits.add(waiting)
                self._is_settled_for_all = False  # its turn comes with those that ask for the same
                continue
            if ask is not None and self._is_hopeless(waiting):
                return
            subject = self._failing(waiting)
            if subject is not None and not self._is_settled(waiting):
                yield waiting, subject

    async def _hold_for(
        self, subject: Waits, waiting: Waiting, reason: HoldReason, since: datetime | None = None
    ) -> None:
        try:
            tree = self._tree_of(subject)
        except BadGang:
            return
        except Exception:  # a pod cannot be read; the gang reports it when its turn comes
            log.exception("no nodes can be held", unit=subject.name)
            self._give_up(subject.name)
            return
        await self._take(subject.name, waiting.order, tree, reason, DecisionSteps(self._budget), since)

    async def _take(
        self,
        name: str,
        order: Order,
        tree: Gang,
        reason: HoldReason,
        steps: DecisionSteps,
        since: datetime | None = None,
    ) -> None:
        snapshot, subject = self._view.snapshot, self._subject(name)
        needed = tuple(pod for group in tree.groups() for pod in group.pods[: group.need])
        has_quota = snapshot.seams.could_admit(snapshot, tree, needed)
        closed = self._ledger.closed_to(name, order)
        ahead = [pod for hold in closed.quota for pod in hold.quota]
        if has_quota and snapshot.seams.held_against(snapshot, needed, ahead) is not None:
            self._give_up(name)  # a unit ahead has the quota: units behind this one do not get it either
            return
        answer, is_ending = await self._choose_nodes(name, tree, steps, closed)
        if self._subject(name) is not subject or name not in self._queue:
            return
        before = self._ledger.find(name, *LONG_WAIT)
        if isinstance(answer, NoFit) and answer.reason == kinds.BUDGET_ENDED and before is not None:
            return  # not proven: the hold stays
        is_admitted = snapshot.seams.refusal(snapshot, tree, needed) is None
        if isinstance(answer, NoFit) or not (is_admitted or has_quota):
            self._give_up(name)
            return
        # No nodes are held for a gang that may not use them yet.
        nodes = frozenset(pod.node for pod in answer.pods[: answer.core]) if is_admitted else frozenset()
        self._units.of(name).held_shapes = frozenset(pod.shape for pod in answer.pods[: answer.core])
        if before is None:
            log.info("held for a unit that waits", unit=name, nodes=len(nodes), quota=has_quota, reason=reason.value)
        else:
            was_ending = self._units.of(name).waits_for_ending
            is_surer = is_ending and not was_ending
            is_other = is_admitted and nodes != before.nodes and not is_surer
            if is_other and self._are_fewer_free(nodes, before, name, order):
                nodes, is_ending = before.nodes, was_ending
            if released := before.nodes - nodes:
                self._view.changes.relief.update(released)
                self._view.changes.wake()
            self._ledger.end(name, *LONG_WAIT)
        self._units.of(name).waits_for_ending = is_ending
        since = before.since if before is not None else since or self._clock.now()
        quota = needed if has_quota else ()
        self._put(CapacityHold(name, order, reason, since, nodes, quota=quota))

    async def _choose_nodes(
        self, name: str, tree: Gang, steps: DecisionSteps, closed: ClosedCapacity
    ) -> tuple[Placement | NoFit, bool]:
        """Which nodes to hold, and whether all pods that the gang waits for there end by themselves."""
        snapshot, own = self._view.snapshot, self._own_pods(name)
        is_long = len(self._view.pods) > IN_PLACE_PODS and looks_beyond_amounts(snapshot, tree)
        surely = nodes_of_ending_pods(snapshot, tree, closed.nodes, [pod for pod, does_end in own if does_end])
        if surely is not None:
            answer = await self._decider.search(tree, steps, surely, is_long=is_long)
            if isinstance(answer, Placement):
                return answer, True
        choice = nodes_to_hold(snapshot, tree, closed.nodes, [pod for pod, _ in own])
        return await self._decider.search(tree, steps, choice, is_long=is_long), False

    def _own_pods(self, name: str) -> list[tuple[PodFacts, bool]]:
        """Pods of the gang that are on nodes and do not terminate; whether each ends by itself some time."""
        if (gang := self._units.gangs.get(name)) is None:
            return []
        members = ((pod, self._view.snapshot.find_pod(pod.metadata.uid)) for pod, _ in self._view.members(gang))
        return [(facts, ends(pod)) for pod, facts in members if facts is not None and not pod.metadata.is_deleting]

    def _put(self, hold: CapacityHold) -> None:
        self._ledger.put(hold)
        self._note_held(hold.owner)

    def _note_held(self, name: str) -> None:
        """Has written what is held for the unit."""
        if self._units.reservation(name) is None:
            self._reporter.note_held(name)
        else:
            self._view.changes.wake()  # the next turn writes it

    def _are_fewer_free(self, nodes: frozenset[str], before: CapacityHold, name: str, order: Order) -> bool:
        """Whether fewer of these nodes are free for the gang than of those held for it, all of which it may use."""
        if self._has_lost(before):
            return False
        own, snapshot = self._ledger.closed_to(name, order).own, self._view.snapshot
        staying = [pod for pod, _ in self._own_pods(name)]
        return free_nodes(snapshot, nodes, staying, own) < free_nodes(snapshot, before.nodes, staying, own)

    def _has_lost(self, hold: CapacityHold) -> bool:
        """Whether a held node has gone, or takes no pod of the gang any more: the others alone are not enough."""
        shapes = self._units.of(hold.owner).held_shapes
        return not all(may_be_used(self._view.snapshot, node, shapes) for node in hold.nodes)

    def let_go(self, name: str) -> None:
        """Nothing is held for a gang any more, if anything was; others may have it."""
        if (unit := self._units.find(name)) is not None:
            unit.held_shapes = frozenset()
        for hold in self._ledger.end(name, *LONG_WAIT):
            self._note_held(name)
            self.reconsider()
            self._view.changes.relief.update(hold.nodes)
            self._view.changes.demand_changed |= bool(hold.quota)
            self._view.changes.wake()

    def end(self, name: str) -> None:
        """The gang waits for no node any more."""
        if (unit := self._units.find(name)) is not None:
            unit.shortage = None
        self._hopeless.discard(name)
        self.let_go(name)

    def _warn_at_s(self, subject: Waits, waiting: Waiting) -> float:
        """When to warn that a gang waits: after its timeout, and then so often that an Event is always there.

        The status of Reservations says all the time that they wait.
        """
        if isinstance(subject, PendingReservation):
            return NEVER
        timeout_s = self.timeout_s(subject)
        return max(waiting.since_s + timeout_s, waiting.warned_s + max(timeout_s, WARN_AGAIN_S))

    def _warn_of_timeout(self, gang: GangState, waiting: Waiting, now_s: float) -> None:
        waiting.warned_s = now_s
        last = gang.verdict.why if gang.verdict is not None else Reason(kinds.NO_CAPACITY)
        why = Reason(kinds.TIMED_OUT, numbers={"seconds": self.timeout_s(gang)}, parts=(last,))
        self._reporter.warn(gang, EventReason.GANG_TIMEOUT, why)


async def _give_way_after(number: int) -> None:
    """Lets the event loop go on between slices of units."""
    if number % UNITS_A_SLICE == 0:
        await asyncio.sleep(0)


def _key_of(waiting: Waiting) -> Hashable:
    """What a unit asks for, or its name if it is like no other."""
    return waiting.ask if waiting.ask is not None else waiting.order.name


def kept_out_by(closed: ClosedCapacity) -> Reason:
    """Why a unit that would fit waits: the units that hold nodes, and since when."""
    holds = sorted({hold.owner: hold for hold in closed.nodes.values()}.values(), key=lambda hold: hold.order)
    names = ", ".join(hold.owner for hold in holds[:MOST_NAMED])
    since = rfc3339(min(hold.since for hold in holds))
    return Reason(kinds.KEPT_OUT, names, {"nodes": len(closed.nodes)}, {"since": since})
