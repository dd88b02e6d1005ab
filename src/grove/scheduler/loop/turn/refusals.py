"""Records why a unit has no place: in its own record, in its status, and for other units that ask for the same."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import structlog

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.explain.explanation import closest_domain
from grove.scheduler.loop import metrics
from grove.scheduler.loop.deciding.answer_checks import AnswerCheck
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.loop.holds.headrooms import Headrooms
from grove.scheduler.loop.holds.holds_behind import HoldsBehind
from grove.scheduler.loop.holds.long_wait_holds import LongWaitHolds, kept_out_by
from grove.scheduler.loop.holds.nominations import Nominations
from grove.scheduler.loop.holds.pending_reservations import PendingReservations
from grove.scheduler.loop.holds.replacements import Replacements
from grove.scheduler.loop.moving.headroom_moves import HeadroomMoves
from grove.scheduler.loop.state.gang_trees import Unit, level_names
from grove.scheduler.loop.state.unit import Explained
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import Reason, named
from grove.scheduler.policy.alike import kinds_of, part_names, renamed
from grove.scheduler.policy.gang_state import HELD_FOR_OTHERS, INVALID, GangState, Verdict
from grove.scheduler.policy.hold_ledger import CapacityHold, ClosedCapacity
from grove.scheduler.policy.relief import Relief
from grove.scheduler.policy.waiting_queue import WaitingQueue
from grove.scheduler.policy.waiting_reasons import refused
from grove.scheduler.solve.place import place

MOST_SAID = 1024
"""Of how many kinds of units the last reasons stay in memory."""

log = structlog.get_logger(__name__)


class SharedRefusal(msgspec.Struct, frozen=True):
    """A refusal that holds for every unit that asks for the same, while the snapshot is the same."""

    unit: Unit
    answer: NoFit
    verdict: Verdict
    turn: int
    """Whether there are victims is looked for again in another turn: budgets and gangs on their way change between."""

    def for_other(self, unit: Unit) -> tuple[NoFit, Verdict]:
        """What it says of another unit: the same, with the names of its own parts."""
        names = dict(zip(part_names(self.unit.tree), part_names(unit.tree), strict=True))
        answer = replace(self.answer, gang=unit.tree.name, why=renamed(self.answer.why, names))
        return answer, msgspec.structs.replace(self.verdict, why=renamed(self.verdict.why, names))


class UnitRefuser:
    """Refuses units, and remembers refusals as long as the snapshot they were made on is current."""

    def __init__(
        self,
        view: View,
        queue: WaitingQueue,
        decider: Decider,
        nominations: Nominations,
        holding: LongWaitHolds,
        replacements: Replacements,
        relief: Relief,
        reporter: Reporter,
        config: SchedulerConfiguration,
        reserving: PendingReservations,
        check: AnswerCheck,
        headrooms: Headrooms,
        behind: HoldsBehind,
        headroom_moves: HeadroomMoves,
    ) -> None:
        self._view, self._queue, self._decider, self._check = view, queue, decider, check
        self._nominations, self._holding, self._relief = nominations, holding, relief
        self._replacements, self._reserving, self._headrooms = replacements, reserving, headrooms
        self._behind = behind
        self._headroom_moves = headroom_moves
        self._reporter, self._config = reporter, config
        self._refused: dict[Hashable, SharedRefusal] = {}
        """By what a unit asks for and what is closed to it."""
        self._turn = 0
        self._said_alike: dict[Hashable, set[Hashable]] = {}
        """By what units ask for: the kinds of reasons for which they were refused last."""

    async def refuse_as_before(
        self, unit: Unit, closed: ClosedCapacity, ask: Hashable | None, steps: DecisionSteps
    ) -> bool:
        """Refuses a unit without a search if a unit like it was refused on the same snapshot; whether it did."""
        known = self._refused.get((ask, _key_of(closed))) if ask is not None else None
        if known is None or self._is_outdated(known, unit):
            return False
        answer, verdict = known.for_other(unit)
        if known.turn == self._turn:
            is_kept_out = answer.reason == kinds.NOT_ADMITTED
            self.park(unit, ask, by_anything=is_kept_out)
            self._queue.refuse_alike((ask, is_kept_out))
            self._view.units.of(unit.name).explained = Explained(answer.why, frozenset(closed.nodes), verdict)
            await self._report_refusal(unit, answer, verdict, steps)
        else:
            await self.refuse(unit, answer, "", closed, ask, steps)
        return True

    async def refuse(
        self,
        unit: Unit,
        answer: NoFit,
        decision: str,
        closed: ClosedCapacity,
        ask: Hashable | None,
        steps: DecisionSteps,
        *,
        may_evict: bool = True,
    ) -> None:
        now = asyncio.get_running_loop().time()
        asides = self._decider.asides
        if self._view.traces is not None:
            message = self._reporter.say(answer.why)
            self._view.traces.decided("refused", decision=decision, reason=answer.reason, message=message)
        log.info(
            "no place",
            unit=unit.name,
            decision=decision,
            version=answer.version,
            reason=answer.reason,
            proven=answer.proven,
            message=self._reporter.say(answer.why),
        )
        if unit.is_minimum and may_evict and unit.tree.may_preempt and self._config.preemption.enabled:
            deadline_s = now + self._holding.timeout_s(unit.gang)
            waits = partial(self._check.still_waits, unit)
            if closed.headrooms:  # with it fewer victims are enough
                self._headrooms.give_up(closed.headrooms)
            end_holds_behind = partial(self._behind.take, closed)
            is_nominated = await self._nominations.try_preempt(unit, steps, deadline_s, closed, waits, end_holds_behind)
            if closed.headrooms:
                await self._headrooms.turn(now)
            if is_nominated:
                self._replacements.refresh(unit.gang)
                self._queue.withdraw(unit.name)
                return
            if protected := self._view.units.of(unit.name).protected_by:
                answer = replace(answer, why=answer.why.with_parts(Reason(kinds.BUDGETS, ", ".join(protected))))
        if unit.reservation is None and unit.is_minimum and may_evict and self._headrooms.asking:
            await self._headroom_moves.try_move(unit, answer, closed, steps)
        if answer.reason == kinds.NO_DEVICES:
            ask = None  # its own claims cannot be met: others' may
        self.park(unit, ask, by_anything=answer.reason == kinds.NOT_ADMITTED)
        verdict = await self._explain(unit, answer, closed, steps)
        if asides != self._decider.asides and not self._check.still_waits(unit):
            return
        await self._report_refusal(unit, answer, verdict, steps)
        if ask is not None:
            self._refuse_alike(ask, SharedRefusal(unit, answer, verdict, self._turn), closed)

    def _refuse_alike(self, ask: Hashable, refused: SharedRefusal, closed: ClosedCapacity) -> None:
        """Keeps a refusal for units that ask for the same. If the reason changed, waiting units get the new one."""
        if refused.answer.version == self._view.snapshot.version:
            self._refused[ask, _key_of(closed)] = refused
        kind, reported = kinds_of(refused.verdict.why), self._said_alike.setdefault(ask, set())
        alike = (ask, refused.answer.reason == kinds.NOT_ADMITTED)
        if reported and kind not in reported:  # for another reason than before: each of them reports it
            if self._queue.wake_all_alike(alike):
                reported.clear()
        else:
            self._queue.refuse_alike(alike)
        reported.add(kind)

    def _is_outdated(self, known: SharedRefusal, unit: Unit) -> bool:
        """Whether the cluster changed since the refusal, or a policy refuses now what lacked capacity then."""
        snapshot, answer = self._view.snapshot, known.answer
        lacked_capacity = answer.reason != kinds.NOT_ADMITTED
        return answer.version != snapshot.version or (lacked_capacity and snapshot.seams.keeps_out(snapshot, unit.tree))

    def end_turn(self) -> None:
        """Keeps refusals no longer than the snapshot they were made on; those of policies, which change without it, not
        at all."""
        self._turn += 1
        version = self._view.snapshot.version
        for key, refusal in list(self._refused.items()):
            if refusal.answer.version != version or refusal.answer.reason == kinds.NOT_ADMITTED:
                del self._refused[key]
        if not self._queue or len(self._said_alike) > MOST_SAID:
            self._said_alike.clear()

    async def _report_refusal(self, unit: Unit, answer: NoFit, verdict: Verdict, steps: DecisionSteps) -> None:
        is_kept_out = answer.reason == kinds.NOT_ADMITTED
        if is_kept_out:
            metrics.QUOTA_REJECTIONS.inc()
        if unit.reservation is not None:
            await self._holding.note_refused(unit.name, unit.order, unit.tree, steps, is_admitted=not is_kept_out)
            self._reserving.refuse(unit.reservation, verdict.why)
        elif unit.is_minimum:
            gang = unit.gang
            await self._holding.note_refused(unit.name, unit.order, unit.tree, steps, is_admitted=not is_kept_out)
            if not gang.stood and not any(self._replacements.due_to_leave(gang)):
                gang.cannot_return()
                self._replacements.refresh(gang)
            self._reporter.report(gang, verdict)
        else:
            self.leave_over(unit.gang, verdict)

    def leave_over(self, gang: GangState, verdict: Verdict) -> None:
        """Pods above the minimum have no place. They get the reason; the gang gets it only if it has no other pods."""
        if gang.needs_minimum or gang.stood or gang.life.attempts:
            self._reporter.report_waiting(gang.name, verdict)
        else:
            self._reporter.report(gang, verdict)

    async def _explain(self, unit: Unit, answer: NoFit, closed: ClosedCapacity, steps: DecisionSteps) -> Verdict:
        """The refusal as `explain` opens; worked out again only when what stands in the way changed."""
        known = self._view.units.of(unit.name).explained
        if known is not None and known.why == answer.why and known.held_nodes == closed.nodes.keys():
            return known.verdict
        if closed.nodes and await self._would_fit(unit.tree, steps):
            verdict = Verdict(False, HELD_FOR_OTHERS, kept_out_by(closed))
        elif closed.headrooms_ahead and await self._would_fit(unit.tree, steps, closed.headrooms_ahead):
            names = ", ".join(sorted({hold.family for hold in closed.headrooms_ahead}))
            kind = kinds.QUOTA_OF_HEADROOM if answer.reason == kinds.NOT_ADMITTED else kinds.HEADROOM_OF_OTHERS
            verdict = Verdict(False, HELD_FOR_OTHERS, Reason(kind, names))
        else:
            closest = closest_domain(self._view.snapshot, unit.tree)
            why = named(answer.why.with_parts(*([closest] if closest else ())), level_names(self._view, unit.tree))
            verdict = refused(why)
        self._view.units.of(unit.name).explained = Explained(answer.why, frozenset(closed.nodes), verdict)
        return verdict

    async def _would_fit(self, tree: Gang, steps: DecisionSteps, holds: Sequence[CapacityHold] = ()) -> bool:
        """Whether there is a place for it if no whole nodes and none of these amounts were held for others."""
        uids = [pod.uid for hold in holds for pod in hold.pods]

        def ask(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
            return place(snapshot.without(uids), tree, budget)

        return isinstance(await self._decider.search(tree, steps, ask), Placement)

    def park(self, unit: Unit, ask: Hashable | None, *, by_anything: bool) -> None:
        may_evict = self._config.preemption.enabled and unit.is_minimum
        self._relief.remember(unit.name, unit.tree, may_evict=may_evict, by_anything=by_anything)
        now_s = asyncio.get_running_loop().time()
        self._queue.park(unit.name, now_s, (ask, by_anything) if ask is not None else None)

    def refuse_bad(self, name: str, message: str) -> None:
        self._queue.withdraw(name)
        gang = self._view.units.gangs.get(name)
        if gang is not None:
            self._reporter.report(gang, Verdict(False, INVALID, Reason(kinds.INVALID, message)))


def _key_of(closed: ClosedCapacity) -> Hashable:
    """Equal where the same is closed: whole nodes, and what is held for units ahead."""
    behind, quota = (frozenset(hold.owner for hold in holds) for holds in (closed.behind, closed.quota))
    return frozenset(closed.nodes), behind, closed.awaited, quota
