"""Spread outside, pack inside: units (replicas, or pods) evenly over the domains of a level, by one search for both.

A spread limits how many units each domain has in the end. `SpreadWays` lists the distributions that keep the skew, the
most even one first, each as a gang without a spread. The search for a packed placement decides whether that gang fits,
and the first one that fits is the answer. So a placement that packs and spreads is found if one exists, as far as the
steps go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.answers import STEPS_A_SEARCH, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import BUDGET_ENDED, NO_PACKING, SPREAD_HOME, SPREAD_SKEW, UNITS_IN, Reason
from grove.scheduler.solve.problem import Problem
from grove.scheduler.solve.spread_domains import broken_spreads
from grove.scheduler.solve.spread_ways import SpreadWays


def place_spread(problem: Problem, steps: int, search: Callable[[Gang, int], Placement | NoFit]) -> Placement | NoFit:
    """The gang with its units distributed in the first way that can be packed, or why there is none.

    `problem` is the gang's own. `search` places a gang without spreads within a number of steps.
    """
    snapshot, gang = problem.snapshot, problem.gang
    ways = SpreadWays(problem)
    left, is_proven = steps, True
    for way in ways.all():
        answer = search(way, max(left // 2, 1))
        left -= answer.steps + STEPS_A_SEARCH
        if isinstance(answer, Placement):
            return _as_asked(gang, replace(answer, steps=steps - left))
        is_proven = is_proven and answer.proven
        if left <= 0:
            is_proven = False
            break
    is_proven = is_proven and ways.is_complete
    anywhere = search(replace(gang, spreads=()), max(left, steps // 4))
    used = steps - left + anywhere.steps
    if isinstance(anywhere, NoFit):
        return replace(anywhere, gang=gang.name, steps=used)
    why = Reason(BUDGET_ENDED, numbers={"steps": used})
    if is_proven:
        why = _spread_reason(snapshot, gang, anywhere.pods[: anywhere.core])
    return NoFit(gang.name, why, is_proven, used, snapshot.version)


def _as_asked(gang: Gang, answer: Placement) -> Placement:
    """The placement of a gang whose groups were split, by the gang's own minima."""
    left = {group.name: group.need for group in gang.groups()}
    core: list[PodFacts] = []
    rest: list[PodFacts] = []
    group_of = {pod.uid: group.name for group in gang.groups() for pod in group.pods}
    for pod in answer.pods:
        left[group_of[pod.uid]] -= 1
        (core if left[group_of[pod.uid]] >= 0 else rest).append(pod)
    placed = {pod.uid for pod in answer.pods}
    unplaced = tuple(pod for group in gang.groups() for pod in group.pods if pod.uid not in placed)
    return replace(answer, gang=gang.name, pods=(*core, *rest), core=len(core), unplaced=unplaced)


def _spread_reason(snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason:
    """Which spread keeps a gang out that has a place without it: `pods` are in that place."""
    for spread in broken_spreads(snapshot, gang, pods):
        names = {"level": spread.spread.key, "full": spread.emptiest, "domain": spread.domain}
        numbers = {"skew": spread.skew, "most": spread.spread.max_skew}
        counts = tuple(Reason(UNITS_IN, domain, {"units": units}) for domain, units in spread.counts.items())
        return Reason(SPREAD_SKEW, spread.unit, numbers, names, counts)
    if hard := [unit_spread for unit_spread in gang.spreads if unit_spread.is_required]:
        return Reason(SPREAD_HOME, gang.name, names={"level": hard[0].key})
    return Reason(NO_PACKING)
