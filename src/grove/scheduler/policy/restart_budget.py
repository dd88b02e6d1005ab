"""How many pods the scheduler may restart of its own accord: a number in any hour. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

HOUR_S = 3600.0


class RestartBudget:
    """Counts restarts. Times are seconds of one clock and never go back."""

    def __init__(self, an_hour: int, before: Iterable[float] = ()) -> None:
        """`before` are the times of restarts that count already."""
        self._an_hour = an_hour
        self._spent = deque(sorted(before))

    def left(self, now_s: float) -> int:
        """Restarts that are allowed now."""
        while self._spent and self._spent[0] <= now_s - HOUR_S:
            self._spent.popleft()
        return max(0, self._an_hour - len(self._spent))

    def spend(self, now_s: float, restarts: int) -> None:
        """Counts restarts. Raises ValueError if they are more than allowed."""
        if restarts > self.left(now_s):
            raise ValueError(f"{restarts} restarts, and {self.left(now_s)} are left of {self._an_hour} an hour")
        self._spent.extend([now_s] * restarts)
