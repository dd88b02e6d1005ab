"""Scores of places as tables: one line for each score, the chosen place beside the next best one."""

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
    for gang in gangs:
        parts += _gang_lines(gang, width)
    return Group(*parts) if parts else Text("no gangs of this scheduler")


def _gang_lines(scored_gang: ScoredGang, width: int) -> list[RenderableType]:
    head = Text().append(f"{scored_gang.gang}: ", style="bold")
    if scored_gang.chosen is None:
        return [head.append("there is no place for it; explain without --scores says why", style="yellow")]
    parts: list[RenderableType] = [
        head.append("is on " if scored_gang.runs else "would go to ").append(_where(scored_gang.chosen))
    ]
    other = scored_gang.next_best
    parts += indented(f"next best: {_where(other)}" if other else "there is no other place for it", width)
    named = [
        name
        for name in scored_gang.weights
        if any(name in place.columns for place in (scored_gang.chosen, other) if place)
    ]
    rows = [
        (name, str(scored_gang.weights[name]), _value(scored_gang.chosen, name), _value(other, name)) for name in named
    ]
    if not rows:
        return [*parts, *indented("all scores of these places are equal: the tightest is taken", width, style="dim")]
    rows.append(("together", "", str(scored_gang.chosen.total), str(other.total) if other else "–"))
    parts.append(table(TITLES, rows, width, right=TITLES[1:]))
    if other is not None and other.total > scored_gang.chosen.total:
        parts += indented(why_not_the_higher(scored_gang.runs, scored_gang.chosen, other), width, style="dim")
    return [*parts, Text("")]


def why_not_the_higher(runs: bool, chosen: ScoredPlace, other: ScoredPlace) -> str:
    """Why the place with the higher sum of scores is not the chosen one."""
    if runs:
        return "the next best place scores higher now; a gang that runs is not moved for a better score"
    if chosen.closeness is not None and other.closeness is not None and chosen.closeness > other.closeness:
        closer = f"{chosen.closeness:.2f} against {other.closeness:.2f}"
        return f"the chosen place uses fewer topology domains ({closer}), which counts before every score"
    return "the scheduler chooses the domain first; scores compare only the nodes and domains that hold it equally well"


def _value(place: ScoredPlace | None, name: str) -> str:
    return "–" if place is None or name not in place.columns else str(place.columns[name])


def _where(place: ScoredPlace) -> str:
    shown = [f"{node} ({pods})" for node, pods in list(place.nodes.items())[:MOST_NAMED]]
    more = len(place.nodes) - len(shown)
    named = ", ".join(shown) + (f" and {many(more, 'more node')}" if more > 0 else "")
    return f"{place.domain}: {named}" if place.domain else named
