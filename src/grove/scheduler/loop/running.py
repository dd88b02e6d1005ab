"""What runs, in the units it can be evicted in, and the disruption budgets over it, as the core wants to hear it."""

from __future__ import annotations

from grove.api.core import PodDisruptionBudget
from grove.api.selector import of
from grove.scheduler.evict.victims import DisruptionBudget, Running
from grove.scheduler.loop.view import POD, View
from grove.scheduler.model.facts import PodFacts


def running_units(view: View) -> list[Running]:
    """Gangs and single pods on nodes. What is not bound yet, or on its way out already, cannot be evicted."""
    alone: list[PodFacts] = []
    by_gang: dict[str, list[PodFacts]] = {}
    for pod in view.snapshot.pods():
        if pod.uid in view.reserved:
            continue
        if pod.gang in view.gangs:
            by_gang.setdefault(pod.gang, []).append(pod)
        else:
            alone.append(pod)
    units = [Running(f"{POD}{pod.namespace}/{pod.name}", pod.priority, (pod,)) for pod in alone]
    for name, pods in by_gang.items():
        gang = view.gangs[name]
        minima = dict(gang.minima)
        pods.sort(key=lambda pod: (pod.name, pod.uid))
        units.append(
            Running(name, max(pod.priority for pod in pods), tuple(pods), minima, preemptible=not gang.life.is_busy)
        )
    return sorted(units, key=lambda unit: unit.name)


def budgets_of(view: View) -> list[DisruptionBudget]:
    """Every budget with the bound pods it covers."""
    by_namespace: dict[str, list[PodFacts]] = {}
    budgets = view.budgets.list()
    if not budgets:
        return []
    for pod in view.snapshot.pods():
        by_namespace.setdefault(pod.namespace, []).append(pod)
    ordered = sorted(budgets, key=lambda one: one.metadata.key)
    return [_budget(budget, by_namespace.get(budget.metadata.namespace, [])) for budget in ordered]


def _budget(budget: PodDisruptionBudget, pods: list[PodFacts]) -> DisruptionBudget:
    selector = of(budget.spec.selector)
    covered = frozenset(pod.uid for pod in pods if selector.matches(pod.labels))
    return DisruptionBudget(str(budget.metadata.key), budget.status.disruptions_allowed, covered)
