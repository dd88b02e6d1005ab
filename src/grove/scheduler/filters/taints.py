"""Taints and tolerations, by Kubernetes' rules: which taints stand against a pod, hard and soft.

Each distinct set of taints is asked once, and the answers are spread over the nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from grove.api.core import Taint, Toleration
from grove.scheduler.cluster.nodes import Ints, Mask, NodeTable
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.seams import SOFT_TAINTS, NodeFilter, Score

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot

HARD_EFFECTS = ("NoSchedule", "NoExecute")


class Taints(NodeFilter):
    name = "taint"

    def looks_at(self, shape: Shape) -> Hashable | None:
        return shape.tolerations

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        return taint_mask(snapshot.nodes, shape)


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
    """Whether a pod may go where these taints are; PreferNoSchedule only counts in the score."""
    return all(is_tolerated(taint, tolerations) for taint in taints if taint.effect in HARD_EFFECTS)


def soft_taints(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    """How many PreferNoSchedule taints stand against a pod."""
    return sum(taint.effect == "PreferNoSchedule" and not is_tolerated(taint, tolerations) for taint in taints)


def _as_int(text: str) -> int | None:
    """As Go's ParseInt in base ten reads it: an optional sign and digits, nothing else."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(text)
