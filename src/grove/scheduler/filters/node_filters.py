"""Filters by what nodes are and have: selectors and node affinity, taints, where volumes can be reached, host ports.

Answers are worked out once a distinct label value or set of taints, and spread over the nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from grove.api.core import Taint, Toleration
from grove.api.fields import natural
from grove.api.selector import Requirement
from grove.scheduler.cluster.node_table import Ints, Mask, NodeTable
from grove.scheduler.model.facts import NOT_SELECTED, NodeFacts, NodeTerm, NodeTerms, Shape
from grove.scheduler.model.reading import NOT_READY, UNREACHABLE, UNSCHEDULABLE
from grove.scheduler.model.seams import SOFT_TAINTS, NodeFilter, Score

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot


class NodeSelectors(NodeFilter):
    name = NOT_SELECTED

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


def meets(node: NodeFacts, terms: NodeTerms) -> bool:
    """True if the node matches at least one term."""
    return any(
        (term.labels or term.names)
        and all(label.matches(node.labels) for label in term.labels)
        and all(_is_named(node.name, name) for name in term.names)
        for term in terms
    )


def _is_named(name: str, r: Requirement) -> bool:
    return r.key == "metadata.name" and r.operator in ("In", "NotIn") and r.matches({r.key: name})


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
    """A field expression: `metadata.name` is the only field that a node selector supports."""
    mask = np.zeros(table.rows, dtype=np.bool_)
    if r.key == "metadata.name" and r.operator in ("In", "NotIn"):
        mask[[row for name in r.values if (row := table.row_of.get(name)) is not None]] = True
        if r.operator == "NotIn":
            mask = ~mask
    return mask


HARD_EFFECTS = ("NoSchedule", "NoExecute")
CLOSED = {UNSCHEDULABLE: "cordoned", NOT_READY: "not ready", UNREACHABLE: "unreachable"}
"""Taints that say what is the matter with a node."""


class Taints(NodeFilter):
    name = "taint"

    def looks_at(self, shape: Shape) -> Hashable | None:
        return shape.tolerations

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        return taint_mask(snapshot.nodes, shape)

    def rows_by_word(self, snapshot: Snapshot, shape: Shape) -> Iterable[tuple[str, Mask]]:
        table = snapshot.nodes
        closed = [closed_by(taints, shape.tolerations) for taints in table.taint_sets]
        for word in dict.fromkeys(word for word in closed if word):
            mask: Mask = np.array([*(other != word for other in closed), True])[table.taint_ids[: table.rows]]
            yield word, mask


class SoftTaints(Score):
    """Less one for each PreferNoSchedule taint that is not tolerated."""

    name = SOFT_TAINTS

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        table = snapshot.nodes
        return table.derived(("soft taints", shape.tolerations), lambda: _repelled(table, shape))


def taint_mask(table: NodeTable, shape: Shape) -> Mask:
    return table.derived(("taints", shape.tolerations), lambda: _untainted(table, shape))


def _untainted(table: NodeTable, shape: Shape) -> Mask:
    answers = [hard_taints_tolerated(taints, shape.tolerations) for taints in table.taint_sets]
    mask: Mask = np.array([*answers, False], dtype=np.bool_)[table.taint_ids[: table.rows]]
    return mask


def _repelled(table: NodeTable, shape: Shape) -> Ints | None:
    against = [soft_taints(taints, shape.tolerations) for taints in table.taint_sets]
    if not any(against):
        return None
    repelled: Ints = -np.array([*against, 0], dtype=np.int64)[table.taint_ids[: table.rows]]
    return repelled


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        # An empty key is valid with Exists only; the API server refuses it with Equal, and so do we.
        return bool(toleration.key) and toleration.value == taint.value
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        bound, value = _as_int(toleration.value), _as_int(taint.value)
        if bound is None or value is None:
            return False
        return value < bound if toleration.operator == "Lt" else value > bound
    return False


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(t, taint) for t in tolerations)


def hard_taints_tolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    """True if a pod tolerates these taints. PreferNoSchedule counts only in the score."""
    return all(is_tolerated(taint, tolerations) for taint in taints if taint.effect in HARD_EFFECTS)


def closed_by(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> str:
    """The taint that keeps a pod off a node, in words for messages; empty if the pod tolerates all taints."""
    hard = (taint for taint in taints if taint.effect in HARD_EFFECTS and not is_tolerated(taint, tolerations))
    first = next(hard, None)
    return "" if first is None else CLOSED.get(first.key, f"with taint {first.key}")


def soft_taints(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    """How many PreferNoSchedule taints stand against a pod."""
    return sum(taint.effect == "PreferNoSchedule" and not is_tolerated(taint, tolerations) for taint in taints)


def _as_int(text: str) -> int | None:
    """As Go's ParseInt in base ten reads it: an optional sign and digits, nothing else."""
    sign = text[:1] if text[:1] in ("+", "-") else ""
    number = natural(text.removeprefix(sign))
    return -number if number is not None and sign == "-" else number


class Blocked(NodeFilter):
    """No node at all, with the text of the program that blocks the pod."""

    name = "blocked"

    def looks_at(self, shape: Shape) -> Hashable | None:
        return shape.blocked or None

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        return np.zeros(snapshot.nodes.rows, dtype=np.bool_)

    def word(self, shape: Shape) -> str:
        return shape.blocked


class Volumes(NodeFilter):
    name = "volume"

    def looks_at(self, shape: Shape) -> Hashable | None:
        return shape.volumes or None

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        table = snapshot.nodes
        mask = np.ones(table.rows, dtype=np.bool_)
        for terms in shape.volumes:
            mask &= table.derived(("terms", terms), lambda terms=terms: terms_mask(table, terms))  # type: ignore[misc]
        return mask


class HostPorts(NodeFilter):
    name = "host port"
    lasts = False

    def looks_at(self, shape: Shape) -> Hashable | None:
        return shape.ports or None

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        mask = np.ones(snapshot.nodes.rows, dtype=np.bool_)
        for row in snapshot.rows_with_ports():
            if any(mine.clashes(theirs) for mine in shape.ports for theirs in snapshot.ports_at(row)):
                mask[row] = False
        return mask
