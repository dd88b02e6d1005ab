"""Whom a change helps: parked units are woken when one of their pods would fit where room has come.

Also who stands back: room often comes node by node, and what a waiting minimum could need must not go to scaled gangs
or surplus behind it while it is still coming.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from grove.scheduler.cluster.nodes import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import allowed_mask
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.policy.queue import Order, Queue

MOST_PATIENCE = 3
"""Nobody stands back for longer than so many times the patience, however busy the cluster is."""


class Relief:
    """`patience_s` is how long room is left to waiting minima after some has come."""

    def __init__(self, snapshot: Snapshot, queue: Queue, *, patience_s: float) -> None:
        self._snapshot, self._queue, self._patience_s = snapshot, queue, patience_s
        self._needs: dict[str, tuple[Shape, ...]] = {}
        self._last_s = float("-inf")

    def needed_by(self, unit: str, gang: Gang) -> bool:
        """Remembers what would help a unit that found no place; says whether other pods' coming or going may."""
        shapes = tuple(dict.fromkeys(pod.shape for group in gang.groups() for pod in group.pods))
        self._needs[unit] = shapes
        return any(shape.sees_pods for shape in shapes)

    def forget(self, unit: str) -> None:
        self._needs.pop(unit, None)

    def wake_helped(self, roomier: Collection[str] | None, now_s: float) -> None:
        """Wakes who can be helped by room on these nodes; None is a change that may help anybody."""
        if roomier is None:
            self._last_s = now_s
            self._queue.wake(lambda _: True)
        elif roomier:
            self._last_s = now_s
            row_of = self._snapshot.nodes.row_of
            rows = np.array(sorted(row_of[name] for name in roomier if name in row_of), dtype=np.int64)
            if rows.size:
                self._queue.wake(lambda name: self._could_use(name, rows))

    def _could_use(self, name: str, rows: Ints) -> bool:
        """Whether one of the unit's pods would fit on one of these rows now; if none does, nothing changed for it."""
        shapes = self._needs.get(name)
        if shapes is None:
            return True
        snapshot = self._snapshot
        for shape in shapes:
            fits = allowed_mask(snapshot, shape)[rows]
            for requests in (shape.requests, *shape.alternatives):
                room = fits.copy()
                for r, amount in snapshot.amounts(requests):
                    room &= snapshot.free[r, rows] >= amount
                if room.any():
                    return True
        return False

    def stands_back_until_s(self, name: str, order: Order, now_s: float) -> float | None:
        """Until when a unit that is not a base gang's minimum has to let those go first; None if it need not."""
        waiting = self._queue.get(name)
        until = self._last_s + self._patience_s
        if waiting is not None and waiting.deferred_s is not None:
            until = min(until, waiting.deferred_s + MOST_PATIENCE * self._patience_s)
        return until if until > now_s and self._queue.has_minimum_before(order) else None
