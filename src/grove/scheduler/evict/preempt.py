"""Which pods to evict so that a gang fits: the lowest sufficient priority, the cheapest domain, then the fewest pods
in it.

Only strictly lower priorities leave, so a placed gang is not evicted again by the same rule. A gang leaves whole or
loses surplus only. Disruption budgets are kept if any choice keeps them, and named if none does. `place` checks every
answer on a snapshot without the victims.

All searches share one budget of steps. When it ends, the victims found so far stay; some of them may be superfluous.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from msgspec import structs

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import (
    MOST_SETS,
    DisruptionBudget,
    Running,
    allowed_to_go,
    base_of,
    bases_of,
    beyond_allowance,
    broken_budgets,
    is_protected,
    sets_of_pods,
)
from grove.scheduler.evict.victims import (
    NO_VACANCIES,
    ChosenVictims,
    Vacancies,
    fewest_victims,
    pods_by_row,
    row_costs,
)
from grove.scheduler.filters.fit import CapacityWithout, looks_at_running_pods
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import (
    FITS,
    LEAVING,
    NEVER_PREEMPTS,
    NO_SMALL_SET,
    NONE_LOWER,
    NOT_ADMITTED,
    NOT_ENOUGH,
    Reason,
)
from grove.scheduler.solve.place import place, place_on

MOST_COVERED = 8
"""Up to this number of units under budgets, the search tries sets of them for one that breaks no budget."""
FINE_TRIALS = 16
"""Up to this many choices are each tried out by a full placement without them."""


@dataclass(frozen=True, slots=True)
class Victims:
    """`pods` go; `gangs` are those that go whole, other pods are surplus. `placement` is where the gang then fits."""

    gang: str
    pods: tuple[PodFacts, ...]
    gangs: tuple[str, ...]
    budgets_broken: tuple[str, ...]
    """Disruption budgets that this would break: the Eviction API will refuse until they allow it."""
    placement: Placement
    version: int = 0
    reclaimed: bool = False
    """Whether a policy had to call back what it lent: victims need not be of lower priority."""
    steps: int = 0


@dataclass(frozen=True, slots=True)
class NoVictims:
    gang: str
    why: Reason
    proven: bool
    version: int = 0
    steps: int = 0

    @property
    def reason(self) -> str:
        return self.why.kind


def preempt(
    snapshot: Snapshot,
    gang: Gang,
    running: Sequence[Running],
    budgets: Sequence[DisruptionBudget] = (),
    budget: Budget = Budget(),
    *,
    closed: Collection[str] = (),
    vacancies: Vacancies = NO_VACANCIES,
    leaving: Sequence[PodFacts] | None = None,
) -> Victims | NoVictims:
    """Victims for a gang that does not fit, or why there are none. This function decides which of `running` may leave.

    Nodes in `closed` are held for other units: it evicts no pod there and uses nothing there. `vacancies` count what
    becomes free with pods beside their requests. The capacity of the pods in `leaving` becomes free for the gang
    without an eviction; by default these are all terminating pods. Other terminating pods stay where they are.
    """
    steps = DecisionSteps(budget, searches=1)
    answer = _preempt(snapshot, gang, running, budgets, steps, closed, vacancies, leaving)
    return replace(answer, steps=budget.steps - steps.left)


def _preempt(
    snapshot: Snapshot,
    gang: Gang,
    running: Sequence[Running],
    budgets: Sequence[DisruptionBudget],
    steps: DecisionSteps,
    closed: Collection[str],
    vacancies: Vacancies,
    leaving: Sequence[PodFacts] | None,
) -> Victims | NoVictims:
    version = snapshot.version
    if not gang.may_preempt:
        return NoVictims(gang.name, Reason(NEVER_PREEMPTS), True, version)
    if leaving is None:
        leaving = snapshot.terminating()
    trial = PreemptionTrial(snapshot, gang, budgets, steps, closed, vacancies)
    if isinstance(trial.without(leaving), Placement):
        return NoVictims(gang.name, Reason(LEAVING if leaving else FITS), True, version)
    if leaving:
        trial = PreemptionTrial(trial.emptied(leaving), gang, budgets, steps, closed, vacancies.after(leaving))
    gone = {pod.uid for pod in leaving} | {pod.uid for pod in snapshot.terminating()}
    may_put_out = snapshot.seams.may_put_out
    lower = _evictable([unit for unit in running if may_put_out(snapshot, gang, unit)], gang, gone)
    answer: Victims | NoVictims = NoVictims(
        gang.name, Reason(NONE_LOWER, numbers={"priority": gang.priority}), True, version
    )
    if lower:
        answer = trial.sparing_budgets(lower)
    for units in snapshot.seams.rounds(snapshot, gang, running) if isinstance(answer, NoVictims) else ():
        known = {unit.name for unit in lower}
        more = _evictable((unit for unit in units if unit.name not in known), gang, gone)
        answer = trial.sparing_budgets(sorted([*lower, *more], key=lambda u: (u.priority, u.name)))
        if isinstance(answer, Victims):
            return replace(_with_scaled(answer, more, budgets), reclaimed=True)
    return _with_scaled(answer, lower, budgets) if isinstance(answer, Victims) else answer


def _evictable(units: Iterable[Running], gang: Gang, gone: set[str]) -> list[Running]:
    """The units that an eviction can free, without pods that terminate already."""
    others = [unit for unit in units if unit.preemptible and unit.name != gang.name]
    if gone:
        others = [structs.replace(u, pods=tuple(pod for pod in u.pods if pod.uid not in gone)) for u in others]
    return sorted([unit for unit in others if unit.pods], key=lambda unit: (unit.priority, unit.name))


def _with_scaled(victims: Victims, units: Sequence[Running], budgets: Sequence[DisruptionBudget]) -> Victims:
    """The same victims, and the scaled gangs of every base gang among them: without their base they are of no use."""
    bases, gone = set(victims.gangs), {pod.uid for pod in victims.pods}
    if bases.isdisjoint(bases_of(units)):
        return victims
    scaled = [unit for unit in units if base_of(unit) in bases and not gone.issuperset(pod.uid for pod in unit.pods)]
    if not scaled:
        return victims
    pods = (*victims.pods, *(pod for unit in scaled for pod in unit.pods if pod.uid not in gone))
    gangs = tuple(sorted(bases | {unit.name for unit in scaled}))
    return replace(victims, pods=pods, gangs=gangs, budgets_broken=broken_budgets(pods, budgets))


class PreemptionTrial:
    """One gang against a snapshot, and who might leave it."""

    def __init__(
        self,
        base: Snapshot,
        gang: Gang,
        budgets: Sequence[DisruptionBudget],
        steps: DecisionSteps,
        closed: Collection[str],
        vacancies: Vacancies,
    ) -> None:
        self._vacancies = vacancies
        self._base, self._gang, self._budgets, self._steps = base, gang, budgets, steps
        self._closed = tuple(sorted(closed))
        self._plain = not base.seams.refuses and not looks_at_running_pods(base, gang)

    def emptied(self, pods: Sequence[PodFacts]) -> Snapshot:
        """The snapshot without these pods. If they mean nothing to the gang but capacity, only that is taken away."""
        if self._plain:
            twin = self._base.with_capacity_of(pods)
        else:
            twin = self._base.copy()
            for pod in pods:
                twin.remove_pod(pod.uid)
        self._vacancies.clear(twin, pods)
        return twin

    def without(self, pods: Sequence[PodFacts]) -> Placement | NoFit:
        return self.place(self.emptied(pods))

    def place(self, snapshot: Snapshot, cost: Ints | None = None) -> Placement | NoFit:
        """A placement within the steps that are left; with a cost of rows, the cheapest ones."""
        if self._steps.are_over:
            return self._steps.refusal(self._gang.name, snapshot.version)
        budget = self._steps.next_search()
        if cost is None:
            answer = place(snapshot, self._gang, budget, closed=self._closed)
        else:
            answer = place_on(snapshot, self._gang, budget, self._closed, cost=cost)
        self._steps.take(answer.steps)
        return answer

    def sparing_budgets(self, units: list[Running]) -> Victims | NoVictims:
        """Victims among these units, without those a budget protects if that is possible."""
        answer: Victims | NoVictims | None = None
        covered = frozenset[str]().union(*(budget.uids for budget in self._budgets))
        kept = [
            unit
            for unit in units
            if covered.isdisjoint([pod.uid for pod in unit.pods]) or not is_protected(unit, self._budgets)
        ]
        if len(kept) < len(units):
            answer = self.choose(kept)
        if not isinstance(answer, Victims) or answer.budgets_broken:
            answer = self.choose(units)
        if isinstance(answer, Victims) and answer.budgets_broken:
            answer = self._keeping_budgets(units) or answer
        return self._with_fewer_pods(units, answer) if isinstance(answer, Victims) else answer

    def _keeping_budgets(self, units: list[Running]) -> Victims | None:
        """Victims that break no budget, where a first choice did: sets that the budgets allow, tried one by one.

        Units that no budget covers may all go. Of the others a set has all that it could have: if the gang does not fit
        then, fewer would not help. Lower priorities alone come first.
        """
        tries = MOST_SETS
        for tier in sorted({unit.priority for unit in units}):
            among = [unit for unit in units if unit.priority <= tier]
            covered = [unit for unit in among if any(pod.uid in b.uids for b in self._budgets for pod in unit.pods)]
            names = {unit.name for unit in covered}
            free = [unit for unit in among if unit.name not in names]
            if len(covered) > MOST_COVERED:
                return None
            for some in allowed_to_go(covered, self._budgets):
                tries -= 1
                if tries < 0:
                    return None
                chosen = [*free, *some]
                empty = self.emptied(_pods(chosen))
                if isinstance(self.place(empty), Placement):
                    answer = self.fewest(chosen, empty)
                    if isinstance(answer, Victims) and not answer.budgets_broken:
                        return answer
        return None

    def choose(self, units: list[Running]) -> Victims | NoVictims:
        """Victims among these units: the lowest priorities that suffice, found by halving."""
        tiers = sorted({unit.priority for unit in units})
        empty = self.emptied(_pods(units))
        answer = self.place(empty)
        if isinstance(answer, NoFit):
            why = Reason(NOT_ENOUGH, numbers={"units": len(units)}, parts=(answer.why,))
            return NoVictims(self._gang.name, why, answer.proven, self._base.version)

        def suffices(tier: int) -> bool:
            return isinstance(self.without(_pods(u for u in units if u.priority <= tier)), Placement)

        highest = tiers[bisect_left(tiers, True, hi=len(tiers) - 1, key=suffices)]
        if highest < tiers[-1]:
            units = [u for u in units if u.priority <= highest]
            empty = self.emptied(_pods(units))
        # Scaled gangs go before their base gang: a serving system gets smaller before it goes away.
        bases = bases_of(units)
        if any(unit.name in bases for unit in units):
            others = [unit for unit in units if unit.name not in bases]
            smaller = self.emptied(_pods(others))
            if isinstance(self.place(smaller), Placement):
                units, empty = others, smaller
        for _ in range(4):
            fewest = self.fewest(units, empty)
            if isinstance(fewest, NoVictims) or not fewest.budgets_broken:
                return fewest
            # Several victims under one budget: leave out those beyond its allowance and look again.
            spared = beyond_allowance(fewest.pods, units, self._budgets)
            units = [u for u in units if u.name not in spared]
            empty = self.emptied(_pods(units))
            if not spared or isinstance(self.place(empty), NoFit):
                return fewest
        return fewest

    def fewest(self, units: list[Running], empty: Snapshot) -> Victims | NoVictims:
        """The fewest victims we find among these units; `empty` is the cluster without all of them."""
        base, gang = self._base, self._gang
        by_row = pods_by_row(base, units)
        largest = max(
            (group.pods[0] for group in gang.groups() if group.need and group.pods),
            key=lambda pod: (sorted((n, a) for n, a in pod.shape.requests if "/" in n), pod.shape.requests),
        )
        cost = row_costs(base, units, by_row, largest, self._vacancies)
        aimed = self.place(empty, cost)
        if isinstance(aimed, NoFit):
            return NoVictims(gang.name, aimed.why, False, base.version)
        victims = fewest_victims(base, units, by_row, aimed, self._vacancies)
        answer = self.without(victims.pods())
        if isinstance(answer, NoFit) and answer.reason == NOT_ADMITTED:
            answer = self._enough_for_a_policy(units, victims)
        elif isinstance(answer, NoFit):
            # Ports or neighbours stand in the way, not only capacity: clear the nodes, then spare every victim that can
            # stay.
            for pod in aimed.pods[: aimed.core]:
                for unit, other in by_row.get(base.nodes.row_of[pod.node], []):
                    victims.take(unit, other)
            answer = self.without(victims.pods())
        if isinstance(answer, NoFit):
            return NoVictims(gang.name, Reason(NO_SMALL_SET, parts=(answer.why,)), False, base.version)
        answer = self._spared(victims, answer)
        return self._named(victims, answer)

    def _named(self, victims: ChosenVictims, placement: Placement) -> Victims:
        pods, whole = tuple(victims.pods()), tuple(sorted(victims.whole))
        return Victims(self._gang.name, pods, whole, broken_budgets(pods, self._budgets), placement, self._base.version)

    def _enough_for_a_policy(self, units: list[Running], victims: ChosenVictims) -> Placement | NoFit:
        """Capacity is free, but a policy refuses the gang: the fewest units whose end makes it agree, smallest first.

        How many it takes is found by halving: who goes besides cannot turn a policy against the gang.
        """
        order = sorted(units, key=lambda u: (u.priority, len(u.pods), -max(p.created_s for p in u.pods), u.name))
        chosen = {pod.uid for pod in victims.pods()}
        kept = victims.pods()

        @cache
        def without_first(count: int) -> Placement | NoFit:
            more = [pod for pod in _pods(order[:count]) if pod.uid not in chosen]
            return self.without([*kept, *more])

        if isinstance(refused := without_first(len(order)), NoFit):
            return refused
        counts = range(1, len(order) + 1)
        least = counts[
            bisect_left(counts, True, hi=len(order) - 1, key=lambda n: isinstance(without_first(n), Placement))
        ]
        for unit in order[:least]:
            for pod in unit.pods:
                victims.take(unit, pod)
        return without_first(least)

    def _spared(self, victims: ChosenVictims, answer: Placement) -> Placement:
        """Tries out sparing each choice by a full placement, the most missed first.

        Then of each gang that goes whole all but pods above its minimum: the gang may need only a part of it.
        """
        choices = victims.choices()
        if len(choices) > FINE_TRIALS:
            return answer
        for name, pods in choices:
            gone = {pod.uid for pod in pods}
            tried = self.without([pod for pod in victims.pods() if pod.uid not in gone])
            if isinstance(tried, Placement):
                victims.spare(name)
                answer = tried
        for unit, part in islice(victims.parts(), MOST_SETS):
            stays = {pod.uid for pod in unit.pods} - {pod.uid for pod in part.pods}
            fewer = [pod for pod in victims.pods() if pod.uid not in stays]
            tried = self.without(fewer)
            if isinstance(tried, Placement):
                victims.choose(fewer)
                return self._spared(victims, tried)
        return answer

    def _with_fewer_pods(self, units: list[Running], first: Victims) -> Victims:
        """The same, or victims of no higher priority that are fewer pods and break no more budgets.

        The first choice was made row by row. That cannot see that one gang stands on several rows, or that one large
        pod replaces two small ones. So all smaller sets are tried, the smallest first, where these are few enough.
        """
        if not 1 < len(first.pods) <= FINE_TRIALS:
            return first
        gone = {pod.uid for pod in first.pods}
        highest = max(unit.priority for unit in units if any(pod.uid in gone for pod in unit.pods))
        among = [unit for unit in units if unit.priority <= highest]
        if len(among) > MOST_SETS:
            return first
        sizes = range(1, len(first.pods))
        smaller = list(islice((some for size in sizes for some in sets_of_pods(among, size)), MOST_SETS + 1))
        if len(smaller) > MOST_SETS:
            return first
        capacity = CapacityWithout(self._base, self._gang)
        bases = bases_of(among)
        heads = {pod.uid for unit in among if unit.name in bases for pod in unit.pods}
        if not any(pod.uid in heads for pod in first.pods):
            smaller = [some for some in smaller if not any(pod.uid in heads for pod in some)]
        for some in smaller:
            breaks = len(broken_budgets(some, self._budgets))
            if breaks <= len(first.budgets_broken) and (self._vacancies or capacity.may_suffice(some)):
                tried = self.without(some)
                if isinstance(tried, Placement):
                    victims = ChosenVictims(among)
                    victims.choose(some)
                    return self._named(victims, tried)
        return first


def _pods(units: Iterable[Running]) -> list[PodFacts]:
    return [pod for unit in units for pod in unit.pods]
