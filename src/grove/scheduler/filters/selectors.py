"""Node selectors and required node affinity: which nodes have the labels, or the name, that a pod asks for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from grove.api.selector import Requirement
from grove.scheduler.cluster.nodes import Mask, NodeTable
from grove.scheduler.model.facts import NodeTerm, NodeTerms, Shape
from grove.scheduler.model.seams import NodeFilter

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot


class NodeSelectors(NodeFilter):
    name = "node selector or affinity"

    def looks_at(self, shape: Shape) -> Hashable | None:
        asks = shape.node_selector or shape.node_affinity is not None
        return (shape.node_selector, shape.node_affinity) if asks else None

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        return selected_mask(snapshot.nodes, shape)


def selected_mask(table: NodeTable, shape: Shape) -> Mask:
    """nodeSelector and required node affinity."""
    key = ("selected", shape.node_selector, shape.node_affinity)
    return table.derived(key, lambda: _selected(table, shape))


def _selected(table: NodeTable, shape: Shape) -> Mask:
    mask = np.ones(table.rows, dtype=np.bool_)
    for key, value in shape.node_selector:
        column = table.column(key)
        code = column.codes.get(value)
        mask &= column.ids[: table.rows] == (-2 if code is None else code)
    if shape.node_affinity is not None:
        mask &= terms_mask(table, shape.node_affinity)
    return mask


def terms_mask(table: NodeTable, terms: NodeTerms) -> Mask:
    """Rows that match at least one term."""
    mask = np.zeros(table.rows, dtype=np.bool_)
    for term in terms:
        mask |= term_mask(table, term)
    return mask


def term_mask(table: NodeTable, term: NodeTerm) -> Mask:
    if not term.labels and not term.names:
        return np.zeros(table.rows, dtype=np.bool_)
    mask = np.ones(table.rows, dtype=np.bool_)
    for requirement in term.labels:
        mask &= _requirement_mask(table, requirement)
    for requirement in term.names:
        mask &= _name_mask(table, requirement)
    return mask


def _requirement_mask(table: NodeTable, r: Requirement) -> Mask:
    column = table.column(r.key)
    if r.operator in ("In", "NotIn"):
        # Hostnames have as many values as there are nodes: look up the few wanted instead of asking each.
        wanted = [code for value in r.values if (code := column.codes.get(value)) is not None]
        inside: Mask = np.isin(column.ids[: table.rows], wanted) if wanted else np.zeros(table.rows, dtype=np.bool_)
        return inside if r.operator == "In" else ~inside
    answers = [r.matches({r.key: value}) for value in column.values]
    return column.spread(answers, r.matches({}), table.rows)


def _name_mask(table: NodeTable, r: Requirement) -> Mask:
    """A field expression: `metadata.name` is the only field a node selector knows."""
    mask = np.zeros(table.rows, dtype=np.bool_)
    if r.key == "metadata.name" and r.operator in ("In", "NotIn"):
        mask[[row for name in r.values if (row := table.row_of.get(name)) is not None]] = True
        if r.operator == "NotIn":
            mask = ~mask
    return mask
