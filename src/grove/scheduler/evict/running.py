"""An index of what runs: pods by the unit they can be evicted in, units by priority, and what each budget covers.

Kept current pod by pod, so that looking for victims costs what may be put out, not what runs. A unit is a gang or a pod
of nobody's; its priority is the highest of its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from grove.api.selector import Selector
from grove.scheduler.evict.victims import DisruptionBudget, Running
from grove.scheduler.model.facts import PodFacts

POD = "pod:"
"""Units that are single pods are called `pod:namespace/name`, so that a gang may have the same name."""

Terms = tuple[Mapping[str, int], bool]
"""On which a gang can be evicted: the minimum of each group, and whether it can be at all."""


class RunningIndex:
    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodFacts]] = {}
        """By unit and uid; a gang is called by its name even before its PodGang is seen."""
        self._of: dict[str, PodFacts] = {}
        self._by_priority: dict[int, dict[str, None]] = {}
        self._priorities: dict[str, dict[int, int]] = {}
        """By unit, how many of its pods have which priority."""
        self._single: dict[str, Running] = {}
        self._by_namespace: dict[str, dict[str, PodFacts]] = {}
        self._covered: dict[str, tuple[Selector, frozenset[str]]] = {}
        self._stale: set[str] = set()
        """Namespaces in which pods came or went since their budgets were last asked about."""

    def add(self, pod: PodFacts) -> None:
        """Counts a pod, instead of what was known of it."""
        self.remove(pod.uid)
        self._of[pod.uid] = pod
        unit = _unit(pod)
        self._pods.setdefault(unit, {})[pod.uid] = pod
        self._by_namespace.setdefault(pod.namespace, {})[pod.uid] = pod
        self._stale.add(pod.namespace)
        self._count(unit, pod.priority, 1)

    def remove(self, uid: str) -> None:
        pod = self._of.pop(uid, None)
        if pod is None:
            return
        unit = _unit(pod)
        del self._pods[unit][uid]
        del self._by_namespace[pod.namespace][uid]
        self._single.pop(uid, None)
        self._stale.add(pod.namespace)
        if not self._pods[unit]:
            del self._pods[unit]
        self._count(unit, pod.priority, -1)

    def lowest_priority(self) -> int | None:
        """The least priority of any unit; None when nothing runs."""
        return min(self._by_priority, default=None)

    def units(
        self, terms: Callable[[str], Terms | None], *, below: int | None = None, without: Collection[str] = ()
    ) -> list[Running]:
        """Units by name, of a priority below that if one is given. `without` are uids of pods that cannot be evicted.

        `terms` are a gang's; None for one that does not exist, whose pods then stand for themselves.
        """
        found: list[Running] = []
        for priority, names in self._by_priority.items():
            if below is not None and priority >= below:
                continue
            for name in names:
                pods = self._pods[name]
                known = None if name.startswith(POD) else terms(name)
                if known is None:
                    found += (self._alone(pod) for uid, pod in pods.items() if uid not in without)
                    continue
                members = sorted(
                    (pod for uid, pod in pods.items() if uid not in without), key=lambda pod: (pod.name, pod.uid)
                )
                if members:
                    highest = max(pod.priority for pod in members)
                    found.append(Running(name, highest, tuple(members), known[0], preemptible=known[1]))
        return sorted(found, key=lambda unit: unit.name)

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

    def _alone(self, pod: PodFacts) -> Running:
        made = self._single.get(pod.uid)
        if made is None:
            made = self._single[pod.uid] = Running(f"{POD}{pod.namespace}/{pod.name}", pod.priority, (pod,))
        return made

    def _count(self, unit: str, priority: int, by: int) -> None:
        counts = self._priorities.setdefault(unit, {})
        before = max(counts, default=None)
        counts[priority] = counts.get(priority, 0) + by
        if not counts[priority]:
            del counts[priority]
        now = max(counts, default=None)
        if now != before:
            if before is not None:
                del self._by_priority[before][unit]
                if not self._by_priority[before]:
                    del self._by_priority[before]
            if now is not None:
                self._by_priority.setdefault(now, {})[unit] = None
        if now is None:
            del self._priorities[unit]


def _unit(pod: PodFacts) -> str:
    return pod.gang or f"{POD}{pod.namespace}/{pod.name}"
