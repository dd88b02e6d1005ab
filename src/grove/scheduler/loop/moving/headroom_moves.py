"""A part of a gang that cannot be completed in its domain goes to the headroom of its set.

Running pods keep a part of a gang in one domain, such as a rack. If a node of the rack fails and no other node of it is
free, the part cannot be completed there. The headroom of the set can be a place for the whole part. Then the pods that
still run are evicted, and their replacements and those of the lost pods go to the headroom together. Without headroom
they stay until the termination delay is over.

The gang is below its minimum, so a move takes down nothing that is complete. The gangs of one set move one after the
other: the headroom of a set is seldom a place for two of them. Gangs that were scaled out and must be in the domain of
their base gang go with it. For one of them alone, the base gang does not move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import structlog

from grove.api.conditions import EventReason
from grove.api.core import Pod
from grove.api.words import many
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.loop.holds.headrooms import Headrooms, replica_of
from grove.scheduler.loop.holds.replacements import Replacements
from grove.scheduler.loop.state.gang_trees import Unit, family_of, tree_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.evictions import Evictions
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.answers import DecisionSteps, NoFit, Placement
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import BadGang, Gang, leaves_of, parts_of
from grove.scheduler.model.reasons import NOT_ADMITTED
from grove.scheduler.policy.gang_state import GangState
from grove.scheduler.policy.hold_ledger import ClosedCapacity

log = structlog.get_logger(__name__)


class HeadroomMoves:
    def __init__(
        self,
        view: View,
        headrooms: Headrooms,
        replacements: Replacements,
        evictions: Evictions,
        reporter: Reporter,
        config: SchedulerConfiguration,
    ) -> None:
        self._view, self._headrooms, self._replacements = view, headrooms, replacements
        self._evictions, self._reporter, self._config = evictions, reporter, config
        self._moving: dict[str, GangState] = {}
        """The gang that goes to the headroom, by set."""

    async def try_move(self, unit: Unit, answer: NoFit, closed: ClosedCapacity, steps: DecisionSteps) -> None:
        """Evicts what is left of a part that cannot be completed, if the headroom is a place for all of it."""
        gang = unit.gang
        if answer.reason == NOT_ADMITTED or not gang.stood or gang.missing or not self._is_next(gang):
            return
        if any(self._leaving(gang)):
            return
        for pods, tree in self._candidates(unit):
            if any(self._evictions.evicts_alone(pod.metadata.uid) for pod in pods):
                return  # it is on its way
            gone = closed.own.union(pod.metadata.uid for pod in pods)
            placement = await self._headrooms.find_place(tree, steps, gone, (), tuple(sorted(closed.nodes)))
            if not self._view.units.is_current(gang) or not self._is_next(gang):
                return
            if isinstance(placement, Placement):
                self._move(gang, pods)
                return

    def _candidates(self, unit: Unit) -> Iterator[tuple[Sequence[Pod], Gang]]:
        """Pods that can be evicted, the fewest first, and what has to find a place then."""
        view, gang, strategy = self._view, unit.gang, self._config.node_policy
        scaled = self._scaled_beside(gang)
        with suppress(BadGang):
            for groups in kept_groups(unit.tree):
                pods = self._pods_of(gang, groups)
                if pods and scaled and len(pods) == len(self._pods_of(gang)):
                    beside = [pod for other in scaled for pod in self._pods_of(other)]
                    yield [*pods, *beside], replica_of(view, gang, scaled, strategy)
                elif pods:
                    instead = {pod.metadata.key: view.reader.facts(pod).on("") for pod in pods}
                    yield pods, tree_of(view, gang, strategy, instead=instead)

    def _move(self, gang: GangState, pods: Sequence[Pod]) -> None:
        view, family = self._view, family_of(gang)
        if self._moving.get(family) is not gang:
            log.info("a gang goes to its headroom", gang=gang.name, evicted=len(pods))
            beside = "it" if len(pods) == 1 else "them"
            text = (
                f"{many(len(pods), 'pod is', 'pods are')} evicted: a topology domain has no capacity for the pods that "
                f"are missing beside {beside}, and the headroom of {family} is a place for all of them"
            )
            self._reporter.tell(gang, EventReason.GANG_MOVING, text)
        self._moving[family] = gang

        def still_wanted() -> bool:
            return view.units.is_current(gang) and not view.has_minimum(gang)

        for pod in pods:
            self._evictions.evict_alone(view.reader.facts(pod), still_wanted, lambda: None)

    def _is_next(self, gang: GangState) -> bool:
        """Whether its set has headroom, and no other gang of the set is on its way there."""
        family, view = family_of(gang), self._view
        other = self._moving.get(family)
        if other is not None and (not view.units.is_current(other) or view.has_minimum(other)):
            del self._moving[family]
            other = None
        return (other is None or other is gang) and self._headrooms.has_places_for(family)

    def _pods_of(self, gang: GangState, groups: Collection[str] | None = None) -> Sequence[Pod]:
        """Pods of these groups, or of all, that are on nodes to stay."""
        return [
            pod
            for pod, group in self._view.members(gang)
            if (groups is None or group in groups) and self._view.counted.node_of(pod) and not pod.metadata.is_deleting
        ]

    def _leaving(self, gang: GangState) -> Iterator[PodFacts]:
        """Pods that are being replaced and still terminate on nodes that take their replacements, as in an update."""
        snapshot = self._view.snapshot
        for pod, _ in self._replacements.due_to_leave(gang):
            if allowed_mask(snapshot, pod.shape)[snapshot.nodes.row_of[pod.node]]:
                yield pod

    def _scaled_beside(self, gang: GangState) -> Sequence[GangState]:
        """Gangs that were scaled out, must be in the domain of this one, and are there."""
        constraint = gang.podgang.spec.topology_constraint
        if constraint is None or not constraint.required:
            return []
        units = self._view.units
        scaled = [units.gangs[name] for name in sorted(units.scaled_of.get(gang.name, ()))]
        return [other for other in scaled if self._pods_of(other)]


def kept_groups(tree: Gang) -> Iterator[set[str]]:
    """Pod groups that running pods keep in one domain while pods of them are missing; the smallest part first.

    Those of all such parts together come last.
    """
    lacking = {group.name for group in tree.groups() if group.pods and group.need}
    parts = [{leaf.name for leaf in leaves_of(part)} for part in parts_of(tree.root) if part.required]
    parts += [set(names) for spread in tree.spreads if spread.is_required for _, names in spread.units]
    kept = sorted((names for names in parts if lacking & names), key=lambda names: (len(names), sorted(names)))
    seen = list[set[str]]()
    for names in [*kept, set[str]().union(*kept)]:
        if names and names not in seen:
            seen.append(names)
            yield names
