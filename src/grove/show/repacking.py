"""A plan to move gangs so that a waiting one fits, as a value for programs and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType

from grove.api.words import many
from grove.scheduler.evict.repack import Move, NoRepack, Repack
from grove.show.columns import indented, table
from grove.show.reasons import sentence
from grove.show.words import listed

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


def shown(found: Repack | NoRepack) -> RepackShown:
    if isinstance(found, NoRepack):
        return RepackShown(found.gang, why=sentence(found.why))
    target: dict[str, list[str]] = {}
    for pod in found.placement.pods:
        target.setdefault(pod.group, []).append(pod.node)
    return RepackShown(
        found.gang,
        tuple(map(_move, found.moves)),
        found.cost[0],
        {group: tuple(sorted(nodes)) for group, nodes in sorted(target.items())},
        domain_of(found.placement.domain),
    )


def _move(move: Move) -> MoveShown:
    unit = move.unit
    source = tuple(sorted(pod.node for pod in unit.pods))
    return MoveShown(unit.name, len(unit.pods), unit.priority, source, move.places, domain_of(move.placement.domain))


def domain_of(path: str) -> str:
    """The last part of a domain's path: `r7` of `z1/b2/r7`."""
    return path.rpartition("/")[2]


def sentence_of(move: MoveShown) -> str:
    """`gang team/chat-0 moved to r7 (4 pods restart)`."""
    where = move.domain or _nodes(node for nodes in move.target.values() for node in nodes)
    restarts = "pod restarts" if move.pods == 1 else "pods restart"
    return f"gang {move.gang} moved to {where} ({move.pods} {restarts})"


def repack_table(plan: RepackShown, width: int) -> RenderableType:
    if plan.why:
        return Group(*indented(f"{plan.gang}: {plan.why}", width, 0, "yellow"))
    rows = [
        (str(i), one.gang, str(one.pods), _nodes(one.source), _target(one)) for i, one in enumerate(plan.moves, start=1)
    ]
    fits = plan.domain or _nodes(node for nodes in (plan.target or {}).values() for node in nodes)
    return Group(
        table(("STEP", "GANG", "PODS", "FROM", "TO"), rows, width, right=("STEP", "PODS")),
        *indented(f"then {plan.gang} fits in {fits}; {many(plan.restarts, 'pod')} in all would restart", width, 0),
    )


def _target(move: MoveShown) -> str:
    nodes = _nodes(node for nodes in move.target.values() for node in nodes)
    return f"{move.domain}: {nodes}" if move.domain else nodes


def _nodes(nodes: Iterable[str]) -> str:
    """Nodes with their numbers of pods: `r7-0 (2), r7-1`."""
    counts = sorted(Counter(nodes).items())
    return listed([f"{node} ({n})" if n > 1 else node for node, n in counts], MOST_NAMED)
