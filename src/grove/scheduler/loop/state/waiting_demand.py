"""Passes to policies before every turn what waiting units ask for, by account."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from grove.scheduler.loop.state.view import View
from grove.scheduler.model.seams import Policy

Amounts = dict[str, dict[str, int]]
"""By account and resource."""


class WaitingDemand:
    def __init__(self, view: View) -> None:
        self._view = view
        self._counted: set[str] = set()
        """Units whose demand is in the sums; what each asks for is in its record."""
        self._policies: list[Policy] = []

    def begin_turn(self, waiting: Iterable[str], changed: Iterable[str]) -> None:
        """These units wait, and these have changed since the last turn."""
        if not self._view.snapshot.seams.counting_demand():
            return
        units = set(waiting)
        stale = {*changed, *(self._counted - units)} & self._counted
        before = {name: self._asked(name) for name in stale}
        self._counted -= stale
        self.tell(units)
        if any(name not in units or self._asked(name) != asked for name, asked in before.items()):
            self._view.changes.demand_changed = True

    def _asked(self, name: str) -> list[Amounts] | None:
        unit = self._view.units.find(name)
        return unit.asked if unit is not None else None

    def tell(self, units: Collection[str]) -> None:
        """These units wait."""
        snapshot = self._view.snapshot
        policies = snapshot.seams.counting_demand()
        if policies != self._policies:
            self._policies, self._counted = policies, set()
        totals: list[Amounts] = [{} for _ in policies]
        for name in units:
            unit = self._view.units.of(name)
            if name not in self._counted or unit.asked is None:
                unit.asked = self._asked_by(name, policies)
            for total, asked in zip(totals, unit.asked, strict=True):
                for account, amounts in asked.items():
                    _add(total, account, amounts.items())
        self._counted.update(units)
        for policy, total in zip(policies, totals, strict=True):
            policy.note_demand(snapshot, total)

    def _asked_by(self, name: str, policies: Sequence[Policy]) -> list[Amounts]:
        view, demand = self._view, [Amounts() for _ in policies]
        gang = view.units.gangs.get(name)
        for pod, _ in view.members(gang) if gang is not None else ():
            if not view.counted.node_of(pod) and not pod.metadata.is_deleting:
                facts = view.reader.facts(pod)
                for policy, asked in zip(policies, demand, strict=True):
                    if account := policy.account(facts):
                        _add(asked, account, facts.shape.used)
        return demand


def _add(sums: Amounts, account: str, amounts: Iterable[tuple[str, int]]) -> None:
    total = sums.setdefault(account, {})
    for resource, amount in amounts:
        total[resource] = total.get(resource, 0) + amount
