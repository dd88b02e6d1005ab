"""Two runs side by side: the figures that matter, and which run is better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    """The differences between two results; rows that only one of them has are left out."""
    return [_row(name, left, right, kind) for name, kind, left, right in _pairs(a, b)]


def _pairs(a: Json, b: Json) -> Iterator[tuple[str, str, float, float]]:
    for state, kind in (("serving", "more"), ("idle", "less")):
        yield f"GPU time {state}", f"share {kind}", a["utilisation"][state], b["utilisation"][state]
    yield "fragmentation", "share less", a["fragmentation"], b["fragmentation"]
    for what, rows in a["waiting"].items():
        for name, left in rows.items():
            right = b["waiting"][what].get(name)
            if right is None:
                continue
            label = "waiting" if what == "all" else f"waiting, {what} {name}" if what != "size" else f"waiting, {name}"
            for figure in ("p50", "p95", "worst"):
                yield f"{label}, {figure}", "time less", left[figure], right[figure]
    yield "gangs still waiting", "count less", len(a["stillWaiting"]), len(b["stillWaiting"])
    yield "batch gangs finished", "count more", a["batch"]["finished"], b["batch"]["finished"]
    for name, left in a["serving"].items():
        right = b["serving"].get(name)
        if right is not None:
            yield f"{name} below its minimum", "time less", left["belowMinimum"], right["belowMinimum"]
            lost_a, lost_b = (1 - one["servedShare"] for one in (left, right))
            yield f"{name} requests lost", "share less", lost_a, lost_b
    for name, left in a["events"].items():
        yield name, "count", left, b["events"].get(name, 0)
    for name, left in a["writes"].items():
        yield f"API writes of the {name}", "count less", left, b["writes"].get(name, 0)


def _row(name: str, a: float, b: float, kind: str) -> Row:
    unit, _, wanted = kind.partition(" ")
    shown = _SHOWN[unit]
    apart = abs(a - b) > max(NEAR * max(abs(a), abs(b)), _LEAST.get(unit, 0.0))
    better = ""
    if apart and wanted:
        better = "a" if (a > b) == (wanted == "more") else "b"
    return Row(name, shown(a), shown(b), better)
