"""One turn of the scheduler: what changed, which units it can help, which are late, then every unit that is due, in
order.

Minima of all gangs come before surplus of the same priority. A gang that finds no place stops no other unit, unless it
waited so long that nodes are held for it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from grove.api.conditions import EventReason
from grove.api.meta import Key
from grove.kube.clock import Clock
from grove.scheduler.loop import metrics
from grove.scheduler.loop.deciding.answer_checks import AnswerCheck
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.loop.holds.headrooms import Headrooms
from grove.scheduler.loop.holds.hold_restorer import HoldRestorer
from grove.scheduler.loop.holds.holds_behind import HoldsBehind
from grove.scheduler.loop.holds.long_wait_holds import LongWaitHolds
from grove.scheduler.loop.holds.nominations import Nominations
from grove.scheduler.loop.holds.pending_reservations import PendingReservations
from grove.scheduler.loop.holds.replacement_answers import ReplacementAnswers
from grove.scheduler.loop.holds.replacements import Replacements
from grove.scheduler.loop.moving.headroom_moves import HeadroomMoves
from grove.scheduler.loop.state.gang_trees import domain_of, former_nodes, gang_order, order_of, pin_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.state.waiting_demand import WaitingDemand
from grove.scheduler.loop.turn.order_changes import OrderChanges
from grove.scheduler.loop.turn.placing import UnitPlacer
from grove.scheduler.loop.turn.refusals import UnitRefuser
from grove.scheduler.loop.writes.bind import BindAttempt, Committer
from grove.scheduler.loop.writes.evictions import Evictions
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.answers import Budget
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.gang_life import Looked, Phase, Stands
from grove.scheduler.policy.gang_state import (
    GANG_SCHEDULED,
    GANG_TIMEOUT,
    PLACED,
    Base,
    GangState,
    Verdict,
    readiness,
)
from grove.scheduler.policy.relief import Relief
from grove.scheduler.policy.waiting_queue import Order, Stage, WaitingQueue

if TYPE_CHECKING:
    from grove.scheduler.solve.referee import Referee

SLICE_S = 0.02
"""After this much work the event loop goes on: binds and events have their turn between decisions."""
LOOK_AGAIN_S = 30.0
"""Seconds until the next look at an unreadable unit."""
MOST_LOOKS = 8
"""How often one turn tries units again that new capacity helps. Without this limit other units would never get a turn.
"""

log = structlog.get_logger(__name__)


class QueueUpdater:
    """Adds changed units to the queue, removes finished ones, and marks gangs whose minimum is bound."""

    def __init__(
        self,
        view: View,
        queue: WaitingQueue,
        committer: Committer,
        nominations: Nominations,
        holding: LongWaitHolds,
        replacements: Replacements,
        reporter: Reporter,
        relief: Relief,
        answers: ReplacementAnswers,
        headrooms: Headrooms,
    ) -> None:
        self._view, self._queue, self._committer, self._nominations = view, queue, committer, nominations
        self._holding, self._replacements = holding, replacements
        self._reporter, self._relief, self._answers, self._headrooms = reporter, relief, answers, headrooms

    def ended(self, attempt: BindAttempt, all_bound: bool) -> None:
        """An attempt is over: the units that depend on it are tried again, and so is what it lacks."""
        name, gang = attempt.unit, attempt.gang
        now = asyncio.get_running_loop().time()
        is_current = self._view.units.is_current(gang)
        if is_current and self._view.has_minimum(gang):
            self._note_standing(gang, now)
        unit = self._view.units.of(name)
        unit.failed_binds = 0 if all_bound else unit.failed_binds + 1
        if not all_bound and is_current:
            if self._queue.get(name) is None:
                self._queue.offer(name, order_of(self._view, name), now)
            self._queue.retry(name, now, unit.failed_binds)
        for scaled in self._view.units.scaled_of.get(name, ()):
            self._view.changes.mark(scaled)
        self._view.changes.mark(name)
        for pod in attempt.pods if not is_current else ():  # another gang may refer to it by now, and waits for this
            if (other := self._view.units.gang_with(Key(pod.namespace, pod.name))) is not None:
                self._view.changes.mark(other.name)

    def consider(self, name: str, now: float, *, fresh: bool = False) -> None:
        """Puts a changed unit into the queue, or takes it out."""
        self._consider_gang(name, now, fresh=fresh)
        if name in self._view.units.scaled_of:
            footing = (self.base_of(name), domain_of(self._view, self._view.units.gangs.get(name)))
            for scaled in sorted(self._view.units.scaled_of[name]):
                # What refused it may not hold where its base is now.
                if self._view.units.gangs[scaled].stand_on(footing):
                    self._view.changes.mark(scaled, fresh=True)

    def _consider_gang(self, name: str, now: float, *, fresh: bool) -> None:
        gang = self._view.units.gangs.get(name)
        if gang is None or gang.podgang.metadata.is_deleting or not self._view.concerns_us(gang):
            self.forget(name)
            return
        self._reporter.touch(name)
        if gang.podgang.spec.replacement is not None:
            self._answers.note(gang)
        if gang.podgang.spec.headroom or self._headrooms.asking:
            self._headrooms.note(gang)
        if gang.phase is Phase.NEW:
            self._nominations.resume(gang, now + self._holding.timeout_s(gang))
        if not gang.life.is_open:
            self._queue.withdraw(name)
            return
        if gang.podgang.spec.reuse_reservation_ref is not None:
            gang.succeed(former_nodes(self._view, gang))
        look = self._view.look(gang)
        state = readiness(gang, look, self.base_of)
        gang.tell(Looked(state.phase, look.on_nodes, look.has_stood))
        self._replacements.refresh(gang)
        is_binding = gang.life.attempts > 0
        if state.stage is None or (is_binding and state.stage is not Stage.SURPLUS):
            self._queue.withdraw(name)
        else:
            unit = self._view.units.of(name)
            if unit.ready_since_s is None:
                unit.ready_since_s = now
            self._queue.offer(name, gang_order(self._view, gang, state.stage), now, fresh=fresh)
        if state.verdict is not None and not is_binding and state.verdict.placed:
            self._note_standing(gang, now)
        elif state.verdict is not None and not state.verdict.placed:
            self._reporter.report(gang, state.verdict)
        self._committer.set_deadline(gang, self._holding.timeout_s(gang), now)

    def forget(self, name: str) -> None:
        """The unit is gone, or belongs to another scheduler: its holds end, and its record is dropped."""
        self._queue.withdraw(name)
        self._nominations.drop(name)
        self._holding.let_go(name)
        self._replacements.end(name)
        if self._headrooms.asking:
            self._headrooms.end(name)
        self._view.units.drop(name)

    def take_back(self, gang: GangState) -> None:
        """Only a part of it has nodes at its deadline."""
        why = Reason(kinds.TIMED_OUT, numbers={"seconds": self._holding.timeout_s(gang)})
        self._queue.withdraw(gang.name)
        self._nominations.drop(gang.name)
        self._committer.roll_back(gang, Verdict(False, GANG_TIMEOUT, why))

    def base_of(self, name: str) -> Base:
        """Whether the base gang is placed, or about to be: its attempt is on its way, and others wait for its end."""
        base = self._view.units.gangs.get(name)
        if base is None:
            return Base.ABSENT
        stands = self._committer.minimum_attempt(base) is not None or base.stood or self._view.has_minimum(base)
        return Base.STANDS if stands else Base.WAITS

    def _note_standing(self, gang: GangState, now: float) -> None:
        """The minimum is on nodes. Writes condition and event if that is new."""
        is_news = not gang.stood
        gang.tell(Stands())
        self._holding.end(gang.name)  # also when it stood before: it may have waited for a pod that it lost
        if not is_news or not gang.has_object:
            return
        self._view.remember_place(gang)
        unit = self._view.units.of(gang.name)
        if unit.ready_since_s is not None:
            metrics.SCHEDULE_SECONDS.observe(now - unit.ready_since_s)
            if self._view.traces is not None:
                self._view.traces.placed(gang)
            unit.ready_since_s = None
        if gang.verdict is None or gang.verdict.reason != GANG_SCHEDULED:
            self._reporter.report(gang, PLACED)
        else:
            self._reporter.report(gang, gang.verdict)
        assert gang.verdict is not None
        self._reporter.tell(gang, EventReason.GANG_SCHEDULED, gang.verdict.why)


class Cycle:
    def __init__(
        self,
        view: View,
        queue: WaitingQueue,
        decider: Decider,
        committer: Committer,
        nominations: Nominations,
        replacements: Replacements,
        reporter: Reporter,
        clock: Clock,
        config: SchedulerConfiguration,
        wake_at: Callable[[float], None],
        reserving: PendingReservations,
        evictions: Evictions,
    ) -> None:
        self._view, self._queue, self._committer, self._nominations = view, queue, committer, nominations
        self._wake_at, self._demand = wake_at, WaitingDemand(view)
        self.referee: Referee | None = None
        if config.exact_solver:
            # Imported here because it starts a process pool.
            from grove.scheduler.solve.referee import find_referee  # noqa: PLC0415

            self.referee = find_referee()
        budget = Budget(config.search_budget or Budget().steps, self.referee)
        self._relief = Relief(
            view.snapshot,
            queue,
            patience_s=config.patience,
            pin_of=lambda name: pin_of(view, view.units.gangs.get(name)),
        )
        self._restoring = HoldRestorer(view, reporter)
        self._holding = LongWaitHolds(view, queue, reporter, clock, config, decider, budget, self._restoring, reserving)
        self._answers = ReplacementAnswers(view, nominations, reporter, config, budget)
        self._headrooms = Headrooms(view, decider, reporter, clock, config, budget)
        self._intake = QueueUpdater(
            view,
            queue,
            committer,
            nominations,
            self._holding,
            replacements,
            reporter,
            self._relief,
            self._answers,
            self._headrooms,
        )
        check = AnswerCheck(view, queue)
        behind = HoldsBehind(view, check, nominations, replacements, self._headrooms)
        self._refuser = UnitRefuser(
            view,
            queue,
            decider,
            nominations,
            self._holding,
            replacements,
            self._relief,
            reporter,
            config,
            reserving,
            check,
            self._headrooms,
            behind,
            HeadroomMoves(view, self._headrooms, replacements, evictions, reporter, config),
        )
        self._placing = UnitPlacer(
            view,
            queue,
            decider,
            committer,
            nominations,
            self._holding,
            replacements,
            reporter,
            config,
            budget,
            reserving,
            self._refuser,
            check,
            self._headrooms,
            behind,
            base_of=self._intake.base_of,
        )
        self.ended = self._intake.ended
        self._order_changes = OrderChanges(view, queue)
        queue.owners = view.ledger.open_owners

    async def run(self) -> None:
        """One turn. Returns when every unit that was due has its answer; sets the timer for the next exact moment."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._view.counted.refresh_until_current()
        is_first = self._restoring.restore()
        self._take_in(began)
        if is_first:
            await self._holding.resume()
        if self._headrooms.asking:
            await self._headrooms.turn(began)
        await self._decide_due(began)
        self._refuser.end_turn()
        now = loop.time()
        headroom_s = await self._headrooms.turn(now) if self._headrooms.asking else None
        answer_s = await self._answers.turn(now) if self._answers.asking else None
        next_hold_s = await self._holding.look_after_waiting(now)
        metrics.CYCLE_SECONDS.observe(now - began)
        metrics.PENDING.set(len(self._queue))
        deadline_s, due_s = self._committer.next_deadline_s(), self._queue.next_due_s(began)
        self._view.changes.seeks_reclaim = self._relief.seeks_reclaim
        call_back_s = self._relief.next_look_s(began)
        nominated_s = self._nominations.next_look_s(began)
        moments = (next_hold_s, deadline_s, due_s, call_back_s, answer_s, nominated_s, headroom_s)
        # Since it began: a moment that came in the middle of the turn was not looked at by it, and is next.
        later = [moment for moment in moments if moment is not None and moment > began]
        if later:
            self._wake_at(min(later))

    def _take_in(self, began: float) -> None:
        """What changed since the last turn: units that are gone, units that wait and their order, units it helps, late
        units.
        """
        self._view.counted.refresh()
        for gone in self._view.changes.take_gone():
            self._committer.give_up(gone)
            self._intake.forget(gone.name)
        for before in self._view.before_turn:
            before()
        dirty = self._view.changes.take_dirty()
        for unit, fresh in dirty:
            self._look_at(unit, began, fresh=fresh)
        self._demand.begin_turn((waiting.order.name for waiting in self._queue.all()), (unit for unit, _ in dirty))
        if unsettled := self._nominations.take_unsettled():
            self._queue.wake_named(unsettled)
        self._wake_helped(began)
        self._relief.wake_entitled(began)
        self._relief.wake_no_longer_admitted()
        self._nominations.advance(self._placing.start_nominated, began)
        for late in self._committer.take_late(began):
            self._intake.take_back(late)
        if self._view.snapshot.seams.moves:
            self._queue.reorder(lambda name: order_of(self._view, name).rank)
            self._order_changes.wake_units_ahead()

    def _look_at(self, unit: str, now_s: float, *, fresh: bool) -> None:
        try:
            self._intake.consider(unit, now_s, fresh=fresh)
        except Exception:  # an unreadable unit does not stop the others
            log.exception("look failed", unit=unit)
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._view.changes.mark, unit)

    async def _decide_due(self, began: float) -> None:
        loop = asyncio.get_running_loop()
        resumed_s = began
        heap = self._queue.due(began)
        looks_left = MOST_LOOKS
        while heap:
            order, name = heapq.heappop(heap)
            waiting = self._queue.get(name)
            if waiting is None or waiting.order != order:
                continue  # placed, withdrawn or re-ordered by an earlier step of this very cycle
            if self._view.snapshot.seams.moves and (rank := order_of(self._view, name).rank) > order.rank:
                self._queue.move(name, order._replace(rank=rank))  # other units of its queue got a place meanwhile
                heapq.heappush(heap, (waiting.order, name))
                continue
            if order.stage > Stage.MINIMUM:
                until_s = self._relief.stands_back_until_s(name, order, loop.time())
                if until_s is not None:
                    self._queue.defer(name, loop.time(), until_s)
                    continue
            ask = waiting.ask
            try:
                for follower in await self._placing.decide(name, order):
                    if follower != name:
                        self._intake.consider(follower, loop.time())
                    waiting = self._queue.get(follower)
                    if waiting is not None and not waiting.parked and not waiting.must_wait:
                        heapq.heappush(heap, (waiting.order, follower))
                if (alike := self._queue.wake_next(ask)) is not None:
                    heapq.heappush(heap, self._ranked_now(*alike))
                await self._holding.hold_for_overtaken()
            except Exception:
                log.exception("decision failed", unit=name)
                self._queue.retry(name, loop.time())
            if loop.time() - resumed_s > SLICE_S:
                await asyncio.sleep(0)
                resumed_s = loop.time()
            if looks_left and self._view.changes.has_relief:
                # New capacity is first for units with an earlier refusal.
                looks_left -= 1
                await self._view.counted.refresh_until_current()
                self._wake_helped(loop.time())
                heap = self._queue.due(loop.time())

    def _ranked_now(self, order: Order, name: str) -> tuple[Order, str]:
        """A unit that was parked until now, with the rank of this moment: others of its queue may have come or gone."""
        if self._view.snapshot.seams.moves:
            order = order._replace(rank=order_of(self._view, name).rank)
            self._queue.move(name, order)
        return order, name

    def _wake_helped(self, now_s: float) -> None:
        """Wakes the units that new capacity helps, or changes of the pods that they depend on."""
        self._view.counted.refresh()  # what units that went had is free
        came = self._view.changes.take_relief()
        for unit in self._nominations.drop_slow(came.nodes, came.helped):
            self._look_at(unit, now_s, fresh=True)
        if came.daemons_went or came.nodes is None or came.helped:
            self._holding.reconsider()
        self._relief.wake_helped(came.nodes, now_s)
        if came.helped:
            self._queue.wake_named(came.helped)
        if came.demand_changed:
            self._relief.wake_kept_out()
        self._relief.wake_neighbours(came.moves)
