"""What waits to be placed: in which order, when it may be tried again, and what wakes it. No I/O, no clock of its own.

A unit is a gang, the surplus of a gang, or a single pod. One that found no place is parked: it comes back when
something happened that can help (room it could use, a change of its own), not when time passes; its back-off only
bounds how often. Nobody waits behind anybody: a cycle looks at every unit that is due, in order.

`Relief` says whom a change helps: parked units are woken when one of their pods would fit where room has come. Also who
stands back: room often comes node by node, and what a waiting minimum could need must not go to scaled gangs or surplus
behind it while it is still coming.
"""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np

from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.filters.fit import PLENTY, allowed_mask
from grove.scheduler.model.facts import Shape
from grove.scheduler.model.gang import Gang


class Stage(IntEnum):
    """The order at equal priority: repair of a minimum, then new minima, then pods above minima.

    Base gangs and single pods come before scaled gangs.
    """

    REPAIR = 0
    SCALED_REPAIR = 1
    FLOOR = 2
    SCALED_FLOOR = 3
    SURPLUS = 4


class Order(NamedTuple):
    """Sorts units. The smaller comes first; equal units go by name, so that two runs agree."""

    rank: tuple[int, ...]
    """What the policies say, the first policy's first; by priority alone it is the negated priority."""
    stage: Stage
    created_s: float
    name: str


class Waiting(msgspec.Struct):
    """A unit in the queue; `since_s` is when it was first ready, and stays while it waits."""

    order: Order
    since_s: float
    failures: int = 0
    not_before_s: float = 0.0
    parked: bool = False
    must_wait: bool = False
    """Its back-off is for trouble with the cluster, or for others' sake, so it stands whatever happens."""
    deferred_s: float | None = None
    """When it first stood back for a minimum that waits."""
    warned_s: float = float("-inf")
    """When it was last reported that the unit waits for longer than its timeout."""
    overtaken: int = 0
    """What units behind it have taken, since it waits, of the resource it is short of."""


class Backoff(msgspec.Struct):
    initial_s: float = 0.05
    max_s: float = 5.0

    def after(self, failures: int) -> float:
        return float(min(self.max_s, self.initial_s * 2.0 ** min(failures - 1, 32))) if failures > 0 else 0.0


class WaitingQueue(msgspec.Struct):
    """Units by name. All times are seconds of one clock that only goes forward, handed in by the caller."""

    backoff: Backoff = msgspec.field(default_factory=Backoff)
    version: int = 0
    """Grows when units come, go, move or are refused."""
    _waiting: dict[str, Waiting] = msgspec.field(default_factory=dict)
    _of: Counter[tuple[tuple[int, ...], Stage]] = msgspec.field(default_factory=Counter)
    """How many units there are of each rank and stage."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def get(self, name: str) -> Waiting | None:
        return self._waiting.get(name)

    def all(self) -> Iterable[Waiting]:
        return self._waiting.values()

    def reorder(self, rank_of: Callable[[str], tuple[int, ...]]) -> None:
        """Ranks have changed since units were offered; those that are parked get theirs when they are woken."""
        for name, unit in self._waiting.items():
            if not unit.parked:
                self.move(name, unit.order._replace(rank=rank_of(name)))

    def move(self, name: str, order: Order) -> None:
        """The unit comes elsewhere in the order."""
        known = self._waiting[name]
        self._count(known.order, -1)
        known.order = order
        self._count(order, 1)

    def offer(self, name: str, order: Order, now_s: float, *, fresh: bool = False) -> None:
        """The unit is ready to be tried. `fresh` says that it changed itself, so its failures say nothing any more."""
        known = self._waiting.get(name)
        if known is None:
            self._waiting[name] = Waiting(order, now_s, not_before_s=now_s)
            self._count(order, 1)
            return
        self.move(name, order)
        if fresh:
            known.failures, known.not_before_s, known.parked, known.must_wait = 0, now_s, False, False

    def withdraw(self, name: str) -> None:
        """The unit is placed, gone, or not ready any more."""
        known = self._waiting.pop(name, None)
        if known is not None:
            self._count(known.order, -1)

    def _count(self, order: Order, by: int) -> None:
        self.version += 1
        kind = (order.rank, order.stage)
        self._of[kind] += by
        if not self._of[kind]:
            del self._of[kind]

    def park(self, name: str, now_s: float) -> None:
        """It was tried and found no place."""
        known = self._waiting.get(name)
        if known is not None:
            self.version += 1
            known.failures += 1
            known.not_before_s = now_s + self.backoff.after(known.failures)
            known.parked, known.must_wait = True, False

    def retry(self, name: str, now_s: float) -> None:
        """It had a place and something went wrong on the way: again after the back-off, whatever happens."""
        self.park(name, now_s)
        if name in self._waiting:
            self._waiting[name].parked, self._waiting[name].must_wait = False, True

    def defer(self, name: str, now_s: float, until_s: float) -> None:
        """It stands back for others until then; not a failure."""
        known = self._waiting[name]
        known.not_before_s, known.parked, known.must_wait = until_s, False, True
        if known.deferred_s is None:
            known.deferred_s = now_s

    def has_minimum_before(self, order: Order) -> bool:
        """Whether a minimum of at least this rank waits that comes before units of this stage."""
        return any(rank <= order.rank and stage < order.stage for rank, stage in self._of)

    def wake(self, can_help: Callable[[str], bool]) -> int:
        """Something changed; parked units that it can help are tried again when their back-off is over."""
        woken = 0
        for name, unit in self._waiting.items():
            if unit.parked and can_help(name):
                unit.parked = False
                woken += 1
        return woken

    def due(self, now_s: float) -> list[tuple[Order, str]]:
        """Units to try now, as a heap in order. They stay in the queue until they are withdrawn or parked.

        If anybody is due, all that were woken are: a back-off must not let others overtake.
        """
        awake = [(name, unit) for name, unit in self._waiting.items() if not unit.parked]
        if not any(unit.not_before_s <= now_s for _, unit in awake):
            return []
        found = [(unit.order, name) for name, unit in awake if unit.not_before_s <= now_s or not unit.must_wait]
        heapq.heapify(found)
        return found

    def next_due_s(self, now_s: float) -> float | None:
        """When the next unit's back-off ends; None when none will come by itself."""
        times = [unit.not_before_s for unit in self._waiting.values() if not unit.parked and unit.not_before_s > now_s]
        return min(times, default=None)


class Needed(NamedTuple):
    """What would help a unit that waits."""

    shapes: tuple[Shape, ...]
    """Room for one of these."""
    anything: bool
    """Any pod that goes, wherever: it may leave the unit what a policy kept from it."""
    evictor: Gang | None
    """Itself, if others could go for it."""


CALL_BACK_S = 5.0
"""So often is looked who of those that wait may call back what was lent."""
MOST_PATIENCE = 3
"""Nobody stands back for longer than so many times the patience, however busy the cluster is."""


class Relief:
    """`patience_s` is how long room is left to waiting minima after some has come."""

    def __init__(self, snapshot: Snapshot, queue: WaitingQueue, *, patience_s: float) -> None:
        self._snapshot, self._queue, self._patience_s = snapshot, queue, patience_s
        self._needs: dict[str, Needed] = {}
        self._last_s = float("-inf")
        self._call_back_s = float("-inf")

    def remember(self, unit: str, gang: Gang, *, may_evict: bool, by_anything: bool = False) -> None:
        """Keeps what would help a unit that found no place, and nobody to put out if it may do that."""
        shapes = tuple(dict.fromkeys(pod.shape for group in gang.groups() for pod in group.pods))
        for shape in shapes:  # a decision made aside met its resources on a copy only
            for requests in (shape.requests, *shape.alternatives):
                self._snapshot.amounts(requests)
        self._needs[unit] = Needed(shapes, by_anything, gang if may_evict and gang.may_preempt else None)

    def sees_pods(self, unit: str) -> bool:
        """Whether other pods' coming or going may help it."""
        return unit in self._needs and any(shape.sees_pods for shape in self._needs[unit].shapes)

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
            self._queue.wake(self._could_use(rows))

    def wake_kept_out(self) -> None:
        """Wakes those whom a policy kept out, not those who lack room."""
        self._queue.wake(lambda unit: (needed := self._needs.get(unit)) is None or needed.anything)

    def wake_entitled(self, now_s: float) -> None:
        """Wakes who might call back what was lent. That changes whenever anybody comes or goes, and with time."""
        seams = self._snapshot.seams
        if seams.reclaims and self._needs and now_s >= self._call_back_s:
            self._call_back_s = now_s + CALL_BACK_S
            asking = {unit: needed.evictor for unit, needed in self._needs.items() if needed.evictor is not None}
            self._queue.wake(lambda unit: unit in asking and seams.may_reclaim(self._snapshot, asking[unit]))

    def next_look_s(self, now_s: float) -> float | None:
        """When is looked again who might call back; None if nobody waits who could."""
        if not self._snapshot.seams.reclaims or not any(unit in self._queue for unit in self._needs):
            return None
        return self._call_back_s if self._call_back_s > now_s else now_s + CALL_BACK_S

    def _could_use(self, rows: Ints) -> Callable[[str], bool]:
        """Whether one of a unit's pods would fit on one of these rows now, or without those it may put out there; if
        none does, nothing changed for it.

        Many wait for the same: a shape is looked at once.
        """
        room_for = functools.cache(lambda above: self._room(rows, above))
        fits = functools.cache(lambda shape, above: self._fits(shape, rows, room_for(above)))

        def could_use(unit: str) -> bool:
            needed = self._needs.get(unit)
            if needed is None or needed.anything:
                return True
            above = needed.evictor.priority if needed.evictor is not None else None
            return any(fits(shape, above) for shape in needed.shapes)

        return could_use

    def _room(self, rows: Ints, above: int | None) -> Ints:
        """What is free on these rows; with a priority, what there is but for pods of at least that.

        What sources count is known only as free: without some pods there may be any amount of it.
        """
        snapshot = self._snapshot
        if above is None:
            return snapshot.free[:, rows]
        room: Ints = snapshot.allocatable[:, rows]
        for i, row in enumerate(rows.tolist()):
            for pod in snapshot.pods_on(row):
                if pod.priority >= above:
                    for r, amount in snapshot.amounts(pod.shape.requests):
                        room[r, i] -= amount
        counted = tuple(source.counts for source in snapshot.seams.sources if source.counts)
        room[[r for r, name in enumerate(snapshot.resources) if name.startswith(counted)]] = PLENTY
        return room

    def _fits(self, shape: Shape, rows: Ints, room: Ints) -> bool:
        snapshot = self._snapshot
        allowed = allowed_mask(snapshot, shape)[rows]
        for requests in (shape.requests, *shape.alternatives):
            fitting = allowed.copy()
            for r, amount in snapshot.amounts(requests):
                fitting &= room[r] >= amount
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
