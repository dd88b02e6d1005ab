"""`events`: what happened to a set, a gang or one of their parts, as one timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from grove.answers.answer import Answer, Unanswered
from grove.answers.following import Picture, Source
from grove.answers.rollout import kept_templates
from grove.answers.subjects import Subject, cliques_in, subject
from grove.api import labels
from grove.api.core import ControllerRevision, Event, Pod
from grove.api.labels import TOPOLOGY_NAME
from grove.api.meta import Object
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.diagnosis.seen import Seen, every
from grove.kube.client import Client
from grove.kube.errors import Forbidden
from grove.show.timeline import (
    Moment,
    decided_moments,
    exits_of,
    folded,
    moment_of,
    own_words,
    painted,
    since_creation,
    updates_of,
)


async def events_answer(client: Client, namespace: str, name: str, journal: Path | None = None) -> Answer:
    asked = await subject(client, namespace, name)
    kept = await templates_of(client, asked.seen.sets[0]) if asked.is_set else ()
    decided = decided_about(journal, asked.seen, asked.gangs) if journal is not None else ()
    return timeline_of(asked, await every(client, Event, namespace), kept, decided)


def decided_about(journal: Path, seen: Seen, gangs: Sequence[PodGang]) -> Sequence[Moment]:
    """The decisions on gangs in the journal of a scheduler."""
    # These import numpy, and few people have a journal.
    from grove.scheduler.replay.history import decisions_on  # noqa: PLC0415
    from grove.scheduler.replay.replay import BadJournal  # noqa: PLC0415

    try:
        decisions = decisions_on(journal, {str(gang.metadata.key) for gang in gangs})
        topologies = {gang.metadata.annotations.get(TOPOLOGY_NAME, "") for gang in gangs}
        spoken = {key: level for topology in sorted(topologies) for level, key in seen.levels(topology)}
        return tuple(decided_moments(decisions, spoken))
    except BadJournal as error:
        raise Unanswered(str(error)) from error


async def templates_of(client: Client, pcs: PodCliqueSet) -> Sequence[ControllerRevision]:
    """The templates that are kept of a set; none if the right to read them is missing."""
    try:
        return (await kept_templates(client, pcs.metadata.namespace, pcs.metadata.name))[1]
    except Forbidden:
        return ()


def timeline_of(
    asked: Subject,
    happened: Iterable[Event],
    kept: Sequence[ControllerRevision] = (),
    decided: Sequence[Moment] = (),
) -> Answer:
    """Events, what the objects say of themselves, the ends of containers, and the templates that are kept."""
    about, cliques = _about(asked)
    history = [
        moment for event in happened if _concerns(event, about, cliques) and (moment := moment_of(event)) is not None
    ]
    history = since_creation(history, asked.seen.sets)
    for (kind, _), obj in about.items():
        history += own_words(kind, obj)
        if isinstance(obj, Pod):
            history += exits_of(obj)
    history += [*updates_of(kept, asked.name), *since_creation(decided, asked.seen.sets)]
    moments = folded(history)
    return Answer(moments, lambda width: painted(moments, width))


def _about(asked: Subject) -> tuple[dict[tuple[str, str], Object], set[str]]:
    """The objects that were asked about, and the names of cliques among them: their pods' names begin with those."""
    seen, name = asked.seen, asked.name
    about: dict[tuple[str, str], Object] = {}
    if asked.is_set:
        about |= {("PodCliqueSet", pcs.metadata.name): pcs for pcs in seen.sets}
        about |= {("PodCliqueScalingGroup", group.metadata.name): group for group in seen.groups}
    if asked.is_set or asked.kind == "PodGang":
        about |= {("PodGang", gang.metadata.name): gang for gang in asked.gangs}
        cliques = {group.name for gang in asked.gangs for group in gang.spec.podgroups}
        cliques |= {clique.metadata.name for clique in seen.cliques} if asked.is_set else set()
    elif asked.kind == "PodCliqueScalingGroup":
        about |= {(asked.kind, group.metadata.name): group for group in seen.groups if group.metadata.name == name}
        members = (clique for clique in seen.cliques if clique.metadata.labels.get(labels.SCALING_GROUP) == name)
        cliques = {clique.metadata.name for clique in members}
    elif asked.kind == "part":
        own = {pod.metadata.name for pod in asked.pods}
        cliques = {clique.metadata.name for clique in cliques_in(seen, name)}
        mine = [pod for pod in seen.pods if pod.metadata.labels.get(labels.POD_CLIQUE) in cliques]
        if own and own < {pod.metadata.name for pod in mine}:  # one pod of a clique
            about |= {("Pod", pod.metadata.name): pod for pod in mine if pod.metadata.name in own}
            cliques = set()
    else:
        cliques = {name} if asked.kind == "PodClique" else set()
    about |= {("PodClique", clique.metadata.name): clique for clique in seen.cliques if clique.metadata.name in cliques}
    for pod in seen.pods:
        if pod.metadata.labels.get(labels.POD_CLIQUE, "") in cliques or pod.metadata.name == name:
            about["Pod", pod.metadata.name] = pod
    return about, cliques


def _concerns(event: Event, about: dict[tuple[str, str], Object], cliques: set[str]) -> bool:
    involved = event.involved_object
    if (involved.kind, involved.name) in about:
        return True
    # Pods that are gone left their events behind; their names begin with their clique's.
    return involved.kind == "Pod" and involved.name.rpartition("-")[0] in cliques


def events_picture(asked: Subject, kept: Sequence[ControllerRevision] = ()) -> Picture:
    """The timeline, and from then on what is new in it."""
    printed: set[Moment] = set()

    async def draw(source: Source) -> Answer | None:
        owner = asked.seen.sets[0].metadata.name if asked.seen.sets else ""
        seen = source.seen(owner)
        names = {gang.metadata.name for gang in asked.gangs}
        gangs = tuple(gang for gang in seen.gangs if asked.is_set or gang.metadata.name in names)
        happened = source.cache.list(Event, source.namespace or None)
        if not seen.sets:
            return None
        timeline = timeline_of(replace(asked, seen=seen, gangs=gangs), happened, kept)
        fresh = None if not printed else {moment for moment in timeline.data if moment not in printed}
        printed.update(timeline.data)
        return replace(timeline, paint=lambda width: painted(timeline.data, width, fresh))

    return draw
