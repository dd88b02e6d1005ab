"""Two runs side by side: the figures that matter, and which run is better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grove.api.meta import Json
from grove.fleet.report import share, span

NEAR = 0.05
"""Differences below five percent are shown, and not called better or worse."""
NEAR_S = 10.0
"""So are differences in time of less than this: gangs that wait for a second and for two seconds do not wait."""
NEAR_SHARE = 0.001
"""So are differences of less than this in a share."""
_LEAST = {"time": NEAR_S, "share": NEAR_SHARE}


def _count(value: float | None) -> str:
    return f"{value or 0:,.0f}"


_SHOWN = {"share": share, "time": span, "count": _count}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of two runs. `better` is 'a', 'b' or '' when they are about the same."""

    name: str
    a: str
    b: str
    better: str


def compare(a: Json, b: Json) -> list[Row]:
    """The differences between two results. What only one of them has, a set or a team, is shown as missing."""
    pairs = (pair for pair in _pairs(a, b) if pair[2:] != (None, None))
    return [_row(name, left, right, kind) for name, kind, left, right in pairs]


Pair = tuple[str, str, float | None, float | None]
"""Name and kind of a figure, and its two values; None if a run has no such figure."""


def _pairs(a: Json, b: Json) -> Iterator[Pair]:
    for state, kind in (("serving", "more"), ("idle", "less")):
        yield f"GPU time {state}", f"share {kind}", a["utilisation"][state], b["utilisation"][state]
    yield "fragmentation", "share less", a["fragmentation"], b["fragmentation"]
    for what in a["waiting"]:
        for name, left, right in _both(a["waiting"][what], b["waiting"][what]):
            label = "waiting" if what == "all" else f"waiting, {what} {name}" if what != "size" else f"waiting, {name}"
            yield from _spreads(label, left, right)
    yield from _spreads("waiting after the loss of a place", a["waitingAgain"], b["waitingAgain"])
    yield "gangs still waiting", "count less", len(a["stillWaiting"]), len(b["stillWaiting"])
    yield "batch gangs finished", "count more", a["batch"]["finished"], b["batch"]["finished"]
    for name, left, right in _both(a["serving"], b["serving"]):
        yield from _serving_pairs(name, left, right)
    for name, left, right in _both(a["teams"], b["teams"]):
        yield f"team {name}, got of due", "share more", *_of("fairness", left, right)
    for name, left, right in _both(a["events"], b["events"]):
        yield name, "count", left, right
    for name, left, right in _both(a["writes"], b["writes"]):
        yield f"API writes of the {name}", "count less", left, right


def _serving_pairs(name: str, left: Json | None, right: Json | None) -> Iterator[Pair]:
    yield f"{name} below its minimum", "time less", *_of("belowMinimum", left, right)
    yield f"{name} below its budget", "time less", *_of("belowBudget", left, right)
    served_a, served_b = _of("servedShare", left, right)
    lost_a, lost_b = (None if served is None else 1 - served for served in (served_a, served_b))
    yield f"{name} requests lost", "share less", lost_a, lost_b
    updates_a, updates_b = ((side or {}).get("updates") for side in (left, right))
    for figure in ("p50", "worst"):
        yield f"{name} updates, {figure}", "time less", *_of(figure, updates_a, updates_b)
    yield f"{name} restarts", "count less", *_of("restarts", left, right)


def _both(a: Json, b: Json) -> Iterator[tuple[str, Any, Any]]:
    """The values of each name that one of two has, in the order of the first."""
    for name in [*a, *(name for name in b if name not in a)]:
        yield name, a.get(name), b.get(name)


def _of(figure: str, left: Json | None, right: Json | None) -> tuple[float | None, float | None]:
    return (left or {}).get(figure), (right or {}).get(figure)


def _spreads(label: str, left: Json | None, right: Json | None) -> Iterator[Pair]:
    if left is None and right is None:
        return
    for figure in ("p50", "p95", "worst"):
        yield f"{label}, {figure}", "time less", *_of(figure, left, right)


def _row(name: str, a: float | None, b: float | None, kind: str) -> Row:
    unit, _, wanted = kind.partition(" ")
    shown = _SHOWN[unit]
    better = ""
    if a is not None and b is not None and wanted and abs(a - b) > max(NEAR * max(abs(a), abs(b)), _LEAST.get(unit, 0)):
        better = "a" if (a > b) == (wanted == "more") else "b"
    left, right = ("–" if value is None else shown(value) for value in (a, b))
    return Row(name, left, right, better)
