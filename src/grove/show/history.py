"""The life of a set or a gang: one lane for each clique with the phases of its pods, and the moments that changed it.

The moments come from conditions, events, the ends of containers, the templates that are kept and the journal of the
scheduler. So they also show the time before the page was opened. Pure. Lanes are in the order in which the cliques
started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from grove.api import conditions as words
from grove.api import labels
from grove.api.conditions import EventReason
from grove.api.core import ControllerRevision, Event, Pod
from grove.api.meta import Condition, find_condition
from grove.api.pod import PodHealth, pod_health
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.diagnosis.seen import Seen
from grove.show import timeline
from grove.show.timeline import Moment, exits_of, moment_of, since_creation, updates_of

CREATED, PLACED, READY, SCALED, UPDATED = "created", "placed", "ready", "scaled", "updated"
FAILED, LOST, RESTARTED, REFUSED = "failed", "lost", "restarted", "refused"
_Times = tuple[datetime | None, datetime | None, datetime | None, datetime | None]
_SCALING = frozenset({EventReason.SCALED_BY_AUTOSCALER, "SuccessfulRescale"})
_REPLACED = frozenset({EventReason.SET_REPLICA_DELETE_SUCCESSFUL, EventReason.GROUP_REPLICA_DELETE_SUCCESSFUL})
_LOSSES = ("Failed", "NodeGone")
"""Causes in the event of a deleted pod that are no decision of a user."""


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
    """A moment: `kind` is one of created, placed, ready, scaled, updated, failed, lost, restarted, refused."""

    at: datetime
    kind: str
    text: str
    what: str = ""
    """What failed or was lost, in one word: the reason of the event."""


@dataclass(frozen=True, slots=True)
class History:
    now: datetime
    marks: tuple[Mark, ...]
    lanes: tuple[Lane, ...]


def history_of(
    seen: Seen,
    pcs: PodCliqueSet,
    happened: Iterable[Event],
    now: datetime,
    kept: Sequence[ControllerRevision] = (),
    gang: str = "",
    decided: Sequence[Moment] = (),
) -> History:
    """The history of a set, or of one of its gangs.

    `kept` are the templates that are kept of the set, `decided` what the journal of the scheduler says about its gangs.
    """
    gangs = [podgang for podgang in seen.of_set(seen.gangs, pcs) if gang in ("", podgang.metadata.name)]
    cliques = seen.of_set(seen.cliques, pcs)
    if gang:
        mine = {group.name for podgang in gangs for group in podgang.spec.podgroups}
        cliques = [clique for clique in cliques if clique.metadata.name in mine]
    lanes = [
        Lane(clique.metadata.name, tuple(_spans(seen.pods_of_clique.get(clique.metadata.key, ()))))
        for clique in cliques
    ]
    lanes.sort(key=lambda lane: (_first_ready(lane) or now, lane.clique))
    names = {podgang.metadata.name for podgang in gangs}
    parts = {clique.metadata.name for clique in cliques}
    about = names | parts
    if not gang:
        about |= {pcs.metadata.name} | {group.metadata.name for group in seen.of_set(seen.groups, pcs)}
    marks = [*_own_marks(gangs, pcs, seen), *_event_marks(pcs, about, parts, happened), *_updates(pcs, kept)]
    marks += [
        Mark(moment.at, REFUSED if moment.reason == timeline.REFUSED else PLACED, f"{moment.name}: {moment.message}")
        for moment in since_creation(decided, [pcs])
        if moment.name in names
    ]
    pods = [pod for clique in cliques for pod in seen.pods_of_clique.get(clique.metadata.key, ())]
    marks += [
        Mark(moment.at, RESTARTED, f"{moment.name}: {moment.message}", moment.reason)
        for pod in pods
        for moment in exits_of(pod)
        if moment.warning
    ]
    return History(now, tuple(_once(marks)), tuple(lanes))


def _once(marks: Iterable[Mark]) -> list[Mark]:
    """In order of time. What an event and a condition both say within one second is one mark."""
    marks_once: dict[tuple[str, str, datetime], Mark] = {}
    for mark in sorted(marks, key=lambda mark: (mark.at, mark.kind, mark.text)):
        marks_once.setdefault((mark.kind, mark.text, mark.at.replace(microsecond=0)), mark)
    return list(marks_once.values())


def _spans(pods: Iterable[Pod]) -> Iterator[Span]:
    alike: dict[_Times, list[Pod]] = defaultdict(list)
    for pod in pods:
        placed, ready = (_since(pod.status.conditions, type_) for type_ in ("PodScheduled", "Ready"))
        created = pod.metadata.creation_timestamp
        alike[_second(created), _second(placed), _second(_started(pod)), _second(ready)].append(pod)
    for times in sorted(alike, key=lambda times: tuple((at is None, at) for at in times)):
        failed = any(pod_health(pod) is PodHealth.FAILED or _restarts(pod) for pod in alike[times])
        created, placed, started, ready = times
        yield Span(len(alike[times]), created, placed, started, ready, failed)


def _second(at: datetime | None) -> datetime | None:
    return at.replace(microsecond=0) if at is not None else None


def _started(pod: Pod) -> datetime | None:
    """When the last of its containers started; None while one of them does not run."""
    starts = [
        status.state.running.started_at if status.state.running else None for status in pod.status.container_statuses
    ]
    return max((at for at in starts if at is not None), default=None) if None not in starts else None


def _restarts(pod: Pod) -> int:
    return sum(status.restart_count for status in pod.status.container_statuses)


def _first_ready(lane: Lane) -> datetime | None:
    return min((span.ready for span in lane.spans if span.ready is not None), default=None)


def _own_marks(gangs: Iterable[PodGang], pcs: PodCliqueSet, seen: Seen) -> Iterator[Mark]:
    """Moments from the set and its gangs: created, placed, ready, added by scaling, updated."""
    if pcs.metadata.creation_timestamp:
        yield Mark(pcs.metadata.creation_timestamp, CREATED, f"{pcs.metadata.name} is created")
    every = seen.of_set(seen.gangs, pcs)
    stood = {gang.metadata.name: _since(gang.status.conditions, words.SCHEDULED) for gang in every}
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
    condition = find_condition(conditions, type_)
    return condition.last_transition_time if condition is not None and condition.status == words.TRUE else None


def _updates(pcs: PodCliqueSet, kept: Sequence[ControllerRevision]) -> Iterator[Mark]:
    """A mark for every kept template but the first, which came with the set."""
    for number, moment in enumerate(updates_of(kept, pcs.metadata.name)):
        if number:
            yield Mark(moment.at, UPDATED, moment.message)


def _event_marks(
    pcs: PodCliqueSet, about: Container[str], cliques: Container[str], happened: Iterable[Event]
) -> Iterator[Mark]:
    """Moments from events about the set and its parts, also about pods that are gone."""
    for event in happened:
        name, moment = event.involved_object.name, moment_of(event)
        if (
            moment is None
            or not since_creation([moment], [pcs])
            or not (name in about or name.rpartition("-")[0] in cliques)
        ):
            continue
        cause = event.message.rpartition(": ")[2]
        if event.reason in _SCALING:
            yield Mark(moment.at, SCALED, event.message or f"{name} is scaled")
        elif event.reason == EventReason.GANG_SCHEDULED:
            yield Mark(moment.at, PLACED, f"{name} is placed")
        elif event.reason in _REPLACED:
            yield Mark(moment.at, RESTARTED if event.message.startswith("restarted") else UPDATED, event.message)
        elif event.reason == EventReason.POD_DELETE_SUCCESSFUL and cause in _LOSSES:
            yield Mark(moment.at, LOST, event.message, cause)
        elif moment.warning:
            yield Mark(moment.at, FAILED, f"{name}: {event.message or event.reason}", event.reason)
