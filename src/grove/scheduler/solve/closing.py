"""Bounds that close in on each other: rules of a gang's pods brought to bear on a tally, one after the other.

What a domain holds at most limits how even a spread can get. That limits what other domains may hold. Where too few
places are left, pods must go to those, which keeps others out. Every bound holds for all placements, whatever the order
of their pods: one that fails is a proof that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.filters.fit import PLENTY
from grove.scheduler.solve.problem import Problem
from grove.scheduler.solve.rules import Even, Rules


@dataclass(slots=True)
class PodTally:
    """How many pods go where, as far as it is known."""

    most: Ints
    """By option and row: no placement has more."""
    put: Ints
    """By option and row: pods that are there for good."""
    homes: list[Mask]
    """By rule of pods together: domains they may still be in."""

    def copy(self) -> PodTally:
        return PodTally(self.most.copy(), self.put.copy(), [home.copy() for home in self.homes])


def close_in_once(problem: Problem, rules: Rules, tally: PodTally) -> bool:
    """Lowers `most` by one pass of all rules; False if no placement is left."""
    return _Round(problem, rules, tally).is_possible()


class _Round:
    def __init__(self, problem: Problem, rules: Rules, tally: PodTally) -> None:
        self._problem, self._rules, self._tally = problem, rules, tally
        self._labels = rules.labels
        self._held: list[Ints] = [np.zeros(0, dtype=np.int64)] * len(self._labels)
        """By label: what each domain holds of each option at most, limits of the domains in it regarded."""
        self._caps = [np.full((len(rules.need), label.size), PLENTY, dtype=np.int64) for label in self._labels]

    def is_possible(self) -> bool:
        self._cap_by_apart()
        self._hold()
        if not self._has_enough():
            return False
        self._find_least()
        return (
            self._keep_even() and self._keep_near() and self._keep_together() and self._keep_apart() and self._apply()
        )

    def _cap_by_apart(self) -> None:
        for apart in self._rules.apart:
            both = [o for o in apart.holders if o in apart.matched]
            caps = self._caps[apart.label]
            caps[both] = np.where(self._labels[apart.label].labelled, np.minimum(caps[both], 1), caps[both])
        for even in self._rules.even:
            if even.counts_itself:
                # No more than the fewest could ever be: from the last round's bounds.
                label = self._labels[even.label]
                low = self._lowest(even, label.sums(self._tally.most[even.matched]))
                caps = self._caps[even.label][even.holder]
                np.minimum(caps, np.maximum(low + even.skew - even.numbers, 0), out=caps)

    def _lowest(self, even: Even, held: Ints) -> int:
        """How many pods the emptiest domain of a spread can have at most in the end."""
        if not even.is_bound:
            return 0
        ends = even.numbers + held.sum(axis=0)
        low = int(ends[even.counted].min()) if even.counted.any() else 0
        return min(low, even.outside) if even.outside >= 0 else low

    def _hold(self) -> None:
        """Domain by domain what it holds, narrow before wide, where one label divides the other."""
        for at, inner in self._rules.nested:
            label = self._labels[at]
            if inner is None:
                sums = label.sums(self._tally.most)
            else:
                parent = label.of_row[self._labels[inner].first]
                order = parent.argsort(kind="stable")
                starts = parent[order].searchsorted(np.arange(label.size))
                sums = np.add.reduceat(self._held[inner][:, order], starts, axis=1)
            self._held[at] = np.minimum(sums, self._caps[at])

    def _has_enough(self) -> bool:
        """True if every group has places for all its pods, and all groups together have enough of each resource."""
        rules, most = self._rules, self._tally.most
        total = most.sum(axis=1)
        for held in self._held:
            total = np.minimum(total, held.sum(axis=1))
        self._total = np.minimum(total, rules.need)
        for need, options in rules.groups:
            if int(self._total[options].sum()) < need:
                return False
        problem = self._problem
        for r in range(len(problem.resources)):
            usable = np.minimum(np.maximum(problem.free[r], 0), rules.requests[:, r] @ most).sum()
            needed = sum(need * min(int(rules.requests[o, r]) for o in options) for need, options in rules.groups)
            if usable < needed:
                return False
        return True

    def _find_least(self) -> None:
        """By label: pods of an option that each domain must end with, because the others do not hold the rest."""
        rules = self._rules
        self._least = []
        for label, held in zip(self._labels, self._held, strict=True):
            least = label.sums(self._tally.put)
            for need, options in rules.groups:
                if len(options) == 1:
                    o = options[0]
                    np.maximum(least[o], need - (held[o].sum() - held[o]), out=least[o])
            self._least.append(least)

    def _keep_even(self) -> bool:
        rules = self._rules
        for even in rules.even:
            label, held, least = self._labels[even.label], self._held[even.label], self._least[even.label]
            o = even.holder
            low = self._lowest(even, held[even.matched])
            if even.is_bound and even.counted.any():
                everyone = sum(
                    need for need, options in rules.groups if any(option in even.matched for option in options)
                ) + int(even.numbers[even.counted].sum())
                low = min(low, everyone // int(even.counted.sum()))
            top = low + even.skew - even.numbers
            if even.counts_itself:
                others = np.zeros(label.size, dtype=np.int64)
                if even.all_hold:
                    others = least[even.matched].sum(axis=0) - least[o]
                np.minimum(self._caps[even.label][o], np.maximum(top - others, 0), out=self._caps[even.label][o])
                if even.is_bound and even.matched == [o] and not self._raise_least(even, held[o], least[o], low):
                    return False
            else:
                self._caps[even.label][o][top < 0] = 0
        return True

    def _raise_least(self, even: Even, held: Ints, least: Ints, most: int) -> bool:
        """If few in the emptiest domain leaves too little capacity in the others, every domain must end with more."""
        options = next(options for _, options in self._rules.groups if even.holder in options)
        if len(options) > 1:
            return True
        need = int(self._rules.need[even.holder])
        low = 0
        while int(np.minimum(held, np.maximum(low + even.skew - even.numbers, 0)).sum()) < need:
            low += 1
            if low > most:
                return False
        np.maximum(least, np.where(even.counted, low - even.numbers, 0), out=least)
        return True

    def _keep_near(self) -> bool:
        for near in self._rules.near:
            held = self._held[near.label]
            first = [m for m in near.matched if m not in near.holders]
            begins = near.matched if not near.has_running else first
            may = near.runs | (held[begins].sum(axis=0) > 0)
            self._caps[near.label][near.holders] *= may
        return True

    def _keep_together(self) -> bool:
        """Domains that cannot hold all pods of those together are no home for them; the only one left is."""
        rules, problem = self._rules, self._problem
        for i, rule in enumerate(rules.together):
            label, held, home = self._labels[rule.label], self._held[rule.label], self._tally.homes[i].copy()
            inside = [(need, options) for need, options in rules.groups if set(options) <= set(rule.options)]
            for need, options in inside:
                home &= held[options].sum(axis=0) >= need
            for r in range(len(problem.resources)):
                needed = sum(need * min(int(rules.requests[o, r]) for o in options) for need, options in inside)
                usable = np.minimum(
                    np.maximum(problem.free[r], 0), rules.requests[rule.options, r] @ self._tally.most[rule.options]
                )
                home &= label.sums(usable) >= needed
            forced = (self._least[rule.label][rule.options] > 0).any(axis=0)
            if forced.any():
                home &= forced
                if forced.sum() > 1:
                    return False
            if not home.any():
                return False
            self._tally.homes[i] = home
            self._caps[rule.label][rule.options] *= home
        return True

    def _keep_apart(self) -> bool:
        """Where some pod must be, none that is apart from it can."""
        for apart in self._rules.apart:
            labelled = self._labels[apart.label].labelled
            caps, must = self._caps[apart.label], (self._least[apart.label] > 0) & labelled
            for holder in apart.holders:
                for other in apart.matched:
                    if holder != other:
                        caps[other][must[holder]] = 0
                        caps[holder][must[other]] = 0
        return True

    def _apply(self) -> bool:
        """Brings the limits of domains down to their rows; what must be there must be allowed there."""
        tally = self._tally
        for label, caps, least in zip(self._labels, self._caps, self._least, strict=True):
            if (least > caps).any():
                return False
            # A row may have what its domain may, less what the domain has on other rows.
            elsewhere = label.sums(tally.put)
            spare = np.maximum(caps - elsewhere, 0)[:, label.of_row]
            np.minimum(tally.most, tally.put + spare, out=tally.most)
        return not bool((tally.most < tally.put).any())
