"""Decides one unit: it reserves the placement and starts the binding, or reports why there is none.

Decisions use the live snapshot. It counts a placement at once, so the next unit sees what is left. A long
decision uses a copy, and its answer counts only if it still holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence

import msgspec
import structlog

from grove.api.conditions import EventReason
from grove.scheduler.filters.fit import surplus_reason
from grove.scheduler.loop import metrics
from grove.scheduler.loop.deciding.answer_checks import AnswerCheck
from grove.scheduler.loop.deciding.decisions import Decider, FoundPlacement, SharedClaimPlacer
from grove.scheduler.loop.deciding.victim_search import OVERDUE_S
from grove.scheduler.loop.holds.headrooms import Headrooms
from grove.scheduler.loop.holds.holds_behind import HoldsBehind
from grove.scheduler.loop.holds.long_wait_holds import LongWaitHolds
from grove.scheduler.loop.holds.nominations import Nomination, Nominations
from grove.scheduler.loop.holds.pending_reservations import PendingReservations
from grove.scheduler.loop.holds.replacements import Replacements
from grove.scheduler.loop.state.gang_trees import (
    Unit,
    closed_capacity,
    level_names,
    order_of,
    score_in_replica,
    tree_of,
    without_nominated,
)
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.turn.refusals import UnitRefuser
from grove.scheduler.loop.writes.bind import BindAttempt, Committer
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import BadGang, Gang
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy.alike import ask_of
from grove.scheduler.policy.gang_life import Phase
from grove.scheduler.policy.gang_state import (
    BINDING,
    GANG_SCHEDULED,
    Base,
    GangState,
    Verdict,
)
from grove.scheduler.policy.hold_ledger import ClosedCapacity
from grove.scheduler.policy.waiting_queue import Order, Stage, WaitingQueue
from grove.scheduler.policy.waiting_reasons import refused

TWO_EVENTS = 4
"""Gangs of fewer pods name their domain in GangScheduled alone. This keeps them at two writes for each pod."""

log = structlog.get_logger(__name__)


class UnitPlacer:
    """`base_of` says what a scaled gang finds of its base."""

    def __init__(
        self,
        view: View,
        queue: WaitingQueue,
        decider: Decider,
        committer: Committer,
        nominations: Nominations,
        holding: LongWaitHolds,
        replacements: Replacements,
        reporter: Reporter,
        config: SchedulerConfiguration,
        budget: Budget,
        reserving: PendingReservations,
        refuser: UnitRefuser,
        check: AnswerCheck,
        headrooms: Headrooms,
        behind: HoldsBehind,
        *,
        base_of: Callable[[str], Base],
    ) -> None:
        self._view, self._queue, self._decider, self._committer = view, queue, decider, committer
        self._nominations, self._holding, self._refuser, self._check = nominations, holding, refuser, check
        self._replacements, self._reserving, self._headrooms = replacements, reserving, headrooms
        self._behind = behind
        self._reporter, self._config = reporter, config
        self._budget, self._base_of = budget, base_of
        self._sharing = SharedClaimPlacer(view, decider)

    async def decide(self, name: str, order: Order) -> Sequence[str]:
        """Decides about a unit that is due; who may be due because of that: its surplus, and gangs scaled with it."""
        if self._view.traces is None:
            return await self._decide(name, order)
        with self._view.traces.decision(name):
            return await self._decide(name, order)

    async def _decide(self, name: str, order: Order) -> Sequence[str]:
        try:
            unit = self._unit(name, order)
            # Reading its pods may have shown what to count on nodes for them.
            while unit is not None and await self._view.counted.refresh_in_slices():
                unit = self._unit(name, order)
        except BadGang as err:
            self._refuser.refuse_bad(name, str(err))
            return ()
        if unit is None:
            self._queue.withdraw(name)
            return ()
        # Before it is decided: pods that come meanwhile may be those that it looks for.
        self._view.changes.sees_pods |= unit.tree.sees_pods
        accounts = self._view.snapshot.seams.accounts(group.pods[0] for group in unit.tree.groups() if group.pods)
        if self._view.snapshot.seams.moves:
            fair = without_nominated(self._view)
            self._view.ledger.reorder(lambda owner: order_of(self._view, owner, fair).rank)
            order = order._replace(rank=order_of(self._view, name, fair).rank)
        closed = closed_capacity(self._view, name, order, accounts)
        ask, steps = self._ask_of(unit, closed), DecisionSteps(self._budget)
        if (held := self._held_against(unit, closed)) is not None:
            await self._refuser.refuse(unit, held, "", closed, ask, steps, may_evict=False)
            return ()
        if await self._refuser.refuse_as_before(unit, closed, ask, steps):
            return ()
        asides, labels_version = self._decider.asides, self._view.snapshot.nodes.labels_version
        placement = await self._find_place(unit, closed, steps)
        until_s: float | None = None
        if isinstance(placement.answer, Placement):
            until_s = await self._better_from_s(unit, placement.answer, closed, steps)
        if asides != self._decider.asides and not self._check.still_holds(unit, placement.answer, labels_version):
            self._give_back(unit.to_bind(placement.answer) if isinstance(placement.answer, Placement) else ())
            self._queue.retry(name, asyncio.get_running_loop().time())
        elif isinstance(placement.answer, Placement) and until_s is not None:
            self._give_back(unit.to_bind(placement.answer))
            self._queue.defer(name, asyncio.get_running_loop().time(), until_s, until_helped=True)
        elif isinstance(placement.answer, Placement):
            return self._accept(unit, placement.answer, placement.decision, ask)
        else:
            await self._refuser.refuse(unit, placement.answer, placement.decision, closed, ask, steps)
            if placement.has_more:
                self._queue.retry(name, asyncio.get_running_loop().time())
        return ()

    def _held_against(self, unit: Unit, closed: ClosedCapacity) -> NoFit | None:
        """The refusal of a unit whose queue's quota is held for units ahead of it."""
        if unit.reservation is not None or not closed.quota:
            return None
        snapshot, groups = self._view.snapshot, unit.tree.groups()
        pods = [pod for group in groups for pod in (group.pods[: group.need] if unit.is_minimum else group.pods)]
        held = [pod for hold in closed.quota for pod in hold.quota]
        why = snapshot.seams.held_against(snapshot, pods, held)
        return NoFit(unit.tree.name, why, True, version=snapshot.version) if why is not None else None

    def _ask_of(self, unit: Unit, closed: ClosedCapacity) -> Hashable | None:
        """What the unit asks for, equal for units that are alike; None if it is like no other."""
        if closed.own or unit.reservation is not None:
            return None
        ask = ask_of(self._view.snapshot, unit.tree)
        return (unit.order.stage, ask) if ask is not None else None

    async def _find_place(self, unit: Unit, closed: ClosedCapacity, steps: DecisionSteps) -> FoundPlacement:
        """A place in what is open to the unit; if there is none, in what is held for units behind it as well."""
        to_bind = unit.to_bind if unit.reservation is None else lambda _: ()  # what sources give it is its owners'
        elsewhere = await self._find_elsewhere(unit, closed, to_bind)
        if elsewhere is not None:
            kept, answer = elsewhere
            if answer.score >= 1 and not answer.unplaced:  # the best place, so no second search follows
                return kept
            self._give_back(to_bind(answer))
        placement = await self._sharing.place(unit.name, unit.tree, steps, closed.nodes, to_bind, closed.own)
        if elsewhere is not None and not placement.answer.is_better_than(answer):
            self._give_back(to_bind(placement.answer) if isinstance(placement.answer, Placement) else ())
            if self._view.counted.take(to_bind(answer)) is None:
                return kept
            placement = await self._sharing.place(unit.name, unit.tree, steps, closed.nodes, to_bind, closed.own)
        if isinstance(placement.answer, Placement) and (placement.answer.pods or not placement.answer.unplaced):
            return placement
        open_uids = closed.open_uids
        if open_uids == closed.own or placement.has_more:
            return placement
        second = await self._sharing.place(unit.name, unit.tree, steps, closed.nodes, to_bind, open_uids)
        if isinstance(second.answer, NoFit) or not second.answer.pods:
            return placement
        self._behind.take(closed, unit.to_bind(second.answer))
        return second

    async def _find_elsewhere(
        self, unit: Unit, closed: ClosedCapacity, to_bind: Callable[[Placement], Sequence[PodFacts]]
    ) -> tuple[FoundPlacement, Placement] | None:
        """A place that leaves the nodes alone that are held for units behind it; None if there are no such nodes.

        It has steps of its own, so that as many as always are left for the search on all nodes and for victims.
        """
        avoided = closed.nodes_behind - unit.tree.former
        if not avoided:
            return None
        nodes, steps = avoided.union(closed.nodes), DecisionSteps(self._budget, searches=1)
        record = self._view.units.of(unit.name)
        tried_choices = record.tried_choices
        placement = await self._sharing.place(unit.name, unit.tree, steps, nodes, to_bind, closed.own)
        record.tried_choices = tried_choices  # the search on all nodes counts those that are left
        answer = placement.answer
        if isinstance(answer, NoFit) or (answer.unplaced and not answer.pods):
            return None
        return placement, answer

    def _give_back(self, pods: Sequence[PodFacts]) -> None:
        for pod in pods:
            self._view.sources.give_back(pod.uid)

    async def _better_from_s(
        self, unit: Unit, answer: Placement, closed: ClosedCapacity, steps: DecisionSteps
    ) -> float | None:
        """Until when to wait for pods that the unit's pods replace; None if no better place becomes free with them.

        A replaced pod still terminates. Its node may be the last one in the rack where the gang is.
        """
        if answer.score >= 1:  # the best score, so no search follows
            return None
        due = self._replacements.due_to_leave(unit.gang) if unit.reservation is None else ()
        ends = [(pod, left_s + OVERDUE_S) for pod, left_s in due if left_s > -OVERDUE_S]
        if not ends:
            return None
        now_s = asyncio.get_running_loop().time()
        later = await self._nominations.search.place_without(unit.tree, steps, closed, [pod for pod, _ in ends])
        if later is None or later.score <= answer.score or len(later.pods) < len(answer.pods):
            return None
        return now_s + max(left_s for _, left_s in ends)

    def _unit(self, name: str, order: Order) -> Unit | None:
        view = self._view
        if (reservation := view.units.reservation(name)) is not None:
            return Unit(name, reservation.tree, order, reservation)
        gang = view.units.gangs.get(name)
        if gang is None or gang.phase is Phase.NEW or not gang.life.is_open:
            return None  # the one that was due is gone; another of its name has not been looked at yet
        if order.stage is Stage.SCALED_MINIMUM and not gang.stood and self._base_of(gang.base) is not Base.STANDS:
            return None  # it lost its base while it waited; it is looked at again when that stands
        return Unit(name, tree_of(view, gang, self._config.node_policy), order, gang)

    def _accept(self, unit: Unit, placement: Placement, decision: str, ask: Hashable | None) -> Sequence[str]:
        """Reserves and launches; returns the units to try next because of that."""
        if unit.reservation is not None:
            self._holding.note_capacity_taken(unit.order, placement.pods)
            self._holding.end(unit.name)
            self._reserving.commit(unit.reservation, placement)
            return ()
        now = asyncio.get_running_loop().time()
        pods = unit.to_bind(placement)
        if not pods:
            is_kept_out = self._is_kept_out(unit.tree, placement.unplaced)
            self._refuser.park(unit, ask, by_anything=is_kept_out)
            self._queue.refuse_alike((ask, is_kept_out))
            if placement.unplaced:
                why = surplus_reason(self._view.snapshot, unit.tree, placement.unplaced[0])
                self._refuser.leave_over(unit.gang, refused(why))
            return ()
        self._queue.withdraw(unit.name)
        self._commit(unit, placement, pods, decision)
        if not unit.is_minimum:
            return ()
        scaled = sorted(self._view.units.scaled_of.get(unit.name, ()))
        if len(placement.pods) + len(placement.unplaced) <= placement.core:
            return scaled
        self._queue.offer(unit.name, unit.order._replace(stage=Stage.SURPLUS), now)
        return [unit.name, *scaled]

    def _commit(self, unit: Unit, placement: Placement, pods: tuple[PodFacts, ...], decision: str) -> None:
        now = asyncio.get_running_loop().time()
        gang = unit.gang
        self._view.counted.reserve(pods)
        self._view.units.of(unit.name).nominated_since = None
        if self._headrooms.asking:
            self._headrooms.make_way(pods)
        self._replacements.refresh(gang)
        self._holding.note_capacity_taken(unit.order, pods)
        deadline = now + self._holding.timeout_s(gang)
        after = self._committer.minimum_attempt(self._view.units.gangs.get(gang.base) if unit.is_minimum else gang)
        if unit.is_minimum and gang.has_object:
            self._note_choice(gang, unit.tree, placement)
            if unit.tree.former and unit.tree.former.issuperset(pod.node for pod in pods):
                metrics.RESERVATION_USED.inc()
        elif gang.verdict is not None:
            gang.judge(gang.verdict, round(score_in_replica(self._view, gang, placement), 4))
        self._committer.launch(
            BindAttempt(unit.name, gang, pods, deadline, unit.order, unit.is_minimum, decision, after)
        )
        if self._view.traces is not None:
            self._view.traces.decided("placed", decision=decision, pods=len(pods), domain=placement.domain)
        log.info(
            "placed",
            unit=unit.name,
            decision=decision,
            version=placement.version,
            pods=len(pods),
            domain=placement.domain,
            score=round(placement.score, 3),
            steps=placement.steps,
        )

    def _note_choice(self, gang: GangState, tree: Gang, placement: Placement) -> None:
        score = round(score_in_replica(self._view, gang, placement), 4)
        pods = placement.core + sum(len(group.bound) for group in tree.groups())
        level = {"level": level_names(self._view, tree).get(placement.domain_key, placement.domain_key)}
        why = Reason(kinds.PLACED, placement.domain, {"pods": pods, "score": score}, level)
        gang.judge(Verdict(True, GANG_SCHEDULED, why), score)
        metrics.PLACEMENT_SCORE.observe(score)
        if placement.domain:
            metrics.DOMAIN_SELECTED.labels(placement.domain_key).inc()
        if placement.domain and placement.core >= TWO_EVENTS:
            text = f"chose {level['level']} {placement.domain} for {placement.core} pods"
            self._reporter.tell(gang, EventReason.TOPOLOGY_SELECTED, text)

    def _is_kept_out(self, tree: Gang, surplus: Sequence[PodFacts]) -> bool:
        """Whether a policy has a word against any of these pods; those of a group are alike."""
        snapshot = self._view.snapshot
        some = {pod.group: pod for pod in surplus} if snapshot.seams.refuses else {}
        return any(snapshot.seams.refusal(snapshot, tree, [pod]) for pod in some.values())

    def start_nominated(self, nomination: Nomination) -> None:
        """The victims are gone: binds the reserved pods."""
        unit = msgspec.structs.replace(nomination.unit, order=order_of(self._view, nomination.unit.name))
        unit.gang.judge(Verdict(False, BINDING, Reason(kinds.PLACE_FREE), brief=True))
        self._commit(unit, nomination.placement, nomination.pods, nomination.decision)
