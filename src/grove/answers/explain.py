"""`explain` and `queue`: why gangs wait. The scheduler's own core runs here, on the cluster as this user may see it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from grove.answers.answer import NO_FIT, RUNNING, WAITING, Answer, Unanswered
from grove.answers.following import Picture, Source
from grove.answers.judged import Judged, judged, judged_with
from grove.answers.referred import with_causes
from grove.answers.scheduler_view import diagnosed, looking
from grove.answers.subjects import Subject, subject
from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.labels import PART_OF
from grove.api.meta import Key
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.gangs import gang_verdict
from grove.diagnosis.held_capacity import headroom_lines
from grove.diagnosis.processes import Processes, read_processes
from grove.diagnosis.seen import Seen, every
from grove.diagnosis.states import code_of
from grove.kube.client import Client
from grove.scheduler.explain.explanation import Diagnosis, queue_rows
from grove.scheduler.loop.diagnosis import LiveDiagnosis, scored_places
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.model.config import SchedulerConfiguration
from grove.show.columns import indented
from grove.show.explained import explanation
from grove.show.queue import line_of, not_waiting, queue_table
from grove.show.queues import tree_table
from grove.show.scores import scores_tables


async def explain_answer(
    client: Client,
    namespace: str,
    name: str,
    settings: SchedulerConfiguration | None = None,
    now: datetime | None = None,
) -> Answer:
    asked = await subject(client, namespace, name)
    judgements = await judged(
        client, asked.seen, now or datetime.now(UTC), advice=True, only=asked.gangs, settings=settings
    )
    return explanation_of(asked, judgements)


async def scores_answer(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None
) -> Answer:
    """Where the gangs are or would go, by score, beside the next best place."""
    asked = await subject(client, namespace, name)
    async with looking(client, settings) as scheduler:
        view, policy = scheduler.view, scheduler.config.node_policy
        states = [view.units.gangs.get(str(gang.metadata.key)) for gang in asked.gangs]
        scored_gangs = [
            scored_gang
            for state in states
            if state is not None and view.concerns_us(state)
            if (scored_gang := scored_places(view, state, policy)) is not None
        ]

    def paint(width: int) -> RenderableType:
        return scores_tables(scored_gangs, width)

    return Answer(
        scored_gangs, paint, RUNNING if all(scored_gang.chosen is not None for scored_gang in scored_gangs) else NO_FIT
    )


def explanation_of(asked: Subject, judgements: Judged) -> Answer:
    whole = judgements.sets[0] if judgements.sets else None
    mine = {gang.metadata.name for gang in asked.gangs}
    verdicts = [gang for gang in (whole.gangs if whole else ()) if gang.gang in mine]
    if whole is None:
        verdicts = [gang_verdict(asked.seen, gang, None) for gang in asked.gangs]
    if whole is not None and (asked.is_set or whole.unattended):
        code = whole.code
    else:
        code = code_of(verdict.state for verdict in verdicts)
    data: dict[str, Any] = {"name": asked.name, "kind": asked.kind, "gangs": verdicts}
    if whole is not None:
        data |= {"state": whole.state, "reason": whole.reason, "level": whole.level}
        data |= {"next": whole.next, "command": whole.command}
    headroom = headroom_lines(asked.gangs)
    if headroom:
        data["headroom"] = list(headroom)
    if judgements.note:
        data["note"] = judgements.note
    head = whole if asked.is_set or whole is None or whole.unattended else None
    return Answer(data, lambda width: explanation(head, verdicts, judgements.note, width, headroom), code)


def explanation_picture(asked: Subject) -> Picture:
    """The explanation of a subject, drawn again with its present state."""

    async def draw(source: Source) -> Answer | None:
        names = {gang.metadata.name for gang in asked.gangs}
        owner = asked.seen.sets[0].metadata.name if asked.seen.sets else ""
        seen = source.seen(owner)
        gangs = tuple(gang for gang in seen.gangs if asked.is_set or gang.metadata.name in names)
        if not seen.sets:
            return None
        judgements = await source.judged(seen, advice=True, only=gangs)
        return explanation_of(replace(asked, seen=seen, gangs=gangs), judgements)

    return draw


async def queues_answer(client: Client) -> Answer:
    """The tree of queues as rows."""
    async with looking(client) as scheduler:
        LiveDiagnosis(scheduler.view).tell_queues()
        rows = queue_rows(scheduler.quotas.policy, scheduler.view.snapshot)

    def paint(width: int) -> RenderableType:
        return tree_table(rows, width) if rows else Text("this cluster has no queues")

    return Answer(rows, paint)


async def queue_answer(client: Client, namespace: str, now: datetime) -> Answer:
    processes = await read_processes(client, now)
    sets, groups, cliques = await asyncio.gather(
        every(client, PodCliqueSet, namespace),
        every(client, PodCliqueScalingGroup, namespace),
        every(client, PodClique, namespace),
    )
    async with looking(client) as scheduler:
        cache, where = scheduler.cache, namespace or None
        seen = Seen(
            sets,
            groups,
            cliques,
            cache.list(PodGang, where),
            [pod for pod in cache.list(Pod, where) if pod.metadata.labels.get(labels.MANAGED_BY) == labels.OPERATOR],
            cache.list(Node),
            cache.list(ClusterTopologyBinding),
        )
        return await queue_of(scheduler, await with_causes(client, seen), processes, namespace, now)


async def queue_of(scheduler: Scheduler, seen: Seen, processes: Processes, namespace: str, now: datetime) -> Answer:
    """The gangs that wait for a place. The exit code is that of `status`; other sets that do not run are named too."""
    view = scheduler.view
    answers = LiveDiagnosis(view)
    answers.tell_queues()
    waiting = [
        (in_line, view.units.gangs[f"{in_line.namespace}/{in_line.name}"].podgang) for in_line in answers.waiting_line()
    ]
    waiting = [(in_line, gang) for in_line, gang in waiting if namespace in ("", in_line.namespace)]
    looked: dict[Key, Diagnosis] = {}

    async def look(gangs: Sequence[PodGang], most: int) -> dict[Key, Diagnosis]:
        looked.update(await diagnosed(scheduler, gangs, most))
        return looked

    first = list({gang.metadata.key: gang for gang in (*(gang for _, gang in waiting), *seen.gangs)}.values())
    judged = (await judged_with(seen, now, processes, look, only=first)).sets
    verdicts = {Key(whole.namespace, gang.gang): gang for whole in judged for gang in whole.gangs}
    lines = [
        line_of(in_line, verdicts.get(gang.metadata.key) or gang_verdict(seen, gang, looked.get(gang.metadata.key)))
        for in_line, gang in waiting
    ]
    shown = {Key(in_line.namespace, gang.metadata.labels.get(PART_OF, "")) for in_line, gang in waiting}
    others = [
        judgement for judgement in judged if judgement.code and Key(judgement.namespace, judgement.name) not in shown
    ]
    queues = queue_rows(scheduler.quotas.policy, view.snapshot)
    down = processes.down
    alone = [line.state for line in lines if Key(line.namespace, line.name) not in verdicts]
    code = code_of([*(judgement.state for judgement in judged), *alone])

    def paint(width: int) -> RenderableType:
        first = [Text(process.sentence, style="bold red") for process in down]
        tree: list[RenderableType] = [tree_table(queues, width), Text("")] if queues else []
        table = queue_table(lines, width, now, everywhere=not namespace)
        headroom = [line for sentence in headroom_lines(seen.gangs) for line in indented(sentence, width, 0)]
        return Group(*first, *tree, table, *headroom, *(not_waiting(others, width) if not down else ()))

    return Answer(lines, paint, code or (WAITING if down else RUNNING))


async def queue_picture(source: Source) -> Answer | None:
    if source.scheduler is None:
        raise Unanswered(source.note)
    seen, processes = await source.with_causes(source.seen()), await source.processes()
    return await queue_of(source.scheduler, seen, processes, source.namespace, source.now())
