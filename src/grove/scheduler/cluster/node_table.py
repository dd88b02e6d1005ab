"""The nodes of a snapshot as columns: a row a node, a coded column a label key, and what was derived from them.

Rows are stable while a node lives, so counters survive other nodes' changes; order comes from `topology`, which sorts
by domain and name, never by row. Derived arrays are replaced, not changed, so copies of the table can share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from grove.api.core import Taint
from grove.scheduler.cluster.topology import Tree
from grove.scheduler.model.facts import HOSTNAME, NodeFacts

Ints: TypeAlias = npt.NDArray[np.int64]
Ids: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]

FIRST_ROWS = 64
MOST_DERIVED = 4096

T = TypeVar("T")


def running_sum(values: Ints) -> Ints:
    """Sums of the first 0, 1, 2 … values: the sum over a run is the difference of two of them."""
    sums = np.zeros(values.size + 1, dtype=np.int64)
    values.cumsum(out=sums[1:])
    return sums


class Column:
    """Values of one label key, coded: `ids[row]` indexes `values`, -1 where the node has no such label."""

    __slots__ = ("codes", "ids", "values")

    def __init__(self, ids: Ids, values: list[str], codes: dict[str, int]) -> None:
        self.ids, self.values, self.codes = ids, values, codes

    def set(self, row: int, value: str | None) -> None:
        if value is None:
            self.ids[row] = -1
            return
        code = self.codes.get(value)
        if code is None:
            code = self.codes[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = code

    def spread(self, answers: list[bool], missing: bool, rows: int) -> Mask:
        """Answers given once a distinct value, as a mask over the first rows."""
        table = np.array([*answers, missing], dtype=np.bool_)
        return table[self.ids[:rows]]  # -1 picks the last entry, the answer for nodes without the label

    def ranks(self, rows: int) -> Ids:
        """Codes in the order of the values, so that sorting does not depend on who came first; -1 is no value."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        rank = np.empty(len(order) + 1, dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        rank[-1] = -1
        return rank[self.ids[:rows]]

    def copy(self) -> Column:
        return Column(self.ids.copy(), list(self.values), dict(self.codes))

    def grown(self, rows: int) -> Column:
        ids = np.full(rows, -1, dtype=np.int32)
        ids[: self.ids.size] = self.ids
        return Column(ids, self.values, self.codes)


class NodeTable:
    """Who the nodes are. What they have free is the snapshot's."""

    def __init__(self) -> None:
        self.facts: list[NodeFacts | None] = []
        self.row_of: dict[str, int] = {}
        self.version = 0
        """Grows with every change of a node."""
        self.masks_version = 0
        """Grows when labels, taints or existence change, and not with amounts: masks depend on nothing else."""
        self.labels_version = 0
        """Grows with changes of labels or existence only: trees and interpod domains depend on nothing else."""
        self.alive: Mask = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self.taint_ids: Ids = np.full(FIRST_ROWS, -1, dtype=np.int32)
        self.taint_sets: list[tuple[Taint, ...]] = []
        self._taint_codes: dict[tuple[Taint, ...], int] = {}
        self._columns: dict[str, Column] = {}
        self._spare: list[int] = []
        self._derived: dict[object, tuple[int, object]] = {}
        self.trees: dict[tuple[str, ...], tuple[int, Tree]] = {}
        """By level keys, with the labels_version they were made at."""

    @property
    def rows(self) -> int:
        return len(self.facts)

    @property
    def capacity(self) -> int:
        return int(self.alive.size)

    def put(self, node: NodeFacts) -> int:
        """Adds or replaces a node; gives its row. A node equal to the known one changes nothing."""
        row = self.row_of.get(node.name)
        old = None if row is None else self.facts[row]
        if row is None:
            row = self._new_row()
            self.row_of[node.name] = row
            self.alive[row] = True
        self.facts[row] = node
        if old is None or old.labels != node.labels:
            for key, column in self._columns.items():
                column.set(row, node.labels.get(key))
            self.labels_version += 1
        if old is None or old.taints != node.taints:
            self.taint_ids[row] = self._taint_code(node.taints)
        if old is None or old.labels != node.labels or old.taints != node.taints:
            self.masks_version += 1
        self.version += 1
        return row

    def drop(self, name: str) -> int | None:
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self.facts[row] = None
        self.alive[row] = False
        self.taint_ids[row] = -1
        for column in self._columns.values():
            column.set(row, None)
        self._spare.append(row)
        self.labels_version += 1
        self.masks_version += 1
        self.version += 1
        return row

    def column(self, key: str) -> Column:
        """The coded column of a label; made on first use, kept up to date from then on."""
        column = self._columns.get(key)
        if column is None:
            column = Column(np.full(self.capacity, -1, dtype=np.int32), [], {})
            for row, node in enumerate(self.facts):
                if node is not None:
                    column.set(row, node.labels.get(key))
            self._columns[key] = column
        return column

    def derived(self, key: object, make: Callable[[], T], *, by_amounts: bool = False) -> T:
        """Something computed from the nodes' labels and taints, made again only when one of them has changed since.

        With `by_amounts` it depends on what nodes have, too: devices and volumes are recounted all the time.
        """
        now = self.version if by_amounts else self.masks_version
        derived = self._derived.get(key)
        if derived is None or derived[0] != now:
            if len(self._derived) > MOST_DERIVED:
                self._derived.clear()
            derived = self._derived[key] = (now, make())
        return derived[1]  # type: ignore[return-value]

    def forget_derived(self) -> None:
        """Values derived from it may be different now."""
        self._derived = {}

    def tree(self, keys: tuple[str, ...]) -> Tree:
        """The domains under these level keys, broad to narrow; made again only when labels have changed."""
        tree = self.trees.get(keys)
        if tree is None or tree[0] != self.labels_version:
            rows = np.flatnonzero(self.alive[: self.rows])
            names = self.names(rows)
            ranks = [self.column(key).ranks(self.rows)[rows] for key in keys if key != HOSTNAME]
            tree = (self.labels_version, Tree(keys, rows, names, ranks))
            self.trees[keys] = tree
        return tree[1]

    def names(self, rows: Iterable[int]) -> list[str]:
        return [self._name(row) for row in rows]

    def _name(self, row: int) -> str:
        node = self.facts[row]
        assert node is not None, "a row without a node was chosen"
        return node.name

    def copy(self) -> NodeTable:
        twin = NodeTable.__new__(NodeTable)
        twin.facts, twin.row_of = list(self.facts), dict(self.row_of)
        twin.version, twin.labels_version, twin.masks_version = self.version, self.labels_version, self.masks_version
        twin.alive = self.alive.copy()
        twin.taint_ids = self.taint_ids.copy()
        twin.taint_sets, twin._taint_codes = list(self.taint_sets), dict(self._taint_codes)
        twin._columns = {key: column.copy() for key, column in self._columns.items()}
        twin._spare = list(self._spare)
        twin._derived, twin.trees = dict(self._derived), dict(self.trees)
        return twin

    def _new_row(self) -> int:
        if self._spare:
            return self._spare.pop()
        self.facts.append(None)
        if len(self.facts) > self.capacity:
            size = self.capacity * 2
            self.taint_ids = np.concatenate([self.taint_ids, np.full(size - self.taint_ids.size, -1, dtype=np.int32)])
            self.alive = np.concatenate([self.alive, np.zeros(size - self.alive.size, dtype=np.bool_)])
            self._columns = {key: column.grown(size) for key, column in self._columns.items()}
        return len(self.facts) - 1

    def _taint_code(self, taints: tuple[Taint, ...]) -> int:
        code = self._taint_codes.get(taints)
        if code is None:
            code = self._taint_codes[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return code
