"""The numbers of all pods, and what they come to for a pod, a clique, a scaling group and a set.

A pod whose last good page is older than three intervals has no numbers: absent is not zero. An owner has the numbers of
its pods that have some.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from grove.api import labels as key
from grove.api.selector import Selector
from grove.metrics import engines
from grove.metrics.engines import Kind
from grove.metrics.histogram import quantile, summed
from grove.metrics.history import History
from grove.metrics.numbers import Gauge, PageNumbers

STALE_INTERVALS = 3
POD, CLIQUE, GROUP, SET = "Pod", "PodClique", "PodCliqueScalingGroup", "PodCliqueSet"
OWNER_LABELS = {CLIQUE: key.POD_CLIQUE, GROUP: key.SCALING_GROUP, SET: key.PART_OF}
_OWNER_KINDS = {label: kind for kind, label in OWNER_LABELS.items()}


class Subject(NamedTuple):
    """The object that a number describes."""

    namespace: str
    kind: str
    name: str


class Value(NamedTuple):
    number: float
    read_at: float
    """When the oldest page in it was read, on the reader's clock."""


@dataclass(slots=True)
class PodNumbers:
    labels: Mapping[str, str] = field(default_factory=dict)
    history: History = field(default_factory=History)
    gpu: Gauge | None = None
    gpu_read_at: float = -math.inf


class Readings:
    """Numbers by pod. Keys are known before their first page, so that a deleted pod takes its numbers along."""

    def __init__(self, interval_s: float) -> None:
        self.stale_s = STALE_INTERVALS * interval_s
        self._pods: dict[tuple[str, str], PodNumbers] = {}
        self._owned: dict[Subject, set[tuple[str, str]]] = {}
        self._names: dict[str, set[str]] = {}

    def add_pod(self, namespace: str, name: str, labels: Mapping[str, str]) -> None:
        """Adds a pod, or replaces its labels."""
        where = (namespace, name)
        known = self._pods.get(where)
        if known is None:
            self._pods[where] = PodNumbers(labels)
            self._names.setdefault(namespace, set()).add(name)
        else:
            self._disown(where, known.labels)
            known.labels = labels
        for owner in owners_of(namespace, labels):
            self._owned.setdefault(owner, set()).add(where)

    def remove_pod(self, namespace: str, name: str) -> None:
        known = self._pods.pop((namespace, name), None)
        if known is not None:
            self._disown((namespace, name), known.labels)
            self._names[namespace].discard(name)

    def observe(self, namespace: str, name: str, numbers: PageNumbers, at: float) -> None:
        known = self._pods.get((namespace, name))
        if known is not None:
            known.history.observe(at, numbers)

    def observe_gpu(self, namespace: str, name: str, utilization: float, at: float) -> None:
        known = self._pods.get((namespace, name))
        if known is not None:
            known.gpu, known.gpu_read_at = Gauge(utilization), at

    def subjects(self) -> list[Subject]:
        """Everybody who may have numbers, owners only, in order."""
        return sorted(self._owned)

    def labels_of(self, namespace: str, name: str) -> Mapping[str, str] | None:
        known = self._pods.get((namespace, name))
        return known.labels if known is not None else None

    def find(self, subject: Subject, metric: str, now: float) -> Value | None:
        """The value of a metric, by our name or a raw one; None if there is no recent value."""
        if subject.kind == POD:
            known = self._pods.get((subject.namespace, subject.name))
            return self._of([known] if known is not None else [], metric, now)
        return self._of([self._pods[where] for where in self._owned.get(subject, ())], metric, now)

    def selected(self, namespace: str, wanted: Selector) -> list[str]:
        """Names of the pods of a namespace whose labels match, in order."""
        return sorted(name for _, name in self._selected(namespace, wanted))

    def find_selected(self, namespace: str, wanted: Selector, metric: str, now: float) -> Value | None:
        """The value of all pods of a namespace together whose labels match."""
        return self._of([self._pods[where] for where in self._selected(namespace, wanted)], metric, now)

    def _selected(self, namespace: str, wanted: Selector) -> Iterator[tuple[str, str]]:
        where: Iterable[tuple[str, str]] = ((namespace, name) for name in self._names.get(namespace, ()))
        for requirement in wanted.requirements:
            kind = _OWNER_KINDS.get(requirement.key)
            if kind is not None and requirement.operator == "In":
                # A selector that names an owner, as all of Grove's do, need not search the whole namespace.
                owners = (Subject(namespace, kind, value) for value in requirement.values)
                where = [pod for owner in owners for pod in self._owned.get(owner, ())]
                break
        return (pod for pod in where if wanted.matches(self._pods[pod].labels))

    def _of(self, pods: list[PodNumbers], metric: str, now: float) -> Value | None:
        meaning = engines.find_meaning(metric)
        if metric == engines.GPU_UTILIZATION:
            readings = [(pod.gpu, pod.gpu_read_at) for pod in pods if pod.gpu and pod.gpu_read_at >= now - self.stale_s]
            return _mean(readings)
        fresh = [pod.history for pod in pods if pod.history.read_at >= now - self.stale_s]
        if meaning is not None and meaning.kind is Kind.LATENCY:
            return _latency(fresh, meaning.name, engines.quantile_of(metric))
        gauges = _lowest_rank(
            (history.gauges[metric], history.read_at) for history in fresh if metric in history.gauges
        )
        if meaning is not None and meaning.kind is Kind.SHARE:
            return _mean(gauges)
        return _sum(gauges)

    def _disown(self, where: tuple[str, str], labels: Mapping[str, str]) -> None:
        for owner in owners_of(where[0], labels):
            owned = self._owned.get(owner, set())
            owned.discard(where)
            if not owned:
                self._owned.pop(owner, None)


def owners_of(namespace: str, labels: Mapping[str, str]) -> list[Subject]:
    named = ((kind, labels.get(label, "")) for kind, label in OWNER_LABELS.items())
    return [Subject(namespace, kind, name) for kind, name in named if name]


Reading = tuple[Gauge, float]


def _lowest_rank(readings: Iterable[Reading]) -> list[Reading]:
    readings = list(readings)
    lowest = min((gauge.rank for gauge, _ in readings), default=0)
    return [reading for reading in readings if reading[0].rank == lowest]


def _sum(readings: list[Reading]) -> Value | None:
    return Value(sum(gauge.value for gauge, _ in readings), min(at for _, at in readings)) if readings else None


def _mean(readings: list[Reading]) -> Value | None:
    total = _sum(readings)
    return Value(total.number / len(readings), total.read_at) if total is not None else None


def _latency(fresh: list[History], name: str, q: float) -> Value | None:
    ranked = [(*history.growths[name], history) for history in fresh if name in history.growths]
    lowest = min((rank for rank, _, _ in ranked), default=0)
    chosen = [(growth, history) for rank, growth, history in ranked if rank == lowest and growth.steps]
    whole = summed((growth.bounds, growth.total) for growth, _ in chosen)
    if whole is None:
        return None
    read_at = min(history.read_at for _, history in chosen)
    if (wait := quantile(q, *whole)) is not None:
        return Value(wait, read_at)
    # No request was served in the last minute. Without requests the wait is 0; otherwise it is unknown.
    load = [
        history.gauges.get(name)
        for _, history in chosen
        for name in (engines.REQUESTS_WAITING, engines.REQUESTS_RUNNING)
    ]
    return Value(0.0, read_at) if all(gauge is not None and gauge.value == 0 for gauge in load) else None
