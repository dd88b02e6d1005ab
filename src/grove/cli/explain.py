"""`explain` and `queue`: why gangs wait. The scheduler's own core runs here, on the cluster as this user may see it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.cli.access import (
    NO_FIT,
    RUNNING,
    WAITING,
    Answer,
    Options,
    Unanswered,
    answer,
    cluster_command,
    complete_sets,
    object_name,
)
from grove.cli.settings import settings_option

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from grove.api.core import Event
    from grove.api.podgang import PodGang
    from grove.kube.client import Client
    from grove.scheduler.loop.live import Scheduler
    from grove.scheduler.model.config import SchedulerConfiguration
    from grove.show.seen import Seen
    from grove.show.verdict import Verdict

_CODES = {"running": RUNNING, "waiting": WAITING, "cannot fit": NO_FIT}


@click.command()
@click.argument("name", metavar="PCS|PODGANG", shell_complete=complete_sets)
@settings_option
@cluster_command()
def explain(options: Options, name: str, settings: Path | None) -> int:
    """Why a set or a gang is not running: the dominant reason, its evidence, the next step, and what would help.

    Changes that are named were tried out on a copy of the cluster. Exit codes: 0 running, 3 waiting, 4 cannot fit.
    """
    from grove.cli.settings import settings_in

    given = settings_in(settings) if settings is not None else None
    return answer(options, lambda client, namespace: explain_answer(client, namespace, object_name(name), given))


async def explain_answer(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None
) -> Answer:
    from grove.show.verdict import set_verdict

    seen, gangs = await subject(client, namespace, name)
    verdicts: list[Verdict] = []
    first = set_verdict(seen, seen.sets[0]) if seen.sets and len(gangs) != 1 else None
    if first is not None:
        verdicts.append(first)
    note = ""
    if gangs and first is None:
        verdicts, note = await _verdicts(client, seen, gangs, settings)
    code = max((_CODES[one.state] for one in verdicts), default=RUNNING)
    data = {"name": name, "gangs": verdicts} | ({"note": note} if note else {})
    return Answer(data, lambda width: _paint(verdicts, note, width), code)


async def subject(client: Client, namespace: str, name: str) -> tuple[Seen, list[PodGang]]:
    """The set of that name with all its gangs, or the gang of that name alone."""
    from dataclasses import replace

    from grove.api import labels
    from grove.api.podgang import PodGang
    from grove.kube.errors import NotFound
    from grove.show.seen import Seen, read

    try:
        seen = await read(client, namespace, only_set=name)
        return seen, seen.of_set(seen.gangs, seen.sets[0])
    except* NotFound:
        pass
    try:
        gang = await client.get(PodGang, name, namespace)
    except NotFound as error:
        if not error.details.get("name"):
            raise
        raise Unanswered(f"there is no PodCliqueSet and no PodGang {name} in namespace {namespace}") from error
    owner = gang.metadata.labels.get(labels.PART_OF, "")
    try:
        seen = await read(client, namespace, only_set=owner) if owner else Seen()
    except* NotFound:
        seen = Seen()
    return replace(seen, gangs=[gang, *(one for one in seen.gangs if one.metadata.name != name)]), [gang]


async def _verdicts(
    client: Client, seen: Seen, gangs: Sequence[PodGang], settings: SchedulerConfiguration | None
) -> tuple[list[Verdict], str]:
    from dataclasses import replace

    from grove.kube.errors import Forbidden
    from grove.scheduler.loop.asked import diagnose
    from grove.show.verdict import ROOM, gang_verdict
    from grove.show.words import counted

    ordered = sorted(gangs, key=lambda gang: counted(gang.metadata.name))
    wanted = {str(gang.metadata.key) for gang in gangs}
    try:
        async for looking in _looking(client, settings):
            view, policy = looking.view, looking.config.node_policy
            ours = [state for state in view.gangs.values() if state.name in wanted and view.concerns_us(state)]
            known = {state.name: diagnose(view, state, policy) for state in ours}
            if any(one.placed for one in known.values()):
                seen = replace(seen, events=await _warnings(client, gangs[0].metadata.namespace))
            found = [gang_verdict(seen, gang, known.get(str(gang.metadata.key))) for gang in ordered]
            idle = await _idle(client) if any(one.reason == ROOM for one in found) else ""
            return [_unplaced(one, idle) if idle and one.reason == ROOM else one for one in found], ""
    except Forbidden as error:
        note = f"you may not see what the scheduler sees ({error}); this is what it wrote on the objects"
        return [gang_verdict(seen, gang, None) for gang in ordered], note
    raise AssertionError("a view is given or refused")


async def _warnings(client: Client, namespace: str) -> Sequence[Event]:
    """What kubelets and others complain about in the pods of a namespace; nothing for those who may not see it."""
    from grove.api.core import Event
    from grove.kube.errors import Forbidden

    try:
        return (await client.list(Event, namespace, fields="type=Warning,involvedObject.kind=Pod")).items
    except Forbidden:
        return ()


async def _idle(client: Client) -> str:
    """How one knows that grove-scheduler does not run; empty when it does, or nobody can tell."""
    from datetime import UTC, datetime

    from grove.cli.checks_running import sign_of_life
    from grove.cli.findings import FAIL
    from grove.kube.errors import Forbidden
    from grove.scheduler.model.config import LeaderElection

    try:
        state, sign = await sign_of_life(client, "grove-scheduler", LeaderElection().resource_name, datetime.now(UTC))
    except Forbidden:
        return ""
    return sign if state == FAIL else ""


def _unplaced(verdict: Verdict, sign: str) -> Verdict:
    from dataclasses import replace

    reason = f"there is room for it, but grove-scheduler does not run ({sign})"
    return replace(
        verdict, level="scheduler", reason=reason, next="start grove-scheduler; kubectl grove doctor says how"
    )


async def _looking(client: Client, given: SchedulerConfiguration | None = None) -> AsyncIterator[Scheduler]:
    """The cluster as the scheduler sees it, read once; nothing is decided or written."""
    from grove.cli.settings import settings_of
    from grove.scheduler.loop.live import Scheduler

    looking = Scheduler(client, given or await settings_of(client))
    async with looking.following():
        yield looking


def _paint(verdicts: Sequence[Verdict], note: str, width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from grove.show.columns import indented

    styles = {"running": "green", "waiting": "yellow", "cannot fit": "bold red"}
    parts: list[RenderableType] = []
    for one in verdicts:
        head = Text().append(f"{one.gang}: ", style="bold")
        head.append(one.state, style=styles[one.state])
        if one.state != "running" or one.reason:
            head.append(f" · {one.level}: {one.reason}" if one.level else f" · {one.reason}")
        parts.append(head)
        for line in one.evidence:
            if line != one.reason:
                parts += indented(line, width, style="dim")
        if one.next:
            parts += indented(f"next: {one.next}", width)
        others = [help for help in one.helps if help != one.next]
        if others:
            parts += indented("or, each tried out on the live cluster:", width)
            for help in others:
                parts += indented(f"- {help}", width, 6)
    if note:
        parts.append(Text(note, style="yellow"))
    return Group(*parts) if parts else Text("no gangs")


@click.command()
@cluster_command(everywhere=True)
def queue(options: Options) -> int:
    """Gangs that wait for a place, in the order the scheduler takes them, and what each waits for."""
    from datetime import UTC, datetime

    return answer(options, lambda client, namespace: queue_answer(client, namespace, datetime.now(UTC)))


async def queue_answer(client: Client, namespace: str, now: datetime) -> Answer:
    from grove.api.podclique import PodClique
    from grove.scheduler.loop.asked import waiting_line
    from grove.show.queue import line_of
    from grove.show.seen import every

    async for looking in _looking(client):
        refused = {
            one.metadata.key: one.status.last_errors[0].description
            for one in await every(client, PodClique, namespace)
            if one.status.last_errors and one.status.replicas < one.spec.replicas
        }
        waiting = [one for one in waiting_line(looking.view) if not namespace or one.namespace == namespace]
        lines = [line_of(one, looking.view.gangs[f"{one.namespace}/{one.name}"].podgang, refused) for one in waiting]
        break

    def paint(width: int) -> RenderableType:
        from rich.text import Text

        from grove.show.columns import table
        from grove.show.words import age

        if not lines:
            return Text("no gang waits")
        rows = [
            (
                str(number),
                one.namespace,
                one.name,
                str(one.priority),
                str(one.pods),
                age(one.created, now),
                one.waits_for,
            )
            for number, one in enumerate(lines, 1)
        ]
        titles = ("#", "NAMESPACE", "GANG", "PRIORITY", "PODS", "AGE", "WAITS FOR")
        return table(titles, rows, width, may_go=("PRIORITY", "AGE") if not namespace else ("NAMESPACE", "PRIORITY"))

    return Answer(lines, paint, WAITING if lines else RUNNING)
