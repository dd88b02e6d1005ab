"""Draining of pods: the operator marks a pod, and deletes it or patches it when its time is over.

    marked    the annotation says until when; the readiness gate is closed, so Services and gateways stop sending
    over      the time has passed, or a container is not ready any more: the pod is removed
    undone    the pod is to stay after all: the mark is removed and the gate opens

A pod drains if it serves and if it goes by a decision: a scale-in, an update, a restart by a person. A pod that is
broken, or that the restart of its gang takes after a breach, does not drain. Pods that were made before draining was
asked for have no gate. They are marked and get the same time.

A pod of a replica that was scaled in (`shared.draining`) is only marked here. The owner of the replica removes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from grove.api import labels
from grove.api.conditions import FALSE
from grove.api.core import Pod
from grove.api.draining import draining_until, has_readiness_gate, is_draining, is_serving
from grove.operator.podclique.in_place import gate_of
from grove.operator.podclique.removals import OUTDATED, REQUESTED, RESTARTED, SURGE_OVER, SURPLUS, Removal
from grove.operator.podclique.status import ObservedClique, is_outdated_pod
from grove.operator.shared.rollout import has_template, is_open, is_rolling


@dataclass(frozen=True, slots=True)
class DrainStep:
    """The write to one pod: set its draining mark, remove it, or only close its readiness gate."""

    until: datetime | None = None
    unmark: bool = False
    closes_gate: bool = False

    @property
    def is_written(self) -> bool:
        return self.until is not None or self.unmark or self.closes_gate


def next_drain_step(pod: Pod, until: datetime, now: datetime) -> DrainStep | None:
    """The step of a pod that goes; None if it does not drain, or has drained. `until` is the end if it begins now.

    A mark with a later end is corrected, and a mark that is no time. The draining time was made shorter, or a person
    edited the mark.
    """
    if not is_serving(pod):
        return None
    closes_gate, end = has_readiness_gate(pod) and gate_of(pod) != FALSE, draining_until(pod)
    if end is None or end > until:
        return DrainStep(until=until, closes_gate=closes_gate)
    return DrainStep(closes_gate=closes_gate) if end > now else None


def end_of(seconds: int, now: datetime) -> datetime:
    return (now + timedelta(seconds=seconds)).replace(microsecond=0)


def left_s(pod: Pod, step: DrainStep, now: datetime) -> float:
    end = step.until or draining_until(pod)
    return max(0.0, (end - now).total_seconds()) if end is not None else 0.0


def marks_of_leaving(pods: Iterable[Pod], until: datetime | None, now: datetime) -> list[tuple[Pod, DrainStep]]:
    """The writes to the pods of a clique whose replica is being scaled in."""
    if until is None:
        return []
    steps = ((pod, next_drain_step(pod, until, now)) for pod in pods)
    return [(pod, step) for pod, step in steps if step is not None and step.is_written]


def is_passed_by(observed: ObservedClique) -> bool:
    """True if an update ended while the clique drained with its replica, and the replica is wanted again.

    No update will take its pods then. The update may have begun before: then the clique still reports it as open.
    OnDelete records its own progress on every clique, so that is not taken for it.
    """
    pcs, progress = observed.pcs, observed.clique.status.update_progress
    if not observed.recorded or not is_rolling(pcs) or is_open(pcs.status.update_progress):
        return False
    target = (pcs.status.current_generation_hash, observed.template_hash)
    known = (progress.pod_clique_set_generation_hash, progress.pod_template_hash) if progress is not None else None
    is_missed = known != target or is_open(progress)
    return is_missed and has_template(observed.clique, observed.template_hash)


def passed_by(observed: ObservedClique) -> Iterator[str]:
    """UIDs of the pods that an update passed by. They drain, or go on to drain, and are replaced.

    A pod that only has another revision counts if its clique has not become what the set is now. Otherwise a set that
    turns Coherent would replace pods without an update.
    """
    now = observed.pcs.status.current_generation_hash
    is_realised = observed.clique.status.current_pod_clique_set_generation_hash == now
    for pod in observed.pods if is_passed_by(observed) else ():
        is_old = pod.metadata.labels.get(labels.POD_TEMPLATE_HASH) != observed.template_hash
        if is_old or ((is_draining(pod) or not is_realised) and is_outdated_pod(observed, pod)):
            yield pod.metadata.uid


def is_of_former_revision(observed: ObservedClique, pod: Pod) -> bool:
    """True if an update replaces this pod. Pods of a gang restart already have the present revision."""
    own = pod.metadata.labels.get(labels.REVISION, observed.revision)
    return own != observed.revision or is_outdated_pod(observed, pod)


class Drains:
    """Which of the pods that go drain first. `ends_s` are the seconds that each has left."""

    def __init__(self, observed: ObservedClique, now: datetime) -> None:
        self._observed, self._now, self._seconds = observed, now, observed.drain_s
        self._written: list[tuple[Pod, DrainStep]] = []
        self.ends_s: list[float] = []
        self.uids: set[str] = set()

    def holds(self, pod: Pod, reason: str) -> bool:
        """True if a pod with this reason to be removed drains now. Nothing else may change it meanwhile."""
        if pod.metadata.uid in self.uids:
            return True
        if not self._seconds or not self._may_drain(pod, reason):
            return False
        step = next_drain_step(pod, end_of(self._seconds, self._now), self._now)
        if step is None:
            return False
        self.uids.add(pod.metadata.uid)
        self.ends_s.append(left_s(pod, step, self._now))
        if step.is_written:
            self._written.append((pod, step))
        return True

    def split(self, removals: Iterable[Removal]) -> tuple[list[Removal], list[Removal]]:
        """The removals that are due now, and those of pods that drain."""
        now: list[Removal] = []
        later: list[Removal] = []
        for removal in removals:
            (later if self.holds(removal.pod, removal.reason) else now).append(removal)
        return now, later

    def steps(self, staying: Iterable[Pod], chosen: Collection[str]) -> list[tuple[Pod, DrainStep]]:
        """All that is to be written. Pods that stay lose their mark, but for those in `chosen`, by UID."""
        undone = (pod for pod in staying if is_draining(pod) and pod.metadata.uid not in chosen)
        return [*self._written, *((pod, DrainStep(unmark=True)) for pod in undone)]

    def _may_drain(self, pod: Pod, reason: str) -> bool:
        if reason == RESTARTED:
            return is_of_former_revision(self._observed, pod)
        return reason in (SURPLUS, OUTDATED, SURGE_OVER, REQUESTED)
