"""A bound on requests a second, for administrators who want one; without it only writes in flight are bounded."""

from __future__ import annotations

import asyncio


class Rate:
    """`per_s` requests a second in the long run, `burst` at once after a pause. Turns come in the order of asking."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._spacing_s = 1.0 / per_s
        self._slack_s = (max(burst, 1) - 1) * self._spacing_s
        self._due = float("-inf")
        """When the next request would be due if all were sent evenly."""

    async def turn(self) -> None:
        """Returns when one more request may be sent."""
        now = asyncio.get_running_loop().time()
        wait_s = max(self._due, now) - self._slack_s - now
        self._due = max(self._due, now) + self._spacing_s
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self._due -= self._spacing_s  # given up: who asks next need not wait for it
                raise
