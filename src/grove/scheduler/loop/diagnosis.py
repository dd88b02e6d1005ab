"""Answers for `explain` and `queue`: why a gang waits, and in which order units wait. Decides nothing.

Reads a view and changes nothing in it but what is counted on nodes. The answers are values of `explain.explanation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from grove.api import conditions as words
from grove.api import labels
from grove.api.meta import find_condition, is_true
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.repack import Movable, NoRepack, Repack
from grove.scheduler.evict.running import Running
from grove.scheduler.explain.explanation import Diagnosis, InLine, ScoredGang, explain, scored
from grove.scheduler.loop.deciding.claim_homes import at_best_homes
from grove.scheduler.loop.deciding.victim_search import running_units
from grove.scheduler.loop.moving.movable import MovableGangs, repack_question
from grove.scheduler.loop.state.gang_trees import gang_order, tree_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.loop.state.waiting_demand import WaitingDemand
from grove.scheduler.model.answers import MOVE_OTHERS, OPENS_NODES, Budget, Change
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.gang import BadGang, Gang, Strategy
from grove.scheduler.model.reasons import INVALID, Reason
from grove.scheduler.policy.gang_state import Base, GangState, Readiness, readiness
from grove.scheduler.policy.waiting_queue import Order, Stage

MOST_PLANS = 4
"""The most gangs for which one answer looks for moves of others."""
PLAN_STEPS = Budget(6_000)


class LiveDiagnosis:
    """Answers about a view as it is now; after a change of the cluster others are to be made.

    What all gangs ask for, and what runs, is gathered once, however many gangs are asked about.
    """

    def __init__(
        self, view: View, strategy: Strategy = "pack", config: SchedulerConfiguration = SchedulerConfiguration()
    ) -> None:
        self._view, self._strategy, self._config = view, strategy, config
        self._plans_left = MOST_PLANS
        self._known: dict[str, Readiness] = {}

    def tell_queues(self) -> None:
        """Passes to policies what waits, as a turn does: for a scheduler that only follows, and takes no turns."""
        WaitingDemand(self._view).tell([name for name, turn in self._turns.items() if turn.stage is not None])

    @cached_property
    def _turns(self) -> dict[str, Readiness]:
        """Of all gangs; an answer about a few of them does not need it."""
        view = self._view
        return {gang.name: self._turn(gang) for gang in view.units.gangs.values() if view.concerns_us(gang)}

    def _turn(self, gang: GangState) -> Readiness:
        if gang.name not in self._known:
            self._known[gang.name] = readiness(gang, self._view.look(gang), self._base)
        return self._known[gang.name]

    @cached_property
    def _movable(self) -> list[Movable]:
        return MovableGangs(self._view, self._config).all()

    @cached_property
    def _running(self) -> list[Running]:
        return running_units(self._view)

    def diagnose(self, gang: GangState, *, most: int = 5) -> Diagnosis:
        """What keeps a gang from being placed, and up to `most` changes that would help, each tried on a copy.

        No advice removes another part of the same set.
        """
        diagnosis = self.question(gang, most=most)(self._view.snapshot)
        ask = self.moves_question(gang) if most and lacks_place(diagnosis) else None
        return with_moves(diagnosis, ask(self._view.snapshot), most) if ask is not None else diagnosis

    def question(self, gang: GangState, *, most: int = 5) -> Callable[[Snapshot], Diagnosis]:
        """`diagnose` without moves, in two parts: this one reads the view, the answer can be worked out in a thread."""
        view = self._view
        if view.has_minimum(gang):
            return self._surplus_question(gang, most)
        gate = _gate(self._turn(gang))
        try:
            tree = tree_of(view, gang, self._strategy)
        except BadGang as error:
            return _known(Diagnosis(gang.name, False, Reason(INVALID, str(error))))
        tree, others = self._prepared(tree), self._others(gang, most)

        def ask(snapshot: Snapshot) -> Diagnosis:
            return Diagnosis(gang.name, False, gate, explain(snapshot, tree, others, gate=gate, most=most))

        return ask

    def _surplus_question(self, gang: GangState, most: int) -> Callable[[Snapshot], Diagnosis]:
        """Why pods above the minimum of a placed gang wait, if any of them does and may have a node."""
        try:
            tree = tree_of(self._view, gang, self._strategy)
        except BadGang:
            return _known(Diagnosis(gang.name, True))
        if not any(group.pods for group in tree.groups()):
            return _known(Diagnosis(gang.name, True))
        tree, others = self._prepared(tree), self._others(gang, most)

        def ask(snapshot: Snapshot) -> Diagnosis:
            return Diagnosis(gang.name, True, explanation=explain(snapshot, tree, others, most=most, surplus=True))

        return ask

    def _prepared(self, tree: Gang) -> Gang:
        self._view.counted.refresh()  # reading its pods may add resources that the snapshot must count on nodes
        return at_best_homes(self._view, tree)

    def _others(self, gang: GangState, most: int) -> list[Running]:
        """Running units that might give way: none of the same set."""
        own = _set_of(gang)
        return [unit for unit in self._running if not self._is_of(unit.name, own)] if most else []

    def moves_question(self, gang: GangState) -> Callable[[Snapshot], Repack | NoRepack] | None:
        """Which moves of other gangs let it fit, in two parts too. The answer is about the first few gangs only."""
        if not self._plans_left:
            return None
        self._plans_left -= 1
        return repack_question(self._view, gang, self._movable, self._config, PLAN_STEPS)

    def waiting_line(self) -> list[InLine]:
        """Gangs without their minimum on nodes, in the order the scheduler takes them; who may not be taken last."""
        lines: list[tuple[tuple[bool, Order], InLine]] = []
        for name, turn in self._turns.items():
            state = self._view.units.gangs[name]
            if self._view.has_minimum(state) or not state.has_object:
                continue
            meta = state.podgang.metadata
            stage = turn.stage if turn.stage is not None else Stage.MINIMUM
            scheduled = (
                find_condition(state.podgang.status.conditions, words.SCHEDULED) if turn.stage is not None else None
            )
            line = InLine(
                meta.namespace,
                meta.name,
                state.priority,
                len(state.group_of),
                meta.creation_timestamp,
                turn.stage is not None,
                _gate(turn),
                scheduled.message if scheduled is not None else "",
            )
            lines.append(((turn.stage is None, gang_order(self._view, state, stage)), line))
        return [line for _, line in sorted(lines, key=lambda entry: entry[0])]

    def _base(self, name: str) -> Base:
        gang = self._view.units.gangs.get(name)
        if gang is None:
            return Base.ABSENT
        stands = is_true(gang.podgang.status.conditions, words.SCHEDULED) or self._view.has_minimum(gang)
        return Base.STANDS if stands else Base.WAITS

    def _is_of(self, unit: str, own: str) -> bool:
        state = self._view.units.gangs.get(unit)
        return bool(own) and state is not None and _set_of(state) == own


def lacks_place(diagnosis: Diagnosis) -> bool:
    """True if moves of other gangs may help: it lacks nothing but capacity."""
    return (
        not diagnosis.placed
        and diagnosis.gate is None
        and diagnosis.explanation is not None
        and not diagnosis.explanation.fits
    )


def with_moves(diagnosis: Diagnosis, plan: Repack | NoRepack, most: int) -> Diagnosis:
    """The diagnosis with a change that moves other gangs, if there is a plan. What restarts no pod comes before it."""
    if not isinstance(plan, Repack) or diagnosis.explanation is None:
        return diagnosis
    first = plan.moves[0]
    where = first.placement.domain.rpartition("/")[2] or min(pod.node for pod in first.placement.pods)
    numbers = {"gangs": len(plan.moves)}
    change = Change(MOVE_OTHERS, plan.cost[0], first.unit.name, numbers=numbers, names={"where": where})
    opened = [other for other in diagnosis.explanation.changes if other.kind in OPENS_NODES]
    rest = [other for other in diagnosis.explanation.changes if other.kind not in OPENS_NODES]
    changes = (*opened, change, *rest)[:most]
    return replace(diagnosis, explanation=replace(diagnosis.explanation, changes=changes))


def _known(diagnosis: Diagnosis) -> Callable[[Snapshot], Diagnosis]:
    return lambda _: diagnosis


def _gate(turn: Readiness) -> Reason | None:
    """What a gang waits for before a place is sought for it."""
    return turn.verdict.why if turn.stage is None and turn.verdict is not None else None


def scored_places(view: View, gang: GangState, strategy: Strategy = "pack") -> ScoredGang | None:
    """The scores of a gang's place and of the next best one; None if the PodGang contradicts itself."""
    try:
        tree = tree_of(view, gang, strategy, placed=False)
    except BadGang:
        return None
    twin = view.snapshot.copy()
    stands: dict[str, str] = {}
    for pod, _ in view.members(gang):
        if (node := view.counted.node_of(pod)) and not pod.metadata.is_deleting and node in twin.nodes.row_of:
            stands[pod.metadata.uid] = node
            twin.remove_pod(pod.metadata.uid)
    return scored(twin, tree, stands)


def _set_of(gang: GangState) -> str:
    return gang.podgang.metadata.labels.get(labels.PART_OF, "")
