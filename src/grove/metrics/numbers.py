"""What one page comes to: gauges by our name and by raw name, and the buckets of each latency.

It is all that leaves the process that reads pages: a few hundred bytes instead of a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from grove.metrics import engines
from grove.metrics.engines import Kind
from grove.metrics.page import Scan, Wanted


class Gauge(NamedTuple):
    """`rank` is that of the source it came from (see `engines`)."""

    value: float
    rank: int = 0


class Buckets(NamedTuple):
    """Cumulative counts by upper bound."""

    rank: int
    counts: dict[float, float]


class PageNumbers(NamedTuple):
    gauges: dict[str, Gauge]
    histograms: dict[str, Buckets]
    """By the name of a latency."""


def wanted_names(raw: Iterable[str]) -> Wanted:
    """The names to look for in every engine's page: our sources, and raw names that a client asked for."""
    return Wanted({*engines.GAUGE_NAMES, *raw}, engines.HISTOGRAM_NAMES)


def numbers_of(scan: Scan) -> PageNumbers:
    gauges = {name: Gauge(total.sum) for name, total in scan.totals.items()}
    histograms: dict[str, Buckets] = {}
    for meaning in engines.MEANINGS:
        for source in meaning.sources:
            if meaning.kind is Kind.LATENCY:
                if buckets := scan.histograms.get(source.name):
                    histograms[meaning.name] = Buckets(source.rank, buckets)
                    break
            elif (total := scan.totals.get(source.name)) is not None:
                value = total.highest if meaning.kind is Kind.SHARE else total.sum
                gauges[meaning.name] = Gauge(value * source.scale, source.rank)
                break
    return PageNumbers(gauges, histograms)
