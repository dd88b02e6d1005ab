"""How many pods of each kind go to each row, whatever the order: a search over tallies.

It branches first over domains that pods have to share, then between one more pod on a row and no more there. After each
step `closing` applies the rules. The result is what a finished placement could look like, and `order` decides whether
it can be bound one by one. Without a result there is no placement, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.filters.fit import pod_slots
from grove.scheduler.solve.closing import PodTally, close_in_once
from grove.scheduler.solve.rules import Rules
from grove.scheduler.solve.search_state import ROWS_A_STEP, SearchState

CLOSE_STEPS = 8
"""What one round over all rules costs in steps, the passes over rows aside."""
MOST_ROUNDS = 12
"""Rounds after which bounds that still move are left as they are: they are right at any time, if not the tightest."""


class Counter:
    """The rules of one problem, applied to tallies of it."""

    def __init__(self, state: SearchState) -> None:
        problem = self._problem = state.problem
        self._state, self.rules = state, Rules(problem)

    def start(self) -> PodTally:
        problem = self._problem
        fits = [self._state.pod_slots(o, 0, problem.size) for o in range(len(problem.options))]
        most = np.minimum(np.array(fits, dtype=np.int64), self.rules.need[:, None])
        for near in self.rules.near:
            most[near.holders] *= self.rules.labels[near.label].present
        for even in self.rules.even:
            most[even.holder] *= self.rules.labels[even.label].present
        return PodTally(most, np.zeros_like(most), [rule.may_be for rule in self.rules.together])

    def close_in(self, tally: PodTally) -> bool:
        """Lowers `most` as far as the rules see; False if no placement is left."""
        self._leave_capacity(tally)
        for _ in range(MOST_ROUNDS):
            self._state.spend(self._problem.size * len(self.rules.need) + CLOSE_STEPS * ROWS_A_STEP)
            before = tally.most.sum()
            if not close_in_once(self._problem, self.rules, tally):
                return False
            if tally.most.sum() == before:
                return True
        return True

    def _leave_capacity(self, tally: PodTally) -> None:
        """A placed pod takes capacity, is not needed again, and keeps out those that may not share a node with it."""
        problem = self._problem
        for lacks, (_, options) in zip(self.lacking(tally), self.rules.groups, strict=True):
            tally.most[options] = np.minimum(tally.most[options], tally.put[options] + lacks)
        free = problem.free - self.rules.requests.T @ tally.put
        for o, option in enumerate(problem.options):
            np.minimum(tally.most[o], tally.put[o] + pod_slots(free, option.request), out=tally.most[o])
            for other in problem.conflicts[o]:
                tally.most[o] *= tally.put[other] == 0

    def lacking(self, tally: PodTally) -> list[int]:
        """By group that needs pods: how many are not put yet."""
        return [need - int(tally.put[options].sum()) for need, options in self.rules.groups]

    def tallies(self) -> Iterator[PodTally]:
        """Every tally that passes the rules, rows that look alike counted once. May raise OutOfSteps."""
        stack = [self.start()]
        while stack:
            tally = stack.pop()
            if not self.close_in(tally):
                continue
            lacking = self.lacking(tally)
            if not any(lacking):
                yield tally
                continue
            stack += reversed(list(self._home_branches(tally) or self._pod_branches(tally, lacking)))

    def _home_branches(self, tally: PodTally) -> list[PodTally]:
        """One for each domain of the pods together that have the fewest to choose from; empty if all have chosen."""
        open_ = [(int(home.sum()), i) for i, home in enumerate(tally.homes) if home.sum() > 1]
        if not open_:
            return []
        _, i = min(open_)
        rule = self.rules.together[i]
        held = self.rules.labels[rule.label].sums(tally.most[rule.options].sum(axis=0))
        branches = []
        for domain in sorted(np.flatnonzero(tally.homes[i]).tolist(), key=lambda d: (held[d], d)):
            branch = tally.copy()
            branch.homes[i] = np.arange(held.size) == domain
            branches.append(branch)
        return branches

    def _pod_branches(self, tally: PodTally, lacking: list[int]) -> list[PodTally]:
        """One more pod of the group with the least to spare, on its best row; and no more of them there."""
        spare = [
            (int(tally.most[options].sum()) / need, -need, at)
            for at, ((need, options), lacks) in enumerate(zip(self.rules.groups, lacking, strict=True))
            if lacks
        ]
        options = self.rules.groups[min(spare)[2]][1]
        o = max(options, key=lambda option: (int((tally.most[option] - tally.put[option]).sum()), -option))
        row = self._best_row(tally, o)
        with_it, without = tally.copy(), tally
        with_it.put[o, row] += 1
        without.most[o, self._alike(tally, row)] = tally.put[o, row]
        return [with_it, without]

    def _best_row(self, tally: PodTally, o: int) -> int:
        """Where a spread that it obeys has fewest, then one that counts it; then beside what was put, then fullest."""
        rows, labels = np.flatnonzero(tally.most[o] > tally.put[o]), self.rules.labels
        keys: list[Ints] = [(tally.most - tally.put).sum(axis=0)[rows], -tally.put.sum(axis=0)[rows]]
        keys += [-(label.sums(tally.put.sum(axis=0)) > 0)[label.of_row[rows]].astype(np.int64) for label in labels]
        for even in sorted(self.rules.even, key=lambda rule: rule.holder == o):
            if even.holder == o or o in even.matched:
                label = labels[even.label]
                number = even.numbers + label.sums(tally.put[even.matched].sum(axis=0))
                keys.append(number[label.of_row[rows]])
        return int(rows[np.lexsort(keys)[0]])

    def _alike(self, tally: PodTally, row: int) -> Mask:
        """Rows that can stand for this one: same bounds, same capacity, same domains but for those of one row alone."""
        free = self._problem.free
        alike: Mask = (tally.most == tally.most[:, row : row + 1]).all(axis=0)
        alike &= (tally.put == tally.put[:, row : row + 1]).all(axis=0) & (free == free[:, row : row + 1]).all(axis=0)
        for label in self.rules.labels:
            size = np.bincount(label.of_row)[label.of_row]
            same = label.of_row == label.of_row[row]
            alike &= same | ((size == 1) & (size[row] == 1) & (label.present == label.present[row]))
        for even in self.rules.even:
            label = self.rules.labels[even.label]
            alike &= even.numbers[label.of_row] == even.numbers[label.of_row[row]]
            alike &= even.counted[label.of_row] == even.counted[label.of_row[row]]
        for near in self.rules.near:
            runs = near.runs[self.rules.labels[near.label].of_row]
            alike &= runs == runs[row]
        for home, rule in zip(tally.homes, self.rules.together, strict=True):
            inside = home[self.rules.labels[rule.label].of_row]
            alike &= inside == inside[row]
        return alike
