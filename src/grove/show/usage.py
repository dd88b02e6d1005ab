"""GPU-hours by set, team and state, with the share that is idle and what it costs. Pure, but for `painted`, its text.

The figures are the scheduler's counters `grove_gpu_seconds_total`, from its own page or from a Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from grove.show.columns import table

METRIC = "grove_gpu_seconds"
OF_NODES = ("serving", "starting", "held", "broken")
"""States in which a GPU is taken."""
WAITING, IDLE = "waiting", "idle"
STATES = (*OF_NODES, WAITING)


class Sample(NamedTuple):
    """One counter: its labels, and GPU-seconds."""

    labels: Mapping[str, str]
    seconds: float


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price file: what a GPU-hour costs, for all queues or for some."""

    gpu_hour: float = msgspec.field(name="gpuHour")
    currency: str = ""
    queues: dict[str, float] = {}

    def of(self, queue: str) -> float:
        return self.queues.get(queue, self.gpu_hour)


class UsageLine(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """GPU-hours of one set, or of one team."""

    queue: str
    namespace: str = ""
    set: str = ""
    gpu_hours: dict[str, float] = {}
    """By state."""
    cost: float | None = None
    """Of GPUs that were taken. Waiting costs nothing."""

    @property
    def taken(self) -> float:
        return sum(self.gpu_hours.get(state, 0.0) for state in OF_NODES)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`since` says in words which time the figures are for."""

    since: str
    sets: tuple[UsageLine, ...]
    teams: tuple[UsageLine, ...]
    gpu_hours: float
    """Of all nodes."""
    idle_gpu_hours: float
    idle_share: float | None
    """None while there are no GPUs."""
    currency: str = ""
    idle_cost: float | None = None


def usage(samples: Iterable[Sample], since: str, prices: Prices | None = None, namespace: str = "") -> Usage:
    """The sums. Idle GPUs are those of all nodes, also if only one namespace is shown."""
    by_set: dict[tuple[str, str, str], dict[str, float]] = {}
    total = idle = 0.0
    for labels, seconds in samples:
        state, hours = labels.get("state", ""), seconds / 3600
        total += hours if state in (*OF_NODES, IDLE) else 0.0
        idle += hours if state == IDLE else 0.0
        if state not in STATES or (namespace and labels.get("namespace", "") != namespace):
            continue
        key = (labels.get("queue", ""), labels.get("namespace", ""), labels.get("set", ""))
        hours_of = by_set.setdefault(key, {})
        hours_of[state] = hours_of.get(state, 0.0) + hours
    by_team: dict[str, dict[str, float]] = {}
    for (queue, _, _), hours_of in by_set.items():
        team = by_team.setdefault(queue, {})
        for state, hours in hours_of.items():
            team[state] = team.get(state, 0.0) + hours
    sets = [_line(prices, queue, hours_of, where, name) for (queue, where, name), hours_of in by_set.items()]
    return Usage(
        since,
        tuple(sorted(sets, key=_most_first)),
        tuple(sorted((_line(prices, queue, hours_of) for queue, hours_of in by_team.items()), key=_most_first)),
        total,
        idle,
        idle / total if total > 0 else None,
        prices.currency if prices is not None else "",
        idle * prices.gpu_hour if prices is not None else None,
    )


def _line(
    prices: Prices | None, queue: str, hours: Mapping[str, float], namespace: str = "", name: str = ""
) -> UsageLine:
    line = UsageLine(queue, namespace, name, {state: hours[state] for state in STATES if state in hours})
    return line if prices is None else msgspec.structs.replace(line, cost=line.taken * prices.of(queue))


def _most_first(line: UsageLine) -> tuple[float, str, str, str]:
    return (-line.taken, line.queue, line.namespace, line.set)


def prometheus_query(seconds: int) -> str:
    """GPU-seconds of the last `seconds` seconds. Counters of a scheduler that ended count too."""
    return f"sum by (namespace, set, queue, state) (increase({METRIC}_total[{seconds}s]))"


def painted(usage: Usage, width: int) -> RenderableType:
    """Two tables, of sets and of teams, and a line about the nodes."""
    parts: list[RenderableType] = [Text(f"GPU-hours {usage.since}", style="bold")]
    if usage.sets:
        sets = [[_set_name(line), line.queue or "-", *_cells(line, usage)] for line in usage.sets]
        parts += [Text(""), _table(["SET", "TEAM"], sets, usage, width)]
    if any(line.queue for line in usage.teams):
        teams = [[line.queue or "-", *_cells(line, usage)] for line in usage.teams]
        parts += [Text(""), _table(["TEAM"], teams, usage, width)]
    if usage.idle_share is None:
        return Group(*parts, Text(""), Text("no GPUs were counted"))
    cost = f", {_money(usage.idle_cost, usage.currency)}" if usage.idle_cost is not None else ""
    idle = f"{usage.idle_share:.0%} idle: {usage.idle_gpu_hours:.1f} of {usage.gpu_hours:.1f} GPU-hours of all nodes"
    return Group(*parts, Text(""), Text(f"{idle}{cost}"))


def _table(first: list[str], rows: Sequence[Sequence[str]], usage: Usage, width: int) -> RenderableType:
    titles = [*first, *(state.upper() for state in STATES), *(["COST"] if usage.idle_cost is not None else [])]
    return table(titles, rows, width, right=titles[len(first) :])


def _set_name(line: UsageLine) -> str:
    return f"{line.namespace or '-'}/{line.set or '(no set)'}"


def _cells(line: UsageLine, usage: Usage) -> list[str]:
    hours = [f"{line.gpu_hours[state]:.1f}" if state in line.gpu_hours else "-" for state in STATES]
    return [*hours, *([_money(line.cost, usage.currency)] if line.cost is not None else [])]


def _money(amount: float | None, currency: str) -> str:
    return f"{amount or 0.0:,.2f} {currency}".rstrip()
