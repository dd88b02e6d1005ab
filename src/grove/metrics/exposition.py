"""Our numbers as a page of our own, for a Prometheus in the house, prometheus-adapter and KEDA on top of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from grove.metrics.engines import OWN_METRICS
from grove.metrics.readings import Readings

LABELS = ("namespace", "kind", "name")


class OwnerNumbers(Collector):
    """Every number of ours for every clique, group and set that has it."""

    def __init__(self, readings: Readings, now: Callable[[], float]) -> None:
        self._readings, self._now = readings, now

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        now, subjects = self._now(), self._readings.subjects()
        for metric in OWN_METRICS:
            family = GaugeMetricFamily(metric, "Of the pods of a clique, a scaling group or a set.", labels=LABELS)
            for subject in subjects:
                if (value := self._readings.find(subject, metric, now)) is not None:
                    family.add_metric((subject.namespace, subject.kind, subject.name), value.number)
            if family.samples:
                yield family
