"""The scheduler's numbers, all beginning with `grove_`; what they count is what users and alerts ask about.

Capacity figures (largest placeable gang, fragmentation) are computed when they are scraped, from the snapshot as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from grove.api.fragmentation import GangSize, gang_size
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.devices.device_inventory import is_shorthand
from grove.scheduler.model.facts import PODS, Shape
from grove.scheduler.model.reading import pod_requests
from grove.scheduler.solve.placement_score import fragmentation, slots_by_domain

ATTEMPTS = Counter("grove_gang_attempts", "Decisions about gangs, by result and reason.", ["result", "reason"])
SCHEDULE_SECONDS = Histogram(
    "grove_gang_schedule_seconds",
    "From a gang being ready to its minimum being bound.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 6, 8, 9, 10, 11, 12, 15, 20, 30, 60, 300, 1800),
)
DECISION_SECONDS = Histogram(
    "grove_gang_decision_seconds",
    "Time one placement decision took.",
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
)
DECIDED_ASIDE = Counter("grove_decisions_aside", "Decisions that took long and were made beside the event loop.")
CYCLE_SECONDS = Histogram(
    "grove_scheduling_cycle_seconds",
    "Time one cycle over all waiting gangs took.",
    buckets=(0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5),
)
PENDING = Gauge("grove_gang_pending", "Gangs and single pods that are ready and have no place.")
DOMAIN_SELECTED = Counter("grove_topology_domain_selected", "Gangs placed in one domain, by its level.", ["layer"])
PLACEMENT_SCORE = Histogram(
    "grove_placement_score",
    "Best possible over used domains of placed gangs.",
    buckets=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0),
)
RESERVATION_USED = Counter("grove_reservation_used", "Gangs that took over the place of the one they name.")
PREEMPTED = Counter("grove_preempted_gangs", "Gangs evicted for gangs of higher priority.")
TRIMMED = Counter("grove_trimmed_pods", "Pods above the minimum of their gang that are evicted for other gangs.")
REPACKS = Counter(
    "grove_repacks", "Gangs for which the scheduler moved others of its own accord, by result.", ["result"]
)
REPACK_RESTARTS = Counter("grove_repack_restarted_pods", "Pods that the scheduler restarted in these moves.")
QUOTA_REJECTIONS = Counter("grove_quota_rejections", "Gangs that a quota or queue kept out, each time they were tried.")
ROLLBACKS = Counter("grove_gang_rollbacks", "Gangs taken back because they could not be completed in time.")
BINDS = Counter("grove_pod_binds", "Bind requests by what became of the pod.", ["result"])
GPU_SECONDS = Counter(
    "grove_gpu_seconds",
    "GPU-seconds by what GPUs are used for; `waiting` is what waiting pods request.",
    ["namespace", "set", "queue", "state"],
)
HEADROOM = Gauge(
    "grove_headroom_units",
    "Further replicas that capacity is held for (`held`), and those that headroom is asked for (`wanted`).",
    ["gang", "state"],
)

if TYPE_CHECKING:
    from grove.scheduler.loop.state.view import View

Sizes = Callable[[str], GangSize | None]


def note_headroom(gang: str, wanted: int, held: int) -> None:
    HEADROOM.labels(gang, "wanted").set(wanted)
    HEADROOM.labels(gang, "held").set(held)


def forget_headroom(gang: str) -> None:
    for state in ("wanted", "held"):
        try:
            HEADROOM.remove(gang, state)
        except KeyError:  # nothing was noted of it
            pass


class HeadroomCollector(Collector):
    """How much of each device or resource is left in one piece, by level of every known topology."""

    def __init__(self, snapshot: Snapshot, sizes: Sizes) -> None:
        self._snapshot, self._sizes = weakref.ref(snapshot), sizes

    def collect(self) -> Iterable[GaugeMetricFamily]:
        largest = GaugeMetricFamily(
            "grove_largest_placeable_gang",
            "Most pods of one whole unit of the resource (cpu: one core) that fit into one domain of the level.",
            labels=["level", "resource"],
        )
        broken = GaugeMetricFamily(
            "grove_fragmentation_ratio",
            "Share of what is free that the largest waiting gang, or one of the most frequent size, cannot use.",
            labels=["level", "resource"],
        )
        snapshot = self._snapshot()
        if snapshot is not None and snapshot.nodes.rows:
            for level, resource, most, ratio in headroom(snapshot, self._sizes):
                largest.add_metric([level, resource], most)
                broken.add_metric([level, resource], ratio)
        yield largest
        yield broken


def headroom(snapshot: Snapshot, sizes: Sizes) -> Iterable[tuple[str, str, float, float]]:
    """(level key, resource, most unit pods in a domain, fragmentation) for cpu and extended resources."""
    resources = [name for name in snapshot.resources if name == "cpu" or ("/" in name and not is_shorthand(name))]
    size_of = {resource: sizes(resource) for resource in resources}
    seen: set[str] = set()
    for topology in sorted(snapshot.topologies):
        for key in snapshot.topologies[topology]:
            if key in seen:
                continue
            seen.add(key)
            for resource in resources:
                unit = Shape(((PODS, 1), (resource, 1000 if resource == "cpu" else 1)))
                slots = slots_by_domain(snapshot, unit, key, topology)
                broken = fragmentation(snapshot, resource, key, size_of[resource], topology)
                yield key, resource, max(slots.values(), default=0), broken


def sizes_in(view: View) -> Sizes:
    """The gang size with which the fragmentation of a resource is measured, from the gangs of a view as they are."""

    def gangs(resource: str) -> Iterator[tuple[str, bool, list[int]]]:
        for name, gang in list(view.units.gangs.items()):
            pods = [pod for pod, _ in view.members(gang) if not pod.metadata.is_deleting]
            waits = not any(view.counted.node_of(pod) for pod in pods)
            yield name, waits, [dict(pod_requests(pod)).get(resource, 0) for pod in pods]

    return lambda resource: gang_size(gangs(resource))


def watch_headroom(snapshot: Snapshot, sizes: Sizes, registry: CollectorRegistry = REGISTRY) -> Collector:
    """Adds the capacity figures of a snapshot to a registry; unregister the returned collector when it ends.

    `sizes` gives the gang size with which the fragmentation of a resource is measured.
    """
    collector = HeadroomCollector(snapshot, sizes)
    registry.register(collector)
    return collector
