"""The units that wait: their order, when they may be tried again, and what wakes them. No I/O, no clock of its own.

A unit is a gang, the surplus of a gang, or a single pod. A unit that found no place is parked. It returns when
something happened that can help (capacity it could use, a change of its own), not when time passes. Its back-off only
limits how often. No unit waits behind another: a cycle looks at every unit that is due, in order.

Units that ask for the same are refused for the same reason. Of those only the first in order is woken. When it is
placed, the next one is woken if the same event still helps. When it is refused, the others stay parked, except those
for which capacity is held. So one free slot costs at most two searches, however many units wait.
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
from grove.scheduler.policy.alike import AlikeLines, Place


class Stage(IntEnum):
    """The order at equal priority: repair of a minimum, then new minima, then pods above minima.

    Base gangs and single pods come before scaled gangs.
    """

    REPAIR = 0
    SCALED_REPAIR = 1
    MINIMUM = 2
    RETURNING = 3
    """The capacity of pods above a minimum that are being replaced. Only holds have this stage."""
    SCALED_MINIMUM = 4
    SURPLUS = 5


class Order(NamedTuple):
    """Sorts units. The smaller comes first; equal units go by name, so that two runs agree."""

    rank: tuple[int, ...]
    """What the policies say, the first policy's first; by priority alone it is the negated priority."""
    stage: Stage
    created_s: float
    name: str


class Needed(NamedTuple):
    """The changes that can help a waiting unit."""

    shapes: tuple[Shape, ...]
    """Capacity for one of these."""
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
    spreads_units: bool = False
    """Whether it has a spread constraint over the replicas of its set."""


class Waiting(msgspec.Struct):
    """A unit in the queue; `since_s` is when it was first ready, and stays while it waits."""

    order: Order
    since_s: float
    failures: int = 0
    not_before_s: float = 0.0
    parked: bool = False
    must_wait: bool = False
    """Its back-off is for trouble with the cluster, or for others' sake, so it stands whatever happens."""
    until_helped: bool = False
    """Whether a change that can help it ends that wait."""
    deferred_s: float | None = None
    """When it first stood back for a minimum that waits."""
    warned_s: float = float("-inf")
    """When it was last reported that the unit waits for longer than its timeout."""
    timer_s: float = float("inf")
    """When to look whether it has waited long, or for longer than its timeout."""
    patient_at: tuple[Hashable, Place] | None = None
    """Its place among units that have waited so long that nodes may be held for them."""
    ask: Hashable | None = None
    """What it asked for when it was refused: equal for units that are alike, None for one that is like no other."""
    overtaken: int = 0
    """What units behind it have taken, since it waits, of the resource it is short of."""
    needed: Needed | None = None
    """What would help it, since it was refused."""


class Record(Protocol):
    """The queue's record of a unit."""

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
    can_help: tuple[Callable[[str], bool], ...] = ()
    """Events since the last refusal: whether one of them still helps a unit."""
    only_owners: bool = False
    """Whether one of them was refused: after that only units for which capacity is held are woken."""


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
        self._newly_refused: list[Waiting] = []
        self.on_withdraw: Callable[[Waiting], object] = lambda _: None
        self.owners: Callable[[], Iterable[str]] = tuple
        """Units for which capacity is held."""

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
        waiting = self.get(name)
        assert waiting is not None, f"{name} does not wait"
        return waiting

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
        if known.failures:
            self._newly_refused.append(known)
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
            known.failures, known.not_before_s, known.must_wait, known.until_helped = 0, now_s, False, False

    def withdraw(self, name: str) -> None:
        """The unit is placed, gone, or not ready any more."""
        unit = self._units.find(name)
        if unit is not None and (known := unit.waiting) is not None:
            self._set_parked(name, known, False)
            self.on_withdraw(known)
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
            self._parked.join(unit.ask, place_of(unit))
        else:
            self._awake[name] = unit
            self._parked.leave(unit.ask, place_of(unit))

    def park(self, name: str, now_s: float, ask: Hashable | None = None) -> None:
        """It was tried and found no place."""
        known = self.get(name)
        if known is not None:
            if known.failures == 0:
                self.version += 1
                self._newly_refused.append(known)
            known.failures += 1
            known.not_before_s = now_s + self._backoff.after(known.failures)
            self._set_parked(name, known, False)
            known.ask, known.must_wait, known.until_helped = ask, False, False
            self._set_parked(name, known, True)

    def take_newly_refused(self) -> list[Waiting]:
        """Units that wait and were refused for the first time since they came, changed or moved, and since the last
        call.
        """
        refused, self._newly_refused = self._newly_refused, []
        return [waiting for waiting in refused if self.get(waiting.order.name) is waiting]

    def retry(self, name: str, now_s: float, failures: int = 0) -> None:
        """It had a place and something went wrong on the way: again after the back-off, whatever happens.

        `failures` is how often that went wrong in a row: the unit left the queue each time it had a place.
        """
        self.park(name, now_s)
        if (known := self.get(name)) is not None:
            self._set_parked(name, known, False)
            known.failures, known.must_wait = max(known.failures, failures), True
            known.not_before_s = now_s + self._backoff.after(known.failures)

    def defer(self, name: str, now_s: float, until_s: float, *, until_helped: bool = False) -> None:
        """It waits until then; not a failure. `until_helped` ends that with the first change that can help it.

        Without it the unit stands back for others, and those that ask for the same stay parked.
        """
        known = self._known(name)
        self._set_parked(name, known, False)
        known.not_before_s, known.must_wait, known.until_helped = until_s, True, until_helped
        if until_helped:
            known.ask = None
        if known.deferred_s is None:
            known.deferred_s = now_s

    def has_minimum_before(self, order: Order) -> bool:
        """True if a minimum of at least this rank waits and comes before units of this stage."""
        return any(rank <= order.rank and stage < order.stage for rank, stage in self._of)

    def heads(self, count: int) -> Iterator[Waiting]:
        """Units that wait, in no order; of parked units that ask for the same only the first `count`."""
        yield from self._awake.values()
        lines = (line if ask is None else line[:count] for ask, line in self._parked.lines())
        yield from (self._known(name) for line in lines for _, name in line)

    def wake(self, can_help: Callable[[str], bool]) -> int:
        """Something changed; parked units that it can help are tried again when their back-off is over.

        Of units that ask for the same the first is, and the others after it. It helps all of them or none.
        """
        for name, unit in self._awake.items():
            if unit.until_helped and can_help(name):
                _end_deferral(unit)
        helped = [name for _, name in self._parked.of(None) if can_help(name)]
        for name in helped:
            self._set_parked(name, self._known(name), False)
        lines = [ask for ask, line in self._parked.lines() if ask is not None and self._helps(line, can_help)]
        for ask in lines:
            self._help(ask, can_help)
        return len(helped) + sum(self.wake_next(ask) is not None for ask in lines)

    def wake_named(self, names: Iterable[str]) -> None:
        """Something changed that helps these units. Units ahead of them that ask for the same are tried first."""
        for name in sorted(names):
            unit = self.get(name)
            if unit is not None and unit.until_helped:
                _end_deferral(unit)
            elif unit is not None and unit.parked:
                if unit.ask is None:
                    self._set_parked(name, unit, False)
                else:
                    self._help(unit.ask, lambda _: True)
                    self.wake_next(unit.ask)

    def _helps(self, line: list[Place], can_help: Callable[[str], bool]) -> bool:
        """True if the change helps one of these equal units.

        The domain of a pinned unit can change while it is parked.
        """
        needed = self._known(line[0][1]).needed
        is_pinned = needed is not None and needed.pinned is not None
        return any(can_help(name) for _, name in (line if is_pinned else line[:1]))

    def _help(self, ask: Hashable, can_help: Callable[[str], bool], *, all_of_them: bool = False) -> None:
        """The first that asks for this is woken next, unless one of them is awake."""
        known = self._helped.get(ask, WokenLine())
        is_awake = known.last is not None and self._is_tried(known.last[1], ask) and not known.only_owners
        last = known.last if is_awake else None
        self._helped[ask] = WokenLine(last, all_of_them or known.all_of_them, (*known.can_help, can_help))

    def _is_tried(self, name: str, ask: Hashable) -> bool:
        unit = self._awake.get(name)
        return unit is not None and unit.ask == ask

    def wake_next(self, ask: Hashable | None) -> tuple[Order, str] | None:
        """Wakes the next unit that asks for this, if something that happened still helps it."""
        helped = self._helped.get(ask)
        if helped is None or (helped.last is not None and self._is_tried(helped.last[1], ask)):
            return None
        helped.last = self._next_helped(ask, helped)
        if helped.last is None:
            del self._helped[ask]
            return None
        name = helped.last[1]
        unit = self._known(name)
        self._set_parked(name, unit, False)
        return unit.order, name

    def _next_helped(self, ask: Hashable, helped: WokenLine) -> Place | None:
        if helped.only_owners:
            owners = ((name, self.get(name)) for name in self.owners())
            places = sorted(place_of(unit) for name, unit in owners if unit and unit.parked and unit.ask == ask)
            line = [place for place in places if helped.last is None or place > helped.last]
            return next((place for place in line if self._is_helped(helped, [place])), None)
        place = self._parked.next_of(ask, helped.last)
        return place if place is not None and self._is_helped(helped, self._parked.of(ask)) else None

    def _is_helped(self, helped: WokenLine, line: list[Place]) -> bool:
        return any(self._helps(line, can_help) for can_help in helped.can_help)

    def refuse_alike(self, ask: Hashable) -> None:
        """A unit that asks for this found no place. Neither would the others, unless capacity is held for them."""
        if (helped := self._helped.get(ask)) is not None and not helped.all_of_them:
            helped.only_owners = True

    def wake_all_alike(self, ask: Hashable) -> bool:
        """Has every unit that asks for this woken, one after the other; False if that is under way."""
        if ask in self._helped and self._helped[ask].all_of_them:
            return False
        self._help(ask, lambda _: True, all_of_them=True)
        return True

    def due(self, now_s: float) -> list[tuple[Order, str]]:
        """Units to try now, as a heap in order. They stay in the queue until they are withdrawn or parked.

        If one unit is due, all woken units are: a back-off must not let others overtake.
        """
        for ask in list(self._helped):
            self.wake_next(ask)
        if not any(unit.not_before_s <= now_s for unit in self._awake.values()):
            return []
        due = [
            (unit.order, name) for name, unit in self._awake.items() if unit.not_before_s <= now_s or not unit.must_wait
        ]
        heapq.heapify(due)
        return due

    def next_due_s(self, now_s: float) -> float | None:
        """When the next unit's back-off ends; None when none will come by itself."""
        times = [unit.not_before_s for unit in self._awake.values() if unit.not_before_s > now_s]
        return min(times, default=None)


def _end_deferral(unit: Waiting) -> None:
    unit.must_wait = unit.until_helped = False
    unit.not_before_s = 0.0


def place_of(unit: Waiting) -> Place:
    """Where a parked unit comes among those alike: they have one rank, but it may have changed since one was parked."""
    return unit.order._replace(rank=()), unit.order.name
