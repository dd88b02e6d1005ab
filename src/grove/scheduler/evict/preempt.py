"""Whom to evict so that a gang fits: the least priority that suffices, the cheapest domain, then the fewest pods in it.

Only strictly lower priorities go, so what is placed is not evicted again by the same rule. A gang goes whole or loses
surplus only. Disruption budgets are kept if any choice keeps them, and named if none does. The answer is checked by
`place` on a snapshot without the victims; there is no other way to be in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.victims import DisruptionBudget, Running, Toll, fewest_victims, pods_by_row, row_costs
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import (
    FITS,
    LEAVING,
    NEVER_PREEMPTS,
    NO_SMALL_SET,
    NOBODY_LOWER,
    NOT_ENOUGH,
    Reason,
)
from grove.scheduler.solve.place import place, place_on

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
) -> Victims | NoVictims:
    """Victims for a gang that does not fit, or why there are none. Who of `running` may go is decided here."""
    version = snapshot.version
    if not gang.may_preempt:
        return NoVictims(gang.name, Reason(NEVER_PREEMPTS), True, version)
    base = _without(snapshot, [pod for pod in snapshot.pods() if pod.terminating])
    if isinstance(place(base, gang, budget), Placement):
        if base.version == snapshot.version:
            return NoVictims(gang.name, Reason(FITS), True, version)
        return NoVictims(gang.name, Reason(LEAVING), True, version)
    lower = sorted(
        (
            Running(u.name, u.priority, tuple(p for p in u.pods if not p.terminating), u.minimums)
            for u in running
            if u.preemptible and u.name != gang.name and snapshot.seams.may_put_out(snapshot, gang, u)
        ),
        key=lambda u: (u.priority, u.name),
    )
    lower = [unit for unit in lower if unit.pods]
    if not lower:
        return NoVictims(gang.name, Reason(NOBODY_LOWER, numbers={"priority": gang.priority}), True, version)
    kept = [unit for unit in lower if not _is_protected(unit, budgets)]
    for candidates in [kept, lower] if len(kept) < len(lower) else [lower]:
        found = _choose(base, gang, candidates, budgets, budget)
        if isinstance(found, Victims) or candidates is lower:
            return found
    return found


def _is_protected(unit: Running, budgets: Sequence[DisruptionBudget]) -> bool:
    """Whether a budget forbids even this unit alone; one that may lose surplus is judged by a single pod."""
    least = 1 if any(unit.minimums.get(p.group, len(unit.pods)) < len(unit.pods) for p in unit.pods) else len(unit.pods)
    uids = {pod.uid for pod in unit.pods}
    return any(min(least, len(uids & b.uids)) > b.allowed for b in budgets if uids & b.uids)


def _choose(
    base: Snapshot, gang: Gang, units: list[Running], budgets: Sequence[DisruptionBudget], budget: Budget
) -> Victims | NoVictims:
    """Victims among these units: the lowest priorities that suffice, found by halving."""
    tiers = sorted({unit.priority for unit in units})
    answer = _emptied(base, gang, units, budget)
    if isinstance(answer, NoFit):
        why = Reason(NOT_ENOUGH, numbers={"units": len(units)}, parts=(answer.why,))
        return NoVictims(gang.name, why, answer.proven, base.version)
    low, high = 0, len(tiers) - 1
    while low < high:
        middle = (low + high) // 2
        tried = _emptied(base, gang, [u for u in units if u.priority <= tiers[middle]], budget)
        if isinstance(tried, Placement):
            high, answer = middle, tried
        else:
            low = middle + 1
    units = [u for u in units if u.priority <= tiers[high]]
    for _ in range(4):
        found = _fewest(base, gang, units, budgets, budget)
        if isinstance(found, NoVictims) or not found.budgets_broken:
            return found
        # Several victims under one budget: leave out those beyond its allowance and look again.
        spared = _beyond_allowance(found, units, budgets)
        rest = [u for u in units if u.name not in spared]
        if not spared or isinstance(_emptied(base, gang, rest, budget), NoFit):
            return found
        units = rest
    return found


def _emptied(base: Snapshot, gang: Gang, units: Sequence[Running], budget: Budget) -> Placement | NoFit:
    return place(_without(base, [pod for unit in units for pod in unit.pods]), gang, budget)


def _without(snapshot: Snapshot, pods: Sequence[PodFacts]) -> Snapshot:
    twin = snapshot.copy()
    for pod in pods:
        twin.remove_pod(pod.uid)
    return twin


def _fewest(
    base: Snapshot, gang: Gang, units: list[Running], budgets: Sequence[DisruptionBudget], budget: Budget
) -> Victims | NoVictims:
    by_row = pods_by_row(base, units)
    largest = max(
        (group.pods[0] for group in gang.groups() if group.need and group.pods),
        key=lambda pod: (sorted((n, a) for n, a in pod.shape.requests if "/" in n), pod.shape.requests),
    )
    cost = row_costs(base, units, by_row, largest)
    empty = _without(base, [pod for unit in units for pod in unit.pods])
    aimed = place_on(empty, gang, budget, cost=cost)
    if isinstance(aimed, NoFit):
        return NoVictims(gang.name, aimed.why, False, base.version)
    toll = fewest_victims(base, units, by_row, aimed)
    answer = place(_without(base, toll.pods()), gang, budget)
    if isinstance(answer, NoFit):
        # Ports or neighbours stand in the way, not only room: clear the nodes, then spare whom we can.
        for pod in aimed.pods[: aimed.core]:
            for unit, other in by_row.get(base.nodes.row_of[pod.node], []):
                toll.take(unit, other)
        answer = place(_without(base, toll.pods()), gang, budget)
    if isinstance(answer, NoFit):
        return NoVictims(gang.name, Reason(NO_SMALL_SET, parts=(answer.why,)), False, base.version)
    answer = _spared(base, gang, toll, answer, budget)
    pods = tuple(toll.pods())
    return Victims(gang.name, pods, tuple(sorted(toll.whole)), _broken(pods, budgets), answer, base.version)


def _spared(base: Snapshot, gang: Gang, toll: Toll, answer: Placement, budget: Budget) -> Placement:
    """Tries out sparing each choice by a full placement, the most missed first."""
    choices = toll.choices()
    if len(choices) > FINE_TRIALS:
        return answer
    for name, pods in choices:
        gone = {pod.uid for pod in pods}
        tried = place(_without(base, [pod for pod in toll.pods() if pod.uid not in gone]), gang, budget)
        if isinstance(tried, Placement):
            toll.spare(name)
            answer = tried
    return answer


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
