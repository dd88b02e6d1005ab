"""Time as a thing that is handed in: wall time for what is written on the wire, the loop's time for waiting.

On the simulator's event loop `SYSTEM` is never used: the same call sites get the loop's own virtual clock.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, in UTC, with a timezone."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


SYSTEM = SystemClock()


def loop_time() -> float:
    """The event loop's clock, for what is waited for inside this process."""
    return asyncio.get_running_loop().time()
