"""Where a pod's volumes and shared devices can be reached, and pods that no node will do for until a claim is there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.nodes import Mask
from grove.scheduler.filters.selectors import terms_mask
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.seams import NodeFilter

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot


class Blocked(NodeFilter):
    """No node at all, in the words of whoever blocks the pod."""

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
