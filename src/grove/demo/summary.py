"""The end of a story in numbers: every gang with its place and its times, and the whole."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group

from grove.api.podgang import PodGang
from grove.api.words import many
from grove.demo.chronicle import Chronicle
from grove.diagnosis.tree import tree_of
from grove.plan.world import World
from grove.show.columns import table
from grove.show.layout import layout_of


@dataclass(frozen=True, slots=True)
class GangLine:
    """`placed_s` is from its creation to its placement, `ready_s` from there to running; None if it never came."""

    name: str
    phase: str
    pods: int
    nodes: int
    where: str
    score: float | None
    placed_s: float | None
    ready_s: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    gangs: tuple[GangLine, ...]
    sets: int
    pods: int
    ready: int
    accelerators_used: int
    accelerators: int
    virtual_s: float
    operator_writes: int
    scheduler_writes: int


def summarize(world: World, chronicle: Chronicle) -> Summary:
    seen = world.seen()
    levels = seen.levels()
    lines = []
    for gang in world.all(PodGang):
        name = gang.metadata.name
        record = chronicle.gangs.get(name)
        pods = world.pods_of(name)
        nodes = sorted({pod.spec.node_name for pod in pods if pod.is_bound})
        paths = [seen.path(node, levels) for node in nodes]
        where = ""
        for depth in range(len(levels)):
            values = {path[depth] for path in paths}
            where = values.pop() if len(values) == 1 else where
        placed = record.placed_s if record else None
        lines.append(
            GangLine(
                name,
                gang.status.phase,
                len(pods),
                len(nodes),
                where,
                gang.status.placement_score,
                _span(record.created_s if record else None, placed),
                _span(placed, record.ready_s if record else None),
            )
        )
    counts = [tree_of(seen, pcs).count for pcs in seen.sets]
    layout = layout_of(seen)
    return Summary(
        tuple(lines),
        len(seen.sets),
        sum(count.wanted for count in counts),
        sum(count.ready for count in counts),
        layout.root.used,
        layout.root.total,
        round(chronicle.now_s, 1),
        world.operator_client.writes,
        world.scheduler_client.writes,
    )


def _span(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else round(end - begin, 3)


def summary_table(summary: Summary, width: int) -> Group:
    titles = ("GANG", "PHASE", "WHERE", "PODS", "NODES", "SCORE", "PLACED AFTER", "RUNNING AFTER")
    rows = []
    for gang in summary.gangs:
        score = "" if gang.score is None else f"{gang.score:.2f}"
        times = (_time(gang.placed_s), _time(gang.ready_s))
        rows.append((gang.name, gang.phase, gang.where, str(gang.pods), str(gang.nodes), score, *times))
    return table(titles, rows, width, may_go=("NODES", "PHASE"), right=titles[3:])


def summary_line(summary: Summary) -> str:
    count = f"{many(summary.sets, 'set')}, {many(len(summary.gangs), 'gang')}"
    return (
        f"{count}, {summary.ready} of {many(summary.pods, 'pod')} ready, "
        f"{summary.accelerators_used} of {many(summary.accelerators, 'GPU')} in use; "
        f"{summary.virtual_s:g} s of virtual time, "
        f"{summary.operator_writes} writes of the operator, {summary.scheduler_writes} of the scheduler"
    )


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"
