"""The life of a set: one lane for each clique with the phases of its pods, and the moments that changed the set.

Pure. Lanes are in the order in which the cliques started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from grove.api import conditions as words
from grove.api import labels
from grove.api.conditions import EventReason
from grove.api.core import Event, Pod
from grove.api.meta import Condition, find_condition
from grove.api.pod import PodHealth, pod_health
from grove.api.podcliqueset import PodCliqueSet
from grove.show.seen import Seen
from grove.show.timeline import moment_of

CREATED, PLACED, READY, SCALED, UPDATED, FAILED = "created", "placed", "ready", "scaled", "updated", "failed"
_Times = tuple[datetime | None, datetime | None, datetime | None, datetime | None]
_SCALING = frozenset({EventReason.SCALED_BY_AUTOSCALER, "SuccessfulRescale"})


@dataclass(frozen=True, slots=True)
class Span:
    """Pods of a clique with the same times. A time is None if its moment has not come yet."""

    pods: int
    created: datetime | None
    placed: datetime | None
    started: datetime | None
    ready: datetime | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    clique: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the whole set: `kind` is one of created, placed, ready, scaled, updated, failed."""

    at: datetime
    kind: str
    text: str
    what: str = ""
    """What failed, in one word: the reason of the event."""


@dataclass(frozen=True, slots=True)
class History:
    now: datetime
    marks: tuple[Mark, ...]
    lanes: tuple[Lane, ...]


def history_of(seen: Seen, pcs: PodCliqueSet, happened: Iterable[Event], now: datetime) -> History:
    lanes = [
        Lane(clique.metadata.name, tuple(_spans(seen.pods_of_clique.get(clique.metadata.key, ()))))
        for clique in seen.of_set(seen.cliques, pcs)
    ]
    lanes.sort(key=lambda lane: (_first_ready(lane) or now, lane.clique))
    marks = [*_own_marks(seen, pcs), *_told(seen, pcs, happened)]
    return History(now, tuple(sorted(marks, key=lambda one: (one.at, one.kind, one.text))), tuple(lanes))


def _spans(pods: Iterable[Pod]) -> Iterator[Span]:
    alike: dict[_Times, list[Pod]] = defaultdict(list)
    for pod in pods:
        placed, ready = (_since(pod.status.conditions, type_) for type_ in ("PodScheduled", "Ready"))
        created = pod.metadata.creation_timestamp
        alike[_second(created), _second(placed), _second(_started(pod)), _second(ready)].append(pod)
    for times in sorted(alike, key=lambda one: tuple((at is None, at) for at in one)):
        failed = any(pod_health(pod) is PodHealth.FAILED or _restarts(pod) for pod in alike[times])
        created, placed, started, ready = times
        yield Span(len(alike[times]), created, placed, started, ready, failed)


def _second(at: datetime | None) -> datetime | None:
    return at.replace(microsecond=0) if at is not None else None


def _started(pod: Pod) -> datetime | None:
    """When the last of its containers started; None while one of them does not run."""
    found = [one.state.running.started_at if one.state.running else None for one in pod.status.container_statuses]
    return max((at for at in found if at is not None), default=None) if None not in found else None


def _restarts(pod: Pod) -> int:
    return sum(one.restart_count for one in pod.status.container_statuses)


def _first_ready(lane: Lane) -> datetime | None:
    return min((span.ready for span in lane.spans if span.ready is not None), default=None)


def _own_marks(seen: Seen, pcs: PodCliqueSet) -> Iterator[Mark]:
    """Moments from the set and its gangs: created, placed, ready, added by scaling, updated."""
    if pcs.metadata.creation_timestamp:
        yield Mark(pcs.metadata.creation_timestamp, CREATED, f"{pcs.metadata.name} is created")
    gangs = seen.of_set(seen.gangs, pcs)
    stood = {gang.metadata.name: _since(gang.status.conditions, words.SCHEDULED) for gang in gangs}
    for gang in gangs:
        name, base = gang.metadata.name, stood.get(gang.metadata.labels.get(labels.BASE_POD_GANG, ""))
        made = gang.metadata.creation_timestamp
        if made is not None and base is not None and made > base:
            yield Mark(made, SCALED, f"{name} is added")
        for type_, kind in ((words.SCHEDULED, PLACED), (words.READY, READY)):
            if (at := _since(gang.status.conditions, type_)) is not None:
                yield Mark(at, kind, f"{name} is {kind}")
    progress = pcs.status.update_progress
    if progress is not None and progress.update_started_at is not None:
        yield Mark(progress.update_started_at, UPDATED, "an update begins")
        if progress.update_ended_at is not None:
            yield Mark(progress.update_ended_at, UPDATED, "the update is over")


def _since(conditions: tuple[Condition, ...], type_: str) -> datetime | None:
    found = find_condition(conditions, type_)
    return found.last_transition_time if found is not None and found.status == words.TRUE else None


def _told(seen: Seen, pcs: PodCliqueSet, happened: Iterable[Event]) -> Iterator[Mark]:
    """Moments from events about the set and its parts: scaling and warnings."""
    mine = {pcs.metadata.name}
    cliques = {one.metadata.name for one in seen.of_set(seen.cliques, pcs)}
    mine |= cliques | {one.metadata.name for one in seen.of_set(seen.groups, pcs)}
    mine |= {one.metadata.name for one in seen.of_set(seen.gangs, pcs)}
    for event in happened:
        about, moment = event.involved_object.name, moment_of(event)
        if moment is None or not (about in mine or about.rpartition("-")[0] in cliques):
            continue
        if event.reason in _SCALING:
            yield Mark(moment.at, SCALED, event.message or f"{about} is scaled")
        elif moment.warning:
            yield Mark(moment.at, FAILED, f"{about}: {event.message or event.reason}", event.reason)
