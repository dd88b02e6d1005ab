"""The cluster as the scheduler sees it, with the rights of the user. The scheduler's own code diagnoses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from grove.answers.settings import settings_of
from grove.api.meta import Key
from grove.api.podgang import PodGang
from grove.diagnosis.reasons import sentence
from grove.kube.client import Client
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.explain.explanation import Diagnosis
from grove.scheduler.loop.diagnosis import LiveDiagnosis, lacks_place, with_moves
from grove.scheduler.loop.holds.hold_restorer import enter_recorded
from grove.scheduler.loop.live import Scheduler
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.config import SchedulerConfiguration

T = TypeVar("T")


async def diagnosed(scheduler: Scheduler, gangs: Sequence[PodGang], most: int) -> dict[Key, Diagnosis]:
    """What the scheduler would say of these gangs now. The searches run in a thread, beside the event loop."""
    view = scheduler.view
    answers = LiveDiagnosis(view, scheduler.config.node_policy, scheduler.config)
    answers.tell_queues()
    states = {
        gang.metadata.key: state
        for gang in gangs
        if (state := view.units.gangs.get(str(gang.metadata.key))) is not None and view.concerns_us(state)
    }
    diagnoses = await _in_thread(view, {key: answers.question(state, most=most) for key, state in states.items()})
    waiting = (
        key
        for key, diagnosis in diagnoses.items()
        if most and lacks_place(diagnosis) and view.units.is_current(states[key])
    )
    asked = ((key, answers.moves_question(states[key])) for key in waiting)
    plans = await _in_thread(view, {key: ask for key, ask in asked if ask is not None})
    return diagnoses | {key: with_moves(diagnoses[key], plan, most) for key, plan in plans.items()}


async def _in_thread(view: View, asks: Mapping[Key, Callable[[Snapshot], T]]) -> dict[Key, T]:
    """The answers to questions about the view as it is now."""
    if not asks:
        return {}
    snapshot = view.snapshot.copy_for_thread()

    def work() -> dict[Key, T]:
        return {key: ask(snapshot) for key, ask in asks.items()}

    return await asyncio.get_running_loop().run_in_executor(None, work)


@asynccontextmanager
async def looking(client: Client, given: SchedulerConfiguration | None = None) -> AsyncIterator[Scheduler]:
    """The cluster as the scheduler sees it, read once; nothing is decided or written."""
    scheduler = Scheduler(client, given or await settings_of(client), say=sentence)
    async with scheduler.following():
        enter_recorded(scheduler.view)
        yield scheduler
