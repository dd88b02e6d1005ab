"""`events`: what happened to a gang or a set, as one timeline: events of all objects involved, and what they say of
themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click

from grove.cli.access import Answer, Options, answer, cluster_command, complete_sets, object_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from grove.api.meta import Condition, Object
    from grove.kube.client import Client


@dataclass(frozen=True, slots=True)
class Moment:
    at: datetime
    kind: str
    name: str
    reason: str
    message: str
    source: str
    warning: bool = False
    count: int = 1


@click.command()
@click.argument("name", metavar="PODGANG|PCS", shell_complete=complete_sets)
@cluster_command()
def events(options: Options, name: str) -> int:
    """Everything that happened to a gang or a set and to its cliques and pods, in order of time."""
    return answer(options, lambda client, namespace: events_answer(client, namespace, object_name(name)))


async def events_answer(client: Client, namespace: str, name: str) -> Answer:
    from grove.api.core import Event
    from grove.cli.explain import subject
    from grove.show.seen import every

    seen, gangs = await subject(client, namespace, name)
    about: dict[tuple[str, str], Object] = {("PodGang", gang.metadata.name): gang for gang in gangs}
    groups = {group.name for gang in gangs for group in gang.spec.podgroups}
    is_set = bool(seen.sets) and seen.sets[0].metadata.name == name
    for clique in seen.cliques:
        if clique.metadata.name in groups:
            about["PodClique", clique.metadata.name] = clique
    for gang in gangs:
        for pod in seen.pods_of_gang.get(gang.metadata.key, ()):
            about["Pod", pod.metadata.name] = pod
    if is_set:
        about |= {("PodCliqueSet", name): seen.sets[0]}
        about |= {("PodCliqueScalingGroup", one.metadata.name): one for one in seen.groups}
    moments = [
        moment
        for event in await every(client, Event, namespace)
        if _concerns(event, about, groups) and (moment := _moment(event)) is not None
    ]
    for (kind, _), one in about.items():
        moments += _own_words(kind, one)
    moments.sort(key=lambda one: (one.at, one.kind, one.name, one.reason))
    return Answer(moments, lambda width: _paint(moments, width))


def _concerns(event: object, about: dict[tuple[str, str], Object], groups: set[str]) -> bool:
    from grove.api.core import Event

    assert isinstance(event, Event)
    involved = event.involved_object
    if (involved.kind, involved.name) in about:
        return True
    # Pods that are gone left their events behind; their names begin with their clique's.
    return involved.kind == "Pod" and involved.name.rpartition("-")[0] in groups


def _moment(event: object) -> Moment | None:
    from grove.api.core import Event

    assert isinstance(event, Event)
    at = event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp
    if at is None:
        return None
    source = event.reporting_component or str(event.source.get("component", ""))
    involved = event.involved_object
    return Moment(
        at, involved.kind, involved.name, event.reason, event.message, source, event.type == "Warning",
        max(1, event.count),
    )  # fmt: skip


def _own_words(kind: str, one: Object) -> Iterator[Moment]:
    """Creation, deletion and the conditions of an object, from its own fields."""
    meta = one.metadata
    if meta.creation_timestamp:
        yield Moment(meta.creation_timestamp, kind, meta.name, "Created", "", "object")
    if meta.deletion_timestamp:
        yield Moment(meta.deletion_timestamp, kind, meta.name, "Deleting", "", "object")
    conditions: tuple[Condition, ...] = getattr(one, "status").conditions  # noqa: B009
    for condition in conditions:
        if condition.last_transition_time:
            reason = f"{condition.type}={condition.status}"
            text = condition.message or condition.reason
            yield Moment(condition.last_transition_time, kind, meta.name, reason, text, "condition")


def _paint(moments: list[Moment], width: int) -> RenderableType:
    from rich.text import Text

    from grove.show.columns import table

    if not moments:
        return Text("nothing is known to have happened")
    rows = []
    for one in moments:
        times = f" ×{one.count}" if one.count > 1 else ""
        style = "red" if one.warning else "dim" if one.source in ("object", "condition") else ""
        what = Text(f"{one.reason}{times}", style=style)
        rows.append((one.at.strftime("%H:%M:%S"), f"{one.kind}/{one.name}", what, one.message))
    return table(("TIME", "OBJECT", "WHAT", "MESSAGE"), rows, width)
