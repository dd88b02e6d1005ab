"""Why this place and no other: the scores of where a gang is, or would go, beside those of the next best place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.answers import Budget, Placement
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.solve.place import place

MOST_TRIED = 8
"""Nodes of the chosen place that are left out one by one, where none of them may be left out together."""


@dataclass(frozen=True, slots=True)
class ScoredPlace:
    """`columns` are sums over the pods, by score, times its weight; more is better."""

    nodes: Mapping[str, int]
    """Pods by node."""
    domain: str
    columns: Mapping[str, int]
    closeness: float | None = None
    """Fewest possible domains over those used, 0 to 1, which comes before every score; None for where pods run."""

    @property
    def total(self) -> int:
        return sum(self.columns.values())


@dataclass(frozen=True, slots=True)
class ScoredGang:
    gang: str
    runs: bool
    """Whether the chosen place is where it runs, not where it would go."""
    chosen: ScoredPlace | None
    next_best: ScoredPlace | None
    weights: Mapping[str, int]


def scored(snapshot: Snapshot, gang: Gang, stands: Mapping[str, str], budget: Budget = Budget()) -> ScoredGang:
    """The gang with all its pods waiting, on a snapshot without them; `stands` is where those that run do, by uid."""
    weights = {one.name: snapshot.seams.weights.get(one.name, 1) for one in snapshot.seams.scores}
    pods = [pod.on(stands[pod.uid]) for group in gang.groups() for pod in group.pods if pod.uid in stands]
    chosen: ScoredPlace | None = None
    if pods:
        chosen = _scored(snapshot, pods, "")
    elif isinstance(answer := place(snapshot, gang, budget), Placement):
        chosen = _scored(snapshot, answer.pods, answer.domain, answer.score)
    others = list(_others(snapshot, gang, chosen, budget)) if chosen is not None else []
    best = max(others, key=lambda one: (one.closeness or 0.0, one.total), default=None)
    return ScoredGang(gang.name, bool(pods), chosen, best, weights)


def _others(snapshot: Snapshot, gang: Gang, chosen: ScoredPlace, budget: Budget) -> Iterator[ScoredPlace]:
    """Places that use none of the chosen nodes; where there is none, those that do without one of them."""
    ways = [tuple(chosen.nodes), *((node,) for node in sorted(chosen.nodes)[:MOST_TRIED])]
    for number, closed in enumerate(ways):
        answer = place(snapshot, gang, budget, closed=closed)
        if isinstance(answer, Placement):
            yield _scored(snapshot, answer.pods, answer.domain, answer.score)
            if number == 0:
                return


def _scored(snapshot: Snapshot, pods: Sequence[PodFacts], domain: str, closeness: float | None = None) -> ScoredPlace:
    columns: Counter[str] = Counter()
    for score in snapshot.seams.scores:
        weight = snapshot.seams.weights.get(score.name, 1)
        for shape, nodes in _by_shape(pods).items() if weight else ():
            column = score.rows(snapshot, shape)
            if column is not None:
                columns[score.name] += weight * sum(int(column[snapshot.nodes.row_of[node]]) for node in nodes)
    return ScoredPlace(dict(sorted(Counter(pod.node for pod in pods).items())), domain, dict(columns), closeness)


def _by_shape(pods: Sequence[PodFacts]) -> dict[Shape, list[str]]:
    found: dict[Shape, list[str]] = {}
    for pod in pods:
        found.setdefault(pod.shape, []).append(pod.node)
    return found
