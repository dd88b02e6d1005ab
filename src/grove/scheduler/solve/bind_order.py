"""An order in which pods may be bound one by one, once it is known how many of each kind go to each row.

A pod with affinity comes after the pods it must be near. A pod with a spread constraint comes while its domain has
few. Pods of one option in the same domains are one item, because their order does not matter. A pod that stops no
waiting pod is bound at once, because later is no better. Only for the others the order is searched, with steps back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.solve.rules import Even, Near, Rules
from grove.scheduler.solve.search_state import SearchState

_END = object()


class BindOrdering:
    """`put` is by option and row. What was ordered so far is in `order`, as (option, row)."""

    def __init__(self, state: SearchState, rules: Rules, put: Ints) -> None:
        self._state, self._rules = state, rules
        self._evens = [_EvenCount(rules, even) for even in rules.even]
        self._nears = [_NearCount(rules, near) for near in rules.near]
        counts: list[_EvenCount | _NearCount] = [*self._evens, *self._nears]
        self._held: list[list[_EvenCount]] = [[e for e in self._evens if o == e.holder] for o in range(len(put))]
        self._seeks = [[n for n in self._nears if o in n.holders] for o in range(len(put))]
        self._counted = [[e for e in self._evens if o in e.matched] for o in range(len(put))]
        self._sought = [[n for n in self._nears if o in n.matched] for o in range(len(put))]
        items: dict[tuple[int, tuple[object, ...]], list[int]] = {}
        for o, row in np.argwhere(put > 0).tolist():
            seen = tuple(count.seen_at(o, row) for count in counts)
            items.setdefault((o, seen), []).extend([row] * int(put[o, row]))
        self._rows = list(items.values())
        self._option = [o for o, _ in items]
        self._at = [rows[0] for rows in self._rows]
        self._left = [len(rows) for rows in self._rows]
        for item, left in enumerate(self._left):
            for even in self._held[self._option[item]]:
                even.wait(item, self._at[item], left)
        self.order: list[tuple[int, int]] = []

    def solve(self) -> bool:
        """Orders all of them; False if no order works. May raise OutOfSteps."""
        dead: set[tuple[int, ...]] = set()
        stack = [self._moves()]
        while stack:
            if next(stack[-1], _END) is _END:
                stack.pop()
                dead.add(tuple(self._left))
            elif not any(self._left):
                return True
            elif tuple(self._left) not in dead:
                stack.append(self._moves())
        return False

    def _moves(self) -> Iterator[None]:
        """Each yield has one more pod in the order; the next step takes it back."""
        self._state.spend()
        able = [item for item, left in enumerate(self._left) if left and self._may_go(item)]
        harmless = next((item for item in able if self._is_harmless(item)), None)
        for item in able if harmless is None else [harmless]:
            self._count(item, 1)
            self.order.append((self._option[item], self._rows[item][self._left[item]]))
            yield
            self.order.pop()
            self._count(item, -1)

    def _count(self, item: int, by: int) -> None:
        o, row = self._option[item], self._at[item]
        self._left[item] -= by
        for even in self._counted[o]:
            even.add(row, by)
        for even in self._held[o]:
            even.wait(item, row, -by)
        for near in self._sought[o]:
            near.add(row, by)

    def _may_go(self, item: int) -> bool:
        o, row = self._option[item], self._at[item]
        seeks = self._seeks[o]
        if seeks and not all(near.is_near(row) for near in seeks):
            begins = not any(near.total for near in seeks) and all(o in near.matched for near in seeks)
            if not begins:
                return False
        return all(even.is_within(row) for even in self._held[o])

    def _is_harmless(self, item: int) -> bool:
        o, row = self._option[item], self._at[item]
        return all(near.total for near in self._sought[o]) and all(
            even.waits_only(item, row) for even in self._counted[o]
        )


class _EvenCount:
    """Pods that a spread counts, by domain, and the items that it holds back."""

    def __init__(self, rules: Rules, even: Even) -> None:
        self.holder, self.matched = even.holder, frozenset(even.matched)
        self._of_row = rules.labels[even.label].of_row.tolist()
        self._rows = even.rows.tolist()
        self._numbers = even.numbers.tolist()
        self._counted = np.flatnonzero(even.counted).tolist()
        self._even = even
        self._waiting: dict[int, dict[int, int]] = {}

    def seen_at(self, option: int, row: int) -> tuple[int, bool] | None:
        """The state of a row that this term reads, for an option that it concerns; else None."""
        concerns = option == self.holder or option in self.matched
        return (self._of_row[row], self._rows[row]) if concerns else None

    def add(self, row: int, by: int) -> None:
        if self._rows[row]:
            self._numbers[self._of_row[row]] += by

    def wait(self, item: int, row: int, by: int) -> None:
        waiting = self._waiting.setdefault(self._of_row[row], {})
        waiting[item] = waiting.get(item, 0) + by

    def waits_only(self, item: int, row: int) -> bool:
        """True if only pods of this item wait for a place in the row's domain."""
        waiting = self._waiting.get(self._of_row[row], {})
        return all(other == item or not left for other, left in waiting.items())

    def is_within(self, row: int) -> bool:
        even, numbers = self._even, self._numbers
        fewest = 0
        if even.is_bound:
            outside = (even.outside,) if even.outside >= 0 else ()
            fewest = min(*(numbers[domain] for domain in self._counted), *outside, 1 << 40)
        return bool(numbers[self._of_row[row]] + even.counts_itself - fewest <= even.skew)


class _NearCount:
    """Pods that others want to be near, by domain."""

    def __init__(self, rules: Rules, near: Near) -> None:
        label = rules.labels[near.label]
        self.holders, self.matched = frozenset(near.holders), frozenset(near.matched)
        self._of_row, self._present = label.of_row.tolist(), label.present.tolist()
        self._numbers = near.runs.astype(np.int64).tolist()
        self.total = int(near.has_running)

    def seen_at(self, option: int, row: int) -> int | None:
        return self._of_row[row] if option in self.holders or option in self.matched else None

    def add(self, row: int, by: int) -> None:
        if self._present[row]:
            self._numbers[self._of_row[row]] += by
            self.total += by

    def is_near(self, row: int) -> bool:
        return bool(self._numbers[self._of_row[row]] > 0)
