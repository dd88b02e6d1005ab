"""Units that wait long: when to look at one because of the time, and those that have waited long by what they ask for.

Pure. Nothing of a unit stays here once it waits no more.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable

from grove.scheduler.policy.alike import AlikeLines, Place
from grove.scheduler.policy.waiting_queue import Waiting, place_of

NEVER = float("inf")


class LongWaits:
    """All times are seconds of the event loop's clock."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, str]] = []
        self._patient = AlikeLines()

    @property
    def next_s(self) -> float | None:
        """When the first timer ends."""
        return self._timers[0][0] if self._timers else None

    def set_timer(self, waiting: Waiting, at_s: float) -> None:
        """Sets the unit's timer, which it has at most one of; `NEVER` ends it."""
        if waiting.timer_s != NEVER:
            del self._timers[bisect_left(self._timers, (waiting.timer_s, waiting.order.name))]
        waiting.timer_s = at_s
        if at_s != NEVER:
            insort(self._timers, (at_s, waiting.order.name))

    def due(self, now_s: float) -> list[str]:
        """Units whose timers have ended."""
        return [name for _, name in self._timers[: bisect_left(self._timers, (now_s, chr(0x10FFFF)))]]

    def add(self, waiting: Waiting) -> None:
        """The unit has waited long; also when it asks for something else since."""
        self._leave(waiting)
        waiting.patient_at = (waiting.ask, place_of(waiting))
        self._patient.join(*waiting.patient_at)

    def _leave(self, waiting: Waiting) -> None:
        if waiting.patient_at is not None:
            self._patient.leave(*waiting.patient_at)
            waiting.patient_at = None

    def forget(self, waiting: Waiting) -> None:
        """The unit waits no more."""
        self.set_timer(waiting, NEVER)
        self._leave(waiting)

    def lines(self) -> list[tuple[Hashable, list[Place]]]:
        """Units that have waited long, by what they asked for when they were added; each line in order."""
        return [(ask, list(line)) for ask, line in self._patient.lines()]
