"""Whom to evict so that a gang fits: the least priority that suffices, the cheapest domain, then the fewest pods in it.

Only strictly lower priorities go, so what is placed is not evicted again by the same rule. A gang goes whole or loses
surplus only. Disruption budgets are kept if any choice keeps them, and named if none does. The answer is checked by
`place` on a snapshot without the victims; there is no other way to be in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product

import msgspec

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import DisruptionBudget, Running, surplus_of
from grove.scheduler.evict.vacancies import NO_VACANCIES, Vacancies
from grove.scheduler.evict.victims import Toll, fewest_victims, pods_by_row, row_costs
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import (
    FITS,
    LEAVING,
    NEVER_PREEMPTS,
    NO_SMALL_SET,
    NOBODY_LOWER,
    NOT_ADMITTED,
    NOT_ENOUGH,
    Reason,
)
from grove.scheduler.solve.place import place, place_on

MOST_COVERED, MOST_GENTLE = 8, 64
"""Up to so many units under budgets, so many sets of them are tried for one that breaks none."""
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


@dataclass(frozen=True, slots=True)
class NoVictims:
    gang: str
    why: Reason
    proven: bool
    version: int = 0

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
) -> Victims | NoVictims:
    """Victims for a gang that does not fit, or why there are none. Who of `running` may go is decided here.

    Nodes in `closed` are held for somebody else: nobody there is put out, and nothing there is used. `vacancies` know
    what becomes free with pods beside their requests.
    """
    version = snapshot.version
    if not gang.may_preempt:
        return NoVictims(gang.name, Reason(NEVER_PREEMPTS), True, version)
    leaving = snapshot.terminating()
    trial = _Trial(snapshot, gang, budgets, budget, closed, vacancies)
    if isinstance(trial.without(leaving), Placement):
        return NoVictims(gang.name, Reason(LEAVING if leaving else FITS), True, version)
    if leaving:
        trial = _Trial(trial.emptied(leaving), gang, budgets, budget, closed, vacancies.after(leaving))
    gone = {pod.uid for pod in leaving}
    may_put_out = snapshot.seams.may_put_out
    lower = [u for u in running if u.preemptible and u.name != gang.name and may_put_out(snapshot, gang, u)]
    if gone:
        lower = [Running(u.name, u.priority, tuple(p for p in u.pods if p.uid not in gone), u.minimums) for u in lower]
    lower = sorted((unit for unit in lower if unit.pods), key=lambda unit: (unit.priority, unit.name))
    found: Victims | NoVictims = NoVictims(
        gang.name, Reason(NOBODY_LOWER, numbers={"priority": gang.priority}), True, version
    )
    if lower:
        found = trial.sparing_budgets(lower)
    for units in snapshot.seams.rounds(snapshot, gang, running) if isinstance(found, NoVictims) else ():
        known = {unit.name for unit in lower}
        more = [u for u in units if u.name not in known and u.name != gang.name and u.preemptible]
        found = trial.sparing_budgets(sorted([*lower, *more], key=lambda u: (u.priority, u.name)))
        if isinstance(found, Victims):
            return replace(found, reclaimed=True)
    return found


def _is_protected(unit: Running, budgets: Sequence[DisruptionBudget]) -> bool:
    """Whether a budget is broken whatever of this unit goes: the whole of it, or any pod above a group's minimum."""
    uids = {pod.uid for pod in unit.pods}
    covering = [budget for budget in budgets if not uids.isdisjoint(budget.uids)]
    if not any(len(uids & budget.uids) > budget.allowed for budget in covering):
        return False
    spare = surplus_of(unit)
    full = [budget for budget in covering if budget.allowed < 1]
    return not any(spare[pod.group] and not any(pod.uid in b.uids for b in full) for pod in unit.pods)


class _Trial:
    """One gang against a snapshot, and who might leave it."""

    def __init__(
        self, base: Snapshot, gang: Gang, budgets: Sequence[DisruptionBudget], budget: Budget, closed: Collection[str],
        vacancies: Vacancies,
    ) -> None:  # fmt: skip
        self._vacancies = vacancies
        self._base, self._gang, self._budgets, self._budget = base, gang, budgets, budget
        self._closed = tuple(sorted(closed))
        self._plain = _only_amounts_matter(base, gang)

    def emptied(self, pods: Sequence[PodFacts]) -> Snapshot:
        """The snapshot without these pods. If they mean nothing to the gang but room, only that is taken away."""
        if self._plain:
            twin = self._base.relieved(pods)
        else:
            twin = self._base.copy()
            for pod in pods:
                twin.remove_pod(pod.uid)
        self._vacancies.clear(twin, pods)
        return twin

    def without(self, pods: Sequence[PodFacts]) -> Placement | NoFit:
        return place(self.emptied(pods), self._gang, self._budget, closed=self._closed)

    def sparing_budgets(self, units: list[Running]) -> Victims | NoVictims:
        """Victims among these units, without those a budget protects if that is possible."""
        kept = [unit for unit in units if not _is_protected(unit, self._budgets)] if self._budgets else units
        if len(kept) < len(units):
            found = self.choose(kept)
            if isinstance(found, Victims) and not found.budgets_broken:
                return found
        found = self.choose(units)
        return (self._gently(units) or found) if isinstance(found, Victims) and found.budgets_broken else found

    def _gently(self, units: list[Running]) -> Victims | None:
        """Victims that break no budget, where a first choice did: sets that the budgets allow, tried one by one.

        Units that no budget covers may all go. Of the others a set has all that it could have: if the gang does not fit
        then, fewer would not help. Lower priorities alone come first.
        """
        tries = MOST_GENTLE
        for tier in sorted({unit.priority for unit in units}):
            among = [unit for unit in units if unit.priority <= tier]
            covered = [unit for unit in among if any(pod.uid in b.uids for b in self._budgets for pod in unit.pods)]
            names = {unit.name for unit in covered}
            free = [unit for unit in among if unit.name not in names]
            if len(covered) > MOST_COVERED:
                return None
            for some in self._allowed(covered, frozenset()):
                tries -= 1
                if tries < 0:
                    return None
                chosen = [*free, *some]
                empty = self.emptied(_pods(chosen))
                if isinstance(place(empty, self._gang, self._budget, closed=self._closed), Placement):
                    found = self._fewest(chosen, empty)
                    if isinstance(found, Victims) and not found.budgets_broken:
                        return found
        return None

    def _allowed(self, units: Sequence[Running], gone: frozenset[str]) -> Iterator[list[Running]]:
        """What may go of these units beside those that are gone, without breaking a budget; more before less.

        A unit that loses some pods only is one of these pods alone, all of which may go one by one.
        """
        if not units:
            yield []
            return
        unit, rest = units[0], units[1:]
        for part in (unit, *_in_part(unit)):
            pods = part.pods if part is unit else self._within_budgets(part.pods, gone)
            more = gone.union(pod.uid for pod in pods)
            if pods and all(len(more & b.uids) <= b.allowed for b in self._budgets):
                for others in self._allowed(rest, more):
                    yield [msgspec.structs.replace(part, pods=pods), *others]
        yield from self._allowed(rest, gone)

    def _within_budgets(self, pods: Sequence[PodFacts], gone: frozenset[str]) -> tuple[PodFacts, ...]:
        """Those of the pods, in their order, that may go beside those that are gone."""
        left = {b.name: b.allowed - len(gone & b.uids) for b in self._budgets}
        found: list[PodFacts] = []
        for pod in pods:
            over = [b.name for b in self._budgets if pod.uid in b.uids]
            if all(left[name] > 0 for name in over):
                found.append(pod)
                left |= {name: left[name] - 1 for name in over}
        return tuple(found)

    def choose(self, units: list[Running]) -> Victims | NoVictims:
        """Victims among these units: the lowest priorities that suffice, found by halving."""
        tiers = sorted({unit.priority for unit in units})
        empty = self.emptied(_pods(units))
        answer = place(empty, self._gang, self._budget, closed=self._closed)
        if isinstance(answer, NoFit):
            why = Reason(NOT_ENOUGH, numbers={"units": len(units)}, parts=(answer.why,))
            return NoVictims(self._gang.name, why, answer.proven, self._base.version)
        low, high = 0, len(tiers) - 1
        while low < high:
            middle = (low + high) // 2
            tried = self.without(_pods(u for u in units if u.priority <= tiers[middle]))
            if isinstance(tried, Placement):
                high = middle
            else:
                low = middle + 1
        if high < len(tiers) - 1:
            units = [u for u in units if u.priority <= tiers[high]]
            empty = self.emptied(_pods(units))
        for _ in range(4):
            found = self._fewest(units, empty)
            if isinstance(found, NoVictims) or not found.budgets_broken:
                return found
            # Several victims under one budget: leave out those beyond its allowance and look again.
            spared = _beyond_allowance(found, units, self._budgets)
            units = [u for u in units if u.name not in spared]
            empty = self.emptied(_pods(units))
            if not spared or isinstance(place(empty, self._gang, self._budget, closed=self._closed), NoFit):
                return found
        return found

    def _fewest(self, units: list[Running], empty: Snapshot) -> Victims | NoVictims:
        """The fewest victims we find among these units; `empty` is the cluster without all of them."""
        base, gang = self._base, self._gang
        by_row = pods_by_row(base, units)
        largest = max(
            (group.pods[0] for group in gang.groups() if group.need and group.pods),
            key=lambda pod: (sorted((n, a) for n, a in pod.shape.requests if "/" in n), pod.shape.requests),
        )
        cost = row_costs(base, units, by_row, largest, self._vacancies)
        aimed = place_on(empty, gang, self._budget, self._closed, cost=cost)
        if isinstance(aimed, NoFit):
            return NoVictims(gang.name, aimed.why, False, base.version)
        toll = fewest_victims(base, units, by_row, aimed, self._vacancies)
        answer = self.without(toll.pods())
        if isinstance(answer, NoFit) and answer.reason == NOT_ADMITTED:
            answer = self._enough_for_a_policy(units, toll)
        elif isinstance(answer, NoFit):
            # Ports or neighbours stand in the way, not only room: clear the nodes, then spare whom we can.
            for pod in aimed.pods[: aimed.core]:
                for unit, other in by_row.get(base.nodes.row_of[pod.node], []):
                    toll.take(unit, other)
            answer = self.without(toll.pods())
        if isinstance(answer, NoFit):
            return NoVictims(gang.name, Reason(NO_SMALL_SET, parts=(answer.why,)), False, base.version)
        answer = self._spared(toll, answer)
        pods = tuple(toll.pods())
        return Victims(gang.name, pods, tuple(sorted(toll.whole)), _broken(pods, self._budgets), answer, base.version)

    def _enough_for_a_policy(self, units: list[Running], toll: Toll) -> Placement | NoFit:
        """Room there is, and a policy keeps the gang out: the fewest units that change its mind, the smallest first.

        How many it takes is found by halving: who goes besides cannot turn a policy against the gang.
        """
        order = sorted(units, key=lambda u: (u.priority, len(u.pods), -max(p.created_s for p in u.pods), u.name))
        chosen = {pod.uid for pod in toll.pods()}
        kept = toll.pods()

        def without_first(count: int) -> Placement | NoFit:
            more = [pod for pod in _pods(order[:count]) if pod.uid not in chosen]
            return self.without([*kept, *more])

        low, high = 1, len(order)
        answer = without_first(high)
        while low < high and isinstance(answer, Placement):
            middle = (low + high) // 2
            tried = without_first(middle)
            if isinstance(tried, Placement):
                high, answer = middle, tried
            else:
                low = middle + 1
        for unit in order[:high] if isinstance(answer, Placement) else ():
            for pod in unit.pods:
                toll.take(unit, pod)
        return answer

    def _spared(self, toll: Toll, answer: Placement) -> Placement:
        """Tries out sparing each choice by a full placement, the most missed first."""
        choices = toll.choices()
        if len(choices) > FINE_TRIALS:
            return answer
        for name, pods in choices:
            gone = {pod.uid for pod in pods}
            tried = self.without([pod for pod in toll.pods() if pod.uid not in gone])
            if isinstance(tried, Placement):
                toll.spare(name)
                answer = tried
        return answer


def _in_part(unit: Running) -> Iterator[Running]:
    """Pods above the minimum of each group, in the ways to choose them that are first by name."""
    spare = surplus_of(unit)
    if any(spare.values()):
        by_group = [[pod for pod in unit.pods if pod.group == name] for name in spare]
        some = (combinations(pods, count) for pods, count in zip(by_group, spare.values(), strict=True))
        for chosen in islice(product(*(list(islice(ways, MOST_GENTLE)) for ways in some)), MOST_GENTLE):
            pods = tuple(pod for group in chosen for pod in group)
            yield Running(unit.name, unit.priority, pods, dict.fromkeys(spare, 0))


def _only_amounts_matter(snapshot: Snapshot, gang: Gang) -> bool:
    """Whether running pods stand in the gang's way by what they take alone, not by ports, affinity or a policy."""
    firsts = {pod.shape: pod for group in gang.groups() for pod in group.pods}
    return not snapshot.seams.refuses and not any(
        shape.sees_pods
        or shape.preferred_pods
        or any(not one.lasts and one.looks_at(shape) is not None for one in snapshot.seams.filters)
        for shape in firsts
    ) and not any(
        snapshot.counts.terms_against(pod) for group in gang.groups() for pod in group.pods
    )  # fmt: skip


def _pods(units: Iterable[Running]) -> list[PodFacts]:
    return [pod for unit in units for pod in unit.pods]


def _broken(pods: Sequence[PodFacts], budgets: Sequence[DisruptionBudget]) -> tuple[str, ...]:
    uids = {pod.uid for pod in pods}
    return tuple(sorted(b.name for b in budgets if len(uids & b.uids) > b.allowed))


def _beyond_allowance(found: Victims, units: Sequence[Running], budgets: Sequence[DisruptionBudget]) -> set[str]:
    owner = {pod.uid: unit.name for unit in units for pod in unit.pods}
    spared: set[str] = set()
    for b in budgets:
        covered = [owner[pod.uid] for pod in found.pods if pod.uid in b.uids and pod.uid in owner]
        spared.update(covered[b.allowed :])
    return spared
