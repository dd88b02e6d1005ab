"""Who would have to go: what runs, units of eviction, what they cost, and the fewest of them for a given placement.

A unit is a gang or a pod of nobody's. A pod above its group's minimum may go alone; beyond that a gang goes whole.
Costs are pods lost. The index of what runs is kept pod by pod, so that looking for victims costs what may be put out,
not what runs. Nothing here asks whether the gang then fits: `preempt` does, before anyone is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

import msgspec
import numpy as np

from grove.api.selector import Selector
from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.vacancies import NO_VACANCIES, Vacancies
from grove.scheduler.model.answers import Placement
from grove.scheduler.model.facts import PodFacts, Requests


class Running(msgspec.Struct, frozen=True):
    """A gang that runs, or a pod of nobody's (a gang of one). `minimums` are per pod group, by name."""

    name: str
    priority: int
    pods: tuple[PodFacts, ...]
    minimums: Mapping[str, int] = msgspec.field(default_factory=dict)
    preemptible: bool = True


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget as far as it matters: which pods it covers and how many of them may go now."""

    name: str
    allowed: int
    uids: frozenset[str]


class Toll:
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


def surplus_of(unit: Running) -> dict[str, int]:
    """Pods above the minimum, by group."""
    running: dict[str, int] = {}
    for pod in unit.pods:
        running[pod.group] = running.get(pod.group, 0) + 1
    # A pod of nobody's has no minimum; it is a unit of its own and goes whole.
    return {group: max(0, n - unit.minimums.get(group, n)) for group, n in running.items()}


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
    toll = Toll(units)
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
            cost[row] += toll.price(unit, pod)
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
) -> Toll:
    """Victims that make room for a placement where it stands: cheapest first, then spared again where not needed."""
    demand: dict[int, Ints] = {}
    for pod in placement.pods[: placement.core]:
        row = snapshot.nodes.row_of[pod.node]
        need = demand.setdefault(row, np.zeros(len(snapshot.resources), dtype=np.int64))
        for r, amount in snapshot.amounts(pod.shape.requests):
            need[r] += amount
    toll = Toll(units)
    given = _Given(snapshot)
    left = {row: snapshot.free[:, row] - need for row, need in demand.items()}
    for row in sorted(demand):
        here = by_row.get(row, [])
        for unit, pod in here:
            if toll.price(unit, pod) == 0:
                left[row] = left[row] + given.by(pod)
        short = (left[row] < 0) & (demand[row] > 0)
        for unit, pod in sorted(here, key=lambda c: toll.price(*c)):
            if not short.any():
                break
            gives = given.by(pod)
            if toll.price(unit, pod) > 0 and (gives[short] > 0).any():
                toll.take(unit, pod)
                left[row] = left[row] + gives
                short = (left[row] < 0) & (demand[row] > 0)
        if vacancies and short.any():
            _take_for_devices(snapshot, toll, here, row, demand[row], vacancies)
    _spare_needless(snapshot, toll, demand, given)
    return toll


def _take_for_devices(
    snapshot: Snapshot, toll: Toll, here: Sequence[tuple[Running, PodFacts]], row: int, demand: Ints,
    vacancies: Vacancies,
) -> None:  # fmt: skip
    """Takes pods of a row, the cheapest first, until what sources count there suffices, or nobody is left."""
    given = _Given(snapshot)
    gone = [pod for unit, pod in here if toll.price(unit, pod) == 0]
    left = snapshot.free[:, row] - demand + sum(map(given.by, gone), np.zeros_like(demand))

    def is_short() -> bool:
        freed = vacancies.freed(gone[0].node, [pod.uid for pod in gone]) if gone else {}
        more = np.array([freed.get(name, 0) for name in snapshot.resources], dtype=np.int64)
        return bool(((left + more < 0) & (demand > 0)).any())

    for unit, pod in sorted(here, key=lambda c: toll.price(*c)):
        if not is_short():
            return
        if toll.price(unit, pod) > 0:
            toll.take(unit, pod)
            gone.append(pod)
            left = left + given.by(pod)


def _spare_needless(snapshot: Snapshot, toll: Toll, demand: Mapping[int, Ints], given: _Given) -> None:
    """Lets every choice stay whose pods still fit beside the placement, the most missed first."""
    rows = snapshot.nodes.row_of
    left = {row: snapshot.free[:, row] - need for row, need in demand.items()}
    for pod in toll.pods():
        row = rows.get(pod.node, -1)
        if row in left:
            left[row] = left[row] + given.by(pod)
    for name, pods in toll.choices():
        after: dict[int, Ints] = {}
        for pod in pods:
            row = rows.get(pod.node, -1)
            if row in left:
                after[row] = after.get(row, left[row]) - given.by(pod)
        if all(((amounts >= 0) | (demand[row] == 0)).all() for row, amounts in after.items()):
            left |= after
            toll.spare(name)


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


K = TypeVar("K")
V = TypeVar("V")

POD = "pod:"
"""Units that are single pods are called `pod:namespace/name`, so that a gang may have the same name."""

Terms = tuple[Mapping[str, int], bool]
"""On which a gang can be evicted: the minimum of each group, and whether it can be at all."""


class RunningIndex:
    def __init__(self) -> None:
        self._of: dict[str, PodFacts] = {}
        self._gangs: dict[str, dict[str, PodFacts]] = {}
        """By gang and uid; a gang is called by its name even before its PodGang is seen."""
        self._ranks: dict[str, Counter[int]] = {}
        """By gang, how many of its pods have which priority: its own is the highest."""
        self._alone: dict[int, dict[str, Running]] = {}
        """Pods of no gang, by priority and uid: most of what runs, so that listing them has to be cheap."""
        self._by_namespace: dict[str, dict[str, PodFacts]] = {}
        self._covered: dict[str, tuple[Selector, frozenset[str]]] = {}
        self._stale: set[str] = set()
        """Namespaces in which pods came or went since their budgets were last asked about."""

    def add(self, pod: PodFacts) -> None:
        """Counts a pod, instead of what was known of it."""
        self.remove(pod.uid)
        self._of[pod.uid] = pod
        if pod.gang:
            self._gangs.setdefault(pod.gang, {})[pod.uid] = pod
            self._ranks.setdefault(pod.gang, Counter())[pod.priority] += 1
        else:
            self._alone.setdefault(pod.priority, {})[pod.uid] = _alone(pod)
        self._by_namespace.setdefault(pod.namespace, {})[pod.uid] = pod
        self._stale.add(pod.namespace)

    def remove(self, uid: str) -> None:
        pod = self._of.pop(uid, None)
        if pod is None:
            return
        if pod.gang:
            _drop(self._gangs, pod.gang, uid)
            ranks = self._ranks[pod.gang] = self._ranks[pod.gang] - Counter((pod.priority,))
            if not ranks:
                del self._ranks[pod.gang]
        else:
            _drop(self._alone, pod.priority, uid)
        del self._by_namespace[pod.namespace][uid]
        self._stale.add(pod.namespace)

    def lowest_priority(self) -> int | None:
        """The least priority of any unit; None when nothing runs."""
        return min((*self._alone, *map(max, self._ranks.values())), default=None)

    def units(
        self, terms: Callable[[str], Terms | None], *, below: int | None = None, without: Collection[str] = ()
    ) -> list[Running]:
        """Units by name, of a priority below that if one is given. `without` are uids of pods that cannot be evicted.

        `terms` are a gang's; None for one that does not exist, whose pods then stand for themselves.
        """
        found: list[Running] = []
        for priority, alone in self._alone.items():
            if below is None or priority < below:
                found += alone.values()
        if without:
            found = [unit for unit in found if unit.pods[0].uid not in without]
        for name, pods in self._gangs.items():
            if below is not None and max(self._ranks[name]) >= below:
                continue
            members = [pod for uid, pod in pods.items() if uid not in without]
            known = terms(name)
            if known is None:
                found += map(_alone, members)
            elif members:
                members.sort(key=lambda pod: (pod.name, pod.uid))
                found.append(
                    Running(name, max(pod.priority for pod in members), tuple(members), known[0], preemptible=known[1])
                )
        found.sort(key=attrgetter("name"))
        return found

    def budgets(self, budgets: Iterable[tuple[str, str, Selector, int]]) -> list[DisruptionBudget]:
        """Budgets, given as (namespace, name, selector, pods that may go now), with the pods they cover."""
        found: list[DisruptionBudget] = []
        covered: dict[str, tuple[Selector, frozenset[str]]] = {}
        for namespace, name, selector, allowed in sorted(budgets, key=lambda one: one[:2]):
            key = f"{namespace}/{name}"
            known = self._covered.get(key)
            if known is None or namespace in self._stale or known[0] != selector:
                pods = self._by_namespace.get(namespace, {})
                known = (selector, frozenset(uid for uid, pod in pods.items() if selector.matches(pod.labels)))
            covered[key] = known
            found.append(DisruptionBudget(key, allowed, known[1]))
        self._covered = covered
        self._stale.clear()
        return found


def _alone(pod: PodFacts) -> Running:
    return Running(f"{POD}{pod.namespace}/{pod.name}", pod.priority, (pod,))


def _drop(kept: dict[K, dict[str, V]], key: K, uid: str) -> None:
    del kept[key][uid]
    if not kept[key]:
        del kept[key]
