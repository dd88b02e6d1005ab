"""What runs, in units of eviction, and the disruption budgets over it.

A unit is a gang or a pod without a gang. The index is kept pod by pod, so the search for victims costs what may be
evicted, not what runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from operator import attrgetter
from typing import TypeVar

import msgspec

from grove.api.labels import BASE_POD_GANG, POD_GANG
from grove.api.selector import Selector
from grove.scheduler.model.facts import PodFacts


class Running(msgspec.Struct, frozen=True):
    """A gang that runs, or a pod without a gang (a gang of one). `minimums` are per pod group, by name."""

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


def base_of(unit: Running) -> str:
    """The name of the base gang of a scaled gang; empty for other units."""
    labels = unit.pods[0].labels if unit.pods else {}
    base = labels.get(BASE_POD_GANG, "")
    return f"{unit.pods[0].namespace}/{base}" if base and base != labels.get(POD_GANG) else ""


def bases_of(units: Iterable[Running]) -> set[str]:
    """The names of the base gangs of these units."""
    return {base_of(unit) for unit in units if unit.pods and BASE_POD_GANG in unit.pods[0].labels} - {""}


def surplus_of(unit: Running) -> dict[str, int]:
    """Pods above the minimum, by group."""
    running: dict[str, int] = {}
    for pod in unit.pods:
        running[pod.group] = running.get(pod.group, 0) + 1
    # A pod without a gang has no minimum; it is a unit of its own and goes whole.
    return {group: max(0, n - unit.minimums.get(group, n)) for group, n in running.items()}


K = TypeVar("K")

V = TypeVar("V")

POD = "pod:"
"""Units that are single pods are called `pod:namespace/name`, so that a gang may have the same name."""

NEVER_EVICTED = "(a pod that more than one budget covers cannot be evicted)"

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
        self._covered: dict[str, dict[Selector, frozenset[str]]] = {}
        """Uids that selectors of budgets mean, by namespace; kept until a pod of it comes or goes."""
        self._by_label: dict[str, dict[str, dict[str, dict[str, PodFacts]]]] = {}
        """Pods by namespace, label, value of the label and uid, for labels that selectors of budgets require. A fleet
        has a budget for each set, and most select by the name of the set. Kept as long as `_covered`."""

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
        self._forget_covered(pod.namespace)

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
        _drop(self._by_namespace, pod.namespace, uid)
        self._forget_covered(pod.namespace)

    def _forget_covered(self, namespace: str) -> None:
        if namespace in self._covered:
            del self._covered[namespace]
            self._by_label.pop(namespace, None)

    def lowest_priority(self) -> int | None:
        """The least priority of any unit; None when nothing runs."""
        return min((*self._alone, *map(max, self._ranks.values())), default=None)

    def units(
        self, terms: Callable[[str], Terms | None], *, below: int | None = None, without: Collection[str] = ()
    ) -> list[Running]:
        """Units by name, of a priority below that if one is given. `without` are uids of pods that cannot be evicted.

        `terms` are a gang's; None for one that does not exist, whose pods then stand for themselves.
        """
        units: list[Running] = []
        for priority, alone in self._alone.items():
            if below is None or priority < below:
                units += alone.values()
        if without:
            units = [unit for unit in units if unit.pods[0].uid not in without]
        for name, pods in self._gangs.items():
            if below is not None and max(self._ranks[name]) >= below:
                continue
            members = [pod for uid, pod in pods.items() if uid not in without]
            known = terms(name)
            if known is None:
                units += map(_alone, members)
            elif members:
                members.sort(key=lambda pod: (pod.name, pod.uid))
                units.append(
                    Running(name, max(pod.priority for pod in members), tuple(members), known[0], preemptible=known[1])
                )
        units.sort(key=attrgetter("name"))
        return units

    def budgets(self, budgets: Iterable[tuple[str, str, Selector, int]]) -> list[DisruptionBudget]:
        """Budgets, given as (namespace, name, selector, pods that may go now), with the pods they cover.

        The Eviction API never evicts a pod that two budgets cover. Such budgets are one more budget, which allows none.
        """
        single = [
            DisruptionBudget(f"{namespace}/{name}", allowed, self._uids_of(namespace, selector))
            for namespace, name, selector, allowed in sorted(budgets, key=lambda budget: budget[:2])
        ]
        covering: dict[str, list[str]] = {}
        for budget in single:
            for uid in budget.uids:
                covering.setdefault(uid, []).append(budget.name)
        by_names: dict[str, set[str]] = {}
        for uid, several in covering.items():
            if len(several) > 1:
                by_names.setdefault(f"{' and '.join(several)} {NEVER_EVICTED}", set()).add(uid)
        return [*single, *(DisruptionBudget(names, 0, frozenset(uids)) for names, uids in sorted(by_names.items()))]

    def _uids_of(self, namespace: str, selector: Selector) -> frozenset[str]:
        pods = self._by_namespace.get(namespace)
        if pods is None:
            return frozenset()
        known = self._covered.setdefault(namespace, {})
        if selector not in known:
            candidates = self._candidates(namespace, selector, pods)
            known[selector] = frozenset(uid for uid, pod in candidates.items() if selector.matches(pod.labels))
        return known[selector]

    def _candidates(self, namespace: str, selector: Selector, pods: dict[str, PodFacts]) -> Mapping[str, PodFacts]:
        """Pods with the rarest of the label values that the selector requires; all pods if it requires none."""
        by_label = self._by_label.setdefault(namespace, {})
        fewest: Mapping[str, PodFacts] = pods
        for requirement in selector.requirements:
            if requirement.operator != "In" or len(requirement.values) != 1:
                continue
            if requirement.key not in by_label:
                values = by_label[requirement.key] = {}
                for uid, pod in pods.items():
                    if (value := pod.labels.get(requirement.key)) is not None:
                        values.setdefault(value, {})[uid] = pod
            (required,) = requirement.values
            having = by_label[requirement.key].get(required, {})
            if len(having) < len(fewest):
                fewest = having
        return fewest


def _alone(pod: PodFacts) -> Running:
    return Running(f"{POD}{pod.namespace}/{pod.name}", pod.priority, (pod,))


def _drop(kept: dict[K, dict[str, V]], key: K, uid: str) -> None:
    del kept[key][uid]
    if not kept[key]:
        del kept[key]


MOST_SETS = 128
"""How many sets of pods are tried to find one that breaks no budget, or a smaller one."""


def is_protected(unit: Running, budgets: Sequence[DisruptionBudget]) -> bool:
    """True if every eviction from this unit breaks a budget: the whole unit, or any pod above a group's minimum."""
    uids = {pod.uid for pod in unit.pods}
    covering = [budget for budget in budgets if not uids.isdisjoint(budget.uids)]
    if not any(len(uids & budget.uids) > budget.allowed for budget in covering):
        return False
    spare = surplus_of(unit)
    full = [budget for budget in covering if budget.allowed < 1]
    return not any(spare[pod.group] and not any(pod.uid in b.uids for b in full) for pod in unit.pods)


def allowed_to_go(
    units: Sequence[Running], budgets: Sequence[DisruptionBudget], gone: frozenset[str] = frozenset()
) -> Iterator[list[Running]]:
    """The parts of these units that may be evicted beside `gone` without breaking a budget; larger parts first.

    A unit that loses some pods only is one of these pods alone, all of which may go one by one.
    """
    if not units:
        yield []
        return
    unit, rest = units[0], units[1:]
    for part in (unit, *surplus_sets(unit)):
        pods = part.pods if part is unit else _within_budgets(part.pods, budgets, gone)
        more = gone.union(pod.uid for pod in pods)
        if pods and all(len(more & b.uids) <= b.allowed for b in budgets):
            for others in allowed_to_go(rest, budgets, more):
                yield [msgspec.structs.replace(part, pods=pods), *others]
    yield from allowed_to_go(rest, budgets, gone)


def _within_budgets(
    pods: Sequence[PodFacts], budgets: Sequence[DisruptionBudget], gone: frozenset[str]
) -> tuple[PodFacts, ...]:
    """Those of the pods, in their order, that may go beside those that are gone."""
    left = {b.name: b.allowed - len(gone & b.uids) for b in budgets}
    allowed: list[PodFacts] = []
    for pod in pods:
        over = [b.name for b in budgets if pod.uid in b.uids]
        if all(left[name] > 0 for name in over):
            allowed.append(pod)
            left |= {name: left[name] - 1 for name in over}
    return tuple(allowed)


def surplus_sets(unit: Running) -> Iterator[Running]:
    """Pods above the minimum of each group, in the ways to choose them that are first by name."""
    spare = surplus_of(unit)
    if any(spare.values()):
        by_group = [[pod for pod in unit.pods if pod.group == name] for name in spare]
        some = (combinations(pods, count) for pods, count in zip(by_group, spare.values(), strict=True))
        for chosen in islice(product(*(list(islice(ways, MOST_SETS)) for ways in some)), MOST_SETS):
            pods = tuple(pod for group in chosen for pod in group)
            yield Running(unit.name, unit.priority, pods, dict.fromkeys(spare, 0))


def sets_of_pods(units: Sequence[Running], count: int) -> Iterator[list[PodFacts]]:
    """Every set of `count` pods that may be evicted together: whole units, and pods above the minimum of a group."""
    if count == 0:
        yield []
        return
    for i, unit in enumerate(units):
        for some in _ways_to_go(unit, count):
            for others in sets_of_pods(units[i + 1 :], count - len(some)):
                yield [*some, *others]


def _ways_to_go(unit: Running, most: int) -> Iterator[tuple[PodFacts, ...]]:
    """Up to this number of pods above the minimum of their groups, or the whole unit."""
    spare = surplus_of(unit)
    loose = [pod for pod in unit.pods if spare[pod.group]]
    for size in range(1, min(most, sum(spare.values())) + 1):
        for some in combinations(loose, size):
            if all(gone <= spare[group] for group, gone in Counter(pod.group for pod in some).items()):
                yield some
    if sum(spare.values()) < len(unit.pods) <= most:
        yield unit.pods


def broken_budgets(pods: Sequence[PodFacts], budgets: Sequence[DisruptionBudget]) -> tuple[str, ...]:
    uids = {pod.uid for pod in pods}
    return tuple(sorted(b.name for b in budgets if len(uids & b.uids) > b.allowed))


def beyond_allowance(
    pods: Sequence[PodFacts], units: Sequence[Running], budgets: Sequence[DisruptionBudget]
) -> set[str]:
    """Units of these pods that go beyond what budgets allow."""
    owner = {pod.uid: unit.name for unit in units for pod in unit.pods}
    spared: set[str] = set()
    for b in budgets:
        covered = [owner[pod.uid] for pod in pods if pod.uid in b.uids and pod.uid in owner]
        spared.update(covered[b.allowed :])
    return spared
