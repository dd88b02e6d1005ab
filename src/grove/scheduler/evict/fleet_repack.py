"""Moves of running gangs after which more gangs of one size fit: a plan for the whole fleet. Pure.

The size is the one with which fragmentation is measured, and fragmentation is what the plan reduces. A copy of the
snapshot is filled with as many gangs of this size as fit now. Then `repack` looks for the cheapest moves that let one
more fit, then one more. Each step is made on the copy, and counts only if fragmentation is less after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from grove.api.fragmentation import GangSize
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.repack import STEPS, Movable, Move, NoRepack, make_move, repack
from grove.scheduler.evict.running import DisruptionBudget
from grove.scheduler.model.answers import Budget
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.model.reasons import Reason
from grove.scheduler.solve.placement_score import fragmentation, free_by_domain

FLEET_STEPS = Budget(steps=4 * STEPS.steps)
"""Work allowed for the plan of a fleet."""
MOST_FURTHER = 16
"""A plan lets no more further gangs fit than this."""
FURTHER = "further"
"""Name of the gangs that stand for those that could come."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The definition of a measurement: a resource, a topology level, and the size of the gangs."""

    resource: str
    key: str
    size: GangSize
    topology: str = ""

    def of(self, snapshot: Snapshot) -> float:
        return fragmentation(snapshot, self.resource, self.key, self.size, self.topology)


@dataclass(frozen=True, slots=True)
class FleetStep:
    """Moves after which one more gang fits, and the fragmentation then."""

    moves: tuple[Move, ...]
    restarts: int
    after: float


@dataclass(frozen=True, slots=True)
class FleetRepack:
    """`end` is the cluster after all steps. `why` says why there are no more steps."""

    before: float
    steps: tuple[FleetStep, ...]
    end: Snapshot
    why: Reason | None = None

    @property
    def after(self) -> float:
        return self.steps[-1].after if self.steps else self.before


def level_for(snapshot: Snapshot, resource: str, size: GangSize, keys: Sequence[str], topology: str = "") -> str | None:
    """Of these levels, broad to narrow, the narrowest with a domain that can hold a gang of this size when idle."""
    if resource not in snapshot.resources:
        return None
    total = snapshot.allocatable[snapshot.resources.index(resource)]
    for key in reversed(keys):
        domains, _ = free_by_domain(snapshot, resource, key, topology)
        if any(int((total[rows] // size.each).sum()) >= size.pods for rows, _ in domains):
            return key
    return None


def fleet_repack(
    snapshot: Snapshot,
    measure: Measure,
    movable: Sequence[Movable],
    budgets: Sequence[DisruptionBudget] = (),
    budget: Budget = FLEET_STEPS,
    *,
    closed: Collection[str] = (),
) -> FleetRepack:
    """Steps that reduce the fragmentation, each the cheapest that was found. A gang moves at most once.

    Nodes in `closed` are held for units that wait. No gang is moved to them or away from them.
    """
    end, full = snapshot.copy(), snapshot.copy()
    full.seams = full.seams.with_policies(())  # no quota counts for gangs that do not exist
    for pod in _fitting(full, measure, closed):
        full.add_pod(pod)
    before = measure.of(snapshot)
    found_steps: list[FleetStep] = []
    left, why = budget.steps, None
    while before and len(found_steps) < MOST_FURTHER and left > 0:
        steps = Budget(steps=min(left, STEPS.steps))
        answer = repack(full, _further(measure, len(found_steps)), movable, budgets, steps, closed=closed)
        left -= answer.steps
        if isinstance(answer, NoRepack):
            why = answer.why
            break
        after = end.copy()
        for move in answer.moves:
            make_move(after, move)
            make_move(full, move)
        if (share := measure.of(after)) >= (found_steps[-1].after if found_steps else before):
            break
        full.assume(answer.placement)
        end = after
        found_steps.append(FleetStep(answer.moves, answer.cost[0], share))
        moved = {move.unit.name for move in answer.moves}
        movable = [candidate for candidate in movable if candidate.unit.name not in moved]
    return FleetRepack(before, tuple(found_steps), end, why)


def _further(measure: Measure, number: int) -> Gang:
    """A gang of the measured size in one domain of the measured level."""
    name, size = f"{FURTHER}-{number}", measure.size
    shape = Shape(((measure.resource, size.each),))
    pods = tuple(PodFacts(f"{name}-{i}", "", f"{name}-{i}", shape, gang=name, group=name) for i in range(size.pods))
    return Gang(name, Branch(name, (PodGroup(name, size.pods, pods),), measure.key), topology=measure.topology)


def _fitting(snapshot: Snapshot, measure: Measure, closed: Collection[str]) -> Iterator[PodFacts]:
    """Pods of as many gangs of this size as fit now, on nodes of which the largest part is free."""
    shape, size = Shape(((measure.resource, measure.size.each),)), measure.size
    domains, _ = free_by_domain(snapshot, measure.resource, measure.key, measure.topology)
    for rows, free in domains:
        names = [facts.name if (facts := snapshot.nodes.facts[row]) is not None else "" for row in rows.tolist()]
        slots = {name: amount // size.each for name, amount in zip(names, free, strict=True) if name not in closed}
        wanted = sum(slots.values()) // size.pods * size.pods
        for name in sorted(slots, key=lambda name: (-slots[name], name)):
            for i in range(min(wanted, slots[name])):
                yield PodFacts(f"{FURTHER}-{name}-{i}", "", f"{FURTHER}-{name}-{i}", shape, node=name)
            wanted -= min(wanted, slots[name])
