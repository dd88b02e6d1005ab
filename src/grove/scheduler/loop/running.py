"""What runs in the cluster that the view shows, in the units it can be evicted in, and the budgets over it."""

from __future__ import annotations

from grove.api.selector import of
from grove.scheduler.evict.running import Terms
from grove.scheduler.evict.victims import DisruptionBudget, Running
from grove.scheduler.loop.view import View


def running_units(view: View, below: int | None = None) -> list[Running]:
    """Gangs and single pods on nodes, of a lower priority if one is given. What is not bound yet cannot be evicted."""

    def terms(name: str) -> Terms | None:
        gang = view.gangs.get(name)
        return (dict(gang.minima), not gang.life.is_busy) if gang is not None else None

    return view.running.units(terms, below=below, without=view.reserved)


def budgets_of(view: View) -> list[DisruptionBudget]:
    """Every budget with the bound pods it covers."""
    return view.running.budgets(
        (one.metadata.namespace, one.metadata.name, of(one.spec.selector), one.status.disruptions_allowed)
        for one in view.budgets.list()
    )
