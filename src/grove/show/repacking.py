"""Plans to move gangs, so that a waiting one fits or for the whole fleet: as values for programs and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType

from grove.api.fragmentation import GangSize
from grove.api.words import many
from grove.diagnosis.reasons import sentence
from grove.diagnosis.words import listed
from grove.scheduler.evict.fleet_repack import FleetRepack, Measure
from grove.scheduler.evict.repack import Move, NoRepack, Repack
from grove.scheduler.model.reasons import NOT_ENOUGH_FREE
from grove.show.columns import indented, table

MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class MoveShown:
    """`source` are the nodes of its pods now, `target` the new ones by pod group; `domain` is the new domain."""

    gang: str
    pods: int
    priority: int
    source: tuple[str, ...]
    target: Mapping[str, tuple[str, ...]]
    domain: str = ""


@dataclass(frozen=True, slots=True)
class RepackShown:
    """`why` says why there is no plan; it is empty if there is one. `target` is where the waiting gang fits then."""

    gang: str
    moves: tuple[MoveShown, ...] = ()
    restarts: int = 0
    target: Mapping[str, tuple[str, ...]] | None = None
    domain: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class LevelShown:
    """The fragmentation at a level now, and after all moves."""

    name: str
    key: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class FleetStepShown:
    """Moves after which one more gang of the size fits; `after` is the fragmentation then."""

    moves: tuple[MoveShown, ...]
    restarts: int
    after: float


@dataclass(frozen=True, slots=True)
class FleetShown:
    """`level` is the one that the plan is for. `why` says why there are no moves, or no further ones."""

    resource: str
    size: GangSize | None = None
    level: str = ""
    before: float = 0.0
    after: float = 0.0
    restarts: int = 0
    steps: tuple[FleetStepShown, ...] = ()
    levels: tuple[LevelShown, ...] = ()
    why: str = ""


def fleet_shown(fleet_repack: FleetRepack, measure: Measure, level: str, levels: Iterable[LevelShown]) -> FleetShown:
    steps = tuple(
        FleetStepShown(tuple(map(_move, step.moves)), step.restarts, step.after) for step in fleet_repack.steps
    )
    why = sentence(fleet_repack.why) if fleet_repack.why is not None else ""
    if fleet_repack.why is not None and fleet_repack.why.kind == NOT_ENOUGH_FREE:
        # The sentence has the amounts of a copy that is filled with further gangs.
        why = "what these gangs cannot use is less than one more of them needs" if fleet_repack.after else ""
    if not fleet_repack.before:
        why = "gangs of this size can use everything that is free"
    restarts = sum(step.restarts for step in steps)
    return FleetShown(
        measure.resource,
        measure.size,
        level,
        fleet_repack.before,
        fleet_repack.after,
        restarts,
        steps,
        tuple(levels),
        why,
    )


def shown(answer: Repack | NoRepack) -> RepackShown:
    if isinstance(answer, NoRepack):
        return RepackShown(answer.gang, why=sentence(answer.why))
    target: dict[str, list[str]] = {}
    for pod in answer.placement.pods:
        target.setdefault(pod.group, []).append(pod.node)
    return RepackShown(
        answer.gang,
        tuple(map(_move, answer.moves)),
        answer.cost[0],
        {group: tuple(sorted(nodes)) for group, nodes in sorted(target.items())},
        domain_of(answer.placement.domain),
    )


def _move(move: Move) -> MoveShown:
    unit = move.unit
    source = tuple(sorted(pod.node for pod in unit.pods))
    return MoveShown(unit.name, len(unit.pods), unit.priority, source, move.places, domain_of(move.placement.domain))


def domain_of(path: str) -> str:
    """The last part of a domain's path: `r7` of `z1/b2/r7`."""
    return path.rpartition("/")[2]


def repack_table(plan: RepackShown, width: int) -> RenderableType:
    if plan.why:
        return Group(*indented(f"{plan.gang}: {plan.why}", width, 0, "yellow"))
    rows = [
        (str(i), move.gang, str(move.pods), _nodes(move.source), _target(move))
        for i, move in enumerate(plan.moves, start=1)
    ]
    fits = plan.domain or _nodes(node for nodes in (plan.target or {}).values() for node in nodes)
    return Group(
        table(("STEP", "GANG", "PODS", "FROM", "TO"), rows, width, right=("STEP", "PODS")),
        *indented(f"then {plan.gang} fits in {fits}; {many(plan.restarts, 'pod')} in all would restart", width, 0),
    )


def fleet_table(plan: FleetShown, width: int) -> RenderableType:
    if plan.size is None or not plan.level:
        return Group(*indented(plan.why, width, 0))
    levels = [(level.name, f"{level.before:.0%}", f"{level.after:.0%}") for level in plan.levels]
    parts: list[RenderableType] = [table(("LEVEL", "NOW", "AFTER"), levels, width, right=("NOW", "AFTER"))]
    unit = plan.resource.rpartition("/")[2]
    meaning = f"share of the free {unit} that gangs of {plan.size.words} in one domain cannot use"
    parts += indented(meaning, width, 0, "dim")
    if plan.steps:
        titles = ("STEP", "GANG", "PODS", "FROM", "AFTER", "TO")
        parts += ["", table(titles, _fleet_rows(plan), width, right=("STEP", "PODS", "AFTER"))]
        moves = sum(len(step.moves) for step in plan.steps)
        more = f"{many(len(plan.steps), 'gang')} more of this size would fit in one {plan.level}"
        parts += indented(f"after {many(moves, 'move')} {more}; {many(plan.restarts, 'pod')} would restart", width, 0)
    if plan.why:
        parts += indented(f"no {'further moves' if plan.steps else 'moves'}: {plan.why}", width, 0, "yellow")
    return Group(*parts)


def _fleet_rows(plan: FleetShown) -> Iterator[tuple[str, ...]]:
    for number, step in enumerate(plan.steps, start=1):
        for move in step.moves:
            after = f"{step.after:.0%}" if move is step.moves[-1] else ""
            yield str(number), move.gang, str(move.pods), _nodes(move.source), after, _target(move)


def _target(move: MoveShown) -> str:
    nodes = _nodes(node for nodes in move.target.values() for node in nodes)
    return f"{move.domain}: {nodes}" if move.domain else nodes


def _nodes(nodes: Iterable[str]) -> str:
    """Nodes with their numbers of pods: `r7-0 (2), r7-1`."""
    counts = sorted(Counter(nodes).items())
    return listed([f"{node} ({n})" if n > 1 else node for node, n in counts], MOST_NAMED)
