"""What the scheduler answers when somebody asks: why a gang waits, and who waits in which order. Decides nothing.

Reads a view and leaves it as it is; the answers are the values of `explain.diagnosis`.
"""

from __future__ import annotations

from grove.api import conditions as words
from grove.api import labels
from grove.api.meta import find_condition, is_true
from grove.scheduler.explain.explanation import Diagnosis, InLine, explain
from grove.scheduler.explain.scores import ScoredGang, scored
from grove.scheduler.loop.decisions import at_best_homes
from grove.scheduler.loop.nominate import running_units
from grove.scheduler.loop.trees import gang_order, tree_of
from grove.scheduler.loop.view import View
from grove.scheduler.model.gang import BadGang, Strategy
from grove.scheduler.model.reasons import INVALID, Reason
from grove.scheduler.policy.gangs import Base, GangState, readiness
from grove.scheduler.policy.queue import Order, Stage


def diagnose(view: View, gang: GangState, strategy: Strategy = "pack", *, most: int = 5) -> Diagnosis:
    """What keeps a gang from being placed, and up to `most` changes that would help, each tried out on a copy.

    Nobody is asked to make room for another part of the same set.
    """
    if view.has_minimum(gang):
        return Diagnosis(gang.name, True)
    view.quotas(_asking(view))
    turn = readiness(gang, view.look(gang), lambda base: _base(view, base))
    gate = turn.verdict.why if turn.stage is None and turn.verdict is not None else None
    try:
        tree = at_best_homes(view, tree_of(view, gang, strategy))
    except BadGang as error:
        return Diagnosis(gang.name, False, Reason(INVALID, str(error)))
    own = _set_of(gang)
    others = [one for one in running_units(view) if not _is_of(view, one.name, own)] if most else []
    return Diagnosis(gang.name, False, gate, explain(view.snapshot, tree, others, gate=gate, most=most))


def scored_places(view: View, gang: GangState, strategy: Strategy = "pack") -> ScoredGang | None:
    """The scores of a gang's place and of the next best one; None if the PodGang contradicts itself."""
    try:
        tree = tree_of(view, gang, strategy, placed=False)
    except BadGang:
        return None
    twin = view.snapshot.copy()
    stands: dict[str, str] = {}
    for pod, _ in view.members(gang):
        if (node := view.node_of(pod)) and not view.is_leaving(pod) and node in twin.nodes.row_of:
            stands[pod.metadata.uid] = node
            twin.remove_pod(pod.metadata.uid)
    return scored(twin, tree, stands)


def _set_of(gang: GangState) -> str:
    return gang.podgang.metadata.labels.get(labels.PART_OF, "")


def _is_of(view: View, unit: str, own: str) -> bool:
    found = view.gangs.get(unit)
    return bool(own) and found is not None and _set_of(found) == own


def _asking(view: View) -> list[str]:
    """Units that ask for room now: what queues count as waiting."""
    gangs = (gang for gang in view.gangs.values() if view.concerns_us(gang))
    ready = (
        gang.name
        for gang in gangs
        if readiness(gang, view.look(gang), lambda base: _base(view, base)).stage is not None
    )
    return [*ready, *(name for name in view.singles if not view.node_of(view.singles[name]))]


def _base(view: View, name: str) -> Base:
    gang = view.gangs.get(name)
    if gang is None:
        return Base.ABSENT
    stands = view.has_minimum(gang) or is_true(gang.podgang.status.conditions, words.SCHEDULED)
    return Base.STANDS if stands else Base.WAITS


def waiting_line(view: View) -> list[InLine]:
    """Gangs without their minimum on nodes, in the order the scheduler takes them; those it may not take yet last."""
    found: list[tuple[tuple[bool, Order], InLine]] = []
    view.quotas(_asking(view))
    for state in view.gangs.values():
        if not view.concerns_us(state) or view.has_minimum(state):
            continue
        turn = readiness(state, view.look(state), lambda base: _base(view, base))
        meta = state.podgang.metadata
        stage = turn.stage if turn.stage is not None else Stage.FLOOR
        said = find_condition(state.podgang.status.conditions, words.SCHEDULED)
        gate = turn.verdict.why if turn.stage is None and turn.verdict is not None else None
        line = InLine(
            meta.namespace, meta.name, state.priority, len(state.group_of), meta.creation_timestamp,
            turn.stage is not None, gate, said.message if said is not None and turn.stage is not None else "",
        )  # fmt: skip
        found.append(((turn.stage is None, gang_order(view, state, stage)), line))
    return [line for _, line in sorted(found, key=lambda one: one[0])]
