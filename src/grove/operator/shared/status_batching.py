"""Writes that only report progress wait a little for company; news that somebody waits for does not.

Two pods that turn ready within the same moment then cost one status write instead of two, and a clique on its way from
created over scheduled to ready costs one or two instead of six.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

SETTLE_S = 0.02
"""How long an event waits for the next one of the same object before we look."""
PROGRESS_S = 1.0
"""How long a status may lag behind while things are on their way and nothing is wrong."""
FIRST_S = 5.0
"""The same for the first status of a new object: that its pods are not there yet is known to whoever made it."""

NOTHING_YET_S = 30.0
"""The same for an object that nothing has begun for: in a set of a thousand replicas the last one's turn comes late."""
CROWD_S = 0.05
"""What each status that waits adds to the wait of all, up to `NOTHING_YET_S`: together they report progress twenty
times a second at most, and leave the API server to the pods."""


class StatusBatches:
    """Remembers since when each key has had something to write. `now` is the event loop's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: dict[Hashable, tuple[float, float]] = {}
        self._crowd: set[Hashable] = set()

    def wait_s(self, key: Hashable, at_most_s: float, *, yields: bool = False) -> float:
        """Seconds the write of `key` may still wait, counted from the first time this was asked; 0.0 is now.

        Asked with a shorter limit than before, the count begins anew: it is another thing that is waited for. What
        `yields` waits longer while many others wait.
        """
        since, limit_s = self._since.get(key, (self._now(), at_most_s))
        if at_most_s < limit_s:
            since = self._now()
        self._since[key] = (since, at_most_s)
        if yields:
            self._crowd.add(key)
            at_most_s = max(at_most_s, min(CROWD_S * len(self._crowd), NOTHING_YET_S))
        left = since + at_most_s - self._now()
        return left if left > 1e-6 else 0.0

    def done(self, key: Hashable) -> None:
        """Written, or nothing to write any more."""
        self._since.pop(key, None)
        self._crowd.discard(key)
