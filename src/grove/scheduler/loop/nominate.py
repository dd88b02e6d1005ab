"""Preemption carried out: victims are told and evicted, and their place is kept for the gang that asked for it.

The place is reserved as soon as the victims are chosen, so the room they leave is never anybody else's; the gang is
bound when the last of them is gone. A gang that is evicted whole is marked before its first pod goes, so that a
scheduler that dies in between finishes what it began; when nobody wants its room any more the rest of it stays. Budgets
are asked through the Eviction API, patiently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import msgspec
import numpy as np
import structlog

from grove.api import conditions as words
from grove.api.conditions import EventReason
from grove.api.meta import Key, find_condition
from grove.api.podgang import PodGangSpec
from grove.api.selector import of
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.shared_claims import on_nodes
from grove.scheduler.evict.preempt import NoVictims, Victims
from grove.scheduler.evict.running import DisruptionBudget, Running, Terms
from grove.scheduler.evict.victims import Vacancies
from grove.scheduler.loop import metrics
from grove.scheduler.loop.decisions import Decider, shared_claims_of
from grove.scheduler.loop.evictions import Evictions
from grove.scheduler.loop.report import Reporter
from grove.scheduler.loop.trees import Unit
from grove.scheduler.loop.view import View
from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.answers import Budget, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import FITS, LEAVING, Reason
from grove.scheduler.policy.gangs import PREEMPTING, GangState, Verdict
from grove.scheduler.policy.life import Nominated, NominationDropped, Phase
from grove.scheduler.reserve.apart import Attempts
from grove.scheduler.solve.place import place

MOST_APART = 8
"""Ways of keeping pods apart for which victims are looked for."""
MOST_CLEARED = 8
"""Choices of nodes for shared claims, for which victims are looked for."""
MOST_NAMED = 3

log = structlog.get_logger(__name__)


class Nomination(msgspec.Struct):
    """A place that is reserved for a unit and still occupied: by its victims, and by pods that were leaving anyway."""

    unit: Unit
    placement: Placement
    victims: frozenset[str]
    deadline_s: float
    decision: str
    spec: PodGangSpec | None
    """What the gang asked for when the place was chosen."""
    domains: Mapping[str, object]
    """Labels of the nodes at that time: they say which domains it is in."""

    @property
    def pods(self) -> tuple[PodFacts, ...]:
        return self.unit.to_bind(self.placement)


class Nominations:
    def __init__(
        self, view: View, decider: Decider, evictions: Evictions, reporter: Reporter, *,
        fits: Callable[[PodFacts], bool],
    ) -> None:  # fmt: skip
        self._view, self._decider, self._evictions = view, decider, evictions
        self._reporter, self._fits = reporter, fits
        self._open: dict[str, Nomination] = {}
        self._unsettled: set[str] = set()

    def has(self, unit: str) -> bool:
        return unit in self._open

    def next_look_s(self) -> float | None:
        return min((one.deadline_s for one in self._open.values()), default=None)

    def take_unsettled(self) -> set[str]:
        """Units that found no victims while some gangs could not be judged: they were being bound or moved."""
        found, self._unsettled = self._unsettled, set()
        return found

    def resume(self, gang: GangState, until_s: float) -> None:
        """Takes up the eviction of a gang that an earlier scheduler began; one that it only announced is off.

        Whether that one's preemptor still exists nobody knows; if it does, it finds its victims again. What is left at
        the end stays and is repaired: a budget may want the very pods that went.
        """
        marked = find_condition(gang.podgang.status.conditions, words.DISRUPTION_TARGET)
        if marked is None or marked.status != words.TRUE or marked.last_transition_time is None:
            return
        if self._view.has_minimum(gang):
            return
        since = marked.last_transition_time
        left = [
            pod for pod, _ in self._view.members(gang)
            if self._view.bound_node(pod) and not pod.metadata.is_deleting
            and pod.metadata.creation_timestamp is not None and pod.metadata.creation_timestamp <= since
        ]  # fmt: skip
        if left:
            log.info("eviction of a gang taken up again", gang=gang.name, pods=len(left))
            time = asyncio.get_running_loop().time
            pods = [self._view.facts(pod) for pod in left]
            self._evictions.evict_gang(gang, pods, marked.message, lambda: time() < until_s)

    async def try_preempt(
        self, unit: Unit, budget: Budget, deadline_s: float, closed: Collection[str], still_waits: Callable[[], bool]
    ) -> bool:
        """Looks for victims; True if there are some and the unit now has a place reserved.

        Nodes in `closed` are held for others, who come before this unit.
        """
        snapshot, lowest = self._view.snapshot, self._view.running.lowest_priority()
        reclaims = snapshot.seams.may_reclaim(snapshot, unit.tree)
        if not unit.tree.may_preempt or lowest is None or not (reclaims or lowest < unit.tree.priority):
            return False
        base = unit.gang.base if unit.gang is not None else ""
        below = None if reclaims else unit.tree.priority
        running = [one for one in running_units(self._view, below) if one.name != base]  # nobody evicts its own base
        attempts, asides = Attempts(unit.tree, MOST_APART), self._decider.asides
        for apart in attempts:
            decision, answer = await self._victims(apart, running, budget, closed)
            if answer is None:
                continue
            if not isinstance(answer, Victims):
                log.debug("nobody to preempt", unit=unit.name, decision=decision, reason=answer.reason,
                          message=self._reporter.say(answer.why))  # fmt: skip
                if answer.reason == FITS or self._is_unsettled(below, running):
                    self._unsettled.add(unit.name)
                continue
            if asides != self._decider.asides and not (still_waits() and self._is_still_possible(answer, running)):
                self._unsettled.add(unit.name)
                return False
            going = [*answer.pods, *self._view.snapshot.terminating()]
            refused = self._view.take(unit.to_bind(answer.placement), going)
            if refused is None:
                self._nominate(unit, answer, decision, deadline_s)
                return True
            log.info(
                "no victims named, the place cannot be kept", unit=unit.name, node=refused.node, reason=refused.why
            )
            attempts.note_refused(refused)
        return False

    async def _victims(
        self, tree: Gang, running: Sequence[Running], budget: Budget, closed: Collection[str]
    ) -> tuple[str, Victims | NoVictims | None]:
        """Victims for a gang, whose shared claims may need a home first; None if there is none for them."""
        pods = [pod for unit in running for pod in unit.pods]
        decision: str = ""
        answer: Victims | NoVictims | None = None
        for variant in at_cleared_homes(self._view, tree, pods):
            self._view.refresh()  # what was never asked for before is counted now
            vacancies = self._view.sources.vacancies(variant, running)
            budgets = budgets_of(self._view)
            decision, answer = await self._decider.preempt(variant, running, budgets, budget, closed, vacancies)
            if not isinstance(answer, Victims) and answer.reason == LEAVING:
                ask = partial(_without_leaving, gang=variant, budget=budget, closed=closed, vacancies=vacancies)
                answer = await self._decider.work(ask) or answer
            if isinstance(answer, Victims):
                break
        return decision, answer

    def _is_unsettled(self, below: int | None, running: Sequence[Running]) -> bool:
        """Whether something of lower priority is on its way to or from its nodes, and could be judged later."""
        find = self._view.snapshot.find_pod
        coming = (pod.priority for uid in self._view.reserved if (pod := find(uid)) is not None)
        moving = (one.priority for one in running if not one.preemptible)
        return any(below is None or one < below for one in (*moving, *coming))

    def _is_still_possible(self, answer: Victims, running: Sequence[Running]) -> bool:
        """Whether the victims are as they were when they were chosen, and the place still is one."""
        view = self._view
        units = {pod.uid: unit.name for unit in running for pod in unit.pods}
        for pod in answer.pods:
            known = view.snapshot.find_pod(pod.uid)
            gang = view.gangs.get(units.get(pod.uid, ""))
            if known is None or known.node != pod.node or known.terminating or (gang is not None and gang.life.is_busy):
                return False
        return all(pod.node in view.snapshot.nodes.row_of for pod in answer.placement.pods)

    def _nominate(self, unit: Unit, answer: Victims, decision: str, deadline_s: float) -> None:
        nodes = {pod.node for pod in answer.placement.pods}
        snapshot = self._view.snapshot
        # Who is on his way out elsewhere counts too, where a policy goes by what its accounts have.
        leaving = {pod.uid for pod in snapshot.terminating() if pod.node in nodes or snapshot.seams.charges(pod)}
        victims = frozenset(leaving.union(pod.uid for pod in answer.pods))
        spec = unit.gang.podgang.spec if unit.gang is not None else None
        domains = {node: _labels_of(snapshot, node) for node in nodes}
        found = Nomination(unit, answer.placement, victims, deadline_s, decision, spec, domains)
        self._open[unit.name] = found
        self._view.reserve(found.pods)
        whole = set(answer.gangs)
        alone = sorted(f"{pod.namespace}/{pod.name}" for pod in answer.pods if pod.gang not in whole)
        about = {"gangs": _some(answer.gangs), "alone": _some(alone), "budgets": ", ".join(answer.budgets_broken),
                 "taken": "back" if answer.reclaimed else ""}  # fmt: skip
        kind = kinds.PREEMPTING if answer.pods else kinds.KEPT_PLACE
        why = Reason(kind, numbers={"pods": len(answer.pods)}, names={k: v for k, v in about.items() if v})
        log.info("preempting", unit=unit.name, decision=decision, version=answer.version, victims=len(answer.pods),
                 gangs=answer.gangs, budgets_broken=answer.budgets_broken)  # fmt: skip
        if (gang := unit.gang) is not None:
            gang.tell(Nominated(why))
            self._reporter.report(gang, Verdict(False, PREEMPTING, why))
            if answer.pods:
                self._reporter.tell(gang, EventReason.GANG_PREEMPTING, why)

        def still_wanted() -> bool:
            return self._open.get(unit.name) is found

        by_gang: dict[str, list[PodFacts]] = {}
        for pod in answer.pods:
            if pod.gang in whole:
                by_gang.setdefault(pod.gang, []).append(pod)
            else:
                self._evictions.evict_alone(pod, still_wanted)
        because = f"evicted for {unit.name}, which has priority {unit.tree.priority}"
        if answer.reclaimed:
            because = f"evicted for {unit.name}, whose queue takes back its share"
        for name, pods in sorted(by_gang.items()):
            victim = self._view.gangs.get(name)
            if victim is not None:
                metrics.PREEMPTED.inc()
                self._reporter.warn(victim, EventReason.GANG_PREEMPTED, because)
                self._evictions.evict_gang(victim, pods, because, still_wanted)

    def advance(self, start: Callable[[Nomination], None], now_s: float) -> None:
        """Starts whoever's victims are gone; lets go of places that cannot be had any more."""
        for unit, one in sorted(self._open.items()):
            left = any(self._view.snapshot.find_pod(uid) is not None for uid in one.victims)
            is_same = self._is_same(one)
            is_wanted = is_same and self._is_wanted(one)
            if left and is_wanted and now_s < one.deadline_s:
                continue
            if not left and is_wanted and all(self._fits(pod) for pod in one.pods):
                del self._open[unit]
                start(one)
            else:
                self.drop(unit)
                self._view.changes.mark(unit, fresh=not is_same)

    def drop(self, unit: str) -> None:
        """Gives a place back; evictions that have not begun are not begun."""
        one = self._open.pop(unit, None)
        if one is None:
            return
        for pod in one.pods:
            self._view.release(pod.uid)
        if (gang := one.unit.gang) is not None and gang.phase is Phase.NOMINATED:
            gang.tell(NominationDropped())

    def _is_same(self, one: Nomination) -> bool:
        """Whether the gang asks for what it did, and its nodes are in the domains they were in."""
        if one.unit.gang is not None and one.unit.gang.podgang.spec != one.spec:
            return False
        return all(_labels_of(self._view.snapshot, node) == labels for node, labels in one.domains.items())

    def _is_wanted(self, one: Nomination) -> bool:
        """Whether the gang and all pods it was made for still exist and wait."""
        gang = one.unit.gang
        if gang is not None and not (self._view.is_current(gang) and gang.phase is Phase.NOMINATED):
            return False
        for pod in one.pods:
            found = self._view.pods.get(Key(pod.namespace, pod.name))
            if found is None or found.metadata.uid != pod.uid or found.spec.node_name or found.metadata.is_deleting:
                return False
        return True


def _labels_of(snapshot: Snapshot, node: str) -> object:
    row = snapshot.nodes.row_of.get(node)
    facts = snapshot.nodes.facts[row] if row is not None else None
    return facts.labels if facts is not None else None


def _some(names: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def at_cleared_homes(view: View, gang: Gang, pods: Sequence[PodFacts]) -> Iterator[Gang]:
    """The gang with its shared claims on the nodes that would be tried first if these pods were gone."""
    gang, found = shared_claims_of(view, gang)
    if not found:
        yield gang
        return
    cleared = view.snapshot.with_room_of(pods)
    everywhere = np.ones(cleared.nodes.rows, dtype=np.bool_)
    sites = view.claims.sites(cleared, everywhere, frozenset(pod.uid for pod in pods))
    for nodes in islice(sites.choices(found), MOST_CLEARED):
        yield on_nodes(gang, found, nodes)


def _without_leaving(
    snapshot: Snapshot, *, gang: Gang, budget: Budget, closed: Collection[str], vacancies: Vacancies
) -> Victims | None:
    """Where the gang fits once what is terminating is gone: no victims, and a place to keep all the same."""
    twin = snapshot.copy()
    leaving = twin.terminating()
    for pod in leaving:
        twin.remove_pod(pod.uid)
    vacancies.clear(twin, leaving)
    placement = place(twin, gang, budget, closed=tuple(sorted(closed)))
    return Victims(gang.name, (), (), (), placement, twin.version) if isinstance(placement, Placement) else None


def running_units(view: View, below: int | None = None) -> list[Running]:
    """Gangs and single pods on nodes, of a lower priority if one is given. What is not bound yet cannot be evicted."""

    def terms(name: str) -> Terms | None:
        gang = view.gangs.get(name)
        return (gang.minima, not gang.life.is_busy) if gang is not None else None

    return view.running.units(terms, below=below, without=view.reserved)


def budgets_of(view: View) -> list[DisruptionBudget]:
    """Every budget with the bound pods it covers."""
    return view.running.budgets(
        (one.metadata.namespace, one.metadata.name, of(one.spec.selector), one.status.disruptions_allowed)
        for one in view.budgets.list()
    )
