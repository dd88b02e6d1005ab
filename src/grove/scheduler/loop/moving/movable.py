"""Gangs that may be moved, and plans to move them for a waiting gang or the whole fleet. Reads a view only.

A gang may be moved if its set allows it (`grove.io/disruption`), and if it and every other gang of its set are complete
and ready. So no more than one unit of a set is down. A gang is not moved if its pods have devices from claims or
capacity of Reservations. Their needs on another node are unknown before they are created again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from grove.api import labels
from grove.api.fragmentation import GangSize
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.fleet_repack import FleetRepack, Measure, fleet_repack, level_for
from grove.scheduler.evict.repack import STEPS, Movable, NoRepack, Repack, repack
from grove.scheduler.evict.running import Running
from grove.scheduler.loop.deciding.claim_homes import at_best_homes
from grove.scheduler.loop.deciding.victim_search import budgets_of, running_units
from grove.scheduler.loop.state.gang_trees import closed_capacity, domain_of, gang_order, order_of, tree_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.answers import Budget
from grove.scheduler.model.config import ALLOW, SchedulerConfiguration
from grove.scheduler.model.facts import HOSTNAME
from grove.scheduler.model.gang import BadGang, Gang
from grove.scheduler.model.reasons import INVALID, Reason
from grove.scheduler.policy.gang_state import GangState, repair_of
from grove.scheduler.policy.hold_ledger import CapacityHold


def may_be_disrupted(gang: GangState, config: SchedulerConfiguration) -> bool:
    """Whether the gang's set lets running pods restart for the sake of others."""
    return gang.podgang.metadata.annotations.get(labels.DISRUPTION, config.repack.disruption) == ALLOW


class MovableGangs:
    """The gangs that may move, in a view as it is now."""

    def __init__(self, view: View, config: SchedulerConfiguration) -> None:
        self._view, self._config = view, config

    @cached_property
    def _incomplete(self) -> set[tuple[str, str]]:
        """Sets with a gang that is not complete and ready."""
        gangs, view = self._view.units.gangs.values(), self._view
        return {
            set_of(gang)
            for gang in gangs
            if may_be_disrupted(gang, self._config)
            and view.concerns_us(gang)
            and not (view.has_minimum(gang) and all(pod.is_ready for pod, _ in view.members(gang)))
        }

    def all(self) -> list[Movable]:
        return [candidate for candidate in self.each() if candidate is not None]

    def each(self) -> Iterator[Movable | None]:
        """One answer for each gang that runs: None if it may not be moved."""
        for unit in running_units(self._view):
            if (gang := self._view.units.gangs.get(unit.name)) is not None:
                yield self.find(unit, gang)

    def find(self, unit: Running, gang: GangState) -> Movable | None:
        view = self._view
        if not may_be_disrupted(gang, self._config) or not unit.preemptible or not view.concerns_us(gang):
            return None
        if set_of(gang) in self._incomplete:
            return None
        members = [pod for pod, _ in view.members(gang)]
        if len(members) != len(unit.pods) or any(pod.metadata.is_deleting for pod in members):
            return None
        if any(view.sources.with_counted(facts := view.reader.facts(pod), pod) is not facts for pod in members):
            return None
        if any(pod.spec.resource_claims for pod in members):
            return None
        tree = self._tree(gang)
        if tree is None:
            return None
        return Movable(unit, tree, max(pod.created_s for pod in unit.pods), frozenset(closed_to_moved(view, gang)))

    def _tree(self, gang: GangState) -> Gang | None:
        """The gang as if it had no place. One that scaled gangs must be near stays in its domain."""
        try:
            tree = tree_of(self._view, gang, self._config.node_policy, placed=False)
        except BadGang:
            return None
        if self._view.units.scaled_of.get(gang.name) and (pin := domain_of(self._view, gang)) is not None:
            tree = replace(tree, pinned_domain=pin)
        return replace(tree, former=frozenset())


def closed_to_moved(view: View, gang: GangState) -> Mapping[str, CapacityHold]:
    """Nodes that a running gang may not be moved to, because they are held for units ahead of it."""
    return view.ledger.closed_to(gang.name, gang_order(view, gang, repair_of(gang))).nodes


def set_of(gang: GangState) -> tuple[str, str]:
    meta = gang.podgang.metadata
    return meta.namespace, meta.labels.get(labels.PART_OF, "") or meta.name


def repack_for(
    view: View, gang: GangState, config: SchedulerConfiguration, budget: Budget = STEPS
) -> Repack | NoRepack:
    """Moves that make a waiting gang fit, on the cluster as the view has it."""
    return repack_question(view, gang, MovableGangs(view, config).all(), config, budget)(view.snapshot)


def repack_question(
    view: View, gang: GangState, movable: Sequence[Movable], config: SchedulerConfiguration, budget: Budget = STEPS
) -> Callable[[Snapshot], Repack | NoRepack]:
    """`repack_for` in two parts: this one reads the view, and the answer can be worked out in a thread.

    Gangs in `movable` that have lost pods since they were read are left out.
    """
    try:
        tree = tree_of(view, gang, config.node_policy)
    except BadGang as error:
        refused = NoRepack(gang.name, Reason(INVALID, str(error)), True)
        return lambda _: refused
    view.counted.refresh()  # reading its pods may have shown what has to be counted on nodes for them
    closed = closed_capacity(view, gang.name, order_of(view, gang.name))
    runs = view.snapshot.find_pod
    others = [
        candidate
        for candidate in movable
        if candidate.unit.name not in (gang.name, gang.base)
        and all(runs(pod.uid) is not None for pod in candidate.unit.pods)
    ]
    tree, budgets = at_best_homes(view, tree), budgets_of(view)

    def ask(snapshot: Snapshot) -> Repack | NoRepack:
        return repack(snapshot.without(closed.own), tree, others, budgets, budget, closed=closed.nodes)

    return ask


def levels_of(view: View) -> dict[str, str]:
    """Names of the levels of the first topology with their label keys, broad to narrow, down to the host."""
    levels = dict(view.levels[min(view.levels)]) if view.levels else {}
    return levels if HOSTNAME in levels.values() else {**levels, "host": HOSTNAME}


def measure_of(view: View, resource: str, size: GangSize, key: str = "") -> Measure | None:
    """What a plan for the fleet reduces; None if no domain of any level can hold a gang of this size."""
    topology = min(view.levels, default="")
    key = key or level_for(view.snapshot, resource, size, tuple(levels_of(view).values()), topology) or ""
    return Measure(resource, key, size, topology) if key else None


def fleet_repack_of(view: View, config: SchedulerConfiguration, measure: Measure) -> FleetRepack:
    """Moves that reduce the fragmentation of the cluster as the view has it."""
    view.counted.refresh()
    closed = {node for hold in view.ledger if hold.owner != measure.size.waiting for node in hold.nodes}
    movable = [
        candidate for candidate in MovableGangs(view, config).all() if candidate.unit.name != measure.size.waiting
    ]
    return fleet_repack(view.snapshot, measure, movable, budgets_of(view), closed=closed)
