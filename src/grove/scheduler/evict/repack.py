"""Which running gangs to move so that a waiting gang fits. The answer is the cheapest set we find. Pure.

A gang moves whole. Its new place must be free while it still runs in its old one. So the scheduler can hold the place
before it evicts the first pod. Only a node that the gang itself has now may be in both. Moves are made one after the
other: a later one may use what an earlier one left.

Plans are compared by pods that restart, then by the priorities of their gangs, then by how lately a gang was moved.
Candidates come from the search for victims, one domain after the other, and from all small sets of gangs. Every plan
is played on a copy of the snapshot before it counts. All searches share one budget of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations
from types import MappingProxyType

import numpy as np
from msgspec import Struct, structs

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import PreemptionTrial, Victims
from grove.scheduler.evict.running import DisruptionBudget, Running, broken_budgets
from grove.scheduler.evict.small_sets import SmallSets
from grove.scheduler.evict.victims import NO_VACANCIES
from grove.scheduler.filters.fit import has_place, scarcest
from grove.scheduler.model.answers import Budget, DecisionSteps, NoFit, Placement
from grove.scheduler.model.facts import PODS, PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import FITS, NO_MOVES, NONE_MAY_MOVE, NOT_ENOUGH_FREE, Reason
from grove.scheduler.solve.place import place, place_admitted, place_on

STEPS = Budget(steps=16_000)
"""Work allowed for one plan."""
MOST_MOVES = 16
"""A plan moves no more gangs than this."""
MOST_TARGETS = 32
"""Places for the waiting gang, for which gangs to move are looked for."""
MOST_DEARER = 8
"""The search stops after this number of places in a row without a cheaper plan."""
MOST_SETS = 128
"""Small sets of gangs that are tried one by one."""
MOST_ORDERS = 6
"""Orders in which the gangs of one set are moved."""
MOST_OTHERS = 8
"""Other places of the waiting gang that are tried for one set of gangs: each without one node of the first place."""
MOST_DEEP_SETS = 32
"""Small sets of gangs for which several places of each gang are tried, if their first places are no plan."""
MOST_DEEP_MOVERS = 3
MOST_PLACES = 12
"""Places of one gang that are tried for one set of gangs."""
MOST_CHAINS = 256
"""Combinations of places that are tried for one set of gangs."""
MOVED = "moved:"
"""Before the uid of a pod: the pod that replaces it in its new place."""

Cost = tuple[int, tuple[int, ...], float]
"""Pods that restart; the priorities of their gangs, highest first; when one of them was moved last."""


Ways = Callable[[Sequence["Movable"]], Iterator["list[Move] | None"]]


class Movable(Struct, frozen=True):
    """A running gang that may be moved."""

    unit: Running
    tree: Gang
    """The gang as if none of its pods had a place."""
    moved_s: float = 0.0
    """When it was moved last."""
    closed: frozenset[str] = frozenset()
    """Nodes that are held for units ahead of it."""


@dataclass(frozen=True, slots=True)
class Move:
    """One gang and its new place. The pods of `placement` stand for those that will replace the pods of `unit`."""

    unit: Running
    placement: Placement

    @property
    def places(self) -> dict[str, tuple[str, ...]]:
        """The new nodes by pod group, one for each pod."""
        nodes_of: dict[str, list[str]] = {}
        for pod in self.placement.pods:
            nodes_of.setdefault(pod.group, []).append(pod.node)
        return {group: tuple(sorted(nodes)) for group, nodes in sorted(nodes_of.items())}

    @property
    def arriving(self) -> list[PodFacts]:
        """Pods of the new place that need capacity the gang does not have yet."""
        had = Counter((pod.group, pod.node, pod.shape.requests) for pod in self.unit.pods)
        arriving = []
        for pod in self.placement.pods:
            kind = (pod.group, pod.node, pod.shape.requests)
            if had[kind]:
                had[kind] -= 1
            else:
                arriving.append(pod)
        return arriving


@dataclass(frozen=True, slots=True)
class Repack:
    """Moves in the order in which they can be made, and where the waiting gang fits after them."""

    gang: str
    moves: tuple[Move, ...]
    placement: Placement
    cost: Cost
    version: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class NoRepack:
    gang: str
    why: Reason
    proven: bool
    version: int = 0
    steps: int = 0


def repack(
    snapshot: Snapshot,
    gang: Gang,
    movable: Sequence[Movable],
    budgets: Sequence[DisruptionBudget] = (),
    budget: Budget = STEPS,
    *,
    closed: Collection[str] = (),
) -> Repack | NoRepack:
    """Moves that make a waiting gang fit, or why there are none. Nodes in `closed` are held for other units."""
    steps = DecisionSteps(budget, searches=1)
    answer = _repack(snapshot, gang, movable, budgets, steps, closed)
    return replace(answer, version=snapshot.version, steps=budget.steps - steps.left)


def _repack(
    snapshot: Snapshot,
    gang: Gang,
    movable: Sequence[Movable],
    budgets: Sequence[DisruptionBudget],
    steps: DecisionSteps,
    closed: Collection[str],
) -> Repack | NoRepack:
    short = scarcest(snapshot, gang)
    if short is not None and short.number("wanted") > short.number("free"):
        return NoRepack(gang.name, Reason(NOT_ENOUGH_FREE, parts=(short,)), True)
    answer = place(snapshot, gang, steps.next_search(), closed=tuple(sorted(closed)))
    steps.take(answer.steps)
    if isinstance(answer, Placement):
        return NoRepack(gang.name, Reason(FITS, numbers={"pods": answer.core, "score": answer.score}), True)
    shut = set(closed)
    allowed = [
        # It moves whole: no pod of it is surplus.
        structs.replace(candidate, unit=structs.replace(candidate.unit, minimums={}))
        for candidate in movable
        if candidate.unit.preemptible
        and candidate.unit.name != gang.name
        and shut.isdisjoint(pod.node for pod in candidate.unit.pods)
        and not any(pod.terminating for pod in candidate.unit.pods)
        and not broken_budgets(candidate.unit.pods, budgets)
    ]
    if not allowed:
        return NoRepack(gang.name, Reason(NONE_MAY_MOVE, parts=(answer.why,)), True)
    return _RepackTrial(snapshot, gang, allowed, steps, closed).cheapest()


Limits = Mapping[str, int]
"""How many pods of a gang a node may take at most, by node. 0 leaves the node out."""


class SeveralPlaces:
    """Limits under which a gang gets another place: none at first, then lower ones for the places that were found."""

    def __init__(self) -> None:
        self._limits = list[Limits]([{}])

    def __iter__(self) -> Iterator[Limits]:
        yield from self._limits  # it grows meanwhile

    def found(self, limits: Limits, pods: Sequence[PodFacts]) -> None:
        """A place was found under these limits: another one lacks one of its nodes, or has a pod less there."""
        counts = Counter(pod.node for pod in pods)
        more = [{**limits, node: 0} for node in sorted(counts)]
        more += [{**limits, node: counts[node] - 1} for node in sorted(counts) if counts[node] > 1]
        self._limits += [entry for entry in more if entry not in self._limits]


def limited(snapshot: Snapshot, free: Ints, limits: Limits) -> Ints:
    """Free amounts under which no node takes more pods than its limit."""
    if not limits:
        return free
    fewer, pods = free.copy(), snapshot.resources.index(PODS)
    for node, most in limits.items():
        row = snapshot.nodes.row_of[node]
        fewer[pods, row] = min(most, fewer[pods, row])
    return fewer


class _RepackTrial:
    """One waiting gang against a snapshot, and the gangs that may be moved for it."""

    def __init__(
        self,
        base: Snapshot,
        gang: Gang,
        movable: Sequence[Movable],
        steps: DecisionSteps,
        closed: Collection[str],
    ) -> None:
        self._base, self._gang, self._steps = base, gang, steps
        self._closed = frozenset(closed)
        self._units = [
            candidate.unit
            for candidate in sorted(movable, key=lambda candidate: (candidate.unit.priority, candidate.unit.name))
        ]
        self._sets = SmallSets(base, gang, self._units)
        self._of = {candidate.unit.name: candidate for candidate in movable}
        self._best: Repack | None = None

    def cheapest(self) -> Repack | NoRepack:
        trial = PreemptionTrial(self._base, self._gang, (), self._steps, self._closed, NO_VACANCIES)
        empty = trial.emptied([pod for unit in self._units for pod in unit.pods])
        answer = trial.place(empty)
        if isinstance(answer, NoFit):
            why = Reason(NO_MOVES, numbers={"gangs": len(self._units)}, parts=(answer.why,))
            return NoRepack(self._gang.name, why, answer.proven)
        self._try_targets(empty)
        self._try_small_sets(MOST_SETS, self._ways)
        self._try_small_sets(MOST_DEEP_SETS, self._deep_ways, MOST_DEEP_MOVERS)
        if self._best is not None:
            return self._best
        why = Reason(NO_MOVES, numbers={"gangs": len(self._units)})
        return NoRepack(self._gang.name, why, False)

    def _try_targets(self, empty: Snapshot) -> None:
        """Looks for the fewest gangs to move away from one place of the waiting gang, then from the next."""
        closed, dearer = set(self._closed), 0
        for _ in range(MOST_TARGETS):
            if self._steps.are_over or dearer == MOST_DEARER:
                return
            trial = PreemptionTrial(self._base, self._gang, (), self._steps, closed, NO_VACANCIES)
            victims = trial.fewest(self._units, empty)
            if not isinstance(victims, Victims) or not victims.gangs:
                return
            before = self._best
            self._try([self._of[name] for name in victims.gangs], self._ways)
            dearer = dearer + 1 if before is not None and self._best is before else 0
            closed |= self._nodes_of_target(victims)

    def _nodes_of_target(self, victims: Victims) -> set[str]:
        """Nodes to leave out next: the whole domain that was tried, or the nodes of the gangs in its way."""
        key, nodes = victims.placement.domain_key, self._base.nodes
        if not key or not victims.placement.pods:
            return {pod.node for pod in victims.pods}
        ids = nodes.column(key).ids[: nodes.rows]
        mine = ids[nodes.row_of[victims.placement.pods[0].node]]
        return {facts.name for row in np.flatnonzero(ids == mine) if (facts := nodes.facts[row]) is not None}

    def _try_small_sets(self, tries: int, ways: Ways, most: int = MOST_MOVES) -> None:
        """Tries sets of gangs that cost less than the best plan, the cheapest first."""
        for pods, some in self._sets.by_size(self._steps):
            if self._best is not None and pods > self._best.cost[0]:
                return
            movers = [self._of[unit.name] for unit in some]
            if len(some) > most or self._is_dearer(movers) or not self._sets.may_suffice(some):
                continue
            tries -= 1
            if tries < 0:
                return
            self._try(movers, ways)

    def _is_dearer(self, movers: Sequence[Movable]) -> bool:
        return self._best is not None and cost_of(movers) >= self._best.cost

    def _try(self, movers: Sequence[Movable], ways: Ways) -> None:
        """Keeps the plan that moves these gangs, if there is one and it is the cheapest so far."""
        if len(movers) > MOST_MOVES or self._is_dearer(movers):
            return
        for moves in ways(movers):
            if moves is not None and self.played(moves) is not None:
                moves = self._spared(moves)
                if (placement := self.played(moves)) is not None:
                    cost = cost_of([self._of[move.unit.name] for move in moves])
                    self._best = Repack(self._gang.name, tuple(moves), placement, cost)
                return
            if self._steps.are_over:
                return

    def _ways(self, movers: Sequence[Movable]) -> Iterator[list[Move] | None]:
        """Ways to move these gangs: in other orders, and with the waiting gang in other places."""
        answer = self._place_gang(movers)
        for order in self._orders(movers):
            yield self._gang_first(order, answer)
            yield self._movers_first(order)
        if isinstance(answer, Placement):
            for node in sorted({pod.node for pod in answer.pods[: answer.core]})[:MOST_OTHERS]:
                other = self._place_gang(movers, {node: 0})
                for order in islice(self._orders(movers), 2):
                    yield self._gang_first(order, other)

    def _deep_ways(self, movers: Sequence[Movable]) -> Iterator[list[Move] | None]:
        """Ways to move these gangs with several places for each of them, and for the waiting gang."""
        targets, chains = SeveralPlaces(), 0
        for limits in islice(targets, MOST_OTHERS):
            target = self._place_gang(movers, limits)
            if isinstance(target, NoFit):
                continue
            targets.found(limits, target.pods[: target.core])
            for order in self._orders(movers):
                for moves in self._chains(self._base, self._end(movers, target), order):
                    chains += 1
                    yield moves
                    if chains == MOST_CHAINS:
                        return

    def _chains(self, now: Snapshot, end: Snapshot, movers: Sequence[Movable]) -> Iterator[list[Move]]:
        """Places for all of them one after the other, each in several places."""
        if not movers:
            yield []
            return
        for move in self._several_places(now, end, movers[0]):
            after, later = now.copy(), end.copy()
            make_move(after, move)
            later.assume(move.placement)
            for rest in self._chains(after, later, movers[1:]):
                yield [move, *rest]

    def _several_places(self, now: Snapshot, end: Snapshot, mover: Movable) -> Iterator[Move]:
        """Places with fewer pods on nodes of the first place, with and without the nodes that the gang has now."""
        known = list[dict[str, tuple[str, ...]]]()
        for capacity in (now.with_capacity_of(mover.unit.pods), now):
            free, places = np.minimum(capacity.free, end.free), SeveralPlaces()
            for limits in islice(places, MOST_PLACES):
                if self._steps.are_over:
                    return
                closed = tuple(sorted(self._closed.union(mover.closed)))
                move = self._move_to(now, mover, closed, limited(now, free, limits))
                if move is None:
                    continue
                places.found(limits, move.placement.pods)
                if move.places not in known:
                    known.append(move.places)
                    yield move

    def _orders(self, movers: Sequence[Movable]) -> Iterator[Sequence[Movable]]:
        """Largest gangs first: they have the fewest places to go to. Then other orders."""
        largest = sorted(movers, key=lambda mover: (-len(mover.unit.pods), mover.unit.name))
        return islice(permutations(largest), MOST_ORDERS)

    def _place_gang(self, movers: Sequence[Movable], limits: Limits = MappingProxyType({})) -> Placement | NoFit:
        """A place for the waiting gang once the movers have left: on their nodes, as far as that is possible."""
        leaving, rows = [pod for mover in movers for pod in mover.unit.pods], self._base.nodes.row_of
        cost = np.ones(self._base.nodes.rows, dtype=np.int64)
        cost[[rows[pod.node] for pod in leaving if pod.node in rows]] = 0
        end = self._base.without([pod.uid for pod in leaving])
        free, steps = limited(end, end.free, limits), self._steps.next_search()
        return self._taken(place_on(end, self._gang, steps, sorted(self._closed), free, cost))

    def _gang_first(self, movers: Sequence[Movable], answer: Placement | NoFit) -> list[Move] | None:
        """Places the movers on what the waiting gang leaves in its place."""
        return None if isinstance(answer, NoFit) else self._moved(movers, self._end(movers, answer))

    def _end(self, movers: Sequence[Movable], answer: Placement) -> Snapshot:
        """The cluster without the movers, with the waiting gang in its place."""
        end = self._base.without([pod.uid for mover in movers for pod in mover.unit.pods]).copy()
        for pod in answer.pods[: answer.core]:
            end.add_pod(pod)
        return end

    def _movers_first(self, movers: Sequence[Movable]) -> list[Move] | None:
        """Places the movers away from all nodes that they leave. The waiting gang takes what remains."""
        return self._moved(movers, None, {pod.node for mover in movers for pod in mover.unit.pods})

    def _moved(
        self, movers: Sequence[Movable], end: Snapshot | None, avoided: Collection[str] = ()
    ) -> list[Move] | None:
        """A new place for each, free now and in `end`: the cluster with the waiting gang and without the movers."""
        now, moves = self._base.copy(), list[Move]()
        for mover in movers:
            closed = tuple(sorted(self._closed.union(avoided, mover.closed)))
            free = now.free if end is None else np.minimum(now.free, end.free)
            move = self._move_to(now, mover, closed, free)
            if move is None and end is not None:
                own = now.with_capacity_of(mover.unit.pods)
                move = self._move_to(now, mover, closed, np.minimum(own.free, end.free))
            if move is None:
                return None
            moves.append(move)
            make_move(now, move)
            if end is not None:
                end.assume(move.placement)
        return moves

    def _move_to(self, now: Snapshot, mover: Movable, closed: tuple[str, ...], free: Ints) -> Move | None:
        """A place for the whole gang in these free amounts, which it can have while it still runs."""
        tree = mover.tree.with_pods({pod.uid: _renamed(pod) for group in mover.tree.groups() for pod in group.pods})
        # Its replacements are placed when the old pods are gone, so a spread is judged without them.
        judged = now.without([pod.uid for pod in mover.unit.pods]) if tree.spreads else now
        # The policies are not asked: what the gang uses does not change.
        answer = self._taken(place_admitted(judged, tree, self._steps.next_search(), closed, free, None))
        if isinstance(answer, NoFit) or answer.unplaced or len(answer.pods) < len(mover.unit.pods):
            return None
        move = Move(mover.unit, answer)
        return move if has_place(now, move.arriving) else None

    def _spared(self, moves: list[Move]) -> list[Move]:
        """Leaves out moves that are not needed, the dearest first."""
        for move in (
            sorted(moves, key=lambda move: (-len(move.unit.pods), -move.unit.priority)) if len(moves) > 1 else ()
        ):
            fewer = [other for other in moves if other is not move]
            if fewer and self.played(fewer) is not None:
                moves = fewer
        return moves

    def played(self, moves: Sequence[Move]) -> Placement | None:
        """Plays the moves on a copy; where the waiting gang fits then, or None."""
        now = self._base.copy()
        for move in moves:
            if not has_place(now, move.arriving):
                return None
            make_move(now, move)
        if self._steps.are_over:
            return None
        answer = self._taken(place(now, self._gang, self._steps.next_search(), closed=tuple(sorted(self._closed))))
        return answer if isinstance(answer, Placement) else None

    def _taken(self, answer: Placement | NoFit) -> Placement | NoFit:
        self._steps.take(answer.steps)
        return answer


def cost_of(movers: Sequence[Movable]) -> Cost:
    pods = sum(len(mover.unit.pods) for mover in movers)
    priorities = tuple(sorted((mover.unit.priority for mover in movers), reverse=True))
    return pods, priorities, max((mover.moved_s for mover in movers), default=0.0)


def make_move(snapshot: Snapshot, move: Move) -> None:
    """The gang is in its new place, and has left the old one."""
    for pod in move.unit.pods:
        snapshot.remove_pod(pod.uid)
    for pod in move.placement.pods:
        snapshot.add_pod(pod)


def _renamed(pod: PodFacts) -> PodFacts:
    return structs.replace(pod, uid=MOVED + pod.uid, node="")
