"""Which waiting units a change may help, and which units have to let waiting minima go first.

A parked unit is woken when one of its pods would fit where capacity became free. Capacity often becomes free node by
node. What a waiting minimum could need does not go to scaled gangs or surplus behind it meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial

import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import PLENTY, allowed_mask, pinned_rows
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.gang import Gang, Pin
from grove.scheduler.policy.cluster_changes import PodMove, can_help
from grove.scheduler.policy.waiting_queue import Needed, Order, WaitingQueue

MOST_PATIENCE = 3
"""No unit steps back for longer than this many times the patience, however busy the cluster is."""


class Relief:
    """`patience_s` is how long new capacity is left to waiting minima.

    `pin_of` answers where a unit must go now: its base gang may be elsewhere than when the unit was refused.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        queue: WaitingQueue,
        *,
        patience_s: float,
        pin_of: Callable[[str], Pin | None] = lambda _: None,
    ) -> None:
        self._snapshot, self._queue, self._patience_s, self._pin_of = snapshot, queue, patience_s, pin_of
        self._last_s = float("-inf")
        self._looked_at: tuple[int, tuple[int, ...]] | None = None
        """Versions of the snapshot and the policies when was looked last who may call back what was lent."""
        self._matures_s: float | None = None
        """When the mere passing of time may entitle a unit."""
        self._admitted_at: tuple[int, tuple[int, ...]] | None = None
        """The same versions at the last look at which units policies admit."""

    def remember(self, unit: str, gang: Gang, *, may_evict: bool, by_anything: bool = False) -> None:
        """Records what would help a unit that found no place, and no victims if it may evict."""
        shapes = tuple(dict.fromkeys(pod.shape for group in gang.groups() for pod in group.pods))
        for shape in shapes:  # a decision made aside met its resources on a copy only
            for requests in (shape.requests, *shape.alternatives):
                self._snapshot.amounts(requests)
        if (waiting := self._queue.get(unit)) is not None:
            evictor = gang if may_evict and gang.may_preempt else None
            pinned = gang if gang.pinned_domain is not None else None
            admitted = gang if self._snapshot.seams.refuses and not by_anything else None
            waiting.needed = Needed(shapes, by_anything, evictor, pinned, admitted, gang.sees_pods, bool(gang.spreads))

    def _needed(self, unit: str) -> Needed | None:
        waiting = self._queue.get(unit)
        return waiting.needed if waiting is not None else None

    def wake_neighbours(self, moves: Sequence[PodMove] | None) -> None:
        """Wakes units that look at other pods, if one of these moves can help them; all of them after None."""
        if moves is None or moves:
            self._queue.wake(partial(self._is_helped_by, moves))

    def _is_helped_by(self, moves: Sequence[PodMove] | None, unit: str) -> bool:
        needed = self._needed(unit)
        if needed is None or not needed.sees_pods:
            return False
        if moves is None or needed.spreads_units:
            return True
        matches = self._snapshot.counts.matches
        return any(can_help(shape, move, matches) for shape in needed.shapes for move in moves)

    def wake_helped(self, roomier: Collection[str] | None, now_s: float) -> None:
        """Wakes units that capacity on these nodes can help; None is a change that may help any unit."""
        if roomier is None:
            self._last_s = now_s
            self._queue.wake(lambda _: True)
        elif roomier:
            self._last_s = now_s
            self._queue.wake(self._could_use(roomier))

    def wake_kept_out(self) -> None:
        """Wakes the units that a policy kept out, not those that lack capacity."""
        self._queue.wake(lambda unit: (needed := self._needed(unit)) is None or needed.anything)

    @property
    def seeks_reclaim(self) -> bool:
        """True if a waiting unit may take back lent amounts when its queue is entitled to them."""
        needs = (waiting.needed for waiting in self._queue.heads(1))
        return self._snapshot.seams.reclaims and any(
            needed is not None and needed.evictor is not None for needed in needs
        )

    def wake_entitled(self, now_s: float) -> None:
        """Wakes who might call back what was lent. That changes with what runs and waits, and with time."""
        seams, state = self._snapshot.seams, (self._snapshot.version, self._snapshot.seams.versions)
        is_time = self._matures_s is not None and self._matures_s <= now_s
        if not seams.reclaims or (state == self._looked_at and not is_time):
            return
        if all(head.needed is None for head in self._queue.heads(1)):
            return
        self._looked_at, self._matures_s = state, None
        self._queue.wake(
            lambda unit: (
                (needed := self._needed(unit)) is not None
                and needed.evictor is not None
                and seams.may_reclaim(self._snapshot, needed.evictor)
            )
        )

    def wake_no_longer_admitted(self) -> None:
        """Wakes who lacked capacity alone and is kept out by a policy by now: new nodes do not help it any more."""
        seams, state = self._snapshot.seams, (self._snapshot.version, self._snapshot.seams.versions)
        if not seams.refuses or state == self._admitted_at:
            return
        self._admitted_at = state
        known: dict[Hashable, bool] = {}

        def is_kept_out(unit: str) -> bool:
            waiting = self._queue.get(unit)
            gang = waiting.needed.admitted if waiting is not None and waiting.needed is not None else None
            if waiting is None or gang is None:
                return False
            ask = waiting.ask if waiting.ask is not None else unit
            if ask not in known:
                known[ask] = seams.keeps_out(self._snapshot, gang)
            return known[ask]

        self._queue.wake(is_kept_out)

    def next_look_s(self, now_s: float) -> float | None:
        """When time alone may entitle a unit that waits; None if it does not."""
        if not self.seeks_reclaim:
            return None
        if self._matures_s is None:
            wait_s = self._snapshot.seams.changes_in_s(self._snapshot)
            self._matures_s = now_s + wait_s if wait_s is not None else None
        return self._matures_s

    def _could_use(self, roomier: Collection[str]) -> Callable[[str], bool]:
        """A test if one of a unit's pods fits on one of these nodes at the moment of the call.

        If none does, nothing changed for the unit.
        """
        at, answer = self._snapshot.version, self._could_use_now(roomier)

        def could_use(unit: str) -> bool:
            nonlocal at, answer
            if at != self._snapshot.version:
                at, answer = self._snapshot.version, self._could_use_now(roomier)
            return answer(unit)

        return could_use

    def _could_use_now(self, roomier: Collection[str]) -> Callable[[str], bool]:
        """A test if one of a unit's pods fits on one of these nodes, if necessary without pods that it may evict there.

        Many wait for the same: a shape is looked at once.
        """
        row_of = self._snapshot.nodes.row_of
        rows = np.array(sorted(row_of[name] for name in roomier if name in row_of), dtype=np.int64)
        capacity_for = functools.cache(lambda above: self._capacity(rows, above))
        fits = functools.cache(lambda shape, above: self._fits(shape, rows, capacity_for(above)))
        inside: dict[tuple[Pin | None, str], bool] = {}
        """Whether one of the rows is in the domain to which units are pinned."""

        def could_use(unit: str) -> bool:
            needed = self._needed(unit)
            if needed is None or needed.anything:
                return True
            if (pinned := needed.pinned) is not None and pinned.pinned_domain == self._pin_of(unit):
                where = (pinned.pinned_domain, pinned.topology)
                if where not in inside:
                    pinned_place = pinned_rows(self._snapshot, pinned)
                    inside[where] = pinned_place is None or bool(pinned_place[0][rows].any())
                if not inside[where]:
                    return False
            above = needed.evictor.priority if needed.evictor is not None else None
            return any(fits(shape, above) for shape in needed.shapes)

        return could_use

    def _capacity(self, rows: Ints, above: int | None) -> Ints:
        """What is free on these rows; with a priority, what there is but for pods of at least that.

        What sources count is known only as free: without some pods there may be any amount of it.
        """
        snapshot = self._snapshot
        if above is None:
            return snapshot.free[:, rows]
        capacity: Ints = snapshot.allocatable[:, rows]
        for i, row in enumerate(rows.tolist()):
            for pod in snapshot.pods_on(row):
                if pod.priority >= above:
                    for r, amount in snapshot.amounts(pod.shape.requests):
                        capacity[r, i] -= amount
        counted = tuple(source.counts for source in snapshot.seams.sources if source.counts)
        capacity[[r for r, name in enumerate(snapshot.resources) if name.startswith(counted)]] = PLENTY
        return capacity

    def _fits(self, shape: Shape, rows: Ints, capacity: Ints) -> bool:
        snapshot = self._snapshot
        allowed = allowed_mask(snapshot, shape)[rows]
        for requests in (shape.requests, *shape.alternatives):
            fitting = allowed.copy()
            for r, amount in snapshot.amounts(requests):
                fitting &= capacity[r] >= amount
            if fitting.any():
                return True
        return False

    def stands_back_until_s(self, name: str, order: Order, now_s: float) -> float | None:
        """Until when a unit that is not a base gang's minimum has to let those go first; None if it need not."""
        waiting = self._queue.get(name)
        until = self._last_s + self._patience_s
        if waiting is not None and waiting.deferred_s is not None:
            until = min(until, waiting.deferred_s + MOST_PATIENCE * self._patience_s)
        return until if until > now_s and self._queue.has_minimum_before(order) else None
