"""The fewest victims for a given placement: what their leaving costs, and whom to choose.

A pod above its group's minimum may go alone; beyond that a gang goes whole. Costs are pods lost. Nothing here asks
whether the gang then fits: `preempt` does, before anyone is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import (
    Running,
    surplus_of,
)
from grove.scheduler.evict.vacancies import NO_VACANCIES, Vacancies
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts, Requests


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
        found = self._allowance.get(unit.name)
        if found is None:
            found = self._allowance[unit.name] = surplus_of(unit)
        return found

    def spare(self, name: str) -> None:
        """Takes a choice back: a whole gang by its name or a single pod by its uid."""
        self.whole.pop(name, None)
        self.single.pop(name, None)

    def choices(self) -> list[tuple[str, tuple[PodFacts, ...]]]:
        """Every choice with the pods it costs; what would be missed most comes first."""
        found = [(name, self._units[name].pods) for name in self.whole]
        found += [(uid, (pod,)) for uid, pod in self.single.items()]
        return sorted(found, key=lambda c: (-c[1][0].priority, -len(c[1]), c[0]))

    def pods(self) -> list[PodFacts]:
        return [pod for _, pods in self.choices() for pod in pods]


def pods_by_row(snapshot: Snapshot, units: Sequence[Running]) -> dict[int, list[tuple[Running, PodFacts]]]:
    """Candidates by the row they are on; on a row, lowest priority first, then youngest, then by name."""
    found: dict[int, list[tuple[Running, PodFacts]]] = {}
    for unit in units:
        for pod in unit.pods:
            row = snapshot.nodes.row_of.get(pod.node)
            if row is not None:
                found.setdefault(row, []).append((unit, pod))
    for here in found.values():
        here.sort(key=lambda c: (c[0].priority, len(c[0].pods), -c[1].created_s, c[0].name, c[1].uid))
    return found


def row_costs(
    snapshot: Snapshot, units: Sequence[Running], by_row: Mapping[int, list[tuple[Running, PodFacts]]],
    wanted: PodFacts, vacancies: Vacancies = NO_VACANCIES,
) -> Ints:  # fmt: skip
    """Pods that would be lost to make room for one such pod on each row: an estimate to order rows by."""
    victims = ChosenVictims(units)
    cost = np.zeros(snapshot.nodes.rows, dtype=np.int64)
    asked = [(r, amount) for r, amount in snapshot.amounts(wanted.shape.requests) if amount > 0]
    free = snapshot.free[[r for r, _ in asked], : cost.size].T.tolist()
    given: dict[Requests, list[int]] = {}
    names = [snapshot.resources[r] for r, _ in asked]
    for row, here in by_row.items():
        missing = [amount - have for (_, amount), have in zip(asked, free[row], strict=True)]
        gone: list[str] = []
        for unit, pod in here:
            freed = vacancies.freed(pod.node, gone) if vacancies else {}
            if max(lack - freed.get(name, 0) for lack, name in zip(missing, names, strict=True)) <= 0:
                break
            gone.append(pod.uid)
            cost[row] += victims.price(unit, pod)
            requests = pod.shape.requests
            if requests not in given:
                amounts = dict(snapshot.amounts(requests))
                given[requests] = [amounts.get(r, 0) for r, _ in asked]
            missing = [lacks - gives for lacks, gives in zip(missing, given[requests], strict=True)]
    return cost


def fewest_victims(
    snapshot: Snapshot,
    units: Sequence[Running],
    by_row: Mapping[int, list[tuple[Running, PodFacts]]],
    placement: Placement,
    vacancies: Vacancies = NO_VACANCIES,
) -> ChosenVictims:
    """Victims that make room for a placement where it stands: cheapest first, then spared again where not needed."""
    demand: dict[int, Ints] = {}
    for pod in placement.pods[: placement.core]:
        row = snapshot.nodes.row_of[pod.node]
        need = demand.setdefault(row, np.zeros(len(snapshot.resources), dtype=np.int64))
        for r, amount in snapshot.amounts(pod.shape.requests):
            need[r] += amount
    victims = ChosenVictims(units)
    given = _Given(snapshot)
    left = {row: snapshot.free[:, row] - need for row, need in demand.items()}
    for row in sorted(demand):
        here = by_row.get(row, [])
        for unit, pod in here:
            if victims.price(unit, pod) == 0:
                left[row] = left[row] + given.by(pod)
        short = (left[row] < 0) & (demand[row] > 0)
        for unit, pod in sorted(here, key=lambda c: victims.price(*c)):
            if not short.any():
                break
            gives = given.by(pod)
            if victims.price(unit, pod) > 0 and (gives[short] > 0).any():
                victims.take(unit, pod)
                left[row] = left[row] + gives
                short = (left[row] < 0) & (demand[row] > 0)
        if vacancies and short.any():
            _take_for_devices(snapshot, victims, here, row, demand[row], vacancies)
    _spare_needless(snapshot, victims, demand, given)
    return victims


def _take_for_devices(
    snapshot: Snapshot, victims: ChosenVictims, here: Sequence[tuple[Running, PodFacts]], row: int, demand: Ints,
    vacancies: Vacancies,
) -> None:  # fmt: skip
    """Takes pods of a row, the cheapest first, until what sources count there suffices, or nobody is left."""
    given = _Given(snapshot)
    gone = [pod for unit, pod in here if victims.price(unit, pod) == 0]
    left = snapshot.free[:, row] - demand + sum(map(given.by, gone), np.zeros_like(demand))

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
            left = left + given.by(pod)


def _spare_needless(snapshot: Snapshot, victims: ChosenVictims, demand: Mapping[int, Ints], given: _Given) -> None:
    """Lets every choice stay whose pods still fit beside the placement, the most missed first."""
    rows = snapshot.nodes.row_of
    left = {row: snapshot.free[:, row] - need for row, need in demand.items()}
    for pod in victims.pods():
        row = rows.get(pod.node, -1)
        if row in left:
            left[row] = left[row] + given.by(pod)
    for name, pods in victims.choices():
        after: dict[int, Ints] = {}
        for pod in pods:
            row = rows.get(pod.node, -1)
            if row in left:
                after[row] = after.get(row, left[row]) - given.by(pod)
        if all(((amounts >= 0) | (demand[row] == 0)).all() for row, amounts in after.items()):
            left |= after
            victims.spare(name)


class _Given:
    """What pods would give back, dense; worked out once for all that ask for the same."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[Requests, Ints] = {}

    def by(self, pod: PodFacts) -> Ints:
        found = self._known.get(pod.shape.requests)
        if found is None:
            found = self._known[pod.shape.requests] = np.zeros(len(self._snapshot.resources), dtype=np.int64)
            for r, amount in self._snapshot.amounts(pod.shape.requests):
                found[r] += amount
        return found
