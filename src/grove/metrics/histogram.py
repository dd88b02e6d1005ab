"""Quantiles of Prometheus histograms, as `histogram_quantile` reckons them.

Counts are cumulative: a bucket holds everything up to its upper bound. Inside a bucket the observations are taken as
evenly spread. The first one begins at 0 unless its bound is not positive. A quantile in the last, open bucket is the
bound before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

Counts = np.ndarray[tuple[int], np.dtype[np.float64]]
Bounds = tuple[float, ...]


def quantile(q: float, bounds: Sequence[float], counts: Sequence[float] | Counts) -> float | None:
    """The q-quantile of cumulative `counts` by ascending `bounds`, the last of them infinite; None without a value."""
    if len(bounds) < 2 or bounds[-1] != math.inf:
        return None
    # Counts read at slightly different moments may fall; they are lifted, as Prometheus does.
    rising = list(accumulate(map(float, counts), max))
    total = rising[-1]
    if total <= 0:
        return None
    rank = q * total
    at = next((index for index, count in enumerate(rising[:-1]) if count >= rank), len(bounds) - 1)
    if at == len(bounds) - 1:
        return bounds[-2]
    if at == 0 and bounds[0] <= 0:
        return bounds[0]
    below = rising[at - 1] if at else 0.0
    start = bounds[at - 1] if at else 0.0
    inside = rising[at] - below
    if not inside:
        return bounds[at]
    return min(bounds[at], start + (bounds[at] - start) * (rank - below) / inside)  # rounding may lead out of it


def summed(parts: Iterable[tuple[Bounds, Counts]]) -> tuple[Bounds, Counts] | None:
    """Several histograms as one: counts added bound by bound; None for none."""
    by_bounds: dict[Bounds, list[Counts]] = {}
    for bounds, counts in parts:
        by_bounds.setdefault(bounds, []).append(counts)
    if not by_bounds:
        return None
    sums = {bounds: np.add.reduce(rows) for bounds, rows in by_bounds.items()}
    if len(sums) == 1:
        return next(iter(sums.items()))
    mixed: dict[float, float] = {}
    for bounds, counts in sums.items():
        for bound, count in zip(bounds, counts, strict=True):
            mixed[bound] = mixed.get(bound, 0.0) + float(count)
    return of_mapping(mixed)


def of_mapping(counts: Mapping[float, float]) -> tuple[Bounds, Counts]:
    bounds = _shared(tuple(sorted(counts)))
    return bounds, np.array([counts[bound] for bound in bounds])


@lru_cache(maxsize=256)
def _shared(bounds: Bounds) -> Bounds:
    """One tuple for all pods of an engine: thousands of histograms have the same bounds."""
    return bounds
