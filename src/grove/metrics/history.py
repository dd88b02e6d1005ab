"""What one pod said lately: its last gauges, and how its histograms grew over a sliding minute.

A counter that falls has started again (the engine restarted): what it shows then is all new. The first page of a pod is
where its growth is measured from, so a quantile takes two pages.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from grove.metrics.histogram import Bounds, Counts, of_mapping
from grove.metrics.numbers import Gauge, PageNumbers

WINDOW_S = 60.0


@dataclass(slots=True)
class Growth:
    """The increase of one histogram over the window. Invariant: `total` is the sum of `steps`.

    A step spans two pages and belongs to the window while the earlier of them does.
    """

    bounds: Bounds
    last: Counts
    last_at: float
    total: Counts
    steps: deque[tuple[float, Counts]] = field(default_factory=deque)

    @classmethod
    def begun(cls, bounds: Bounds, counts: Counts, at: float) -> Growth:
        return cls(bounds, counts, at, np.zeros(len(bounds)))

    def observe(self, counts: Counts, at: float) -> None:
        is_restart = bool((counts < self.last).any())
        step = counts.copy() if is_restart else counts - self.last
        self.steps.append((self.last_at, step))
        self.total += step
        self.last, self.last_at = counts, at
        while self.steps and self.steps[0][0] <= at - WINDOW_S:
            self.total -= self.steps.popleft()[1]


@dataclass(slots=True)
class History:
    """One pod's numbers. `read_at` is when its last good page came, on the reader's clock."""

    read_at: float = -np.inf
    gauges: dict[str, Gauge] = field(default_factory=dict)
    growths: dict[str, tuple[int, Growth]] = field(default_factory=dict)

    def observe(self, at: float, numbers: PageNumbers) -> None:
        """Takes in what a page came to."""
        self.read_at = at
        self.gauges = numbers.gauges
        for name in self.growths.keys() - numbers.histograms.keys():
            del self.growths[name]
        for name, (rank, buckets) in numbers.histograms.items():
            bounds, counts = of_mapping(buckets)
            known = self.growths.get(name)
            if known is None or known[0] != rank or known[1].bounds != bounds:
                self.growths[name] = (rank, Growth.begun(bounds, counts, at))
            else:
                known[1].observe(counts, at)
