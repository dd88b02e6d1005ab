"""The list of keys to look at: each at most once in it, none handed out twice at a time, the urgent ones first.

A key added while it is being worked on comes back when that work is done, so no change is missed. Delays and back-off
use the event loop's clock alone. One event loop, no threads.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

BACKOFF_S, MAX_BACKOFF_S = 0.005, 60.0
SLACK = 64
"""Cancelled delays may be as many as the live ones, and this many more, before they are removed."""


class Closed(Exception):
    """The queue was shut down and is empty."""


class Workqueue(Generic[K]):
    """Highest priority first, then first come, first served.

    `add` is O(log n) and never blocks; n is what is queued. A key keeps the highest priority it was added with until it
    is handed out, and the earliest of the delays it was added with.
    """

    def __init__(self, *, backoff_s: float = BACKOFF_S, max_backoff_s: float = MAX_BACKOFF_S) -> None:
        self._backoff_s, self._max_backoff_s = backoff_s, max_backoff_s
        self._ready: list[
            tuple[int, int, K]
        ] = []  # (-priority, order of arrival, key); outdated entries are passed over
        self._priority: dict[K, int] = {}  # of every key that waits to be handed out
        self._active: set[K] = set()
        self._again: dict[K, int] = {}  # added while active: key -> priority
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, tuple[float, int]] = {}  # of every delayed key: (when, priority)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._failures: dict[K, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._arrivals = 0
        self._closed = False

    def __len__(self) -> int:
        """How many keys wait to be handed out now; delayed ones are not among them."""
        return len(self._priority) + len(self._again)

    @property
    def delayed(self) -> int:
        return len(self._due)

    @property
    def is_idle(self) -> bool:
        """No key waits and no worker runs; delayed keys may exist."""
        return not (self._priority or self._again or self._active)

    def add(self, key: K, *, priority: int = 0, after_s: float = 0.0) -> None:
        """Asks for a look at `key`, now or `after_s` from now."""
        if self._closed:
            return
        if after_s > 0:
            self._delay(key, priority, after_s)
        elif key in self._active:
            self._again[key] = max(priority, self._again.get(key, priority))
        else:
            self._enqueue(key, priority)

    def hurry(self, key: K, *, priority: int = 0) -> None:
        """Asks for a look now that also does for the one that was to come later, by `after_s` or after a back-off.

        For keys whose every reconcile says when the next one is due.
        """
        held = self._due.pop(key, None)
        self.add(key, priority=priority if held is None else max(priority, held[1]))

    def retry(self, key: K, *, at_least_s: float = 0.0) -> float:
        """Adds `key` after its back-off, which doubles with each call until `forget`; returns the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # The exponent is capped before it can overflow a float: 2**64 is past any maximum.
        delay = max(at_least_s, min(self._backoff_s * 2.0 ** min(failures, 64), self._max_backoff_s))
        self.add(key, after_s=delay)
        return delay

    def forget(self, key: K) -> None:
        """The work on `key` went well: its back-off starts again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key, when there is one. The caller must call `done`. Raises Closed after `shut_down`."""
        while not self._priority:
            if self._closed:
                raise Closed
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # Woken and cancelled in the same turn: another waiter gets the wake-up.
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                elif waiter in self._waiters:  # not when a wake-up has passed over it meanwhile
                    self._waiters.remove(waiter)
                raise
        return self._pop()

    def done(self, key: K) -> None:
        """The look at `key` is over; it may be handed out again."""
        self._active.discard(key)
        priority = self._again.pop(key, None)
        if priority is not None and not self._closed:
            self._enqueue(key, priority)

    def shut_down(self) -> None:
        """Forgets what waits, takes nothing more and wakes every `get` with Closed."""
        self._closed = True
        self._ready.clear()
        self._priority.clear()
        self._again.clear()
        self._delayed.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            self._wake()

    def _enqueue(self, key: K, priority: int) -> None:
        queued = self._priority.get(key)
        if queued is not None and queued >= priority:
            return
        self._priority[key] = priority
        self._arrivals += 1
        heapq.heappush(self._ready, (-priority, self._arrivals, key))
        self._wake()

    def _pop(self) -> K:
        while True:
            negative, _, key = heapq.heappop(self._ready)
            if self._priority.get(key) == -negative:
                del self._priority[key]
                self._active.add(key)
                return key

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _delay(self, key: K, priority: int, after_s: float) -> None:
        when = asyncio.get_running_loop().time() + after_s
        held = self._due.get(key)
        if held is not None:
            priority = max(priority, held[1])
            when = min(when, held[0])
            if (when, priority) == held:
                return
        self._due[key] = (when, priority)
        self._arrivals += 1
        heapq.heappush(self._delayed, (when, self._arrivals, key))
        if len(self._delayed) > 2 * len(self._due) + SLACK:
            # Looks that came earlier: a timer of hours, set again at every event, would leave one behind each time.
            self._delayed = [timer for timer in self._delayed if self._due.get(timer[2], (0.0,))[0] == timer[0]]
            heapq.heapify(self._delayed)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._delayed:
            return
        when = self._delayed[0][0]
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = asyncio.get_running_loop().call_at(when, self._release)

    def _release(self) -> None:
        """Moves what is due. The loop may call a hair early (clocks have a resolution), hence the timer's own time."""
        self._timer = None
        now = max(self._timer_at, asyncio.get_running_loop().time())
        while self._delayed and self._delayed[0][0] <= now:
            when, _, key = heapq.heappop(self._delayed)
            held = self._due.get(key)
            if held is not None and held[0] == when:
                del self._due[key]
                self.add(key, priority=held[1])
        self._set_timer()
