"""`repack`: which running gangs to move, so that a waiting gang fits, or so that less of the fleet is fragmented."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grove.api.words import many
from grove.cli.access import (
    NO_FIT,
    RUNNING,
    Answer,
    Options,
    Unanswered,
    answer,
    asked_once,
    cluster_command,
    complete_sets,
    confirm,
    show,
)
from grove.cli.settings import settings_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from grove.api.podgang import PodGang
    from grove.kube.client import Client
    from grove.scheduler.evict.repack import NoRepack, Repack
    from grove.scheduler.loop.live import Scheduler
    from grove.scheduler.model.config import SchedulerConfiguration
    from grove.scheduler.policy.gang_state import GangState


@click.command()
@click.option(
    "--for", "name", default="", metavar="NAME", shell_complete=complete_sets, help="The set or gang that waits."
)
@click.option("--fleet", is_flag=True, help="Plan for the whole cluster: less fragmentation, the cheapest moves first.")
@click.option("--level", default="", metavar="NAME", help="With --fleet: the level of the topology, such as rack.")
@click.option("--resource", default="", help="With --fleet: the resource; the accelerator the cluster has most of.")
@click.option("--apply", "apply_it", is_flag=True, help="Move the gangs, one after the other.")
@click.option("-y", "--yes", is_flag=True, help="With --apply: do not ask.")
@click.option("--dry-run", is_flag=True, help="With --apply: print the plan; change nothing.")
@settings_option
@cluster_command()
def repack(
    options: Options,
    name: str,
    fleet: bool,
    level: str,
    resource: str,
    apply_it: bool,
    yes: bool,
    dry_run: bool,
    settings: Path | None,
) -> int:
    """Which gangs to move so that a waiting one fits: the fewest pods that restart, each gang with a new place.

    Only gangs of sets that allow it are moved (annotation grove.io/disruption). The plan was played on a copy of the
    cluster. --apply makes a new plan before each move, and stops if the cluster changed. --fleet shows how fragmented
    the cluster is now, and the moves after which more gangs fit. Exit codes: 0 there is a plan, or no move is needed;
    4 there is none, or it was not carried out.
    """
    from grove.cli.settings import settings_in

    if fleet == bool(name):
        raise click.UsageError("give either --for NAME or --fleet")
    if fleet and apply_it:
        raise click.UsageError("--apply needs --for NAME: a plan for the fleet is only shown")
    if not fleet and (level or resource):
        raise click.UsageError("--level and --resource need --fleet")
    given = settings_in(settings) if settings is not None else None
    if fleet:
        return answer(options, lambda client, _: fleet_answer(client, level, resource, given))
    if not apply_it or dry_run:
        return answer(options, lambda client, namespace: repack_answer(client, namespace, name, given))
    from grove.cli.repack_apply import apply_answer

    found = asked_once(options, lambda client, namespace: repack_answer(client, namespace, name, given))
    if found.code != RUNNING or not getattr(found.data, "moves", ()):
        return show(found, options.output)
    if not yes:
        if not options.output:
            show(found)
        confirm(f"this restarts {many(found.data.restarts, 'pod')}", "move these gangs?")
    ask = found.data
    done = asked_once(options, lambda client, namespace: apply_answer(client, namespace, name, ask, given, say=_said))
    return show(done, options.output)


def _said(line: str) -> None:
    click.echo(line, err=True)


async def repack_answer(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None
) -> Answer:
    from grove.show.repacking import repack_table, shown

    found = await planned(client, namespace, name, settings)
    if found is None:
        return nothing_waits(name)
    plan = shown(found)

    def paint(width: int) -> RenderableType:
        return repack_table(plan, width)

    return Answer(plan, paint, NO_FIT if plan.why else RUNNING)


async def planned(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None
) -> Repack | NoRepack | None:
    """Moves for the first gang of a set that waits; None if none of its gangs waits for a place."""
    from grove.cli.judged import looking
    from grove.cli.subjects import subject
    from grove.scheduler.loop.movable import repack_for

    asked = await subject(client, namespace, name)
    async with looking(client, settings) as scheduler:
        gang = first_waiting(scheduler, asked.gangs)
        return repack_for(scheduler.view, gang, scheduler.config) if gang is not None else None


async def fleet_answer(
    client: Client, level: str = "", resource: str = "", settings: SchedulerConfiguration | None = None
) -> Answer:
    """The fragmentation now, what it can be, and the moves. `level` is the name of a level; empty chooses one."""
    from grove.cli.judged import looking
    from grove.scheduler.loop.metrics import sizes_in
    from grove.scheduler.loop.movable import fleet_repack_of, levels_of, measure_of
    from grove.show.layout import accelerator
    from grove.show.repacking import FleetShown, LevelShown, fleet_shown, fleet_table

    async with looking(client, settings) as scheduler:
        view = scheduler.view
        levels = levels_of(view)
        if level and level not in levels:
            raise Unanswered(f"there is no level {level}; the levels are {', '.join(levels)}")
        resource = resource or accelerator(view.nodes.list())
        size = sizes_in(view)(resource)
        measure = measure_of(view, resource, size, levels.get(level, "")) if size is not None else None
        if size is None:
            plan = FleetShown(resource, why=f"no gang asks for {resource}")
        elif measure is None:
            plan = FleetShown(resource, size, why=f"no domain of any level can hold a gang of {size.words}")
        else:
            found = fleet_repack_of(view, scheduler.config, measure)
            shares = [
                LevelShown(name, key, one.of(view.snapshot), one.of(found.end))
                for name, key in levels.items()
                if (one := replace(measure, key=key))
            ]
            plan = fleet_shown(found, measure, next(name for name in levels if levels[name] == measure.key), shares)
    code = NO_FIT if plan.before and not plan.steps else RUNNING
    return Answer(plan, lambda width: fleet_table(plan, width), code)


def first_waiting(scheduler: Scheduler, gangs: Sequence[PodGang]) -> GangState | None:
    """Of these gangs, the one that the scheduler takes first; None if none of them waits for a place."""
    from grove.scheduler.loop.diagnosis import LiveDiagnosis

    view, mine = scheduler.view, {str(gang.metadata.key) for gang in gangs}
    states = [view.units.gangs[name] for name in sorted(mine) if name in view.units.gangs]
    if foreign := [one.name for one in states if not view.concerns_us(one)]:
        raise Unanswered(f"{foreign[0]} is placed by another scheduler")
    answers = LiveDiagnosis(view)
    answers.tell_queues()
    for line in answers.waiting_line():
        if f"{line.namespace}/{line.name}" in mine and line.can_start:
            return view.units.gangs[f"{line.namespace}/{line.name}"]
    return None


def nothing_waits(name: str) -> Answer:
    from rich.text import Text

    said = f"no gang of {name} waits for a place"
    return Answer({"name": name, "note": said}, lambda width: Text(said))
