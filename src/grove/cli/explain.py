"""`explain` and `queue`: why gangs wait. The scheduler's own core runs here, on the cluster as this user may see it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grove.cli.access import RUNNING, WAITING, Answer, Options, answer, cluster_command, complete_sets
from grove.cli.settings import settings_option

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType

    from grove.cli.following import Picture, Source
    from grove.cli.judged import Judged
    from grove.cli.subjects import Subject
    from grove.kube.client import Client
    from grove.scheduler.loop.live import Scheduler
    from grove.scheduler.model.config import SchedulerConfiguration
    from grove.show.processes import Processes
    from grove.show.seen import Seen

MOST_LOOKED = 64
"""Waiting gangs that are looked at one by one; what the scheduler wrote on the others has to do."""


@click.command()
@click.argument("name", metavar="NAME", shell_complete=complete_sets)
@click.option("-w", "--watch", is_flag=True, help="Say it anew whenever something changes.")
@click.option("--scores", is_flag=True, help="Why there: the scores of each gang's place and of the next best one.")
@settings_option
@cluster_command()
def explain(options: Options, name: str, watch: bool, scores: bool, settings: Path | None) -> int:
    """Why a set or a gang is not running: the dominant reason, its evidence, the next step, and what would help.

    NAME is that of a PodCliqueSet, a PodGang, a PodCliqueScalingGroup, a PodClique or a Pod. Changes that are named
    were tried out on a copy of the cluster. Exit codes: 0 running, 3 waiting, 4 cannot fit.
    """
    from grove.cli.settings import settings_in

    given = settings_in(settings) if settings is not None else None
    if scores:
        return answer(options, lambda client, namespace: scores_answer(client, namespace, name, given))
    if watch:
        return _watch(options, name)
    return answer(options, lambda client, namespace: explain_answer(client, namespace, name, given))


def _watch(options: Options, name: str) -> int:
    from grove.cli.access import asked_once
    from grove.cli.following import watch
    from grove.cli.subjects import subject

    return watch(options, explanation_picture(asked_once(options, lambda client, at: subject(client, at, name))))


async def explain_answer(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None,
    now: datetime | None = None,
) -> Answer:  # fmt: skip
    from datetime import UTC, datetime

    from grove.cli.judged import judged
    from grove.cli.subjects import subject

    asked = await subject(client, namespace, name)
    found = await judged(client, asked.seen, now or datetime.now(UTC), advice=True, only=asked.gangs, settings=settings)
    return explanation_of(asked, found)


async def scores_answer(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None
) -> Answer:
    """Where the gangs are or would go, by score, beside the next best place."""
    from grove.cli.judged import looking
    from grove.cli.subjects import subject
    from grove.scheduler.loop.asked import scored_places

    asked = await subject(client, namespace, name)
    async with looking(client, settings) as scheduler:
        view, policy = scheduler.view, scheduler.config.node_policy
        states = [view.gangs.get(str(gang.metadata.key)) for gang in asked.gangs]
        found = [
            one for state in states if state is not None and view.concerns_us(state)
            if (one := scored_places(view, state, policy)) is not None
        ]  # fmt: skip

    def paint(width: int) -> RenderableType:
        from grove.show.scores import scores_tables

        return scores_tables(found, width)

    return Answer(found, paint, RUNNING if all(one.chosen is not None for one in found) else WAITING)


def explanation_of(asked: Subject, found: Judged) -> Answer:
    from grove.show.explained import explanation
    from grove.show.gangs import gang_verdict
    from grove.show.verdict import code_of

    whole = found.sets[0] if found.sets else None
    mine = {gang.metadata.name for gang in asked.gangs}
    verdicts = [one for one in (whole.gangs if whole else ()) if one.gang in mine]
    if whole is None:
        verdicts = [gang_verdict(asked.seen, gang, None) for gang in asked.gangs]
    if asked.is_set and whole is not None:
        code = whole.code
    elif found.processes.operator.is_down or found.processes.scheduler.is_down:
        code = WAITING
    else:
        code = max((code_of(one.state) for one in verdicts), default=RUNNING)
    data: dict[str, Any] = {"name": asked.name, "kind": asked.kind, "gangs": verdicts}
    if whole is not None:
        data |= {"state": whole.state, "reason": whole.reason, "level": whole.level, "next": whole.next}
    if found.note:
        data["note"] = found.note
    head = whole if asked.is_set or whole is None or whole.state == "unattended" else None
    return Answer(data, lambda width: explanation(head, verdicts, found.note, width), code)


def explanation_picture(asked: Subject) -> Picture:
    """What was asked about once, as it stands now; names of pods and cliques stay those of their gangs."""

    async def draw(source: Source) -> Answer | None:
        from dataclasses import replace

        names = {gang.metadata.name for gang in asked.gangs}
        owner = asked.seen.sets[0].metadata.name if asked.seen.sets else ""
        seen = source.seen(owner)
        gangs = tuple(gang for gang in seen.gangs if asked.is_set or gang.metadata.name in names)
        if not seen.sets:
            return None
        found = await source.judged(seen, advice=True, only=gangs)
        return explanation_of(replace(asked, seen=seen, gangs=gangs), found)

    return draw


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Draw it anew whenever something changes.")
@click.option("--tree", is_flag=True, help="Only the queues and quotas, with guaranteed, used, fair share and limit.")
@cluster_command(everywhere=True)
def queue(options: Options, watch: bool, tree: bool) -> int:
    """Gangs that wait for a place, in the order the scheduler takes them, and what each waits for.

    Where the cluster has queues (ElasticQuota, or Queue of KAI), their tree comes first.
    """
    from datetime import UTC, datetime

    if tree:
        return answer(options, lambda client, namespace: tree_answer(client))
    if watch:
        from grove.cli.following import watch as follow

        return follow(options, queue_picture)
    return answer(options, lambda client, namespace: queue_answer(client, namespace, datetime.now(UTC)))


async def tree_answer(client: Client) -> Answer:
    """The tree of queues as rows."""
    from grove.cli.judged import looking
    from grove.scheduler.explain.queues import queue_rows
    from grove.scheduler.loop.asked import waiting_line

    async with looking(client) as scheduler:
        waiting_line(scheduler.view)
        rows = queue_rows(scheduler.quotas.policy, scheduler.view.snapshot)

    def paint(width: int) -> RenderableType:
        from rich.text import Text

        from grove.show.queues import tree_table

        return tree_table(rows, width) if rows else Text("this cluster has no queues")

    return Answer(rows, paint)


async def queue_answer(client: Client, namespace: str, now: datetime) -> Answer:
    from grove.api.podclique import PodClique
    from grove.api.topology import ClusterTopologyBinding
    from grove.cli.judged import looking
    from grove.show.processes import read_processes
    from grove.show.seen import Seen, every

    processes = await read_processes(client, now)
    cliques = await every(client, PodClique, namespace)
    async with looking(client) as scheduler:
        bindings = scheduler.cache.list(ClusterTopologyBinding)
        return queue_of(scheduler, Seen(cliques=cliques, bindings=bindings), processes, namespace, now)


def queue_of(scheduler: Scheduler, seen: Seen, processes: Processes, namespace: str, now: datetime) -> Answer:
    from grove.scheduler.explain.queues import queue_rows
    from grove.scheduler.loop.asked import diagnose, waiting_line
    from grove.show.queue import Line, line_of
    from grove.show.verdict import code_of

    view = scheduler.view
    lines: list[Line] = []
    for one in waiting_line(view):
        if namespace and one.namespace != namespace:
            continue
        state = view.gangs[f"{one.namespace}/{one.name}"]
        found = diagnose(view, state, scheduler.config.node_policy, most=0) if len(lines) < MOST_LOOKED else None
        lines.append(line_of(one, state.podgang, found, seen))
    queues = queue_rows(scheduler.quotas.policy, view.snapshot)
    down = next((one for one in (processes.operator, processes.scheduler) if one.is_down), None)
    code = max((code_of(one.state) for one in lines), default=RUNNING)

    def paint(width: int) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from grove.show.queue import queue_table
        from grove.show.queues import tree_table

        first = [Text(down.sentence, style="bold red")] if down is not None else []
        tree: list[RenderableType] = [tree_table(queues, width), Text("")] if queues else []
        return Group(*first, *tree, queue_table(lines, width, now, everywhere=not namespace))

    return Answer(lines, paint, WAITING if down is not None else code)


async def queue_picture(source: Source) -> Answer | None:
    from grove.cli.access import Unanswered

    if source.scheduler is None:
        raise Unanswered(source.note)
    return queue_of(source.scheduler, source.seen(), await source.processes(), source.namespace, source.now())
