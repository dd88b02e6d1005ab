"""The fewest victims for a given placement: what their eviction costs, what it frees, and which to choose.

A pod above its group's minimum may leave alone; below that a gang leaves whole. Costs are pods lost. This module does
not check whether the gang then fits: `preempt` does, before it names any victim.

Devices become free by rules of their own, not by requests. Two halves of a card make a whole one only when both are
free. A claim's devices return when its last user leaves. Capacity of a reservation returns to the reservation and not
to the node. So sources count sets of pods (`Vacancies`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import sub

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import Running, surplus_of, surplus_sets
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts, Requests
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.seams import Vacancy

ColumnOf = Callable[[Requests], Ints]
"""Requests as a column, worked out once for all that ask for the same."""
Freed = tuple[str, frozenset[str], Mapping[str, int]]
"""A node, uids of pods that leave it, and how much more it has then."""


class NotRecorded(LookupError):
    """A question that was not asked when the answers were recorded."""


class RecordedVacancy:
    """Gives the answers of a journal again."""

    def __init__(self, answers: Iterable[Freed]) -> None:
        self._answers = {(node, uids): freed for node, uids, freed in answers}

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        try:
            return self._answers[node, frozenset(uids)]
        except KeyError:
            raise NotRecorded(f"what {node} would have without {len(uids)} pods is not in the journal") from None


class Vacancies:
    """`gone` are uids of pods whose leaving is counted already. What was asked is kept in `recorded`, if given."""

    def __init__(
        self,
        parts: Sequence[Vacancy] = (),
        gone: frozenset[str] = frozenset(),
        recorded: dict[tuple[str, frozenset[str]], Mapping[str, int]] | None = None,
    ) -> None:
        self._parts, self._gone, self._recorded = parts, gone, recorded

    def __bool__(self) -> bool:
        return bool(self._parts)

    def recording(self) -> Vacancies:
        """The same, with answers that are kept for the journal of a run."""
        return Vacancies(self._parts, self._gone, {})

    def answers(self) -> list[Freed]:
        """The recorded answers."""
        return [(node, uids, freed) for (node, uids), freed in (self._recorded or {}).items()]

    def after(self, pods: Iterable[PodFacts]) -> Vacancies:
        """The same when these have left."""
        return Vacancies(self._parts, self._gone.union(pod.uid for pod in pods), self._recorded)

    def freed(self, node: str, uids: Collection[str]) -> Mapping[str, int]:
        """How much more a node would have if these pods left it besides, by resource; less, where it is negative."""
        counter = self._freed(node, self._gone.union(uids))
        if self._gone:
            counter = Counter(counter)
            counter.subtract(self._freed(node, self._gone))
        return counter

    def _freed(self, node: str, uids: frozenset[str]) -> Counter[str]:
        counter: Counter[str] = Counter()
        for part in self._parts:
            counter.update(part.freed(node, uids))
        if self._recorded is not None:
            self._recorded[node, uids] = counter
        return counter

    def clear(self, snapshot: Snapshot, pods: Iterable[PodFacts]) -> None:
        """Counts on a copy what becomes free beside the pods' own requests."""
        if not self._parts:
            return
        by_node: dict[str, list[str]] = {}
        for pod in pods:
            by_node.setdefault(pod.node, []).append(pod.uid)
        for node, uids in by_node.items():
            snapshot.add_free(node, self.freed(node, uids))


NO_VACANCIES = Vacancies()


def vacancies_of(snapshot: Snapshot, gang: Gang, nodes: Callable[[], Collection[str]]) -> Vacancies:
    """What sources count for a gang on these nodes without the pods there."""
    asked = {name for group in gang.groups() for pod in group.pods for name, _ in pod.shape.requests}
    parts = (source.vacancy(asked, nodes) for source in snapshot.seams.sources)
    return Vacancies([part for part in parts if part is not None])


class ChosenVictims:
    """Chosen victims so far: single surplus pods, and gangs that go whole."""

    def __init__(self, units: Sequence[Running]) -> None:
        self._units = {unit.name: unit for unit in units}
        self._allowance: dict[str, dict[str, int]] = {}
        self.whole: dict[str, None] = {}
        self.single: dict[str, PodFacts] = {}

    def price(self, unit: Running, pod: PodFacts) -> int:
        """Pods lost by making this one go: none if it goes already."""
        if unit.name in self.whole or pod.uid in self.single:
            return 0
        if len(unit.pods) == 1 or self._left(unit).get(pod.group, 0) > 0:
            return 1
        return len(unit.pods)

    def take(self, unit: Running, pod: PodFacts) -> None:
        if unit.name in self.whole or pod.uid in self.single:
            return
        left = self._left(unit)
        if left.get(pod.group, 0) > 0:
            left[pod.group] -= 1
            self.single[pod.uid] = pod
        else:
            self.whole[unit.name] = None
            for member in unit.pods:
                self.single.pop(member.uid, None)

    def _left(self, unit: Running) -> dict[str, int]:
        """How many pods of each group may still go alone; most units are never asked."""
        surplus = self._allowance.get(unit.name)
        if surplus is None:
            surplus = self._allowance[unit.name] = surplus_of(unit)
        return surplus

    def spare(self, name: str) -> None:
        """Takes a choice back: a whole gang by its name or a single pod by its uid."""
        self.whole.pop(name, None)
        self.single.pop(name, None)

    def choose(self, pods: Iterable[PodFacts]) -> None:
        """Makes these the victims, instead of those chosen before."""
        self.single = {pod.uid: pod for pod in pods}
        whole = [
            unit
            for unit in self._units.values()
            if all(pod.uid in self.single for pod in unit.pods) and sum(surplus_of(unit).values()) < len(unit.pods)
        ]
        self.whole = dict.fromkeys(unit.name for unit in whole)
        for pod in (pod for unit in whole for pod in unit.pods):
            del self.single[pod.uid]

    def parts(self) -> Iterator[tuple[Running, Running]]:
        """Gangs that go whole, each with the sets of pods above its minimum that could go instead."""
        for unit in [self._units[name] for name in self.whole]:
            for part in surplus_sets(unit):
                yield unit, part

    def choices(self) -> list[tuple[str, tuple[PodFacts, ...]]]:
        """Every choice with the pods it costs; what would be missed most comes first."""
        choices = [(name, self._units[name].pods) for name in self.whole]
        choices += [(uid, (pod,)) for uid, pod in self.single.items()]
        return sorted(choices, key=lambda c: (-c[1][0].priority, -len(c[1]), c[0]))

    def pods(self) -> list[PodFacts]:
        return [pod for _, pods in self.choices() for pod in pods]


def pods_by_row(snapshot: Snapshot, units: Sequence[Running]) -> dict[int, list[tuple[Running, PodFacts]]]:
    """Candidates by the row they are on; on a row, lowest priority first, then youngest, then by name."""
    candidates: dict[int, list[tuple[Running, PodFacts]]] = {}
    for unit in units:
        for pod in unit.pods:
            row = snapshot.nodes.row_of.get(pod.node)
            if row is not None:
                candidates.setdefault(row, []).append((unit, pod))
    for here in candidates.values():
        here.sort(key=lambda c: (c[0].priority, len(c[0].pods), -c[1].created_s, c[0].name, c[1].uid))
    return candidates


def row_costs(
    snapshot: Snapshot,
    units: Sequence[Running],
    by_row: Mapping[int, list[tuple[Running, PodFacts]]],
    wanted: PodFacts,
    vacancies: Vacancies = NO_VACANCIES,
) -> Ints:
    """Pods that would be lost to free capacity for one such pod on each row: an estimate to order rows by."""
    victims = ChosenVictims(units)
    cost = np.zeros(snapshot.nodes.rows, dtype=np.int64)
    asked = [(r, amount) for r, amount in snapshot.amounts(wanted.shape.requests) if amount > 0]
    free = snapshot.free[[r for r, _ in asked], : cost.size].T.tolist()
    given: dict[Requests, list[int]] = {}
    names, has_vacancies = [snapshot.resources[r] for r, _ in asked], bool(vacancies)
    for row, here in by_row.items():
        missing = lacks = [amount - have for (_, amount), have in zip(asked, free[row], strict=True)]
        gone: list[str] = []
        lost = 0
        for unit, pod in here:
            if has_vacancies:
                freed = vacancies.freed(pod.node, gone)
                lacks = [lack - freed.get(name, 0) for lack, name in zip(missing, names, strict=True)]
            if max(lacks) <= 0:
                break
            gone.append(pod.uid)
            lost += victims.price(unit, pod)
            gives = given.get(pod.shape.requests)
            if gives is None:
                amounts = dict(snapshot.amounts(pod.shape.requests))
                gives = given[pod.shape.requests] = [amounts.get(r, 0) for r, _ in asked]
            missing = lacks = list(map(sub, missing, gives))
        cost[row] = lost
    return cost


def fewest_victims(
    snapshot: Snapshot,
    units: Sequence[Running],
    by_row: Mapping[int, list[tuple[Running, PodFacts]]],
    placement: Placement,
    vacancies: Vacancies = NO_VACANCIES,
) -> ChosenVictims:
    """Victims that free capacity for a placement as it is: cheapest first; those not needed are spared again."""
    column_of = cache(snapshot.column_of)
    demand: dict[int, Ints] = {}
    core = placement.pods[: placement.core]
    for pod in core:
        snapshot.amounts(pod.shape.requests)  # what was never asked for before gets a row, before columns are made
    for pod in core:
        row = snapshot.nodes.row_of[pod.node]
        demand[row] = demand.get(row, 0) + column_of(pod.shape.requests)
    victims = ChosenVictims(units)
    left = {row: snapshot.free[:, row] - need for row, need in demand.items()}
    for row in sorted(demand):
        here = by_row.get(row, [])
        for unit, pod in here:
            if victims.price(unit, pod) == 0:
                left[row] = left[row] + column_of(pod.shape.requests)
        short = (left[row] < 0) & (demand[row] > 0)
        for unit, pod in sorted(here, key=lambda c: victims.price(*c)):
            if not short.any():
                break
            gives = column_of(pod.shape.requests)
            if victims.price(unit, pod) > 0 and (gives[short] > 0).any():
                victims.take(unit, pod)
                left[row] = left[row] + gives
                short = (left[row] < 0) & (demand[row] > 0)
        if vacancies and short.any():
            _take_for_devices(snapshot, victims, here, row, demand[row], vacancies, column_of)
    _spare_needless(snapshot, victims, demand, column_of)
    return victims


def _take_for_devices(
    snapshot: Snapshot,
    victims: ChosenVictims,
    here: Sequence[tuple[Running, PodFacts]],
    row: int,
    demand: Ints,
    vacancies: Vacancies,
    column_of: ColumnOf,
) -> None:
    """Takes pods of a row, the cheapest first, until the sources count enough there, or no pod is left."""
    gone = [pod for unit, pod in here if victims.price(unit, pod) == 0]
    left = snapshot.free[:, row] - demand + sum(column_of(pod.shape.requests) for pod in gone)

    def is_short() -> bool:
        freed = vacancies.freed(gone[0].node, [pod.uid for pod in gone]) if gone else {}
        more = np.array([freed.get(name, 0) for name in snapshot.resources], dtype=np.int64)
        return bool(((left + more < 0) & (demand > 0)).any())

    for unit, pod in sorted(here, key=lambda c: victims.price(*c)):
        if not is_short():
            return
        if victims.price(unit, pod) > 0:
            victims.take(unit, pod)
            gone.append(pod)
            left = left + column_of(pod.shape.requests)


def _spare_needless(
    snapshot: Snapshot, victims: ChosenVictims, demand: Mapping[int, Ints], column_of: ColumnOf
) -> None:
    """Lets every choice stay whose pods still fit beside the placement, the most missed first."""
    rows = snapshot.nodes.row_of
    left = {row: snapshot.free[:, row] - need for row, need in demand.items()}
    for pod in victims.pods():
        row = rows.get(pod.node, -1)
        if row in left:
            left[row] = left[row] + column_of(pod.shape.requests)
    for name, pods in victims.choices():
        after: dict[int, Ints] = {}
        for pod in pods:
            row = rows.get(pod.node, -1)
            if row in left:
                after[row] = after.get(row, left[row]) - column_of(pod.shape.requests)
        if all(((amounts >= 0) | (demand[row] == 0)).all() for row, amounts in after.items()):
            left |= after
            victims.spare(name)
