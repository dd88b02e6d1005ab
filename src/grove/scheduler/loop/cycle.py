"""One turn of the scheduler: what changed, who can be helped, who is late, then every unit that is due, in order.

Decisions are made on the live snapshot; a placement is reserved in it at once, so the next unit sees what is left.
Minima of all gangs come before surplus of any of the same priority. A gang that finds no place blocks nobody, unless it
waited so long that nodes are held for it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from grove.api.conditions import EventReason
from grove.api.meta import Key
from grove.kube.clock import Clock
from grove.kube.events import Recorder
from grove.scheduler.evict.holds import Hold
from grove.scheduler.evict.running import POD
from grove.scheduler.explain.explanation import closest_domain
from grove.scheduler.filters.fit import surplus_reason
from grove.scheduler.loop import metrics
from grove.scheduler.loop.bind import Attempt, Committer
from grove.scheduler.loop.decisions import Decider, Sharing
from grove.scheduler.loop.holding import Holding, kept_out_by
from grove.scheduler.loop.intake import Intake
from grove.scheduler.loop.nominate import Nomination, Nominations
from grove.scheduler.loop.quotas import Quotas
from grove.scheduler.loop.report import Reporter
from grove.scheduler.loop.trees import order_of, tree_of
from grove.scheduler.loop.view import View
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import BadGang, Gang, single
from grove.scheduler.model.reasons import Reason, named
from grove.scheduler.policy.gangs import (
    BINDING,
    GANG_SCHEDULED,
    HELD_FOR_OTHERS,
    INVALID,
    PLACED,
    UNSCHEDULABLE,
    Base,
    GangState,
    Verdict,
)
from grove.scheduler.policy.life import Phase
from grove.scheduler.policy.queue import Order, Queue, Relief, Stage
from grove.scheduler.solve.place import place
from grove.scheduler.solve.referee import find_referee

SLICE_S = 0.02
"""A cycle lets the event loop breathe after so much work: binds go out and events come in between decisions."""
QUOTA_REASONS = {
    kinds.QUOTA_EXCEEDED: kinds.QUOTA_EXCEEDED, kinds.QUOTA_KEPT: kinds.QUOTA_EXCEEDED,
    kinds.QUEUE_MISSING: kinds.QUEUE_MISSING, kinds.QUEUE_INVALID: kinds.QUEUE_INVALID,
    kinds.QUEUE_NOT_LEAF: kinds.QUEUE_INVALID,
}  # fmt: skip
"""Reasons of the Scheduled condition for gangs that a queue keeps out."""
MOST_LOOKS = 8
"""So often in a turn those are looked at again for whom room came in the middle of it; else the others never would."""
TWO_EVENTS = 4
"""Gangs of fewer pods are told of their domain by GangScheduled alone: two writes a pod, all told, are enough."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is decided about in one step: a gang (with its state) or a single pod."""

    name: str
    tree: Gang
    order: Order
    state: GangState | None = None

    def to_bind(self, placement: Placement) -> tuple[PodFacts, ...]:
        """Minima go alone, so that other gangs' minima come before this one's surplus."""
        is_floor = self.order.stage is not Stage.SURPLUS and self.state is not None
        return placement.pods[: placement.core] if is_floor else placement.pods


class Cycle:
    def __init__(
        self, view: View, queue: Queue, decider: Decider, committer: Committer, nominations: Nominations,
        reporter: Reporter, events: Recorder, clock: Clock, config: SchedulerConfiguration,
        wake_at: Callable[[float], None], quotas: Quotas,
    ) -> None:  # fmt: skip
        self._view, self._queue, self._committer = view, queue, committer
        self._nominations, self._reporter, self._events = nominations, reporter, events
        self._config, self._wake_at, self._quotas = config, wake_at, quotas
        self.referee = find_referee() if config.exact_solver else None
        self._budget = Budget(config.search_budget or Budget().steps, self.referee)
        self._sharing = Sharing(view, decider, self._budget)
        self._relief = Relief(view.snapshot, queue, patience_s=config.patience)
        self._decider = decider
        self._holding = Holding(view, queue, reporter, events, clock, config, decider, self._budget)
        self._said: dict[str, tuple[Reason, Collection[str], Verdict]] = {}
        forgets = (nominations.drop, self._relief.forget, self._sharing.forget, self._unsay, self._holding.forget)
        self._intake = Intake(view, queue, committer, nominations, self._holding, reporter, events, forgets=forgets)
        self.ended = self._intake.ended

    async def run(self) -> None:
        """One turn. Returns when every unit that was due has its answer; sets the timer for the next exact moment."""
        loop = asyncio.get_running_loop()
        began = breath = loop.time()
        self._view.refresh()
        for unit, gone in self._view.take_gone():
            self._intake.forget(unit)
            if gone is not None:
                self._committer.give_up(gone)
        self._quotas.refresh()
        for before in self._view.before_turn:
            before()
        dirty = self._view.take_dirty()
        for unit, fresh in dirty:
            self._intake.consider(unit, began, fresh=fresh)
        self._quotas.begin_turn(self._queue, (unit for unit, _ in dirty))
        if unsettled := self._nominations.take_unsettled():
            self._queue.wake(unsettled.__contains__)
        self._wake_helped(began)
        self._nominations.advance(self._start_nominated, began)
        for late in self._committer.take_late(began):
            self._intake.take_back(late)
        if self._view.snapshot.seams.moves:
            self._queue.reorder(lambda name: order_of(self._view, name).rank)
        await self._holding.resume()
        heap = self._queue.due(began)
        looks_left = MOST_LOOKS
        while heap:
            order, name = heapq.heappop(heap)
            waiting = self._queue.get(name)
            if waiting is None or waiting.order != order:
                continue  # placed, withdrawn or re-ordered by an earlier step of this very cycle
            if self._view.snapshot.seams.moves and (rank := order_of(self._view, name).rank) > order.rank:
                self._queue.move(name, order._replace(rank=rank))  # others of its queue were placed meanwhile
                heapq.heappush(heap, (waiting.order, name))
                continue
            if order.stage is not Stage.FLOOR:
                until_s = self._relief.stands_back_until_s(name, order, loop.time())
                if until_s is not None:
                    self._queue.defer(name, loop.time(), until_s)
                    continue
            try:
                await self._decide(name, order, heap)
                await self._holding.hold_for_overtaken()
            except Exception:
                log.exception("decision failed", unit=name)
                self._queue.retry(name, loop.time())
            if loop.time() - breath > SLICE_S:
                await asyncio.sleep(0)
                breath = loop.time()
            if looks_left and self._view.has_relief:
                # Room that came meanwhile is first for those that were refused before it did.
                looks_left -= 1
                self._wake_helped(loop.time())
                heap = self._queue.due(loop.time())
        now = loop.time()
        next_hold_s = await self._holding.look_after_waiting(now)
        metrics.CYCLE_SECONDS.observe(now - began)
        metrics.PENDING.set(len(self._queue))
        deadline_s, due_s = self._committer.next_deadline_s(), self._queue.next_due_s(began)
        moments = (next_hold_s, deadline_s, due_s, self._nominations.next_look_s())
        # Since it began: a moment that came in the middle of the turn was not looked at by it, and is next.
        later = [moment for moment in moments if moment is not None and moment > began]
        if later:
            self._wake_at(min(later))

    def _wake_helped(self, now_s: float) -> None:
        """Wakes whom it helps that room came, or that pods did which they look at."""
        self._view.refresh()  # what units that went had is free
        self._relief.wake_helped(self._view.take_relief(), now_s)
        if self._view.take_moved():
            self._queue.wake(self._relief.sees_pods)

    # Deciding

    async def _decide(self, name: str, order: Order, heap: list[tuple[Order, str]]) -> None:
        try:
            unit = self._unit(name, order)
        except BadGang as err:
            self._refuse_bad(name, str(err))
            return
        if unit is None:
            self._queue.withdraw(name)
            return
        self._view.refresh()  # reading its pods may have shown what has to be counted on nodes for them
        closed = self._holding.closed_for(name, order)
        asides, labels_version = self._decider.asides, self._view.snapshot.nodes.labels_version
        found = await self._sharing.place(name, unit.tree, closed, unit.to_bind)
        if asides != self._decider.asides and not self._still_holds(unit, found.answer, labels_version):
            for pod in unit.to_bind(found.answer) if isinstance(found.answer, Placement) else ():
                self._view.sources.give_back(pod.uid)
            self._queue.retry(name, asyncio.get_running_loop().time())
        elif isinstance(found.answer, Placement):
            self._accept(unit, found.answer, found.decision, heap)
        else:
            await self._refuse(unit, found.answer, found.decision, closed)
            if found.has_more:
                self._queue.retry(name, asyncio.get_running_loop().time())

    def _still_holds(self, unit: Unit, answer: Placement | NoFit, labels_version: int) -> bool:
        """Whether an answer may be acted on although the cluster moved on while it was worked out.

        A refusal may, if the unit still waits: room that came meanwhile is remembered and wakes it again.
        """
        if isinstance(answer, NoFit):
            return self._still_waits(unit)
        is_same = labels_version == self._view.snapshot.nodes.labels_version
        return is_same and self._still_waits(unit) and self._view.has_room(unit.to_bind(answer))

    def _still_waits(self, unit: Unit) -> bool:
        """Whether a unit and all its pods are what they were when it was looked at."""
        view, gang, waiting = self._view, unit.state, self._queue.get(unit.name)
        if waiting is None or waiting.order != unit.order:
            return False
        if gang is not None and not (view.is_current(gang) and gang.life.is_open):
            return False
        pods = (facts for group in unit.tree.groups() for facts in group.pods)
        found = ((view.pods.get(Key(facts.namespace, facts.name)), facts.uid) for facts in pods)
        return all(
            pod is not None and pod.metadata.uid == uid and not (view.node_of(pod) or view.is_leaving(pod))
            for pod, uid in found
        )

    def _unit(self, name: str, order: Order) -> Unit | None:
        view = self._view
        if name.startswith(POD):
            pod = view.singles.get(name)
            if pod is None or pod.is_gated or view.node_of(pod):
                return None
            return Unit(name, single(view.facts(pod), self._config.node_policy), order)
        gang = view.gangs.get(name)
        if gang is None or gang.phase is Phase.NEW or not gang.life.is_open:
            return None  # the one that was due is gone; another of its name has not been looked at yet
        if order.stage is Stage.SCALED_FLOOR and not gang.stood and self._intake.base_of(gang.base) is not Base.STANDS:
            return None  # it lost its base while it waited; it is looked at again when that stands
        return Unit(name, tree_of(view, gang, self._config.node_policy), order, gang)

    def _accept(self, unit: Unit, placement: Placement, decision: str, heap: list[tuple[Order, str]]) -> None:
        """Reserves and launches."""
        now = asyncio.get_running_loop().time()
        is_floor = unit.order.stage is not Stage.SURPLUS
        pods = unit.to_bind(placement)
        if not pods:
            self._park(unit, now)
            if unit.state is not None and placement.unplaced:
                self._leave_over(unit.state, surplus_reason(self._view.snapshot, unit.tree, placement.unplaced[0]))
            return
        self._queue.withdraw(unit.name)
        self._relief.forget(unit.name)
        self._commit(unit, placement, pods, decision)
        gang = unit.state
        if gang is None or not is_floor:
            return
        if len(placement.pods) + len(placement.unplaced) > placement.core:
            self._queue.offer(unit.name, unit.order._replace(stage=Stage.SURPLUS), now)
            heapq.heappush(heap, (unit.order._replace(stage=Stage.SURPLUS), unit.name))
        for scaled in sorted(self._view.scaled_of.get(unit.name, ())):
            self._intake.consider(scaled, now)
            waiting = self._queue.get(scaled)
            if waiting is not None and not waiting.parked and not waiting.must_wait:
                heapq.heappush(heap, (waiting.order, scaled))

    def _commit(self, unit: Unit, placement: Placement, pods: tuple[PodFacts, ...], decision: str) -> None:
        now = asyncio.get_running_loop().time()
        gang = unit.state
        self._view.reserve(pods)
        self._holding.room_taken(unit.order, pods)
        deadline = now + self._holding.timeout_s(gang)
        after = None
        is_floor = gang is not None and unit.order.stage is not Stage.SURPLUS
        if gang is not None:
            after = self._committer.floor_of(self._view.gangs.get(gang.base) if is_floor else gang)
            if is_floor:
                self._note_choice(gang, unit.tree, placement)
                if unit.tree.former and unit.tree.former.issuperset(pod.node for pod in pods):
                    metrics.RESERVATION_USED.inc()
            elif gang.verdict is not None:
                gang.judge(gang.verdict, round(placement.score, 4))
        self._committer.launch(Attempt(unit.name, gang, pods, deadline, is_floor, decision, after))
        log.info("placed", unit=unit.name, decision=decision, version=placement.version, pods=len(pods),
                 domain=placement.domain, score=round(placement.score, 3), steps=placement.steps)  # fmt: skip

    def _note_choice(self, gang: GangState, tree: Gang, placement: Placement) -> None:
        score = round(placement.score, 4)
        pods = placement.core + sum(len(group.bound) for group in tree.groups())
        level = {"level": self._spoken(tree).get(placement.domain_key, placement.domain_key)}
        why = Reason(kinds.PLACED, placement.domain, {"pods": pods, "score": score}, level)
        gang.judge(Verdict(True, GANG_SCHEDULED, why), score)
        metrics.PLACEMENT_SCORE.observe(placement.score)
        if placement.domain:
            metrics.DOMAIN_SELECTED.labels(placement.domain_key).inc()
        if placement.domain and placement.core >= TWO_EVENTS:
            text = f"chose {level['level']} {placement.domain} for {placement.core} pods"
            self._events.normal(gang.podgang, EventReason.TOPOLOGY_SELECTED, text)

    async def _refuse(self, unit: Unit, answer: NoFit, decision: str, closed: Mapping[str, Hold]) -> None:
        now = asyncio.get_running_loop().time()
        gang = unit.state
        is_floor = unit.order.stage is not Stage.SURPLUS
        asides = self._decider.asides
        log.info("no place", unit=unit.name, decision=decision, version=answer.version, reason=answer.reason,
                 proven=answer.proven, message=self._reporter.say(answer.why))  # fmt: skip
        if is_floor and self._config.preemption.enabled:
            deadline_s = now + self._holding.timeout_s(gang)
            waits = partial(self._still_waits, unit)
            if await self._nominations.try_preempt(unit.name, unit.tree, gang, self._budget, deadline_s, closed, waits):
                self._queue.withdraw(unit.name)
                return
        self._park(unit, now)
        verdict = await self._explained(unit, answer, closed)
        if asides != self._decider.asides and not self._still_waits(unit):
            return
        is_kept_out = answer.reason == kinds.NOT_ADMITTED
        if is_kept_out:
            self._relief.forget(unit.name)  # any pod that goes may leave it what its policy kept from it
            metrics.QUOTA_REJECTIONS.inc()
        if gang is None:
            self._reporter.pod_waits(unit.name, verdict)
        elif is_floor:
            if is_kept_out:
                self._holding.forget(unit.name)  # no room is kept for who may not use it
            else:
                await self._holding.refused(gang, unit.order, unit.tree)
            self._reporter.settled(gang, verdict)
        else:
            self._leave_over(gang, verdict.why)

    def _leave_over(self, gang: GangState, why: Reason) -> None:
        """Pods above the minimum have no place: they are told, the gang is not, unless it is made of nothing else."""
        verdict = Verdict(False, UNSCHEDULABLE, why)
        if gang.has_floor or gang.stood or gang.life.attempts:
            self._reporter.pod_waits(gang.name, verdict)
        else:
            self._reporter.settled(gang, verdict)

    async def _explained(self, unit: Unit, answer: NoFit, closed: Mapping[str, Hold]) -> Verdict:
        """The refusal as `explain` opens; worked out again only when what stands in the way changed."""
        said, shut, verdict = self._said.get(unit.name, (None, (), PLACED))
        if said == answer.why and shut == closed.keys():
            return verdict
        if closed and await self._would_fit(unit.tree):
            verdict = Verdict(False, HELD_FOR_OTHERS, kept_out_by(closed))
        else:
            closest = closest_domain(self._view.snapshot, unit.tree)
            why = named(answer.why.with_parts(*([closest] if closest else ())), self._spoken(unit.tree))
            kept_out = answer.why.parts[0].kind if answer.reason == kinds.NOT_ADMITTED and answer.why.parts else ""
            verdict = Verdict(False, QUOTA_REASONS.get(kept_out, UNSCHEDULABLE), why)
        self._said[unit.name] = (answer.why, frozenset(closed), verdict)
        return verdict

    def _spoken(self, tree: Gang) -> dict[str, str]:
        """What the gang's topology calls its levels, by label key."""
        return {key: name for name, key in self._view.level_names(tree.topology).items()}

    def _unsay(self, name: str) -> None:
        self._said.pop(name, None)

    async def _would_fit(self, tree: Gang) -> bool:
        """Whether there is a place for it if nothing were held for others."""
        answer = await self._decider.work(lambda snapshot: place(snapshot, tree, self._budget))
        return isinstance(answer, Placement)

    def _park(self, unit: Unit, now: float) -> None:
        self._relief.remember(unit.name, unit.tree)
        self._view.sees_pods |= self._relief.sees_pods(unit.name)
        self._queue.park(unit.name, now)

    def _refuse_bad(self, name: str, message: str) -> None:
        self._queue.withdraw(name)
        gang = self._view.gangs.get(name)
        if gang is not None:
            self._reporter.settled(gang, Verdict(False, INVALID, Reason(kinds.INVALID, message)))

    def _start_nominated(self, one: Nomination) -> None:
        """The victims are gone: what was reserved is bound."""
        unit = Unit(one.unit, one.tree, order_of(self._view, one.unit), one.gang)
        if one.gang is not None:
            one.gang.judge(Verdict(False, BINDING, Reason(kinds.PLACE_FREE), brief=True))
        self._commit(unit, one.placement, one.pods if one.gang is not None else one.placement.pods, one.decision)
