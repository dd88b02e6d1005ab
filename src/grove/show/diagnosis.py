"""Why a gang is not running, from the outside in, with the scheduler's own eyes: its view, its core, its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from grove.api import conditions as words
from grove.api.meta import Key, find_condition
from grove.scheduler.explain.explanation import Explanation, explain
from grove.scheduler.loop.readiness import readiness, tree_of
from grove.scheduler.loop.running import running_units
from grove.scheduler.loop.sharing import at_best_homes
from grove.scheduler.loop.view import View
from grove.scheduler.model.gang import BadGang, Strategy
from grove.scheduler.policy.gangs import GangState
from grove.scheduler.policy.queue import Order, Stage
from grove.show.words import by_name, refusal


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`placed` gangs have their minimum on nodes; the others wait for a gate or for room, as `explanation` says."""

    gang: str
    placed: bool
    gates: tuple[str, ...] = ()
    explanation: Explanation | None = None

    @property
    def cannot_fit(self) -> bool:
        return not self.placed and not self.gates and self.explanation is not None and not self.explanation.fits


def diagnose(view: View, gang: GangState, strategy: Strategy = "pack") -> Diagnosis:
    """What keeps a gang from being placed, tried out on a copy of the cluster as the view has it."""
    if view.has_minimum(gang):
        return Diagnosis(gang.name, True)
    turn = readiness(view, gang, lambda base: _stands(view, base))
    gates = (turn.verdict.message,) if turn.stage is None and turn.verdict is not None else ()
    try:
        tree = at_best_homes(view, tree_of(view, gang, strategy))
    except BadGang as error:
        return Diagnosis(gang.name, False, (str(error),))
    return Diagnosis(gang.name, False, gates, explain(view.snapshot, tree, running_units(view), gates=gates))


def _stands(view: View, base: str) -> bool:
    gang = view.gangs.get(base)
    if gang is None:
        return False
    said = find_condition(gang.podgang.status.conditions, words.SCHEDULED)
    return view.has_minimum(gang) or (said is not None and said.status == words.TRUE)


@dataclass(frozen=True, slots=True)
class InLine:
    """A gang that waits. `can_start` is False while something else has to happen before it is considered at all."""

    namespace: str
    name: str
    priority: int
    pods: int
    created: datetime | None
    can_start: bool
    waits_for: str


def waiting_line(view: View, refused: Mapping[Key, str] = {}) -> list[InLine]:
    """Gangs without their minimum on nodes, in the order the scheduler takes them; those it may not take yet last.

    `refused` has cliques whose pods cannot be made, and why.
    """
    found: list[tuple[tuple[bool, Order], InLine]] = []
    for state in view.gangs.values():
        if not view.concerns_us(state) or view.has_minimum(state):
            continue
        turn = readiness(view, state, lambda base: _stands(view, base))
        meta = state.podgang.metadata
        created_s = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        stage = turn.stage if turn.stage is not None else Stage.FLOOR
        said = find_condition(state.podgang.status.conditions, words.SCHEDULED)
        levels = [(key.rpartition("/")[2], key) for keys in view.snapshot.topologies.values() for key in keys]
        own = (Key(meta.namespace, group.name) for group in state.podgang.spec.podgroups)
        stuck = next((refusal(refused[key]) for key in own if key in refused), "")
        if turn.stage is None:
            why = stuck or (turn.verdict.message if turn.verdict is not None else "its pods")
        else:
            why = by_name(said.message, levels) if said is not None and said.message else "its turn"
        line = InLine(
            meta.namespace, meta.name, state.priority, len(state.group_of), meta.creation_timestamp,
            turn.stage is not None, why,
        )  # fmt: skip
        found.append(((turn.stage is None, Order(-state.priority, stage, created_s, state.name)), line))
    return [line for _, line in sorted(found, key=lambda one: one[0])]
