"""What the pods of a gang demand of each other, as numbers: apart, near or evenly by a label, together in a domain.

Options stand for pods, domains for values of a node label among the candidate rows. Each rule says what the finished
placement must look like, whatever the order its pods are bound in; the order may ask for more. `tally` counts by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from grove.scheduler.cluster.node_table import Ids, Ints, Mask
from grove.scheduler.filters.pod_relations import counted_rows, pods_matching_all, spread_counts
from grove.scheduler.model.facts import PodFacts, PodScope, Spread
from grove.scheduler.solve.problem import Problem

T = TypeVar("T", np.bool_, np.int64)


class Label:
    """Candidate rows by the value of a label. A row without it is a domain by itself: it has nothing to share."""

    def __init__(self, ids: Ids | Ints) -> None:
        self.present: Mask = ids >= 0
        own = np.where(self.present, ids, int(ids.max(initial=0)) + 1 + np.arange(ids.size))
        self.values, self.first, self.of_row = np.unique(own, return_index=True, return_inverse=True)
        """Coded values; a row of each; the domain of each row."""
        self.size = int(self.values.size)
        self.labelled: Mask = self.present[self.first]
        self.sorting = self.of_row.argsort(kind="stable")
        self.starts = self.of_row[self.sorting].searchsorted(np.arange(self.size))

    def divides(self, other: Label) -> bool:
        """True if each domain lies in one domain of the other label."""
        return bool((other.of_row == other.of_row[self.first][self.of_row]).all())

    def sums(self, by_row: Ints) -> Ints:
        """Sums by domain of amounts by row, along the last axis."""
        sums: Ints = np.add.reduceat(by_row[..., self.sorting], self.starts, axis=-1)
        return sums

    def at(self, by_value: NDArray[T]) -> NDArray[T]:
        """By domain, what a table by coded value says; nothing where the label is missing."""
        by_node: NDArray[T] = by_value[np.where(self.labelled, self.values, 0)] * self.labelled
        return by_node


@dataclass(slots=True)
class Apart:
    """`holders` share no domain with `matched`. A pod that is both shares its domain with no other such pod."""

    label: int
    holders: list[int]
    matched: list[int]


@dataclass(slots=True)
class Near:
    """`holders` go to domains with matching pods: those that run, those of `matched` that need no other to begin."""

    label: int
    holders: list[int]
    matched: list[int]
    runs: Mask
    """Domains where matching pods run."""
    has_running: bool
    """Whether matching pods run anywhere; if not, one of `matched` may begin somewhere."""


@dataclass(slots=True)
class Even:
    """Where a pod of `holder` goes, pods of `matched` exceed the emptiest domain by no more than the skew."""

    label: int
    holder: int
    matched: list[int]
    counts_itself: bool
    all_hold: bool
    """Whether everyone who counts obeys the same rule: then the last of them in a domain sees all others there."""
    skew: int
    numbers: Ints
    """Running pods by domain."""
    rows: Mask
    """Candidate rows where pods count."""
    counted: Mask
    """Domains among which it evens out."""
    outside: int
    """The fewest in a domain without candidates: there it stays so. A negative number if there is none."""
    is_bound: bool
    """Whether there are enough domains for the emptiest to count; else it counts as empty."""


@dataclass(slots=True)
class Together:
    """All pods of the options in one of the domains that `may_be` marks."""

    label: int
    options: list[int]
    may_be: Mask


class Rules:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._snapshot = problem.snapshot
        self.labels: list[Label] = []
        self._label_of: dict[object, int] = {}
        self._firsts = [problem.groups[o.group].classes[o.kind][0] for o in problem.options]
        self.groups = [(group.need, group.options) for group in problem.groups if group.need > 0]
        """(pods needed, options) of every group that needs any."""
        self.need = np.array([self._most_of(o) for o in range(len(problem.options))], dtype=np.int64)
        """By option: no placement has more of its pods."""
        self.requests = np.array([option.request for option in problem.options], dtype=np.int64)
        self._wanted = [o for o, option in enumerate(problem.options) if problem.groups[option.group].need > 0]
        self.apart = list(self._aparts())
        self.near = list(self._nears())
        self.even = [self._even(o, spread) for o in self._wanted for spread in self._firsts[o].shape.spread]
        self.together = [*self._series(), *self._required()]
        self.nested = self._nested()
        """Labels, narrow before wide, each with the widest that divides it, if one does."""

    def _most_of(self, o: int) -> int:
        option = self._problem.options[o]
        group = self._problem.groups[option.group]
        return min(group.need, len(group.classes[option.kind]))

    def _nested(self) -> list[tuple[int, int | None]]:
        order = sorted(range(len(self.labels)), key=lambda at: -self.labels[at].size)
        nested: list[tuple[int, int | None]] = []
        for i, at in enumerate(order):
            inner = (other for other in reversed(order[:i]) if self.labels[other].divides(self.labels[at]))
            nested.append((at, next(inner, None)))
        return nested

    def _label(self, key: str) -> int:
        if key not in self._label_of:
            self._label_of[key] = len(self.labels)
            self.labels.append(Label(self._snapshot.nodes.column(key).ids[self._problem.rows]))
        return self._label_of[key]

    def _level(self, level: int) -> int:
        if level not in self._label_of:
            self._label_of[level] = len(self.labels)
            self.labels.append(Label(self._problem.tree.domains[level][self._problem.positions]))
        return self._label_of[level]

    def _matched(self, scopes: Iterable[PodScope]) -> list[int]:
        """Options whose pods are in all scopes."""
        matches = self._snapshot.counts.matches
        return [o for o in self._wanted if all(matches(scope, self._firsts[o]) for scope in scopes)]

    def _aparts(self) -> Iterable[Apart]:
        holders: dict[tuple[str, PodScope], list[int]] = {}
        for o in self._wanted:
            for term in self._firsts[o].shape.anti_affinity:
                holders.setdefault((term.topology_key, term.scope), []).append(o)
        for (key, scope), held in holders.items():
            if matched := self._matched([scope]):
                yield Apart(self._label(key), held, matched)

    def _nears(self) -> Iterable[Near]:
        holders: dict[tuple[str, frozenset[PodScope]], list[int]] = {}
        for o in self._wanted:
            terms = self._firsts[o].shape.affinity
            for key in dict.fromkeys(term.topology_key for term in terms):
                holders.setdefault((key, frozenset(term.scope for term in terms)), []).append(o)
        for (key, scopes), held in holders.items():
            running = pods_matching_all(self._snapshot, key, tuple(scopes))
            label = self._label(key)
            runs = self.labels[label].at(running) > 0
            yield Near(label, held, self._matched(scopes), runs, bool(running.any()))

    def _even(self, option: int, spread: Spread) -> Even:
        pod = self._firsts[option]
        at = self._label(spread.topology_key)
        label, matched = self.labels[at], self._matched([spread.scope])
        rows = counted_rows(self._snapshot, pod, spread)
        numbers, domains = spread_counts(self._snapshot, spread, rows)
        among = np.zeros(numbers.size, dtype=np.bool_)
        among[domains] = True
        counted = label.at(among)
        among[label.values[label.labelled]] = False
        beyond = numbers[among]
        return Even(
            at,
            option,
            matched,
            option in matched,
            all(self._holds_too(other, pod, spread) for other in matched),
            spread.max_skew,
            label.at(numbers),
            rows[self._problem.rows],
            counted,
            int(beyond.min()) if beyond.size else -1,
            domains.size >= spread.min_domains,
        )

    def _holds_too(self, option: int, pod: PodFacts, spread: Spread) -> bool:
        """True if an option has this spread too and counts the same nodes."""
        mine, theirs = pod.shape, self._firsts[option].shape
        return spread in theirs.spread and (
            (mine.node_selector, mine.node_affinity, mine.tolerations, {other.topology_key for other in mine.spread})
            == (theirs.node_selector, theirs.node_affinity, theirs.tolerations, {s.topology_key for s in theirs.spread})
        )

    def _series(self) -> Iterable[Together]:
        """Pods that must be near each other only are in one domain: that of the first."""
        for near in self.near:
            if not near.has_running and near.matched and set(near.matched) <= set(near.holders):
                yield Together(near.label, near.holders, self.labels[near.label].labelled)

    def _required(self) -> Iterable[Together]:
        problem = self._problem
        for part in problem.root.walk():
            options = [o for o in self._wanted if problem.options[o].group in part.groups]
            if part.required_level >= 0 and options:
                at = self._level(part.required_level)
                label = self.labels[at]
                may_be = label.labelled
                if part.pinned_domains is not None:
                    may_be = may_be & np.isin(label.values, sorted(part.pinned_domains))
                yield Together(at, options, may_be)
