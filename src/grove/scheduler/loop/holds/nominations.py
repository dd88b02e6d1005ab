"""Carries out preemption: evicts the victims, and holds their place for the unit that preempts.

The place is held as soon as the victims are chosen, against every unit behind the preemptor. The preemptor is bound
when it fits. A gang that is evicted whole is marked before its first pod goes, so that a scheduler that dies in between
finishes what it began. When the preemptor no longer needs the place, the rest of the victims stays.

No eviction begins unless the disruption budgets of all victims allow it. If a budget refuses a victim later, the
nomination is called off. The nomination waits for terminating pods only as long as their grace period says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import structlog

from grove.api import conditions as words
from grove.api.conditions import EventReason
from grove.api.core import PodDisruptionBudget
from grove.api.meta import Key, find_condition
from grove.api.podgang import PodGangSpec
from grove.kube.clock import Clock
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import NoVictims, Victims
from grove.scheduler.evict.running import Running, broken_budgets
from grove.scheduler.filters.fit import allowed_mask, fits_mask
from grove.scheduler.loop import metrics
from grove.scheduler.loop.deciding.decisions import Decider
from grove.scheduler.loop.deciding.victim_search import OVERDUE_S, VictimSearch, budgets_of, no_victims, running_units
from grove.scheduler.loop.state.gang_trees import Unit
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.evictions import Evictions
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.answers import DecisionSteps, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import FITS, Reason
from grove.scheduler.policy.gang_life import Nominated, NominationDropped, Phase
from grove.scheduler.policy.gang_state import PREEMPTING, GangState, Verdict
from grove.scheduler.policy.hold_ledger import CapacityHold, ClosedCapacity, HoldReason
from grove.scheduler.reserve.keeping_apart import KeepApartAttempts

MOST_APART = 8
"""The most ways of keeping pods apart for which a decision searches victims."""
MOST_NAMED = 3

log = structlog.get_logger(__name__)


class Nomination(msgspec.Struct):
    """A place that is reserved for a unit and still occupied: by its victims, and by pods that were leaving anyway."""

    unit: Unit
    placement: Placement
    victims: frozenset[str]
    """Uids of its victims."""
    leaving: frozenset[str]
    """Uids of pods that terminate on its nodes anyway."""
    leaving_elsewhere: frozenset[str]
    """Uids of pods that terminate on other nodes. Until they are gone, a policy may count them against the unit."""
    deadline_s: float
    """Until when the API server has to accept the evictions."""
    decision: str
    spec: PodGangSpec
    """The gang's request at the time of the choice."""
    domains: Mapping[str, object]
    """Of the nodes, the labels that the gang's constraints name: they say which domains it is in."""
    is_slow: bool = False
    """Whether it waits for pods that terminate for long: what becomes free elsewhere may be earlier."""
    is_refused: bool = False
    """Whether a disruption budget refused one of the evictions."""

    @property
    def pods(self) -> tuple[PodFacts, ...]:
        return self.unit.to_bind(self.placement)


class Nominations:
    def __init__(
        self,
        view: View,
        decider: Decider,
        evictions: Evictions,
        reporter: Reporter,
        clock: Clock,
        *,
        fits: Callable[[PodFacts], bool],
    ) -> None:
        self._view, self._decider, self._evictions = view, decider, evictions
        self.search = VictimSearch(view, decider, clock)
        self._reporter, self._clock, self._fits = reporter, clock, fits
        self._unsettled: set[str] = set()
        self._given_back: frozenset[str] | None = frozenset()
        """Nodes with more free capacity because of the last `drop_slow`; None if it may have helped any unit."""
        view.cache.on_event(PodDisruptionBudget, self._budget_changed)

    def _open(self) -> list[Nomination]:
        units = map(self._view.units.of, self._view.ledger.owners(HoldReason.NOMINATED))
        return [unit.nomination for unit in units if unit.nomination is not None]

    def next_look_s(self, now_s: float) -> float | None:
        """Loop time of the next look at a nomination although nothing happens."""
        moments = [self._ends_s(nomination, now_s) for nomination in self._open()]
        return min((moment for moment in moments if moment is not None), default=None)

    def drop_slow(self, roomier: Collection[str] | None, helped: Collection[str]) -> list[str]:
        """Gives back the places of units that wait long for terminating pods and can use what became free; these units.

        `roomier` are nodes with more free capacity; None is a change that may help any unit. The places that the last
        call gave back do not count. Their units may take the same places again, and that would never end.
        """
        given_back, self._given_back = self._given_back, frozenset()
        if given_back is None:
            roomier = frozenset()
        elif roomier is not None:
            roomier = frozenset(roomier) - given_back
        slow = [nomination for nomination in self._open() if nomination.is_slow]
        dropped = [
            nomination.unit.name
            for nomination in slow
            if roomier is None or nomination.unit.name in helped or self._could_use(nomination, roomier)
        ]
        for name in dropped:
            self.drop(name)
        if dropped:
            changes = self._view.changes
            self._given_back = None if changes.wide_relief else frozenset(changes.relief)
        return dropped

    def _could_use(self, nomination: Nomination, nodes: Collection[str]) -> bool:
        """Whether one of its pods fits on one of these nodes now."""
        snapshot = self._view.snapshot
        rows = [row for node in nodes if (row := snapshot.nodes.row_of.get(node)) is not None]
        return any(
            bool((allowed_mask(snapshot, shape) & fits_mask(snapshot, requests))[rows].any())
            for shape in dict.fromkeys(pod.shape for pod in nomination.pods)
            for requests in (shape.requests, *shape.alternatives)
        )

    def _budget_changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        is_more = (
            old is None
            or new is None
            or old.spec != new.spec
            or (new.status.disruptions_allowed > old.status.disruptions_allowed)
        )
        if is_more and (protected := [unit.name for unit in self._view.units if unit.protected_by]):
            self._view.changes.helped.update(protected)
            self._view.changes.wake()

    def take_unsettled(self) -> set[str]:
        """Units that found no victims while some gangs could not be judged: they were being bound or moved."""
        unsettled, self._unsettled = self._unsettled, set()
        return unsettled

    def resume(self, gang: GangState, until_s: float) -> None:
        """Continues the eviction of a gang that an earlier scheduler began; drops one that it only announced.

        The preemptor may no longer exist. If it does, it finds its victims again. The rest of the gang stays and is
        repaired: a budget may protect the very pods that left.
        """
        marked = find_condition(gang.podgang.status.conditions, words.DISRUPTION_TARGET)
        if marked is None or marked.status != words.TRUE or marked.last_transition_time is None:
            return
        if self._view.has_minimum(gang):
            return
        since = marked.last_transition_time
        left = [
            pod
            for pod in self._view.bound_pods(gang)
            if pod.metadata.creation_timestamp is not None and pod.metadata.creation_timestamp <= since
        ]
        if left:
            log.info("eviction of a gang taken up again", gang=gang.name, pods=len(left))
            time = asyncio.get_running_loop().time
            pods = [self._view.reader.facts(pod) for pod in left]
            self._evictions.evict_gang(gang, pods, marked.message, lambda: time() < until_s)

    async def try_preempt(
        self,
        unit: Unit,
        steps: DecisionSteps,
        deadline_s: float,
        closed: ClosedCapacity,
        still_waits: Callable[[], bool],
        end_holds_behind: Callable[[Sequence[PodFacts], Collection[str]], None],
    ) -> bool:
        """Looks for victims; True if there are some and the unit now has a place reserved.

        `end_holds_behind` ends what is held for units behind it where its pods go.
        """
        record = self._view.units.of(unit.name)
        since, record.nominated_since, record.protected_by = record.nominated_since, None, ()
        snapshot, lowest = self._view.snapshot, self._view.counted.running.lowest_priority()
        reclaims = snapshot.seams.may_reclaim(snapshot, unit.tree)
        if lowest is None or not (reclaims or lowest < unit.tree.priority):
            return False
        base = unit.gang.base
        below = None if reclaims else unit.tree.priority
        running = [other for other in running_units(self._view, below) if other.name != base]  # not its own base gang
        attempts, asides = KeepApartAttempts(unit.tree, MOST_APART), self._decider.asides
        for apart in attempts:
            leaving = self.search.leaving(closed)
            decision, answer = await self.search.victims(apart, running, steps, closed, leaving)
            is_slow = False
            if isinstance(answer, Victims) and answer.budgets_broken:
                record.protected_by = answer.budgets_broken
                answer = NoVictims(answer.gang, Reason(kinds.BUDGETS, ", ".join(answer.budgets_broken)), True)
            slow = self.search.leaving(closed, for_long=True)
            if not isinstance(answer, Victims) and len(slow) > len(leaving):
                kept = await self.search.place_without(apart, steps, closed, slow, running)
                if kept is not None:
                    answer, leaving, is_slow = no_victims(kept), slow, True
            if answer is None:
                continue
            if not isinstance(answer, Victims):
                log.debug(
                    "no victims for a preemption",
                    unit=unit.name,
                    decision=decision,
                    reason=answer.reason,
                    message=self._reporter.say(answer.why),
                )
                if answer.reason == FITS or self._is_unsettled(below, running):
                    self._unsettled.add(unit.name)
                continue
            if asides != self._decider.asides and not (still_waits() and self._is_still_possible(answer, running)):
                self._unsettled.add(unit.name)
                return False
            refused = self._view.counted.take(unit.to_bind(answer.placement), [*answer.pods, *leaving])
            if refused is None:
                record.protected_by = ()
                end_holds_behind(unit.to_bind(answer.placement), [pod.uid for pod in (*answer.pods, *leaving)])
                self._nominate(unit, answer, leaving, decision, deadline_s, since, is_slow=is_slow)
                return True
            log.info(
                "no victims named, the place cannot be kept", unit=unit.name, node=refused.node, reason=refused.why
            )
            attempts.note_refused(refused)
        return False

    def _is_unsettled(self, below: int | None, running: Sequence[Running]) -> bool:
        """Whether something of lower priority is on its way to or from its nodes, and could be judged later."""
        find = self._view.snapshot.find_pod
        coming = (pod.priority for uid in self._view.counted.reserved if (pod := find(uid)) is not None)
        moving = (unit.priority for unit in running if not unit.preemptible)
        return any(below is None or priority < below for priority in (*moving, *coming))

    def _is_still_possible(self, answer: Victims, running: Sequence[Running]) -> bool:
        """Whether the victims are as they were when they were chosen, and the place still is one."""
        view = self._view
        units = {pod.uid: unit.name for unit in running for pod in unit.pods}
        for pod in answer.pods:
            known = view.snapshot.find_pod(pod.uid)
            gang = view.units.gangs.get(units.get(pod.uid, ""))
            if known is None or known.node != pod.node or known.terminating or (gang is not None and gang.life.is_busy):
                return False
        return all(pod.node in view.snapshot.nodes.row_of for pod in answer.placement.pods)

    def _nominate(
        self,
        unit: Unit,
        answer: Victims,
        leaving: Sequence[PodFacts],
        decision: str,
        deadline_s: float,
        since: datetime | None,
        *,
        is_slow: bool,
    ) -> None:
        nodes = {pod.node for pod in answer.placement.pods}
        snapshot = self._view.snapshot
        victims = frozenset(pod.uid for pod in answer.pods)
        waits_for = frozenset(pod.uid for pod in leaving if pod.node in nodes)
        elsewhere = frozenset(pod.uid for pod in leaving if pod.node not in nodes)
        spec = unit.gang.podgang.spec
        domains = {node: _domains_of(snapshot, node, unit.tree) for node in nodes}
        nomination = Nomination(
            unit,
            answer.placement,
            victims,
            waits_for,
            elsewhere,
            deadline_s,
            decision,
            spec,
            domains,
            is_slow=is_slow,
        )
        self._view.units.of(unit.name).nomination = nomination
        self._view.counted.reserve(nomination.pods)
        lenders = snapshot.seams.accounts(answer.pods) if answer.reclaimed else frozenset()
        hold = CapacityHold(
            unit.name, unit.order, HoldReason.NOMINATED, since or self._clock.now(), pods=nomination.pods
        )
        self._view.ledger.put(msgspec.structs.replace(hold, taken_back_from=lenders))
        whole = set(answer.gangs)
        alone = sorted(f"{pod.namespace}/{pod.name}" for pod in answer.pods if pod.gang not in whole)
        about = {
            "gangs": _some(answer.gangs),
            "alone": _some(alone),
            "budgets": ", ".join(answer.budgets_broken),
            "taken": "back" if answer.reclaimed else "",
        }
        kind = kinds.PREEMPTING if answer.pods else kinds.KEPT_PLACE
        why = Reason(kind, numbers={"pods": len(answer.pods)}, names={k: v for k, v in about.items() if v})
        log.info(
            "preempting",
            unit=unit.name,
            decision=decision,
            version=answer.version,
            victims=len(answer.pods),
            gangs=answer.gangs,
            budgets_broken=answer.budgets_broken,
        )
        unit.gang.tell(Nominated(why))
        self._reporter.report(unit.gang, Verdict(False, PREEMPTING, why))
        if answer.pods:
            self._reporter.tell(unit.gang, EventReason.GANG_PREEMPTING, why)

        def still_wanted() -> bool:
            record = self._view.units.find(unit.name)
            return record is not None and record.nomination is nomination

        def note_refused() -> None:
            nomination.is_refused = True
            self._view.changes.wake()

        by_gang: dict[str, list[PodFacts]] = {}
        for pod in answer.pods:
            if pod.gang in whole:
                by_gang.setdefault(pod.gang, []).append(pod)
            else:
                metrics.TRIMMED.inc()
                self._evictions.evict_alone(pod, still_wanted, note_refused)
        because = f"evicted for {unit.name}, which has priority {unit.tree.priority}"
        if answer.reclaimed:
            because = f"evicted for {unit.name}, whose queue takes back its share"
        for name, pods in sorted(by_gang.items()):
            victim = self._view.units.gangs.get(name)
            if victim is not None:
                metrics.PREEMPTED.inc()
                self._reporter.warn(victim, EventReason.GANG_PREEMPTED, because)
                self._evictions.evict_gang(victim, pods, because, still_wanted, note_refused)

    def advance(self, start: Callable[[Nomination], None], now_s: float) -> None:
        """Starts units that fit on their places now; lets go of places that cannot be had any more."""
        for nomination in self._open():
            unit = nomination.unit.name
            is_same = self._is_same(nomination)
            is_wanted = is_same and self._is_wanted(nomination)
            ends_s = self._ends_s(nomination, now_s)
            if is_wanted and self._is_free(nomination):
                self._view.units.of(unit).nomination = None
                self._view.ledger.end(unit, HoldReason.NOMINATED)
                start(nomination)
            elif not is_wanted or self._is_called_off(nomination) or ends_s is None or ends_s <= now_s:
                self.drop(unit)
                self._view.changes.mark(unit, fresh=True)

    def _is_free(self, nomination: Nomination) -> bool:
        """Whether all pods that had to go are gone, no policy is against it, and its nodes still take its pods."""
        view = self._view
        if any(view.snapshot.find_pod(uid) is not None for uid in (*nomination.victims, *nomination.leaving)):
            return False
        if view.snapshot.seams.refuses:
            before = view.snapshot.without([pod.uid for pod in nomination.pods])
            if before.seams.refusal(before, nomination.unit.tree, nomination.pods) is not None:
                return False  # pods that terminate elsewhere still count against its queue
        return all(self._fits(pod) for pod in nomination.pods)

    def _ends_s(self, nomination: Nomination, now_s: float) -> float | None:
        """Loop time at which the place counts as not to be had; None if no pod is left that has to go first."""
        ends = list(self._ends_of((*nomination.victims, *nomination.leaving), nomination, now_s))
        if not ends and self._view.snapshot.seams.refuses:
            ends = list(self._ends_of(nomination.leaving_elsewhere, nomination, now_s))
        return min(ends, default=None)

    def _ends_of(self, uids: Iterable[str], nomination: Nomination, now_s: float) -> Iterator[float]:
        """When each of these pods that is still there counts as one that stays."""
        now = self._clock.now()
        for uid in uids:
            if self._view.snapshot.find_pod(uid) is None:
                continue
            end: datetime | None = self._view.grace_end(uid)
            if end is not None:
                yield now_s + (end + timedelta(seconds=OVERDUE_S) - now).total_seconds()
            elif uid in nomination.victims:
                yield nomination.deadline_s

    def _is_called_off(self, nomination: Nomination) -> bool:
        """Whether a disruption budget refuses a victim that is still there: then none of the others goes either."""
        if not nomination.is_refused:
            return False
        nomination.is_refused = False
        find = self._view.snapshot.find_pod
        left = [pod for uid in sorted(nomination.victims) if (pod := find(uid)) is not None]
        staying = [pod for pod in left if not self._is_deleting(pod)]
        broken = broken_budgets(staying, budgets_of(self._view))
        if broken:
            self._view.units.of(nomination.unit.name).protected_by = broken
        return bool(broken)

    def _is_deleting(self, pod: PodFacts) -> bool:
        known = self._view.pods.get(Key(pod.namespace, pod.name))
        return known is None or known.metadata.uid != pod.uid or known.metadata.is_deleting

    def drop(self, unit: str) -> None:
        """Gives a place back; evictions that have not begun are not begun."""
        record = self._view.units.find(unit)
        if record is None:
            return
        nomination, record.nomination, record.protected_by = record.nomination, None, ()
        if nomination is None:
            return
        self._view.ledger.end(unit, HoldReason.NOMINATED)
        for pod in nomination.pods:
            self._view.counted.release(pod.uid)
        if nomination.unit.gang.phase is Phase.NOMINATED:
            nomination.unit.gang.tell(NominationDropped())

    def _is_same(self, nomination: Nomination) -> bool:
        """Whether the gang asks for what it did, and its nodes are in the domains they were in."""
        if nomination.unit.gang.podgang.spec != nomination.spec:
            return False
        tree, snapshot = nomination.unit.tree, self._view.snapshot
        return all(_domains_of(snapshot, node, tree) == domains for node, domains in nomination.domains.items())

    def _is_wanted(self, nomination: Nomination) -> bool:
        """Whether the gang and all pods of the nomination still exist and wait."""
        gang = nomination.unit.gang
        if not (self._view.units.is_current(gang) and gang.phase is Phase.NOMINATED):
            return False
        for pod in nomination.pods:
            cached = self._view.pods.get(Key(pod.namespace, pod.name))
            if cached is None or cached.metadata.uid != pod.uid or cached.spec.node_name or cached.metadata.is_deleting:
                return False
        return True


def _domains_of(snapshot: Snapshot, node: str, gang: Gang) -> object:
    """The node's labels that the gang's constraints name; None if the node is gone."""
    row = snapshot.nodes.row_of.get(node)
    facts = snapshot.nodes.facts[row] if row is not None else None
    return [facts.labels.get(key) for key in sorted(gang.keys())] if facts is not None else None


def _some(names: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
