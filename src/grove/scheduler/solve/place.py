"""Where a gang goes: `place(snapshot, gang, budget)` is the scheduler's one decision, a pure function.

- 1: state the problem in numbers.
- 2: counting bounds. Most impossible gangs end here, with a proof.
- 3: search for a good placement.
- 4: if that finds none, the exact search decides.
- 5: surplus pods.
- 6: names and score.

The same input gives the same answer on any machine. The module reads no clock, no random numbers and no order of a
dictionary. Ties go to the lower domain and node name.

Groups that each prefer a domain of their own compete for the same ones, and the first group chooses first. A few orders
(`close_placement`) are cheap to try and mostly end at the fewest domains possible. Otherwise the exact search tries one
domain less, again and again (`tightened`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import capacity_reason
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import BUDGET_ENDED, NO_CAPACITY, NO_DOMAIN, NO_NODE, NO_PACKING, PINNED, Reason
from grove.scheduler.solve.bounds import PartCapacity, bounds_for
from grove.scheduler.solve.coupled import Coupled, closer, placed_in_some_order
from grove.scheduler.solve.exact import exact_placement, preferences_granted
from grove.scheduler.solve.fill import place_surplus
from grove.scheduler.solve.placement_score import placement_score
from grove.scheduler.solve.problem import Part, Problem, state_problem
from grove.scheduler.solve.search import DomainRun, Order, Search
from grove.scheduler.solve.search_state import ROWS_A_STEP, OutOfSteps, SearchState, raise_if_limited
from grove.scheduler.solve.spread import place_spread
from grove.scheduler.solve.tighten import tightened

QUICK_STEPS, LONG_STEPS = 440, 800
"""Steps for a good placement: before it is known whether any exists, and after."""


def place(
    snapshot: Snapshot, gang: Gang, budget: Budget = Budget(), *, closed: Collection[str] = ()
) -> Placement | NoFit:
    """A placement of the gang's core and of as much surplus as fits, or why there is none.

    Nodes in `closed` are not used (held for someone else). Nothing is written: `snapshot.assume` takes it over.
    """
    if not gang.former:
        return place_on(snapshot, gang, budget, closed)
    elsewhere = snapshot.nodes.row_of.keys() - gang.former
    kept = place_on(snapshot, gang, replace(budget, steps=budget.steps // 2), elsewhere.union(closed))
    if isinstance(kept, Placement) and not kept.unplaced:
        return kept
    answer = place_on(snapshot, gang, replace(budget, steps=budget.steps - kept.steps), closed)
    return replace(answer, steps=answer.steps + kept.steps)


def place_on(
    snapshot: Snapshot,
    gang: Gang,
    budget: Budget,
    closed: Collection[str] = (),
    free: Ints | None = None,
    cost: Ints | None = None,
) -> Placement | NoFit:
    """`place` on other free amounts, taking rows in order of cost: how preemption asks."""
    if not snapshot.seams.refuses:
        return place_admitted(snapshot, gang, budget, closed, free, cost)
    admitted, kept_out = admit(snapshot, gang)
    if isinstance(admitted, NoFit):
        return admitted
    answer = place_admitted(snapshot, admitted, budget, closed, free, cost)
    if isinstance(answer, NoFit):
        return answer
    # Which of a group's unlike pods make up the minimum is known only now.
    if why := snapshot.seams.refusal(snapshot, gang, answer.pods[: answer.core]):
        return NoFit(gang.name, why, False, answer.steps, snapshot.version)
    return replace(answer, unplaced=(*answer.unplaced, *kept_out)) if kept_out else answer


def admit(snapshot: Snapshot, gang: Gang) -> tuple[Gang | NoFit, list[PodFacts]]:
    """The gang as far as the policies let it run, and surplus pods that have to stay out; or why it may not at all."""
    refusal = snapshot.seams.refusal
    core = [pod for group in gang.groups() for pod in group.pods[: group.need]]
    if why := refusal(snapshot, gang, core):
        return NoFit(gang.name, why, True, version=snapshot.version), []
    surplus = [pod for group in gang.groups() for pod in group.pods[group.need :]]
    if not surplus or not refusal(snapshot, gang, [*core, *surplus]):
        return gang, []
    kept_out: list[PodFacts] = []
    for pod in surplus:
        if refusal(snapshot, gang, [*core, pod]):
            kept_out.append(pod)
        else:
            core.append(pod)
    return gang.with_pods(dict.fromkeys(pod.uid for pod in kept_out)), kept_out


def place_admitted(
    snapshot: Snapshot, gang: Gang, budget: Budget, closed: Collection[str], free: Ints | None, cost: Ints | None
) -> Placement | NoFit:
    """`place_on` for a gang that policies admit, or will: they are not asked."""
    if gang.spreads:
        return _place_spread(snapshot, gang, budget, closed, free, cost)
    problem = state_problem(snapshot, gang, closed, free, cost)
    if isinstance(problem, NoFit):
        if problem.reason == NO_NODE:
            return NoFit(gang.name, capacity_reason(NO_NODE, snapshot, gang, closed), True, version=snapshot.version)
        return problem
    needing = sum(group.need > 0 for group in problem.groups)
    # For one group the search itself begins with the counting bounds: asking them first would be asking twice.
    if needing > 1 or (needing and problem.coupled):
        refusal = _refusal(problem, closed)
        if refusal is not None:
            return refusal
    if problem.coupled:
        return _place_coupled(problem, budget)
    whole = _whole(problem, budget)
    if whole is not None:
        return _answer(whole, *_core_first(problem, whole.pods()))
    state = _core(problem, budget, closed, bounded=needing > 1)
    if isinstance(state, NoFit):
        return state
    core = sum(map(sum, state.taken))
    place_surplus(state)
    return _answer(state, state.pods(), core)


def _place_spread(
    snapshot: Snapshot, gang: Gang, budget: Budget, closed: Collection[str], free: Ints | None, cost: Ints | None
) -> Placement | NoFit:
    problem = state_problem(snapshot, gang, closed, free, cost)
    loose = replace(gang, spreads=())
    if isinstance(problem, NoFit):
        return place_admitted(snapshot, loose, budget, closed, free, cost)

    def search(way: Gang, steps: int) -> Placement | NoFit:
        return place_admitted(snapshot, way, Budget(steps), closed, free, cost)

    answer = place_spread(problem, budget.steps, search)
    if isinstance(answer, NoFit) and not answer.proven and budget.referee is not None:
        raise_if_limited()
        opinion = budget.referee.ask(problem)
        if opinion is not None and opinion.found is not None:
            state = SearchState(problem, 0)
            state.put_all(opinion.found)
            return _answer(state, state.pods(), sum(map(sum, state.taken)))
        if opinion is not None and opinion.proven:
            return replace(answer, why=Reason(NO_PACKING), proven=True)
    return answer


def _whole(problem: Problem, budget: Budget) -> SearchState | None:
    """All pods placed as if all of them were core; None if there are none above the minimum, or no quick way is found.

    The domains that suit the core best may have no capacity for the rest. A gang that runs gets its surplus one by one.
    """
    surplus = any(group.pending > group.need for group in problem.groups)
    if not surplus or problem.cost is not None or not (problem.root.need or problem.is_new):
        return None
    with problem.surplus_needed():
        bounds = bounds_for(problem, tuple(problem.root.groups))
        if not PartCapacity(SearchState(problem, 1), bounds, 0, problem.size).is_enough:
            return None
        if not problem.is_new:
            _leave_scattered_nodes(problem)
        return close_placement(problem, _quick_steps(problem, budget), budget.steps // 4)


def _core_first(problem: Problem, pods: list[PodFacts]) -> tuple[list[PodFacts], int]:
    """The pods in the order of their groups, with as many of each as its minimum needs in front; how many those are."""
    group_of = {pod.uid: g for g, group in enumerate(problem.groups) for alike in group.classes for pod in alike}
    by_group: list[list[PodFacts]] = [[] for _ in problem.groups]
    for pod in pods:
        by_group[group_of[pod.uid]].append(pod)
    core = [pod for group, own in zip(problem.groups, by_group, strict=True) for pod in own[: group.need]]
    rest = [pod for group, own in zip(problem.groups, by_group, strict=True) for pod in own[group.need :]]
    return [*core, *rest], len(core)


def _quick_steps(problem: Problem, budget: Budget) -> int:
    return min(QUICK_STEPS * (1 + problem.size // ROWS_A_STEP), budget.steps // 2)


def _core(problem: Problem, budget: Budget, closed: Collection[str], *, bounded: bool) -> SearchState | NoFit:
    """The core placed, close together if possible: a quick search for that, else the exact one, else a long one."""
    if problem.root.need == 0:
        return SearchState(problem, 0)
    if not problem.is_new:
        _leave_scattered_nodes(problem)
    state = close_placement(problem, _quick_steps(problem, budget), budget.steps // 2)
    if state is not None:
        return state
    refusal = None if bounded else _refusal(problem, closed)
    if refusal is not None:
        return refusal
    left = budget.steps - problem.steps_used
    long = min(LONG_STEPS, left // 2)
    exact = SearchState(problem, left - long)
    placement: list[tuple[int, int, int]] | None = None
    try:
        placement = exact_placement(exact, problem.root, (0, problem.size), -1)
    except OutOfSteps:
        state = close_placement(problem, long, long)
        if state is not None:
            return state
        opinion = None
        if budget.referee is not None:
            raise_if_limited()
            opinion = budget.referee.ask(problem)
        if opinion is None or not opinion.proven:
            return NoFit(problem.gang.name, _ended(problem), False, problem.steps_used, problem.snapshot.version)
        placement = opinion.found
    if placement is None:
        return NoFit(problem.gang.name, Reason(NO_PACKING), True, problem.steps_used, problem.snapshot.version)
    if preferring := problem.root.preferring():
        # It fits, but the exact search does not care how close: the long way to a good placement is worth a try.
        state = close_placement(problem, long, budget.steps - problem.steps_used, is_known_to_fit=True)
        if state is not None:
            return state
        placement = preferences_granted(exact, preferring) or placement
    exact.put_all(placement)
    return tightened(exact, budget.steps - problem.steps_used)


def _leave_scattered_nodes(problem: Problem) -> None:
    """Pods of a part that left whole do not return to nodes that are further apart than necessary now."""
    if not any(group.earlier_nodes for group in problem.groups):
        return
    for part in problem.root.preferring() or [problem.root]:
        level = part.preferred_level if part.preferred_level >= 0 else problem.tree.host_level - 1
        if part.pods_at is None or part.has_running_pods or level < 0:
            continue
        bounds = bounds_for(problem, tuple(part.groups))
        if PartCapacity(SearchState(problem, 1), bounds, 0, problem.size).is_scattered(part.pods_at, level):
            for g in part.groups:
                problem.groups[g].earlier_nodes = {}


def _refusal(problem: Problem, closed: Collection[str]) -> NoFit | None:
    """The counting bounds, for the whole and for every part under a requirement; a failure is a proof."""
    snapshot, gang = problem.snapshot, problem.gang
    state = SearchState(problem, 1)
    parts = [problem.root]
    while parts:
        part = parts.pop()
        parts += [child for child in part.children if child.need > 0]
        capacity = PartCapacity(state, bounds_for(problem, tuple(part.groups)), 0, problem.size)
        if part is problem.root and not capacity.is_enough:
            return NoFit(
                gang.name, capacity_reason(NO_CAPACITY, snapshot, gang, closed), True, version=snapshot.version
            )
        if part.required_level < 0:
            continue
        segments = problem.segments(part.required_level)
        fits = capacity.fitting(capacity.held(segments))
        if part.pinned_domains is not None and not np.isin(segments.ids[fits], sorted(part.pinned_domains)).any():
            return NoFit(gang.name, _pinned(problem, part), True, version=snapshot.version)
        if fits.size == 0:
            level = {"level": problem.tree.keys[part.required_level]}
            why = Reason(NO_DOMAIN, part.name, {"pods": part.need}, level)
            return NoFit(gang.name, why, True, version=snapshot.version)
    return None


def _pinned(problem: Problem, part: Part) -> Reason:
    """Running pods keep the part in these domains; only a single domain is named."""
    level = {"level": problem.tree.keys[part.required_level]}
    if part.pinned_domains is not None and len(part.pinned_domains) == 1:
        [only] = part.pinned_domains
        level["where"] = problem.snapshot.domain_name(problem.tree, part.required_level, only)
    return Reason(PINNED, part.name, {"pods": part.need}, level)


def _ended(problem: Problem) -> Reason:
    return Reason(BUDGET_ENDED, numbers={"steps": problem.steps_used})


def _place_coupled(problem: Problem, budget: Budget) -> Placement | NoFit:
    state = SearchState(problem, budget.steps)
    gang, version = problem.gang.name, problem.snapshot.version
    try:
        coupled = placed_in_some_order(state) if problem.root.need > 0 else Coupled(state)
        if coupled is None:
            return NoFit(gang, Reason(NO_PACKING, names={"by": "affinity"}), True, problem.steps_used, version)
    except OutOfSteps:
        return NoFit(gang, _ended(problem), False, problem.steps_used, version)
    if problem.root.need > 0 and problem.cost is None:
        coupled = closer(coupled, (budget.steps - problem.steps_used) // 2)
        state = coupled.state
    core = len(state.placed)
    try:
        for g, group in enumerate(problem.groups):
            for _ in range(group.pending - sum(state.taken[g])):
                if not coupled.add_surplus(g):
                    break
    except OutOfSteps:
        pass
    return _answer(state, coupled.pods(), core)


def _answer(state: SearchState, pods: list[PodFacts], core: int) -> Placement:
    problem = state.problem
    snapshot, tree, root = problem.snapshot, problem.tree, problem.root
    domain, key = "", ""
    if root.required_level >= 0 and pods:
        key = tree.keys[root.required_level]
        row = snapshot.nodes.row_of[pods[0].node]
        domain = snapshot.domain_name(tree, root.required_level, tree.domain_of(row, root.required_level))
    seen = {pod.uid for pod in pods}
    unplaced = tuple(p for g in problem.groups for pods_ in g.classes for p in pods_ if p.uid not in seen)
    score = placement_score(state)
    return Placement(
        problem.gang.name, tuple(pods), core, score, domain, key, unplaced, problem.steps_used, snapshot.version
    )


ORDERS: tuple[Order, ...] = (
    lambda part, size: (-part.required_level, -size, -part.need),
    lambda part, size: (-part.required_level, -size * part.need),
    lambda part, size: (-part.required_level, part.need, size),
    lambda part, size: (-part.required_level, size * part.need),
)
"""Narrow requirements always go first; then large pods, large groups, short groups, small groups."""

_END = object()


def close_placement(problem: Problem, steps: int, most: int, *, is_known_to_fit: bool = False) -> SearchState | None:
    """A state with the core placed, or None if none of the greedy ways works.

    `steps` is the work allowed for one order, `most` for all of them.
    If the first order fails the others mostly do too; they are tried only when it is known that there is a placement.
    """
    preferring = problem.root.preferring()
    turns = ORDERS if preferring and len(problem.root.groups) > 1 else ORDERS[:1]
    everything = DomainRun(0, problem.size, -1)
    best: SearchState | None = None
    fewest = bound = 0
    allowed = steps // len(turns) if is_known_to_fit else steps
    until = problem.steps_used + most
    for order in turns:
        state = SearchState(problem, min(allowed, until - problem.steps_used))
        search = Search(state, order)
        try:
            placed = next(search.ways(problem.root, everything), _END) is not _END
        except OutOfSteps:
            placed = False
        state.open = None
        if not placed and best is None and not is_known_to_fit:
            return None
        if len(turns) == 1:
            return state if placed else None
        if placed:
            crossed = sum(problem.tree.crossed(p.preferred_level, state.positions_of(p.groups)) for p in preferring)
            if best is None:
                # Measured on the free amounts before anything was placed: no order can do better.
                fresh = Search(SearchState(problem, steps), order)
                bound = sum(
                    fresh.capacity(part, everything).fewest_anywhere(part.preferred_level) for part in preferring
                )
                # A better order should be found about as fast as the first one was; more is not worth it.
                allowed = min(steps, 50 + 2 * state.steps_used)
            if best is None or crossed < fewest:
                best, fewest = state, crossed
            if fewest <= bound:
                return best
    return None if best is None else tightened(best, until - problem.steps_used)
