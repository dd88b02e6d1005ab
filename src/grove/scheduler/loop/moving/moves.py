"""Moves a gang on request: its new place is held first, then its pods are removed, and their replacements go there.

A set that drains is drained first; other pods are evicted.

The annotation `grove.io/move-to` of a PodGang is the request, or the scheduler itself asks (`ask`). Each request is
checked against the cluster as it is now. If the gang may not be moved, the PodGang gets the event `GangNotMoved`, and
nothing else happens. The hold is the one for pods that are being replaced (`Replacements`), with the new nodes in place
of the old ones. So it is written to the status, a scheduler that restarts finds it again, and it ends as soon as the
replacements have their nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import structlog

from grove.api.conditions import EventReason
from grove.api.draining import LONGEST_DRAIN_S
from grove.api.labels import MOVE_TO
from grove.api.meta import Key
from grove.api.move_request import InvalidMove, MoveRequest, read_move
from grove.kube.clock import Clock
from grove.scheduler.evict.repack import MOVED, Movable
from grove.scheduler.evict.running import broken_budgets
from grove.scheduler.filters.fit import has_place
from grove.scheduler.loop.deciding.victim_search import budgets_of, running_units
from grove.scheduler.loop.holds.replacements import ABSENT_S, Replacements
from grove.scheduler.loop.moving.movable import MovableGangs, closed_to_moved
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.writes.evictions import Evictions
from grove.scheduler.loop.writes.report import Reporter
from grove.scheduler.model.answers import Budget, Placement
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.gang_state import MOST_REPLACED, GangState, ReplacedPod
from grove.scheduler.solve.place import place_admitted

TERMINATES_S = 600.0
"""Pods of a gang that moves may take this long to terminate."""

log = structlog.get_logger(__name__)


class NotMoved(Exception):
    """The gang may not be moved now; the text says why."""


class MoveState(msgspec.Struct):
    """A request, and the answer of the last look."""

    text: str
    pods: tuple[PodFacts, ...] = ()
    """Pods to evict for it; none after a refusal."""
    refused: bool = False
    """Whether a disruption budget refused an eviction."""
    why: str = ""
    """Why the gang is not moved."""


class Moves:
    def __init__(
        self,
        view: View,
        replacements: Replacements,
        evictions: Evictions,
        reporter: Reporter,
        clock: Clock,
        config: SchedulerConfiguration,
    ) -> None:
        self._view, self._replacements, self._evictions = view, replacements, evictions
        self._reporter, self._clock, self._config = reporter, clock, config

    def ask(self, gang: str, move: MoveRequest | None) -> None:
        """A request of the scheduler itself; None withdraws it."""
        units = self._view.units
        if gang in units.gangs:
            units.of(gang).own_move = move.text() if move is not None else ""
            units.asked_to_move.add(gang)
            self._view.changes.wake()

    def refusal(self, gang: str) -> str:
        """Why the gang is not moved as requested; empty if it is, or if no turn has looked at the request."""
        unit = self._view.units.find(gang)
        known = unit.move if unit is not None else None
        return known.why if unit is not None and known is not None and known.text == unit.own_move else ""

    def turn(self) -> None:
        """Begins moves that are new, and calls off those that a disruption budget refuses."""
        units = self._view.units
        for name in sorted(units.asked_to_move):
            gang, unit = units.gangs.get(name), units.find(name)
            text = gang.podgang.metadata.annotations.get(MOVE_TO, "") if gang is not None else ""
            text = text or (unit.own_move if unit is not None else "")
            if gang is None or gang.podgang.metadata.is_deleting or not text:
                units.asked_to_move.discard(name)
                if unit is not None:
                    unit.move = None
                continue
            if not self._view.concerns_us(gang):
                continue
            unit = units.of(name)
            if unit.move is not None and unit.move.text == text:
                self._call_off_refused(gang, unit.move)
                continue
            state = unit.move = MoveState(text)
            try:
                request = read_move(text)
                if request.until > self._clock.now():
                    self._begin(gang, request, state)
            except (InvalidMove, NotMoved) as why:
                log.info("gang not moved", gang=name, reason=str(why))
                self._refuse(gang, state, str(why))

    def _begin(self, gang: GangState, request: MoveRequest, state: MoveState) -> None:
        movable = self._movable(gang)
        pods = movable.unit.pods
        if Counter(pod.node for pod in pods) == Counter(node for nodes in request.places.values() for node in nodes):
            return  # it is there already
        replaced = list(self._replaced(pods, request))
        self._check(
            gang, movable, request, [replaced_pod for _, replaced_pod in replaced if replaced_pod.uid.startswith(MOVED)]
        )
        gang.begin_move(frozenset(pod.uid for pod in pods), replaced)
        self._replacements.refresh(gang)
        self._reporter.touch(gang.name)
        state.pods = pods
        because = f"moved, so that {request.purpose} fits" if request.purpose else "moved on request"
        log.info("moving a gang", gang=gang.name, pods=len(pods), purpose=request.purpose)
        self._reporter.tell(gang, EventReason.GANG_MOVING, because)

        def note_refused() -> None:
            state.refused = True
            self._view.changes.wake()

        self._evictions.evict_gang(gang, list(pods), because, lambda: not state.refused, note_refused, drains=True)

    def _movable(self, gang: GangState) -> Movable:
        unit = next((unit for unit in running_units(self._view) if unit.name == gang.name), None)
        movable = MovableGangs(self._view, self._config).find(unit, gang) if unit is not None else None
        if movable is None:
            raise NotMoved("its set does not allow it, or a gang of its set is not complete and ready")
        if broken := broken_budgets(movable.unit.pods, budgets_of(self._view)):
            raise NotMoved(f"disruption budget {broken[0]} protects it")
        return movable

    def _replaced(self, pods: Sequence[PodFacts], request: MoveRequest) -> Iterator[tuple[str, ReplacedPod]]:
        """By group, what each pod leaves for: a new node, or the node it has."""
        until_s = asyncio.get_running_loop().time() + LONGEST_DRAIN_S + TERMINATES_S + ABSENT_S
        by_group: dict[str, list[PodFacts]] = {}
        for pod in pods:
            by_group.setdefault(pod.group, []).append(pod)
        if {group: len(nodes) for group, nodes in request.places.items() if nodes} != {
            group: len(members) for group, members in by_group.items()
        }:
            raise NotMoved("the request does not name one node for each of its pods")
        for group, members in sorted(by_group.items()):
            if len({pod.shape for pod in members}) > 1 or len(members) > MOST_REPLACED:
                raise NotMoved(f"the pods of {group} are not alike, or too many")
            left = list(request.places[group])
            leaving = []
            for pod in members:
                if pod.node in left:
                    left.remove(pod.node)
                    yield group, ReplacedPod(pod.uid, pod.node, pod.shape, until_s)
                else:
                    leaving.append(pod)
            for pod, node in zip(leaving, left, strict=True):
                yield group, ReplacedPod(MOVED + pod.uid, node, pod.shape, until_s)

    def _check(self, gang: GangState, movable: Movable, request: MoveRequest, arriving: Sequence[ReplacedPod]) -> None:
        """Whether its place is free now, open to it, and meets its constraints."""
        view, nodes = self._view, {node for named in request.places.values() for node in named}
        if unknown := sorted(nodes - view.snapshot.nodes.row_of.keys()):
            raise NotMoved(f"there is no node {unknown[0]}")
        closed = closed_to_moved(view, gang)
        if held := sorted(nodes & closed.keys()):
            raise NotMoved(f"node {held[0]} is held for {closed[held[0]].owner}")
        old = {MOVED + pod.uid: pod for pod in movable.unit.pods}
        new = [
            msgspec.structs.replace(old[replaced_pod.uid], uid=replaced_pod.uid, node=replaced_pod.node)
            for replaced_pod in arriving
        ]
        if not has_place(view.snapshot, new):
            raise NotMoved("its new place is not free any more")
        others = tuple(sorted(view.snapshot.nodes.row_of.keys() - nodes))
        empty = view.snapshot.without([pod.uid for pod in movable.unit.pods])
        answer = place_admitted(empty, movable.tree, Budget(), others, None, None)
        if not isinstance(answer, Placement) or answer.unplaced:
            raise NotMoved("its new place does not meet its constraints")

    def _call_off_refused(self, gang: GangState, state: MoveState) -> None:
        """A disruption budget refused before the first pod left: the gang stays. Else the rest of it follows."""
        if not state.refused or gang.life.is_busy:
            return
        state.refused = False
        gone = [pod for pod in state.pods if not self._runs(pod)]
        if gone:
            left = [pod for pod in state.pods if self._runs(pod)]
            if left:
                self._evictions.evict_gang(gang, left, "moved on request", lambda: True, drains=True)
            return
        gang.call_off_move()
        self._replacements.refresh(gang)
        self._reporter.touch(gang.name)
        self._refuse(gang, state, "a disruption budget refused the eviction")

    def _refuse(self, gang: GangState, state: MoveState, why: str) -> None:
        state.why = f"the gang stays where it is: {why}"
        self._reporter.warn(gang, EventReason.GANG_NOT_MOVED, state.why)

    def _runs(self, pod: PodFacts) -> bool:
        known = self._view.pods.get(Key(pod.namespace, pod.name))
        return known is not None and known.metadata.uid == pod.uid and not known.metadata.is_deleting
