"""Numbers about sets and gangs for dashboards and alerts, taken from the operator's cache when they are scraped.

How long gangs took is observed once each, when they first become ready; everything else costs nothing between scrapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from prometheus_client import REGISTRY, CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from grove.api import conditions
from grove.api.meta import find_condition
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.kube.cache import Cache
from grove.kube.clock import Clock
from grove.operator.shared.rollout import is_open

_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400)
PLACED_SECONDS = Histogram("grove_gang_placed_seconds", "From a PodGang's creation to its placement.", buckets=_SECONDS)
READY_SECONDS = Histogram("grove_gang_ready_seconds", "From a PodGang's placement to being ready.", buckets=_SECONDS)


class SetFigures(Collector):
    """The metrics over all sets."""

    def __init__(self, cache: Cache, clock: Clock) -> None:
        self._cache, self._clock = cache, clock
        cache.add(PodCliqueSet)
        cache.on_event(PodGang, observe_ready)

    def collect(self) -> Iterable[Metric]:
        sets = self._cache.list(PodCliqueSet)
        wanted, available, outdated, restarts, rolling, stalled_s = 0, 0, 0, 0, 0, 0.0
        now = self._clock.now()
        for pcs in sets:
            wanted += pcs.spec.replicas
            available += min(pcs.status.available_replicas, pcs.spec.replicas)
            outdated += max(0, pcs.spec.replicas - pcs.status.updated_replicas)
            restarts += pcs.status.gang_restarts
            progress = pcs.status.update_progress
            if is_open(progress):
                rolling += 1
                moved = progress.last_progress_time or progress.update_started_at
                stalled_s = max(stalled_s, (now - moved).total_seconds() if moved is not None else 0.0)
        for name, text, value in (
            ("grove_podcliquesets", "PodCliqueSets there are.", len(sets)),
            ("grove_set_replicas", "Replicas that sets ask for.", wanted),
            ("grove_set_replicas_available", "Replicas of sets that are available.", available),
            ("grove_set_replicas_outdated", "Replicas of sets that are not of the newest templates.", outdated),
            ("grove_rollouts", "Sets that are being updated.", rolling),
            ("grove_rollout_still_seconds", "How long the update that moved least lately has stood still.", stalled_s),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "grove_gang_restarts", "Restarts of gangs after a breach, of living sets.", value=restarts
        )


def observe_ready(old: PodGang | None, new: PodGang | None) -> None:
    """Notes how long a gang took when it is seen to become ready; those that were so before we looked do not count."""
    if old is None or new is None or _since(old, conditions.READY) is not None:
        return
    ready, placed = _since(new, conditions.READY), _since(new, conditions.SCHEDULED)
    created = new.metadata.creation_timestamp
    if ready is not None and placed is not None and created is not None:
        PLACED_SECONDS.observe(max(0.0, (placed - created).total_seconds()))
        READY_SECONDS.observe(max(0.0, (ready - placed).total_seconds()))


def _since(gang: PodGang, type_: str) -> datetime | None:
    condition = find_condition(gang.status.conditions, type_)
    return condition.last_transition_time if condition is not None and condition.status == conditions.TRUE else None


def watch_sets(cache: Cache, clock: Clock, registry: CollectorRegistry = REGISTRY) -> Collector:
    """Shows the figures on the metrics page."""
    figures = SetFigures(cache, clock)
    registry.register(figures)
    return figures
