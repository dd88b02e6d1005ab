"""Looks for victims of a preemption, and for places that become free when terminating pods are gone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import numpy as np

from grove.api.selector import of
from grove.kube.clock import Clock
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.shared_claims import on_nodes
from grove.scheduler.evict.preempt import NoVictims, Victims
from grove.scheduler.evict.running import DisruptionBudget, Running, Terms
from grove.scheduler.evict.victims import Vacancies
from grove.scheduler.loop.deciding.decisions import Decider, shared_claims_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import LEAVING, Reason
from grove.scheduler.policy.hold_ledger import ClosedCapacity
from grove.scheduler.solve.place import place

MOST_CLEARED = 8
"""The most choices of nodes for shared claims for which a decision searches victims."""
SOON_S = 30.0
"""A pod that terminates for longer is waited for only where no eviction helps: the usual grace period."""
OVERDUE_S = 10.0
"""So long after the end of its grace period a pod counts as one that stays."""


class VictimSearch:
    def __init__(self, view: View, decider: Decider, clock: Clock) -> None:
        self._view, self._decider, self._clock = view, decider, clock

    def leaving(self, closed: ClosedCapacity, *, for_long: bool = False) -> list[PodFacts]:
        """Terminating pods whose capacity the unit may count on, without those that have overstayed; soon, or ever."""
        now = self._clock.now()
        leaving = []
        for pod in self._view.snapshot.terminating():
            end = self._view.grace_end(pod.uid)
            left_s = (end - now).total_seconds() if end is not None else 0.0
            if pod.uid not in closed.awaited and left_s > -OVERDUE_S and (for_long or left_s <= SOON_S):
                leaving.append(pod)
        return leaving

    async def place_without(
        self,
        tree: Gang,
        steps: DecisionSteps,
        closed: ClosedCapacity,
        leaving: Sequence[PodFacts],
        running: Sequence[Running] = (),
    ) -> Placement | None:
        """A place that is free once these pods are gone."""
        pods = [*leaving, *(pod for unit in running for pod in unit.pods)]
        for variant in at_cleared_homes(self._view, tree, pods):
            if await self._count_asked():
                running = [unit for unit in running if self._is_there(*unit.pods)]
            vacancies = self._view.sources.vacancies(variant, running, leaving)
            if (
                placement := await self._without_leaving(variant, steps, closed, vacancies, leaving, closed.own)
            ) is not None:
                return placement
        return None

    async def _count_asked(self) -> bool:
        """Counts what was never asked for before. Whether events may have come meanwhile."""
        gave_way = await self._view.counted.refresh_until_current()
        self._decider.asides += gave_way
        return gave_way

    def _is_there(self, *pods: PodFacts) -> bool:
        return all(self._view.snapshot.find_pod(pod.uid) is not None for pod in pods)

    async def _without_leaving(
        self,
        gang: Gang,
        steps: DecisionSteps,
        closed: ClosedCapacity,
        vacancies: Vacancies,
        leaving: Sequence[PodFacts],
        open_uids: Collection[str],
    ) -> Placement | None:
        """Where the gang fits once these terminating pods are gone."""

        def ask(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
            twin = snapshot.without(open_uids).copy()
            for pod in leaving:
                if twin.find_pod(pod.uid) is not None:  # else it is gone, and only its devices are still in use
                    twin.remove_pod(pod.uid)
            vacancies.clear(twin, leaving)
            return place(twin, gang, budget, closed=tuple(sorted(closed.nodes)))

        answer = await self._decider.search(gang, steps, ask)
        return answer if isinstance(answer, Placement) else None

    async def victims(
        self,
        tree: Gang,
        running: Sequence[Running],
        steps: DecisionSteps,
        closed: ClosedCapacity,
        leaving: Sequence[PodFacts],
    ) -> tuple[str, Victims | NoVictims | None]:
        """Victims for a gang, whose shared claims may need a home first; None if there is none for them.

        If there are none that may be evicted, it counts on what is held for units behind the gang as well.
        """
        open_uids = closed.open_uids
        decision, answer = await self._victims_beside(tree, running, steps, closed, leaving, closed.own)
        if open_uids == closed.own or (isinstance(answer, Victims) and not answer.budgets_broken):
            return decision, answer
        second, second_answer = await self._victims_beside(tree, running, steps, closed, leaving, open_uids)
        return (
            (second, second_answer)
            if isinstance(second_answer, Victims) and not second_answer.budgets_broken
            else (decision, answer)
        )

    async def _victims_beside(
        self,
        tree: Gang,
        running: Sequence[Running],
        steps: DecisionSteps,
        closed: ClosedCapacity,
        leaving: Sequence[PodFacts],
        open_uids: Collection[str],
    ) -> tuple[str, Victims | NoVictims | None]:
        """The same, where only what is held under these uids counts as free."""
        pods = [pod for unit in running for pod in unit.pods]
        decision: str = ""
        answer: Victims | NoVictims | None = None
        for variant in at_cleared_homes(self._view, tree, pods):
            if await self._count_asked():
                running = [unit for unit in running if self._is_there(*unit.pods)]
                leaving = [pod for pod in leaving if self._is_there(pod)]
            vacancies = self._view.sources.vacancies(variant, running)
            budgets = budgets_of(self._view)
            decision, answer = await self._decider.preempt(
                variant, running, budgets, steps, closed.nodes, vacancies, leaving, open_uids
            )
            if not isinstance(answer, Victims) and answer.reason == LEAVING:
                kept = await self._without_leaving(variant, steps, closed, vacancies, leaving, open_uids)
                answer = no_victims(kept) if kept is not None else answer
            if isinstance(answer, Victims):
                break
        return decision, answer

    async def refusal_without(
        self,
        tree: Gang,
        steps: DecisionSteps,
        closed: ClosedCapacity,
        leaving: Sequence[PodFacts],
        own: Collection[str],
        *,
        may_evict: bool,
    ) -> Reason | None:
        """Why a gang has no place once these pods are gone and units of lower priority evicted; None if it has one.

        `own` are gangs that are not evicted for it.
        """

        def ask(snapshot: Snapshot, budget: Budget) -> Placement | NoFit:
            twin = snapshot.without(closed.own).copy()
            for pod in leaving:
                twin.remove_pod(pod.uid)
            return place(twin, tree, budget, closed=tuple(sorted(closed.nodes)))

        first_answer = await self._decider.search(tree, steps, ask)
        if isinstance(first_answer, Placement):
            return None
        if may_evict and tree.may_preempt:
            running = [unit for unit in running_units(self._view, tree.priority) if unit.name not in own]
            _, answer = await self.victims(tree, running, steps, closed, [*self.leaving(closed), *leaving])
            if isinstance(answer, Victims) and not answer.budgets_broken:
                return None
        return first_answer.why


def no_victims(place: Placement) -> Victims:
    """A place to hold that needs no eviction."""
    return Victims(place.gang, (), (), (), place, place.version)


def at_cleared_homes(view: View, gang: Gang, pods: Sequence[PodFacts]) -> Iterator[Gang]:
    """The gang with its shared claims on the nodes that would be tried first if these pods were gone."""
    gang, shared_claims = shared_claims_of(view, gang)
    if not shared_claims:
        yield gang
        return
    cleared = view.snapshot.with_capacity_of(pods)
    everywhere = np.ones(cleared.nodes.rows, dtype=np.bool_)
    sites = view.sources.sites(cleared, everywhere, frozenset(pod.uid for pod in pods))
    for nodes in islice(sites.choices(shared_claims), MOST_CLEARED):
        yield on_nodes(gang, shared_claims, nodes)


def running_units(view: View, below: int | None = None) -> list[Running]:
    """Gangs on nodes, and pods without one, of a lower priority if one is given. Only bound pods can be victims."""

    def terms(name: str) -> Terms | None:
        gang = view.units.gangs.get(name)
        return (gang.minima, not gang.life.is_busy) if gang is not None else None

    return view.counted.running.units(terms, below=below, without=view.counted.reserved)


def budgets_of(view: View) -> list[DisruptionBudget]:
    """Every budget with the bound pods it covers."""
    return view.counted.running.budgets(
        (budget.metadata.namespace, budget.metadata.name, of(budget.spec.selector), budget.status.disruptions_allowed)
        for budget in view.budgets.list()
    )
