"""The units that wait: their order, when they may be tried again, and what wakes them. No I/O, no clock of its own.

A unit is a gang, the surplus of a gang, or a single pod. A unit that found no place is parked. It returns when
something happened that can help (capacity it could use, a change of its own), not when time passes. Its back-off only
limits how often. No unit waits behind another: a cycle looks at every unit that is due, in order.

Units that ask for the same are refused for the same reason. Of those only the first in order is woken. When it is
placed, the next one is woken; when it is refused, the others stay parked. So one free slot costs two searches, however
many units wait.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

from grove.scheduler.model.facts import Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.policy.alike import AlikeLines


class Stage(IntEnum):
    """The order at equal priority: repair of a minimum, then new minima, then pods above minima.

    Base gangs and single pods come before scaled gangs.
    """

    REPAIR = 0
    SCALED_REPAIR = 1
    FLOOR = 2
    RETURNING = 3
    """The capacity of pods above a minimum that are being replaced. Only holds have this stage."""
    SCALED_FLOOR = 4
    SURPLUS = 5


class Order(NamedTuple):
    """Sorts units. The smaller comes first; equal units go by name, so that two runs agree."""

    rank: tuple[int, ...]
    """What the policies say, the first policy's first; by priority alone it is the negated priority."""
    stage: Stage
    created_s: float
    name: str


class Needed(NamedTuple):
    """What would help a unit that waits."""

    shapes: tuple[Shape, ...]
    """Room for one of these."""
    anything: bool
    """Any pod that goes, wherever: it may leave the unit what a policy kept from it."""
    evictor: Gang | None
    """Itself, if others could go for it."""
    pinned: Gang | None = None
    """Itself, if it must go to the domain of its base gang: nothing outside that domain helps it."""
    admitted: Gang | None = None
    """Itself, if policies limit units and admit this one: it lacks capacity alone."""
    sees_pods: bool = False
    """Whether other pods' coming or going may help it."""


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
    ask: Hashable | None = None
    """What it asked for when it was refused: equal for units that are alike, None for one that is like no other."""
    overtaken: int = 0
    """What units behind it have taken, since it waits, of the resource it is short of."""
    needed: Needed | None = None
    """What would help it, since it was refused."""


class Record(Protocol):
    """What is remembered about a unit."""

    waiting: Waiting | None


class Records(Protocol):
    """Units by name: `of` makes a record if there is none."""

    def of(self, name: str) -> Record: ...

    def find(self, name: str) -> Record | None: ...


class Backoff(msgspec.Struct):
    initial_s: float = 0.05
    max_s: float = 5.0

    def after(self, failures: int) -> float:
        return float(min(self.max_s, self.initial_s * 2.0 ** min(failures - 1, 32))) if failures > 0 else 0.0


class WokenLine(msgspec.Struct):
    """How far units that ask for the same have been woken."""

    last: tuple[Order, str] | None = None
    """The one that was woken last; those behind it have not been."""
    all_of_them: bool = False
    """Whether each is woken, also when the one before it is refused."""


class WaitingQueue:
    """The order of units that wait; how each of them waits is in its record.

    All times are seconds of one clock that only goes forward, handed in by the caller.
    """

    def __init__(self, units: Records, backoff: Backoff) -> None:
        self._units, self._backoff = units, backoff
        self.version = 0
        """Grows when units come, move or are refused for the first time."""
        self._of: Counter[tuple[tuple[int, ...], Stage]] = Counter()
        """How many units there are of each rank and stage."""
        self._awake: dict[str, Waiting] = {}
        """Those that are not parked."""
        self._parked = AlikeLines()
        self._helped: dict[Hashable, WokenLine] = {}
        """By what they ask for: units that something may have helped since the last refusal, woken one by one."""
        self.alone: Callable[[], Iterable[str]] = tuple
        """Units that have what others like them have not: capacity is held for them."""

    def __len__(self) -> int:
        return self._of.total()

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Waiting | None:
        unit = self._units.find(name)
        return unit.waiting if unit is not None else None

    def all(self) -> Iterator[Waiting]:
        """Every unit that waits, in no order."""
        yield from self._awake.values()
        for unit in map(self._units.find, self._parked.names()):
            if unit is not None and unit.waiting is not None:
                yield unit.waiting

    def _known(self, name: str) -> Waiting:
        """A unit that waits."""
        found = self.get(name)
        assert found is not None, f"{name} does not wait"
        return found

    def reorder(self, rank_of: Callable[[str], tuple[int, ...]]) -> None:
        """Ranks have changed since units were offered; those that are parked get theirs when they are woken."""
        for name, unit in self._awake.items():
            self.move(name, unit.order._replace(rank=rank_of(name)))

    def move(self, name: str, order: Order) -> None:
        """The unit comes elsewhere in the order."""
        known = self._known(name)
        if known.order == order:
            return
        was_parked = known.parked
        self._set_parked(name, known, False)
        self._count(known.order, -1)
        known.order = order
        self._count(order, 1)
        self._set_parked(name, known, was_parked)
        self.version += 1

    def offer(self, name: str, order: Order, now_s: float, *, fresh: bool = False) -> None:
        """The unit is ready to be tried. `fresh` says that it changed itself, so its failures say nothing any more."""
        unit = self._units.of(name)
        known = unit.waiting
        if known is None:
            unit.waiting = self._awake[name] = Waiting(order, now_s, not_before_s=now_s)
            self._count(order, 1)
            self.version += 1
            return
        self.move(name, order)
        if fresh:
            self._set_parked(name, known, False)
            known.failures, known.not_before_s, known.must_wait = 0, now_s, False

    def withdraw(self, name: str) -> None:
        """The unit is placed, gone, or not ready any more."""
        unit = self._units.find(name)
        if unit is not None and (known := unit.waiting) is not None:
            self._set_parked(name, known, False)
            unit.waiting = None
            del self._awake[name]
            self._count(known.order, -1)

    def _count(self, order: Order, by: int) -> None:
        kind = (order.rank, order.stage)
        self._of[kind] += by
        if not self._of[kind]:
            del self._of[kind]

    def _set_parked(self, name: str, unit: Waiting, parked: bool) -> None:
        if unit.parked == parked:
            return
        unit.parked = parked
        if parked:
            del self._awake[name]
            self._parked.join(unit.ask, _place_of(unit, name))
        else:
            self._awake[name] = unit
            self._parked.leave(unit.ask, _place_of(unit, name))

    def park(self, name: str, now_s: float, ask: Hashable | None = None) -> None:
        """It was tried and found no place."""
        known = self.get(name)
        if known is not None:
            self.version += known.failures == 0
            known.failures += 1
            known.not_before_s = now_s + self._backoff.after(known.failures)
            self._set_parked(name, known, False)
            known.ask, known.must_wait = ask, False
            self._set_parked(name, known, True)

    def retry(self, name: str, now_s: float) -> None:
        """It had a place and something went wrong on the way: again after the back-off, whatever happens."""
        self.park(name, now_s)
        if (known := self.get(name)) is not None:
            self._set_parked(name, known, False)
            known.must_wait = True

    def defer(self, name: str, now_s: float, until_s: float, *, with_others: bool = False) -> None:
        """It stands back for others until then; not a failure. `with_others` has those stay parked that ask for the
        same."""
        known = self._known(name)
        self._set_parked(name, known, False)
        known.not_before_s, known.must_wait = until_s, True
        if not with_others:
            known.ask = None
        if known.deferred_s is None:
            known.deferred_s = now_s

    def has_minimum_before(self, order: Order) -> bool:
        """Whether a minimum of at least this rank waits that comes before units of this stage."""
        return any(rank <= order.rank and stage < order.stage for rank, stage in self._of)

    def wake(self, can_help: Callable[[str], bool]) -> int:
        """Something changed; parked units that it can help are tried again when their back-off is over.

        Of units that ask for the same the first is, and the others after it.
        """
        helped = [name for _, name in self._parked.of(None) if can_help(name)]
        helped += [name for name in self.alone() if self._is_parked(name) and can_help(name)]
        for name in dict.fromkeys(helped):
            self._set_parked(name, self._known(name), False)
        woken = len(helped)
        for ask in self._parked.asks():
            if any(can_help(name) for _, name in self._parked.of(ask)):
                self._help(ask)
                woken += self.wake_next(ask) is not None
        return woken

    def _is_parked(self, name: str) -> bool:
        unit = self.get(name)
        return unit is not None and unit.parked

    def _help(self, ask: Hashable, *, all_of_them: bool = False) -> None:
        """The first that asks for this is woken next, unless one of them is awake."""
        known = self._helped.get(ask, WokenLine())
        is_awake = known.last is not None and self._is_tried(known.last[1], ask)
        self._helped[ask] = WokenLine(known.last if is_awake else None, all_of_them or known.all_of_them)

    def _is_tried(self, name: str, ask: Hashable) -> bool:
        unit = self._awake.get(name)
        return unit is not None and unit.ask == ask

    def wake_next(self, ask: Hashable | None) -> tuple[Order, str] | None:
        """Wakes the next unit that asks for this, if something may have helped it and the last one was not refused."""
        helped = self._helped.get(ask)
        if helped is None or (helped.last is not None and self._is_tried(helped.last[1], ask)):
            return None
        helped.last = self._parked.next_of(ask, helped.last)
        if helped.last is None:
            del self._helped[ask]
            return None
        name = helped.last[1]
        unit = self._known(name)
        self._set_parked(name, unit, False)
        return unit.order, name

    def refuse_alike(self, ask: Hashable) -> None:
        """A unit that asks for this found no place: neither would the others."""
        if (helped := self._helped.get(ask)) is not None and not helped.all_of_them:
            del self._helped[ask]

    def wake_all_alike(self, ask: Hashable) -> bool:
        """Has every unit that asks for this woken, one after the other; False if that is under way."""
        if ask in self._helped and self._helped[ask].all_of_them:
            return False
        self._help(ask, all_of_them=True)
        return True

    def due(self, now_s: float) -> list[tuple[Order, str]]:
        """Units to try now, as a heap in order. They stay in the queue until they are withdrawn or parked.

        If anybody is due, all that were woken are: a back-off must not let others overtake.
        """
        for ask in list(self._helped):
            self.wake_next(ask)
        if not any(unit.not_before_s <= now_s for unit in self._awake.values()):
            return []
        found = [
            (unit.order, name) for name, unit in self._awake.items() if unit.not_before_s <= now_s or not unit.must_wait
        ]
        heapq.heapify(found)
        return found

    def next_due_s(self, now_s: float) -> float | None:
        """When the next unit's back-off ends; None when none will come by itself."""
        times = [unit.not_before_s for unit in self._awake.values() if unit.not_before_s > now_s]
        return min(times, default=None)


def _place_of(unit: Waiting, name: str) -> tuple[Order, str]:
    """Where a parked unit comes among those alike: they have one rank, but it may have changed since one was parked."""
    return unit.order._replace(rank=()), name
