"""How sets are, asked of a cluster: what was read, whether the operator and the scheduler run, and for gangs that wait
the scheduler's own eyes. `status`, `tree`, `explain` and `queue` all ask here, so they say the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grove.cli.referred import with_causes
from grove.cli.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from grove.api.meta import Key
    from grove.api.podgang import PodGang
    from grove.diagnosis.processes import Processes
    from grove.diagnosis.seen import Seen
    from grove.diagnosis.verdict import Judgement
    from grove.kube.client import Client
    from grove.scheduler.explain.explanation import Diagnosis
    from grove.scheduler.loop.live import Scheduler
    from grove.scheduler.model.config import SchedulerConfiguration

MOST_CHANGES = 5
MOST_LOOKED = 64
"""Waiting gangs that are looked at one by one; what the scheduler wrote on the others has to do."""


@dataclass(frozen=True, slots=True)
class Judged:
    """`note` says what could not be looked at for lack of rights."""

    sets: tuple[Judgement, ...]
    processes: Processes
    note: str = ""


Look = Callable[["Sequence[PodGang]", int], Awaitable["dict[Key, Diagnosis]"]]
"""Diagnoses of gangs, with so many changes that would help each."""


async def judged(
    client: Client,
    seen: Seen,
    now: datetime,
    *,
    advice: bool = False,
    only: Sequence[PodGang] | None = None,
    settings: SchedulerConfiguration | None = None,
) -> Judged:
    """The sets that were read, judged. `advice` also asks what would help; `only` these gangs are looked at then."""
    from grove.diagnosis.processes import read_processes

    seen = await with_causes(client, seen)
    others: list[PodGang] = []

    async def look(gangs: Sequence[PodGang], most: int) -> dict[Key, Diagnosis]:
        async with looking(client, settings) as scheduler:
            others.extend(one.podgang for one in scheduler.view.units.gangs.values() if one.has_object)
            return diagnosed(scheduler, gangs, most)

    seen = replace(seen, others=others)  # filled as the scheduler's view is read: who might make room
    return await judged_with(seen, now, await read_processes(client, now), look, advice=advice, only=only)


async def judged_with(
    seen: Seen,
    now: datetime,
    processes: Processes,
    look: Look,
    *,
    advice: bool = False,
    only: Sequence[PodGang] | None = None,
    note: str = "",
) -> Judged:
    from grove.diagnosis.verdict import judge_all
    from grove.kube.errors import Forbidden

    found: dict[Key, Diagnosis] = {}
    waiting = [gang for gang in (seen.gangs if only is None else only) if _waits(gang)]
    if waiting:
        try:
            found = await look(waiting[:MOST_LOOKED], MOST_CHANGES if advice else 0)
        except Forbidden as error:
            note = f"you may not see what the scheduler sees ({error}); this is what it wrote on the objects"
    return Judged(judge_all(seen, now, processes, found), processes, note)


def _waits(gang: PodGang) -> bool:
    """Whether it has to be looked at: one of ours that does not say that it is placed."""
    from grove.api import conditions as words
    from grove.api.meta import is_true
    from grove.diagnosis.verdict import is_ours

    return is_ours(gang) and not gang.metadata.is_deleting and not is_true(gang.status.conditions, words.SCHEDULED)


def diagnosed(scheduler: Scheduler, gangs: Sequence[PodGang], most: int) -> dict[Key, Diagnosis]:
    """What the scheduler would say of these gangs now."""
    from grove.scheduler.loop.diagnosis import LiveDiagnosis

    view = scheduler.view
    answers = LiveDiagnosis(view, scheduler.config.node_policy, scheduler.config)
    answers.tell_queues()
    states = ((gang.metadata.key, view.units.gangs.get(str(gang.metadata.key))) for gang in gangs)
    return {
        key: answers.diagnose(state, most=most)
        for key, state in states
        if state is not None and view.concerns_us(state)
    }


@asynccontextmanager
async def looking(client: Client, given: SchedulerConfiguration | None = None) -> AsyncIterator[Scheduler]:
    """The cluster as the scheduler sees it, read once; nothing is decided or written."""
    from grove.diagnosis.reasons import sentence
    from grove.scheduler.loop.hold_restorer import enter_recorded
    from grove.scheduler.loop.live import Scheduler

    scheduler = Scheduler(client, given or await settings_of(client), say=sentence)
    async with scheduler.following():
        enter_recorded(scheduler.view)
        yield scheduler
