"""Scores of places as tables: a line a score, the chosen place beside the next best one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from grove.api.words import many
from grove.scheduler.explain.explanation import ScoredGang, ScoredPlace
from grove.show.columns import indented, table

TITLES = ("SCORE", "WEIGHT", "CHOSEN", "NEXT BEST")
MOST_NAMED = 6


def scores_tables(gangs: Sequence[ScoredGang], width: int) -> RenderableType:
    parts: list[RenderableType] = []
    for one in gangs:
        parts += _told(one, width)
    return Group(*parts) if parts else Text("no gangs of this scheduler")


def _told(one: ScoredGang, width: int) -> list[RenderableType]:
    head = Text().append(f"{one.gang}: ", style="bold")
    if one.chosen is None:
        return [head.append("there is no place for it; explain without --scores says why", style="yellow")]
    parts: list[RenderableType] = [head.append("is on " if one.runs else "would go to ").append(_where(one.chosen))]
    other = one.next_best
    parts += indented(f"next best: {_where(other)}" if other else "there is no other place for it", width)
    named = [name for name in one.weights if any(name in place.columns for place in (one.chosen, other) if place)]
    rows = [(name, str(one.weights[name]), _value(one.chosen, name), _value(other, name)) for name in named]
    if not rows:
        return [*parts, *indented("no score tells these places apart: the tightest is taken", width, style="dim")]
    rows.append(("together", "", str(one.chosen.total), str(other.total) if other else "–"))
    return [*parts, table(TITLES, rows, width, right=TITLES[1:]), Text("")]


def _value(place: ScoredPlace | None, name: str) -> str:
    return "–" if place is None or name not in place.columns else str(place.columns[name])


def _where(place: ScoredPlace) -> str:
    shown = [f"{node} ({pods})" for node, pods in list(place.nodes.items())[:MOST_NAMED]]
    more = len(place.nodes) - len(shown)
    named = ", ".join(shown) + (f" and {many(more, 'more node')}" if more > 0 else "")
    return f"{place.domain}: {named}" if place.domain else named
