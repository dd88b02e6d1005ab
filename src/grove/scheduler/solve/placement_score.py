"""How good a placement is, and how much capacity is left: numbers for PodGang status, metrics and plans.

The score compares the domains a gang uses with the fewest it could use if the cluster were idle. 1 is as close together
as the nodes allow, and 0.5 is twice as many domains as needed. Pods of other gangs make the difference.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from grove.api.fragmentation import GangSize, unusable_share
from grove.scheduler.cluster.node_table import Ints, running_sum
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import allowed_mask, pod_slots
from grove.scheduler.model.facts import HOSTNAME, Shape
from grove.scheduler.solve.bounds import fewest_needed
from grove.scheduler.solve.problem import Part
from grove.scheduler.solve.search_state import SearchState


def placement_score(state: SearchState) -> float:
    """Mean over the parts that state a level of fewest possible over used domains, for all pods that then stand.

    A gang that states none is measured at the narrowest level above the host.
    """
    problem = state.problem
    if problem.is_new and len(state.placed) == 1 and state.placed[0][1].size == 1:
        return 1.0  # on one node
    here = _Standing(state)
    stated = ((part, max(part.required_level, part.preferred_level)) for part in problem.root.walk())
    measured = [(part, level) for part, level in stated if level >= 0 and here.pods(part)]
    if not measured:
        level = problem.tree.host_level - 1
        if level < 0 or not here.pods(problem.root):
            return 1.0
        measured = [(problem.root, level)]
    ratios = [here.ratio(part, level) for part, level in measured]
    return round(sum(ratios) / len(ratios), 6)


class _Standing:
    """Where the pods of each group are once a placement is carried out: those that run, and those just placed."""

    def __init__(self, state: SearchState) -> None:
        problem = self._problem = state.problem
        self._state = state
        self._groups = list(problem.gang.groups())
        self._pods = [len(group.bound) + sum(taken) for group, taken in zip(self._groups, state.taken, strict=True)]

    def pods(self, part: Part) -> int:
        return sum(self._pods[g] for g in part.groups)

    def ratio(self, part: Part, level: int) -> float:
        used = self._problem.tree.crossed(level, self._state.pods_at(part.groups))
        if used <= 1:
            return 1.0
        return min(1.0, self._fewest_when_idle(part, level) / used)

    def _fewest_when_idle(self, part: Part, level: int) -> int:
        """A bound on how many domains the part needs if nothing else ran on the cluster."""
        problem = self._problem
        best = 1
        standing = [g for g in part.groups if self._pods[g]]
        for g in standing:
            group = problem.groups[g]
            if group.options:
                held = sum((problem.idle(o, level) for o in group.options[1:]), problem.idle(group.options[0], level))
                best = max(best, fewest_needed(held, self._pods[g]))
            for shape, count in () if group.options else self._groups[g].standing:
                asked = problem.snapshot.amounts(shape.requests)
                best = max(best, fewest_needed(problem.idle_for(shape, asked, level), count))
        if len(standing) > 1:
            starts, ends, _ = problem.tree.runs[level]
            for r, total in self._totals(standing).items():
                capacity = problem.snapshot.allocatable[r][problem.tree.order]
                running = running_sum(capacity)
                best = max(best, fewest_needed(running[ends] - running[starts], total))
        return best

    def _totals(self, groups: list[int]) -> Counter[int]:
        """The least amounts that the pods of these groups request, by resource."""
        problem = self._problem
        totals: Counter[int] = Counter()
        for g in groups:
            group = problem.groups[g]
            if group.options:
                least = zip(problem.resources, problem.least_request(g).tolist(), strict=True)
                totals.update({r: amount * self._pods[g] for r, amount in least})
            for shape, count in () if group.options else self._groups[g].standing:
                totals.update({r: amount * count for r, amount in problem.snapshot.amounts(shape.requests)})
        return +totals


def slots_by_domain(snapshot: Snapshot, shape: Shape, key: str = HOSTNAME, topology: str = "") -> dict[str, int]:
    """How many more pods of this shape each domain of a level holds; for headroom metrics and the largest gang."""
    tree = snapshot.tree((key,), topology)
    level = tree.find_level(key)
    assert level is not None
    rows = [r for r, _ in snapshot.amounts(shape.requests)]
    request = np.array([amount for _, amount in snapshot.amounts(shape.requests)], dtype=np.int64)
    slots = pod_slots(snapshot.free[rows, : snapshot.nodes.rows], request) * allowed_mask(snapshot, shape)
    starts, ends, domains = tree.runs[level]
    running = running_sum(slots[tree.order])
    held = running[ends] - running[starts]
    return {snapshot.domain_name(tree, level, int(d)): int(n) for d, n in zip(domains, held, strict=True)}


def fragmentation(snapshot: Snapshot, resource: str, key: str, size: GangSize | None, topology: str = "") -> float:
    """The share of a resource's free amount that gangs of this size, each in one domain of a level, cannot use."""
    if resource not in snapshot.resources:
        return 0.0
    domains, outside = free_by_domain(snapshot, resource, key, topology)
    return unusable_share([free for _, free in domains], size, outside)


def free_by_domain(
    snapshot: Snapshot, resource: str, key: str, topology: str = ""
) -> tuple[list[tuple[Ints, list[int]]], int]:
    """The rows of each domain of a level with what is free on each, and what is free outside all domains."""
    tree = snapshot.tree((key,), topology)
    level = tree.find_level(key)
    assert level is not None
    rows = snapshot.nodes.rows
    is_open = allowed_mask(snapshot, Shape(((resource, 1),)))
    free = (np.maximum(snapshot.free[snapshot.resources.index(resource), :rows], 0) * is_open)[tree.order]
    starts, ends, _ = tree.runs[level]
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    domains = [(tree.order[low:high], free[low:high].tolist()) for low, high in spans]
    return domains, int(free.sum()) - sum(sum(amounts) for _, amounts in domains)
