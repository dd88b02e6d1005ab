"""Why a gang is pending, with numbers, and the smallest changes that would make it fit, each tried out by `place`.

Findings go from the outside in: gates, the gang against the cluster, the closest domain, the nodes. Changes come from
`changes`; none is named that was not verified on a copy of the snapshot. `Diagnosis` and `InLine` are what `explain`
and `queue` are answered with. `scored` says why this place and no other: the scores of where a gang is, or would go,
beside those of the next best place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import Running
from grove.scheduler.explain.helpful_changes import smallest_changes
from grove.scheduler.filters.fit import nodes_for_groups, scarcest
from grove.scheduler.model.answers import Budget, Change, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import CLOSEST, FITS, GROUP_CAPACITY, SCORED, TOGETHER, Reason
from grove.scheduler.policy.queue_tree import NO_LIMIT
from grove.scheduler.solve.bounds import PartCapacity, bounds_for
from grove.scheduler.solve.place import place
from grove.scheduler.solve.problem import Part, Problem, state_problem
from grove.scheduler.solve.search_state import SearchState

if TYPE_CHECKING:
    from grove.scheduler.policy.quota_policy import Quota

TRIAL = Budget(4_000)


@dataclass(frozen=True, slots=True)
class Explanation:
    """`why` is the blocking constraint, for one line; `findings` go from the outside in: gang, domain, nodes."""

    gang: str
    fits: bool
    why: Reason
    findings: tuple[Reason, ...]
    changes: tuple[Change, ...]
    proven: bool = True
    version: int = 0

    @property
    def reason(self) -> str:
        return self.why.kind


def explain(
    snapshot: Snapshot,
    gang: Gang,
    running: Sequence[Running] = (),
    *,
    gate: Reason | None = None,
    most: int = 5,
    surplus: bool = False,
) -> Explanation:
    """Why a gang waits. `gate` is why it is not considered yet; units in `running` may be evicted.

    `surplus`: its minimum runs, and the question is why its other pods wait.
    """
    own, gang = gang, gang.wanting_all() if surplus else gang
    answer = place(snapshot, gang, TRIAL)
    if isinstance(answer, Placement):
        why = gate or Reason(FITS, numbers={"pods": answer.core, "score": answer.score})
        liked = tuple(scores_of(snapshot, answer))
        return Explanation(gang.name, gate is None, why, liked, (), True, snapshot.version)
    total = scarcest(snapshot, gang)
    pods = sum(group.need for group in gang.groups())
    findings = [Reason(TOGETHER, gang.name, {"pods": pods}, parts=(total,) if total else ())]
    closest = closest_domain(snapshot, gang)
    if closest is not None:
        findings.append(closest)
    findings += nodes_for_groups(snapshot, gang)
    findings += snapshot.seams.outlooks(snapshot, gang)
    why = gate or answer.why.with_parts(*([closest] if closest else ()))
    changes = smallest_changes(snapshot, own, running, most, TRIAL, surplus=surplus)
    return Explanation(gang.name, False, why, tuple(findings), changes, answer.proven, snapshot.version)


def closest_domain(snapshot: Snapshot, gang: Gang) -> Reason | None:
    """The domain of the gang's outermost requirement that comes closest to holding it, with numbers.

    Where running pods keep the part in some domains, no other domain is named: the rest cannot go there.
    """
    problem = state_problem(snapshot, gang)
    if isinstance(problem, NoFit) or problem.size == 0:
        return None
    part = _outermost(problem.root)
    if part is None:
        return None
    bounds = bounds_for(problem, tuple(part.groups))
    segments = problem.segments(part.required_level)
    if part.pinned_domains is not None:
        segments = segments.only(np.isin(segments.ids, sorted(part.pinned_domains)))
    if segments.size == 0:
        return None
    capacity = PartCapacity(SearchState(problem, 1), bounds, 0, problem.size)
    held, need = capacity.held(segments), capacity.need
    share = np.minimum(held / need[:, None], 1.0)
    best = int(np.lexsort((np.arange(share.shape[1]), -share.sum(axis=0), -share.min(axis=0)))[0])
    name = snapshot.domain_name(problem.tree, part.required_level, int(segments.ids[best]))
    return _closest(problem, part, name, held[:, best])


def _closest(problem: Problem, part: Part, name: str, held: Ints) -> Reason:
    """`held` begins with the pods that the domain holds of each group; sums over groups follow.

    `each` is 1 when every group has capacity by itself, though not all at once; `pinned` is 1 when running pods
    keep the part in this domain.
    """
    parts = list[Reason]()
    for i, group in enumerate(problem.groups[g] for g in part.groups if problem.groups[g].need > 0):
        numbers = {"room": min(int(held[i]), group.need), "pods": group.need}
        parts.append(Reason(GROUP_CAPACITY, group.name, numbers))
    how = {"each": 1} if all(reason.number("room") >= reason.number("pods") for reason in parts) else {}
    if part.pinned_domains is not None:
        how["pinned"] = 1
    return Reason(CLOSEST, name, how, {"level": problem.tree.keys[part.required_level]}, tuple(parts))


def _outermost(part: Part) -> Part | None:
    if part.required_level >= 0:
        return part
    inner_parts = [inner for child in part.children if child.need and (inner := _outermost(child))]
    return max(inner_parts, key=lambda p: p.need) if inner_parts else None


def scores_of(snapshot: Snapshot, placement: Placement) -> Iterator[Reason]:
    """The points of each score for a placement, beside the most that it could give."""
    for name, given in _given_by_scores(snapshot, placement.pods):
        got, most = (sum(numbers) for numbers in zip(*given, strict=True))
        yield Reason(SCORED, name, {"got": got, "most": most})


def _given_by_scores(snapshot: Snapshot, pods: Sequence[PodFacts]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """The points of each score for each pod on its node, and the most points of any node."""
    row_of = snapshot.nodes.row_of
    for score in snapshot.seams.scores:
        columns = {shape: score.rows(snapshot, shape) for shape in {pod.shape for pod in pods}}
        given = [(column, pod.node) for pod in pods if (column := columns[pod.shape]) is not None]
        if given:
            yield score.name, [(int(column[row_of[node]]), int(column.max())) for column, node in given]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`placed` gangs have their minimum on nodes; the others wait for their `gate` or for capacity, as explained.

    The explanation of a placed gang is about its pods above the minimum, if any of them wait.
    """

    gang: str
    placed: bool
    gate: Reason | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class InLine:
    """A gang that waits. `can_start` is False while something else has to happen before it is considered at all.

    `why` is known before it is considered; what the scheduler found when it tried is on the gang's condition, `said`.
    """

    namespace: str
    name: str
    priority: int
    pods: int
    created: datetime | None
    can_start: bool
    why: Reason | None
    said: str = ""


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


def scored(snapshot: Snapshot, gang: Gang, stands: Mapping[str, str]) -> ScoredGang:
    """The gang with all its pods waiting, on a snapshot without them; `stands` is where those that run do, by uid."""
    weights = {score.name: snapshot.seams.weights.get(score.name, 1) for score in snapshot.seams.scores}
    pods = [pod.on(stands[pod.uid]) for group in gang.groups() for pod in group.pods if pod.uid in stands]
    chosen: ScoredPlace | None = None
    if pods:
        chosen = _scored(snapshot, pods, "")
    elif isinstance(answer := place(snapshot, gang), Placement):
        chosen = _scored(snapshot, answer.pods, answer.domain, answer.score)
    others = list(_others(snapshot, gang, chosen)) if chosen is not None else []
    best = max(others, key=lambda scored_place: (scored_place.closeness or 0.0, scored_place.total), default=None)
    return ScoredGang(gang.name, bool(pods), chosen, best, weights)


def _others(snapshot: Snapshot, gang: Gang, chosen: ScoredPlace) -> Iterator[ScoredPlace]:
    """Places that use none of the chosen nodes; where there is none, those that do without one of them."""
    ways = [tuple(chosen.nodes), *((node,) for node in sorted(chosen.nodes)[:MOST_TRIED])]
    for number, closed in enumerate(ways):
        answer = place(snapshot, gang, closed=closed)
        if isinstance(answer, Placement):
            yield _scored(snapshot, answer.pods, answer.domain, answer.score)
            if number == 0:
                return


def _scored(snapshot: Snapshot, pods: Sequence[PodFacts], domain: str, closeness: float | None = None) -> ScoredPlace:
    weights = snapshot.seams.weights
    columns = {
        name: weight * sum(got for got, _ in given)
        for name, given in _given_by_scores(snapshot, pods)
        if (weight := weights.get(name, 1))
    }
    return ScoredPlace(dict(sorted(Counter(pod.node for pod in pods).items())), domain, columns, closeness)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue; amounts by resource, in the units of `grove.api.quantity`."""

    kind: str
    name: str
    parent: str
    depth: int
    resources: tuple[str, ...]
    guaranteed: Mapping[str, int]
    used: Mapping[str, int]
    fair_share: Mapping[str, int]
    limit: Mapping[str, int]
    waiting: Mapping[str, int]
    fault: str = ""


def queue_rows(quota: Quota | None, snapshot: Snapshot) -> list[QueueRow]:
    """Every queue, parents before their children; empty where there are none."""
    if quota is None:
        return []
    tree, shares = quota.tree, quota.shares(snapshot)
    rows = []
    for queue, depth in tree.walk():
        waiting: dict[str, int] = {}
        for leaf in tree.leaves.get(queue.name, ()):
            for resource, amount in quota.waiting.get(leaf, {}).items():
                waiting[resource] = waiting.get(resource, 0) + amount
        resources = tuple(sorted(queue.resources))
        used = quota.used(snapshot, queue.name)
        rows.append(
            QueueRow(
                queue.kind,
                queue.short,
                queue.parent.partition("/")[2],
                depth,
                resources,
                {
                    resource: queue.guaranteed[resource]
                    for resource in resources
                    if queue.guaranteed.get(resource, NO_LIMIT) < NO_LIMIT
                },
                {resource: used.get(resource, 0) for resource in resources},
                {resource: shares.get(queue.name, {}).get(resource, 0) for resource in resources},
                {resource: queue.limit[resource] for resource in resources if resource in queue.limit},
                {resource: waiting.get(resource, 0) for resource in resources},
                tree.faults.get(queue.name, ""),
            )
        )
    return rows
