"""What happened to something, as one timeline: events of all objects involved, and what they say of themselves.

Parents come before their children where the time is the same, and what repeats is one line with a count.
"""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from grove.api.core import ControllerRevision, Event, Pod
from grove.api.meta import Condition, Object
from grove.api.podcliqueset import PodCliqueSet
from grove.api.words import many
from grove.diagnosis.pod_causes import last_words
from grove.diagnosis.reasons import sentence
from grove.diagnosis.words import listed
from grove.scheduler.model.reasons import named
from grove.show.columns import GAP

if TYPE_CHECKING:
    from grove.scheduler.model.reasons import Reason
    from grove.scheduler.replay.history import Decided

OUTSIDE_IN = ("PodCliqueSet", "PodGang", "PodCliqueScalingGroup", "PodClique", "Pod")
LIFE = ("Created", "Initialized=True", "PodScheduled=True", "Scheduled=True", "Ready=True")
"""What comes first of what happens within one second."""
UNSAID = ("PodReadyToStartContainers", "Initialized", "ContainersReady")
"""Conditions of a pod that say nothing when they are true: that it is ready says more."""
ENDED, REVISION = "ContainerEnded", "Revision"
DECIDED, REFUSED, EVICTS, JOURNAL = "PlaceFound", "NoPlace", "Evicts", "journal"
MOST_LISTED = 4
READABLE = 40
MOST_NAME = 48


@dataclass(frozen=True, slots=True)
class Moment:
    """`count` is how often it happened, until `until`; `others` are further objects it happened to just then."""

    at: datetime
    kind: str
    name: str
    reason: str
    message: str
    source: str
    warning: bool = False
    count: int = 1
    until: datetime | None = None
    others: int = 0


def since_creation(moments: Iterable[Moment], sets: Iterable[PodCliqueSet]) -> list[Moment]:
    """Without what happened before the sets were created: Events outlive a set that was deleted and made again."""
    created = [pcs.metadata.creation_timestamp for pcs in sets]
    born = min((at for at in created if at is not None), default=None)
    return [moment for moment in moments if born is None or moment.at >= born]


def moment_of(event: Event) -> Moment | None:
    at = event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp
    if at is None:
        return None
    source = event.reporting_component or str(event.source.get("component", ""))
    involved = event.involved_object
    return Moment(
        at,
        involved.kind,
        involved.name,
        event.reason,
        event.message,
        source,
        event.type == "Warning",
        max(1, event.count),
    )


def own_words(kind: str, obj: Object) -> Iterator[Moment]:
    """Creation, deletion and the conditions of an object, from its own fields."""
    meta = obj.metadata
    if meta.creation_timestamp:
        yield Moment(meta.creation_timestamp, kind, meta.name, "Created", "", "object")
    if meta.deletion_timestamp:
        yield Moment(meta.deletion_timestamp, kind, meta.name, "Deleting", "", "object")
    conditions: tuple[Condition, ...] = getattr(obj, "status").conditions  # noqa: B009
    for condition in conditions:
        unsaid = kind == "Pod" and condition.type in UNSAID and condition.status == "True"
        if condition.last_transition_time and not unsaid:
            reason = f"{condition.type}={condition.status}"
            text = condition.message or condition.reason
            # A default of the CRD has no moment of its own.
            since = max(condition.last_transition_time, meta.creation_timestamp or condition.last_transition_time)
            yield Moment(since, kind, meta.name, reason, text, "condition")


def exits_of(pod: Pod) -> Iterator[Moment]:
    """The ends of a pod's containers that the kubelet still reports, the last two of each, with their causes."""
    init = {container.name for container in pod.spec.init_containers}
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        for ended in (status.last_state.terminated, status.state.terminated):
            if ended is None or ended.finished_at is None or (status.name in init and not ended.exit_code):
                continue
            who = f"init container {status.name}" if status.name in init else f"container {status.name}"
            cause = f" ({ended.reason})" if ended.reason and ended.reason not in ("Error", "Completed") else ""
            words = last_words(ended)
            message = f"{who} ended with exit code {ended.exit_code}{cause}" + (f": {words}" if words else "")
            yield Moment(
                ended.finished_at, "Pod", pod.metadata.name, ENDED, message, "status", warning=ended.exit_code != 0
            )


def updates_of(kept: Sequence[ControllerRevision], name: str) -> Iterator[Moment]:
    """The templates of a set that are kept, oldest first: when each came, and which images it changed."""
    before: dict[str, str] = {}
    for revision in kept:
        images = images_of(revision)
        changes = [f"{part}: {before[part]} → {new}" for part, new in images.items() if before.get(part, new) != new]
        at = revision.metadata.creation_timestamp
        if at is not None:
            what = f"revision {revision.revision}" + (f": {', '.join(changes)}" if changes else "")
            yield Moment(at, "PodCliqueSet", name, REVISION, what, "revision")
        before = images


def decided_moments(decisions: Iterable[Decided], spoken: Mapping[str, str]) -> Iterator[Moment]:
    """The moments in a scheduler's journal. A refusal that repeats the one before it is left out.

    `spoken` has the words of the topology by their label keys.
    """
    last: dict[str, Reason | None] = {}
    for decision in decisions:
        name = decision.gang.rpartition("/")[2]
        if decision.evicted:
            message = f"evicts {listed([each.rpartition('/')[2] for each in decision.evicted], MOST_LISTED)}"
            yield Moment(decision.at, "PodGang", name, EVICTS, message, JOURNAL)
        elif decision.nodes:
            message = f"{many(decision.pods, 'pod')} on {listed(decision.nodes, MOST_LISTED)}"
            yield Moment(decision.at, "PodGang", name, DECIDED, message, JOURNAL)
        elif name not in last or last[name] != decision.why:
            message = sentence(named(decision.why, spoken)) if decision.why else ""
            yield Moment(decision.at, "PodGang", name, REFUSED, message, JOURNAL)
        last[name] = decision.why


def images_of(revision: ControllerRevision) -> dict[str, str]:
    """The images of a kept template: by clique, and by container where a clique has several."""
    images: dict[str, str] = {}
    for clique in revision.kept.get("cliques") or ():
        containers = (clique.get("podSpec") or {}).get("containers") or ()
        for container in containers:
            part = clique["name"] if len(containers) == 1 else f"{clique['name']}/{container.get('name', '')}"
            images[part] = container.get("image", "")
    return images


def folded(moments: Iterable[Moment]) -> list[Moment]:
    """In order of time, outside in; the same of one object once, and the same of neighbours at one moment once."""
    ordered = sorted(moments, key=_order)
    same: dict[tuple[str, str, str, str], int] = {}
    distinct: list[Moment] = []
    for moment in ordered:
        key = (moment.kind, moment.name, moment.reason, moment.message)
        if key in same and moment.source not in ("object", "condition"):
            first = distinct[same[key]]
            distinct[same[key]] = replace(first, count=first.count + moment.count, until=moment.at)
            continue
        same[key] = len(distinct)
        distinct.append(moment)
    together: list[Moment] = []
    for moment in distinct:
        last = together[-1] if together else None
        if last is not None and _alike(last, moment):
            together[-1] = replace(last, others=last.others + 1)
        else:
            together.append(moment)
    return together


def _order(moment: Moment) -> tuple[datetime, int, int, str, str, str]:
    """By the second, outside in, and then what is alike side by side."""
    rank = OUTSIDE_IN.index(moment.kind) if moment.kind in OUTSIDE_IN else len(OUTSIDE_IN)
    life = LIFE.index(moment.reason) if moment.reason in LIFE else len(LIFE) - 1
    return (
        moment.at.replace(microsecond=0),
        rank,
        life,
        moment.reason,
        moment.message.replace(moment.name, ""),
        moment.name,
    )


def _alike(a: Moment, b: Moment) -> bool:
    same = (a.kind, a.reason, a.source, a.warning, a.count) == (b.kind, b.reason, b.source, b.warning, b.count)
    return (
        same
        and a.message.replace(a.name, "") == b.message.replace(b.name, "")
        and a.until == b.until
        and (abs((b.at - a.at).total_seconds()) <= 1)
    )


def painted(moments: Sequence[Moment], width: int, only: Container[Moment] | None = None) -> RenderableType:
    """One line a moment; a message that is longer than its column goes on below it, whole.

    `only` some of them are shown, without the titles, in columns that are those of all.
    """
    if not moments:
        return Text("there are no events") if only is None else Group()
    rows = [(_when(moment), _subject(moment), _what(moment), moment) for moment in moments]
    titles = ("TIME", "OBJECT", "WHAT", "MESSAGE")
    wide = [max(len(title), *(len(row[i]) for row in rows)) for i, title in enumerate(titles[:3])]  # type: ignore[arg-type]
    wide[1] = min(wide[1], MOST_NAME) if width < 200 else wide[1]
    lead = sum(wide) + 3 * GAP
    shown = [row for row in rows if only is None or row[3] in only]
    if width - lead < READABLE:
        return Group(
            *(line for when, subject, what, moment in shown for line in _narrow(when, subject, what, moment, width))
        )
    head = "".join(title.ljust(size + GAP) for title, size in zip(titles, wide, strict=False)) + titles[3]
    lines = [Text(head, style="bold", no_wrap=True, overflow="ellipsis")] if only is None else []
    for when, subject, what, moment in shown:
        line = Text(no_wrap=True, overflow="ignore")
        line.append(when.ljust(wide[0] + GAP), style="dim")
        line.append(subject.ljust(wide[1] + GAP))
        line.append(what.ljust(wide[2] + GAP) if moment.message else what, style=_style(moment))
        message = textwrap.wrap(moment.message, width - lead)
        line.append(message[0] if message else "", style="red" if moment.warning else "")
        lines.append(line)
        rest = message[1:]
        lines += [Text(" " * lead + part, style="red" if moment.warning else "", overflow="ignore") for part in rest]
    return Group(*lines)


def _narrow(when: str, subject: str, what: str, moment: Moment, width: int) -> Iterator[Text]:
    """For narrow terminals without columns: time and event, and below it the object and the full message."""
    first = Text(f"{when}{' ' * GAP}", style="dim", overflow="fold")
    yield first.append(what, style=_style(moment) or "default")
    heading = f"{subject}: {moment.message}" if moment.message else subject
    style = "red" if moment.warning else ""
    yield from (
        Text(f"    {part}", style=style, overflow="fold") for part in textwrap.wrap(heading, max(width - 4, 16))
    )


def _style(moment: Moment) -> str:
    return "bold red" if moment.warning else "dim" if moment.source in ("object", "condition") else ""


def _when(moment: Moment) -> str:
    return moment.at.strftime("%H:%M:%S")


def _subject(moment: Moment) -> str:
    more = f" +{moment.others}" if moment.others else ""
    return f"{moment.kind}/{moment.name}{more}"


def _what(moment: Moment) -> str:
    if moment.count == 1:
        return moment.reason
    until = f" until {moment.until:%H:%M:%S}" if moment.until else ""
    return f"{moment.reason} ×{moment.count}{until}"
