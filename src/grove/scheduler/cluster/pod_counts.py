"""The pods of a snapshot, and numbers about them: how many pods a term matches on each row, and what they use by
account.

A counter of a term (affinity, anti-affinity, spread) is made by one scan at the first question about it. Pod events
then keep it current. The counters of running pods' own anti-affinity terms are always kept. Copies share arrays until
one of them writes. A policy compares the sums by account with its limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, TypeVar

import numpy as np

from grove.scheduler.cluster.node_table import FIRST_ROWS, Ints
from grove.scheduler.model.facts import PodFacts, PodScope, PodTerm
from grove.scheduler.model.seams import Policy

MOST_COUNTERS = 256

K = TypeVar("K", PodScope, PodTerm)


class _Index:
    """Scopes by one label they insist on, so that a pod is compared with the few that could mean it, not with all."""

    def __init__(self, scopes: Iterable[PodScope]) -> None:
        self._by_label: dict[tuple[str, str], list[PodScope]] = {}
        self._others: list[PodScope] = []
        for scope in scopes:
            label = _label_of(scope)
            if label is None:
                self._others.append(scope)
            else:
                self._by_label.setdefault(label, []).append(scope)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[PodScope]:
        yield from self._others
        if self._by_label:
            for label in labels.items():
                yield from self._by_label.get(label, ())


def _label_of(scope: PodScope) -> tuple[str, str] | None:
    for r in scope.selector.requirements:
        if r.operator == "In" and len(r.values) == 1:
            return r.key, next(iter(r.values))
    return None


class PodCounts:
    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self._scopes: dict[PodScope, Ints] = {}
        self._terms: dict[PodTerm, Ints] = {}
        self._units: dict[tuple[PodScope, str], Counter[tuple[str, int]]] = {}
        """By scope and label: pods by the label's value and row."""
        self._owned: set[object] = set()
        self._scope_index: _Index | None = None
        self._term_index: _Index | None = None
        self._terms_of: dict[PodScope, list[PodTerm]] = {}

    def add(self, pod: PodFacts, row: int) -> None:
        self._change(pod, row, 1)

    def remove(self, pod: PodFacts, row: int) -> None:
        self._change(pod, row, -1)

    def in_scope(self, scope: PodScope, everyone: Iterable[tuple[PodFacts, int]], rows: int) -> Ints:
        """Pods in scope by row, for the first rows."""
        counts = self._scopes.get(scope)
        if counts is None:
            if len(self._scopes) >= MOST_COUNTERS:
                self._scopes, self._units = {}, {}
            self._scope_index = None
            counts = np.zeros(max(rows, FIRST_ROWS), dtype=np.int64)
            for pod, row in everyone:
                if self.matches(scope, pod):
                    counts[row] += 1
            self._scopes[scope] = counts
            self._owned.add(scope)
        if counts.size < rows:
            counts = self._scopes[scope] = np.concatenate([counts, np.zeros(rows - counts.size, dtype=np.int64)])
            self._owned.add(scope)
        return counts[:rows]

    def units_in_scope(
        self, scope: PodScope, label: str, everyone: Iterable[tuple[PodFacts, int]], rows: int
    ) -> Mapping[tuple[str, int], int]:
        """Pods in scope by their value of a label and by row."""
        counter = self._units.get((scope, label))
        if counter is None:
            pods = list(everyone)
            self.in_scope(scope, pods, rows)  # events reach scopes that are counted
            matched = ((pod.labels.get(label, ""), row) for pod, row in pods if self.matches(scope, pod))
            counter = self._units[scope, label] = Counter(matched)
            self._owned.add((scope, label))
        return counter

    def standing_terms(self) -> Iterable[PodTerm]:
        """Anti-affinity terms of counted pods."""
        return self._terms

    def terms_against(self, pod: PodFacts) -> list[PodTerm]:
        """Anti-affinity terms of counted pods that speak of this one."""
        if not self._terms:
            return []
        if self._term_index is None:
            self._terms_of = {}
            for term in self._terms:
                self._terms_of.setdefault(term.scope, []).append(term)
            self._term_index = _Index(self._terms_of)
        scopes = self._term_index.candidates(pod.labels)
        return [term for scope in scopes if self.matches(scope, pod) for term in self._terms_of[scope]]

    def holders(self, term: PodTerm) -> Ints:
        """Pods on each row that hold an anti-affinity term; rows beyond the end have none."""
        return self._terms[term]

    def matches(self, scope: PodScope, pod: PodFacts) -> bool:
        if pod.terminating and not scope.with_terminating:
            return False
        return scope.matches(pod.namespace, pod.labels, self.namespaces)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        if labels is None:
            self.namespaces = {n: known for n, known in self.namespaces.items() if n != name}
        elif self.namespaces.get(name) != labels:
            self.namespaces = {**self.namespaces, name: labels}
        else:
            return
        self._scopes = {scope: n for scope, n in self._scopes.items() if scope.namespace_selector.nothing}
        self._units = {key: n for key, n in self._units.items() if key[0].namespace_selector.nothing}
        self._scope_index = None

    def copy(self) -> PodCounts:
        twin = PodCounts.__new__(PodCounts)
        twin.namespaces = self.namespaces
        twin._scopes, twin._terms, twin._units = self._scopes.copy(), self._terms.copy(), self._units.copy()
        twin._owned, self._owned = set(), set()
        twin._scope_index, twin._term_index, twin._terms_of = self._scope_index, self._term_index, self._terms_of
        return twin

    def _change(self, pod: PodFacts, row: int, by: int) -> None:
        if self._scopes:
            if self._scope_index is None:
                self._scope_index = _Index(self._scopes)
            for scope in self._scope_index.candidates(pod.labels):
                if self.matches(scope, pod):
                    self._writable(self._scopes, scope, row)[row] += by
                    if self._units:
                        self._change_units(scope, pod, row, by)
        for term in pod.shape.anti_affinity:
            counter = self._writable(self._terms, term, row)
            counter[row] += by
            if by < 0 and not counter.any():
                del self._terms[term]
                self._term_index = None

    def _change_units(self, scope: PodScope, pod: PodFacts, row: int, by: int) -> None:
        for key in [key for key in self._units if key[0] == scope]:
            at = (pod.labels.get(key[1], ""), row)
            if key not in self._owned:
                self._units[key] = self._units[key].copy()
                self._owned.add(key)
            changed = self._units[key]
            changed[at] += by
            if not changed[at]:
                del changed[at]

    def _writable(self, counters: dict[K, Ints], key: K, row: int) -> Ints:
        counter = counters.get(key)
        if counter is None or counter.size <= row:
            if counter is None:
                self._term_index = None
            old = np.zeros(0, dtype=np.int64) if counter is None else counter
            size = max(FIRST_ROWS, 2 * (row + 1))
            counter = counters[key] = np.concatenate([old, np.zeros(size - old.size, dtype=np.int64)])
            self._owned.add(key)
        elif key not in self._owned:
            counter = counters[key] = counter.copy()
            self._owned.add(key)
        return counter


NONE: Mapping[str, int] = {}


class Usage:
    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        # Most policies charge no queue, and thousands of pods come and go.
        self._accounts = [policy.account for policy in policies if type(policy).account is not Policy.account]
        self.charges = bool(self._accounts)
        """Whether any pod is charged at all; if not, there is nothing to add."""
        self._sums: dict[str, Mapping[str, int]] = {}
        self.state: object = object()
        """Another one after every change; a copy has its original's until one of them changes."""

    def of(self, account: str) -> Mapping[str, int]:
        """Amounts by resource; what was never asked for is not in it."""
        return self._sums.get(account, NONE)

    def add(self, pod: PodFacts, sign: int = 1) -> None:
        for account_of in self._accounts:
            account = account_of(pod)
            if account is not None:
                # Copies share the sums, so they are replaced and never changed.
                sums = dict(self.of(account))
                for name, amount in pod.shape.used:
                    sums[name] = sums.get(name, 0) + sign * amount
                self._sums[account] = sums
                self.state = object()

    def remove(self, pod: PodFacts) -> None:
        self.add(pod, -1)

    def copy(self) -> Usage:
        twin = Usage.__new__(Usage)
        twin._accounts, twin._sums, twin.state = self._accounts, dict(self._sums), self.state
        twin.charges = True
        return twin


V = TypeVar("V")

SHARDS = 256


class Shards(Generic[V]):
    """A dictionary that can be copied in microseconds: split into small parts, shared until written to.

    A snapshot of 100,000 pods is copied many times a second; a plain dict copy would take milliseconds each time.
    Iteration order depends on string hashing and must never reach a decision.
    """

    __slots__ = ("_owned", "_parts")

    def __init__(self) -> None:
        self._parts: list[dict[str, V]] = [{} for _ in range(SHARDS)]
        self._owned = bytearray(b"\1" * SHARDS)

    def get(self, key: str) -> V | None:
        return self._parts[hash(key) % SHARDS].get(key)

    def put(self, key: str, value: V) -> None:
        self._own(hash(key) % SHARDS)[key] = value

    def pop(self, key: str) -> V | None:
        at = hash(key) % SHARDS
        return self._own(at).pop(key) if key in self._parts[at] else None

    def values(self) -> Iterator[V]:
        return chain.from_iterable(part.values() for part in self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def copy(self) -> Shards[V]:
        twin: Shards[V] = Shards.__new__(Shards)
        twin._parts = self._parts.copy()
        twin._owned = bytearray(SHARDS)
        self._owned = bytearray(SHARDS)
        return twin

    def _own(self, at: int) -> dict[str, V]:
        part = self._parts[at]
        if not self._owned[at]:
            part = self._parts[at] = part.copy()
            self._owned[at] = 1
        return part
