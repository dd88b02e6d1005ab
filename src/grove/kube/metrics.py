"""The numbers every controller shows, under the names dashboards for controllers know already.

Label children are bound when a controller is made; an observation afterwards costs about a microsecond.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sized

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

OUTCOMES = ("success", "requeue_after", "error", "terminal", "not_leader")

RECONCILES = Counter("controller_runtime_reconcile", "Reconciles by outcome.", ["controller", "result"])
RECONCILE_SECONDS = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "Seconds a reconcile took.",
    ["controller"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
ACTIVE = Gauge("controller_runtime_active_workers", "Workers inside a reconcile.", ["controller"])
DEPTH = Gauge("workqueue_depth", "Keys that wait to be looked at.", ["name"])
TASKS = Gauge("grove_asyncio_tasks", "Tasks of the process's event loop; one that keeps growing is a leak.")


class ControllerMetrics:
    """The metrics of one controller, its labels bound."""

    def __init__(self, name: str, queue: Sized) -> None:
        self.active = ACTIVE.labels(name)
        self._seconds = RECONCILE_SECONDS.labels(name)
        self._outcomes = {outcome: RECONCILES.labels(name, outcome) for outcome in OUTCOMES}
        # Read when scraped, not kept up at every add; weakly, so that a stopped controller's queue may go.
        held = weakref.ref(queue)
        DEPTH.labels(name).set_function(lambda: float(len(living) if (living := held()) is not None else 0))

    def observe(self, outcome: str, seconds: float) -> None:
        self._outcomes[outcome].inc()
        self._seconds.observe(seconds)


class ApiRequests(Collector):
    """The requests a client sent, by verb and resource, read when scraped."""

    def __init__(self, calls: Mapping[tuple[str, str], int]) -> None:
        self._calls = calls

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "grove_api_requests", "Requests sent to the API server.", labels=["verb", "resource"]
        )
        for (verb, resource), count in sorted(self._calls.items()):
            family.add_metric([verb, resource], count)
        yield family


def watch_requests(calls: Mapping[tuple[str, str], int], registry: CollectorRegistry = REGISTRY) -> Collector:
    """Shows what a client asks of the API server on the metrics page."""
    api_requests = ApiRequests(calls)
    registry.register(api_requests)
    return api_requests
