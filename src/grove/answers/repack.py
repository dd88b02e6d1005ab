"""`repack`: which running gangs to move, so that a waiting gang fits, or so that less of the fleet is fragmented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from grove.answers.answer import NO_FIT, RUNNING, Answer, Unanswered
from grove.answers.scheduler_view import looking
from grove.answers.subjects import subject
from grove.api.podgang import PodGang
from grove.kube.client import Client
from grove.scheduler.evict.repack import NoRepack, Repack
from grove.scheduler.loop.diagnosis import LiveDiagnosis
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.loop.metrics import sizes_in
from grove.scheduler.loop.moving.movable import fleet_repack_of, levels_of, measure_of, repack_for
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.policy.gang_state import GangState
from grove.show.layout import accelerator
from grove.show.repacking import FleetShown, LevelShown, fleet_shown, fleet_table, repack_table, shown


async def repack_answer(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None
) -> Answer:
    answer = await planned(client, namespace, name, settings)
    if answer is None:
        return nothing_waits(name)
    plan = shown(answer)

    def paint(width: int) -> RenderableType:
        return repack_table(plan, width)

    return Answer(plan, paint, NO_FIT if plan.why else RUNNING)


async def planned(
    client: Client, namespace: str, name: str, settings: SchedulerConfiguration | None = None
) -> Repack | NoRepack | None:
    """Moves for the first gang of a set that waits; None if none of its gangs waits for a place."""
    asked = await subject(client, namespace, name)
    async with looking(client, settings) as scheduler:
        gang = first_waiting(scheduler, asked.gangs)
        return repack_for(scheduler.view, gang, scheduler.config) if gang is not None else None


async def fleet_answer(
    client: Client, level: str = "", resource: str = "", settings: SchedulerConfiguration | None = None
) -> Answer:
    """The fragmentation now, what it can be, and the moves. `level` is the name of a level; empty chooses one."""
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
            fleet_repack = fleet_repack_of(view, scheduler.config, measure)
            shares = [
                LevelShown(name, key, level_measure.of(view.snapshot), level_measure.of(fleet_repack.end))
                for name, key in levels.items()
                if (level_measure := replace(measure, key=key))
            ]
            plan = fleet_shown(
                fleet_repack, measure, next(name for name in levels if levels[name] == measure.key), shares
            )
    code = NO_FIT if plan.before and not plan.steps else RUNNING
    return Answer(plan, lambda width: fleet_table(plan, width), code)


def first_waiting(scheduler: Scheduler, gangs: Sequence[PodGang]) -> GangState | None:
    """Of these gangs, the one that the scheduler takes first; None if none of them waits for a place."""
    view, mine = scheduler.view, {str(gang.metadata.key) for gang in gangs}
    states = [view.units.gangs[name] for name in sorted(mine) if name in view.units.gangs]
    if foreign := [state.name for state in states if not view.concerns_us(state)]:
        raise Unanswered(f"{foreign[0]} is placed by another scheduler")
    answers = LiveDiagnosis(view)
    answers.tell_queues()
    for line in answers.waiting_line():
        if f"{line.namespace}/{line.name}" in mine and line.can_start:
            return view.units.gangs[f"{line.namespace}/{line.name}"]
    return None


def nothing_waits(name: str) -> Answer:
    sentence = f"no gang of {name} waits for a place"
    return Answer({"name": name, "note": sentence}, lambda width: Text(sentence))
