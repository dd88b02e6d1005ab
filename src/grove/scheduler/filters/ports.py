"""Host ports: two pods on a node cannot have the same one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from grove.scheduler.cluster.nodes import Mask
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.seams import NodeFilter

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot


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
